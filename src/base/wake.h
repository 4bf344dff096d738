/* A pipe by which one thread ends the poll(2) of another, for example that of the scheduler's thread. */
#ifndef DIBS_BASE_WAKE_H
#define DIBS_BASE_WAKE_H

#include <stdatomic.h>
#include <stdbool.h>

struct dibs__wake {
    int fds[2];       /* read-only after init; poll fds[0] for POLLIN */
    atomic_bool rung; /* atomic; a byte is in the pipe or is about to be written, so no other is needed */
};

bool dibs__wake_init(struct dibs__wake *wake); /* false with errno set */
void dibs__wake_free(struct dibs__wake *wake);
void dibs__wake_ring(struct dibs__wake *wake); /* any thread; never blocks */
void dibs__wake_quiet(
    struct dibs__wake *wake); /* called by the polling thread, which then looks for what has changed */

#endif
