/* Connections that take their time: a caller in a hurry, a full backlog, a name with an address that is silent. */
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "support/fixture.h"
#include "support/script_server.h"

/* -------------------------------------------------------- short deadlines */

/* The delay of each reply. A greeting has many replies, so it takes much longer than an ask. */
#define DELAY_MS 20
#define SHORT_MS 150

/*
 * Opens a runtime that holds "held", and breaks all its connections at once; new ones take long. No connection is
 * broken while it is being made: that would be an outage.
 */
static script_server *open_and_cut(fixture *f)
{
    script_server *net = script_server_start(&(script_options){.backend = f->server->socket_path});

    f->urls[0] = script_server_url(net);
    f->config.connect_timeout_ms = LIMIT_MS;
    fixture_open_patient(f, LONG_LEASE_MS);
    assert_status(DIBS_OK, dibs_lock(f->rt, "held"));
    await_that(dibs_extend(f->rt, "held", LONG_LEASE_MS) == DIBS_OK); /* the scheduler's connection is open as well */
    script_server_delay(net, DELAY_MS);
    script_server_cut(net);
    return net;
}

static void close_uncut(fixture *f, script_server *net)
{
    assert_int_equal(events_count(&f->events, DIBS_EVENT_STORE_DOWN, NULL), 0);
    script_server_delay(net, 0);
    close_runtime(&f->rt);
    assert_int_equal(events_count(&f->events, DIBS_EVENT_STORE_DOWN, NULL), 0);
    script_server_stop(net);
}

/* No single call has the time to connect, but together they have. */
TEST_ON(short_calls_connect_in_the_end, fixture *f)
{
    for (int i = 0; i < 3; i++) {
        script_server *net = open_and_cut(f);

        await_or_say(dibs_timedlock(f->rt, "x", SHORT_MS) == DIBS_OK, "%s", dibs_last_error());
        script_server_delay(net, 0);
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
        close_uncut(f, net);
    }
}

struct hurry {
    dibs_runtime *rt;
    atomic_bool end;
    atomic_uint calls;
};

static void be_in_a_hurry(void *arg)
{
    struct hurry *hurry = arg;

    while (!atomic_load(&hurry->end)) {
        if (dibs_timedlock(hurry->rt, "short", 1) == DIBS_OK)
            dibs_unlock(hurry->rt, "short");
        atomic_fetch_add(&hurry->calls, 1);
    }
}

/* The time of one call is over, but not that of the others that wait for the same connection. */
TEST_ON(a_short_call_does_not_fail_others, fixture *f)
{
    for (int i = 0; i < 3; i++) {
        script_server *net = open_and_cut(f);
        struct hurry hurry = {.rt = f->rt};
        actor *other = actor_start();

        actor_begin(other, be_in_a_hurry, &hurry);
        await_that(atomic_load(&hurry.calls) >= 2);
        assert_status(DIBS_OK, dibs_unlock(f->rt, "held"));
        atomic_store(&hurry.end, true);
        script_server_delay(net, 0);
        actor_end(other);
        close_uncut(f, net);
    }
}

/* ------------------------------------------------------------ full backlogs */

enum { FILLERS = 64 };

struct fillers {
    int fds[FILLERS];
    size_t count;
};

/* Connects to a socket that accepts nobody, until its backlog has no more room. */
static void fill(struct fillers *fillers, const struct sockaddr *address, socklen_t size, int wait_ms)
{
    bool room = true;

    for (fillers->count = 0; room; fillers->count++) {
        int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

        assert_true(fd >= 0 && fillers->count < FILLERS);
        fillers->fds[fillers->count] = fd;
        if (connect(fd, address, size) != 0) {
            struct pollfd writable = {.fd = fd, .events = POLLOUT};

            assert_true(errno == EAGAIN || errno == EINPROGRESS);
            room = errno == EINPROGRESS && poll(&writable, 1, wait_ms) > 0;
        }
    }
}

static void empty(struct fillers *fillers)
{
    while (fillers->count > 0)
        close(fillers->fds[--fillers->count]);
}

/* A Unix server that is stopped, with no room for another connection. */
static server *stand_still(struct fillers *fillers)
{
    server *s = server_start(&(server_options){.config = "tcp-backlog 2"});
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    assert_true(strlen(s->socket_path) < sizeof address.sun_path);
    strcpy(address.sun_path, s->socket_path);
    server_pause(s);
    fill(fillers, (struct sockaddr *)&address, sizeof address, 0);
    return s;
}

struct opening {
    const char *url;
    uint32_t connect_timeout_ms;
    dibs_runtime *rt;
    dibs_status status;
};

static void open_it(void *arg)
{
    struct opening *opening = arg;
    dibs_config config = {.connect_timeout_ms = opening->connect_timeout_ms, .command_timeout_ms = LIMIT_MS};

    opening->status = open_status(opening->url, &config, &opening->rt);
}

TEST_WITH(a_full_backlog_is_waited_for, NULL, NULL, void *none)
{
    struct fillers fillers;
    server *s = stand_still(&fillers);
    struct opening opening = {.url = s->url, .connect_timeout_ms = LIMIT_MS};
    actor *opener = actor_start();

    actor_begin(opener, open_it, &opening);
    pause_ms(100); /* several times no room */
    assert_true(actor_busy(opener));
    server_resume(s);
    actor_finish(opener);
    actor_end(opener);
    assert_status(DIBS_OK, opening.status);
    lock_and_release(opening.rt, "x", 0);
    dibs_close(opening.rt);
    empty(&fillers);
    server_stop(s);
}

TEST_WITH(a_backlog_that_stays_full_fails_open_in_time, NULL, NULL, void *none)
{
    struct fillers fillers;
    server *s = stand_still(&fillers);
    dibs_config config = {.connect_timeout_ms = 300};
    int64_t begin = now_ms();

    expect_not_opened(DIBS_UNAVAILABLE, s->url, &config, NULL);
    int64_t took = now_ms() - begin;
    assert_that(took >= 300 - 1 && took <= 300 + SLACK_MS, "%" PRId64 " ms", took);
    server_resume(s);
    empty(&fillers);
    server_stop(s);
}

/* -------------------------------------------------------- silent addresses */

/* Replaces the system's resolver: each name means 127.0.0.2, and then 127.0.0.1. */
int getaddrinfo(const char *restrict name, const char *restrict port, const struct addrinfo *restrict hints,
                struct addrinfo **restrict found)
{
    struct addrinfo **end = found;

    for (in_addr_t host = INADDR_LOOPBACK + 1; host >= INADDR_LOOPBACK; host--) {
        struct sockaddr_in *address = calloc(1, sizeof *address);
        struct addrinfo *item = calloc(1, sizeof *item);

        assert_true(address && item);
        address->sin_family = AF_INET;
        address->sin_port = htons((uint16_t)atoi(port));
        address->sin_addr.s_addr = htonl(host);
        item->ai_family = AF_INET;
        item->ai_addr = (struct sockaddr *)address;
        item->ai_addrlen = sizeof *address;
        *end = item;
        end = &item->ai_next;
    }
    return 0;
}

void freeaddrinfo(struct addrinfo *list)
{
    while (list) {
        struct addrinfo *next = list->ai_next;

        free(list->ai_addr);
        free(list);
        list = next;
    }
}

/* The first address of a name never answers, because its backlog is full. */
TEST_WITH(a_silent_address_leaves_time_for_the_second, NULL, NULL, void *none)
{
    server *s = test_server(server_start(&(server_options){.tcp = true}));
    struct sockaddr_in silent = {.sin_family = AF_INET, .sin_port = htons((uint16_t)s->port)};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    dibs_config config = {.connect_timeout_ms = 4000};
    struct fillers fillers;
    dibs_runtime *rt;

    silent.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
    assert_int_equal(bind(listener, (struct sockaddr *)&silent, sizeof silent), 0);
    assert_int_equal(listen(listener, 0), 0);
    fill(&fillers, (struct sockaddr *)&silent, sizeof silent, 200);
    assert_status(DIBS_OK, open_status(formatted("redis://two.example:%d", s->port), &config, &rt));
    lock_and_release(rt, "x", LIMIT_MS);
    dibs_close(rt);
    empty(&fillers);
    close(listener);
}

/* ------------------------------------------------- a server that hangs up */

static bool says_rediss(void)
{
    return strstr(dibs_last_error(), "must begin with rediss") != NULL;
}

static void open_at_one_that_hangs_up(bool tcp)
{
    script_server *silent = script_server_start(&(script_options){.tcp = tcp});
    dibs_config config = {.connect_timeout_ms = LIMIT_MS};

    script_server_set_down(silent, true);
    expect_not_opened(DIBS_UNAVAILABLE, script_server_url(silent), &config, NULL);
    script_server_stop(silent);
}

/* A server that expects TLS hangs up like this, unless it has answered before, or listens on a Unix socket. */
TEST_ON(a_server_that_hangs_up_in_silence_may_expect_tls, fixture *f)
{
    script_server *net = script_server_start(&(script_options){.backend = f->server->socket_path, .tcp = true});
    dibs_owner owner;

    open_at_one_that_hangs_up(true);
    assert_true(says_rediss());
    open_at_one_that_hangs_up(false);
    assert_false(says_rediss());
    f->urls[0] = script_server_url(net);
    fixture_open(f, LONG_LEASE_MS);
    script_server_set_down(net, true);
    script_server_cut(net);
    assert_status(DIBS_UNAVAILABLE, dibs_query(f->rt, "x", &owner));
    assert_false(says_rediss());
    close_runtime(&f->rt);
    script_server_stop(net);
}

TESTS(fixture_setup, fixture_teardown)
