#include "support/linear.h"

#include <inttypes.h>

#include "support/test.h"

enum { TIMES = 8, RATIO_MOST = 24, ROUNDS_LEAST = 3, ROUNDS_MOST = 60 };

static void keep_shortest(int64_t *shortest, int64_t took)
{
    *shortest = took < *shortest ? took : *shortest;
}

static bool are_linear(const struct sized_times *times)
{
    return times->many / RATIO_MOST <= times->few;
}

struct sized_times time_sizes(sized_work *work, void *arg, size_t size)
{
    struct sized_times times = {size, INT64_MAX, INT64_MAX};

    work(arg, size * TIMES); /* so that no cache is cold */
    for (int i = 0; i < ROUNDS_LEAST || (i < ROUNDS_MOST && !are_linear(&times)); i++) {
        keep_shortest(&times.few, work(arg, size));
        keep_shortest(&times.many, work(arg, size * TIMES));
    }
    return times;
}

void assert_linear(const struct sized_times *times)
{
    assert_that(are_linear(times), "%" PRId64 " ns for %zu, %" PRId64 " ns for %zu", times->few, times->size,
                times->many, times->size * TIMES);
}
