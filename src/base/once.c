#include "base/once.h"

#include <time.h>
#include <unistd.h>

#define DONE (-1L)

void dibs__once_was_done(struct dibs__once *once)
{
    atomic_store(&once->by, DONE);
}

bool dibs__once(struct dibs__once *once, bool (*init)(void))
{
    long by = atomic_load_explicit(&once->by, memory_order_acquire), here = by == DONE ? 0 : (long)getpid();

    for (;;) {
        if (by == DONE)
            return true;
        if (by != here) {
            if (atomic_compare_exchange_strong(&once->by, &by, here))
                break;
        } else {
            /* `init` is short, and a forked child might find a mutex locked for ever: so it looks again and again. */
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
            by = atomic_load(&once->by);
        }
    }
    bool done = init();
    atomic_store(&once->by, done ? DONE : 0);
    return done;
}
