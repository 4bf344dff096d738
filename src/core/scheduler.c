/*
 * The scheduler has no mutex. A thread that drains sleeps by `drainer` until
 *     not `draining`, or its deadline.
 * The scheduler's thread ends the drain if it finds nothing pending between two calls of `attend`; within a call, it
 * may be about to bring work itself. A drain that begins after that look rings the pipe, so the thread looks once more.
 *
 * How no deadline is slept over, without a mutex: `planned` is the time until which the scheduler's thread sleeps, or
 * is about to sleep.
 *
 *     the scheduler's thread                  a thread that brings new work
 *     ----------------------                  -----------------------------
 *     (1) planned = the most it may sleep     (a) makes its work known to interest, under the mutex
 *     (2) asks interest, which takes the           of that work
 *         mutex of each kind of work          (b) reads planned; if its time is earlier, sets
 *     (3) planned = the earliest deadline          planned to that and rings the pipe
 *     (4) poll(2) until planned
 *     (5) planned = AWAKE
 *     (6) attends, then goes on with (1)
 *
 * Either (a) comes before interest takes the mutex in (2): then the deadline counts in (3). Or (a) comes after: then
 * (1) happened before (b), through that mutex, so (b) reads a value that was written by (1), by (3), by a later (5) or
 * by another thread's (b).
 *   - By (1), (3) or another (b): the value is a time until which the thread may really sleep. If the new time is
 *     earlier, the pipe is rung, and poll returns at once, even if (3) overwrites what (b) wrote. If the new time is
 * not earlier, the thread is awake in time without being rung: (3) never sets a later time than (1), and the thread
 * that wrote in another (b) has rung the pipe.
 *   - By (5): the thread is awake and comes to (2) again.
 * AWAKE is earlier than any time, so work that is brought while the thread is awake does not ring.
 *
 * When it starts, the thread first rests for HEAD_START_MS: what it would begin at once, such as connections of its
 * own, can wait, and the program's first call needs the processor. While `resting`, dibs__scheduler_wake does not ring.
 * That is sound for the same reason: `resting` ends before the first (1).
 *
 * `requested` is the time of the last (b), whether that rang or not, and even if its work is gone by now; it bounds the
 * sleep in (1). Without it a loop of lock and unlock would ring for each new lease, because nothing else is due. With
 * it, that loop rings once, and after that the thread wakes up needlessly no more often than a single lease that is
 * held would make it.
 */
#include "core/scheduler.h"

#include <stdlib.h>

#include "base/sleeper.h"
#include "base/thread.h"
#include "base/wake.h"

#define AWAKE INT64_MIN
#define HEAD_START_MS 2

struct dibs__scheduler {
    const struct dibs__clock *clock; /* read-only */
    struct dibs__polled polled;      /* read-only after start */
    struct pollfd *fds;              /* the scheduler thread's; the first one is that of `wake` */
    pthread_t thread;                /* read-only after start */
    struct dibs__wake wake;          /* has its own atomic */
    atomic_bool resting;             /* atomic; the thread has not begun its loop */
    atomic_bool ending;              /* atomic */
    _Atomic int64_t planned;         /* atomic; see the head of this file */
    _Atomic int64_t requested;       /* atomic; the time of the last work that was brought; see the head of this file */
    atomic_bool draining;            /* atomic; a thread waits, by `drainer`, until nothing is pending */
    struct dibs__sleeper drainer;    /* has its own guard */
};

/* ----------------------------------------------------------- the thread's loop */

static void tell_drained(struct dibs__scheduler *s)
{
    if (!atomic_load(&s->draining) || s->polled.pending(s->polled.context) > 0)
        return;
    atomic_store(&s->draining, false);
    dibs__sleeper_wake(&s->drainer);
}

/* Steps (1) to (3): decides until when to sleep. Returns the number of descriptors. */
static size_t plan(struct dibs__scheduler *s, int64_t *until)
{
    int64_t requested = atomic_load(&s->requested), deadline = DIBS__NEVER;
    int64_t most = requested > dibs__now(s->clock) ? requested : DIBS__NEVER;

    atomic_store(&s->planned, most);
    size_t count = s->polled.interest(s->polled.context, s->fds + 1, &deadline);
    DIBS__REQUIRE(count <= s->polled.fd_max);
    *until = dibs__earlier(most, deadline);
    atomic_store(&s->planned, *until);
    return count;
}

/* Rests by the machine's clock, so that the rest also ends with a clock that a test moves. */
static void rest(struct dibs__scheduler *s)
{
    struct pollfd fd = {.fd = s->wake.fds[0], .events = POLLIN};

    poll(&fd, 1, HEAD_START_MS);
    atomic_store(&s->resting, false);
}

static void *run(void *arg)
{
    struct dibs__scheduler *s = arg;
    int64_t until;

    dibs__thread_set_name("dibs-scheduler");
    rest(s);
    while (!atomic_load(&s->ending)) {
        size_t count = plan(s, &until);
        tell_drained(s);
        s->fds[0] = (struct pollfd){.fd = s->wake.fds[0], .events = POLLIN};
        s->clock->poll(s->clock, s->fds, (nfds_t)count + 1, until);
        atomic_store(&s->planned, AWAKE);
        if (s->fds[0].revents) /* only if needed, since it costs a system call while a thread waits for what the store
                                  received */
            dibs__wake_quiet(&s->wake);
        s->polled.attend(s->polled.context, s->fds + 1, count);
    }
    return NULL;
}

/* ---------------------------------------------------------------- other threads */

void dibs__scheduler_wake(struct dibs__scheduler *s)
{
    if (!atomic_load(&s->resting))
        dibs__wake_ring(&s->wake);
}

void dibs__scheduler_wake_by(struct dibs__scheduler *s, int64_t when)
{
    int64_t planned = atomic_load(&s->planned);

    if (atomic_load_explicit(&s->requested, memory_order_relaxed) != when)
        atomic_store_explicit(&s->requested, when, memory_order_relaxed);
    while (when < planned) {
        if (!atomic_compare_exchange_weak(&s->planned, &planned, when))
            continue;
        dibs__wake_ring(&s->wake);
        return;
    }
}

void dibs__scheduler_drain(struct dibs__scheduler *s, int64_t deadline)
{
    DIBS__REQUIRE(!atomic_load(&s->draining));
    atomic_store(&s->draining, true);
    dibs__wake_ring(&s->wake);
    while (atomic_load(&s->draining) && dibs__now(s->clock) < deadline)
        dibs__sleeper_sleep(&s->drainer, s->clock, deadline);
    atomic_store(&s->draining, false);
}

/* -------------------------------------------------------------------- lifecycle */

struct dibs__scheduler *dibs__scheduler_new(const struct dibs__clock *clock)
{
    struct dibs__scheduler *s = calloc(1, sizeof *s);

    if (!s)
        return NULL;
    s->clock = clock;
    atomic_init(&s->planned, AWAKE);
    atomic_init(&s->resting, true);
    if (dibs__wake_init(&s->wake))
        return s;
    free(s);
    return NULL;
}

bool dibs__scheduler_start(struct dibs__scheduler *s, const struct dibs__polled *polled)
{
    DIBS__REQUIRE(!s->fds);
    s->polled = *polled;
    s->fds = calloc(polled->fd_max + 1, sizeof *s->fds);
    return s->fds && dibs__thread_start(&s->thread, run, s);
}

void dibs__scheduler_stop(struct dibs__scheduler *s)
{
    DIBS__REQUIRE(s->fds && !atomic_load(&s->ending));
    atomic_store(&s->ending, true);
    dibs__wake_ring(&s->wake);
    pthread_join(s->thread, NULL);
}

void dibs__scheduler_free(struct dibs__scheduler *s)
{
    if (!s)
        return;
    dibs__wake_free(&s->wake);
    free(s->fds);
    free(s);
}
