/* The connections of a store on Redis: which of them count as another one that stands. */
#include "store/redis/redis_store.h"
#include "support/fake_redis.h"
#include "support/seat.h"
#include "support/test.h"

struct scene {
    fake_redis *fake;
    struct seat seat;
    struct dibs__redis_store *store;
};

/* With replicas, so that there are exclusive channels; opening connects the first of the shared ones. */
static int setup(void **state)
{
    static struct scene scene;

    scene.fake = fake_redis_start(false);
    seat_open(&scene.seat, &(struct dibs__store_config){.url = fake_redis_url(scene.fake), .min_replicas = 1});
    scene.store = dibs__redis_of(scene.seat.store);
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

static void connect_channel(struct scene *scene, size_t channel)
{
    struct dibs__link_view view;
    struct dibs__error error;

    assert_status(DIBS_OK, dibs__channel_open(scene->store->channels[channel], seat_deadline(), &view, &error));
}

static void a_shared_channel_is_no_other_than_itself(void **state)
{
    struct scene *scene = *state;

    assert_false(dibs__redis_another_stands(scene->store, 0));
    assert_true(dibs__redis_another_stands(scene->store, 1));
    assert_true(dibs__redis_another_stands(scene->store, DIBS__SHARED - 1));
    connect_channel(scene, DIBS__SHARED - 1);
    assert_true(dibs__redis_another_stands(scene->store, 0));
}

static void only_channels_of_its_kind_count(void **state)
{
    struct scene *scene = *state;
    size_t last = DIBS__SHARED + DIBS__EXCLUSIVE - 1;

    assert_false(dibs__redis_another_stands(scene->store, DIBS__SHARED));
    connect_channel(scene, last);
    assert_true(dibs__redis_another_stands(scene->store, DIBS__SHARED));
    assert_false(dibs__redis_another_stands(scene->store, last));
    assert_false(dibs__redis_another_stands(scene->store, 0));
    connect_channel(scene, DIBS__SHARED);
    assert_true(dibs__redis_another_stands(scene->store, last));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_shared_channel_is_no_other_than_itself, setup, teardown),
        cmocka_unit_test_setup_teardown(only_channels_of_its_kind_count, setup, teardown),
    };

    return cmocka_run_group_tests_name("redis_channels", tests, NULL, NULL);
}
