#include "fault/worker/worker.h"

/* xorshift64* */
uint64_t draw(worker_thread *t)
{
    t->random ^= t->random >> 12;
    t->random ^= t->random << 25;
    t->random ^= t->random >> 27;
    return t->random * UINT64_C(2685821657736338717) >> 11;
}

uint64_t between(worker_thread *t, uint64_t low, uint64_t high)
{
    return low + draw(t) % (high - low + 1);
}

bool chance(worker_thread *t, unsigned percent)
{
    return draw(t) % 100 < percent;
}
