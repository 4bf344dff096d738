/*
 * The clock: arithmetic that does not overflow, and sleeping by the system's clock, also while the machine is
 * suspended. For that, the clock_gettime below replaces that of the C library.
 */
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "support/actor.h"
#include "support/moved_clock.h"
#include "support/test.h"

static const struct dibs__clock *const real = &dibs__system_clock;

TEST(adding_ms_never_overflows)
{
    static const struct {
        int64_t base, ms, sum;
    } rows[] = {
        {0, 0, 0},
        {5, 1, 1000005},
        {5, -1, -999995},
        {0, INT64_MAX, DIBS__NEVER},
        {1, INT64_MAX / DIBS__NS_PER_MS, DIBS__NEVER - INT64_MAX % DIBS__NS_PER_MS + 1},
        {INT64_MAX - MS(1), 1, INT64_MAX},
        {INT64_MAX - MS(1) + 1, 1, DIBS__NEVER},
        {INT64_MAX, 0, DIBS__NEVER},
        {INT64_MAX, 1, DIBS__NEVER},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(dibs__after_ms(rows[i].base, rows[i].ms), rows[i].sum);
}

TEST(time_left_is_rounded_up)
{
    static const struct {
        int64_t deadline, now, ms;
    } rows[] = {
        {0, 0, 0},         {5, 6, 0},         {6, 5, 1},         {MS(1), 0, 1},
        {MS(1) + 1, 0, 2}, {MS(7), MS(3), 4}, {MS(3), MS(7), 0}, {DIBS__NEVER, 0, INT64_MAX / DIBS__NS_PER_MS + 1},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(dibs__ms_until(rows[i].deadline, rows[i].now), rows[i].ms);
}

TEST(the_clock_never_goes_back)
{
    int64_t last = dibs__now(real);

    assert_true(last > 0);
    for (int i = 0; i < 100000; i++) {
        int64_t now = dibs__now(real);
        assert_true(now >= last);
        last = now;
    }
}

TEST(waiting_ends_at_the_deadline_and_not_before)
{
    struct dibs__mutex mutex = DIBS__MUTEX_INITIALIZER;
    pthread_cond_t cond;

    assert_int_equal(dibs__cond_init(&cond), 0);
    dibs__mutex_lock(&mutex);
    int64_t deadline = dibs__after_ms(dibs__now(real), 20);
    while (dibs__now(real) < deadline) /* a wait may wake for no reason */
        real->wait(real, &cond, &mutex, deadline);
    real->wait(real, &cond, &mutex, deadline); /* in the past: returns at once */
    real->wait(real, &cond, &mutex, 0);
    dibs__mutex_unlock(&mutex);
    pthread_cond_destroy(&cond);
}

TEST(polling_ends_when_something_is_ready_or_at_the_deadline)
{
    int ends[2];

    assert_int_equal(dibs__fd_pipe(ends), 0);
    struct pollfd fd = {.fd = ends[0], .events = POLLIN};
    int64_t deadline = dibs__after_ms(dibs__now(real), 20);
    while (dibs__now(real) < deadline)
        assert_int_equal(real->poll(real, &fd, 1, deadline), 0);
    assert_int_equal(real->poll(real, &fd, 1, 0), 0);
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_int_equal(real->poll(real, &fd, 1, DIBS__NEVER), 1);
    assert_true(fd.revents & POLLIN);
    dibs__fd_close(ends[0]);
    dibs__fd_close(ends[1]);
}

#ifdef __linux__
static atomic_int hours_suspended;

int clock_gettime(clockid_t id, struct timespec *out)
{
    int result = (int)syscall(SYS_clock_gettime, id, out);

    if (result == 0 && id == CLOCK_BOOTTIME)
        out->tv_sec += 3600L * atomic_load(&hours_suspended);
    return result;
}

struct sleep {
    int ends[2];
    int64_t until;
    int ready;
    atomic_bool over;
};

static void sleep_half_an_hour(void *arg)
{
    struct sleep *sleep = arg;
    struct pollfd fd = {.fd = sleep->ends[0], .events = POLLIN};

    sleep->until = dibs__after_ms(dibs__now(real), 30 * 60 * 1000);
    sleep->ready = real->poll(real, &fd, 1, sleep->until);
    atomic_store(&sleep->over, true);
}

/* While the machine is suspended, the time of poll(2) stands still; that of the leases does not. */
TEST(polling_notices_that_the_machine_was_suspended)
{
    struct sleep sleep = {.over = false};

    assert_int_equal(dibs__fd_pipe(sleep.ends), 0);
    actor *sleeper = actor_running(sleep_half_an_hour, &sleep);
    actor_await_asleep(sleeper);
    atomic_store(&hours_suspended, 1);
    bool noticed = within(SLACK_MS, atomic_load(&sleep.over));
    assert_int_equal(write(sleep.ends[1], "x", 1), 1); /* so that the thread ends in any case */
    actor_finish(sleeper);
    assert_true(noticed);
    assert_int_equal(sleep.ready, 0);
    atomic_store(&hours_suspended, 0);
    actor_end(sleeper);
    dibs__fd_close(sleep.ends[0]);
    dibs__fd_close(sleep.ends[1]);
}
#endif

TESTS(NULL, NULL)
