/* Checks that the time for a piece of work grows in proportion to its size, and not to the square of the size. */
#ifndef DIBS_TEST_LINEAR_H
#define DIBS_TEST_LINEAR_H

#include <stddef.h>
#include <stdint.h>

/* Does a piece of work of that size; returns the ns for which the thread that did it had a processor. */
typedef int64_t sized_work(void *arg, size_t size);

/* How long `size` took, and 8 times as much. */
struct sized_times {
    size_t size;
    int64_t few, many;
};

/*
 * The shortest of several runs. Where 8 times as much took more than 24 times as long, because other programs had the
 * caches, some more are made: what is quadratic takes 64 times as long.
 */
struct sized_times time_sizes(sized_work *work, void *arg, size_t size);

/* 8 times as much takes at most 24 times as long. From the test's own thread only. */
void assert_linear(const struct sized_times *times);

#endif
