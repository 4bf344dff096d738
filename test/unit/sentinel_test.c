/*
 * The sentinels: who is asked when, and what their answers lead to. The test does the scheduler's part, by a time of
 * its own.
 */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "redis/sentinel.h"
#include "support/fake_sentinel.h"
#include "support/test.h"
#include "support/wait.h"

#define FAKES 3
#define MS(n) ((n) * (int64_t)DIBS__NS_PER_MS)
#define CONNECT_MS LIMIT_MS /* nothing here takes so long, unless a test wants it to */

struct rig {
    fake_sentinel fakes[FAKES];
    struct dibs__endpoint master;
    struct dibs__sentinel *sentinel;
    atomic_uint_fast64_t commands, errors;
    atomic_uint woken;
    int64_t now; /* of the test's steps */
};

static void on_wake(void *context)
{
    struct rig *r = context;

    atomic_fetch_add(&r->woken, 1);
}

static void start(struct rig *r, size_t count, uint32_t connect_timeout_ms)
{
    char url[200];
    int used = snprintf(url, sizeof url, "redis-sentinel://");

    for (size_t i = 0; i < count; i++)
        used += snprintf(url + used, sizeof url - (size_t)used, "%s127.0.0.1:%d", i ? "," : "",
                         fake_redis_port(r->fakes[i].redis));
    snprintf(url + used, sizeof url - (size_t)used, "/mymaster");
    fake_redis_endpoint(&r->master, url, &r->commands, &r->errors);
    r->sentinel = dibs__sentinel_new(&(struct dibs__sentinel_config){.master = &r->master,
                                                                     .clock = &dibs__system_clock,
                                                                     .connect_timeout_ms = connect_timeout_ms,
                                                                     .wake = on_wake,
                                                                     .context = r});
    assert_non_null(r->sentinel);
}

static int setup(void **state)
{
    static struct rig rig;

    memset(&rig, 0, sizeof rig);
    rig.now = dibs__now(&dibs__system_clock);
    for (size_t i = 0; i < FAKES; i++)
        fake_sentinel_start(&rig.fakes[i]);
    *state = &rig;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;

    dibs__sentinel_free(r->sentinel);
    dibs__endpoint_free(&r->master);
    for (size_t i = 0; i < FAKES; i++)
        fake_sentinel_stop(&r->fakes[i]);
    return 0;
}

/* ------------------------------------------------------------ the scheduler */

/* One turn of the loop at the test's time. Sleeps for a few ms at most. */
static void turn(struct rig *r)
{
    struct pollfd fd;
    int64_t until;

    dibs__sentinel_attend(r->sentinel, r->now);
    dibs__sentinel_interest(r->sentinel, &fd, &until);
    poll(&fd, 1, until <= r->now ? 0 : 2);
    dibs__sentinel_attend(r->sentinel, r->now);
}

struct number_at {
    struct rig *r;
    uint64_t number;
};

static bool was_told(void *arg)
{
    const struct number_at *at = arg;

    turn(at->r);
    return atomic_load(&at->r->master.told) >= at->number;
}

static void await_told(struct rig *r, uint64_t number)
{
    assert_that(wait_until(was_told, &(struct number_at){r, number}, LIMIT_MS), "nothing is told");
}

static bool was_in_vain(void *arg)
{
    struct rig *r = arg;

    turn(r);
    return atomic_load(&r->master.known) == DIBS__KNOWN_IN_VAIN;
}

static bool was_asked(void *arg)
{
    const struct number_at *at = arg;
    unsigned count = 0;

    turn(at->r);
    for (size_t i = 0; i < FAKES; i++)
        count += fake_sentinel_asked(&at->r->fakes[i]);
    return count >= at->number;
}

static void await_asked(struct rig *r, unsigned count)
{
    assert_that(wait_until(was_asked, &(struct number_at){r, count}, LIMIT_MS), "they are not asked");
}

/* So many turns that whatever is to be done without waiting is done. */
static void settle(struct rig *r)
{
    for (int i = 0; i < 20; i++)
        turn(r);
}

static bool leads_to(struct rig *r, unsigned port)
{
    return dibs__endpoint_is_at(&r->master, "127.0.0.1", port);
}

/* ------------------------------------------------------------------- rounds */

static void they_are_asked_in_turn(void **state)
{
    struct rig *r = *state;

    fake_redis_refuse(r->fakes[0].redis, true);
    fake_sentinel_name(&r->fakes[2], 7);
    start(r, 3, CONNECT_MS);
    assert_true(dibs__endpoint_is_awaited(&r->master));
    await_told(r, 1);
    assert_true(leads_to(r, 7));
    assert_false(dibs__endpoint_is_awaited(&r->master));
    assert_int_equal(fake_sentinel_asked(&r->fakes[1]), 1); /* which does not know the master */
    assert_int_equal(fake_sentinel_asked(&r->fakes[2]), 1);
    assert_true(dibs__endpoint_has_moved(&r->master, 0) && !dibs__endpoint_has_moved(&r->master, 1));
}

static void one_that_is_silent_has_its_share_of_the_time(void **state)
{
    struct rig *r = *state;

    fake_redis_hold(r->fakes[0].redis, true);
    fake_sentinel_name(&r->fakes[1], 7);
    start(r, 3, 400);
    settle(r);
    assert_int_equal(atomic_load(&r->master.told), 0);
    r->now += MS(99);
    settle(r);
    assert_int_equal(atomic_load(&r->master.told), 0);
    r->now += MS(2);
    await_told(r, 1);
    assert_true(leads_to(r, 7));
}

static void a_doubted_server_counts_only_when_all_name_it(void **state)
{
    struct rig *r = *state;

    for (size_t i = 0; i < FAKES; i++)
        fake_sentinel_name(&r->fakes[i], 7);
    start(r, 3, CONNECT_MS);
    await_told(r, 1);
    r->now += MS(1000);
    dibs__endpoint_doubt(&r->master, 1);
    assert_true(atomic_load(&r->woken) > 0);
    await_told(r, 2); /* all say the same: 1 at first, then the other two, and the first again */
    for (size_t i = 0; i < FAKES; i++)
        assert_in_range(fake_sentinel_asked(&r->fakes[i]), 1, 2);
    assert_false(dibs__endpoint_has_moved(&r->master, 1));
    fake_sentinel_name(&r->fakes[2], 8);
    r->now += MS(1000);
    dibs__endpoint_doubt(&r->master, 1); /* it is known already that this was told before */
    settle(r);
    assert_int_equal(atomic_load(&r->master.told), 2);
    dibs__endpoint_doubt(&r->master, 2);
    await_told(r, 3);
    assert_true(leads_to(r, 8) && dibs__endpoint_has_moved(&r->master, 2));
}

static void rounds_that_lead_nowhere_come_ever_more_seldom(void **state)
{
    struct rig *r = *state;
    unsigned rounds = 0;

    fake_sentinel_name(&r->fakes[0], 7);
    start(r, 1, CONNECT_MS);
    await_told(r, 1);
    for (int ms = 0; ms < 4000; ms += 10) {
        uint64_t told = atomic_load(&r->master.told);
        r->now += MS(10);
        dibs__endpoint_doubt(&r->master, told);
        for (int i = 0; i < 6; i++)
            turn(r);
        rounds += atomic_load(&r->master.told) != told;
    }
    assert_in_range(rounds, 4, 12); /* after 100, 200, 400, 800, 1000, 1000 ms, or half of that */
    /* One that led to a link is followed by another soon, though not at once. */
    uint64_t told = atomic_load(&r->master.told);
    dibs__endpoint_prove(&r->master, told);
    dibs__endpoint_doubt(&r->master, told);
    r->now += MS(101);
    await_told(r, told + 1);
}

static void a_round_in_vain_is_told_with_the_reasons(void **state)
{
    struct rig *r = *state;
    struct dibs__address addresses[DIBS__ADDRESSES_MAX];
    struct dibs__error error;
    size_t count;

    fake_redis_refuse(r->fakes[0].redis, true);
    fake_redis_answer(r->fakes[1].redis, "SENTINEL GET-MASTER-ADDR-BY-NAME", "-NOPERM no right\r\n");
    start(r, 3, CONNECT_MS);
    assert_status(DIBS_UNAVAILABLE, dibs__endpoint_addresses(&r->master, addresses, &count, &error));
    assert_that(wait_until(was_in_vain, r, LIMIT_MS), "the round does not end");
    assert_status(DIBS_DENIED, dibs__endpoint_addresses(&r->master, addresses, &count, &error));
    assert_that(strstr(error.detail, "can't be reached") && strstr(error.detail, "refused the credentials") &&
                    strstr(error.detail, "does not know that name"),
                "%s", error.detail);
    fake_sentinel_name(&r->fakes[2], 7);
    r->now += MS(1000);
    await_told(r, 1);
    assert_status(DIBS_OK, dibs__endpoint_addresses(&r->master, addresses, &count, &error));
}

/* ---------------------------------------------------------------- listening */

static void a_switch_of_that_master_alone_is_a_reason_to_ask(void **state)
{
    struct rig *r = *state;

    fake_sentinel_name(&r->fakes[0], 7);
    start(r, 3, CONNECT_MS);
    await_told(r, 1);
    fake_sentinel_tell(&r->fakes[0], "another");
    fake_sentinel_tell(&r->fakes[0], "mymaster2");
    settle(r);
    assert_int_equal(fake_sentinel_asked(&r->fakes[0]), 1);
    fake_sentinel_tell(&r->fakes[0], "mymaster");
    await_asked(r, 2);
    settle(r);
    assert_int_equal(atomic_load(&r->master.told), 1); /* it names the same */
    fake_sentinel_name(&r->fakes[0], 8);
    fake_sentinel_tell(&r->fakes[0], "mymaster");
    await_told(r, 2);
    assert_true(leads_to(r, 8));
    assert_int_equal(fake_redis_accepted(r->fakes[0].redis), 1); /* all on one connection */
    assert_int_equal(fake_redis_count(r->fakes[0].redis, "UNSUBSCRIBE +switch-master"), 2);
}

static void silence_is_broken_by_asking(void **state)
{
    struct rig *r = *state;

    fake_sentinel_name(&r->fakes[0], 7);
    fake_sentinel_name(&r->fakes[1], 8);
    start(r, 2, 3000);
    await_told(r, 1);
    r->now += MS(4999);
    settle(r);
    assert_int_equal(fake_sentinel_asked(&r->fakes[0]), 1);
    r->now += MS(1);
    await_asked(r, 2);
    settle(r);
    fake_redis_hold(r->fakes[0].redis, true);
    r->now += MS(5000);
    await_asked(r, 3);
    settle(r);
    assert_int_equal(atomic_load(&r->master.told), 1);
    r->now += MS(1001); /* its share: it hangs */
    await_told(r, 2);
    assert_true(leads_to(r, 8));
}

static void one_that_is_lost_is_replaced_by_the_next(void **state)
{
    struct rig *r = *state;

    for (size_t i = 0; i < FAKES; i++)
        fake_sentinel_name(&r->fakes[i], 7);
    start(r, 3, CONNECT_MS);
    await_told(r, 1);
    r->now += MS(1000);
    fake_redis_cut(r->fakes[0].redis);
    await_told(r, 2);
    assert_int_equal(fake_sentinel_asked(&r->fakes[1]), 1);
    assert_false(dibs__endpoint_has_moved(&r->master, 1)); /* links stand */
}

static void those_of_which_they_tell_are_asked_too(void **state)
{
    static char others[200];
    struct rig *r = *state;

    fake_sentinel_name(&r->fakes[0], 7);
    fake_sentinel_name(&r->fakes[1], 7);
    snprintf(others, sizeof others,
             "*2\r\n*4\r\n$2\r\nip\r\n$9\r\n127.0.0.1\r\n$4\r\nport\r\n$5\r\n%05d\r\n*2\r\n$2\r\nip\r\n$0\r\n\r\n",
             fake_redis_port(r->fakes[1].redis));
    fake_redis_answer(r->fakes[0].redis, "SENTINEL SENTINELS", others);
    start(r, 1, CONNECT_MS);
    await_told(r, 1);
    fake_redis_refuse(r->fakes[0].redis, true);
    fake_redis_cut(r->fakes[0].redis);
    r->now += MS(1000);
    await_told(r, 2);
    assert_int_equal(fake_sentinel_asked(&r->fakes[1]), 1);
}

/* ------------------------------------------------------------------ threads */

static void a_thread_that_waits_asks_by_itself(void **state)
{
    struct rig *r = *state;
    struct dibs__error error = {DIBS_OK, ""};

    fake_sentinel_name(&r->fakes[0], 7);
    fake_redis_hold(r->fakes[0].redis, true);
    start(r, 1, CONNECT_MS);
    assert_status(DIBS_TIMEOUT, dibs__endpoint_await(&r->master, 0, 0, &error));
    fake_redis_hold(r->fakes[0].redis, false);
    int64_t deadline = dibs__after_ms(dibs__now(&dibs__system_clock), LIMIT_MS);
    assert_status(DIBS_OK, dibs__endpoint_await(&r->master, 0, deadline, &error));
    assert_int_equal(fake_sentinel_asked(&r->fakes[0]), 1);
    deadline = dibs__after_ms(dibs__now(&dibs__system_clock), 20);
    assert_status(DIBS_TIMEOUT, dibs__endpoint_await(&r->master, 1, deadline, &error));
    assert_int_equal(fake_sentinel_asked(&r->fakes[0]), 1); /* nobody doubts it */
}

static void *await_the_master(void *arg)
{
    struct rig *r = arg;
    struct dibs__error error;
    int64_t deadline = dibs__after_ms(dibs__now(&dibs__system_clock), LIMIT_MS);

    return dibs__endpoint_await(&r->master, 0, deadline, &error) == DIBS_OK ? r : NULL;
}

static void many_threads_ask_once(void **state)
{
    enum { THREADS = 8 };
    struct rig *r = *state;
    pthread_t threads[THREADS];
    void *result;

    fake_redis_hold(r->fakes[0].redis, true);
    fake_sentinel_name(&r->fakes[0], 7);
    start(r, 1, CONNECT_MS);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, await_the_master, r), 0);
    fake_redis_await(r->fakes[0].redis, "CLIENT SETNAME", 1);
    fake_redis_hold(r->fakes[0].redis, false);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], &result);
        assert_ptr_equal(result, r);
    }
    assert_int_equal(fake_sentinel_asked(&r->fakes[0]), 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(they_are_asked_in_turn),
        TEST(one_that_is_silent_has_its_share_of_the_time),
        TEST(a_doubted_server_counts_only_when_all_name_it),
        TEST(rounds_that_lead_nowhere_come_ever_more_seldom),
        TEST(a_round_in_vain_is_told_with_the_reasons),
        TEST(a_switch_of_that_master_alone_is_a_reason_to_ask),
        TEST(silence_is_broken_by_asking),
        TEST(one_that_is_lost_is_replaced_by_the_next),
        TEST(those_of_which_they_tell_are_asked_too),
        TEST(a_thread_that_waits_asks_by_itself),
        TEST(many_threads_ask_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
