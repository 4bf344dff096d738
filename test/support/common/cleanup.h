/* How a program leaves in order, whether it ends by itself, for an error, or for a signal. */
#ifndef COMMON_CLEANUP_H
#define COMMON_CLEANUP_H

#include <stdnoreturn.h>

/*
 * From now on SIGINT, SIGTERM and SIGHUP call clean(arg), once, and end the
 * program by that signal. To be called before any other thread is started: the
 * signals are blocked in all of them and taken by a thread of their own.
 * SIGPIPE is ignored.
 */
void cleanup_install(void (*clean)(void *arg), void *arg);

/* Calls clean(arg), unless a thread did already, and exits. From any thread. */
noreturn void cleanup_exit(int status);

/* Says what went wrong on stderr, then cleanup_exit(2). */
noreturn void cleanup_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
