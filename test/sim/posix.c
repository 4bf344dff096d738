/*
 * The simulation's versions of the functions for threads, time and random numbers that the library calls. seams.txt
 * lists their names, which are changed in the compiled objects of the library.
 */
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "proc.h"

void sim_point(void)
{
    sim_maybe();
}

/* ---------------------------------------------------------------------- time */

/* Code takes time to run: so a thread that reads the clock repeatedly comes to an end. */
int sim_clock_gettime(clockid_t id, struct timespec *out)
{
    sim_now += 40;
    if (++sim_clock_reads > SIM_SPINNING)
        sim_judge_spins();
    int64_t now = sim_proc_clock(sim_current->proc);
    *out = (struct timespec){.tv_sec = now / SIM_S, .tv_nsec = now % SIM_S};
    return 0;
}

static int64_t ns_of(const struct timespec *time)
{
    return (int64_t)time->tv_sec * SIM_S + time->tv_nsec;
}

/* When so much time has passed. */
static int64_t after(int64_t ns)
{
    return ns < 0 ? sim_now : sim_now + ns + 1;
}

int sim_nanosleep(const struct timespec *time, struct timespec *left)
{
    sim_pass(ns_of(time));
    return 0;
}

int sim_yield(void)
{
    sim_pass(500);
    return 0;
}

/* ------------------------------------------------- mutexes, conditions, futexes */

struct mutex {
    struct sim_thread *owner;
    unsigned waiters;
};

_Static_assert(sizeof(struct mutex) <= sizeof(pthread_mutex_t), "it lies where the library has the other");

int sim_mutex_init(struct mutex *mutex, const void *attributes)
{
    *mutex = (struct mutex){NULL, 0};
    return 0;
}

static void broken_rule(const char *what)
{
    sim_fail("a rule of POSIX threads is broken: %s", what);
    abort(); /* which shows where */
}

int sim_mutex_destroy(struct mutex *mutex)
{
    if (mutex->owner)
        broken_rule("a mutex is destroyed that somebody has locked");
    return 0;
}

int sim_mutex_lock(struct mutex *mutex)
{
    sim_maybe();
    if (mutex->owner == sim_current)
        broken_rule("a thread locks a mutex twice");
    while (mutex->owner) {
        mutex->waiters++;
        sim_sleep(mutex, NULL, 0, SIM_NEVER);
        mutex->waiters--;
    }
    mutex->owner = sim_current;
    return 0;
}

static void unlock(struct mutex *mutex)
{
    if (mutex->owner != sim_current)
        broken_rule("a mutex is unlocked by a thread that has not locked it");
    mutex->owner = NULL;
    if (mutex->waiters > 0)
        sim_wake(sim_current->proc, mutex, false);
}

int sim_mutex_unlock(struct mutex *mutex)
{
    unlock(mutex);
    sim_maybe();
    return 0;
}

int sim_cond_init(unsigned *cond, const void *attributes)
{
    *cond = 0;
    return 0;
}

int sim_cond_destroy(unsigned *cond)
{
    if (*cond > 0)
        broken_rule("a condition variable is destroyed on which somebody sleeps");
    return 0;
}

/* As the system may have it: a condition variable and a futex may say that the thread was woken though nobody did that.
 */
static bool sleep_on(const void *address, int64_t until)
{
    int64_t early = sim_early();

    return sim_sleep(address, NULL, 0, early < until ? early : until) || early < until;
}

static int wait_until(unsigned *cond, struct mutex *mutex, int64_t until)
{
    ++*cond;
    unlock(mutex);
    bool woken = sleep_on(cond, until);
    --*cond;
    sim_mutex_lock(mutex);
    return woken ? 0 : ETIMEDOUT;
}

int sim_cond_wait(unsigned *cond, struct mutex *mutex)
{
    return wait_until(cond, mutex, SIM_NEVER);
}

int sim_cond_timedwait(unsigned *cond, struct mutex *mutex, const struct timespec *until)
{
    return wait_until(cond, mutex, after(ns_of(until) - sim_proc_clock(sim_current->proc)));
}

int sim_cond_signal(unsigned *cond)
{
    if (*cond > 0)
        sim_wake(sim_current->proc, cond, false);
    sim_maybe();
    return 0;
}

int sim_cond_broadcast(unsigned *cond)
{
    if (*cond > 0)
        sim_wake(sim_current->proc, cond, true);
    sim_maybe();
    return 0;
}

static long futex_wait(unsigned *word, unsigned value, const struct timespec *timeout)
{
    sim_maybe();
    if (*(volatile unsigned *)word != value) {
        errno = EAGAIN;
        return -1;
    }
    bool woken = sleep_on(word, timeout ? after(ns_of(timeout)) : SIM_NEVER);
    errno = ETIMEDOUT;
    return woken ? 0 : -1;
}

static long futex_wake(const unsigned *word)
{
    sim_wake(sim_current->proc, word, false);
    sim_maybe();
    return 1;
}

long sim_syscall(long number, ...)
{
    va_list args;

    if (number == SYS_gettid)
        return 1000 * sim_current->proc->number + sim_current->number;
    if (number != SYS_futex)
        abort();
    va_start(args, number);
    unsigned *word = va_arg(args, unsigned *);
    int what = va_arg(args, int);
    unsigned value = va_arg(args, unsigned);
    const struct timespec *timeout = va_arg(args, const struct timespec *);
    va_end(args);
    return what == FUTEX_WAIT_PRIVATE ? futex_wait(word, value, timeout) : futex_wake(word);
}

/* ------------------------------------------------------------------- threads */

int sim_create(struct sim_thread **thread, const void *attributes, void *(*run)(void *), void *arg)
{
    *thread = sim_start(sim_current->proc, "library", run, arg);
    sim_maybe();
    return 0;
}

int sim_join(struct sim_thread *thread, void **unused)
{
    while (thread->state != SIM_ENDED)
        sim_sleep(thread, NULL, 0, SIM_NEVER);
    return 0;
}

pthread_t sim_self(void)
{
    return (pthread_t)(uintptr_t)sim_current;
}

int sim_setname(struct sim_thread *thread, const char *name)
{
    snprintf(thread->name, sizeof thread->name, "%s", name);
    return 0;
}

/* What needs nothing: options of sockets, signals, cancellation, fork. */
int sim_sigmask(void)
{
    return 0;
}

#define SIM_NOTHING(name) int name(void) __attribute__((alias("sim_sigmask")));
SIM_NOTHING(sim_setsockopt)
SIM_NOTHING(sim_setcancelstate)
SIM_NOTHING(sim_atfork)
SIM_NOTHING(sim_register_atfork)

int sim_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
    memset(set, 0, size);
    CPU_SET(0, set);
    CPU_SET(1, set);
    return 0;
}

/* ------------------------------------------------------- the process, and chance */

pid_t sim_getpid(void)
{
    return 1000 * sim_current->proc->number;
}

char *sim_getenv(const char *name)
{
    return NULL;
}

int sim_gethostname(char *out, size_t size)
{
    snprintf(out, size, "host-%d", sim_current->proc->number);
    return 0;
}

int sim_getentropy(void *out, size_t size)
{
    unsigned char *at = out;

    while (size-- > 0)
        *at++ = (unsigned char)sim_draw(SIM_ENTROPY);
    return 0;
}
