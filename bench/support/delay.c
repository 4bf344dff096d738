/*
 * One thread and one loop over poll(2). A connection takes two seats: what one receives, the other sends later.
 *
 * The processors of one machine do what several machines and wires would do at the same time. What comes over several
 * connections at once is passed on one after the other, which takes some 20 us each. So that this is not measured, the
 * delay counts from when the bytes came, as the system tells, and what was sent too late is made up for on the way
 * back.
 */
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
enum { EARLY_NS = 100000 }; /* for so long before something is due the process no longer sleeps: waking up takes time */

struct chunk {
    double due_ns;
    size_t size; /* 0: the sender's end of the connection was closed */
    char bytes[CHUNK];
};

struct seat {
    int fd;                /* -1: free */
    bool is_silent;        /* nothing more comes from fd */
    double late_ns;        /* so late the last chunk was sent to fd; what comes back makes up for it */
    unsigned first, count; /* of the chunks to send to fd: a ring */
    struct chunk *chunks;  /* in the order in which they are due; NULL: the seat was never taken */
};

static struct seat seats[SEATS]; /* 2n: a client; 2n + 1: the server's end of the same connection */
static unsigned seats_used;      /* no seat from here on was ever taken */
static struct wire *wires;
static unsigned wire_count;
static _Atomic double *shared_delay_ns; /* atomic; of the program and the process */
static double delay_ns;                 /* the process's: as it was when the loop began its round */
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

static void set_options(const struct wire *wire, int fd)
{
    int on = 1;

    if (!wire->server_path)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
#if defined(SO_TIMESTAMPNS)
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
#endif
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
    set_options(wire, fd);
    return fd;
}

/* -------------------------------------------------------------- connections */

static void take_seat(unsigned number, int fd)
{
    struct seat *seat = &seats[number];

    seat->fd = fd;
    seat->is_silent = false;
    seat->late_ns = 0;
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
        set_options(wire, fd);
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

/* How long what was received lay in the socket: this process may have had others to serve. 0: the system does not tell.
 */
static double lay_ns(struct msghdr *message)
{
#if defined(SO_TIMESTAMPNS) && defined(SCM_TIMESTAMPNS)
    struct timespec came, now;

    for (struct cmsghdr *told = CMSG_FIRSTHDR(message); told; told = CMSG_NXTHDR(message, told)) {
        if (told->cmsg_level != SOL_SOCKET || told->cmsg_type != SCM_TIMESTAMPNS)
            continue;
        memcpy(&came, CMSG_DATA(told), sizeof came);
        clock_gettime(CLOCK_REALTIME, &now);
        double lay = (double)(now.tv_sec - came.tv_sec) * 1e9 + (double)(now.tv_nsec - came.tv_nsec);
        return lay > 0 && lay < delay_ns ? lay : 0;
    }
#endif
    (void)message;
    return 0;
}

static void receive(unsigned number)
{
    struct seat *to = &seats[number ^ 1u];
    struct chunk *chunk = &to->chunks[(to->first + to->count) % CHUNKS];
    struct iovec place = {chunk->bytes, CHUNK};
    char control[128];
    struct msghdr message = {
        .msg_iov = &place, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t size = recvmsg(seats[number].fd, &message, 0);

    seats[number].is_silent = size <= 0;
    chunk->size = size > 0 ? (size_t)size : 0;
    chunk->due_ns = now_ns() - lay_ns(&message) + delay_ns - seats[number].late_ns;
    seats[number].late_ns = 0;
    to->count++;
}

static void send_due(unsigned number)
{
    struct seat *seat = &seats[number];
    double now;

    while (seat->fd >= 0 && seat->count > 0 && seat->chunks[seat->first].due_ns <= (now = now_ns())) {
        const struct chunk *chunk = &seat->chunks[seat->first];
        seat->late_ns = now - chunk->due_ns < delay_ns ? now - chunk->due_ns : 0;
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
    double left = next < 0 ? 1e9 : next - EARLY_NS - now_ns();
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
        delay_ns = atomic_load(shared_delay_ns);
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
    shared_delay_ns = team_memory(sizeof *shared_delay_ns);
    delay_change(delay_us);
    wires = on;
    wire_count = count;
    for (unsigned i = 0; i < count; i++)
        listen_on(&wires[i]);
    helper = helper_start(0, carry, NULL);
    for (unsigned i = 0; i < count; i++)
        close(wires[i].listener);
}

void delay_change(unsigned delay_us)
{
    atomic_store(shared_delay_ns, delay_us * 1e3);
}

void delay_stop(void)
{
    helper_stop(helper);
}
