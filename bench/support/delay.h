/* Wires with a delay: a process between clients and servers that passes all bytes on, later. */
#ifndef BENCH_DELAY_H
#define BENCH_DELAY_H

#include "support/bench.h"

/* A server, and where clients connect to it through the wire. */
struct wire {
    const char *server_path; /* its Unix socket; NULL: server_port of 127.0.0.1 */
    int server_port;
    char url[112]; /* the wire's own, of the same transport */
    int port;      /* the wire's own, of 127.0.0.1; 0: url is a path */
    int listener;  /* delay.c's */
};

enum { WIRES_MOST = 16 };

/*
 * Starts the process, and fills in where each wire listens. Every byte is passed on delay_us after it came, in both
 * directions. There may be one such process. What fails ends the program.
 */
void delay_start(struct wire *wires, unsigned count, unsigned delay_us);

/* The delay of what comes from now on. */
void delay_change(unsigned delay_us);

/* Ends the process. */
void delay_stop(void);

#endif
