/*
 * A script about one lock: begun at once where a connection is open, not over where a node of a cluster names another,
 * and refused where there is no memory for it.
 */
#include "store/redis/redis_store.h"
#include "support/actor.h"
#include "support/failing_malloc.h"
#include "support/fake_redis.h"
#include "support/seat.h"

#define OWNED "*5\r\n$4\r\nsome\r\n:500\r\n$1\r\n7\r\n:0\r\n:9\r\n" /* a reply to a query */

struct scene {
    fake_redis *fake;
    struct seat seat;
};

static int setup(void **state)
{
    static struct scene scene;

    scene.fake = fake_redis_start(false);
    seat_open(&scene.seat, &(struct dibs__store_config){.url = fake_redis_url(scene.fake)});
    *state = &scene;
    return 0;
}

static int teardown(void **state)
{
    struct scene *scene = *state;

    seat_close(&scene->seat);
    fake_redis_stop(scene->fake);
    return 0;
}

/* One thread can begin at several stores, and the servers work at the same time. */
TEST_ON(a_query_that_is_begun_is_sent, struct scene *scene)
{
    struct dibs__store *store = scene->seat.store;
    dibs_owner owner = {.held = false};
    struct dibs__op look = {
        .kind = DIBS__OP_QUERY, .name = "a", .deadline = seat_deadline(), .query = {.owner = &owner}};

    fake_redis_answer(scene->fake, "EVALSHA", OWNED);
    store->ops->begin(store, &look);
    fake_redis_await(scene->fake, "EVALSHA", 1);
    assert_status(DIBS_OK, store_do(store, &look));
    assert_true(owner.held);
    assert_string_equal(owner.token, "some");
    assert_int_equal(fake_redis_count(scene->fake, "EVALSHA"), 1);
}

static unsigned sendings;
static dibs_status said_to_a_sending;

static dibs_status refuse(struct dibs__redis_store *store, struct dibs__lock_call *call, struct dibs__error *error)
{
    sendings++;
    return dibs__error_set(error, said_to_a_sending, "nothing is sent here");
}

/* Once for each common connection at most, and only where the connection broke and there is time. */
TEST(a_call_is_sent_again_as_often_as_there_are_connections)
{
    static const struct dibs__lock_call_ops ops = {.send = refuse};
    static struct dibs__redirect moved = {.kind = DIBS__REDIRECT_MOVED};
    static const struct {
        dibs_status status;
        bool in_time;
        struct dibs__redirect *redirect;
        unsigned sendings;
    } rows[] = {{DIBS_UNAVAILABLE, true, NULL, 1 + DIBS__COMMON},
                {DIBS_UNAVAILABLE, false, NULL, 1},
                {DIBS_UNAVAILABLE, true, &moved, 1},
                {DIBS_STORE_ERROR, true, NULL, 1}};
    const struct scene *scene = *state;
    struct dibs__redis_store *store = dibs__redis_of(scene->seat.store);

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct dibs__op op = {
            .name = "a", .deadline = rows[i].in_time ? seat_deadline() : 0, .redirect = rows[i].redirect};
        struct dibs__lock_call *call = dibs__lock_call_new(sizeof *call, store, &op);
        struct dibs__error error;
        assert_non_null(call);
        said_to_a_sending = rows[i].status;
        sendings = 0;
        assert_status(rows[i].status, dibs__lock_call_run(store, call, &ops, &error));
        assert_int_equal(sendings, rows[i].sendings);
        free(call);
    }
}

/* A cluster of one node, which sends to another what it does not answer. */
struct two_nodes {
    fake_redis *node, *other;
    char map[100], moved[64];
    struct seat seat;
};

static void open_two_nodes(struct two_nodes *two)
{
    char url[64];

    two->node = fake_redis_start(true);
    two->other = fake_redis_start(true);
    snprintf(two->map, sizeof two->map, "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n",
             fake_redis_port(two->node));
    snprintf(two->moved, sizeof two->moved, "-MOVED 1 127.0.0.1:%d\r\n", fake_redis_port(two->other));
    snprintf(url, sizeof url, "redis-cluster://127.0.0.1:%d", fake_redis_port(two->node));
    fake_redis_answer(two->node, "CLUSTER SLOTS", two->map);
    seat_open(&two->seat, &(struct dibs__store_config){.url = url});
}

static void close_two_nodes(struct two_nodes *two)
{
    seat_close(&two->seat);
    fake_redis_stop(two->other);
    fake_redis_stop(two->node);
}

/* Whoever finishes it may have to wait for the other node, so a thread that has other calls to finish leaves it. */
TEST_WITH(a_call_that_a_node_turned_away_is_not_over, NULL, NULL, void *none)
{
    struct two_nodes two;
    dibs_owner owner = {.held = false};

    open_two_nodes(&two);
    fake_redis_answer(two.node, "EVALSHA", OWNED);
    fake_redis_answer(two.other, "EVALSHA", OWNED);
    struct dibs__store *store = two.seat.store;
    struct dibs__op look = {
        .kind = DIBS__OP_QUERY, .name = "a", .deadline = seat_deadline(), .query = {.owner = &owner}};
    assert_status(DIBS_OK, store_do(store, &look)); /* now it is connected */
    fake_redis_answer(two.node, "EVALSHA", two.moved);
    store->ops->begin(store, &look);
    fake_redis_await(two.node, "EVALSHA", 2);
    assert_false(seat_await(&two.seat, &look, seat_deadline()));
    assert_int_equal(fake_redis_accepted(two.other), 0);
    assert_status(DIBS_OK, store_do(store, &look));
    assert_int_equal(fake_redis_count(two.other, "EVALSHA"), 1);
    assert_string_equal(owner.token, "some");
    close_two_nodes(&two);
}

struct forced {
    struct dibs__store *store;
    dibs_status status;
};

static void force_one(void *arg)
{
    struct forced *forced = arg;

    forced->status = store_force(forced->store, "a", "dibs:one", seat_deadline());
}

/* The first node may have taken the lock from the token, so that another has it where the slot is by now. */
TEST_WITH(a_forced_unlock_that_is_sent_on_after_a_lost_answer_is_in_doubt, NULL, NULL, void *none)
{
    struct two_nodes two;
    actor *a = actor_start();

    open_two_nodes(&two);
    fake_redis_answer(two.node, "EVALSHA", ":0\r\n");
    fake_redis_answer(two.other, "EVALSHA", ":0\r\n");
    struct forced forced = {.store = two.seat.store};
    force_one(&forced);
    assert_status(DIBS_NOT_HELD, forced.status);
    fake_redis_answer(two.node, "EVALSHA", ""); /* no answer */
    actor_begin(a, force_one, &forced);
    fake_redis_await(two.node, "EVALSHA", 2);
    fake_redis_answer(two.node, "EVALSHA", two.moved);
    fake_redis_cut(two.node);
    actor_finish(a);
    assert_status(DIBS_UNAVAILABLE, forced.status);
    assert_int_equal(fake_redis_count(two.node, "EVALSHA"), 3);
    assert_int_equal(fake_redis_count(two.other, "EVALSHA"), 1);
    actor_end(a);
    close_two_nodes(&two);
}

#if CAN_FAIL
TEST_ON(a_call_without_memory_says_so, struct scene *scene)
{
    struct dibs__store *store = scene->seat.store;
    dibs_owner owner;
    struct dibs__op ops[] = {
        {.kind = DIBS__OP_FORCE, .name = "a", .force = {NULL}},
        {.kind = DIBS__OP_FORCE, .name = "a", .force = {"dibs:token"}},
        {.kind = DIBS__OP_QUERY, .name = "a", .query = {.owner = &owner}},
    };

    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        struct dibs__error error = {DIBS_OK, ""};
        ops[i].deadline = seat_deadline();
        fail_here(1);
        dibs_status status = store->ops->finish(store, &ops[i], &error);
        fail_no_more();
        assert_status(DIBS_NO_MEMORY, status);
        assert_int_equal(error.status, DIBS_NO_MEMORY);
    }
    assert_int_equal(fake_redis_count(scene->fake, "EVALSHA"), 0);
}
#endif

/* A node before Redis 7.0: the lock may well be there, though another key of the call is not. */
TEST_WITH(a_call_that_an_old_node_would_send_elsewhere_stays, NULL, NULL, void *none)
{
    fake_redis *node = fake_redis_start(true), *other = fake_redis_start(true);
    char map[100], ask[64], url[64];
    dibs_owner owner = {.held = false};
    struct seat seat;

    snprintf(map, sizeof map, "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n", fake_redis_port(node));
    snprintf(ask, sizeof ask, "-ASK 1 127.0.0.1:%d\r\n", fake_redis_port(other));
    snprintf(url, sizeof url, "redis-cluster://127.0.0.1:%d", fake_redis_port(node));
    fake_redis_answer(node, "INFO", "+redis_version:6.2.14\r\n");
    fake_redis_answer(node, "CLUSTER SLOTS", map);
    fake_redis_answer(node, "EVALSHA", ask);
    fake_redis_answer(other, "EVALSHA", OWNED);
    seat_open(&seat, &(struct dibs__store_config){.url = url});
    struct dibs__op look = {
        .kind = DIBS__OP_QUERY, .name = "a", .deadline = seat_deadline(), .query = {.owner = &owner}};
    seat.store->ops->begin(seat.store, &look);
    fake_redis_await(node, "EVALSHA", 1);
    fake_redis_answer(node, "EVALSHA", OWNED);
    assert_status(DIBS_OK, store_do(seat.store, &look));
    assert_string_equal(owner.token, "some");
    assert_int_equal(fake_redis_accepted(other), 0);
    seat_close(&seat);
    fake_redis_stop(other);
    fake_redis_stop(node);
}

TESTS(setup, teardown)
