/* One thread waits for several channels at the same time. The clock stands still: only what comes ends a sleep. */
#include <sys/resource.h>
#include <unistd.h>

#include "unit/channel_setup.h"

#define CHANNELS 3

/* Channels to servers of their own, and what a thread waits with. */
struct rigs {
    struct rig rigs[CHANNELS];
    struct dibs__request *requests[CHANNELS];
    struct dibs__error errors[CHANNELS];
    struct dibs__wait_event wait_event;
    struct dibs__wait waits[CHANNELS];
};

static int setup_all(void **state)
{
    static struct rigs all;

    memset(&all, 0, sizeof all);
    dibs__wait_event_init(&all.wait_event);
    for (int i = 0; i < CHANNELS; i++) {
        rig_open(&all.rigs[i]);
        dibs__wait_init(&all.waits[i], &all.wait_event);
    }
    *state = &all;
    return 0;
}

static int teardown_all(void **state)
{
    struct rigs *all = *state;

    for (int i = 0; i < CHANNELS; i++)
        rig_close(&all->rigs[i]);
    return 0;
}

static void send_held(struct rigs *all, int i, const char *text)
{
    struct rig *r = &all->rigs[i];
    uint64_t serial = open_now(r);
    struct echo echo;

    fake_redis_hold(r->fake, true);
    all->requests[i] = dibs__channel_send(r->channel, serial, echo_of(&echo, text), 0, &all->errors[i]);
    assert_non_null(all->requests[i]);
}

/* Asks for all that was sent. Returns the set of those that are over. */
static unsigned ask_for_all(struct rigs *all)
{
    unsigned over = 0;

    dibs__wait_event_reset(&all->wait_event);
    for (int i = 0; i < CHANNELS; i++)
        if (all->requests[i] &&
            dibs__channel_progress(all->rigs[i].channel, all->requests[i], &all->waits[i]) != DIBS__REPLY_AWAITED)
            over |= 1u << i;
    return over;
}

/* Sleeps until one is over. Returns the set of those. */
static unsigned wait_for_one(struct rigs *all)
{
    unsigned over;

    while (!(over = ask_for_all(all)))
        dibs__waits_sleep(all->waits, CHANNELS, &all->wait_event, &all->rigs[0].clock.clock, DIBS__NEVER);
    return over;
}

static void end_all(struct rigs *all)
{
    for (int i = 0; i < CHANNELS; i++)
        dibs__wait_end(&all->waits[i]);
}

static void *wait_in_thread(void *arg)
{
    return (void *)(uintptr_t)wait_for_one(arg); /* NOLINT: a set, as a number */
}

/* The thread sleeps in poll(2), with the reading roles of all channels. */
static pthread_t begin_waiting(struct rigs *all)
{
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, wait_in_thread, all), 0);
    moved_clock_settle(&all->rigs[0].clock, 1);
    return thread;
}

static unsigned join(pthread_t thread)
{
    void *over;

    pthread_join(thread, &over);
    return (unsigned)(uintptr_t)over;
}

TEST_ON(the_first_reply_ends_the_wait_whichever_server_sends_it, struct rigs *all)
{
    for (int i = 0; i < CHANNELS; i++)
        send_held(all, i, "here");
    for (int i = CHANNELS - 1; i >= 0; i--) {
        pthread_t thread = begin_waiting(all);
        fake_redis_hold(all->rigs[i].fake, false);
        assert_int_equal(join(thread), 1u << i);
        end_all(all);
        assert_true(wait_echo(&all->rigs[i], all->requests[i], "here"));
        all->requests[i] = NULL;
    }
}

TEST_ON(the_end_of_a_connection_ends_the_wait, struct rigs *all)
{
    send_held(all, 0, "silent");
    send_held(all, 1, "lost");
    pthread_t thread = begin_waiting(all);
    fake_redis_cut(all->rigs[1].fake);
    assert_int_equal(join(thread), 1u << 1);
    end_all(all);
    expect_in_doubt(&all->rigs[1], all->requests[1], after(&all->rigs[1], COMMAND_MS));
    fake_redis_hold(all->rigs[0].fake, false);
    assert_true(wait_echo(&all->rigs[0], all->requests[0], "silent"));
}

/* The command timeout, for which the thread need not be told of. */
TEST_ON(the_command_timeout_ends_the_wait, struct rigs *all)
{
    send_held(all, 0, "late");
    pthread_t thread = begin_waiting(all);
    moved_clock_advance(&all->rigs[0].clock, MS(COMMAND_MS));
    assert_int_equal(join(thread), 1u << 0);
    fake_redis_hold(all->rigs[0].fake, false);
    await_bytes(&all->rigs[0]);
    assert_true(wait_echo(&all->rigs[0], all->requests[0], "late")); /* it came before anybody looked */
}

/* The same, but at the second server another thread reads. */
static pthread_t begin_waiting_beside(struct rigs *all, struct caller *reader, int64_t reads_ms)
{
    struct rig *r = &all->rigs[1];

    *reader = (struct caller){.r = r, .text = "reader", .serial = open_now(r), .deadline = after(r, reads_ms)};
    send_held(all, 0, "silent");
    fake_redis_hold(r->fake, true);
    begin_reading(reader);
    send_held(all, 1, "here");
    return begin_waiting(all);
}

TEST_ON(a_reply_that_another_thread_reads_ends_the_wait, struct rigs *all)
{
    struct rig *r = &all->rigs[1];
    struct caller reader;

    pthread_t thread = begin_waiting_beside(all, &reader, COMMAND_MS);
    fake_redis_hold(r->fake, false);
    assert_int_equal(join(thread), 1u << 1);
    end_all(all);
    assert_true(wait_echo(r, all->requests[1], "here"));
    expect_right(&reader);
    fake_redis_hold(all->rigs[0].fake, false);
    assert_true(wait_echo(&all->rigs[0], all->requests[0], "silent"));
}

/* A thread that has the reading role reads for others, and leaves it to them when it waits no more. */
TEST_ON(the_reading_goes_to_another_thread_when_a_wait_ends, struct rigs *all)
{
    struct rig *r = &all->rigs[0];

    send_held(all, 0, "left");
    assert_int_equal(ask_for_all(all), 0);
    assert_true(all->waits[0].fd.fd >= 0);
    struct caller other = {.r = r, .text = "other", .serial = open_now(r), .deadline = after(r, COMMAND_MS)};
    begin(&other);
    fake_redis_await(r->fake, "ECHO other", 1);
    moved_clock_await_waiting(&r->clock, 1);
    end_all(all);
    assert_int_equal(all->waits[0].fd.fd, -1);
    fake_redis_hold(r->fake, false);
    expect_right(&other);
    assert_true(wait_echo(r, all->requests[0], "left"));
}

/*
 * Behind so many newer requests that nobody waits for, the thread is not looked for: the scheduler reads for it. Else
 * each of thousands of requests that end would look at all the others.
 */
TEST_ON(the_scheduler_reads_for_a_thread_with_many_newer_requests_beside_it, struct rigs *all)
{
    static const unsigned counts[] = {10, 100};
    struct rig *r = &all->rigs[0];

    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        bool many = counts[i] > 64;
        send_held(all, 0, "left");
        assert_int_equal(ask_for_all(all), 0);
        struct caller other = {.r = r, .text = "other", .serial = open_now(r), .deadline = after(r, COMMAND_MS)};
        begin(&other);
        fake_redis_await(r->fake, "ECHO other", (unsigned)i + 1);
        moved_clock_await_waiting(&r->clock, 1);
        for (unsigned k = 0; k < counts[i]; k++)
            assert_true(submit_echo(r, other.serial, "nobody's", NULL, NULL));
        unsigned before = atomic_load(&r->unattended);
        end_all(all);
        assert_int_equal(atomic_load(&r->unattended), before + many);
        fake_redis_hold(r->fake, false);
        for (int64_t end = now_ms() + LIMIT_MS; many && dibs__channel_load(r->channel) > 0 && now_ms() < end;)
            attend(r, false);
        expect_right(&other);
        assert_true(wait_echo(r, all->requests[0], "left"));
        while (dibs__channel_load(r->channel) > 0)
            attend(r, false);
    }
}

/* It is woken where it waits, which is in poll(2) on another channel. */
TEST_ON(the_next_to_read_is_woken_wherever_it_waits, struct rigs *all)
{
    struct rig *r = &all->rigs[1];
    struct caller reader;

    pthread_t thread = begin_waiting_beside(all, &reader, 10);
    moved_clock_advance(&r->clock, MS(10)); /* the reader gives up */
    expect_unknown(&reader, DIBS_UNAVAILABLE);
    fake_redis_hold(r->fake, false);
    assert_int_equal(join(thread), 1u << 1);
    end_all(all);
    assert_true(wait_echo(r, all->requests[1], "here"));
    fake_redis_hold(all->rigs[0].fake, false);
    assert_true(wait_echo(&all->rigs[0], all->requests[0], "silent"));
}

/* No other thread can wake one that polls. The scheduler reads. */
TEST_ON(without_a_descriptor_the_scheduler_reads, struct rigs *all)
{
    struct rig *r = &all->rigs[0];
    struct rlimit limit, none;

    send_held(all, 0, "here");
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = limit.rlim_max};
    unsigned before = atomic_load(&r->unattended);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(ask_for_all(all), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(all->waits[0].fd.fd, -1);
    assert_int_equal(atomic_load(&r->unattended), before + 1);
    fake_redis_hold(r->fake, false);
    for (int64_t end = now_ms() + LIMIT_MS; !dibs__wait_event_is_woken(&all->wait_event) && now_ms() < end;)
        attend(r, false);
    assert_int_equal(ask_for_all(all), 1u << 0);
    assert_true(wait_echo(r, all->requests[0], "here"));
}

/* How often it was told; no thread waits by it. */
struct telling {
    struct dibs__wait_event wait_event;
    struct dibs__wait wait;
    atomic_uint told;
};

static void count_telling(struct dibs__wait_event *wait_event)
{
    struct telling *telling = (struct telling *)wait_event; /* its first member */

    telling->told++;
}

static void watch_held(struct rigs *all, struct telling *telling)
{
    struct rig *r = &all->rigs[0];

    atomic_init(&telling->told, 0);
    dibs__wait_event_init(&telling->wait_event);
    telling->wait_event.tell = count_telling;
    dibs__wait_init(&telling->wait, &telling->wait_event);
    send_held(all, 0, "watched");
    unsigned before = atomic_load(&r->unattended);
    assert_int_equal(dibs__channel_progress(r->channel, all->requests[0], &telling->wait), DIBS__REPLY_AWAITED);
    assert_int_equal(telling->wait.fd.fd, -1);
    assert_int_equal(atomic_load(&r->unattended), before + 1);
}

static void expect_told(struct rigs *all, struct telling *telling)
{
    struct rig *r = &all->rigs[0];

    fake_redis_hold(r->fake, false);
    attend_until(r, false, &telling->told, 1);
    dibs__wait_end(&telling->wait);
    assert_true(wait_echo(r, all->requests[0], "watched"));
    assert_int_equal(atomic_load(&telling->told), 1);
}

/* The scheduler reads, and has the wait event told, by which no thread waits. */
TEST_ON(a_wait_event_that_tells_is_told_of_the_reply, struct rigs *all)
{
    struct telling telling;

    watch_held(all, &telling);
    expect_told(all, &telling);
}

TEST_ON(what_is_watched_is_read_when_a_thread_reads_no_more, struct rigs *all)
{
    struct rig *r = &all->rigs[0];
    struct dibs__wait wait;
    struct telling telling;

    watch_held(all, &telling);
    struct dibs__request *reading = sent_echo(r, open_now(r), "reading");
    dibs__wait_init(&wait, &all->wait_event);
    assert_int_equal(dibs__channel_progress(r->channel, reading, &wait), DIBS__REPLY_AWAITED);
    assert_true(wait.fd.fd >= 0);
    int64_t deadline = DIBS__NEVER;
    struct pollfd fd = dibs__channel_interest(r->channel, false, &deadline);
    assert_int_equal(fd.fd, -1);
    unsigned before = atomic_load(&r->unattended);
    dibs__wait_end(&wait);
    assert_int_equal(atomic_load(&r->unattended), before + 1);
    expect_told(all, &telling);
    assert_true(wait_echo(r, reading, "reading"));
}

/* ------------------------------------------------------------------- links */

struct opening {
    struct rig *r;
    unsigned tries;
    enum dibs__opening state;
};

static void *await_link(void *arg)
{
    struct opening *o = arg;
    struct dibs__wait_event wait_event;
    struct dibs__wait wait;

    dibs__wait_event_init(&wait_event);
    dibs__wait_init(&wait, &wait_event);
    for (;;) {
        dibs__wait_event_reset(&wait_event);
        o->state = dibs__channel_opening(o->r->channel, o->tries, &wait);
        if (o->state != DIBS__OPENING_AWAITED)
            break;
        dibs__waits_sleep(&wait, 1, &wait_event, &o->r->clock.clock, DIBS__NEVER);
    }
    assert_null(wait.end);
    return NULL;
}

static enum dibs__opening wait_for_link(struct rig *r, const atomic_uint *ended)
{
    struct opening o = {.r = r, .tries = dibs__channel_need(r->channel)};
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, await_link, &o), 0);
    moved_clock_await_waiting(&r->clock, 1);
    attend_until(r, false, ended, 1);
    pthread_join(thread, NULL);
    return o.state;
}

TEST_ON(a_connection_that_stands_ends_the_wait_for_it, struct rigs *all)
{
    struct rig *r = &all->rigs[0];

    assert_int_equal(wait_for_link(r, &r->opened), DIBS__OPENING_DONE);
}

TEST_ON(a_try_that_fails_ends_the_wait_for_the_connection, struct rigs *all)
{
    struct rig *r = &all->rigs[0];

    fake_redis_refuse(r->fake, true);
    assert_int_equal(wait_for_link(r, &r->failed), DIBS__OPENING_FAILED);
}

TEST_ON(a_wait_for_a_connection_can_be_ended, struct rigs *all)
{
    struct rig *r = &all->rigs[0];
    unsigned tries = dibs__channel_need(r->channel);

    for (int i = 0; i < CHANNELS; i++)
        assert_int_equal(dibs__channel_opening(r->channel, tries, &all->waits[i]), DIBS__OPENING_AWAITED);
    dibs__wait_end(&all->waits[1]);
    attend_until(r, false, &r->opened, 1);
    assert_true(dibs__wait_event_is_woken(&all->wait_event));
    end_all(all);
    for (int i = 0; i < CHANNELS; i++)
        assert_null(all->waits[i].end);
}

TESTS(setup_all, teardown_all)
