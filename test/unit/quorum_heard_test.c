/* How a quorum hears its members. */
#include "redis/subscriber_parts.h"
#include "store/quorum/quorum_parts.h"
#include "store/redis/redis_store.h"
#include "support/fake_redis.h"
#include "support/seat.h"
#include "support/test.h"

#define MEMBERS 3

/* A begun call waits for a push, and no thread listens for it: each member must soon read by itself. */
static void every_member_is_told_that_somebody_waits_unheard(void **state)
{
    fake_redis *fakes[MEMBERS];
    const char *urls[MEMBERS];
    struct seat seat;

    (void)state;
    for (size_t i = 0; i < MEMBERS; i++) {
        fakes[i] = fake_redis_start(false);
        urls[i] = fake_redis_url(fakes[i]);
    }
    seat_open(&seat,
              &(struct dibs__store_config){.url = urls[0], .urls = urls, .url_count = MEMBERS, .connect_later = true});
    seat.store->ops->listen(seat.store, "a", NULL, 0);
    for (size_t i = 0; i < MEMBERS; i++) {
        const struct dibs__redis_store *member = dibs__redis_of(dibs__quorum_of(seat.store)->members[i].store);
        assert_true(atomic_load(&member->subscriber->unheard));
    }
    seat_close(&seat);
    for (size_t i = 0; i < MEMBERS; i++)
        fake_redis_stop(fakes[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_member_is_told_that_somebody_waits_unheard),
    };

    return cmocka_run_group_tests_name("quorum_heard", tests, NULL, NULL);
}
