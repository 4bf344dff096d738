/*
 * What is known of a master's clock, to notice that it was set. Each answer that shows the clock gives a lower
 * and an upper bound of how far it is ahead of the local clock, however long the request was under way and
 * however late the answer is read. The bounds outlive connections.
 */
#ifndef DIBS_STORE_QUORUM_QUORUM_CLOCK_H
#define DIBS_STORE_QUORUM_QUORUM_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#define DIBS__CLOCK_PART 100    /* clocks may differ in pace by 1 %, the margin of a lease */
#define DIBS__CLOCK_SET_US 1000 /* a step beyond that which is smaller than this is not noticed */

/* All zero: nothing is known. */
struct dibs__clock_bounds {
    int64_t least_us, most_us; /* bounds of how far the clock was ahead of the local one */
    int64_t least_at, most_at; /* when they were found, by the local clock, in ns */
};

/*
 * Takes an answer that shows the clock. sent_at is when its request was sent, and read_at when the answer was
 * read, by the local clock, in ns. Returns 0 if the answer fits the bounds, which it narrows; 1 if the clock
 * was set forward, -1 if it was set back: then the bounds are those of this answer alone.
 */
int dibs__clock_bounds_note(struct dibs__clock_bounds *bounds, int64_t sent_at, int64_t read_at, int64_t server_us);

#endif
