/*
 * Lock discipline: the thread that ends the program takes `mutex` and never releases it. So clean() runs once, and a
 * thread that comes later waits for the end.
 */
#include "support/common/cleanup.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void (*clean)(void *); /* read-only once installed */
static void *clean_arg;       /* read-only once installed */
static sigset_t signals;      /* read-only once installed */

static void end_by_signal(int number)
{
    sigset_t one;

    signal(number, SIG_DFL);
    sigemptyset(&one);
    sigaddset(&one, number);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
    raise(number);
    _exit(128 + number);
}

static void *take_signals(void *unused)
{
    int number;

    (void)unused;
    while (sigwait(&signals, &number) != 0) {
        /* interrupted */
    }
    pthread_mutex_lock(&mutex);
    clean(clean_arg);
    end_by_signal(number);
    return NULL;
}

void cleanup_install(void (*function)(void *), void *arg)
{
    pthread_t thread;

    clean = function;
    clean_arg = arg;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    if (pthread_create(&thread, NULL, take_signals, NULL) != 0) {
        fputs("no thread could be started\n", stderr);
        exit(2);
    }
    pthread_detach(thread);
}

/*
 * Requires mutex. Ends the program without its exit handlers, because other threads may still use what these take down.
 */
static noreturn void leave(int status)
{
    clean(clean_arg);
    fflush(stdout);
    _exit(status);
}

noreturn void cleanup_exit(int status)
{
    pthread_mutex_lock(&mutex);
    leave(status);
}

/* Prints nothing when the program is already ending: that is the reason for the failure. */
noreturn void cleanup_fail(const char *format, ...)
{
    va_list arguments;

    pthread_mutex_lock(&mutex);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    leave(2);
}
