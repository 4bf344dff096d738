/* How a quorum hears its members, and what it counts as heard from them. */
#include "redis/channel_parts.h"
#include "redis/subscriber_parts.h"
#include "store/quorum/quorum_parts.h"
#include "store/redis/redis_store.h"
#include "support/failing_malloc.h"
#include "support/fake_redis.h"
#include "support/seat.h"

#define MEMBERS 3

/* A begun call waits for a push, and no thread listens for it: each member must soon read by itself. */
TEST(every_member_is_told_that_somebody_waits_unheard)
{
    fake_redis *fakes[MEMBERS];
    const char *urls[MEMBERS];
    struct seat seat;

    for (size_t i = 0; i < MEMBERS; i++) {
        fakes[i] = fake_redis_start(false);
        urls[i] = fake_redis_url(fakes[i]);
    }
    seat_open_unconnected(&seat, &(struct dibs__store_config){.url = urls[0], .urls = urls, .url_count = MEMBERS});
    seat.store->ops->listen(seat.store, "a", NULL, 0);
    for (size_t i = 0; i < MEMBERS; i++) {
        const struct dibs__redis_store *member = dibs__redis_of(dibs__quorum_of(seat.store)->members[i].store);
        assert_true(atomic_load(&member->subscriber->channel->unheard));
    }
    seat_close(&seat);
    for (size_t i = 0; i < MEMBERS; i++)
        fake_redis_stop(fakes[i]);
}

#if CAN_FAIL
static dibs_status release_without_memory(struct dibs__store *store)
{
    struct dibs__op op = {
        .kind = DIBS__OP_RELEASE, .name = "a", .deadline = seat_deadline(), .release = {.token = "t"}};
    struct dibs__error error;

    fail_here(1);
    dibs_status status = store->ops->finish(store, &op, &error);
    fail_no_more();
    return status;
}

/* It says nothing about whether the masters can be reached. */
TEST(a_lack_of_memory_here_is_no_reply)
{
    const char *const urls[MEMBERS] = {"mem:", "mem:", "mem:"};
    struct seat seat;

    seat_open(&seat, &(struct dibs__store_config){.url = urls[0], .urls = urls, .url_count = MEMBERS});
    assert_status(DIBS_NO_MEMORY, release_without_memory(seat.store));
    assert_int_equal(atomic_load(&dibs__quorum_of(seat.store)->last_reply_at), 0);
    seat_close(&seat);
}
#endif

TESTS(NULL, NULL)
