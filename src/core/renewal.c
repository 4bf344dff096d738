/*
 * Lock discipline: `mutex` guards the heap, the list and the fields of leases
 * that lease.h says. It is a leaf: neither the store nor a callback is called
 * while it is held.
 *
 * The scheduler sleeps in poll(2) until `planned` (the time of the first thing
 * it knows to do) or a ringing of the pipe; who gives it something earlier
 * rings. A thread that extends a lease sleeps on `changed` until
 *     lease->extending is DONE, or its deadline;
 * one that is about to release a lease, until
 *     it is not in_doubt, or not kept alive any more, or its deadline;
 * one that drains, until
 *     the store has nothing unconfirmed, or its deadline.
 */
#include "core/renewal.h"

#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "base/wake.h"

#define RETRY_LEAST_MS 5 /* a failed renewal is tried again after a 20th of the lease, within these bounds */
#define RETRY_MOST_MS 1000
#define EXTEND_RETRY_MS 10 /* somebody waits for it */

DIBS__MUTEX_CLASS(dibs__renewals_mutex);

struct dibs__renewals {
    struct dibs__renewal_config config; /* read-only */
    struct dibs__store *store;          /* read-only after start */
    pthread_t thread;                   /* read-only after start */
    struct pollfd *fds;                 /* the scheduler thread's */
    struct dibs__wake wake;             /* has its own atomic */
    atomic_bool ending;
    struct dibs__mutex mutex;
    struct dibs__lease **heap;             /* guarded by mutex; by due, the earliest first */
    size_t heap_count, heap_cap, reserved; /* guarded by mutex */
    struct dibs__lease *all;               /* guarded by mutex; all leases that threads hold, lost ones too */
    int64_t planned;                       /* guarded by mutex */
    int64_t hint;  /* guarded by mutex; the last requested wake-up: kept, so that lock/unlock loops need not ring */
    bool draining; /* guarded by mutex */
    pthread_cond_t changed;
    struct dibs__error last_failure; /* guarded by mutex; of a renewal */
};

/* --------------------------------------------------------------------- heap */

static void place(struct dibs__renewals *r, struct dibs__lease *lease, size_t at)
{
    r->heap[at] = lease;
    lease->heap_place = at;
}

/* Requires mutex. Puts the lease at `at`, or where it belongs from there. */
static void sift(struct dibs__renewals *r, struct dibs__lease *lease, size_t at)
{
    while (at > 0 && r->heap[(at - 1) / 2]->due > lease->due) {
        place(r, r->heap[(at - 1) / 2], at);
        at = (at - 1) / 2;
    }
    for (size_t child; (child = 2 * at + 1) < r->heap_count; at = child) {
        if (child + 1 < r->heap_count && r->heap[child + 1]->due < r->heap[child]->due)
            child++;
        if (r->heap[child]->due >= lease->due)
            break;
        place(r, r->heap[child], at);
    }
    place(r, lease, at);
}

static bool scheduled(const struct dibs__lease *lease)
{
    return lease->heap_place != DIBS__NOT_SCHEDULED;
}

static bool extending(const struct dibs__lease *lease)
{
    return lease->extending != DIBS__NOT_EXTENDING && lease->extending != DIBS__EXTEND_DONE;
}

static bool extension_sent(const struct dibs__lease *lease)
{
    return lease->extending == DIBS__EXTEND_SENT || lease->extending == DIBS__EXTEND_LEFT;
}

/* Requires mutex. The lease is not kept alive any more; whoever extends it learns that it is lost. */
static void unschedule(struct dibs__renewals *r, struct dibs__lease *lease)
{
    if (!scheduled(lease))
        return;
    size_t at = lease->heap_place;
    struct dibs__lease *last = r->heap[--r->heap_count];
    lease->heap_place = DIBS__NOT_SCHEDULED;
    if (last != lease)
        sift(r, last, at);
    bool awaited = extending(lease);
    if (awaited) {
        lease->extending = DIBS__EXTEND_DONE;
        lease->extend_status = DIBS_LOST;
    }
    if (awaited || lease->in_doubt)
        pthread_cond_broadcast(&r->changed);
}

/* Requires mutex. Works out when the lease is due, and moves it there. */
static void reschedule(struct dibs__renewals *r, struct dibs__lease *lease)
{
    int64_t due = atomic_load(&lease->deadline); /* LOST is 0: at once */

    if (lease->risk_at < due)
        due = lease->risk_at;
    if (!lease->in_flight && lease->renew_at < due)
        due = lease->renew_at;
    lease->due = due;
    sift(r, lease, lease->heap_place);
    if (due < r->planned) {
        r->planned = r->hint = due;
        dibs__wake_ring(&r->wake);
    }
}

/* -------------------------------------------------------------------- times */

static int64_t period(const struct dibs__renewals *r, uint32_t lease_ms)
{
    int64_t third = lease_ms * DIBS__NS_PER_MS / 3;
    int64_t wanted = r->config.renew_ms * DIBS__NS_PER_MS;

    return wanted > 0 && wanted < third ? wanted : third;
}

static int64_t retry_pause(uint32_t lease_ms)
{
    int64_t ms = lease_ms / 20;

    ms = ms < RETRY_LEAST_MS ? RETRY_LEAST_MS : ms > RETRY_MOST_MS ? RETRY_MOST_MS : ms;
    return ms * DIBS__NS_PER_MS;
}

/* How long a renewal makes a lease last for sure: an extension that may still arrive may cut it short. */
static uint32_t sure_ms(uint32_t lease_ms, uint32_t cut_ms)
{
    return cut_ms > 0 && cut_ms < lease_ms ? cut_ms : lease_ms;
}

/* Requires mutex. When a renewal that failed is tried again: in time, also where an extension was to cut the lease. */
static int64_t retry_at(const struct dibs__lease *lease, int64_t now)
{
    int64_t pause = retry_pause(sure_ms(lease->lease_ms, lease->cut_ms)),
            left = (atomic_load(&lease->deadline) - now) / 3;
    int64_t least = RETRY_LEAST_MS * DIBS__NS_PER_MS;

    return now + (left >= pause ? pause : left > least ? left : least);
}

/* Requires mutex. The lease was proved by a request sent at proof. */
static void set_times(const struct dibs__renewals *r, struct dibs__lease *lease, int64_t proof)
{
    uint32_t sure = sure_ms(lease->lease_ms, lease->cut_ms);

    lease->renew_at = lease->fixed ? DIBS__NEVER : proof + period(r, sure);
    lease->risk_at = lease->fixed ? DIBS__NEVER : proof + sure * DIBS__NS_PER_MS / 2;
}

/* -------------------------------------------------------- the thread's rounds */

/* A lease of which something is to be told, with a reference. */
struct told {
    struct dibs__lease *lease;
    bool failed; /* its renewals failed since it was last proved, which is why */
};

/* What one round found to do, once the mutex is let go of. */
struct round {
    struct told lost[DIBS__BATCH_MAX], at_risk[DIBS__BATCH_MAX];
    size_t lost_count, risk_count;
    struct dibs__batch *batch;
    bool more;
};

static void batch_done(struct dibs__batch *batch, const struct dibs__error *error);

/* Requires mutex. Where another server proved the lease than is asked to renew it, that is to be done at once. */
static void doubt(const struct dibs__renewals *r, struct dibs__lease *lease)
{
    if (!r->store->ops->is_unproven(r->store, &lease->memo))
        return;
    lease->in_doubt = true;
    lease->renew_at = 0;
}

/* Requires mutex. Adds the lease to the round's batch; false where no memory for one is to be had. */
static bool add_to_batch(struct dibs__renewals *r, struct round *round, struct dibs__lease *lease, int64_t now)
{
    if (!round->batch) {
        round->batch = calloc(1, sizeof *round->batch);
        if (!round->batch)
            return false;
        round->batch->done = batch_done;
        round->batch->context = r;
    }
    uint32_t lease_ms = lease->fixed ? (uint32_t)dibs__lease_remaining_ms(lease, now) + 1 : lease->lease_ms;
    bool extension = lease->extending == DIBS__EXTEND_ASKED;
    if (extension) {
        lease->extending = DIBS__EXTEND_SENT;
        atomic_store_explicit(&lease->extended, true, memory_order_relaxed);
        lease_ms = lease->extend_ms;
        dibs__lease_move(lease, dibs__lease_deadline(now, lease_ms), true, now);
    }
    round->batch->items[round->batch->count++] = (struct dibs__renewal){
        .name = lease->name,
        .token = lease->token,
        .lease_ms = lease_ms,
        .fence = lease->store_fence,
        .extension = extension,
        .memo = lease->memo,
        .cut_ms = lease->cut_ms,
        .context = lease,
    };
    dibs__lease_ref(lease);
    lease->in_flight = true;
    return true;
}

/* Requires mutex. */
static struct told to_tell(struct dibs__lease *lease)
{
    dibs__lease_ref(lease);
    return (struct told){lease, lease->failed};
}

/* Requires mutex. The lease is due: sorts it into the round. */
static void look_at(struct dibs__renewals *r, struct round *round, struct dibs__lease *lease, int64_t now)
{
    if (dibs__lease_is_lost(lease, now)) {
        unschedule(r, lease);
        round->lost[round->lost_count++] = to_tell(lease);
        return;
    }
    if (now >= lease->risk_at) {
        lease->risk_at = DIBS__NEVER;
        round->at_risk[round->risk_count++] = to_tell(lease);
    }
    if (now >= lease->renew_at && !lease->in_flight && !add_to_batch(r, round, lease, now))
        lease->renew_at = retry_at(lease, now);
    reschedule(r, lease);
}

/* Takes what is due, at most as much as a round holds. */
static void collect(struct dibs__renewals *r, struct round *round)
{
    int64_t now = dibs__now(r->config.clock);

    *round = (struct round){.batch = NULL};
    dibs__renewals_mutex_lock(&r->mutex);
    r->planned = 0; /* awake: nobody needs to ring for an earlier time */
    for (size_t i = 0; i < DIBS__BATCH_MAX && r->heap_count > 0 && r->heap[0]->due <= now; i++)
        look_at(r, round, r->heap[0], now);
    round->more = r->heap_count > 0 && r->heap[0]->due <= now;
    dibs__renewals_mutex_unlock(&r->mutex);
}

static void carry_out(struct dibs__renewals *r, struct round *round)
{
    char why[DIBS__DETAIL_MAX];

    dibs__renewals_mutex_lock(&r->mutex);
    memcpy(why, r->last_failure.detail, sizeof why);
    dibs__renewals_mutex_unlock(&r->mutex);
    for (size_t i = 0; i < round->risk_count; i++) {
        r->config.at_risk(r->config.context, round->at_risk[i].lease, round->at_risk[i].failed ? why : "");
        dibs__lease_unref(round->at_risk[i].lease);
    }
    for (size_t i = 0; i < round->lost_count; i++) {
        r->config.lost(r->config.context, round->lost[i].lease, false, round->lost[i].failed ? why : "");
        dibs__lease_unref(round->lost[i].lease);
    }
    if (round->batch)
        r->store->ops->renew(r->store, round->batch);
}

/* Whether the store did what it was asked, but an extension that is stuck may still undo it. */
static bool is_unsure(const struct dibs__renewal *item)
{
    return item->result == DIBS__RENEWED && sure_ms(item->lease_ms, item->cut_ms) < item->lease_ms;
}

/* Requires mutex. Whoever extends the lease learns what came of it, or it is tried again. */
static void end_extension(struct dibs__renewals *r, struct dibs__lease *lease, const struct dibs__renewal *item,
                          const struct dibs__error *error)
{
    bool left = lease->extending == DIBS__EXTEND_LEFT;
    dibs_status status = item->status != DIBS_OK ? item->status : error->status;

    if (!extension_sent(lease))
        return;
    if (item->result == DIBS__UNANSWERED && (status == DIBS_UNAVAILABLE || status == DIBS_OK)) {
        lease->extending = left ? DIBS__NOT_EXTENDING : DIBS__EXTEND_ASKED;
        return;
    }
    if (is_unsure(item) && !left) {
        lease->extending = DIBS__EXTEND_ASKED;
        return;
    }
    lease->extending = DIBS__EXTEND_DONE;
    lease->extend_status = item->result == DIBS__RENEWED ? DIBS_OK : status;
    if (item->result == DIBS__RENEWED)
        lease->lease_ms = item->lease_ms;
    pthread_cond_broadcast(&r->changed);
}

/* Requires mutex. The lease was renewed by a request sent at proof: until when, and when it is looked at next. */
static void prolong(struct dibs__renewals *r, struct dibs__lease *lease, const struct dibs__renewal *item,
                    int64_t proof, int64_t now)
{
    uint32_t sure = sure_ms(item->lease_ms, item->cut_ms);

    lease->failed = false;
    if (item->extension || !lease->fixed)
        dibs__lease_move(lease, dibs__lease_deadline(proof, sure), false, now);
    set_times(r, lease, proof);
    if (lease->extending != DIBS__EXTEND_ASKED)
        return;
    if (item->extension && is_unsure(item)) { /* in time to keep what is sure, or when all of it will be */
        int64_t again = dibs__after_ms(now, item->again_ms), due = proof + period(r, sure);
        lease->renew_at = again < due ? again : due;
    } else {
        lease->renew_at = 0; /* asked for while this renewal was in flight */
    }
}

/* Requires mutex. What the store said of one lease. True: it said that it is gone. */
static bool take_result(struct dibs__renewals *r, struct dibs__lease *lease, const struct dibs__batch *batch,
                        const struct dibs__renewal *item, const struct dibs__error *error, int64_t now)
{
    lease->in_flight = false;
    if (lease->in_doubt) {
        lease->in_doubt = item->result == DIBS__UNANSWERED;
        lease->unanswered = lease->unanswered || lease->in_doubt;
        pthread_cond_broadcast(&r->changed);
    }
    if (!scheduled(lease))
        return false;
    if (item->result == DIBS__GONE) {
        dibs__lease_lose(lease);
        unschedule(r, lease);
        return true;
    }
    if (dibs__lease_is_lost(lease, now)) { /* the answer came too late: the next round tells of the loss */
        reschedule(r, lease);
        return false;
    }
    bool renewal = !item->extension;
    lease->memo = item->memo;
    lease->cut_ms = item->cut_ms;
    end_extension(r, lease, item, error);
    if (item->result == DIBS__RENEWED) {
        atomic_fetch_add_explicit(r->config.renewed, renewal, memory_order_relaxed);
        prolong(r, lease, item, batch->proof, now);
    } else {
        atomic_fetch_add_explicit(r->config.failed, renewal, memory_order_relaxed);
        lease->failed = true;
        if (lease->extending == DIBS__EXTEND_ASKED)
            lease->renew_at = dibs__after_ms(now, EXTEND_RETRY_MS);
        else
            lease->renew_at = lease->fixed && !lease->in_doubt ? DIBS__NEVER : retry_at(lease, now);
    }
    reschedule(r, lease);
    return false;
}

static void batch_done(struct dibs__batch *batch, const struct dibs__error *error)
{
    struct dibs__renewals *r = batch->context;
    int64_t now = dibs__now(r->config.clock);

    dibs__renewals_mutex_lock(&r->mutex);
    if (error->status != DIBS_OK)
        r->last_failure = *error;
    for (size_t i = 0; i < batch->count; i++) {
        struct dibs__lease *lease = batch->items[i].context;
        bool gone = take_result(r, lease, batch, &batch->items[i], error, now);
        batch->items[i].context = gone ? lease : NULL;
        if (!gone)
            dibs__lease_unref(lease);
    }
    dibs__renewals_mutex_unlock(&r->mutex);
    for (size_t i = 0; i < batch->count; i++) {
        if (!batch->items[i].context)
            continue;
        r->config.lost(r->config.context, batch->items[i].context, true, "its key is no longer in the store");
        dibs__lease_unref(batch->items[i].context);
    }
    free(batch);
}

/* Sleeps until there is something to do, and lets the store go on with what it has. */
static void sleep_and_attend(struct dibs__renewals *r)
{
    int64_t until;
    size_t count = r->store->ops->interest(r->store, r->fds + 1, &until);

    r->fds[0] = (struct pollfd){.fd = r->wake.fds[0], .events = POLLIN};
    dibs__renewals_mutex_lock(&r->mutex);
    if (r->heap_count > 0 && r->heap[0]->due < until)
        until = r->heap[0]->due;
    if (r->hint < until && r->hint > dibs__now(r->config.clock))
        until = r->hint;
    r->planned = until;
    if (r->draining && r->store->ops->unconfirmed(r->store) == 0)
        pthread_cond_broadcast(&r->changed);
    dibs__renewals_mutex_unlock(&r->mutex);
    r->config.clock->poll(r->config.clock, r->fds, (nfds_t)(count + 1), until);
    if (r->fds[0].revents) /* not always: it costs a system call, and a thread waits for what the store has heard */
        dibs__wake_quiet(&r->wake);
    r->store->ops->attend(r->store, r->fds + 1, count);
}

static void *run(void *arg)
{
    struct dibs__renewals *r = arg;
    struct round round;

    while (!atomic_load(&r->ending)) {
        do {
            collect(r, &round);
            carry_out(r, &round);
        } while (round.more && !atomic_load(&r->ending));
        sleep_and_attend(r);
    }
    return NULL;
}

/* ------------------------------------------------------------ other threads */

void dibs__renewals_wake(struct dibs__renewals *r)
{
    dibs__wake_ring(&r->wake);
}

bool dibs__renewals_reserve(struct dibs__renewals *r)
{
    bool room = true;

    dibs__renewals_mutex_lock(&r->mutex);
    if (r->heap_count + r->reserved == r->heap_cap) {
        size_t cap = r->heap_cap ? r->heap_cap * 2 : 16;
        struct dibs__lease **heap = realloc(r->heap, cap * sizeof *heap);
        room = heap != NULL;
        if (room) {
            r->heap = heap;
            r->heap_cap = cap;
        }
    }
    r->reserved += room;
    dibs__renewals_mutex_unlock(&r->mutex);
    return room;
}

void dibs__renewals_unreserve(struct dibs__renewals *r)
{
    dibs__renewals_mutex_lock(&r->mutex);
    r->reserved--;
    dibs__renewals_mutex_unlock(&r->mutex);
}

void dibs__renewals_add(struct dibs__renewals *r, struct dibs__lease *lease, uint32_t lease_ms, int64_t proof,
                        const struct dibs__lease_memo *memo)
{
    dibs__lease_ref(lease);
    dibs__renewals_mutex_lock(&r->mutex);
    r->reserved--;
    lease->lease_ms = lease_ms;
    lease->memo = *memo;
    set_times(r, lease, proof);
    doubt(r, lease);
    lease->next = r->all;
    lease->previous = NULL;
    if (r->all)
        r->all->previous = lease;
    r->all = lease;
    lease->listed = true;
    lease->heap_place = r->heap_count++;
    place(r, lease, lease->heap_place);
    lease->due = DIBS__NEVER;
    reschedule(r, lease);
    dibs__renewals_mutex_unlock(&r->mutex);
}

/* Requires mutex. True: the list's reference is the caller's now. False: it was taken out before. */
static bool take_out(struct dibs__renewals *r, struct dibs__lease *lease)
{
    if (!lease->listed)
        return false;
    lease->listed = false;
    unschedule(r, lease);
    if (lease->next)
        lease->next->previous = lease->previous;
    if (lease->previous)
        lease->previous->next = lease->next;
    else
        r->all = lease->next;
    atomic_fetch_add_explicit(r->config.reentered, atomic_load_explicit(&lease->reentered, memory_order_relaxed),
                              memory_order_relaxed);
    return true;
}

bool dibs__renewals_remove(struct dibs__renewals *r, struct dibs__lease *lease)
{
    dibs__renewals_mutex_lock(&r->mutex);
    bool taken = take_out(r, lease), settled = !lease->in_doubt && !lease->unanswered;
    dibs__renewals_mutex_unlock(&r->mutex);
    if (taken)
        dibs__lease_unref(lease);
    return settled;
}

void dibs__renewals_settle(struct dibs__renewals *r, struct dibs__lease *lease, int64_t deadline)
{
    dibs__renewals_mutex_lock(&r->mutex);
    while (lease->in_doubt && scheduled(lease) && dibs__now(r->config.clock) < deadline)
        r->config.clock->wait(r->config.clock, &r->changed, &r->mutex, deadline);
    dibs__renewals_mutex_unlock(&r->mutex);
}

void dibs__renewals_doubt_all(struct dibs__renewals *r)
{
    dibs__renewals_mutex_lock(&r->mutex);
    for (struct dibs__lease *lease = r->all; lease; lease = lease->next) {
        if (!scheduled(lease))
            continue;
        doubt(r, lease);
        reschedule(r, lease);
    }
    dibs__renewals_mutex_unlock(&r->mutex);
}

struct dibs__lease *dibs__renewals_take_any(struct dibs__renewals *r)
{
    dibs__renewals_mutex_lock(&r->mutex);
    struct dibs__lease *lease = r->all;
    if (lease)
        take_out(r, lease);
    dibs__renewals_mutex_unlock(&r->mutex);
    return lease;
}

/* Requires mutex; lets go of it while it sleeps. False: the deadline came first. */
static bool wait_for_extension(struct dibs__renewals *r, struct dibs__lease *lease, int64_t deadline)
{
    while (extending(lease)) {
        if (dibs__now(r->config.clock) >= deadline)
            return false;
        r->config.clock->wait(r->config.clock, &r->changed, &r->mutex, deadline);
    }
    return true;
}

/*
 * It goes the scheduler's way, behind a renewal that is in flight: were it sent
 * over another connection, that renewal could come after it and undo it.
 */
static dibs_status extend(struct dibs__renewals *r, struct dibs__lease *lease, uint32_t lease_ms, int64_t deadline)
{
    if (!wait_for_extension(r, lease, deadline)) /* an earlier one that its call did not wait for */
        return DIBS_UNAVAILABLE;
    if (!scheduled(lease))
        return DIBS_LOST;
    lease->extending = DIBS__EXTEND_ASKED;
    lease->extend_ms = lease_ms;
    if (lease_ms > atomic_load_explicit(&lease->extended_ms, memory_order_relaxed))
        atomic_store_explicit(&lease->extended_ms, lease_ms, memory_order_relaxed);
    lease->renew_at = 0;
    reschedule(r, lease);
    if (wait_for_extension(r, lease, deadline))
        return lease->extend_status;
    if (lease->extending == DIBS__EXTEND_SENT) {
        lease->extending = DIBS__EXTEND_LEFT;
    } else if (lease->extending == DIBS__EXTEND_ASKED) {
        lease->extending = DIBS__NOT_EXTENDING;
        if (lease->fixed && !lease->in_doubt)
            lease->renew_at = DIBS__NEVER;
    }
    return DIBS_UNAVAILABLE;
}

dibs_status dibs__renewals_extend(struct dibs__renewals *r, struct dibs__lease *lease, uint32_t lease_ms,
                                  int64_t deadline, struct dibs__error *error)
{
    dibs__renewals_mutex_lock(&r->mutex);
    dibs_status status = extend(r, lease, lease_ms, deadline);
    if (status != DIBS_OK && status != DIBS_LOST)
        dibs__error_set(error, status, "%s",
                        lease->failed ? r->last_failure.detail : "the store did not answer in time");
    dibs__renewals_mutex_unlock(&r->mutex);
    return status;
}

void dibs__renewals_drain(struct dibs__renewals *r, int64_t deadline)
{
    dibs__wake_ring(&r->wake);
    dibs__renewals_mutex_lock(&r->mutex);
    r->draining = true;
    while (r->store->ops->unconfirmed(r->store) > 0 && dibs__now(r->config.clock) < deadline)
        r->config.clock->wait(r->config.clock, &r->changed, &r->mutex, deadline);
    r->draining = false;
    dibs__renewals_mutex_unlock(&r->mutex);
}

void dibs__renewals_count(struct dibs__renewals *r, uint64_t *leases, uint64_t *reentered)
{
    dibs__renewals_mutex_lock(&r->mutex);
    *leases = r->heap_count;
    *reentered = atomic_load_explicit(r->config.reentered, memory_order_relaxed);
    for (struct dibs__lease *lease = r->all; lease; lease = lease->next)
        *reentered += atomic_load_explicit(&lease->reentered, memory_order_relaxed);
    dibs__renewals_mutex_unlock(&r->mutex);
}

/* ---------------------------------------------------------------- lifecycle */

struct dibs__renewals *dibs__renewals_new(const struct dibs__renewal_config *config)
{
    struct dibs__renewals *r = calloc(1, sizeof *r);

    if (!r)
        return NULL;
    r->config = *config;
    if (!dibs__wake_init(&r->wake))
        goto no_wake;
    if (dibs__cond_init(&r->changed) != 0)
        goto no_cond;
    if (dibs__mutex_init(&r->mutex) != 0)
        goto no_mutex;
    return r;
no_mutex:
    pthread_cond_destroy(&r->changed);
no_cond:
    dibs__wake_free(&r->wake);
no_wake:
    free(r);
    return NULL;
}

bool dibs__renewals_start(struct dibs__renewals *r, struct dibs__store *store)
{
    r->store = store;
    r->fds = calloc(store->fd_max + 1, sizeof *r->fds);
    return r->fds && dibs__thread_start(&r->thread, "dibs-scheduler", run, r);
}

void dibs__renewals_stop(struct dibs__renewals *r)
{
    atomic_store(&r->ending, true);
    dibs__wake_ring(&r->wake);
    pthread_join(r->thread, NULL);
}

void dibs__renewals_free(struct dibs__renewals *r)
{
    if (!r)
        return;
    pthread_cond_destroy(&r->changed);
    dibs__mutex_destroy(&r->mutex);
    dibs__wake_free(&r->wake);
    free(r->heap);
    free(r->fds);
    free(r);
}
