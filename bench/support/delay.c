/* One thread and one loop over poll(2). A connection takes two seats: what one receives, the other sends later. */
#include "support/delay.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#if defined(__linux__)
#include <sys/prctl.h>
#endif

#include "support/common/cleanup.h"
#include "support/common/timing.h"
#include "support/team.h"

enum { SEATS = 128, CHUNKS = 64, CHUNK = 4096, BACKLOG = 64 };

struct chunk {
    double due_ns;
    size_t size;
    char bytes[CHUNK];
};

struct seat {
    int fd;                      /* -1: free */
    unsigned first, count;       /* of the chunks that are to be sent to fd: a ring */
    struct chunk chunks[CHUNKS]; /* in the order in which they are due */
};

static struct seat seats[SEATS]; /* 2n: a client; 2n + 1: the server's end of the same connection */
static int listener = -1;
static double delay_ns;
static char url[128], path[100];
static int helper;

/* ---------------------------------------------------------------- addresses */

union address {
    struct sockaddr any;
    struct sockaddr_in tcp;
    struct sockaddr_un local;
};

static socklen_t local_address(union address *address, const char *socket_path)
{
    *address = (union address){.local = {.sun_family = AF_UNIX}};
    snprintf(address->local.sun_path, sizeof address->local.sun_path, "%s", socket_path);
    return sizeof address->local;
}

static socklen_t tcp_address(union address *address, int port)
{
    *address = (union address){
        .tcp = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
    return sizeof address->tcp;
}

static int new_socket(void)
{
    int fd = socket(bench_transport == BENCH_TCP ? AF_INET : AF_UNIX, SOCK_STREAM, 0);

    if (fd < 0)
        cleanup_fail("the wire with a delay has no socket");
    return fd;
}

static void send_at_once(int fd)
{
    int on = 1;

    if (bench_transport == BENCH_TCP)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static void listen_on_wire(void)
{
    union address address;
    socklen_t size;

    snprintf(path, sizeof path, "%s/wire.sock", bench_server.folder);
    size = bench_transport == BENCH_TCP ? tcp_address(&address, 0) : local_address(&address, path);
    unlink(path);
    listener = new_socket();
    if (bind(listener, &address.any, size) != 0 || listen(listener, BACKLOG) != 0 ||
        getsockname(listener, &address.any, &size) != 0)
        cleanup_fail("the wire with a delay can't listen");
    if (bench_transport == BENCH_TCP)
        snprintf(url, sizeof url, "redis://127.0.0.1:%d", ntohs(address.tcp.sin_port));
    else
        snprintf(url, sizeof url, "unix://%s", path);
}

static int connect_to_server(void)
{
    union address address;
    int fd = new_socket();
    socklen_t size = bench_transport == BENCH_TCP ? tcp_address(&address, bench_tcp_port)
                                                  : local_address(&address, bench_server.socket_path);

    if (connect(fd, &address.any, size) != 0)
        cleanup_fail("the wire with a delay can't reach the server");
    send_at_once(fd);
    return fd;
}

/* -------------------------------------------------------------- connections */

static void take_client(void)
{
    for (unsigned i = 0; i < SEATS; i += 2) {
        if (seats[i].fd >= 0)
            continue;
        seats[i].fd = accept(listener, NULL, NULL);
        seats[i + 1].fd = connect_to_server();
        send_at_once(seats[i].fd);
        seats[i].count = seats[i + 1].count = 0;
        return;
    }
    cleanup_fail("the wire with a delay has no room for a connection");
}

static void end_connection(unsigned number)
{
    for (unsigned i = 0; i < 2; i++) {
        close(seats[(number & ~1u) + i].fd);
        seats[(number & ~1u) + i].fd = -1;
    }
}

static void receive(unsigned number)
{
    struct seat *to = &seats[number ^ 1u];
    struct chunk *chunk = &to->chunks[(to->first + to->count) % CHUNKS];
    ssize_t size = recv(seats[number].fd, chunk->bytes, CHUNK, 0);

    if (size <= 0) {
        end_connection(number);
        return;
    }
    chunk->size = (size_t)size;
    chunk->due_ns = now_ns() + delay_ns;
    to->count++;
}

static void send_due(unsigned number)
{
    struct seat *seat = &seats[number];

    while (seat->fd >= 0 && seat->count > 0 && seat->chunks[seat->first].due_ns <= now_ns()) {
        const struct chunk *chunk = &seat->chunks[seat->first];
        if (send(seat->fd, chunk->bytes, chunk->size, 0) != (ssize_t)chunk->size) {
            end_connection(number);
            return;
        }
        seat->first = (seat->first + 1) % CHUNKS;
        seat->count--;
    }
}

/* --------------------------------------------------------------------- loop */

/* Waits until there is something to receive, or to send. */
static void wait_for_work(struct pollfd polled[SEATS + 1])
{
    double next = -1;

    polled[SEATS] = (struct pollfd){.fd = listener, .events = POLLIN};
    for (unsigned i = 0; i < SEATS; i++) {
        struct seat *seat = &seats[i];
        bool full = seats[i ^ 1u].count == CHUNKS;
        polled[i] = (struct pollfd){.fd = full ? -1 : seat->fd, .events = POLLIN};
        if (seat->fd >= 0 && seat->count > 0 && (next < 0 || seat->chunks[seat->first].due_ns < next))
            next = seat->chunks[seat->first].due_ns;
    }
    double left = next < 0 ? 1e9 : next - now_ns();
    left = left > 0 ? left : 0;
#if defined(__linux__)
    struct timespec limit = {.tv_sec = left >= 1e9, .tv_nsec = left >= 1e9 ? 0 : (long)left};
    ppoll(polled, SEATS + 1, &limit, NULL);
#else
    poll(polled, SEATS + 1, (int)(left / 1e6));
#endif
}

static void carry(unsigned number, void *memory)
{
    static struct pollfd polled[SEATS + 1];

    (void)number;
    (void)memory;
#if defined(__linux__)
    prctl(PR_SET_TIMERSLACK, 1UL);
#endif
    for (unsigned i = 0; i < SEATS; i++)
        seats[i].fd = -1;
    for (;;) {
        wait_for_work(polled);
        for (unsigned i = 0; i < SEATS; i++) {
            send_due(i);
            if (polled[i].fd >= 0 && polled[i].fd == seats[i].fd && polled[i].revents)
                receive(i);
        }
        if (polled[SEATS].revents)
            take_client();
    }
}

void delay_start(unsigned delay_us)
{
    delay_ns = delay_us * 1e3;
    listen_on_wire();
    helper = helper_start(0, carry, NULL);
    close(listener);
    bench_use_url(url);
}

void delay_stop(void)
{
    helper_stop(helper);
    bench_use(bench_transport);
}
