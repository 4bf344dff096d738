/* Where there is no memory to ask a sentinel, or no right to hear it. */
#include <poll.h>

#include "redis/sentinel_parts.h"
#include "support/failing_malloc.h"
#include "support/fake_sentinel.h"

#define MS(n) ((n) * (int64_t)DIBS__NS_PER_MS)

static fake_sentinel fake;
static struct dibs__endpoint master;
static struct dibs__sentinel *sentinel;
static int64_t now;

static void on_wake(void *context)
{
}

/* All that was asked has been answered, and no round goes on. */
static bool is_still(void)
{
    struct pollfd fds[DIBS__SENTINELS_LEARNED + 1];
    int64_t until = DIBS__NEVER;

    size_t count = dibs__sentinel_interest(sentinel, fds, &until);
    poll(fds, count, until <= now ? 0 : 2);
    dibs__sentinel_attend(sentinel, now);
    return sentinel->hosts.hosts[0]->state == DIBS__SENTINEL_LISTENS && !sentinel->in_round;
}

static void settle(void)
{
    await_or_say(is_still(), "a round does not end");
}

static int setup(void **state)
{
    static atomic_uint_fast64_t commands, errors;

    fake_sentinel_start(&fake);
    fake_sentinel_name(&fake, 7);
    fake_redis_endpoint(&master, fake.url, &commands, &errors);
    sentinel = dibs__sentinel_new(&master, NULL, NULL, on_wake, NULL);
    assert_non_null(sentinel);
    now = dibs__now(&dibs__system_clock);
    return 0;
}

static int teardown(void **state)
{
    dibs__sentinel_free(sentinel);
    dibs__endpoint_free(&master);
    fake_sentinel_stop(&fake);
    return 0;
}

#if CAN_FAIL
TEST(sentinels_without_memory_are_none)
{
    bool failed = true;

    for (long fails = 1; failed; fails++) {
        long before = atomic_load(&living);
        fail_here(fails);
        struct dibs__sentinel *another = dibs__sentinel_new(&master, NULL, NULL, on_wake, NULL);
        failed = fail_no_more();
        assert_true(failed == (another == NULL));
        dibs__sentinel_free(another);
        assert_int_equal(atomic_load(&living), before);
    }
}
#endif

#if CAN_FAIL
/* The round says so, and the next one is like any other. */
TEST(a_sentinel_that_is_not_asked_for_lack_of_memory_is_told_of)
{
    settle();
    assert_int_equal(atomic_load(&master.known), DIBS__KNOWN);
    dibs__buffer_free(&sentinel->hosts.hosts[0]->link->out); /* so that the questions need memory */
    now += MS(6000);
    fail_here(1);
    dibs__sentinel_attend(sentinel, now);
    fail_no_more();
    assert_int_equal(atomic_load(&sentinel->failures), 1);
    assert_int_equal(atomic_load(&master.known), DIBS__FIND_FAILED);
    assert_status(DIBS_NO_MEMORY, master.find_error.status);
    assert_that(strstr(master.find_error.detail, "was not asked, for lack of memory or descriptors"), "%s",
                master.find_error.detail);
    assert_int_equal(fake_sentinel_asked(&fake), 1);
    now += MS(1000);
    settle();
    assert_int_equal(atomic_load(&master.known), DIBS__KNOWN);
    assert_int_equal(fake_sentinel_asked(&fake), 2);
}
#endif

/* The others of the list are learned. Values that are called as fields are do not mislead. */
TEST(what_can_not_be_understood_of_other_sentinels_is_passed_over)
{
#define OTHER(ip, port) "*4\r\n$2\r\nip\r\n" ip "\r\n$4\r\nport\r\n" port "\r\n"
    fake_redis_answer(
        fake.redis, "SENTINEL SENTINELS",
        "*7\r\n" OTHER("$1\r\nh", ":1") OTHER("$3\r\na b", "$1\r\n1") OTHER("$1\r\nh", "$1\r\n0") OTHER(
            "$1\r\nh",
            "$1\r\nx") ":5\r\n"
                       "*2\r\n$2\r\nip\r\n$9\r\n127.0.0.1\r\n"
                       "*6\r\n$4\r\nname\r\n$2\r\nip\r\n$2\r\nip\r\n$9\r\n127.0.0.1\r\n$4\r\nport\r\n$1\r\n1\r\n");
    settle();
    assert_int_equal(sentinel->hosts.count, 2);
    assert_int_equal(sentinel->hosts.hosts[0]->others, 1);
    assert_string_equal(sentinel->hosts.hosts[1]->endpoint.url.hosts[0].name, "127.0.0.1");
    assert_int_equal(sentinel->hosts.hosts[1]->endpoint.url.hosts[0].port, 1);
}

/* It tells of no switch, so it is asked each second. */
TEST(a_sentinel_that_can_not_be_heard_is_asked_more_often)
{
    fake_redis_answer(fake.redis, "SUBSCRIBE", "-NOPERM no right\r\n");
    settle();
    assert_int_equal(fake_sentinel_asked(&fake), 1);
    now += MS(999);
    settle();
    assert_int_equal(fake_sentinel_asked(&fake), 1);
    now += MS(1);
    dibs__sentinel_attend(sentinel, now);
    fake_sentinel_await_asked(&fake, 2);
    settle();
    assert_int_equal(fake_redis_count(fake.redis, "UNSUBSCRIBE"), 0);
    assert_int_equal(atomic_load(&master.known), DIBS__KNOWN);
}

TESTS(setup, teardown)
