/*
 * An event loop of libuv: a server that locks a name for each request and never blocks. The queue's descriptor is one
 * more handle of the loop.
 *
 *     cc libuv_server.c -o libuv_server $(pkg-config --cflags --libs dibs libuv)
 *     DIBS_URL=redis://127.0.0.1 ./libuv_server 7000
 *
 * A request is a short line, the name:  printf 'sku:25\n' | nc -q 1 127.0.0.1 7000
 */
#include <dibs.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

struct client {
    uv_tcp_t tcp;    /* first, so that a pointer to it is one to the client */
    dibs_task *task; /* owns the lock, whoever else this thread serves meanwhile */
    char name[DIBS_NAME_MAX + 2];
    bool waits; /* a begun call of the task is under way, so the client must remain */
    bool gone;
};

static dibs_runtime *rt;
static dibs_queue *queue;

static void expect(bool right, const char *what)
{
    if (right)
        return;
    fprintf(stderr, "%s: %s\n", what, dibs_last_error());
    exit(1);
}

static void answer(struct client *client, const char *what, const char *text, uint64_t fence)
{
    char line[512];
    int size = snprintf(line, sizeof line, "%s%s", what, text);

    if (fence > 0)
        size = snprintf(line, sizeof line, "%s %" PRIu64, what, fence);
    uv_buf_t buffer = uv_buf_init(line, (unsigned)(size < 510 ? size : 510) + 1);
    line[buffer.len - 1] = '\n';
    uv_try_write((uv_stream_t *)client, &buffer, 1); /* a short line fits; who has left needs none */
}

static void free_client(uv_handle_t *handle)
{
    free(handle);
}

static void end(struct client *client)
{
    dibs_task_free(client->task); /* what it holds is given up in the background */
    uv_close((uv_handle_t *)client, free_client);
}

/* Without a call under way: the next request may come, unless the client has left. */
static void is_ready(struct client *client)
{
    client->waits = false;
    if (client->gone)
        end(client);
}

static void lend_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
    static char bytes[DIBS_NAME_MAX + 2];

    (void)handle, (void)suggested;
    *out = uv_buf_init(bytes, sizeof bytes - 1);
}

static void on_read(uv_stream_t *stream, ssize_t size, const uv_buf_t *buffer)
{
    struct client *client = (struct client *)stream;

    if (size < 0) {
        uv_read_stop(stream);
        client->gone = true;
        if (client->waits) /* the completion still comes, and ends the client */
            dibs_task_cancel(client->task);
        else
            end(client);
    } else if (size > 0 && !client->waits) {
        buffer->base[size] = '\0';
        snprintf(client->name, sizeof client->name, "%.*s", (int)strcspn(buffer->base, "\r\n"), buffer->base);
        client->waits = dibs_lock_begin(client->task, client->name, 5000, NULL, queue, client) == DIBS_OK;
        if (!client->waits)
            answer(client, "refused: ", dibs_last_error(), 0);
    }
}

static void on_connection(uv_stream_t *server, int status)
{
    struct client *client = status < 0 ? NULL : calloc(1, sizeof *client);

    if (!client)
        return;
    expect(dibs_task_new(rt, &client->task) == DIBS_OK, "dibs_task_new");
    uv_tcp_init(server->loop, &client->tcp);
    if (uv_accept(server, (uv_stream_t *)client) != 0 ||
        uv_read_start((uv_stream_t *)client, lend_buffer, on_read) != 0)
        end(client);
}

/* What the lock is for. It must be quick, as everything in a loop; what can't be undone comes behind the check. */
static void serve(struct client *client, uint64_t fence)
{
    expect(dibs_task_enter(client->task) == DIBS_OK, "dibs_task_enter");
    if (dibs_check(rt, client->name) == DIBS_OK)
        printf("%s is ours, with fence %" PRIu64 "\n", client->name, fence);
    dibs_task_leave(client->task);
}

static void on_completion(const dibs_completion *done)
{
    struct client *client = done->arg;

    if (done->kind == DIBS_DONE_LOCK && done->status == DIBS_OK) {
        serve(client, done->fence);
        expect(dibs_unlock_begin(client->task, client->name, queue, client) == DIBS_OK, "dibs_unlock_begin");
    } else if (done->kind == DIBS_DONE_LOCK) {
        answer(client, "not locked: ", done->detail, 0);
        is_ready(client);
    } else if (done->kind == DIBS_DONE_UNLOCK) { /* only now it is known whether the lock was kept until the end */
        answer(client, done->status == DIBS_LOST ? "lost" : "served", "", done->fence);
        is_ready(client);
    } /* of DIBS_DONE_LOST the unlock will tell */
}

static void on_queue(uv_poll_t *poll, int status, int events)
{
    dibs_completion done[16];
    size_t count = dibs_queue_take(queue, done, 16, 0);

    (void)poll, (void)status, (void)events;
    for (size_t i = 0; i < count; i++)
        on_completion(&done[i]);
}

static void on_signal(uv_signal_t *signal, int number)
{
    (void)number;
    uv_stop(signal->loop);
}

int main(int argc, char **argv)
{
    uv_loop_t *loop = uv_default_loop();
    uv_tcp_t server;
    uv_poll_t completions;
    uv_signal_t term;
    struct sockaddr_in address;
    int size = sizeof address;

    expect(dibs_open(&rt, NULL) == DIBS_OK, "dibs_open");
    expect(dibs_queue_new(&queue) == DIBS_OK, "dibs_queue_new");
    uv_ip4_addr("127.0.0.1", argc > 1 ? (int)strtol(argv[1], NULL, 10) : 0, &address);
    uv_tcp_init(loop, &server);
    uv_tcp_bind(&server, (struct sockaddr *)&address, 0);
    expect(uv_listen((uv_stream_t *)&server, 100, on_connection) == 0, "uv_listen");
    uv_poll_init(loop, &completions, dibs_queue_fd(queue));
    uv_poll_start(&completions, UV_READABLE, on_queue);
    uv_signal_init(loop, &term);
    uv_signal_start(&term, on_signal, SIGTERM);
    uv_tcp_getsockname(&server, (struct sockaddr *)&address, &size);
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("listening on %d\n", ntohs(address.sin_port));
    uv_run(loop, UV_RUN_DEFAULT);
    dibs_close(rt); /* gives up every lock; what waits completes with DIBS_CLOSED */
    dibs_queue_free(queue);
    return 0;
}
