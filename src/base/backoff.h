/* Exponential backoff: pauses that double up to a limit, each drawn from its upper half, so that many don't coincide.
 */
#ifndef DIBS_BASE_BACKOFF_H
#define DIBS_BASE_BACKOFF_H

#include <stdint.h>

struct dibs__backoff {
    uint32_t first_ms; /* the constant beginning; over 0 */
    uint32_t next_ms;  /* of the next pause, at most; 0: first_ms */
};

/* The next pause in ms: from half of what is due to all of it. Then doubles that, to no more than last_ms (below 2^32).
 */
int64_t dibs__backoff_next(struct dibs__backoff *backoff, int64_t last_ms);

/* Starts over: the next pause is the first. */
void dibs__backoff_reset(struct dibs__backoff *backoff);

#endif
