/* Starting a thread of this library, and the number of the calling thread. */
#ifndef DIBS_BASE_THREAD_H
#define DIBS_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* Starts a joinable thread that blocks all signals. name: for debuggers, at most 15 bytes. False: it can't be started.
 */
bool dibs__thread_start(pthread_t *thread, const char *name, void *(*run)(void *arg), void *arg);

/* The calling thread's number: on Linux the one that the system's tools show. */
unsigned long dibs__thread_number(void);

#endif
