/*
 * Grants on a server that is part of a cluster and has sharded channels: on which channel they travel, and what happens
 * where that one is lost or not allowed. One server has all slots here.
 */
#include <pthread.h>

#include "redis/slot.h"
#include "support/fixture.h"
#include "support/queue.h"
#include "support/script_server.h"

/* A cluster takes two seconds to come up, so the tests share one. */
static int start(void **state)
{
    server *s = server_start(&(server_options){.tcp = true, .config = "cluster-enabled yes"});

    server_do(s, "CLUSTER ADDSLOTSRANGE 0 16383");
    server_await_cluster(s);
    *state = s;
    return 0;
}

static int stop(void **state)
{
    server_stop(*state);
    return 0;
}

static int setup(void **state)
{
    static fixture opened;
    fixture *f = &opened;

    *f = (fixture){.server = *state};
    f->urls[0] = f->server->url;
    f->config = (dibs_config){.urls = f->urls, .url_count = 1, .label = "holder"};
    fixture_open(f, LONG_LEASE_MS);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;

    dibs_close(f->rt);
    server_assert_no_locks(f->server);
    *state = f->server;
    return 0;
}

/* ---------------------------------------------------------------- a waiter */

/* A runtime whose thread waits for a lock that f->rt holds. */
struct waiting {
    fixture *f;
    dibs_runtime *rt;
    actor *actor;
    const char *name;
};

static struct waiting waiter(fixture *f, const char *url, const char *name)
{
    dibs_config config = {.lease_ms = LONG_LEASE_MS, .outage_ms = LIMIT_MS, .label = "waiter"};

    return (struct waiting){f, open_url(url, &config), actor_start(), name};
}

static void dismiss(struct waiting *w)
{
    actor_end(w->actor);
    dibs_close(w->rt);
}

/* The entry of the waiter in the queue. */
static queue_entry begin(struct waiting *w)
{
    assert_status(DIBS_OK, dibs_timedlock(w->f->rt, w->name, LIMIT_MS));
    actor_begin_lock(w->actor, w->rt, w->name, DIBS_WAIT_FOREVER);
    queue_await(w->f->server, w->name, 1);
    return queue_at(w->f->server, w->name, 0);
}

static void finish(struct waiting *w)
{
    assert_status(DIBS_OK, dibs_unlock(w->f->rt, w->name));
    assert_status(DIBS_OK, actor_result(w->actor));
    assert_status(DIBS_BUSY, dibs_trylock(w->f->rt, w->name));
    assert_status(DIBS_OK, actor_unlock(w->actor, w->rt, w->name));
    queue_assert_gone(w->f->server, w->name);
}

/* The waiter was granted the lock by a push. */
static void finish_by_push(struct waiting *w)
{
    uint64_t granted = stats_of(w->rt).granted;

    finish(w);
    assert_int_equal(stats_of(w->rt).granted, granted + 1);
}

static bool is_sharded(const char *channel)
{
    return channel[strlen(channel) - 1] == '}';
}

static bool has_so_many(server *s, size_t count)
{
    redisReply *reply = server_command(s, "PUBSUB SHARDCHANNELS");
    bool so_many = reply->elements == count;

    freeReplyObject(reply);
    return so_many;
}

/* The sharded channels that have a subscriber at the server. */
static void await_channels(server *s, size_t count)
{
    await_or_say(has_so_many(s, count), "never %zu sharded channels", count);
}

/* Waits once, so that the slot is subscribed to. */
static void wait_once(struct waiting *w, size_t channels)
{
    begin(w);
    await_channels(w->f->server, channels);
    finish(w);
}

/*
 * Until the waiter has told the server that it subscribes to the sharded channel, an entry names the runtime's own
 * channel.
 */
static queue_entry begin_sharded(struct waiting *w)
{
    queue_entry entry = begin(w);

    for (int64_t limit = now_ms() + LIMIT_MS; !is_sharded(entry.channel); entry = begin(w)) {
        assert_that(now_ms() < limit, "never queued with a sharded channel");
        finish(w);
    }
    return entry;
}

/* ------------------------------------------------------------------ channels */

TEST_ON(the_first_grant_of_a_slot_is_published_and_the_next_is_sharded, fixture *f)
{
    struct waiting w = waiter(f, f->server->url, "other");

    wait_once(&w, 1); /* from now on the runtime's own channel is subscribed */
    w.name = "x";
    queue_entry entry = begin(&w);
    assert_string_equal(entry.channel, queue_channel_of(entry.token));
    await_channels(f->server, 2);
    finish_by_push(&w);
    entry = begin_sharded(&w);
    assert_int_equal(server_integer(f->server, "CLUSTER KEYSLOT %s", entry.channel),
                     server_integer(f->server, "CLUSTER KEYSLOT lock:x"));
    long long sharded = server_calls(f->server, "spublish");
    finish_by_push(&w);
    assert_true(server_calls(f->server, "spublish") > sharded); /* new connections try it, too */
    dismiss(&w);
}

TEST_ON(a_process_that_never_waits_subscribes_to_no_slot, fixture *f)
{
    long long asked = server_calls(f->server, "ssubscribe");

    for (int i = 0; i < 10; i++) {
        lock_and_release(f->rt, "x", DIBS_WAIT_FOREVER);
    }
    await_channels(f->server, 0);
    assert_int_equal(server_calls(f->server, "ssubscribe"), asked);
}

/* A name whose key is in the slot of that of x. */
static const char *twin_of_x(void)
{
    for (unsigned i = 0;; i++) {
        const char *key = formatted("lock:x%u", i);
        if (dibs__slot_of(key, strlen(key)) == dibs__slot_of("lock:x", 6))
            return key + strlen("lock:");
    }
}

TEST_ON(names_in_one_slot_share_a_channel, fixture *f)
{
    struct waiting a = waiter(f, f->server->url, "x");
    struct waiting b = {f, a.rt, actor_start(), twin_of_x()}, c = {f, a.rt, actor_start(), "other"};

    wait_once(&a, 1);
    wait_once(&b, 1);
    wait_once(&c, 2);
    begin_sharded(&a);
    begin_sharded(&b);
    begin_sharded(&c);
    finish_by_push(&b);
    finish_by_push(&a);
    finish_by_push(&c);
    actor_end(b.actor);
    actor_end(c.actor);
    dismiss(&a);
}

TEST_ON(a_fair_waiter_is_told_on_the_sharded_channel, fixture *f)
{
    static const dibs_lock_options fair = {.flags = DIBS_FAIR};

    for (int i = 0; i < 5; i++) {
        struct waiting w = waiter(f, f->server->url, "x");
        assert_status(DIBS_OK, actor_lock_with(w.actor, w.rt, "x", LIMIT_MS, &fair));
        assert_status(DIBS_OK, actor_unlock(w.actor, w.rt, "x"));
        wait_once(&w, 1);
        begin_sharded(&w);
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
        actor_gets(w.actor, w.rt, "x");
        dismiss(&w);
    }
}

enum { ROUNDS = 300 };

static void *take_turns(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        lock_and_release(arg, "x", DIBS_WAIT_FOREVER);
    }
    return NULL;
}

enum { RUNTIMES = 3, THREADS = 2 };

static void contend(dibs_runtime *const *rts)
{
    pthread_t threads[RUNTIMES * THREADS];

    for (int i = 0; i < RUNTIMES * THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_turns, rts[i % RUNTIMES]), 0);
    for (int i = 0; i < RUNTIMES * THREADS; i++)
        pthread_join(threads[i], NULL);
}

static uint64_t granted_to_all(dibs_runtime *const *rts)
{
    uint64_t granted = 0;

    for (int i = 0; i < RUNTIMES; i++)
        granted += stats_of(rts[i]).granted;
    return granted;
}

/*
 * Both kinds of channel stand in one queue at first. That may last for most of the turns if a scheduler is kept from
 * subscribing: then there are more of them.
 */
TEST_ON(runtimes_that_contend_are_told_on_their_channels, fixture *f)
{
    dibs_runtime *rts[RUNTIMES];
    long long before = server_calls(f->server, "spublish"), sharded;
    const int64_t limit = now_ms() + LIMIT_MS;
    bool most;

    for (int i = 0; i < RUNTIMES; i++)
        rts[i] = open_runtime(f->server, LONG_LEASE_MS);
    do {
        contend(rts);
        queue_assert_gone(f->server, "x");
        sharded = server_calls(f->server, "spublish") - before;
        most = granted_to_all(rts) > RUNTIMES && sharded > (long long)granted_to_all(rts) / 2;
    } while (!most && now_ms() < limit);
    print_message("# %llu grants, %lld sharded\n", (unsigned long long)granted_to_all(rts), sharded);
    assert_true(most);
    for (int i = 0; i < RUNTIMES; i++) {
        assert_int_equal(stats_of(rts[i]).lost, 0);
        dibs_close(rts[i]);
    }
}

/* -------------------------------------------------------------------- losses */

/* The server says so to its subscribers when a slot goes away; then it comes back. */
TEST_ON(a_waiter_asks_again_when_the_slot_goes_away, fixture *f)
{
    struct waiting w = waiter(f, f->server->url, "x");
    long long slot = server_integer(f->server, "CLUSTER KEYSLOT lock:x");

    wait_once(&w, 1);
    for (int i = 0; i < 3; i++) {
        queue_entry entry = begin_sharded(&w);
        server_do(f->server, "CLUSTER DELSLOTS %lld", slot);
        server_do(f->server, "CLUSTER ADDSLOTS %lld", slot);
        server_await_cluster(f->server);
        queue_entry again = queue_await_ask(f->server, "x", entry.number);
        assert_string_equal(again.token, entry.token);
        assert_true(again.order == entry.order);
        finish_by_push(&w);
        wait_once(&w, 1);
    }
    dismiss(&w);
}

TEST_ON(a_waiter_whose_connection_breaks_subscribes_again, fixture *f)
{
    struct waiting w = waiter(f, f->server->url, "x");

    wait_once(&w, 1);
    for (int i = 0; i < 3; i++) {
        queue_entry entry = begin_sharded(&w);
        assert_true(server_integer(f->server, "CLIENT KILL TYPE pubsub") >= 1);
        queue_await_ask(f->server, "x", entry.number);
        await_channels(f->server, 1);
        finish_by_push(&w);
    }
    dismiss(&w);
}

/* The server knows of no subscriber, whatever the waiter believes: until it does, the runtime's own channel is used. */
TEST_ON(a_lost_sharded_channel_is_replaced_by_the_runtimes_own, fixture *f)
{
    script_server *net = script_server_start(&(script_options){.backend = f->server->socket_path});
    struct waiting w = waiter(f, script_server_url(net), "x");

    wait_once(&w, 1);
    begin_sharded(&w);
    finish(&w);
    assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
    script_server_add(net, (script_rule){.match = ASK_OR_RELEASE_OF_X,
                                         .nth = 1,
                                         .action = SCRIPT_REPLACE,
                                         .bytes = "*4\r\n:0\r\n:600000\r\n:1\r\n:0\r\n"});
    actor_begin_lock(w.actor, w.rt, "x", DIBS_WAIT_FOREVER);
    queue_await(f->server, "x", 1);
    queue_entry entry = queue_at(f->server, "x", 0);
    assert_string_equal(entry.channel, queue_channel_of(entry.token));
    finish_by_push(&w);
    dismiss(&w);
    script_server_stop(net);
}

/* -------------------------------------------------------------------- rights */

struct rights {
    const char *denied; /* rights that the account lacks */
    bool sharded;       /* grants are pushed to the channel of the slot */
    bool pushed;        /* they are pushed to that of the runtime */
};

/* The waiter gets the lock, whatever right is missing. */
static void with_rights(fixture *f, const struct rights *rights)
{
    print_message("# %s\n", rights->denied);
    server_do(f->server, "ACL SETUSER u reset");
    server_do(f->server, "ACL SETUSER u on >pw ~lock:* ~dibs:* &dibs:* +@all");
    char *rest = formatted("%s", rights->denied);
    for (char *at = strtok(rest, " "); at; at = strtok(NULL, " "))
        server_do(f->server, "ACL SETUSER u %s", at);
    struct waiting w = waiter(f, formatted("redis://u:pw@127.0.0.1:%d", f->server->port), "x");
    for (int i = 0; i < 3; i++) {
        assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
        long long asks = server_asks(f->server);
        actor_begin_lock(w.actor, w.rt, "x", DIBS_WAIT_FOREVER);
        server_await_ask(f->server, asks);
        if (rights->sharded || rights->pushed)
            queue_await(f->server, "x", 1);
        await_channels(f->server, rights->sharded ? 1 : 0);
        uint64_t granted = stats_of(w.rt).granted;
        finish(&w);
        /* The first waiter asks once more when it has subscribed, perhaps at the release: then no push grants. */
        if (i > 0 && (rights->sharded || rights->pushed))
            assert_int_equal(stats_of(w.rt).granted, granted + 1);
        await_scheduler(w.rt);
    }
    dismiss(&w);
}

TEST_ON(missing_channel_rights_cost_no_lock, fixture *f)
{
    static const struct rights cases[] = {
        {"-spublish", false, true},
        {"-ssubscribe", false, true},
        {"-pubsub|shardnumsub", false, true},
        {"-publish", true, false},
        {"-publish -pubsub|numsub", true, false},
        {"-publish -spublish", false, false},
        {"-publish -ssubscribe", false, false},
        {"-pubsub", false, false},
        {"-subscribe", false, false},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        with_rights(f, &cases[i]);
}

TESTS_OF(setup, teardown, start, stop)
