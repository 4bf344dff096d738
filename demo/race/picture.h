/*
 * A picture of a race as SVG: one lane for each thread that worked, a bar from its
 * entering to its leaving the critical section. What of a bar lies beyond the lease is
 * pale, and what lies beside another thread's bar is red. A cross marks a release that
 * deleted another's lock.
 */
#ifndef DIBS_DEMO_PICTURE_H
#define DIBS_DEMO_PICTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct picture_bar {
    double entered, left; /* ns, of one clock */
    bool worked;          /* else the bar is not drawn */
    bool deleted_anothers;
};

struct picture_strip { /* of one way */
    char title[120];
    double lease_ns;
    const struct picture_bar *bars;
    size_t count;
};

/* Writes the strips one above the other, on the same scale. False: no memory. Errors of out are the caller's. */
bool picture_write(FILE *out, const struct picture_strip *strips, size_t count);

#endif
