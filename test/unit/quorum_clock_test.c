/* Whether a clock was set, as far as each answer shows; times in ms. */
#include "store/quorum/quorum_clock.h"

#include "support/test.h"

#define MS(n) ((int64_t)((n)*1000000))
#define AHEAD_US INT64_C(5000000000)

/* An answer whose request was sent and read at these times, and which showed the clock at `shown`, when it was ahead by
 * that much more than at first. */
static int note(struct dibs__clock_bounds *bounds, double sent, double shown, double read, double more)
{
    return dibs__clock_bounds_note(bounds, MS(sent), MS(read), AHEAD_US + (int64_t)((shown + more) * 1000));
}

TEST(a_steady_clock_was_not_set)
{
    struct dibs__clock_bounds bounds = {0};

    for (int i = 1; i < 1000; i++)
        assert_int_equal(note(&bounds, i * 10, i * 10 + i % 7 * 0.3, i * 10 + 2, 0), 0);
}

TEST(the_first_answer_shows_no_step)
{
    struct dibs__clock_bounds bounds = {0};

    assert_int_equal(note(&bounds, 1, 2, 3, 0), 0);
    assert_int_equal(note(&bounds, 4, 5, 6, 100), 1);
}

/* This holds however long an answer was under way, or unread. */
TEST(a_slow_answer_shows_no_step)
{
    struct dibs__clock_bounds bounds = {0};

    assert_int_equal(note(&bounds, 1, 1.1, 1.2, 0), 0);
    assert_int_equal(note(&bounds, 2, 2.1, 5000, 0), 0);
    assert_int_equal(note(&bounds, 3, 5000, 5000.1, 0), 0);
    assert_int_equal(note(&bounds, 5001, 5001.1, 5001.2, 0), 0);
}

TEST(a_step_of_more_than_the_bound_is_noticed_once)
{
    static const double steps[] = {1.5, -1.5, 60000, -60000};

    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        struct dibs__clock_bounds bounds = {0};
        assert_int_equal(note(&bounds, 10, 10.1, 10.2, 0), 0);
        assert_int_equal(note(&bounds, 11, 11.1, 11.2, steps[i]), steps[i] > 0 ? 1 : -1);
        assert_int_equal(note(&bounds, 12, 12.1, 12.2, steps[i]), 0);
        assert_int_equal(note(&bounds, 13, 13.1, 13.2, 0), steps[i] > 0 ? -1 : 1);
    }
}

/* Two clocks may differ in pace by 1 %, and by no more. */
TEST(the_bound_grows_with_the_time_since)
{
    struct dibs__clock_bounds bounds = {0};

    assert_int_equal(note(&bounds, 10, 10, 10, 0), 0);
    assert_int_equal(note(&bounds, 1010, 1010, 1010, 9.9), 0);
    assert_int_equal(note(&bounds, 2010, 2010, 2010, 31.5), 1);
}

TEST(a_clock_off_by_a_hundredth_shows_no_step)
{
    struct dibs__clock_bounds fast = {0}, slow = {0};

    for (int i = 1; i < 1000; i++) {
        assert_int_equal(note(&fast, i * 100, i * 100 + 0.1, i * 100 + 0.2, i), 0);
        assert_int_equal(note(&slow, i * 100, i * 100 + 0.1, i * 100 + 0.2, -i), 0);
    }
}

/* Each step alone is below the bound. */
TEST(small_steps_add_up)
{
    for (int sign = -1; sign <= 1; sign += 2) {
        struct dibs__clock_bounds bounds = {0};
        int noticed = 0;
        for (int i = 1; i <= 10 && noticed == 0; i++)
            noticed = note(&bounds, i * 10, i * 10 + 0.05, i * 10 + 0.1, sign * 0.9 * i);
        assert_int_equal(noticed, sign);
    }
}

/* A slow answer, which shows little, does not replace one that showed more. */
TEST(a_better_bound_of_a_clock_is_kept)
{
    struct dibs__clock_bounds bounds = {0};

    assert_int_equal(note(&bounds, 10, 10.1, 10.2, 0), 0);
    assert_int_equal(note(&bounds, 11, 100, 200, 0), 0);
    assert_int_equal(note(&bounds, 201, 201.1, 201.2, 10), 1);
}

TESTS(NULL, NULL)
