#include "base/thread.h"

#include <signal.h>
#include <stdint.h>

#include "base/process.h"
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

bool dibs__thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error == 0;
}

void dibs__thread_set_name(const char *name)
{
#if defined(__linux__)
    pthread_setname_np(pthread_self(), name);
#elif defined(__APPLE__)
    pthread_setname_np(name);
#else
    (void)name;
#endif
}

unsigned long dibs__thread_number(void)
{
#ifdef __linux__
    static _Thread_local unsigned long number;
    static _Thread_local unsigned generation; /* in a forked child, the thread has another number */

    if (number == 0 || generation != dibs__fork_generation()) {
        number = (unsigned long)syscall(SYS_gettid);
        generation = dibs__fork_generation();
    }
    return number;
#else
    return (unsigned long)(uintptr_t)pthread_self();
#endif
}
