/* Pauses that double up to a limit, each from the upper half of what is due. */
#include "base/backoff.h"

#include "support/test.h"

#define ROUNDS 1000

static void assert_drawn_from(int64_t pause, int64_t due)
{
    assert_that(pause >= due / 2 && pause <= due, "a pause of %lld ms where %lld are due", (long long)pause,
                (long long)due);
}

TEST(pauses_double_up_to_the_limit)
{
    static const int64_t due[] = {10, 20, 40, 80, 100, 100, 100};

    for (int round = 0; round < ROUNDS; round++) {
        struct dibs__backoff backoff = {.first_ms = 10};
        for (size_t i = 0; i < sizeof due / sizeof *due; i++)
            assert_drawn_from(dibs__backoff_next(&backoff, 100), due[i]);
    }
}

TEST(a_reset_starts_with_the_first_pause)
{
    struct dibs__backoff backoff = {.first_ms = 10};

    for (int i = 0; i < 10; i++)
        dibs__backoff_next(&backoff, 500);
    dibs__backoff_reset(&backoff);
    assert_drawn_from(dibs__backoff_next(&backoff, 500), 10);
    assert_drawn_from(dibs__backoff_next(&backoff, 500), 20);
}

TEST(a_lowered_limit_applies_at_once)
{
    struct dibs__backoff backoff = {.first_ms = 10};

    for (int i = 0; i < 10; i++)
        dibs__backoff_next(&backoff, 5000);
    for (int i = 0; i < 10; i++)
        assert_drawn_from(dibs__backoff_next(&backoff, 50), 50);
}

/* Clients that begin together must not stay in step. */
TEST(pauses_are_spread)
{
    int64_t least = INT64_MAX, most = 0;

    for (int i = 0; i < ROUNDS; i++) {
        struct dibs__backoff backoff = {.first_ms = 1000};
        int64_t pause = dibs__backoff_next(&backoff, 1000);
        least = pause < least ? pause : least;
        most = pause > most ? pause : most;
    }
    assert_true(least < 600 && most > 900);
}

TESTS(NULL, NULL)
