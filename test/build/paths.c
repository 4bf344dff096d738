/*
 * Prints which functions of the library five calls enter: for each call several lines, "NAME ADDRESS ADDRESS...", one
 * for each time that it was made. The library calls the two functions at the top (gcc's -finstrument-functions).
 */
#define _POSIX_C_SOURCE 200809L

#include <dibs.h>

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 15, MOST = 1 << 16, LEASE_MS = 20000, RENEW_MS = 60 };

static void *entered[MOST];
static atomic_size_t count;
static atomic_bool others; /* what the threads of the library enter is noted */
static _Thread_local bool this_thread, is_own;

void __cyg_profile_func_enter(void *function, void *caller);
void __cyg_profile_func_exit(void *function, void *caller);

void __cyg_profile_func_enter(void *function, void *caller)
{
    (void)caller;
    if (!this_thread && (is_own || !others))
        return;
    size_t i = atomic_fetch_add(&count, 1);
    if (i < MOST)
        entered[i] = function;
}

void __cyg_profile_func_exit(void *function, void *caller)
{
    (void)function;
    (void)caller;
}

static void must(dibs_status status)
{
    if (status == DIBS_OK)
        return;
    fprintf(stderr, "%s: %s\n", dibs_status_name(status), dibs_last_error());
    exit(1);
}

static void tell(const char *name)
{
    size_t n = atomic_load(&count);

    if (n == 0 || n > MOST)
        exit(2);
    printf("%s", name);
    for (size_t i = 0; i < n; i++)
        printf(" %" PRIxPTR, (uintptr_t)entered[i]);
    printf("\n");
    atomic_store(&count, 0);
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static void lock_and_unlock(dibs_runtime *rt, int round)
{
    char name[32];

    snprintf(name, sizeof name, "name%d", round);
    this_thread = true;
    must(dibs_lock(rt, name));
    this_thread = false;
    tell("uncontended-lock");
    this_thread = true;
    must(dibs_lock(rt, name));
    this_thread = false;
    tell("nested-lock");
    must(dibs_unlock(rt, name));
    this_thread = true;
    must(dibs_unlock(rt, name));
    this_thread = false;
    tell("last-unlock");
}

static void *wait_for_it(void *rt)
{
    is_own = this_thread = true;
    must(dibs_lock(rt, "pushed"));
    this_thread = false;
    must(dibs_unlock(rt, "pushed"));
    return NULL;
}

static uint32_t waiters(dibs_runtime *rt)
{
    dibs_owner owner;

    must(dibs_query(rt, "pushed", &owner));
    return owner.waiters;
}

/* The waiter is in the queue, and sleeps. */
static void lock_by_push(dibs_runtime *rt, dibs_runtime *other)
{
    pthread_t thread;

    must(dibs_lock(other, "pushed"));
    if (pthread_create(&thread, NULL, wait_for_it, rt) != 0)
        exit(3);
    while (waiters(other) == 0)
        pause_ms(1);
    pause_ms(20);
    must(dibs_unlock(other, "pushed"));
    pthread_join(thread, NULL);
    tell("lock-by-push");
}

static uint64_t renewed(dibs_runtime *rt)
{
    dibs_stats stats;

    dibs_stats_get(rt, &stats);
    return stats.renewed;
}

/* All that the threads of the library do, from the end of one renewal to that of the next. */
static void renew(dibs_runtime *rt)
{
    must(dibs_lock(rt, "renewed"));
    for (uint64_t before = renewed(rt); renewed(rt) < before + 2;)
        pause_ms(1);
    atomic_store(&count, 0);
    atomic_store(&others, true);
    for (uint64_t before = renewed(rt); renewed(rt) == before;)
        pause_ms(1);
    pause_ms(2);
    atomic_store(&others, false);
    tell("renewal");
    must(dibs_unlock(rt, "renewed"));
}

int main(void)
{
    dibs_config config = {.lease_ms = LEASE_MS, .renew_ms = RENEW_MS};
    dibs_runtime *rt, *other;

    is_own = true;
    must(dibs_open(&rt, &config));
    must(dibs_open(&other, NULL));
    lock_by_push(rt, other); /* all connections stand, and all scripts are known */
    renew(rt);
    for (int i = 0; i < ROUNDS; i++) {
        lock_and_unlock(rt, i);
        lock_by_push(rt, other);
        renew(rt);
    }
    dibs_close(other);
    dibs_close(rt);
    return 0;
}
