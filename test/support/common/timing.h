/* Clocks and pauses, in ns and us. */
#ifndef COMMON_TIMING_H
#define COMMON_TIMING_H

#include <stdint.h>

/* CLOCK_MONOTONIC: the same in all processes. now_ns rounds, for arithmetic with fractions. */
uint64_t clock_ns(void);
double now_ns(void);

/* How long the calling thread has run on a processor. */
int64_t thread_ns(void);

/* Sleeps for at least so long. */
void pause_us(uint64_t us);

#endif
