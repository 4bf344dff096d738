#include "base/random.h"

#include <pthread.h>

#include "support/test.h"

enum { DRAWS = 1000, LOW = 50, HIGH = 100 };

static void *draw(void *arg)
{
    int64_t *drawn = arg;

    for (int i = 0; i < DRAWS; i++)
        drawn[i] = dibs__jitter(LOW, HIGH);
    return NULL;
}

/* Else all processes would try again at the same times. */
TEST(each_thread_draws_numbers_of_its_own)
{
    int64_t drawn[2][DRAWS];
    pthread_t threads[2];

    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, draw, drawn[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_true(memcmp(drawn[0], drawn[1], sizeof drawn[0]) != 0);
}

TEST(jitter_reaches_both_limits_and_no_further)
{
    int64_t drawn[DRAWS], least = HIGH, most = LOW;

    draw(drawn);
    for (int i = 0; i < DRAWS; i++) {
        least = drawn[i] < least ? drawn[i] : least;
        most = drawn[i] > most ? drawn[i] : most;
    }
    assert_int_equal(least, LOW);
    assert_int_equal(most, HIGH);
}

TESTS(NULL, NULL)
