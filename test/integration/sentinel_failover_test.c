/*
 * redis-sentinel://: the master changes while locks are held and waited for. Where TLS is built in, the same with
 * rediss-sentinel://.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "support/certificates.h"
#include "support/events.h"
#include "support/fixture.h"
#include "support/process.h"
#include "support/queue.h"
#include "support/sentinels.h"

#define THREADS 8
#define LEASE_MS 20000 /* outlives a failover, even on a loaded machine */

struct crowd {
    dibs_runtime *rt;
    bool running;
    atomic_bool stop;
    atomic_uint rounds;
    char failures[THREADS][400];     /* each thread's own; read when it has ended; "": none */
    atomic_uint_fast64_t last_fence; /* of "shared", written by its holder */
    pthread_t threads[THREADS];
    struct member {
        struct crowd *crowd;
        int number;
    } members[THREADS];
};

struct scene {
    sentinels *s;
    events events;
    dibs_runtime *rt;
    struct crowd crowd;
    const char *tls; /* the folder of the certificates; NULL: there is no TLS */
};

static void crowd_join(struct crowd *crowd)
{
    atomic_store(&crowd->stop, true);
    for (int i = 0; crowd->running && i < THREADS; i++)
        pthread_join(crowd->threads[i], NULL);
    crowd->running = false;
}

static void open_scene(struct scene *scene, dibs_config config)
{
    config.lease_ms = config.lease_ms ? config.lease_ms : LEASE_MS;
    config.outage_ms = config.outage_ms ? config.outage_ms : LIMIT_MS;
    config.on_event = events_record;
    config.on_event_arg = &scene->events;
    if (scene->tls)
        config.tls_ca_file = certificate_path(scene->tls, "ca.crt");
    scene->rt = open_url(scene->s->url, &config);
}

static int setup_with(void **state, const char *tls)
{
    struct scene *scene = calloc(1, sizeof *scene);

    assert_non_null(scene);
    events_init(&scene->events);
    scene->tls = tls;
    scene->s = sentinels_start(&(sentinels_options){.hasty = true, .tls = tls});
    *state = scene;
    return 0;
}

static int setup(void **state)
{
    return setup_with(state, NULL);
}

#ifdef DIBS_WITH_TLS
static int setup_tls(void **state)
{
    return setup_with(state, certificates_folder());
}
#endif

static int teardown(void **state)
{
    struct scene *scene = *state;

    dibs_shutdown(scene->rt);
    crowd_join(&scene->crowd);
    dibs_close(scene->rt);
    sentinels_stop(scene->s);
    events_destroy(&scene->events);
    free(scene);
    return 0;
}

static void expect_works_at(dibs_runtime *rt, server *master, const char *name)
{
    const char *key = formatted("lock:%s", name);
    assert_status(DIBS_OK, dibs_timedlock(rt, name, LIMIT_MS));
    assert_true(server_has(master, key));
    assert_status(DIBS_OK, dibs_unlock(rt, name));
}

/* ------------------------------------------------------- threads that lock */

/* All lock one name, and each a name of its own. Fences of both rise. */
static void *lock_again_and_again(void *arg)
{
    const struct member *me = arg;
    struct crowd *crowd = me->crowd;
    uint64_t last_own = 0;
    char *failure = crowd->failures[me->number];

    const char *own = formatted("own-%d", me->number);
    while (!atomic_load(&crowd->stop)) {
        bool own_turn = atomic_fetch_add(&crowd->rounds, 1) % 2;
        dibs_hold hold = {0};
        const char *name = own_turn ? own : "shared";
        if (dibs_timedlock(crowd->rt, name, LIMIT_MS) != DIBS_OK) {
            snprintf(failure, sizeof crowd->failures[0], "%s: %s", name, dibs_last_error());
            return NULL;
        }
        if (dibs_hold_of(crowd->rt, name, &hold) == DIBS_OK) {
            uint64_t before = own_turn ? last_own : atomic_load(&crowd->last_fence);
            if (hold.fence <= before) {
                snprintf(failure, sizeof crowd->failures[0], "%s: fence %llu after %llu", name,
                         (unsigned long long)hold.fence, (unsigned long long)before);
                return NULL;
            }
            if (own_turn)
                last_own = hold.fence;
            else
                atomic_store(&crowd->last_fence, hold.fence);
        }
        dibs_unlock(crowd->rt, name);
    }
    return NULL;
}

static struct crowd *crowd_start(struct scene *scene)
{
    struct crowd *crowd = &scene->crowd;

    crowd->rt = scene->rt;
    crowd->running = true;
    for (int i = 0; i < THREADS; i++) {
        crowd->members[i] = (struct member){crowd, i};
        assert_int_equal(pthread_create(&crowd->threads[i], NULL, lock_again_and_again, &crowd->members[i]), 0);
    }
    return crowd;
}

/* Waits until the threads have locked that often since. */
static void crowd_await(struct crowd *crowd, unsigned more)
{
    unsigned count = atomic_load(&crowd->rounds) + more;

    await_that(atomic_load(&crowd->rounds) >= count);
}

static void crowd_end(struct crowd *crowd)
{
    crowd_join(crowd);
    for (int i = 0; i < THREADS; i++)
        assert_that(!crowd->failures[i][0], "%s", crowd->failures[i]);
}

/* --------------------------------------------------------------- failovers */

/*
 * Locks granted between the promotion of the replica and the end of the old master may be lost; replicated ones are
 * not.
 */
TEST_ON(a_planned_failover_is_followed, struct scene *scene)
{
    open_scene(scene, (dibs_config){0});
    assert_status(DIBS_OK, dibs_lock(scene->rt, "held"));
    uint64_t fence = fence_of(scene->rt, "held");
    struct crowd *crowd = crowd_start(scene);
    for (int i = 0; i < 2; i++) {
        crowd_await(crowd, 100);
        server *new_one = sentinels_failover(scene->s);
        crowd_await(crowd, 100);
        expect_works_at(scene->rt, new_one, "other");
        assert_status(DIBS_OK, dibs_check(scene->rt, "held"));
        assert_true(server_has(new_one, "lock:held"));
    }
    crowd_end(crowd);
    assert_status(DIBS_OK, dibs_unlock(scene->rt, "held"));
    assert_status(DIBS_OK, dibs_lock(scene->rt, "held"));
    assert_true(fence_of(scene->rt, "held") > fence);
    assert_status(DIBS_OK, dibs_unlock(scene->rt, "held"));
    assert_int_equal(events_count(&scene->events, DIBS_EVENT_LOST, "held"), 0);
}

/* The sentinels may take longer than a lease of LEASE_MS on a busy machine. */
TEST_ON(a_master_that_is_killed_comes_back_as_a_replica, struct scene *scene)
{
    server *old = scene->s->data[0];

    open_scene(scene, (dibs_config){0});
    assert_status(DIBS_OK, dibs_lock_with(scene->rt, "held", 0, &(dibs_lock_options){.lease_ms = 2 * LIMIT_MS}));
    struct crowd *crowd = crowd_start(scene);
    crowd_await(crowd, 100);
    server_kill(old);
    server *new_one = sentinels_await_other(scene->s, old);
    crowd_await(crowd, 100);
    crowd_end(crowd);
    expect_works_at(scene->rt, new_one, "other");
    assert_status(DIBS_OK, dibs_unlock(scene->rt, "held"));
    events_await(&scene->events, DIBS_EVENT_STORE_DOWN, NULL);
    events_await(&scene->events, DIBS_EVENT_STORE_UP, NULL);
    server_restart(old);
    expect_works_at(scene->rt, new_one, "other");
    sentinels_await_replicas(scene->s, 2);
    expect_works_at(scene->rt, new_one, "other");
    assert_int_equal(server_calls(old, "evalsha"), 0);
}

TEST_ON(a_master_that_hangs_is_left, struct scene *scene)
{
    server *old = scene->s->data[0];

    open_scene(scene, (dibs_config){.command_timeout_ms = LIMIT_MS / 2});
    struct crowd *crowd = crowd_start(scene);
    crowd_await(crowd, 100);
    server_pause(old);
    server *new_one = sentinels_await_other(scene->s, old);
    crowd_await(crowd, 100);
    crowd_end(crowd);
    expect_works_at(scene->rt, new_one, "other");
    server_resume(old); /* for a moment the old master still acts as one */
    expect_works_at(scene->rt, new_one, "other");
    sentinels_await_replicas(scene->s, 2);
    expect_works_at(scene->rt, new_one, "other");
}

/*
 * The replicas will not get what the master does from now on: a stopped replica would read later what was sent to it.
 */
static void stop_replicas(struct scene *scene)
{
    server_pause(scene->s->data[1]);
    server_pause(scene->s->data[2]);
    server_do(scene->s->data[0], "CLIENT KILL TYPE replica");
}

/* A lock that the replicas do not have is restored on the new master at once, not at the next renewal. */
TEST_ON(a_lease_that_the_new_master_lacks_is_restored, struct scene *scene)
{
    server *old = scene->s->data[0];

    open_scene(scene, (dibs_config){.lease_ms = LONG_LEASE_MS});
    expect_works_at(scene->rt, old, "x"); /* all connections stand */
    stop_replicas(scene);
    assert_status(DIBS_OK, dibs_lock(scene->rt, "held"));
    uint64_t fence = fence_of(scene->rt, "held");
    const char *token = server_value(old, "lock:held");
    server_kill(old);
    server_resume(scene->s->data[1]);
    server_resume(scene->s->data[2]);
    server *new_one = sentinels_await_other(scene->s, old);
    server_await_value(new_one, "lock:held", token);
    assert_status(DIBS_OK, dibs_check(scene->rt, "held"));
    assert_true(fence_of(scene->rt, "held") == fence);
    assert_status(DIBS_OK, dibs_unlock(scene->rt, "held"));
    assert_status(DIBS_OK, dibs_lock(scene->rt, "held"));
    assert_true(fence_of(scene->rt, "held") > fence);
    assert_status(DIBS_OK, dibs_unlock(scene->rt, "held"));
}

/* The sentinel that would announce the failover is gone, and so are all that the URL names. */
TEST_ON(sentinels_that_the_url_does_not_name_are_learned, struct scene *scene)
{
    scene->rt = open_url(sentinels_url(scene->s, "2"), &(dibs_config){.lease_ms = LEASE_MS, .outage_ms = LIMIT_MS});
    expect_works_at(scene->rt, scene->s->data[0], "x");
    server_kill(scene->s->sentinels[2]);
    server *new_one = sentinels_failover(scene->s);
    expect_works_at(scene->rt, new_one, "x");
}

TEST_ON(replicas_acknowledge_on_the_new_master, struct scene *scene)
{
    open_scene(scene, (dibs_config){.min_replicas = 1, .replica_timeout_ms = LIMIT_MS / 4});
    for (int i = 0; i < 2; i++) {
        lock_and_release(scene->rt, "x", LIMIT_MS);
        server *new_one = sentinels_failover(scene->s);
        expect_works_at(scene->rt, new_one, "x");
        assert_true(server_calls(new_one, "wait") > 0);
    }
}

/* The lock is free when the sentinels agree at the latest. The waiter must not sleep for what is left of its lease. */
static void expect_grant_soon(struct scene *scene, bool unlocks_meanwhile)
{
    server *old = scene->s->data[0];

    open_scene(scene, (dibs_config){0});
    dibs_config config = {.lease_ms = LEASE_MS, .outage_ms = LIMIT_MS};
    if (scene->tls)
        config.tls_ca_file = certificate_path(scene->tls, "ca.crt");
    dibs_runtime *other = open_url(scene->s->url, &config);
    assert_status(DIBS_OK, dibs_lock(scene->rt, "held"));
    actor *waiter = actor_locking(other, "held", LIMIT_MS);
    actor_await_asleep(waiter);
    server_kill(old);
    if (unlocks_meanwhile)
        dibs_unlock(scene->rt, "held"); /* its release may be left to a retraction */
    sentinels_await_other(scene->s, old);
    int64_t agreed = now_ms();
    if (!unlocks_meanwhile)
        dibs_unlock(scene->rt, "held");
    assert_status(DIBS_OK, actor_result(waiter));
    int64_t took = now_ms() - agreed;
    assert_status(DIBS_OK, actor_unlock(waiter, other, "held"));
    actor_end(waiter);
    dibs_close(other);
    assert_in_range(took, 0, LEASE_MS / 2);
}

TEST(a_waiter_is_granted_soon_after_the_election)
{
    expect_grant_soon(*state, false);
}

TEST(a_waiter_is_granted_soon_where_the_holder_unlocked_meanwhile)
{
    expect_grant_soon(*state, true);
}

/* ----------------------------------------------------------------- sharers */

static const dibs_lock_options shared = {.flags = DIBS_SHARED, .lease_ms = 2 * LIMIT_MS};

/* Two clients share a lock, one waits for it exclusively, and one to share it. All of them go on at the new master. */
TEST_ON(sharers_and_waiters_go_on_after_a_failover, struct scene *scene)
{
    actor *reader = actor_start(), *alone = actor_start(), *late = actor_start();

    open_scene(scene, (dibs_config){0});
    dibs_runtime *other =
        test_runtime(open_url(scene->s->url, &(dibs_config){.lease_ms = LEASE_MS, .outage_ms = LIMIT_MS}));
    assert_status(DIBS_OK, dibs_lock_with(scene->rt, "held", 0, &shared));
    assert_status(DIBS_OK, actor_lock_with(reader, other, "held", 0, &shared));
    uint64_t fence = fence_of(scene->rt, "held");
    actor_begin_lock(alone, other, "held", LIMIT_MS);
    queue_await(scene->s->data[0], "held", 1);
    unsigned long long asks = queue_at(scene->s->data[0], "held", 0).number;
    server *new_one = sentinels_failover(scene->s);
    queue_await_ask(new_one, "held", asks);
    actor_begin_lock_with(late, scene->rt, "held", LIMIT_MS, &shared);
    queue_await(new_one, "held", 2);
    assert_status(DIBS_OK, actor_check(reader, other, "held"));
    assert_status(DIBS_OK, dibs_check(scene->rt, "held"));
    assert_status(DIBS_OK, dibs_unlock(scene->rt, "held"));
    assert_int_equal(queue_size(new_one, "held"), 2);
    assert_true(actor_busy(alone));
    assert_status(DIBS_OK, actor_unlock(reader, other, "held"));
    assert_status(DIBS_OK, actor_result(alone));
    assert_true(actor_busy(late));
    dibs_hold hold;
    assert_status(DIBS_OK, actor_hold(alone, other, "held", &hold));
    assert_true(hold.fence > fence);
    assert_status(DIBS_OK, actor_unlock(alone, other, "held"));
    actor_gets(late, scene->rt, "held");
    assert_int_equal(events_count(&scene->events, DIBS_EVENT_LOST, "held"), 0);
}

static bool has_two_sharers(dibs_runtime *rt)
{
    dibs_owner owner;

    return dibs_query(rt, "held", &owner) == DIBS_OK && owner.sharers == 2;
}

/*
 * The new master does not know the two sharers, and they are stopped when it takes over: the client that waits for the
 * lock exclusively leaves it to them.
 */
TEST_ON(sharers_that_the_new_master_lacks_are_restored, struct scene *scene)
{
    server *old = scene->s->data[0], *new_one;
    process *readers = process_start((const char *const[]){program_path("team"), NULL});
    actor *alone = actor_start();

    open_scene(scene, (dibs_config){0});
    expect_works_at(scene->rt, old, "x"); /* all connections stand */
    stop_replicas(scene);
    assert_string_equal(process_ask(readers, "open %s %d", scene->s->url, 2 * LIMIT_MS), "DIBS_OK ");
    for (int i = 0; i < 2; i++)
        process_ask(readers, "lock %d held 0 %u", i, DIBS_SHARED);
    actor_begin_lock_with(alone, scene->rt, "held", 2LL * LIMIT_MS, &(dibs_lock_options){.lease_ms = SAFE_LEASE_MS});
    queue_await(old, "held", 1);
    queue_await_ask(old, "held", queue_at(old, "held", 0).number); /* it has read the first answer, and knows of them */
    process_pause(readers);
    server_kill(old);
    server_resume(scene->s->data[1]);
    server_resume(scene->s->data[2]);
    new_one = sentinels_await_other(scene->s, old);
    queue_await(new_one, "held", 1);
    assert_false(server_has(new_one, "lock:held"));
    assert_true(actor_busy(alone));
    process_resume(readers);
    await_or_say(has_two_sharers(scene->rt), "they are not restored");
    for (int i = 0; i < 2; i++) {
        assert_true(actor_busy(alone));
        assert_string_equal(process_ask(readers, "unlock %d held", i), formatted("%d DIBS_OK ", i));
    }
    actor_gets(alone, scene->rt, "held");
    assert_string_equal(process_ask(readers, "close"), "DIBS_OK ");
    assert_int_equal(process_wait(readers, LIMIT_MS), 0);
    dibs_owner owner = owner_of(scene->rt, "held");
    assert_false(owner.held);
    process_free(readers);
}

/* ---------------------------------------------------------------- outages */

TEST_ON(sentinels_are_not_hammered_while_there_is_no_master, struct scene *scene)
{
    enum { SECONDS = 3 };

    open_scene(scene, (dibs_config){0});
    struct crowd *crowd = crowd_start(scene);
    crowd_await(crowd, 100);
    for (int i = 0; i < SENTINEL_DATA; i++)
        server_kill(scene->s->data[i]);
    events_await(&scene->events, DIBS_EVENT_STORE_DOWN, NULL);
    long long before = sentinels_connections(scene->s);
    pause_ms(1000 * SECONDS);
    /* None, where the connections to the sentinels stand: they are asked on those. */
    assert_in_range(sentinels_connections(scene->s) - before, 0, 20 * SECONDS);
    for (int i = 0; i < SENTINEL_DATA; i++)
        server_restart(scene->s->data[i]);
    crowd_await(crowd, 100);
    crowd_end(crowd);
}

static bool is_unnamed(void)
{
    return strstr(dibs_last_error(), "no sentinel names the master") != NULL;
}

/* On a busy machine an outage may be over before the sentinels were asked: then a later call tells of them. */
static bool is_unnamed_later(dibs_runtime *rt)
{
    assert_status(DIBS_UNAVAILABLE, dibs_lock(rt, "x"));
    return is_unnamed();
}

TEST_ON(an_outage_without_a_master_ends, struct scene *scene)
{
    open_scene(scene, (dibs_config){.outage_ms = 300});
    expect_works_at(scene->rt, scene->s->data[0], "x");
    for (int i = 0; i < SENTINELS; i++)
        server_kill(scene->s->sentinels[i]);
    expect_works_at(scene->rt, scene->s->data[0], "x"); /* its connections stand */
    for (int i = 0; i < SENTINEL_DATA; i++)
        server_kill(scene->s->data[i]);
    int64_t begin = now_ms();
    assert_status(DIBS_UNAVAILABLE, dibs_lock(scene->rt, "x"));
    assert_in_range(now_ms() - begin, 0, 3000 + SLACK_MS);
    assert_that(is_unnamed() || within(LIMIT_MS, is_unnamed_later(scene->rt)), "%s", dibs_last_error());
}

#ifdef DIBS_WITH_TLS
/* --------------------------------------------------------------------- TLS */

TEST_AGAIN(a_planned_failover_is_followed, setup_tls, teardown)
TEST_AGAIN(a_master_that_is_killed_comes_back_as_a_replica, setup_tls, teardown)

/* The certificates of a sentinel and of a replica name other hosts, but the other servers accept them. */
TEST_WITH(a_sentinel_with_a_wrong_certificate_is_passed_over, setup_tls, teardown, struct scene *scene)
{
    sentinels *s = scene->s;

    certificate_make(scene->tls,
                     &(struct certificate){.file = "elsewhere", .issuer = "ca", .names = "DNS:elsewhere.test"});
    server_certify(s->sentinels[2], "elsewhere");
    dibs_config config = {.tls_ca_file = certificate_path(scene->tls, "ca.crt")};
    expect_not_opened(DIBS_DENIED, sentinels_url(s, "2"), &config, "certificate");
    s->url = sentinels_url(s, "210");
    open_scene(scene, (dibs_config){0});
    expect_works_at(scene->rt, s->data[0], "x");
    expect_works_at(scene->rt, sentinels_failover(s), "x");
}

/* That replica is promoted, and all sentinels name it. */
TEST_WITH(a_master_with_a_wrong_certificate_is_not_used, setup_tls, teardown, struct scene *scene)
{
    sentinels *s = scene->s;

    certificate_make(scene->tls,
                     &(struct certificate){.file = "elsewhere", .issuer = "ca", .names = "DNS:elsewhere.test"});
    open_scene(scene, (dibs_config){.outage_ms = 300});
    expect_works_at(scene->rt, s->data[0], "x");
    for (int i = 1; i < SENTINEL_DATA; i++)
        server_certify(s->data[i], "elsewhere");
    sentinels_await_replicas(s, SENTINEL_DATA - 1);
    server_kill(s->data[0]);
    server *new_one = sentinels_await_other(s, s->data[0]);
    dibs_status status = dibs_timedlock(scene->rt, "x", LIMIT_MS);
    assert_that(status == DIBS_DENIED || status == DIBS_UNAVAILABLE, "%s", dibs_status_name(status));
    assert_int_equal(server_asks(new_one), 0);
    dibs_config config = {.tls_ca_file = certificate_path(scene->tls, "ca.crt")};
    expect_not_opened(DIBS_DENIED, s->url, &config, "certificate");
}
#endif

TESTS(setup, teardown)
