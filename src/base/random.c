#include "base/random.h"

#include <unistd.h>
#ifdef __APPLE__
#include <sys/random.h>
#endif

bool dibs__random_bytes(void *out, size_t size)
{
    return getentropy(out, size) == 0;
}

int64_t dibs__jitter(int64_t low, int64_t high)
{
    static _Thread_local uint64_t state; /* splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom generators" */

    if (state == 0 && !dibs__random_bytes(&state, sizeof state))
        state = (uint64_t)(uintptr_t)&state;
    uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return low + (int64_t)((z ^ (z >> 31)) % ((uint64_t)(high - low) + 1));
}
