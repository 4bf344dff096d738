/* A waiter whose subscription is broken, deaf, or not allowed: that costs time, never the lock, and leaves no entry. */
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "support/fixture.h"
#include "support/queue.h"
#include "support/script_server.h"

/* A runtime whose thread waits for x, which f->rt holds. */
typedef struct waiting {
    fixture *f;
    dibs_runtime *rt;
    actor *actor;
    queue_entry entry;
    uint64_t granted; /* by push, before */
} waiting;

static void begin(waiting *w)
{
    assert_status(DIBS_OK, dibs_timedlock(w->f->rt, "x", LIMIT_MS));
    w->granted = stats_of(w->rt).granted;
    actor_begin_lock(w->actor, w->rt, "x", DIBS_WAIT_FOREVER);
    queue_await(w->f->server, "x", 1);
    w->entry = queue_at(w->f->server, "x", 0);
}

/* Expects that the waiter gets the lock when it is free, and lets it go. */
static void finish(waiting *w)
{
    assert_status(DIBS_OK, dibs_unlock(w->f->rt, "x"));
    assert_status(DIBS_OK, actor_result(w->actor));
    assert_status(DIBS_BUSY, dibs_trylock(w->f->rt, "x"));
    assert_status(DIBS_OK, actor_unlock(w->actor, w->rt, "x"));
    queue_assert_gone(w->f->server, "x");
}

/* Has waited once before, so that there is a subscription, and the waiter asks no more than once. */
static waiting start(fixture *f, const char *url)
{
    waiting w = {.f = f, .actor = actor_start()};

    if (!f->rt)
        fixture_open(f, LONG_LEASE_MS);
    w.rt = test_runtime(
        open_url(url, &(dibs_config){.lease_ms = LONG_LEASE_MS, .outage_ms = LIMIT_MS, .label = "waiter"}));
    begin(&w);
    finish(&w);
    await_scheduler(w.rt);
    begin(&w);
    return w;
}

/* ------------------------------------------------------------------ broken */

/* When there is a new subscription, the waiter asks again, in its old place, and is granted by push. */
TEST_ON(a_killed_subscription_costs_its_waiter_no_lock, fixture *f)
{
    static const char *const kills[] = {"CLIENT KILL TYPE pubsub", "CLIENT KILL TYPE pubsub SKIPME yes"};
    waiting w = start(f, f->server->url);

    for (int i = 0; i < 6; i++) {
        queue_entry after;

        assert_true(server_integer(f->server, kills[i % 2]) >= 1);
        after = queue_await_ask(f->server, "x", w.entry.number);
        assert_string_equal(after.token, w.entry.token);
        assert_true(after.order == w.entry.order);
        queue_await_listening(f->server, w.entry.channel);
        finish(&w);
        assert_int_equal(stats_of(w.rt).granted, w.granted + 1);
        begin(&w);
    }
    finish(&w);
}

/* The id of the waiter's subscribed connection; f->rt has one of its own. 0: there is none. */
static long long subscriber_id(server *s)
{
    redisReply *reply = server_command(s, "CLIENT LIST TYPE pubsub");
    long long id = 0;

    for (char *line = strtok(reply->str, "\n"); line && id == 0; line = strtok(NULL, "\n"))
        if (strstr(line, " name=dibs:waiter "))
            sscanf(line, "id=%lld ", &id);
    freeReplyObject(reply);
    return id;
}

static bool is_another(server *s, long long old)
{
    long long id = subscriber_id(s);

    return id != 0 && id != old;
}

static void await_another(fixture *f, long long old)
{
    await_or_say(is_another(f->server, old), "the same subscriber");
}

/* The lock is granted to the waiter before it listens again, so the push does not reach it. */
TEST_ON(a_subscription_killed_at_the_release_costs_its_waiter_no_lock, fixture *f)
{
    waiting w = start(f, f->server->url);

    for (int i = 0; i < 10; i++) {
        freeReplyObject(server_command(f->server, "CLIENT KILL ID %lld", subscriber_id(f->server)));
        finish(&w);
        begin(&w);
    }
    finish(&w);
}

/* More was published than the server keeps for a client that does not read. */
TEST_ON(a_subscription_dropped_for_its_output_is_replaced, fixture *f)
{
    static char large[1000000];
    waiting w = start(f, f->server->url);
    long long old = subscriber_id(f->server);

    memset(large, 'x', sizeof large);
    server_do(f->server, "CONFIG SET client-output-buffer-limit %s", "pubsub 100000 0 0");
    freeReplyObject(server_command(f->server, "PUBLISH %s %b", w.entry.channel, large, sizeof large));
    await_another(f, old);
    queue_await_ask(f->server, "x", w.entry.number);
    finish(&w);
    assert_int_equal(stats_of(f->rt).lost, 0);
}

/* -------------------------------------------------------------------- deaf */

/*
 * The server knows of no subscriber, whatever the waiter believes: the waiter subscribes again, and is granted by push.
 */
TEST_ON(a_subscription_unknown_to_the_server_is_replaced, fixture *f)
{
    script_server *net = fixture_between(f);
    waiting w = start(f, script_server_url(net));
    long long old = subscriber_id(f->server);

    finish(&w);
    script_server_add(net, (script_rule){.match = ASK_OR_RELEASE_OF_X,
                                         .nth = 1,
                                         .action = SCRIPT_REPLACE,
                                         .bytes = "*4\r\n:0\r\n:600000\r\n"
                                                  ":1\r\n:0\r\n"});
    begin(&w);
    await_another(f, old);
    queue_await_ask(f->server, "x", 1);
    server_await_rest(f->server); /* an ask that is under way at the release would find the grant before the push */
    finish(&w);
    assert_int_equal(stats_of(w.rt).granted, w.granted + 1);
}

/* ----------------------------------------------- subscribed at another server */

enum { PAIRS_MAX = 64 };

/*
 * Stands between a runtime and two servers: what begins as a connection for commands does goes to the one, what begins
 * as a subscriber's does to the other. One thread, one poll loop, which alone touches what is not atomic.
 */
struct splitter {
    char path[96], url[120];
    const char *commands, *subscriptions; /* the paths of their sockets */
    atomic_bool together;                 /* from now on all go to the first */
    atomic_bool ending;
    atomic_uint subscribers; /* connections that went to the second server */
    int listener;
    pthread_t thread;
    int pairs[PAIRS_MAX][2]; /* client, server; -1: none */
};

static int connect_to(const char *path)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(name.sun_path, sizeof name.sun_path, "%s", path);
    if (connect(fd, (struct sockaddr *)&name, sizeof name) == 0)
        return fd;
    close(fd);
    return -1;
}

static void close_pair(int pair[2])
{
    close(pair[0]);
    if (pair[1] >= 0)
        close(pair[1]);
    pair[0] = pair[1] = -1;
}

/* Decides by what the client sends first: a client that asks for the time will run scripts. */
static int choose(struct splitter *s, const char *bytes, size_t size)
{
    if (atomic_load(&s->together) || memmem(bytes, size, "TIME", 4))
        return connect_to(s->commands);
    atomic_fetch_add(&s->subscribers, 1);
    return connect_to(s->subscriptions);
}

/* False: it is at its end. */
static bool pass(struct splitter *s, int pair[2], int from)
{
    static char bytes[65536];
    ssize_t size = read(pair[from], bytes, sizeof bytes);

    if (size > 0 && pair[1] < 0)
        pair[1] = choose(s, bytes, (size_t)size);
    return size > 0 && pair[1] >= 0 && send(pair[!from], bytes, (size_t)size, MSG_NOSIGNAL) == size;
}

static void accept_one(struct splitter *s)
{
    int client = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);

    for (int i = 0; i < PAIRS_MAX && client >= 0; i++) {
        if (s->pairs[i][0] < 0) {
            s->pairs[i][0] = client;
            return;
        }
    }
    close(client);
}

static void *run_splitter(void *arg)
{
    struct splitter *s = arg;

    while (!atomic_load(&s->ending)) {
        struct pollfd fds[1 + 2 * PAIRS_MAX] = {{.fd = s->listener, .events = POLLIN}};
        for (int i = 0; i < 2 * PAIRS_MAX; i++)
            fds[1 + i] = (struct pollfd){.fd = s->pairs[i / 2][i % 2], .events = POLLIN};
        poll(fds, 1 + 2 * PAIRS_MAX, 20);
        for (int i = 0; i < 2 * PAIRS_MAX; i++)
            if (fds[1 + i].revents && s->pairs[i / 2][i % 2] == fds[1 + i].fd && !pass(s, s->pairs[i / 2], i % 2))
                close_pair(s->pairs[i / 2]);
        if (fds[0].revents)
            accept_one(s);
    }
    return NULL;
}

static void splitter_start(struct splitter *s, const server *commands, const server *subscriptions)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};

    *s = (struct splitter){.commands = commands->socket_path, .subscriptions = subscriptions->socket_path};
    snprintf(s->path, sizeof s->path, "%s/split.sock", commands->folder);
    snprintf(s->url, sizeof s->url, "unix://%s", s->path);
    memset(s->pairs, -1, sizeof s->pairs);
    snprintf(name.sun_path, sizeof name.sun_path, "%s", s->path);
    s->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->listener, (struct sockaddr *)&name, sizeof name), 0);
    assert_int_equal(listen(s->listener, 64), 0);
    assert_int_equal(pthread_create(&s->thread, NULL, run_splitter, s), 0);
}

static void splitter_stop(struct splitter *s)
{
    atomic_store(&s->ending, true);
    pthread_join(s->thread, NULL);
    for (int i = 0; i < PAIRS_MAX; i++)
        if (s->pairs[i][0] >= 0)
            close_pair(s->pairs[i]);
    close(s->listener);
    unlink(s->path);
}

struct deaf_waiter {
    dibs_runtime *rt;
    const char *name;
    unsigned flags;
    pthread_t thread;
    dibs_status status;
};

static void *wait_deaf(void *arg)
{
    struct deaf_waiter *w = arg;

    w->status = dibs_lock_with(w->rt, w->name, DIBS_WAIT_FOREVER, &(dibs_lock_options){.flags = w->flags});
    if (w->status == DIBS_OK)
        w->status = dibs_unlock(w->rt, w->name);
    return NULL;
}

#define STORM_MS 3000

/* Lets each waiter wait for a name of its own, which f->rt holds, through the splitter. */
static struct deaf_waiter *begin_deaf(fixture *f, dibs_runtime *rt, unsigned count, unsigned flags)
{
    struct deaf_waiter *waiters = calloc(count, sizeof *waiters);

    assert_non_null(waiters);
    for (unsigned i = 0; i < count; i++) {
        waiters[i] = (struct deaf_waiter){.rt = rt, .name = formatted("deaf-%u", i), .flags = flags};
        assert_status(DIBS_OK, dibs_timedlock(f->rt, waiters[i].name, LIMIT_MS));
        assert_int_equal(pthread_create(&waiters[i].thread, NULL, wait_deaf, &waiters[i]), 0);
    }
    return waiters;
}

static void end_deaf(fixture *f, struct deaf_waiter *waiters, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        assert_status(DIBS_OK, dibs_unlock(f->rt, waiters[i].name));
    for (unsigned i = 0; i < count; i++) {
        pthread_join(waiters[i].thread, NULL);
        assert_status(DIBS_OK, waiters[i].status);
    }
    free(waiters);
}

/*
 * The cost in three seconds: the pauses between subscriptions double (ten in five seconds), and each waiter asks every
 * 50 to 100 ms, as without the right to subscribe. On a slow machine both are fewer.
 */
static void expect_no_storm(fixture *f, unsigned count, unsigned flags)
{
    server *other = server_start(NULL);
    struct splitter split;

    splitter_start(&split, f->server, other);
    if (!f->rt)
        fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *rt = open_url(split.url, &(dibs_config){.lease_ms = LONG_LEASE_MS, .outage_ms = LIMIT_MS});
    struct deaf_waiter *waiters = begin_deaf(f, rt, count, flags);
    unsigned subscribers = atomic_load(&split.subscribers);
    uint64_t commands = stats_of(rt).store_commands;
    int64_t began = now_ms();
    pause_ms(STORM_MS);
    int64_t took = now_ms() - began;
    subscribers = atomic_load(&split.subscribers) - subscribers;
    commands = stats_of(rt).store_commands - commands;
    print_message("# %u waiters: %u subscriptions, %" PRIu64 " commands in %" PRId64 " ms\n", count, subscribers,
                  commands, took);
    assert_true(subscribers <= 12 + took / 500);
    assert_true(commands <= (uint64_t)(count * took / 50 + 500));
    assert_true(commands >= count); /* the waiters go on asking */
    end_deaf(f, waiters, count);
    dibs_close(rt);
    splitter_stop(&split);
    server_stop(other);
}

TEST(a_waiter_subscribed_at_another_server_gets_the_lock)
{
    expect_no_storm(*state, 1, 0);
}

TEST(many_waiters_subscribed_at_another_server_cause_little_load)
{
    expect_no_storm(*state, 200, 0);
}

/* Fair waiters can have no place in the queue without a subscription; each new one is good for one ask. */
TEST(fair_waiters_subscribed_at_another_server_cause_little_load)
{
    expect_no_storm(*state, 3, DIBS_FAIR);
}

/* The proxy is corrected: the next subscription works, and the waiter is granted by push. */
TEST_ON(a_subscription_that_reaches_the_right_server_later_is_used, fixture *f)
{
    server *other = test_server(server_start(NULL));
    struct splitter split;

    splitter_start(&split, f->server, other);
    fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *rt = open_url(split.url, &(dibs_config){.lease_ms = LONG_LEASE_MS, .outage_ms = LIMIT_MS});
    struct deaf_waiter *waiters = begin_deaf(f, rt, 1, 0);
    await_that(atomic_load(&split.subscribers) >= 5);
    atomic_store(&split.together, true);
    queue_await(f->server, "deaf-0", 1);
    queue_await_listening(f->server, queue_at(f->server, "deaf-0", 0).channel);
    server_await_rest(f->server); /* it asks once more when there is a subscription */
    long long asks = server_asks(f->server);
    end_deaf(f, waiters, 1);
    assert_int_equal(stats_of(rt).granted, 1);
    assert_true(server_asks(f->server) <= asks + 3); /* the two releases */
    dibs_close(rt);
    splitter_stop(&split);
}

/* --------------------------------------------------------------- not allowed */

static void expect_denied(dibs_runtime *rt, const char *word)
{
    assert_status(DIBS_DENIED, dibs_lock_with(rt, "x", LIMIT_MS, &(dibs_lock_options){.flags = DIBS_FAIR}));
    assert_that(strcasestr(dibs_last_error(), word), "%s", dibs_last_error());
}

/*
 * All use an account without a right that pushes need, so they poll. `word` is the right that the detail of a DIBS_FAIR
 * acquire names.
 */
static void expect_polling(fixture *f, const char *rights, const char *word)
{
    actor *waiter = actor_start();

    f->urls[0] = server_account(f->server, "u", rights);
    fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *second = open_url(f->urls[0], &(dibs_config){.lease_ms = LONG_LEASE_MS});
    for (int i = 0; i < 3; i++) {
        long long asks = server_asks(f->server);

        assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
        actor_begin_lock(waiter, second, "x", DIBS_WAIT_FOREVER);
        server_await_ask(f->server, asks + 3); /* the waiter goes on asking */
        assert_status(DIBS_TIMEOUT, dibs_timedlock(second, "x", 200));
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
        assert_status(DIBS_OK, actor_result(waiter));
        assert_status(DIBS_BUSY, dibs_trylock(f->rt, "x"));
        expect_denied(f->rt, word);
        assert_status(DIBS_OK, actor_unlock(waiter, second, "x"));
        queue_await(f->server, "x", 0);
    }
    dibs_close(second);
    close_runtime(&f->rt);
    queue_assert_gone(f->server, "x");
    actor_end(waiter);
}

TEST(waiters_poll_without_the_right_to_the_channel)
{
    expect_polling(*state, "~* resetchannels +@all", "channel");
}

TEST(waiters_poll_without_the_right_to_subscribe)
{
    expect_polling(*state, "~* &* +@all -subscribe", "subscribe");
}

TEST(waiters_poll_without_the_right_to_pubsub)
{
    expect_polling(*state, "~* &* +@all -pubsub", "NUMSUB");
}

TEST(waiters_poll_without_the_right_to_publish)
{
    expect_polling(*state, "~* &* +@all -publish", "PUBLISH");
}

/* Exactly what the contract names. */
TEST_ON(pushes_need_only_the_documented_rights, fixture *f)
{
    waiting w =
        start(f, server_account(f->server, "u", "~lock:* ~dibs:* &dibs:* +@all -@admin -@dangerous +client|kill"));

    finish(&w);
    assert_int_equal(stats_of(w.rt).granted, w.granted + 1);
    begin(&w);
    finish(&w);
}

/* -------------------------------------------------- holders that can't push */

/* A foreign holder announces no release: where the server may not either, a waiter asks every 50 to 100 ms. */
TEST_ON(waiters_poll_a_foreign_holder_without_tracking, fixture *f)
{
    enum { ASKS = 20 };

    server_do(f->server,
              "ACL SETUSER default -client|tracking"); /* before a lock is held for so long that it is watched */
    waiting w = start(f, f->server->url);
    finish(&w); /* it is subscribed by now */
    server_do(f->server, "SET lock:x by-hand PX %d", LONG_LEASE_MS);
    int64_t began = now_ms(); /* before the first ask */
    actor_begin_lock(w.actor, w.rt, "x", DIBS_WAIT_FOREVER);
    queue_entry entry = queue_await_ask(f->server, "x", 0);
    entry = queue_await_ask(f->server, "x", entry.number + ASKS - 1);
    int64_t took = now_ms() - began;
    print_message("# %d asks in %" PRId64 " ms\n", ASKS, took);
    assert_true(took >= (ASKS - 1) * 50 - 50);
    assert_true(took <= ASKS * 100 + SLACK_MS);
    server_do(f->server, "DEL lock:x");
    actor_gets(w.actor, w.rt, "x");
    queue_assert_gone(f->server, "x");
    assert_int_equal(stats_of(w.rt).tracking, 0);
    server_do(f->server, "ACL SETUSER default +@all");
}

TESTS(fixture_setup, fixture_teardown)
