/* Threads of this library's own, and the number of the calling one. */
#ifndef DIBS_BASE_THREAD_H
#define DIBS_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* Starts a joinable thread that blocks all signals. name: at most 15 bytes, for debuggers. False: none could be had. */
bool dibs__thread_start(pthread_t *thread, const char *name, void *(*run)(void *arg), void *arg);

/* As the system's tools show it, where they do. */
unsigned long dibs__thread_number(void);

#endif
