/*
 * An event loop: a server that locks a name for each request and never blocks. One thread waits for everything at once:
 * for connections, for requests, and for locks, whose completions come by a queue that has a descriptor for epoll.
 *
 *     cc epoll_server.c -o epoll_server $(pkg-config --cflags --libs dibs)
 *     DIBS_URL=redis://127.0.0.1 ./epoll_server 7000
 *
 * A request is a short line, the name:  printf 'sku:25\n' | nc -q 1 127.0.0.1 7000
 */
#include <arpa/inet.h>
#include <dibs.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

struct client {
    int fd;
    dibs_task *task; /* owns the lock, whoever else this thread serves meanwhile */
    char name[DIBS_NAME_MAX + 2];
    uint64_t fence;
    bool waits; /* a begun call of the task is under way, so the client must remain */
    bool gone;
};

static dibs_runtime *rt;
static dibs_queue *queue;
static int epoll, listener;
static volatile sig_atomic_t stopped;

static void stop(int signal)
{
    (void)signal;
    stopped = 1;
}

static void expect(bool right, const char *what)
{
    if (right)
        return;
    fprintf(stderr, "%s: %s\n", what, dibs_last_error());
    exit(1);
}

static void watch(int op, int fd, uint32_t events, void *of)
{
    struct epoll_event event = {.events = events, .data.ptr = of};

    expect(epoll_ctl(epoll, op, fd, &event) == 0, "epoll_ctl");
}

static void end(struct client *client)
{
    dibs_task_free(client->task); /* what it holds is given up in the background */
    close(client->fd);
    free(client);
}

static void accept_client(void)
{
    int fd = accept(listener, NULL, NULL);
    struct client *client = fd < 0 ? NULL : calloc(1, sizeof *client);

    if (!client)
        return;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    client->fd = fd;
    expect(dibs_task_new(rt, &client->task) == DIBS_OK, "dibs_task_new");
    watch(EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, client);
}

/* Without a call under way: the next request may come, unless the client has left. */
static void listen_to(struct client *client)
{
    client->waits = false;
    if (client->gone)
        end(client);
    else
        watch(EPOLL_CTL_MOD, client->fd, EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, client);
}

static void on_client(struct client *client)
{
    if (client->waits) { /* a client that has left needs no lock; the completion still comes, and ends the client */
        client->gone = true;
        dibs_task_cancel(client->task);
        return;
    }
    ssize_t size = read(client->fd, client->name, sizeof client->name - 1);
    if (size <= 0) {
        end(client);
        return;
    }
    client->name[size] = '\0';
    client->name[strcspn(client->name, "\r\n")] = '\0';
    client->waits = dibs_lock_begin(client->task, client->name, 5000, NULL, queue, client) == DIBS_OK;
    if (client->waits) {
        watch(EPOLL_CTL_MOD, client->fd, EPOLLRDHUP | EPOLLONESHOT, client);
        return;
    }
    dprintf(client->fd, "refused: %s\n", dibs_last_error());
    listen_to(client);
}

/* What the lock is for. It must be quick, as everything in a loop; what can't be undone comes behind the check. */
static void serve(struct client *client)
{
    expect(dibs_task_enter(client->task) == DIBS_OK, "dibs_task_enter");
    if (dibs_check(rt, client->name) == DIBS_OK)
        printf("%s is ours, with fence %" PRIu64 "\n", client->name, client->fence);
    dibs_task_leave(client->task);
}

static void on_completion(const dibs_completion *done)
{
    struct client *client = done->arg;

    if (done->kind == DIBS_DONE_LOCK && done->status == DIBS_OK) {
        client->fence = done->fence;
        serve(client);
        expect(dibs_unlock_begin(client->task, client->name, queue, client) == DIBS_OK, "dibs_unlock_begin");
    } else if (done->kind == DIBS_DONE_LOCK) {
        dprintf(client->fd, "not locked: %s\n", done->detail);
        listen_to(client);
    } else if (done->kind == DIBS_DONE_UNLOCK) { /* only now it is known whether the lock was kept until the end */
        dprintf(client->fd, "%s %" PRIu64 "\n", done->status == DIBS_LOST ? "lost" : "served", done->fence);
        listen_to(client);
    } /* of DIBS_DONE_LOST the unlock will tell */
}

static void take_completions(void)
{
    dibs_completion done[16];
    size_t count = dibs_queue_take(queue, done, 16, 0);

    for (size_t i = 0; i < count; i++)
        on_completion(&done[i]);
}

static void start(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    sigset_t blocked;

    address.sin_port = htons((uint16_t)port);
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    sigprocmask(SIG_BLOCK, &blocked, NULL); /* only epoll_pwait lets it in, so none comes just before the wait */
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = stop}, NULL);
    expect(dibs_open(&rt, NULL) == DIBS_OK, "dibs_open");
    expect(dibs_queue_new(&queue) == DIBS_OK, "dibs_queue_new");
    epoll = epoll_create1(EPOLL_CLOEXEC);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    expect(bind(listener, (struct sockaddr *)&address, size) == 0 && listen(listener, 100) == 0, "listen");
    watch(EPOLL_CTL_ADD, listener, EPOLLIN, &listener);
    watch(EPOLL_CTL_ADD, dibs_queue_fd(queue), EPOLLIN, queue);
    getsockname(listener, (struct sockaddr *)&address, &size);
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("listening on %d\n", ntohs(address.sin_port));
}

int main(int argc, char **argv)
{
    struct epoll_event event;
    sigset_t none;

    sigemptyset(&none);
    start(argc > 1 ? (int)strtol(argv[1], NULL, 10) : 0);
    while (!stopped) {
        if (epoll_pwait(epoll, &event, 1, -1, &none) != 1) /* one at a time: what is served here may end a client */
            continue;
        if (event.data.ptr == &listener)
            accept_client();
        else if (event.data.ptr == queue)
            take_completions();
        else
            on_client(event.data.ptr);
    }
    dibs_close(rt); /* gives up every lock; what waits completes with DIBS_CLOSED */
    dibs_queue_free(queue);
    return 0;
}
