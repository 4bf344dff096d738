/* The connections of a store on Redis: which of them count as another open one, and when none is open. */
#include "store/redis/redis_store.h"
#include "support/fake_redis.h"
#include "support/seat.h"
#include "support/test.h"

struct scene {
    fake_redis *fake;
    struct seat seat;
    struct dibs__redis_store *store;
};

/* With replicas, so that there are exclusive channels; opening connects the first of the common ones. */
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

TEST_ON(a_common_channel_does_not_count_as_another_of_itself, struct scene *scene)
{
    assert_false(dibs__redis_another_is_connected(scene->store, 0));
    assert_true(dibs__redis_another_is_connected(scene->store, 1));
    assert_true(dibs__redis_another_is_connected(scene->store, DIBS__COMMON - 1));
    connect_channel(scene, DIBS__COMMON - 1);
    assert_true(dibs__redis_another_is_connected(scene->store, 0));
}

TEST_ON(only_channels_of_its_kind_count, struct scene *scene)
{
    size_t last = DIBS__COMMON + DIBS__EXCLUSIVE - 1;

    assert_false(dibs__redis_another_is_connected(scene->store, DIBS__COMMON));
    connect_channel(scene, last);
    assert_true(dibs__redis_another_is_connected(scene->store, DIBS__COMMON));
    assert_false(dibs__redis_another_is_connected(scene->store, last));
    assert_false(dibs__redis_another_is_connected(scene->store, 0));
    connect_channel(scene, DIBS__COMMON);
    assert_true(dibs__redis_another_is_connected(scene->store, last));
}

/* --------------------------------------------------------------- reachability */

static void ignore(void *context)
{
}

static void count_changes(void *context, bool up, const char *detail)
{
    unsigned *changes = context;

    assert_non_null(detail);
    changes[up]++;
}

/* A store that was reported down is reported up once, when the server has served again, and not with each reply. */
static void expect_what_is_heard(struct dibs__redis_store *store, const unsigned *changes)
{
    static const struct {
        dibs_status status;
        bool heard;
        unsigned up;
    } rows[] = {
        {DIBS_UNAVAILABLE, false, 0}, {DIBS_NO_MEMORY, false, 0}, {DIBS_DENIED, true, 0}, {DIBS_STORE_ERROR, true, 0},
        {DIBS_NOT_HELD, true, 1},     {DIBS_BUSY, true, 1},       {DIBS_OK, true, 1}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        atomic_store(&store->last_reply_at, 0);
        dibs__redis_note_reply(store, rows[i].status);
        assert_int_equal(atomic_load(&store->last_reply_at) != 0, rows[i].heard);
        assert_int_equal(changes[true], rows[i].up);
    }
}

static void open_connected(struct dibs__store **store, fake_redis *fake, struct dibs__counters *counters,
                           unsigned *changes)
{
    const struct dibs__store_config config = {
        .url = fake_redis_url(fake),
        .key_prefix = "",
        .client_name = "test",
        .runtime_id = "test",
        .connect_timeout_ms = LIMIT_MS,
        .command_timeout_ms = LIMIT_MS,
        .clock = &dibs__system_clock,
        .listener = {.wake = ignore,
                     .ask_again = ignore,
                     .source = changes,
                     .server_changed = ignore,
                     .reachable = count_changes},
        .counters = counters,
    };
    struct dibs__error error;

    assert_status(DIBS_OK, dibs__store_open(store, &config, &error));
    assert_status(DIBS_OK, (*store)->ops->connect(*store, false, &error));
    assert_status(DIBS_OK, (*store)->ops->connect(*store, true, &error));
}

/* Without a scheduler, an open connection is not looked at until another cannot be made. */
TEST_WITH(an_unnoticed_end_leaves_the_channel_disconnected, NULL, NULL, void *none)
{
    static struct dibs__counters counters;
    unsigned changes[2] = {0, 0};
    fake_redis *fake = fake_redis_start(false);
    struct dibs__store *store;
    struct dibs__link_view view;
    struct dibs__error error;

    open_connected(&store, fake, &counters, changes);
    struct dibs__channel **channels = dibs__redis_of(store)->channels;
    fake_redis_refuse(fake, true);
    assert_status(DIBS_UNAVAILABLE, dibs__channel_open(channels[1], seat_deadline(), &view, &error));
    assert_int_equal(changes[false], 0); /* the first connection is open */
    fake_redis_cut(fake);
    assert_status(DIBS_UNAVAILABLE, dibs__channel_open(channels[2], seat_deadline(), &view, &error));
    assert_int_equal(changes[false], 1);
    assert_status(DIBS_UNAVAILABLE, dibs__channel_open(channels[0], seat_deadline(), &view, &error));
    assert_int_equal(changes[false], 1);
    expect_what_is_heard(dibs__redis_of(store), changes);
    store->ops->close(store);
    fake_redis_stop(fake);
}

/* One round of the scheduler, which this test does not have. */
static void attend(struct dibs__store *store)
{
    struct pollfd fds[3 + DIBS__COMMON + DIBS__EXCLUSIVE];
    int64_t until;
    size_t count = store->ops->interest(store, fds, &until);

    poll(fds, (nfds_t)count, until > dibs__now(&dibs__system_clock) ? 2 : 0);
    store->ops->attend(store, fds, count);
}

/* The server takes no more clients, so there is no background channel: an open shared one is used. */
TEST_WITH(a_common_channel_carries_retractions_where_the_background_is_missing, NULL, NULL, void *none)
{
    static struct dibs__counters counters;
    unsigned changes[2] = {0, 0};
    fake_redis *fake = fake_redis_start(false);
    struct dibs__store *store;

    open_connected(&store, fake, &counters, changes);
    fake_redis_answer(fake, "EVALSHA", "*2\r\n:500\r\n:0\r\n");
    fake_redis_refuse(fake, true);
    store->ops->retract(store, "name", "token", LONG_LEASE_MS, 0);
    for (int64_t limit = now_ms() + LIMIT_MS; atomic_load(&counters.unconfirmed) > 0; attend(store))
        assert_that(now_ms() < limit, "it is not confirmed");
    assert_false(dibs__channel_is_connected(dibs__redis_of(store)->background));
    assert_int_equal(fake_redis_count(fake, "EVALSHA"), 1);
    store->ops->close(store);
    fake_redis_stop(fake);
}

TESTS(setup, teardown)
