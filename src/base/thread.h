/* Starting a thread of this library, and the name and number of the calling thread. */
#ifndef DIBS_BASE_THREAD_H
#define DIBS_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* Starts a joinable thread that blocks all signals. False: no thread could be started. */
bool dibs__thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg);

/*
 * Names the calling thread for debuggers, in at most 15 bytes. A thread names itself with one system call; naming
 * another one takes three, which would delay the thread that starts it.
 */
void dibs__thread_set_name(const char *name);

/* The calling thread's number. On Linux it is the one that the system's tools show. */
unsigned long dibs__thread_number(void);

#endif
