/* One hold, of a thread or of a task: the ask, the work under the lock, what is noted of it, and the release. */
#include <stdio.h>
#include <stdlib.h>

#include "fault/worker/worker.h"
#include "support/common/timing.h"

#define DEPTH_MAX 3
#define SHARERS_MAX 3 /* of every third name; the others may be shared by any number */
#define LONG_LEASE_MS 1000

/*
 * The leases of extensions; no other lease has such a length. plan.py has the same lists: the proxy knows an extension
 * by them.
 */
static const uint32_t short_leases[] = {211, 307, 401}, long_leases[] = {2411, 2707, 2903};

static void note_lost(hold_record *r)
{
    if (r->told_lost == 0)
        r->told_lost = clock_ns();
}

static void note_status(hold_record *r, dibs_status status)
{
    if (status == DIBS_LOST)
        note_lost(r);
    else if (status == DIBS_NOT_HELD)
        r->odd |= ODD_NOT_HELD;
}

/* Reads until when the lease is sure to last. */
static void read_end(worker_thread *t, const char *name, hold_record *r)
{
    uint64_t begin = clock_ns();
    dibs_hold hold;

    if (dibs_hold_of(t->worker->rt, name, &hold) == DIBS_OK)
        r->sure_until = begin + (uint64_t)hold.remaining_ms * 1000000;
}

/* The time is taken before the call, because what the call says was true at some later moment. */
static bool check(worker_thread *t, const char *name, hold_record *r, uint64_t rejected_at)
{
    uint64_t begin = clock_ns();
    dibs_status status = dibs_check(t->worker->rt, name);

    note_status(r, status);
    if (status != DIBS_OK)
        return false;
    if (r->told_lost != 0)
        r->odd |= ODD_LOSS_UNDONE;
    if (r->first_ok_end == 0)
        r->first_ok_end = clock_ns();
    r->last_ok = begin;
    if (rejected_at != 0)
        r->ok_after_rejected = begin;
    read_end(t, name, r);
    return true;
}

static void write_to_judge(worker_thread *t, hold_record *r, uint64_t *rejected_at)
{
    uint64_t begin = clock_ns();

    if (judge_accepts(t->worker->judge, r)) {
        r->last_accept = begin;
        if (r->accepted++ == 0)
            r->first_accept_end = clock_ns();
        return;
    }
    *rejected_at = clock_ns();
    r->rejected++;
}

static void read_fence(worker_thread *t, const char *name, hold_record *r)
{
    dibs_hold hold;

    note_status(r, dibs_hold_of(t->worker->rt, name, &hold));
    if (hold.fence == 0)
        r->odd |= ODD_NO_FENCE;
    else if (r->fence != 0 && r->fence != hold.fence)
        r->odd |= ODD_FENCE_CHANGED;
    r->fence = hold.fence;
}

/*
 * Most holds are short; some outlast a short lease many times, or last for one to two long ones; those with a fixed one
 * come near its end.
 */
static uint64_t draw_work_us(worker_thread *t, const hold_record *r)
{
    uint64_t kind = draw(t) % 1000;
    if (t->worker->holds) /* beside a burst, there must be a lease to renew all the time */
        return between(t, 300000, 1500000);
    bool is_long = r->lease_ms >= LONG_LEASE_MS;

    if ((r->flags & DIBS_FIXED_LEASE) && kind < (is_long ? 20 : 100))
        return between(t, r->lease_ms * 500, r->lease_ms * 1200);
    if (is_long && kind >= 980)
        return between(t, r->lease_ms * 1000, r->lease_ms * 2000);
    if (kind < 800)
        return between(t, 50, 3000);
    if (kind < 950)
        return between(t, 3000, 15000);
    if (kind < 990)
        return between(t, 15000, 120000);
    return between(t, 300000, 2500000);
}

static void lock_again(worker_thread *t, const char *name, hold_record *r, unsigned *depth)
{
    const dibs_lock_options options = {.flags = (uint32_t)r->flags & DIBS_SHARED};
    dibs_status status = dibs_lock_with(t->worker->rt, name, DIBS_WAIT_FOREVER, &options);

    note_status(r, status);
    if (status == DIBS_OK)
        ++*depth;
}

/* Until the extension is answered nothing is sure: the lease may become shorter. */
static void extend(worker_thread *t, const char *name, hold_record *r, uint32_t lease_ms)
{
    if (lease_ms > r->extended_ms)
        r->extended_ms = lease_ms;
    r->sure_until = 0;
    note_status(r, dibs_extend(t->worker->rt, name, lease_ms));
}

/* First to a length that is soon over, then to a longer one: the first request may arrive after the second. */
static void extend_twice(worker_thread *t, const char *name, hold_record *r)
{
    extend(t, name, r, short_leases[draw(t) % 3]);
    extend(t, name, r, long_leases[draw(t) % 3]);
}

static void hold_other(worker_thread *t, uint64_t phase, uint64_t outer);

/* Works until the time or the phase is over, or a while after it was told that the lease is lost. */
static void work(worker_thread *t, const char *name, hold_record *r, unsigned *depth, bool alone)
{
    uint64_t end = clock_ns() + draw_work_us(t, r) * 1000;
    uint64_t rejected_at = 0;
    int after_loss = 3;
    bool stretched = alone && chance(t, (unsigned)atomic_load(&t->worker->judge->stretches));

    read_fence(t, name, r);
    if (stretched) {
        extend_twice(t, name, r);
        end = clock_ns() + between(t, 800000, 1400000) * 1000;
    }
    while (after_loss > 0) {
        if (check(t, name, r, rejected_at))
            write_to_judge(t, r, &rejected_at);
        else
            after_loss--;
        if (clock_ns() >= end || atomic_load(&t->worker->judge->phase) != r->phase)
            break;
        if (*depth < DEPTH_MAX && chance(t, 15))
            lock_again(t, name, r, depth);
        if (alone && chance(t, 3))
            hold_other(t, r->phase, r->name);
        if (!stretched &&
            chance(t, 1)) /* not after extend_twice: a further extension would hide what came of those two */
            extend(t, name, r, (uint32_t)r->lease_ms);
        pause_us(between(t, 50, 3000));
    }
    read_fence(t, name, r);
}

/* ------------------------------------------------------------ first and last calls, maybe begun for a task */

/* The calls report losses as well. */
static dibs_status next_end(worker_thread *t, int64_t patience_ms)
{
    dibs_completion c = {.kind = DIBS_DONE_LOST};

    while (c.kind == DIBS_DONE_LOST)
        if (dibs_queue_take(t->queue, &c, 1, patience_ms) == 0) {
            dibs_task_cancel(t->task);
            patience_ms = DIBS_WAIT_FOREVER;
        }
    return c.status;
}

/* Some calls are cancelled. */
static dibs_status lock_first(worker_thread *t, const char *name, int64_t wait_ms, const dibs_lock_options *options)
{
    if (!t->task || chance(t, 50))
        return dibs_lock_with(t->worker->rt, name, wait_ms, options);
    dibs_task_leave(t->task);
    dibs_status status = dibs_lock_begin(t->task, name, wait_ms, options, t->queue, NULL);
    if (status == DIBS_OK)
        status = next_end(t, chance(t, 30) ? (int64_t)between(t, 0, 300) : DIBS_WAIT_FOREVER);
    if (dibs_task_enter(t->task) != DIBS_OK)
        abort();
    return status;
}

static dibs_status unlock_last(worker_thread *t, const char *name)
{
    if (!t->task || chance(t, 50))
        return dibs_unlock(t->worker->rt, name);
    dibs_task_leave(t->task);
    dibs_status status = dibs_unlock_begin(t->task, name, t->queue, NULL);
    if (status == DIBS_OK)
        status = next_end(t, DIBS_WAIT_FOREVER);
    if (dibs_task_enter(t->task) != DIBS_OK)
        abort();
    return status;
}

static void leave(worker_thread *t, const char *name, hold_record *r, unsigned depth)
{
    while (depth > 1) {
        note_status(r, dibs_unlock(t->worker->rt, name));
        depth--;
    }
    r->left = clock_ns();
    atomic_store(&r->state, HOLD_LEAVING);
    r->unlock_status = unlock_last(t, name);
    r->left_end = clock_ns();
    note_status(r, (dibs_status)r->unlock_status);
}

/* A lock from the ask to the end of the last unlock. alone: another may be taken beside it, or its lease extended
 * twice. */
static void hold(worker_thread *t, hold_record *r, bool alone)
{
    char name[64];
    unsigned depth = 1;
    dibs_lock_options options = {.lease_ms = (uint32_t)r->lease_ms,
                                 .flags = (uint32_t)r->flags & ((1u << HOLD_LIMIT) - 1),
                                 .limit = (uint32_t)r->flags >> HOLD_LIMIT};

    snprintf(name, sizeof name, "p%u:n%u", (unsigned)r->phase, (unsigned)r->name);
    r->asked = clock_ns();
    publish_record(t, r);
    r->status = lock_first(t, name, r->wait_ms, &options);
    r->returned = clock_ns();
    if (r->status == DIBS_OK) {
        atomic_store(&r->state, HOLD_HELD);
        work(t, name, r, &depth, alone);
        leave(t, name, r, depth);
    }
    atomic_store(&r->state, HOLD_DONE);
}

static void draw_lease(worker_thread *t, hold_record *r)
{
    uint64_t lease = atomic_load(&t->worker->judge->lease_ms);
    uint64_t kind = draw(t) % 100;

    r->lease_ms = kind < 70 ? lease : kind < 85 ? lease / 2 : lease + lease / 2;
    r->flags = chance(t, 25) && t->worker->url_count == 1 ? DIBS_FAIR : 0; /* a quorum has no order */
    if (chance(t, 15))
        r->flags |= DIBS_FIXED_LEASE;
    /* All sharers of a lock give the same limit; a quorum has none. */
    if (chance(t, (unsigned)t->worker->judge->shared))
        r->flags |= DIBS_SHARED | (t->worker->url_count == 1 && r->name % 3 == 2 ? SHARERS_MAX << HOLD_LIMIT : 0);
}

static void draw_wait(worker_thread *t, hold_record *r)
{
    uint64_t kind = draw(t) % 100;

    r->wait_ms = kind < 45 ? DIBS_WAIT_FOREVER : kind < 80 ? (int64_t)between(t, 1, 2000) : 0;
}

/* A second lock while one is held: never waits for ever, as two threads might do so for each other. */
static void hold_other(worker_thread *t, uint64_t phase, uint64_t outer)
{
    uint64_t names = t->worker->judge->names;

    if (names < 2)
        return;
    hold_record *r = begin_record(t);
    r->phase = phase;
    r->name = (outer + between(t, 1, names - 1)) % names;
    draw_lease(t, r);
    r->wait_ms = (int64_t)between(t, 0, 20);
    hold(t, r, false);
}

/*
 * A name and a lease. Where leases are kept, the name is mostly one of the process's own, and its lease is always the
 * same: else the process would keep none. Other processes ask for the first of its names alone, which it locks most
 * often, so that they meet. True: the name is the process's own.
 */
static bool draw_lock(worker_thread *t, hold_record *r)
{
    const judge_head *judge = t->worker->judge;
    bool keeps = judge->keep_ms > 0;

    if (keeps && draw(t) % 200 != 0) {
        uint64_t nth = chance(t, 25) ? 0 : draw(t) % (judge->names / judge->processes);
        r->name = t->worker->process + nth * judge->processes;
        r->lease_ms = atomic_load(&judge->lease_ms);
        return true;
    }
    r->name = draw(t) % (keeps ? judge->processes : judge->names);
    draw_lease(t, r);
    return false;
}

void work_round(worker_thread *t, uint64_t phase)
{
    hold_record *r = begin_record(t);

    r->phase = phase;
    bool is_own = draw_lock(t, r);
    draw_wait(t, r);
    /* beside a burst there are only threads, no tasks: their cost would be another matter */
    bool as_task = !t->worker->holds && chance(t, 30) && dibs_task_new(t->worker->rt, &t->task) == DIBS_OK;
    if (as_task && dibs_task_enter(t->task) != DIBS_OK)
        abort();
    hold(t, r, !is_own);
    if (as_task)
        dibs_task_free(t->task);
    t->task = NULL;
    if (r->status > DIBS_TIMEOUT)
        pause_us(
            between(t, 3000, 20000)); /* the call failed at once: a pause, so that this thread does not only fail */
}
