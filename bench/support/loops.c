#include "support/loops.h"

#include <stdatomic.h>

#include "support/common/cleanup.h"
#include "support/team.h"

enum { TURNS_AT_ONCE = 1000, LINE = 64 };

struct loops {
    unsigned count; /* read-only once they run */
    int pids[LOOPS_MOST];
    struct {
        _Alignas(LINE) atomic_ulong turns; /* written by the loop alone */
    } loop[LOOPS_MOST];
};

static void spin(unsigned number, void *memory)
{
    struct loops *loops = memory;
    volatile unsigned long work = number;

    for (unsigned long turns = 0;; turns += TURNS_AT_ONCE) {
        for (unsigned i = 0; i < TURNS_AT_ONCE; i++)
            work = work * 6364136223846793005u + 1;
        atomic_store_explicit(&loops->loop[number].turns, turns, memory_order_relaxed);
    }
}

struct loops *loops_start(unsigned count)
{
    struct loops *loops;

    if (count == 0)
        return NULL;
    loops = team_memory(sizeof *loops);
    loops->count = count;
    for (unsigned i = 0; i < count; i++)
        loops->pids[i] = helper_start(i, spin, loops);
    return loops;
}

void loops_stop(struct loops *loops)
{
    for (unsigned i = 0; loops && i < loops->count; i++)
        helper_stop(loops->pids[i]);
}

double loops_turns(const struct loops *loops)
{
    unsigned long turns = 0;

    for (unsigned i = 0; i < loops->count; i++)
        turns += atomic_load_explicit(&loops->loop[i].turns, memory_order_relaxed);
    return (double)turns;
}
