/* How a thread sleeps until the first of several things comes. */
#include "base/wait.h"

#include <unistd.h>

#include "support/moved_clock.h"
#include "support/test.h"

#define THINGS 3

struct rig {
    struct moved_clock clock;
    struct dibs__wait_event wait_event;
    struct dibs__wait waits[THINGS];
    struct dibs__wake bell;
    int pipes[THINGS][2];
    int64_t until;
    unsigned ends;
};

static int setup(void **state)
{
    static struct rig rig;
    struct rig *r = &rig;

    moved_clock_init(&r->clock);
    dibs__wait_event_init(&r->wait_event);
    assert_true(dibs__wake_init(&r->bell));
    for (int i = 0; i < THINGS; i++) {
        dibs__wait_init(&r->waits[i], &r->wait_event);
        assert_int_equal(pipe(r->pipes[i]), 0);
    }
    r->until = DIBS__NEVER;
    r->ends = 0;
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;

    for (int i = 0; i < THINGS; i++) {
        close(r->pipes[i][0]);
        close(r->pipes[i][1]);
    }
    dibs__wake_free(&r->bell);
    moved_clock_destroy(&r->clock);
    return 0;
}

/* All but the first can be read by the thread. */
static void poll_for_some(struct rig *r)
{
    for (int i = 1; i < THINGS; i++) {
        r->waits[i].fd = (struct pollfd){.fd = r->pipes[i][0], .events = POLLIN};
        r->waits[i].bell = &r->bell;
    }
}

static void *sleep_in_thread(void *arg)
{
    struct rig *r = arg;

    dibs__waits_sleep(r->waits, THINGS, &r->wait_event, &r->clock.clock, r->until);
    return NULL;
}

static pthread_t begin(struct rig *r, bool polls)
{
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, sleep_in_thread, r), 0);
    if (polls)
        moved_clock_settle(&r->clock, 1);
    else
        moved_clock_await_waiting(&r->clock, 1);
    return thread;
}

TEST_ON(each_descriptor_ends_the_sleep_and_says_so, struct rig *r)
{
    char byte;

    poll_for_some(r);
    for (int i = 1; i < THINGS; i++) {
        pthread_t thread = begin(r, true);
        assert_int_equal(write(r->pipes[i][1], "", 1), 1);
        pthread_join(thread, NULL);
        for (int other = 0; other < THINGS; other++)
            assert_int_equal(r->waits[other].fd.revents, other == i ? POLLIN : 0);
        assert_int_equal(read(r->pipes[i][0], &byte, 1), 1);
    }
}

TEST_ON(the_wait_event_ends_the_sleep_in_poll_and_out_of_it, struct rig *r)
{
    for (int polls = 0; polls < 2; polls++) {
        dibs__wait_event_reset(&r->wait_event);
        if (polls)
            poll_for_some(r);
        pthread_t thread = begin(r, polls);
        dibs__wait_event_wake(&r->wait_event);
        pthread_join(thread, NULL);
        sleep_in_thread(r); /* and every one before the next reset */
    }
}

TEST_ON(the_first_time_of_all_ends_the_sleep, struct rig *r)
{
    for (int polls = 0; polls < 2; polls++) {
        int64_t now = moved_clock_now(&r->clock);
        r->until = now + MS(30);
        r->waits[0].until = now + MS(20);
        r->waits[2].until = now + MS(10);
        if (polls)
            poll_for_some(r);
        pthread_t thread = begin(r, polls);
        moved_clock_advance(&r->clock, MS(10));
        pthread_join(thread, NULL);
    }
}

/* No more threads poll at the same time than may: one whose sleep is over is none of them. */
TEST_ON(a_thread_polls_until_its_sleep_is_over, struct rig *r)
{
    struct dibs__spinning wait;
    struct dibs__spin spin;

    poll_for_some(r);
    dibs__spin_init(&spin, &dibs__system_clock, 1000000);
    r->waits[1].spin = &spin;
    assert_int_equal(write(r->pipes[1][1], "", 1), 1);
    for (int i = 0; i < spin.others; i++)
        dibs__waits_sleep(r->waits, THINGS, &r->wait_event, &dibs__system_clock, DIBS__NEVER);
    dibs__spin_init(&spin, &dibs__system_clock, 1000000);
    dibs__spin_begin(&wait, &spin, &dibs__system_clock);
    assert_true(wait.polls);
    dibs__spin_end(&wait, false, &dibs__system_clock);
}

static void count_end(struct dibs__wait *wait)
{
    unsigned *ends = wait->keeper;

    ++*ends;
    wait->end = NULL;
}

TEST_ON(a_wait_is_ended_once_and_only_where_it_began, struct rig *r)
{
    r->waits[1].end = count_end;
    r->waits[1].keeper = &r->ends;
    for (int i = 0; i < THINGS; i++) {
        dibs__wait_end(&r->waits[i]);
        dibs__wait_end(&r->waits[i]);
    }
    assert_int_equal(r->ends, 1);
}

TESTS(setup, teardown)
