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

/*
 * First the pipe is emptied, then the flag is cleared. A thread that rings in
 * between finds the flag set and writes nothing; the caller, which looks for
 * changes after this, sees what that thread rang for.
 */
void dibs__wake_quiet(struct dibs__wake *wake)
{
    char bytes[16];

    while (read(wake->fds[0], bytes, sizeof bytes) < 0 && errno == EINTR)
        continue;
    atomic_exchange(&wake->rung, false);
}
