/*
 * The sentinels: which are asked when, and what their answers lead to. The test plays the scheduler, with a time of its
 * own.
 */
#include <poll.h>
#include <pthread.h>

#include "redis/sentinel_parts.h"
#include "support/fake_sentinel.h"
#include "support/test.h"

#define FAKES 3
#define FDS 32 /* room for all sentinels that could be learned */
#define MS(n) ((n) * (int64_t)DIBS__NS_PER_MS)
#define CONNECT_MS LIMIT_MS /* nothing takes so long, unless a test wants it to */

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
    r->master.connect_timeout_ms = connect_timeout_ms;
    r->sentinel = dibs__sentinel_new(&r->master, NULL, NULL, on_wake, r);
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
    struct pollfd fds[FDS];
    int64_t until = DIBS__NEVER;

    assert_true(dibs__sentinel_fd_max(r->sentinel) <= FDS);
    dibs__sentinel_attend(r->sentinel, r->now);
    size_t count = dibs__sentinel_interest(r->sentinel, fds, &until);
    poll(fds, count, until <= r->now ? 0 : 2);
    dibs__sentinel_attend(r->sentinel, r->now);
}

static bool was_told(struct rig *r, uint64_t number)
{
    turn(r);
    return atomic_load(&r->master.told) >= number;
}

static void await_told(struct rig *r, uint64_t number)
{
    await_or_say(was_told(r, number), "nothing is told");
}

static bool was_fruitless(struct rig *r)
{
    turn(r);
    return atomic_load(&r->master.known) == DIBS__FIND_FAILED;
}

static bool was_asked(struct rig *r, unsigned number)
{
    unsigned count = 0;

    turn(r);
    for (size_t i = 0; i < FAKES; i++)
        count += fake_sentinel_asked(&r->fakes[i]);
    return count >= number;
}

static void await_asked(struct rig *r, unsigned count)
{
    await_or_say(was_asked(r, count), "they are not asked");
}

/* At most so many sentinels have not answered, or are not connected; if there are none, no round goes on. */
static bool is_still(struct rig *r, size_t silent)
{
    const struct dibs__sentinel *sentinel = r->sentinel;
    size_t busy = 0;

    turn(r);
    for (size_t i = 0; i < sentinel->hosts.count; i++) {
        enum dibs__sentinel_state state = sentinel->hosts.hosts[i]->state;
        busy += state == DIBS__SENTINEL_CONNECTS || state == DIBS__SENTINEL_ASKS;
    }
    return busy <= silent && (busy > 0 || !sentinel->in_round);
}

/*
 * Until all but so many sentinels have answered or failed, whenever the system lets them run: a round that went on
 * while a test moves its time would end only then, and the next one would not begin in a time that stands still.
 */
static void await_still(struct rig *r, size_t silent)
{
    await_or_say(is_still(r, silent), "a round does not end");
}

/* So many turns that messages which have come are read, and what they lead to comes to its end. */
static void settle_but(struct rig *r, size_t silent)
{
    for (int i = 0; i < 20; i++)
        turn(r);
    await_still(r, silent);
}

static void settle(struct rig *r)
{
    settle_but(r, 0);
}

static bool leads_to(struct rig *r, unsigned port)
{
    return dibs__endpoint_is_at(&r->master, "127.0.0.1", port);
}

/* With one sentinel, which has named port 7. */
static void start_one(struct rig *r, uint32_t connect_timeout_ms)
{
    fake_sentinel_name(&r->fakes[0], 7);
    start(r, 1, connect_timeout_ms);
    await_told(r, 1);
}

/* That one no longer leads to a link, so a round follows. */
static void doubt(struct rig *r, uint64_t told)
{
    dibs__endpoint_doubt(&r->master, told);
    r->now += MS(1000);
    await_told(r, told + 1);
}

static void all_name(struct rig *r, int first, int second, int third)
{
    fake_sentinel_name(&r->fakes[0], first);
    fake_sentinel_name(&r->fakes[1], second);
    fake_sentinel_name(&r->fakes[2], third);
}

/* ------------------------------------------------------------------- rounds */

TEST_ON(sentinels_without_a_master_are_passed_over, struct rig *r)
{
    fake_redis_refuse(r->fakes[0].redis, true);
    fake_sentinel_name(&r->fakes[2], 7);
    start(r, 3, CONNECT_MS);
    assert_true(dibs__endpoint_is_awaited(&r->master));
    await_told(r, 1);
    assert_true(leads_to(r, 7));
    assert_false(dibs__endpoint_is_awaited(&r->master));
    assert_int_equal(fake_sentinel_asked(&r->fakes[1]), 1); /* that sentinel does not know the master */
    assert_int_equal(fake_sentinel_asked(&r->fakes[2]), 1);
    assert_true(dibs__endpoint_has_moved(&r->master, 0) && !dibs__endpoint_has_moved(&r->master, 1));
}

TEST_ON(a_silent_sentinel_has_half_of_the_time, struct rig *r)
{
    fake_redis_hold(r->fakes[0].redis, true);
    fake_sentinel_name(&r->fakes[1], 7);
    start(r, 3, 400);
    settle_but(r, 1);
    assert_int_equal(atomic_load(&r->master.told), 0);
    r->now += MS(199);
    settle_but(r, 1);
    assert_int_equal(atomic_load(&r->master.told), 0);
    r->now += MS(2);
    await_told(r, 1);
    assert_true(leads_to(r, 7));
}

TEST_ON(a_doubted_server_counts_only_when_all_name_it, struct rig *r)
{
    all_name(r, 7, 7, 7);
    start(r, 3, CONNECT_MS);
    await_told(r, 1);
    r->now += MS(1000);
    dibs__endpoint_doubt(&r->master, 1);
    assert_true(atomic_load(&r->woken) > 0);
    await_told(r, 2);  /* all answer the same, and a majority is enough */
    await_asked(r, 4); /* two of the three in each round; the third may come late to either */
    assert_false(dibs__endpoint_has_moved(&r->master, 1));
    fake_sentinel_name(&r->fakes[1], 8);
    fake_sentinel_name(&r->fakes[2], 8);
    r->now += MS(1000);
    dibs__endpoint_doubt(&r->master, 1); /* the subscription already brought this answer */
    settle(r);
    assert_int_equal(atomic_load(&r->master.told), 2);
    dibs__endpoint_doubt(&r->master, 2);
    await_told(r, 3);
    assert_true(leads_to(r, 8) && dibs__endpoint_has_moved(&r->master, 2));
}

TEST_ON(fruitless_rounds_back_off, struct rig *r)
{
    unsigned rounds = 0;

    start_one(r, CONNECT_MS);
    for (int ms = 0; ms < 4000; ms += 10) {
        uint64_t told = atomic_load(&r->master.told);
        r->now += MS(10);
        dibs__endpoint_doubt(&r->master, told);
        await_still(r, 0);
        rounds += atomic_load(&r->master.told) != told;
    }
    assert_in_range(rounds, 4, 12); /* after 100, 200, 400, 800, 1000, 1000 ms, or half of that */
    /* A round that led to a link is followed by another soon, though not at once. */
    uint64_t told = atomic_load(&r->master.told);
    dibs__endpoint_prove(&r->master, told);
    dibs__endpoint_doubt(&r->master, told);
    r->now += MS(101);
    await_told(r, told + 1);
}

TEST_ON(a_fruitless_round_is_reported_with_its_reasons, struct rig *r)
{
    struct dibs__address addresses[DIBS__ADDRESSES_MAX];
    struct dibs__error error;
    size_t count;

    fake_redis_refuse(r->fakes[0].redis, true);
    fake_redis_answer(r->fakes[1].redis, "SENTINEL GET-MASTER-ADDR-BY-NAME", "-NOPERM no right\r\n");
    start(r, 3, CONNECT_MS);
    assert_status(DIBS_UNAVAILABLE, dibs__endpoint_addresses(&r->master, addresses, &count, &error));
    await_or_say(was_fruitless(r), "the round does not end");
    assert_status(DIBS_DENIED, dibs__endpoint_addresses(&r->master, addresses, &count, &error));
    assert_that(strstr(error.detail, "can't be reached") && strstr(error.detail, "without credentials") &&
                    strstr(error.detail, "does not know that name"),
                "%s", error.detail);
    fake_sentinel_name(&r->fakes[2], 7);
    r->now += MS(1000);
    await_told(r, 1);
    assert_status(DIBS_OK, dibs__endpoint_addresses(&r->master, addresses, &count, &error));
}

/* ---------------------------------------------------------------- listening */

TEST_ON(a_switch_of_that_master_alone_is_a_reason_to_ask, struct rig *r)
{
    start_one(r, CONNECT_MS);
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

TEST_ON(a_silent_sentinel_is_asked, struct rig *r)
{
    start_one(r, 2000);
    r->now += MS(4999);
    settle(r);
    assert_int_equal(fake_sentinel_asked(&r->fakes[0]), 1);
    r->now += MS(1);
    await_asked(r, 2);
    settle(r);
    fake_redis_hold(r->fakes[0].redis, true);
    r->now += MS(5000);
    await_asked(r, 3);
    settle_but(r, 1);
    assert_int_equal(atomic_load(&r->master.known), DIBS__KNOWN);
    r->now += MS(1001); /* its share: it hangs */
    await_or_say(was_fruitless(r), "the round does not end");
}

static bool was_accepted_twice(struct rig *r)
{
    turn(r);
    return fake_redis_accepted(r->fakes[0].redis) >= 2;
}

TEST_ON(a_lost_sentinel_is_connected_to_again, struct rig *r)
{
    all_name(r, 7, 7, 7);
    start(r, 3, CONNECT_MS);
    await_asked(r, 3);
    settle(r);
    r->now += MS(1000);
    fake_redis_cut(r->fakes[0].redis);
    await_or_say(was_accepted_twice(r), "it is given up");
    await_asked(r, 6);
    settle(r);
    assert_int_equal(atomic_load(&r->master.told), 1); /* links stand */
}

TEST_ON(sentinels_learned_from_others_are_asked_too, struct rig *r)
{
    all_name(r, 7, 7, 7);
    fake_sentinel_know(&r->fakes[0], &r->fakes[1], &r->fakes[2]);
    start(r, 1, CONNECT_MS);
    await_asked(r, 3);
    settle(r);
    assert_int_equal(r->sentinel->hosts.hosts[0]->others, 2);
    fake_redis_refuse(r->fakes[0].redis, true);
    fake_redis_cut(r->fakes[0].redis);
    fake_sentinel_name(&r->fakes[1], 8);
    fake_sentinel_name(&r->fakes[2], 8);
    r->now += MS(1000);
    await_told(r, 2);
    assert_true(leads_to(r, 8));
}

/* ------------------------------------------------------------------- majorities */

static bool is_led(struct rig *r, unsigned port)
{
    turn(r);
    return leads_to(r, port);
}

static void await_led(struct rig *r, unsigned port)
{
    await_or_say(is_led(r, port), "another server counts");
}

/* All name that server, and it serves. */
static void serve_at(struct rig *r, int port)
{
    all_name(r, port, port, port);
    start(r, FAKES, CONNECT_MS);
    await_asked(r, FAKES);
    settle(r);
    assert_int_equal(atomic_load(&r->master.told), 1);
    dibs__endpoint_prove(&r->master, 1);
    r->now += MS(1000);
}

static void lose_one(struct rig *r, size_t at)
{
    fake_redis_refuse(r->fakes[at].redis, true);
    fake_redis_cut(r->fakes[at].redis);
}

/* The others are held back, so that the first has answered everything before they answer. */
TEST_ON(the_first_answer_is_not_believed_alone, struct rig *r)
{
    all_name(r, 7, 8, 8);
    fake_redis_hold(r->fakes[1].redis, true);
    fake_redis_hold(r->fakes[2].redis, true);
    start(r, 3, CONNECT_MS);
    await_asked(r, 1);
    settle_but(r, 2);
    assert_int_equal(atomic_load(&r->master.told), 0);
    fake_redis_hold(r->fakes[1].redis, false);
    fake_redis_hold(r->fakes[2].redis, false);
    await_told(r, 1);
    assert_true(leads_to(r, 8));
}

TEST_ON(sentinels_that_are_learned_outvote_the_one_of_the_url, struct rig *r)
{
    all_name(r, 7, 8, 8);
    fake_sentinel_know(&r->fakes[0], &r->fakes[1], &r->fakes[2]);
    start(r, 1, CONNECT_MS);
    await_told(r, 1);
    assert_true(leads_to(r, 8));
}

TEST_ON(a_round_does_not_wait_for_a_silent_sentinel, struct rig *r)
{
    fake_redis_hold(r->fakes[0].redis, true);
    fake_sentinel_name(&r->fakes[1], 7);
    fake_sentinel_name(&r->fakes[2], 7);
    start(r, 3, CONNECT_MS);
    await_told(r, 1); /* the time of the test stands still */
    assert_true(leads_to(r, 7));
}

TEST_ON(the_last_sentinel_does_not_outvote_the_others, struct rig *r)
{
    all_name(r, 8, 8, 7);
    start(r, 3, CONNECT_MS);
    await_told(r, 1);
    assert_true(leads_to(r, 8));
}

/* The other two do not know yet of the switch that this one has made. */
static void switch_at_one(struct rig *r, size_t at)
{
    for (size_t i = 0; i < FAKES; i++)
        fake_sentinel_epoch(&r->fakes[i], 1);
    serve_at(r, 7);
    fake_sentinel_epoch(&r->fakes[at], 2);
    fake_sentinel_name(&r->fakes[at], 8);
    fake_sentinel_tell(&r->fakes[at], "mymaster");
    await_led(r, 8);
}

TEST(the_larger_epoch_is_believed)
{
    switch_at_one(*state, 2);
}

TEST(the_larger_epoch_is_believed_when_it_comes_first)
{
    switch_at_one(*state, 0);
}

TEST_ON(votes_count_where_there_are_no_epochs, struct rig *r)
{
    serve_at(r, 7);
    fake_sentinel_epoch(&r->fakes[2], 9); /* the others say none */
    fake_sentinel_name(&r->fakes[2], 8);
    fake_sentinel_tell(&r->fakes[2], "mymaster");
    await_asked(r, 6);
    settle(r);
    assert_true(leads_to(r, 7));
    fake_sentinel_name(&r->fakes[1], 8);
    fake_sentinel_tell(&r->fakes[1], "mymaster");
    await_led(r, 8);
}

TEST_ON(a_minority_moves_nobody_from_a_master_that_serves, struct rig *r)
{
    serve_at(r, 7);
    lose_one(r, 1);
    lose_one(r, 2);
    fake_sentinel_name(&r->fakes[0], 8);
    fake_sentinel_tell(&r->fakes[0], "mymaster");
    await_asked(r, 4);
    settle(r);
    assert_true(leads_to(r, 7));
    doubt(r, 1); /* a link was lost: it has another try, */
    assert_true(leads_to(r, 7));
    doubt(r, 2); /* which led to no link */
    assert_true(leads_to(r, 8));
}

/* The first names another server, with a smaller epoch than that of the one that counts. */
static void expect_not_led_by_the_first(struct rig *r, uint64_t told)
{
    fake_sentinel_epoch(&r->fakes[0], 2);
    fake_sentinel_name(&r->fakes[0], 8);
    for (; told < 5; told++) {
        doubt(r, told);
        assert_true(leads_to(r, 7));
    }
}

TEST_ON(a_minority_leads_nobody_back_to_a_smaller_epoch, struct rig *r)
{
    for (size_t i = 0; i < FAKES; i++)
        fake_sentinel_epoch(&r->fakes[i], 3);
    serve_at(r, 7);
    lose_one(r, 1);
    lose_one(r, 2);
    expect_not_led_by_the_first(r, 1);
}

/* The first one was left behind when the server was the master before, and another one when it was not. */
TEST_ON(the_epoch_of_a_master_is_the_largest_that_was_told, struct rig *r)
{
    fake_sentinel_epoch(&r->fakes[0], 1);
    fake_sentinel_epoch(&r->fakes[1], 3);
    fake_sentinel_epoch(&r->fakes[2], 3);
    serve_at(r, 7);
    lose_one(r, 1);
    lose_one(r, 2);
    doubt(r, 1);
    expect_not_led_by_the_first(r, 2);
}

TEST_ON(two_names_of_one_sentinel_count_once, struct rig *r)
{
    static const char id[] = "$40\r\n" FAKE_RUN_ID "\r\n";

    fake_redis_answer(r->fakes[0].redis, "SENTINEL MYID", id);
    fake_redis_answer(r->fakes[1].redis, "SENTINEL MYID", id);
    serve_at(r, 7);
    lose_one(r, 2);
    settle(r);
    unsigned before = fake_sentinel_asked(&r->fakes[0]) + fake_sentinel_asked(&r->fakes[1]);
    fake_sentinel_name(&r->fakes[0], 8);
    fake_sentinel_name(&r->fakes[1], 8);
    r->now += MS(5000);
    await_asked(r, before + fake_sentinel_asked(&r->fakes[2]) + 2);
    settle(r);
    assert_true(leads_to(r, 7));
}

/* ------------------------------------------------------------------ threads */

TEST_ON(a_waiting_thread_asks_the_sentinels_by_itself, struct rig *r)
{
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
    assert_int_equal(fake_sentinel_asked(&r->fakes[0]), 1); /* no client doubts the master */
}

/* Whoever asks them sees to what comes. */
TEST_ON(the_scheduler_waits_for_nothing_while_a_thread_asks, struct rig *r)
{
    struct pollfd fds[FDS];
    int64_t until;

    start_one(r, CONNECT_MS);
    for (int asks = 1; asks >= 0; asks--) {
        dibs__endpoint_mutex_lock(&r->master.mutex);
        r->sentinel->driven = asks;
        until = DIBS__NEVER;
        dibs__endpoint_mutex_unlock(&r->master.mutex);
        assert_int_equal(dibs__sentinel_interest(r->sentinel, fds, &until), !asks);
        assert_int_equal(until == DIBS__NEVER, asks);
    }
}

static void *await_the_master(void *arg)
{
    struct rig *r = arg;
    struct dibs__error error;
    int64_t deadline = dibs__after_ms(dibs__now(&dibs__system_clock), LIMIT_MS);

    return dibs__endpoint_await(&r->master, 0, deadline, &error) == DIBS_OK ? r : NULL;
}

TEST_ON(many_threads_ask_the_sentinels_once, struct rig *r)
{
    enum { THREADS = 8 };
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

TESTS(setup, teardown)
