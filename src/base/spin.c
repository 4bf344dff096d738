#include "base/spin.h"

#include <sched.h>
#ifndef __linux__
#include <unistd.h>
#endif

#define US INT64_C(1000)
#define SLACK (10 * US)   /* a thread polls so much longer than twice the usual time */
#define PUT_OFF (50 * US) /* a thread that polls reads the clock more often than this, unless it does not run */
#define YIELD (20 * US)   /* after so long a thread that polls once lets others run that wait for its processor */
#define PAUSE_LEAST DIBS__NS_PER_MS
#define PAUSE_MOST (1000 * DIBS__NS_PER_MS)
#define WORTH 5   /* polling that went well for so many times the last pause was worth it */
#define CREDIT 16 /* the most credit: one for each wait that polling saw the end of */
#define MISS 8    /* what a miss takes of it */

static atomic_int polling; /* atomic; the threads of this process that poll */

/* The processors that this process may use. */
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

    spin->others = processors() - 1;
    spin->most = passes ? most_us * US : 0;
    atomic_init(&spin->usual, spin->most / 2);
    atomic_init(&spin->until, 0);
    atomic_init(&spin->well, 0);
    atomic_init(&spin->pause, PAUSE_LEAST);
    atomic_init(&spin->credit, CREDIT);
}

/* As many threads poll as may. */
static bool is_crowded(const struct dibs__spin *spin)
{
    if (atomic_fetch_add_explicit(&polling, 1, memory_order_relaxed) < spin->others)
        return false;
    atomic_fetch_sub_explicit(&polling, 1, memory_order_relaxed);
    return true;
}

bool dibs__spin_begin(struct dibs__spinning *spinning, struct dibs__spin *spin, const struct dibs__clock *clock)
{
    if (spin->most == 0)
        return false;
    int64_t now = dibs__now(clock), most = 2 * atomic_load_explicit(&spin->usual, memory_order_relaxed) + SLACK;
    if (now < atomic_load_explicit(&spin->until, memory_order_relaxed) || is_crowded(spin))
        return false;
    *spinning = (struct dibs__spinning){spin, now, now, now + (most < spin->most ? most : spin->most), false, false};
    return true;
}

bool dibs__spin_goes_on(struct dibs__spinning *spinning, const struct dibs__clock *clock)
{
    int64_t now = dibs__now(clock);

    if (!spinning->yielded && now - spinning->began > YIELD) {
        spinning->yielded = true;
        sched_yield();
    }
    spinning->put_off = now - spinning->last > PUT_OFF;
    spinning->last = now;
    return !spinning->put_off && now < spinning->end;
}

/* Polling does no good now. The pause grows unless polling has gone well for long since the last one. */
static void pause_polling(struct dibs__spin *spin, int64_t now)
{
    int64_t pause = atomic_load_explicit(&spin->pause, memory_order_relaxed);
    int64_t well = atomic_load_explicit(&spin->well, memory_order_relaxed) -
                   atomic_load_explicit(&spin->until, memory_order_relaxed);

    pause = well < WORTH * pause ? pause * 2 : PAUSE_LEAST;
    pause = pause > PAUSE_MOST ? PAUSE_MOST : pause;
    atomic_store_explicit(&spin->pause, pause, memory_order_relaxed);
    atomic_store_explicit(&spin->until, now + pause, memory_order_relaxed);
    atomic_store_explicit(&spin->credit, MISS, memory_order_relaxed);
}

static void note_success(struct dibs__spin *spin, int64_t now, int64_t took)
{
    int64_t usual = atomic_load_explicit(&spin->usual, memory_order_relaxed);
    int credit = atomic_load_explicit(&spin->credit, memory_order_relaxed);

    atomic_store_explicit(&spin->usual, usual + (took - usual) / 8, memory_order_relaxed);
    atomic_store_explicit(&spin->well, now, memory_order_relaxed);
    if (credit < CREDIT)
        atomic_store_explicit(&spin->credit, credit + 1, memory_order_relaxed);
}

void dibs__spin_end(struct dibs__spinning *spinning, bool seen)
{
    struct dibs__spin *spin = spinning->spin;

    atomic_fetch_sub_explicit(&polling, 1, memory_order_relaxed);
    if (seen && !spinning->put_off)
        note_success(spin, spinning->last, spinning->last - spinning->began);
    else if (spinning->put_off || atomic_fetch_sub_explicit(&spin->credit, MISS, memory_order_relaxed) <= MISS)
        pause_polling(spin, spinning->last);
}

void dibs__spin_after_fork(void)
{
    atomic_store(&polling, 0);
}
