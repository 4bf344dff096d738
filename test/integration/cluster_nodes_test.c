/* Nodes of a cluster that can't be reached, at the opening and later, and how often nodes are asked for the map. */
#include <unistd.h>

#include "integration/cluster_setup.h"
#include "support/child.h"
#include "support/fake_redis.h"
#include "support/tasks.h"

#define SHORT_MS 400 /* of leases that are to end while a node is away */

/* The other nodes go on while one is away; they do not take it for dead. */
static int setup(void **state)
{
    return setup_with(state,
                      &(cluster_options){.node_timeout_ms = 60000, .config = "cluster-require-full-coverage no\n"});
}

static long long map_calls(const struct scene *s)
{
    long long sum = 0;

    for (size_t i = 0; i < s->c->count; i++)
        if (s->c->nodes[i]->pid && !s->c->nodes[i]->paused)
            sum += server_calls(s->c->nodes[i], "cluster|slots");
    return sum;
}

/* --------------------------------------------------------------------- the opening */

TEST_ON(one_node_that_answers_is_enough, struct scene *s)
{
    s->urls[0] = formatted("%s://127.0.0.1:1,127.0.0.1:%d", scheme_of(s), s->c->nodes[1]->port);
    open_on_cluster(s, LONG_LEASE_MS);
    const char *name = new_name(s, s->c->nodes[2]);
    lock_and_release(s->rt, name, DIBS_WAIT_FOREVER);
}

/* The host of that node accepts connections and sends nothing. */
TEST_ON(a_silent_first_node_does_not_fail_open, struct scene *s)
{
    dibs_runtime *rt = NULL;

    server_pause(s->c->nodes[0]);
    dibs_status status = open_status(s->c->url, &(dibs_config){.connect_timeout_ms = LIMIT_MS / 4}, &rt);
    server_resume(s->c->nodes[0]);
    assert_status(DIBS_OK, status);
    dibs_close(rt);
}

TEST_ON(open_fails_where_no_node_answers, struct scene *s)
{
    server *alone = test_server(server_start(&(server_options){.tcp = true}));
    /* The answer of one server counts for more than the absence of another. */
    static const char *const urls[] = {"%s://127.0.0.1:%d", "%s://127.0.0.1:%d,127.0.0.1:1",
                                       "%s://127.0.0.1:1,127.0.0.1:%d"};

    expect_not_opened(DIBS_UNAVAILABLE, "redis-cluster://127.0.0.1:1,127.0.0.1:2", NULL, NULL);
    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++)
        expect_not_opened(DIBS_STORE_ERROR, formatted(urls[i], scheme_of(s), alone->port), NULL,
                          "not part of a cluster");
}

/* Each slot is a range of its own. */
TEST(a_map_in_as_many_pieces_as_there_are_slots_is_read)
{
    enum { SLOTS = 16384, RANGE = 64 };
    fake_redis *node = fake_redis_start(true);
    char *slots = malloc(SLOTS * RANGE + RANGE), *end = slots;
    const dibs_config patient = {.connect_timeout_ms = LIMIT_MS, .command_timeout_ms = LIMIT_MS};
    dibs_runtime *rt = NULL;

    assert_non_null(slots);
    end += sprintf(end, "*%d\r\n", SLOTS);
    for (int i = 0; i < SLOTS; i++)
        end += sprintf(end, "*3\r\n:%d\r\n:%d\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n", i, i, fake_redis_port(node));
    fake_redis_answer(node, "CLUSTER SLOTS", slots);
    fake_redis_answer(node, "EVAL", ":1\r\n");
    assert_status(DIBS_OK,
                  open_status(formatted("redis-cluster://127.0.0.1:%d", fake_redis_port(node)), &patient, &rt));
    lock_and_release(rt, "x", 0);
    dibs_close(rt);
    fake_redis_stop(node);
    free(slots);
}

/* ------------------------------------------------------------- a node that has left */

/* It is a cluster of its own, without slots. */
TEST_ON(a_first_node_that_has_left_is_passed_over, struct scene *s)
{
    server *left = test_server(server_start(&(server_options){.tcp = true, .config = "cluster-enabled yes"}));

    expect_not_opened(DIBS_UNAVAILABLE, formatted("%s://127.0.0.1:%d", scheme_of(s), left->port), NULL, NULL);
    s->urls[0] = formatted("%s://127.0.0.1:%d,127.0.0.1:%d", scheme_of(s), left->port, s->c->nodes[1]->port);
    open_on_cluster(s, LONG_LEASE_MS);
    const char *name = new_name(s, s->c->nodes[2]);
    lock_and_release(s->rt, name, DIBS_WAIT_FOREVER);
}

/* The first had all slots but one, and gave them to the other before it left. */
TEST(a_node_that_leaves_is_not_asked_for_ever)
{
    fake_redis *first = fake_redis_start(true), *other = fake_redis_start(true);
    dibs_runtime *rt = NULL;

    const char *before = formatted("*2\r\n*3\r\n:1\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n"
                                   "*3\r\n:0\r\n:0\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n",
                                   fake_redis_port(first), fake_redis_port(other));
    const char *after =
        formatted("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n", fake_redis_port(other));
    fake_redis_answer(first, "CLUSTER SLOTS", before);
    fake_redis_answer(other, "CLUSTER SLOTS", after);
    fake_redis_answer(first, "EVAL", "-CLUSTERDOWN Hash slot not served\r\n");
    fake_redis_answer(first, "EVAL return 1", ":1\r\n");
    fake_redis_answer(other, "EVAL", ":1\r\n");
    assert_status(DIBS_OK, open_status(formatted("redis-cluster://127.0.0.1:%d", fake_redis_port(first)), NULL, &rt));
    fake_redis_answer(first, "CLUSTER SLOTS", "*0\r\n");
    await_that(dibs_trylock(rt, "x") == DIBS_OK && dibs_unlock(rt, "x") == DIBS_OK);
    dibs_close(rt);
    fake_redis_stop(other);
    fake_redis_stop(first);
}

/* ------------------------------------------------------------------ a node that hangs */

TEST_ON(a_node_that_hangs_delays_no_other_nodes_leases, struct scene *s)
{
    const char *names[3];

    s->config.outage_ms = SHORT_MS;
    open_on_cluster(s, SAFE_LEASE_MS);
    for (int i = 0; i < 3; i++) {
        names[i] = new_name(s, s->c->nodes[i]);
        assert_status(DIBS_OK, dibs_lock(s->rt, names[i]));
    }
    pause_ms(SAFE_LEASE_MS);
    server_pause(s->c->nodes[0]);
    int64_t end = now_ms() + 3 * SAFE_LEASE_MS;
    while (now_ms() < end) {
        assert_status(DIBS_OK, dibs_check(s->rt, names[1]));
        assert_status(DIBS_OK, dibs_check(s->rt, names[2]));
        pause_ms(5);
    }
    assert_status(DIBS_LOST, dibs_check(s->rt, names[0]));
    assert_int_equal(events_count(&s->events, DIBS_EVENT_LOST, NULL), 1);
    assert_int_equal(events_count(&s->events, DIBS_EVENT_STORE_DOWN, NULL), 0);
    int64_t before = now_ms();
    const char *other = new_name(s, s->c->nodes[1]);
    lock_and_release(s->rt, other, 0);
    assert_true(now_ms() - before < SLACK_MS);
    server_resume(s->c->nodes[0]);
    for (int i = 0; i < 3; i++)
        assert_status(i == 0 ? DIBS_LOST : DIBS_OK, dibs_unlock(s->rt, names[i]));
}

/* The nodes that answer meanwhile have nothing to do with the lock. */
TEST_ON(a_lock_on_a_dead_node_is_given_up_though_other_nodes_answer, struct scene *s)
{
    s->config.command_timeout_ms = LIMIT_MS; /* what is killed refuses at once; what lives may be slow here */
    s->config.outage_ms = 1000;
    open_on_cluster(s, LONG_LEASE_MS);
    const char *dead = new_name(s, s->c->nodes[0]);
    const char *alive = new_name(s, s->c->nodes[1]);
    server_kill(s->c->nodes[0]);
    int64_t end = now_ms() + LIMIT_MS;
    actor *waiter = actor_locking(s->rt, dead, DIBS_WAIT_FOREVER);
    while (actor_busy(waiter)) {
        assert_that(now_ms() < end, "the lock is still waited for");
        lock_and_release(s->rt, alive, 0);
    }
    assert_status(DIBS_UNAVAILABLE, actor_result(waiter));
    actor_end(waiter);
    server_restart(s->c->nodes[0]);
    cluster_await_ok(s->c);
}

/* It is redirected there. The calls begun with it are not at that node, and their replies are there at once. */
TEST_ON(a_begun_unlock_that_a_silent_node_must_answer_holds_up_no_others, struct scene *s)
{
    s->config.command_timeout_ms = LIMIT_MS / 2;
    open_on_cluster(s, LONG_LEASE_MS);
    const char *moved = new_name(s, s->c->nodes[0]);
    const char *other = new_name(s, s->c->nodes[1]);
    dibs_task *unlocking = test_task(task_of_runtime(s->rt)), *locking = test_task(task_of_runtime(s->rt));
    dibs_queue *unlocks = test_queue(queue_new()), *locks = test_queue(queue_new());
    assert_status(DIBS_OK, task_lock(unlocking, moved, 0, unlocks));
    assert_status(DIBS_OK, task_lock(locking, other, 0, locks)); /* its connection exists */
    assert_status(DIBS_OK, task_unlock(locking, other, locks));
    cluster_move_slot(s->c, slot_of(s, moved), s->c->nodes[2]);
    server_pause(s->c->nodes[2]);
    begin_unlock(unlocking, moved, unlocks);
    begin_lock(locking, other, 0, NULL, locks);
    expect_done(locks, DIBS_DONE_LOCK, DIBS_OK, locking);
    expect_none(unlocks);
    server_resume(s->c->nodes[2]);
    expect_done(unlocks, DIBS_DONE_UNLOCK, DIBS_OK, unlocking);
    assert_status(DIBS_OK, task_unlock(locking, other, locks));
}

/* ---------------------------------------------------------------------- the counting */

/*
 * No more than a few commands a second (one in 125 to 250 ms), however many calls fail; rarely any while all is well.
 */
TEST_ON(nodes_are_not_hammered_for_the_map, struct scene *s)
{
    open_patient_on_cluster(s, LONG_LEASE_MS);
    const char *name = new_name(s, s->c->nodes[0]);
    lock_and_release(s->rt, name, 0);
    long long before = map_calls(s);
    int64_t begin = now_ms();
    for (int i = 0; i < 2000; i++) {
        lock_and_release(s->rt, name, 0);
    }
    assert_in_range(map_calls(s) - before, 0, 2 + (now_ms() - begin) / 10000); /* it is also asked for now and then */
    server_kill(s->c->nodes[0]);
    before = map_calls(s);
    begin = now_ms();
    while (now_ms() < begin + 3000)
        assert_status(DIBS_UNAVAILABLE, dibs_trylock(s->rt, name));
    assert_in_range(map_calls(s) - before, 1, 10 + 8 * (now_ms() - begin) / 1000);
    server_restart(s->c->nodes[0]);
    cluster_await_ok(s->c);
    lock_and_release(s->rt, name, LIMIT_MS);
}

/* ------------------------------------------------------------------------ the events */

/* In the short time that the tests below give it, a busy machine may not answer at once. */
static bool is_answered(dibs_runtime *rt, const char *name)
{
    dibs_owner owner;

    return dibs_query(rt, name, &owner) == DIBS_OK;
}

TEST_ON(the_store_is_down_only_when_no_node_answers, struct scene *s)
{
    s->config.connect_timeout_ms = s->config.command_timeout_ms = 200;
    open_on_cluster(s, LONG_LEASE_MS);
    const char *name = new_name(s, s->c->nodes[1]);
    await_that(is_answered(s->rt, name));
    for (int i = 0; i < 3; i++)
        server_kill(s->c->nodes[i]);
    events_await(&s->events, DIBS_EVENT_STORE_DOWN, NULL);
    for (int i = 0; i < 3; i++)
        server_restart(s->c->nodes[i]);
    events_await(&s->events, DIBS_EVENT_STORE_UP, NULL);
    cluster_await_ok(s->c);
    assert_status(DIBS_OK, dibs_timedlock(s->rt, name, LIMIT_MS));
    dibs_unlock_all(s->rt); /* otherwise the release goes on in the background */
}

/* This holds for each node, and without any call. */
TEST_ON(the_store_is_up_again_when_one_node_answers, struct scene *s)
{
    s->config.connect_timeout_ms = s->config.command_timeout_ms = 200;
    open_on_cluster(s, LONG_LEASE_MS);
    const char *name = new_name(s, s->c->nodes[1]);
    await_that(is_answered(s->rt, name));
    for (int i = 0; i < 3; i++)
        server_kill(s->c->nodes[i]);
    for (unsigned i = 0; i < 3; i++) {
        await_that(events_count(&s->events, DIBS_EVENT_STORE_DOWN, NULL) > i);
        server_restart(s->c->nodes[i]);
        await_that(events_count(&s->events, DIBS_EVENT_STORE_UP, NULL) > i);
        server_kill(s->c->nodes[i]);
    }
    for (int i = 0; i < 3; i++)
        server_restart(s->c->nodes[i]);
    cluster_await_ok(s->c);
}

/* Nodes may name each other for good after a failover that one of them has not heard of. */
TEST(two_nodes_that_each_name_the_other_are_asked_a_few_times)
{
    fake_redis *one = fake_redis_start(true), *other = fake_redis_start(true);
    dibs_runtime *rt = NULL;

    const char *slots = formatted("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n", fake_redis_port(one));
    const char *to_one = formatted("-MOVED 1 127.0.0.1:%d\r\n", fake_redis_port(one));
    const char *to_other = formatted("-MOVED 1 127.0.0.1:%d\r\n", fake_redis_port(other));
    fake_redis_answer(one, "CLUSTER SLOTS", slots);
    fake_redis_answer(other, "CLUSTER SLOTS", slots);
    fake_redis_answer(one, "EVAL", to_other);
    fake_redis_answer(other, "EVAL", to_one);
    assert_status(DIBS_OK, open_status(formatted("redis-cluster://127.0.0.1:%d", fake_redis_port(one)), NULL, &rt));
    for (int i = 1; i <= 3; i++) {
        assert_status(DIBS_UNAVAILABLE, dibs_trylock(rt, "x"));
        assert_in_range(fake_redis_count(one, "EVAL") + fake_redis_count(other, "EVAL"), 2, 20 + 12 * i);
    }
    dibs_close(rt);
    fake_redis_stop(other);
    fake_redis_stop(one);
}

/* -------------------------------------------------------------------------- forks */

static const char *held; /* by the parent */

static void child_finds_the_nodes(dibs_runtime *rt)
{
    /* Where the child hangs in a sanitizer's allocator, and is killed, the next one soon has its lock. */
    const dibs_lock_options brief = {.lease_ms = SAFE_LEASE_MS};

    CHILD_WANTS(DIBS_BUSY, dibs_trylock(rt, held));
    CHILD_WANTS(DIBS_OK, dibs_lock_with(rt, "child", LIMIT_MS, &brief));
    CHILD_WANTS(DIBS_OK, dibs_unlock(rt, "child"));
}

TEST_ON(a_child_finds_the_nodes_by_itself, struct scene *s)
{
    open_on_cluster(s, LONG_LEASE_MS);
    held = new_name(s, s->c->nodes[2]);
    assert_status(DIBS_OK, dibs_lock(s->rt, held));
    run_child(child_finds_the_nodes, s->rt);
    assert_status(DIBS_OK, dibs_unlock(s->rt, held));
}

TESTS_OF(setup, teardown, NULL, stop_cluster)
