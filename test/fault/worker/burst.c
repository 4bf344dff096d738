/* A burst: many locks are taken and all released at once, beside a lease that might be lost by that. */
#include <stdio.h>
#include <stdlib.h>

#include "fault/worker/worker.h"
#include "support/common/timing.h"

#define BURST_THREADS 4
#define BURST_LEASE_MS 120000 /* so long that no lease is renewed, and that only a release can end one */

typedef struct burst_taker {
    pthread_t id;
    worker *worker;
    dibs_runtime *rt;
    unsigned index;
    pthread_barrier_t *taken, *closed;
} burst_taker;

static void take_share(const burst_taker *t)
{
    const dibs_lock_options options = {.lease_ms = BURST_LEASE_MS};
    worker *w = t->worker;
    char name[64];

    for (uint64_t i = t->index; i < w->holds; i += BURST_THREADS) {
        snprintf(name, sizeof name, "b%u:%u", w->process, (unsigned)i);
        if (dibs_lock_with(t->rt, name, 5000, &options) == DIBS_OK)
            atomic_fetch_add(&w->judge->burst.taken, 1);
    }
}

/* Ends while it holds all its locks, or after their runtime was closed. */
static void *take_burst(void *arg)
{
    burst_taker *t = arg;

    take_share(t);
    pthread_barrier_wait(t->taken);
    if (t->worker->closes)
        pthread_barrier_wait(t->closed);
    return NULL;
}

/* Whether the thread of that number holds a lease that is renewed. */
static bool holds_renewed(worker *w, unsigned thread)
{
    judge_slot *slot = slot_of(w->judge, w->process, thread);
    uint64_t head = atomic_load(&slot->head);

    if (head == 0)
        return false;
    hold_record *r = (hold_record *)(slot + 1) + (head - 1) % w->judge->capacity;
    return atomic_load(&r->state) == HOLD_HELD && !(r->flags & DIBS_FIXED_LEASE);
}

static bool some_hold_renewed(worker *w)
{
    bool holds = false;

    for (unsigned i = 0; i < w->judge->threads && !holds; i++)
        holds = holds_renewed(w, i);
    return holds;
}

#define BESIDE_MS 5000 /* for so long the burst waits for a lease that it might endanger */

/* The time now, at a moment when a lease of the process is held; after BESIDE_MS, at any moment. */
static uint64_t time_beside_a_lease(worker *w)
{
    uint64_t limit = clock_ns() + BESIDE_MS * UINT64_C(1000000), time;

    do {
        while (!some_hold_renewed(w) && clock_ns() < limit)
            pause_us(200);
        time = clock_ns();
    } while (!some_hold_renewed(w) && time < limit);
    return time;
}

/* Requires that the takers have taken what they can. */
static void end_burst(worker *w, burst_taker *takers, pthread_barrier_t *closed)
{
    judge_burst *burst = &w->judge->burst;

    burst->ending = time_beside_a_lease(w);
    atomic_store(&burst->state, BURST_ENDING);
    if (w->closes)
        dibs_close(takers[0].rt);
    burst->ended = clock_ns();
    if (w->closes)
        pthread_barrier_wait(closed);
    for (unsigned i = 0; i < BURST_THREADS; i++)
        pthread_join(takers[i].id, NULL);
    if (!w->closes)
        burst->ended = clock_ns();
    atomic_store(&burst->state, BURST_ENDED);
}

void make_burst(worker *w)
{
    burst_taker takers[BURST_THREADS];
    pthread_barrier_t taken, closed;
    dibs_runtime *rt = w->rt;

    if (w->closes && open_runtime(w, &rt) != DIBS_OK)
        return;
    pthread_barrier_init(&taken, NULL, BURST_THREADS + 1);
    pthread_barrier_init(&closed, NULL, BURST_THREADS + 1);
    atomic_store(&w->judge->burst.state, BURST_TAKING);
    for (unsigned i = 0; i < BURST_THREADS; i++) {
        takers[i] = (burst_taker){.worker = w, .rt = rt, .index = i, .taken = &taken, .closed = &closed};
        if (pthread_create(&takers[i].id, NULL, take_burst, &takers[i]) != 0)
            abort();
    }
    pthread_barrier_wait(&taken);
    end_burst(w, takers, &closed);
    pthread_barrier_destroy(&taken);
    pthread_barrier_destroy(&closed);
}
