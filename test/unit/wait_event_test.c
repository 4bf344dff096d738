/* How a thread waits for an event: asleep, or in poll(2). */
#include <unistd.h>

#include "base/wait_event.h"
#include "support/moved_clock.h"
#include "support/test.h"

enum { ROUNDS = 20000 };

struct rig {
    struct moved_clock clock;
    struct dibs__wait_event wait_event;
    struct dibs__wake bell;
    int fds[2];           /* what is polled for: the thread reads the first */
    bool polls;           /* else it sleeps */
    atomic_short revents; /* of the last poll */
    atomic_uint told, heard;
};

static int setup(void **state)
{
    static struct rig rig;

    moved_clock_init(&rig.clock);
    dibs__wait_event_init(&rig.wait_event);
    assert_true(dibs__wake_init(&rig.bell));
    assert_int_equal(pipe(rig.fds), 0);
    rig.told = rig.heard = 0;
    rig.revents = 0;
    *state = &rig;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;

    close(r->fds[0]);
    close(r->fds[1]);
    dibs__wake_free(&r->bell);
    moved_clock_destroy(&r->clock);
    return 0;
}

static void wait_once(struct rig *r)
{
    struct pollfd fds[2] = {{.fd = r->fds[0], .events = POLLIN}};
    int64_t until = moved_clock_now(&r->clock) + MS(1000);

    if (!r->polls) {
        dibs__wait_event_wait(&r->wait_event, &r->clock.clock, until);
        return;
    }
    dibs__wait_event_poll(&r->wait_event, &r->clock.clock, &r->bell, fds, 1, until);
    r->revents = fds[0].revents;
}

static void *wait_in_thread(void *arg)
{
    wait_once(arg);
    return NULL;
}

static pthread_t begin(struct rig *r, bool polls)
{
    pthread_t thread;

    r->polls = polls;
    assert_int_equal(pthread_create(&thread, NULL, wait_in_thread, r), 0);
    if (polls)
        moved_clock_settle(&r->clock, 1);
    else
        moved_clock_await_waiting(&r->clock, 1);
    return thread;
}

TEST_ON(a_wait_event_is_woken, struct rig *r)
{
    for (int polls = 0; polls < 2; polls++) {
        dibs__wait_event_reset(&r->wait_event);
        pthread_t thread = begin(r, polls);
        dibs__wait_event_wake(&r->wait_event);
        pthread_join(thread, NULL);
        assert_true(dibs__wait_event_is_woken(&r->wait_event));
        assert_int_equal(r->revents, 0);
    }
}

TEST_ON(a_woken_wait_event_waits_again_only_after_a_reset, struct rig *r)
{
    for (int polls = 0; polls < 2; polls++) {
        dibs__wait_event_wake(&r->wait_event);
        r->polls = polls;
        wait_once(r);
        wait_once(r);
        dibs__wait_event_reset(&r->wait_event);
        pthread_t thread = begin(r, polls);
        moved_clock_advance(&r->clock, MS(1000));
        pthread_join(thread, NULL);
        assert_false(dibs__wait_event_is_woken(&r->wait_event));
    }
}

TEST_ON(a_readable_descriptor_ends_the_poll, struct rig *r)
{
    pthread_t thread = begin(r, true);

    assert_int_equal(write(r->fds[1], "", 1), 1);
    pthread_join(thread, NULL);
    assert_int_equal(r->revents, POLLIN);
    assert_false(dibs__wait_event_is_woken(&r->wait_event));
}

/* The ring that ended one poll does not end the next. */
TEST_ON(a_rung_bell_ends_one_poll, struct rig *r)
{
    pthread_t thread = begin(r, true);

    dibs__wake_ring(&r->bell);
    pthread_join(thread, NULL);
    assert_false(dibs__wait_event_is_woken(&r->wait_event));
    thread = begin(r, true);
    moved_clock_advance(&r->clock, MS(1000));
    pthread_join(thread, NULL);
}

/* Polls and sleeps by turns, and counts what it is told. */
static void *hear_all(void *arg)
{
    struct rig *r = arg;

    while (r->heard < ROUNDS) {
        dibs__wait_event_reset(&r->wait_event);
        if (r->told > r->heard)
            r->heard++;
        else if (r->heard % 2)
            dibs__wait_event_wait(&r->wait_event, &dibs__system_clock, DIBS__NEVER);
        else
            dibs__wait_event_poll(&r->wait_event, &dibs__system_clock, &r->bell, (struct pollfd[1]){{0}}, 0,
                                  DIBS__NEVER);
    }
    return NULL;
}

TEST_ON(a_wait_event_misses_no_wake, struct rig *r)
{
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, hear_all, r), 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        r->told++;
        dibs__wait_event_wake(&r->wait_event);
        if (i % 3 == 0)
            while (r->heard < r->told)
                sched_yield();
    }
    pthread_join(thread, NULL);
    assert_int_equal(r->heard, ROUNDS);
}

TESTS(setup, teardown)
