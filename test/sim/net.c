#include "net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "server.h"

#define FIRST_FD 3
#define FDS 4096 /* of all processes */
#define RECEIVE_NS (100 * SIM_MS)

struct sim_network sim_network;

static struct file {
    enum { FREE, PIPE_READ, PIPE_WRITE, SOCKET } kind;
    struct sim_proc *proc;
    size_t bytes;       /* in a pipe, at its reading end */
    struct file *other; /* end of a pipe; NULL: closed */
    struct sim_conn *conn;
} files[FDS];
static int file_count; /* those behind were never open */

static struct sim_conn *conns, *last_conn;

/* --------------------------------------------------------------- descriptors */

static int fd_of(const struct file *file)
{
    return (int)(file - files) + FIRST_FD;
}

/* NULL: it is not open. */
static struct file *look_up(int fd)
{
    struct file *file = fd >= FIRST_FD && fd < FIRST_FD + FDS ? &files[fd - FIRST_FD] : NULL;

    return file && file->kind != FREE && file->proc == sim_current->proc ? file : NULL;
}

/* Only poll(2) may meet a descriptor that another thread has closed. */
static struct file *file_of(int fd)
{
    struct file *file = look_up(fd);

    if (!file) {
        sim_fail("descriptor %d is used, which is not open", fd);
        abort(); /* which shows where */
    }
    return file;
}

static struct file *new_file(int kind)
{
    for (struct file *file = files; file < files + FDS; file++)
        if (file->kind == FREE) {
            *file = (struct file){.kind = (unsigned)kind, .proc = sim_current->proc};
            file->proc->descriptors++;
            if (file == files + file_count)
                file_count++;
            return file;
        }
    abort();
}

static long fails(int reason)
{
    errno = reason;
    return -1;
}

int sim_pipe2(int ends[2], int flags)
{
    struct file *in = new_file(PIPE_READ), *out = new_file(PIPE_WRITE);

    in->other = out;
    out->other = in;
    ends[0] = fd_of(in);
    ends[1] = fd_of(out);
    return 0;
}

ssize_t sim_write(int fd, const void *bytes, size_t size)
{
    struct file *file = file_of(fd);

    if (!file->other)
        return fails(EPIPE);
    file->other->bytes += size;
    sim_wake_fd(file->proc, fd_of(file->other));
    sim_maybe();
    return (ssize_t)size;
}

ssize_t sim_read(int fd, void *bytes, size_t size)
{
    struct file *file = file_of(fd);

    sim_maybe();
    if (file->bytes == 0)
        return file->other ? fails(EAGAIN) : 0;
    size = size < file->bytes ? size : file->bytes;
    memset(bytes, 0, size);
    file->bytes -= size;
    return (ssize_t)size;
}

/* ------------------------------------------------------------ what is under way */

struct sim_packet {
    struct sim_packet *next;
    size_t size;
    bool ends, resets;
    char bytes[];
};

/* A line of the story: texts of scripts and the like are cut. */
static void tell_bytes(const struct sim_conn *conn, const char *way, const char *bytes, size_t size)
{
    char line[300];
    size_t used = 0;

    if (sim_telling < 2)
        return;
    for (size_t i = 0; i < size && used < sizeof line - 1; i++)
        if (bytes[i] == '\n')
            line[used++] = ' ';
        else if (bytes[i] >= ' ')
            line[used++] = bytes[i];
    line[used] = '\0';
    sim_tell("[%d] process %d %s server %d: %s", conn->number, conn->proc->number, way, conn->server->number, line);
}

static int64_t draw_delay(void)
{
    int64_t ns = sim_network.delay + sim_between(SIM_NETWORK, 0, sim_network.jitter);

    if (sim_network.slow_chance > 0 && sim_chance(SIM_NETWORK, sim_network.slow_chance))
        ns += sim_between_log(SIM_NETWORK, SIM_MS / 10, sim_network.slow_most);
    return sim_now + ns > sim_network.until && sim_now < sim_network.until ? sim_network.until - sim_now : ns;
}

/* When bytes sent now arrive: after all that was sent before in this direction. */
static int64_t arrival(struct sim_way *way)
{
    int64_t time = sim_now + draw_delay();

    if (sim_network.silence_chance > 0 && sim_chance(SIM_NETWORK, sim_network.silence_chance)) {
        int64_t ns = sim_between_log(SIM_NETWORK, 10 * SIM_MS, sim_network.silence_most);
        sim_tell("a direction of a connection is silent for %.1f ms", (double)ns / SIM_MS);
        time += ns;
        time = time > sim_network.until ? sim_network.until : time;
    }
    if (time < way->last_arrival)
        time = way->last_arrival;
    return way->last_arrival = time;
}

static void on_packet_out(void *arg, uint64_t number);
static void on_packet_in(void *arg, uint64_t number);

static void post(struct sim_conn *conn, bool out, const char *bytes, size_t size, bool ends, bool resets)
{
    struct sim_packet *packet = malloc(sizeof *packet + size);
    struct sim_way *way = out ? &conn->out : &conn->back;

    *packet = (struct sim_packet){.size = size, .ends = ends, .resets = resets};
    if (size > 0)
        memcpy(packet->bytes, bytes, size);
    if (way->last)
        way->last->next = packet;
    else
        way->first = packet;
    way->last = packet;
    int64_t time = arrival(way),
            work = out || conn->server->busy_until < sim_now ? 0 : conn->server->busy_until - sim_now;
    sim_at(time + work, out ? on_packet_out : on_packet_in, conn, 0);
}

static struct sim_packet *take_packet(struct sim_way *way)
{
    struct sim_packet *packet = way->first;

    way->first = packet->next;
    if (!way->first)
        way->last = NULL;
    return packet;
}

static void tell_process(struct sim_conn *conn)
{
    if (conn->fd >= 0)
        sim_wake_fd(conn->proc, conn->fd);
}

/* Both sides see a reset. */
static void cut(struct sim_conn *conn)
{
    if (conn->client)
        sim_server_gone(conn->client);
    if (conn->state == SIM_OPEN)
        conn->state = SIM_RESET;
    tell_process(conn);
}

/* A fault that ends the connection within a message: the bytes before that one arrive. */
static bool is_cut(const struct sim_conn *conn, const struct sim_packet *packet, size_t *size)
{
    if (packet->size == 0 || sim_network.cut_chance == 0 || !sim_chance(SIM_NETWORK, sim_network.cut_chance))
        return false;
    *size = (size_t)sim_between(SIM_NETWORK, 0, (int64_t)packet->size);
    sim_tell("connection %d is cut behind %zu of %zu bytes", conn->number, *size, packet->size);
    return true;
}

static void on_packet_in(void *arg, uint64_t number)
{
    struct sim_conn *conn = arg;

    int64_t *silent = conn->server->silent_until, until = silent[conn->proc->number % SIM_CUT_OFF];
    int64_t cut_off = conn->server->cut_off_until[conn->proc->number % SIM_CUT_OFF];
    until = cut_off > until ? cut_off : until;
    if (until > sim_now) {
        sim_at(until, on_packet_in, conn, 0);
        return;
    }
    struct sim_packet *packet = take_packet(&conn->back);
    size_t size = packet->size;
    if (conn->state == SIM_OPEN && conn->fd >= 0) {
        bool ends = is_cut(conn, packet, &size);
        if (size > 0)
            bytes_add(&conn->in, packet->bytes, size);
        if (packet->ends)
            conn->state = packet->resets ? SIM_RESET : SIM_EOF;
        if (ends)
            cut(conn);
        tell_process(conn);
    }
    free(packet);
}

static void on_packet_out(void *arg, uint64_t number)
{
    struct sim_conn *conn = arg;

    int64_t until = conn->server->cut_off_until[conn->proc->number % SIM_CUT_OFF];
    if (conn->client && conn->server->alive && conn->server->stopped_until > until)
        until = conn->server->stopped_until;
    if (until > sim_now) {
        sim_at(until, on_packet_out, conn, 0);
        return;
    }
    struct sim_packet *packet = take_packet(&conn->out);
    size_t size = packet->size;
    if (conn->client) {
        bool ends = is_cut(conn, packet, &size);
        if (size > 0)
            sim_server_take(conn->client, packet->bytes, size);
        if (ends)
            cut(conn);
        else if (packet->ends && conn->client)
            sim_server_gone(conn->client);
    } else if (!packet->ends && conn->fd >= 0 && conn->state == SIM_OPEN) {
        post(conn, false, NULL, 0, true, true); /* as a host answers to bytes of an unknown connection */
    }
    free(packet);
}

void sim_conn_reply(struct sim_conn *conn, const char *bytes, size_t size)
{
    sim_note(bytes, size);
    tell_bytes(conn, "<", bytes, size);
    post(conn, false, bytes, size, false, false);
}

void sim_conn_end(struct sim_conn *conn, bool reset)
{
    post(conn, false, NULL, 0, true, reset);
}

void sim_net_cut_all(struct sim_server *server, double chance)
{
    for (struct sim_conn *conn = conns; conn; conn = conn->next)
        if (conn->state == SIM_OPEN && conn->server == server && sim_chance(SIM_FAULTS, chance))
            cut(conn);
}

void sim_net_forget(struct sim_server *server, double chance)
{
    for (struct sim_conn *conn = conns; conn; conn = conn->next)
        if (conn->client && conn->server == server && sim_chance(SIM_FAULTS, chance))
            sim_server_gone(conn->client);
}

bool sim_net_can_send(const struct sim_proc *proc, const struct sim_server *server)
{
    for (const struct sim_conn *conn = conns; conn; conn = conn->next)
        if (conn->proc == proc && conn->server == server && conn->state == SIM_OPEN && conn->client &&
            !sim_server_listens(conn->client))
            return true;
    return false;
}

/* ------------------------------------------------------------------- sockets */

int sim_socket(int family, int type, int protocol)
{
    struct file *file = new_file(SOCKET);
    struct sim_conn *conn = calloc(1, sizeof *conn);

    conn->number = last_conn ? last_conn->number + 1 : 1;
    *(last_conn ? &last_conn->next : &conns) = conn;
    last_conn = conn;
    conn->proc = file->proc;
    conn->fd = fd_of(file);
    file->conn = conn;
    return conn->fd;
}

static bool can_reach(const struct sim_conn *conn)
{
    return sim_now >= conn->server->cut_off_until[conn->proc->number % SIM_CUT_OFF];
}

static void on_connected(void *arg, uint64_t number)
{
    struct sim_conn *conn = arg;

    if (conn->fd < 0 || conn->state != SIM_CONNECTING)
        return;
    conn->state = conn->client ? SIM_OPEN : SIM_REFUSED;
    tell_process(conn);
}

static void on_connect(void *arg, uint64_t number)
{
    struct sim_conn *conn = arg;

    if (conn->fd < 0 || conn->state != SIM_CONNECTING || (number == 0 && !can_reach(conn)))
        return; /* the fault that cuts the process off swallows the message */
    if (conn->server->alive && number == 0 && conn->server->full_until <= sim_now)
        conn->client = sim_server_accept(conn->server, conn);
    sim_at(sim_now + draw_delay(), on_connected, conn, 0);
}

int sim_connect(int fd, const struct sockaddr *address, socklen_t size)
{
    struct file *file = file_of(fd);
    const struct sockaddr_in *in = (const void *)address;

    struct sim_conn *conn = file->conn;
    conn->server = sim_server_at(ntohl(in->sin_addr.s_addr), ntohs(in->sin_port));
    sim_maybe();
    if (!conn->server)
        return (int)fails(EHOSTUNREACH);
    conn->state = SIM_CONNECTING;
    bool refused = sim_chance(SIM_NETWORK, sim_network.refuse_chance);
    bool lost = sim_chance(SIM_NETWORK, sim_network.lost_chance);
    if (!lost)
        sim_at(sim_now + draw_delay(), on_connect, conn, refused);
    return (int)fails(EINPROGRESS);
}

int sim_getsockopt(int fd, int level, int name, void *value, socklen_t *size)
{
    struct file *file = file_of(fd);

    *(int *)value = file->conn->state == SIM_REFUSED ? ECONNREFUSED : file->conn->state == SIM_RESET ? ECONNRESET : 0;
    return 0;
}

int sim_fcntl(int fd, int what, ...)
{
    struct file *file = file_of(fd);
    va_list args;

    va_start(args, what);
    if (what == F_SETFL)
        file->conn->blocking = !(va_arg(args, int) & O_NONBLOCK);
    va_end(args);
    return 0;
}

int sim_fcntl64(int fd, int what, ...) __attribute__((alias("sim_fcntl")));

static void on_broken(void *arg, uint64_t number)
{
    struct sim_conn *conn = arg;

    if (conn->state != SIM_OPEN || conn->fd < 0)
        return;
    conn->state = SIM_RESET;
    post(conn, true, NULL, 0, true, false);
    tell_process(conn);
}

/* The next request arrives late, and the process does not see that: for it the connection breaks. */
static void get_stuck(struct sim_conn *conn)
{
    int64_t ns = sim_between_log(SIM_NETWORK, SIM_MS, sim_network.stuck_most);

    sim_tell("connection %d breaks, and what is sent on it comes %.1f ms late", conn->number, (double)ns / SIM_MS);
    if (conn->out.last_arrival < sim_now + ns)
        conn->out.last_arrival = sim_now + ns;
    sim_at(sim_now + sim_between(SIM_NETWORK, 0, ns / 2), on_broken, conn, 0);
}

ssize_t sim_send(int fd, const void *bytes, size_t size, int flags)
{
    struct file *file = file_of(fd);

    sim_maybe();
    struct sim_conn *conn = file->conn;
    if (conn->state == SIM_RESET)
        return fails(ECONNRESET);
    if (conn->shut || conn->state != SIM_OPEN)
        return fails(EPIPE);
    if (size > 1 && sim_network.short_chance > 0 && sim_chance(SIM_NETWORK, sim_network.short_chance))
        size = (size_t)sim_between(SIM_NETWORK, 1, (int64_t)size - 1);
    sim_note(bytes, size);
    tell_bytes(conn, ">", bytes, size);
    if (sim_network.stuck_chance > 0 && sim_chance(SIM_NETWORK, sim_network.stuck_chance))
        get_stuck(conn);
    post(conn, true, bytes, size, false, false);
    sim_maybe();
    return (ssize_t)size;
}

static bool has_something(const struct sim_conn *conn)
{
    return conn->in.length > 0 || conn->shut || conn->state == SIM_RESET || conn->state == SIM_EOF;
}

ssize_t sim_recv(int fd, void *bytes, size_t size, int flags)
{
    struct file *file = file_of(fd);

    sim_maybe();
    struct sim_conn *conn = file->conn;
    const struct pollfd own = {.fd = fd, .events = POLLIN};
    if (!has_something(conn) && conn->blocking && !(flags & MSG_DONTWAIT))
        sim_sleep(NULL, &own, 1, sim_now + RECEIVE_NS);
    if (conn->in.length == 0)
        return conn->state == SIM_RESET ? fails(ECONNRESET) : conn->shut || conn->state == SIM_EOF ? 0 : fails(EAGAIN);
    size = size < conn->in.length ? size : conn->in.length;
    if (size > 1 && sim_network.short_chance > 0 && sim_chance(SIM_NETWORK, sim_network.short_chance))
        size = (size_t)sim_between(SIM_NETWORK, 1, (int64_t)size - 1);
    memcpy(bytes, conn->in.data, size);
    if (!(flags & MSG_PEEK))
        bytes_drop(&conn->in, size);
    return (ssize_t)size;
}

int sim_shutdown(int fd, int how)
{
    struct file *file = file_of(fd);

    sim_maybe();
    if (!file->conn->shut && file->conn->state == SIM_OPEN)
        post(file->conn, true, NULL, 0, true, false);
    file->conn->shut = true;
    tell_process(file->conn);
    return 0;
}

static void close_file(struct file *file)
{
    struct sim_conn *conn = file->conn;

    if (file->other)
        file->other->other = NULL;
    if (conn && conn->state == SIM_OPEN && !conn->shut)
        post(conn, true, NULL, 0, true, false);
    if (conn) {
        conn->fd = -1;
        free(conn->in.data);
        conn->in = (struct bytes){NULL, 0, 0};
    }
    file->proc->descriptors--;
    *file = (struct file){.kind = FREE};
}

int sim_close(int fd)
{
    struct file *file = file_of(fd);

    sim_maybe();
    close_file(file);
    return 0;
}

void sim_net_close_all(struct sim_proc *proc)
{
    for (struct file *file = files; file < files + file_count; file++)
        if (file->kind != FREE && file->proc == proc)
            close_file(file);
}

/* ---------------------------------------------------------------------- poll */

static short look(const struct pollfd *fd)
{
    struct file *file = look_up(fd->fd);

    if (fd->fd < 0)
        return 0;
    if (!file)
        return POLLNVAL;
    if (file->kind == PIPE_READ)
        return file->bytes > 0 ? POLLIN : 0;
    if (file->kind == PIPE_WRITE) /* the number was a connection's, which another thread closed meanwhile */
        return (short)(fd->events & POLLOUT);
    const struct sim_conn *conn = file->conn;
    short events = 0;
    if (conn->state == SIM_REFUSED || conn->state == SIM_RESET)
        return (short)(POLLERR | POLLHUP | (fd->events & (POLLIN | POLLOUT)));
    if (conn->state == SIM_OPEN || conn->state == SIM_EOF)
        events = (short)(POLLOUT | (has_something(conn) ? POLLIN : 0));
    return (short)(events & (fd->events | POLLERR | POLLHUP));
}

int sim_poll(struct pollfd *fds, nfds_t count, int ms)
{
    int64_t until = ms < 0 ? SIM_NEVER : sim_now + ms * SIM_MS;

    for (;;) {
        int ready = 0;
        sim_maybe();
        for (nfds_t i = 0; i < count; i++)
            ready += (fds[i].revents = look(&fds[i])) != 0;
        if (ready > 0 || ms == 0 || sim_now >= until)
            return ready;
        int64_t early = sim_early();
        bool is_woken =
            sim_sleep(NULL, count > 0 ? fds : (const struct pollfd *)1, count, early < until ? early : until);
        if (!is_woken && early < until) {
            errno = EINTR;
            return -1;
        }
    }
}

/* ------------------------------------------------------------------ resolving */

int sim_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **out)
{
    struct {
        struct addrinfo info;
        struct sockaddr_in address;
    } *found = sim_calloc(1, sizeof *found);

    if (!found)
        return EAI_MEMORY;
    found->address.sin_family = AF_INET;
    found->address.sin_port = htons((uint16_t)(port ? atoi(port) : 0));
    if (inet_pton(AF_INET, host, &found->address.sin_addr) != 1) {
        sim_free(found);
        return EAI_NONAME;
    }
    found->info = (struct addrinfo){.ai_family = AF_INET,
                                    .ai_socktype = SOCK_STREAM,
                                    .ai_addrlen = sizeof found->address,
                                    .ai_addr = (struct sockaddr *)&found->address};
    *out = &found->info;
    return 0;
}

void sim_freeaddrinfo(struct addrinfo *found)
{
    sim_free(found);
}
