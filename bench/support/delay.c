/* One thread and one loop over poll(2). A connection takes two seats: what one receives, the other sends later. */
#include "support/delay.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
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

enum { SEATS = 256, CHUNKS = 64, CHUNK = 4096, BACKLOG = 64 };

struct chunk {
    double due_ns;
    size_t size; /* 0: the sender's end of the connection was closed */
    char bytes[CHUNK];
};

struct seat {
    int fd;                /* -1: free */
    bool is_silent;        /* nothing more comes from fd */
    unsigned first, count; /* of the chunks that are to be sent to fd: a ring */
    struct chunk *chunks;  /* in the order in which they are due; NULL: the seat was never taken */
};

static struct seat seats[SEATS]; /* 2n: a client; 2n + 1: the server's end of the same connection */
static unsigned seats_used;      /* no seat from here on was ever taken */
static struct wire *wires;
static unsigned wire_count;
static double delay_ns;
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

static int new_socket(const struct wire *wire)
{
    int fd = socket(wire->server_path ? AF_UNIX : AF_INET, SOCK_STREAM, 0);

    if (fd < 0)
        cleanup_fail("the wire with a delay has no socket");
    return fd;
}

static void send_at_once(const struct wire *wire, int fd)
{
    int on = 1;

    if (!wire->server_path)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static void listen_on(struct wire *wire)
{
    union address address;
    char path[100];

    snprintf(path, sizeof path, "%s/wire%d.sock", bench_server.folder, (int)(wire - wires));
    unlink(path);
    socklen_t size = wire->server_path ? local_address(&address, path) : tcp_address(&address, 0);
    wire->listener = new_socket(wire);
    if (bind(wire->listener, &address.any, size) != 0 || listen(wire->listener, BACKLOG) != 0 ||
        getsockname(wire->listener, &address.any, &size) != 0)
        cleanup_fail("the wire with a delay can't listen");
    wire->port = wire->server_path ? 0 : ntohs(address.tcp.sin_port);
    if (wire->server_path)
        snprintf(wire->url, sizeof wire->url, "unix://%s", path);
    else
        snprintf(wire->url, sizeof wire->url, "redis://127.0.0.1:%d", wire->port);
}

static int connect_to_server(const struct wire *wire)
{
    union address address;
    int fd = new_socket(wire);
    socklen_t size =
        wire->server_path ? local_address(&address, wire->server_path) : tcp_address(&address, wire->server_port);

    if (connect(fd, &address.any, size) != 0)
        cleanup_fail("the wire with a delay can't reach the server");
    send_at_once(wire, fd);
    return fd;
}

/* -------------------------------------------------------------- connections */

static void take_seat(unsigned number, int fd)
{
    struct seat *seat = &seats[number];

    seat->fd = fd;
    seat->is_silent = false;
    seat->count = 0;
    seat->chunks = seat->chunks ? seat->chunks : malloc(CHUNKS * sizeof *seat->chunks);
    if (!seat->chunks)
        cleanup_fail("the wire with a delay has no memory");
    seats_used = seats_used > number ? seats_used : number + 1;
}

static void take_client(const struct wire *wire)
{
    for (unsigned i = 0; i < SEATS; i += 2) {
        if (i < seats_used && seats[i].fd >= 0)
            continue;
        int fd = accept(wire->listener, NULL, NULL);
        send_at_once(wire, fd);
        take_seat(i, fd);
        take_seat(i + 1, connect_to_server(wire));
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

    seats[number].is_silent = size <= 0;
    chunk->size = size > 0 ? (size_t)size : 0;
    chunk->due_ns = now_ns() + delay_ns;
    to->count++;
}

static void send_due(unsigned number)
{
    struct seat *seat = &seats[number];

    while (seat->fd >= 0 && seat->count > 0 && seat->chunks[seat->first].due_ns <= now_ns()) {
        const struct chunk *chunk = &seat->chunks[seat->first];
        if (chunk->size == 0 || send(seat->fd, chunk->bytes, chunk->size, 0) != (ssize_t)chunk->size) {
            end_connection(number);
            return;
        }
        seat->first = (seat->first + 1) % CHUNKS;
        seat->count--;
    }
}

/* --------------------------------------------------------------------- loop */

/* Waits until there is something to receive, or to send. The wires come first, behind them the seats. */
static void wait_for_work(struct pollfd *polled)
{
    double next = -1;

    for (unsigned i = 0; i < seats_used; i++) {
        const struct seat *seat = &seats[i];
        bool waits = seat->is_silent || seats[i ^ 1u].count == CHUNKS;
        polled[wire_count + i] = (struct pollfd){.fd = waits ? -1 : seat->fd, .events = POLLIN};
        if (seat->fd >= 0 && seat->count > 0 && (next < 0 || seat->chunks[seat->first].due_ns < next))
            next = seat->chunks[seat->first].due_ns;
    }
    double left = next < 0 ? 1e9 : next - now_ns();
    left = left > 0 ? left : 0;
#if defined(__linux__)
    struct timespec limit = {.tv_sec = left >= 1e9, .tv_nsec = left >= 1e9 ? 0 : (long)left};
    ppoll(polled, wire_count + seats_used, &limit, NULL);
#else
    poll(polled, wire_count + seats_used, (int)(left / 1e6));
#endif
}

static void carry(unsigned number, void *memory)
{
    static struct pollfd polled[WIRES_MOST + SEATS];

    (void)number;
    (void)memory;
#if defined(__linux__)
    prctl(PR_SET_TIMERSLACK, 1UL);
#endif
    for (unsigned i = 0; i < wire_count; i++)
        polled[i] = (struct pollfd){.fd = wires[i].listener, .events = POLLIN};
    for (;;) {
        wait_for_work(polled);
        for (unsigned i = 0; i < seats_used; i++) {
            const struct pollfd *seen = &polled[wire_count + i];
            send_due(i);
            if (seen->fd >= 0 && seen->fd == seats[i].fd && seen->revents)
                receive(i);
        }
        for (unsigned i = 0; i < wire_count; i++)
            if (polled[i].revents)
                take_client(&wires[i]);
    }
}

void delay_start(struct wire *on, unsigned count, unsigned delay_us)
{
    if (count > WIRES_MOST)
        cleanup_fail("more than %d wires", WIRES_MOST);
    delay_ns = delay_us * 1e3;
    wires = on;
    wire_count = count;
    for (unsigned i = 0; i < count; i++)
        listen_on(&wires[i]);
    helper = helper_start(0, carry, NULL);
    for (unsigned i = 0; i < count; i++)
        close(wires[i].listener);
}

void delay_stop(void)
{
    helper_stop(helper);
}
