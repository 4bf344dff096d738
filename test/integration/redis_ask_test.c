/*
 * The connection of an ask: all asks of one token go over the same one, so that they reach the server in the order in
 * which they were sent, however busy it is. MONITOR shows which connection each came over. Also how often the store is
 * asked.
 */
#include "support/fixture.h"

#define ROUNDS 5
#define CONNECTIONS 2
#define ASKS_WITHIN_MS 2000 /* a waiter for a foreign lock asks every 100 ms at the latest */

/* ------------------------------------------------------- what the server saw */

/* A connection on which the server reports all commands that it runs. */
static redisContext *monitor_open(server *s)
{
    redisContext *monitor = redisConnectUnix(s->socket_path);

    assert_true(monitor && !monitor->err);
    assert_int_equal(redisSetTimeout(monitor, (struct timeval){.tv_sec = LIMIT_MS / 1000}), REDIS_OK);
    redisReply *reply = redisCommand(monitor, "MONITOR");
    assert_true(reply && reply->type == REDIS_REPLY_STATUS);
    freeReplyObject(reply);
    return monitor;
}

/* The next line; the caller frees it: 1700000000.123456 [0 127.0.0.1:40000] "evalsha" "..." ... */
static redisReply *monitor_next(redisContext *monitor)
{
    void *reply = NULL;

    assert_that(redisGetReply(monitor, &reply) == REDIS_OK, "the monitor hears nothing");
    return reply;
}

/* The connection of a command of the runtime: false, where a script or the test itself sent it. */
static bool read_sender(const char *line, char sender[64])
{
    return sscanf(line, "%*s [%*d %63[^]]]", sender) == 1 && strncmp(sender, "127.0.0.1:", 10) == 0;
}

/* ------------------------------------------------------------------ the scene */

/* A foreign client will have "x", and the server may not tell of changes: so a waiter asks repeatedly. */
static void open_scene(fixture *f)
{
    server_stop(f->server);
    f->server = server_start(&(server_options){.tcp = true});
    server_do(f->server, "ACL SETUSER default -client|tracking");
    f->urls[0] = f->server->url;
    f->config.connect_timeout_ms = LIMIT_MS;
    f->config.command_timeout_ms = LIMIT_MS;
    f->config.handoff_ms = DIBS_NO_HANDOFF;
    fixture_open(f, SCRIPT_LEASE_MS);
}

static bool sends(fixture *f, uint64_t count, int64_t limit_ms)
{
    return within(limit_ms, stats_of(f->rt).store_commands >= count);
}

/* Makes two calls at once. Where both go over one connection, another is made in the background. */
static void make_two_calls(fixture *f)
{
    actor *actors[CONNECTIONS];
    const char *names[CONNECTIONS];

    server_pause(f->server);
    for (int i = 0; i < CONNECTIONS; i++) {
        uint64_t before = stats_of(f->rt).store_commands;
        actors[i] = actor_start();
        names[i] = formatted("load%d", i);
        actor_begin_lock(actors[i], f->rt, names[i], 0);
        assert_true(sends(f, before + 1, LIMIT_MS));
    }
    server_resume(f->server);
    for (int i = 0; i < CONNECTIONS; i++) {
        actor_gets(actors[i], f->rt, names[i]);
        actor_end(actors[i]);
    }
}

/*
 * While the server is silent, another call takes the connection that an idle runtime would use; then the waiter asks.
 * If the waiter had asked just before, this is repeated.
 */
static void have_it_asked_beside_another_call(fixture *f, actor *other)
{
    bool asked = false;

    for (int i = 0; i < 10 && !asked; i++) {
        server_pause(f->server);
        uint64_t before = stats_of(f->rt).store_commands;
        actor_begin_lock(other, f->rt, "y", 0);
        asked = sends(f, before + 2, ASKS_WITHIN_MS);
        server_resume(f->server);
        actor_gets(other, f->rt, "y");
    }
    assert_true(asked);
}

/* How many commands with that text have come, and over how many connections. */
struct traffic {
    char senders[8][64];
    unsigned connections, commands;
};

/* Adds what has come since the last time. */
static void add_traffic(server *s, redisContext *monitor, const char *text, struct traffic *traffic)
{
    char sender[64];
    bool end = false;

    server_do(s, "ECHO that-is-all");
    while (!end) {
        redisReply *line = monitor_next(monitor);
        end = strstr(line->str, "that-is-all") != NULL;
        if (strstr(line->str, text) && read_sender(line->str, sender)) {
            unsigned i = 0;
            while (i < traffic->connections && strcmp(traffic->senders[i], sender) != 0)
                i++;
            assert_true(i < sizeof traffic->senders / sizeof traffic->senders[0]);
            if (i == traffic->connections)
                strcpy(traffic->senders[traffic->connections++], sender);
            traffic->commands++;
        }
        freeReplyObject(line);
    }
}

static struct traffic traffic_of(server *s, redisContext *monitor, const char *text)
{
    struct traffic traffic = {.commands = 0};

    add_traffic(s, monitor, text, &traffic);
    return traffic;
}

/* Afterwards two connections stand, each with as little to do as the other. */
static void have_connections_made(fixture *f, redisContext *monitor)
{
    int64_t limit = now_ms() + LIMIT_MS;

    do {
        assert_true(now_ms() < limit);
        make_two_calls(f);
    } while (traffic_of(f->server, monitor, "\"lock:load").connections < CONNECTIONS);
}

/* ----------------------------------------------------------------- the tests */

TEST_ON(all_asks_of_a_token_go_over_one_connection, fixture *f)
{
    actor *other = actor_start();

    open_scene(f);
    redisContext *monitor = monitor_open(f->server);
    have_connections_made(f, monitor);
    server_do(f->server, "SET lock:x by-hand PX %d", LONG_LEASE_MS);
    uint64_t before = stats_of(f->rt).store_commands;
    actor *waiter = actor_locking(f->rt, "x", DIBS_WAIT_FOREVER);
    assert_true(sends(f, before + 1, LIMIT_MS));
    struct traffic traffic = {.commands = 0};
    int64_t limit = now_ms() + LIMIT_MS;
    while (traffic.commands <= ROUNDS) {
        assert_true(now_ms() < limit);
        have_it_asked_beside_another_call(f, other);
        add_traffic(f->server, monitor, "\" \"lock:x\"", &traffic);
    }
    assert_int_equal(traffic.connections, 1);
    redisFree(monitor);
    server_do(f->server, "DEL lock:x");
    actor_gets(waiter, f->rt, "x");
}

/* The first ask is sent with the release of the thread before, over the same connection. */
TEST_ON(the_ask_behind_a_release_uses_the_connection_of_the_later_asks, fixture *f)
{
    actor *holder = actor_start();
    actor *waiter = actor_start();
    actor *other = actor_start();

    open_scene(f);
    redisContext *monitor = monitor_open(f->server);
    have_connections_made(f, monitor);
    for (int i = 0; i < ROUNDS; i++) {
        assert_status(DIBS_OK, actor_lock(holder, f->rt, "x", 0));
        server_do(f->server, "SET lock:x by-hand PX %d",
                  LONG_LEASE_MS); /* so the ask behind the release finds the lock taken */
        actor_begin_lock(waiter, f->rt, "x", DIBS_WAIT_FOREVER);
        actor_await_asleep(waiter);
        traffic_of(f->server, monitor, "");
        assert_status(DIBS_LOST, actor_unlock(holder, f->rt, "x"));
        struct traffic traffic = {.commands = 0};
        int64_t limit = now_ms() + LIMIT_MS;
        while (traffic.commands <= 1) { /* what the runtime sends in the background may pass for an ask */
            assert_true(now_ms() < limit);
            have_it_asked_beside_another_call(f, other);
            add_traffic(f->server, monitor, "\" \"lock:x\"", &traffic);
        }
        assert_int_equal(traffic.connections, 1);
        server_do(f->server, "DEL lock:x");
        actor_gets(waiter, f->rt, "x");
    }
    redisFree(monitor);
}

/* --------------------------------------------------- how often a waiter asks */

/*
 * The release and the ask for the next thread are one script: it gives the waiter the lock, without an ask of its own.
 */
TEST_ON(an_unlock_for_another_thread_is_one_command, fixture *f)
{
    actor *threads[2] = {actor_start(), actor_start()};

    f->config.handoff_ms = DIBS_NO_HANDOFF;
    fixture_open_connected(f, LONG_LEASE_MS); /* a connection that begins later would try a script */
    assert_status(DIBS_OK, actor_lock(threads[0], f->rt, "x", 0));
    for (int i = 0; i < 10; i++) {
        actor *holder = threads[i % 2];
        actor *next = threads[(i + 1) % 2];

        actor_begin_lock(next, f->rt, "x", DIBS_WAIT_FOREVER);
        actor_await_asleep(next);
        long long scripts = server_asks(f->server);
        assert_status(DIBS_OK, actor_unlock(holder, f->rt, "x"));
        assert_status(DIBS_OK, actor_result(next));
        assert_int_equal(server_asks(f->server), scripts + 1);
    }
    assert_status(DIBS_OK, actor_unlock(threads[0], f->rt, "x"));
}

#define OWNED_MS 2000

/* An owner whose key had an expiry and has none any more: a waiter asks no more often than for any foreign owner. */
TEST_ON(a_foreign_owner_whose_expiry_was_removed_is_polled_as_before, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    server_do(f->server, "SET lock:x by-hand PX %d", OWNED_MS);
    uint64_t before = stats_of(f->rt).store_commands;
    actor *waiter = actor_locking(f->rt, "x", DIBS_WAIT_FOREVER);
    assert_true(sends(f, before + 1, LIMIT_MS));
    assert_int_equal(server_integer(f->server, "PERSIST lock:x"), 1);
    int64_t start = now_ms() + OWNED_MS, until = start + 1000;
    pause_until(start);
    long long asks = server_asks(f->server);
    pause_until(until);
    asks = server_asks(f->server) - asks;
    int64_t took = now_ms() - start;
    assert_that(asks <= took / 50 + 2, "%lld in %lld ms", asks, (long long)took);
    server_do(f->server, "DEL lock:x");
    actor_gets(waiter, f->rt, "x");
}

TESTS(fixture_setup, fixture_teardown)
