#include "base/wake.h"

#include <errno.h>
#include <unistd.h>

#include "base/fd.h"

bool dibs__wake_init(struct dibs__wake *wake)
{
    atomic_init(&wake->rung, false);
    return dibs__fd_pipe(wake->fds) == 0;
}

void dibs__wake_free(struct dibs__wake *wake)
{
    dibs__fd_close(wake->fds[0]);
    dibs__fd_close(wake->fds[1]);
}

void dibs__wake_ring(struct dibs__wake *wake)
{
    if (atomic_exchange(&wake->rung, true))
        return;
    while (write(wake->fds[1], "", 1) < 0 && errno == EINTR)
        continue;
}

/* The pipe first, then the flag: a ringing in between finds the flag set, and what it rang for is seen after this. */
void dibs__wake_quiet(struct dibs__wake *wake)
{
    char bytes[16];

    while (read(wake->fds[0], bytes, sizeof bytes) < 0 && errno == EINTR)
        continue;
    atomic_exchange(&wake->rung, false);
}
