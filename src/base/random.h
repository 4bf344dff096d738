/* Random bits: from the system for ids, from a generator for each thread for jitter. */
#ifndef DIBS_BASE_RANDOM_H
#define DIBS_BASE_RANDOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Fills out with at most 256 unpredictable bytes. False: the system has none to give. */
bool dibs__random_bytes(void *out, size_t size);

/* A number from low to high, both included. For spreading load, not for secrets. Requires low <= high. */
int64_t dibs__jitter(int64_t low, int64_t high);

#endif
