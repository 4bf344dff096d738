#include "base/spin.h"

#include <sched.h>
#ifndef __linux__
#include <unistd.h>
#endif

#define ONE_IN 128 /* one wait in this many sleeps at once; a wait that sleeps pays in this part of its time */
#define LATELY 8   /* `asleep` is the mean of about this many recent waits */
#define SAVED (4 * DIBS__NS_PER_MS) /* limit of the account, so that savings of long ago do not count */
#define READINGS 20 /* clock readings between two looks at the socket, which would keep the server off it */

static atomic_int polling; /* atomic; number of threads of this process that poll now */

/* The number of processors that this process may use. */
static int processors(void)
{
#ifdef __linux__
    cpu_set_t set;

    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
#else
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
#endif
}

void dibs__spin_init(struct dibs__spin *spin, const struct dibs__clock *clock, uint32_t most_us)
{
    bool passes = clock == &dibs__system_clock; /* a clock that stands still would never end the polling */
    int others = processors() - 1;

    spin->others = others > 1 ? others : 1;
    spin->most = passes ? most_us * INT64_C(1000) : 0;
    atomic_init(&spin->asleep, spin->most / 2);
    atomic_init(&spin->account, 0);
    atomic_init(&spin->polls, 0);
}

static void leave(void)
{
    atomic_fetch_sub_explicit(&polling, 1, memory_order_relaxed);
}

/* Counts one more thread that polls, until it leaves. False: no more threads may poll. */
static bool enter(const struct dibs__spin *spin)
{
    if (atomic_fetch_add_explicit(&polling, 1, memory_order_relaxed) < spin->others)
        return true;
    leave();
    return false;
}

/* Whether to poll in the next wait: the account allows it, and it is not the one wait in ONE_IN that sleeps at once. */
static bool may_poll(struct dibs__spin *spin)
{
    return atomic_load_explicit(&spin->account, memory_order_relaxed) >= 0 &&
           atomic_fetch_add_explicit(&spin->polls, 1, memory_order_relaxed) % ONE_IN != ONE_IN - 1;
}

void dibs__spin_begin(struct dibs__spinning *wait, struct dibs__spin *spin, const struct dibs__clock *clock)
{
    *wait = (struct dibs__spinning){.spin = NULL};
    if (!spin || spin->most == 0)
        return;
    bool may = may_poll(spin);
    wait->polls = may && enter(spin);
    if (may && !wait->polls)
        return;
    wait->spin = spin;
    wait->began = dibs__now(clock);
    wait->yield =
        wait->began + dibs__earlier(atomic_load_explicit(&spin->asleep, memory_order_relaxed), spin->most / 2);
    wait->end = wait->began + spin->most;
}

/* Lets the threads run that wait for this processor. Returns the time after that. */
static int64_t yield(struct dibs__spinning *wait, int64_t now, const struct dibs__clock *clock)
{
    sched_yield();
    int64_t after = dibs__now(clock);
    wait->yield = DIBS__NEVER;
    wait->end += after - now;
    return after;
}

bool dibs__spin_goes_on(struct dibs__spinning *wait, const struct dibs__clock *clock)
{
    int64_t now = 0;

    if (!wait->polls)
        return false;
    for (int i = 0; i < READINGS; i++)
        now = dibs__now(clock);
    if (now >= wait->yield && now < wait->end)
        now = yield(wait, now, clock);
    if (now < wait->end)
        return true;
    wait->polls = false;
    wait->gave_up = true;
    leave();
    return false;
}

static void pay(struct dibs__spin *spin, int64_t amount)
{
    int64_t account = atomic_load_explicit(&spin->account, memory_order_relaxed) + amount;

    account = dibs__earlier(account, SAVED);
    if (account < 0 && amount < 0)
        account = -spin->most;
    atomic_store_explicit(&spin->account, account, memory_order_relaxed);
}

static void note_sleep(struct dibs__spin *spin, int64_t took)
{
    int64_t asleep = atomic_load_explicit(&spin->asleep, memory_order_relaxed);

    atomic_store_explicit(&spin->asleep, asleep + (took - asleep) / LATELY, memory_order_relaxed);
    if (atomic_load_explicit(&spin->account, memory_order_relaxed) < 0)
        pay(spin, took / ONE_IN);
}

/*
 * No wait counts for more than the limit, whether its thread polled or slept. When other work wants the processors,
 * waits of both kinds are late now and then, and too few of those that sleep are measured for a fair mean of unlimited
 * times.
 */
void dibs__spin_end(struct dibs__spinning *wait, bool came, const struct dibs__clock *clock)
{
    struct dibs__spin *spin = wait->spin;

    if (wait->polls)
        leave();
    if (!spin || !came)
        return;
    int64_t took = dibs__earlier(dibs__now(clock) - wait->began, spin->most);
    if (wait->gave_up)
        pay(spin, -spin->most);
    else if (wait->polls)
        pay(spin, atomic_load_explicit(&spin->asleep, memory_order_relaxed) - took);
    else
        note_sleep(spin, took);
}

void dibs__spin_after_fork(void)
{
    atomic_store(&polling, 0);
}
