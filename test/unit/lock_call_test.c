/* A script about one lock: begun at once where a connection is open, and refused where there is no memory for it. */
#include "store/redis/redis_store.h"
#include "support/failing_malloc.h"
#include "support/fake_redis.h"
#include "support/seat.h"
#include "support/test.h"

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
static void a_query_that_is_begun_is_sent(void **state)
{
    struct scene *scene = *state;
    struct dibs__store *store = scene->seat.store;
    dibs_owner owner = {.held = false};
    struct dibs__op look = {
        .kind = DIBS__OP_QUERY, .name = "a", .deadline = seat_deadline(), .query = {.owner = &owner}};

    fake_redis_answer(scene->fake, "EVALSHA", "*5\r\n$4\r\nsome\r\n:500\r\n$1\r\n7\r\n:0\r\n:9\r\n");
    store->ops->begin(store, &look);
    fake_redis_await(scene->fake, "EVALSHA", 1);
    assert_status(DIBS_OK, store_do(store, &look));
    assert_true(owner.held);
    assert_string_equal(owner.token, "some");
    assert_int_equal(fake_redis_count(scene->fake, "EVALSHA"), 1);
}

#if CAN_FAIL
static void a_call_without_memory_says_so(void **state)
{
    struct scene *scene = *state;
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
        fails_here = true;
        atomic_store(&fail_at, 1);
        dibs_status status = store->ops->finish(store, &ops[i], &error);
        fails_here = false;
        assert_status(DIBS_NO_MEMORY, status);
        assert_int_equal(error.status, DIBS_NO_MEMORY);
    }
    assert_int_equal(fake_redis_count(scene->fake, "EVALSHA"), 0);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_query_that_is_begun_is_sent, setup, teardown),
#if CAN_FAIL
        cmocka_unit_test_setup_teardown(a_call_without_memory_says_so, setup, teardown),
#endif
    };

    return cmocka_run_group_tests_name("lock_call", tests, NULL, NULL);
}
