/*
 * Exponential backoff: pauses that double up to a limit. Each pause is drawn from the upper half of its range, so that
 * the pauses of many clients don't coincide.
 */
#ifndef DIBS_BASE_BACKOFF_H
#define DIBS_BASE_BACKOFF_H

#include <stdint.h>

struct dibs__backoff {
    uint32_t first_ms; /* upper bound of the first pause in ms; constant, above 0 */
    uint32_t next_ms;  /* upper bound of the next pause in ms; 0: first_ms */
};

/*
 * Returns the next pause in ms, from half of its upper bound to all of it. Then doubles the bound, up to last_ms, which
 * must be below 2^32.
 */
int64_t dibs__backoff_next(struct dibs__backoff *backoff, int64_t last_ms);

/* Starts over: the next pause is the first. */
void dibs__backoff_reset(struct dibs__backoff *backoff);

#endif
