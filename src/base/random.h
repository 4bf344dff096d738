/* Random bits: from the system for ids, from a generator of the thread's own for jitter. */
#ifndef DIBS_BASE_RANDOM_H
#define DIBS_BASE_RANDOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Fills out with bytes nobody can guess. False where the system has none to give. At most 256 bytes. */
bool dibs__random_bytes(void *out, size_t size);

/* A number from low to high, both included. For spreading load, not for secrets. Requires low <= high. */
int64_t dibs__jitter(int64_t low, int64_t high);

#endif
