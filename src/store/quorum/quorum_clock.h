/*
 * What is known of a master's clock, to notice that it was set. An answer that
 * shows the clock bounds how far it is ahead of ours from both sides, however
 * long the request was under way, and however late the answer is read. The
 * bounds outlive connections.
 */
#ifndef DIBS_STORE_QUORUM_QUORUM_CLOCK_H
#define DIBS_STORE_QUORUM_QUORUM_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#define DIBS__CLOCK_PART 100    /* clocks may differ in pace by 1 %, as the margin of a lease allows */
#define DIBS__CLOCK_SET_US 1000 /* a step that is smaller than this beside is not noticed */

/* All zero: nothing is known. */
struct dibs__clock_bounds {
    int64_t least_us, most_us; /* so far at least, and at most, the clock was ahead of ours */
    int64_t least_at, most_at; /* then; ours, in ns */
};

/*
 * An answer shows the clock; its request was sent, and it was read, at these
 * times, ours in ns. 0: it fits what is known, which is narrowed. More: the
 * clock was set forward, less: back; then only the answer is known.
 */
int dibs__clock_bounds_note(struct dibs__clock_bounds *bounds, int64_t sent_at, int64_t read_at, int64_t server_us);

#endif
