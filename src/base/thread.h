/* Starting a thread of this library, and the name and number of the calling thread. */
#ifndef DIBS_BASE_THREAD_H
#define DIBS_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* Starts a joinable thread that blocks all signals. False: it can't be started. */
bool dibs__thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg);

/*
 * Names the calling thread for debuggers, in at most 15 bytes. To name itself takes a thread one system call. To name
 * another takes three, and the thread that starts one is in a hurry.
 */
void dibs__thread_set_name(const char *name);

/* The calling thread's number: on Linux the one that the system's tools show. */
unsigned long dibs__thread_number(void);

#endif
