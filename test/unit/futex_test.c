/* Sleeping until a word is changed: no wake is lost, and no thread sleeps on a word that has changed before. */
#include <stdatomic.h>

#include "base/clock.h"
#include "support/actor.h"
#include "support/test.h"

enum { ROUNDS = 20000 };

static const struct dibs__clock *const real = &dibs__system_clock;

TEST(a_changed_word_lets_nobody_sleep)
{
    atomic_uint word = 1;

    dibs__futex_wait(&word, 0, INT64_MAX);
    real->sleep(real, &word, 0, DIBS__NEVER);
}

TEST(a_futex_sleep_ends_at_its_deadline)
{
    atomic_uint word = 0;
    int64_t begin = dibs__now(real), deadline = begin + 20 * DIBS__NS_PER_MS;

    dibs__futex_wait(&word, 0, 20 * DIBS__NS_PER_MS); /* may return early, so only its end can be waited for */
    while (dibs__now(real) < deadline)
        real->sleep(real, &word, 0, deadline);
    real->sleep(real, &word, 0, begin); /* which is over */
}

/* Two threads that answer each other: a wake that is lost lets both sleep until the test's time is over. */
struct pair {
    atomic_uint ball;
};

static void await_ball(struct pair *pair, unsigned value)
{
    unsigned is;

    while ((is = atomic_load(&pair->ball)) != value)
        real->sleep(real, &pair->ball, is, DIBS__NEVER);
}

static void throw_ball(struct pair *pair, unsigned value)
{
    atomic_store(&pair->ball, value);
    dibs__futex_wake(&pair->ball);
}

static void throw_back(void *arg)
{
    for (unsigned i = 0; i < ROUNDS; i++) {
        await_ball(arg, 2 * i + 1);
        throw_ball(arg, 2 * i + 2);
    }
}

TEST(no_wake_is_lost)
{
    struct pair pair = {0};
    actor *other = actor_running(throw_back, &pair);

    for (unsigned i = 0; i < ROUNDS; i++) {
        throw_ball(&pair, 2 * i + 1);
        await_ball(&pair, 2 * i + 2);
    }
    actor_finish(other);
}

TEST(a_wake_for_nobody_does_nothing)
{
    atomic_uint word = 0;

    dibs__futex_wake(&word);
    assert_int_equal(word, 0);
}

TESTS(NULL, NULL)
