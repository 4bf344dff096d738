/* A wire with a delay: a process between clients and the server that passes all bytes on, later. */
#ifndef BENCH_DELAY_H
#define BENCH_DELAY_H

#include "support/bench.h"

/*
 * Starts the process, which listens on the transport of bench_url and speaks to the server on the same. From now on
 * bench_url is where it listens. Every byte is passed on delay_us after it came, in both directions. What fails ends
 * the program.
 */
void delay_start(unsigned delay_us);

/* Ends it; bench_url is the server's own again. */
void delay_stop(void);

#endif
