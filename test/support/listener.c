/* Locks: the loop holds l->mutex except inside poll. A send blocks with l->mutex held, but replies are small. */
#include "support/listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "support/common/redis_process.h"
#include "support/test.h"

enum { BACKLOG = 128 };

void listener_lock(struct listener *l)
{
    pthread_mutex_lock(&l->mutex);
}

void listener_unlock(struct listener *l)
{
    pthread_mutex_unlock(&l->mutex);
}

void listener_wake(struct listener *l)
{
    ssize_t written = write(l->wake[1], "", 1);

    (void)written; /* a full pipe wakes as well */
}

static void drain(int fd)
{
    char chunk[64];

    while (read(fd, chunk, sizeof chunk) > 0)
        ;
}

static void accept_one(struct listener *l)
{
    int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC);

    if (fd >= 0)
        l->ops->accepted(l->server, fd);
}

static void *run(void *arg)
{
    struct listener *l = arg;
    struct pollfd polled[2 + LISTENER_FDS_MOST];

    listener_lock(l);
    while (!l->stopping) {
        size_t count = l->ops->watch(l->server, polled + 2);

        polled[0] = (struct pollfd){.fd = l->wake[0], .events = POLLIN};
        polled[1] = (struct pollfd){.fd = l->fd, .events = POLLIN};
        listener_unlock(l);
        poll(polled, 2 + count, -1);
        listener_lock(l);
        drain(l->wake[0]);
        l->ops->serve(l->server, polled + 2, count);
        if (polled[1].revents)
            accept_one(l);
    }
    listener_unlock(l);
    return NULL;
}

/* --------------------------------------------------------- start and stop */

static void listen_unix(struct listener *l)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};

    assert_true(temporary_folder(l->folder, sizeof l->folder));
    snprintf(l->path, sizeof l->path, "%s/fake.sock", l->folder);
    snprintf(l->url, sizeof l->url, "unix://%s", l->path);
    memcpy(name.sun_path, l->path, strlen(l->path));
    l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(l->fd >= 0);
    assert_int_equal(bind(l->fd, (struct sockaddr *)&name, sizeof name), 0);
}

static void listen_tcp(struct listener *l)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof name;

    l->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(l->fd >= 0);
    assert_int_equal(bind(l->fd, (struct sockaddr *)&name, sizeof name), 0);
    assert_int_equal(getsockname(l->fd, (struct sockaddr *)&name, &length), 0);
    l->port = ntohs(name.sin_port);
    snprintf(l->url, sizeof l->url, "redis://127.0.0.1:%u", l->port);
}

void listener_start(struct listener *l, const struct listener_ops *ops, void *server, bool tcp)
{
    *l = (struct listener){.ops = ops, .server = server};
    if (tcp)
        listen_tcp(l);
    else
        listen_unix(l);
    assert_int_equal(listen(l->fd, BACKLOG), 0);
    assert_int_equal(pipe2(l->wake, O_CLOEXEC | O_NONBLOCK), 0);
    pthread_mutex_init(&l->mutex, NULL);
    assert_int_equal(pthread_create(&l->thread, NULL, run, l), 0);
}

void listener_stop(struct listener *l)
{
    listener_lock(l);
    l->stopping = true;
    listener_unlock(l);
    listener_wake(l);
    pthread_join(l->thread, NULL);
    close(l->fd);
    close(l->wake[0]);
    close(l->wake[1]);
    if (l->folder[0])
        remove_folder(l->folder);
    pthread_mutex_destroy(&l->mutex);
}

/* ----------------------------------------------------------------- sending */

void send_all(int fd, const char *data, size_t length)
{
    while (fd >= 0 && length > 0) {
        ssize_t n = send(fd, data, length, MSG_NOSIGNAL);

        if (n <= 0)
            return; /* the next poll notices */
        data += n;
        length -= (size_t)n;
    }
}

void send_text(int fd, const char *text)
{
    send_all(fd, text, strlen(text));
}
