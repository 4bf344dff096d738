/* A pipe that ends a poll(2): the one way in which other threads reach the scheduler thread. */
#ifndef DIBS_BASE_WAKE_H
#define DIBS_BASE_WAKE_H

#include <stdatomic.h>
#include <stdbool.h>

struct dibs__wake {
    int fds[2];       /* read-only after init; poll fds[0] for POLLIN */
    atomic_bool rung; /* a byte is in the pipe, or about to be: saves the write of the second ringing */
};

bool dibs__wake_init(struct dibs__wake *wake); /* false with errno set */
void dibs__wake_free(struct dibs__wake *wake);
void dibs__wake_ring(struct dibs__wake *wake);  /* any thread; never blocks */
void dibs__wake_quiet(struct dibs__wake *wake); /* the polling thread, before it looks at what it was woken for */

#endif
