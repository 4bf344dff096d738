#include "core/lock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "base/thread.h"

#define OUTAGE_FIRST_MS 10 /* a waiting call asks an unreachable store again after this, later up to the other */
#define OUTAGE_LAST_MS 200
#define GRACE_MS 3 /* an ask that is under way when the wait ends has so long to come back */

/* One call of dibs_lock_with. */
struct attempt {
    struct dibs__core *core;
    struct dibs__lease *lease;
    int64_t wait_ms;
    int64_t started, limit; /* limit: when the wait ends; 0: one try */
    uint32_t lease_ms;
    unsigned taken, outages; /* answers of that kind in a row */
    bool waited;
    bool out_of_patience; /* the store was not heard for outage_ms */
    struct dibs__error error;
};

/* A token is unique to one ask. Printable; an administrator reads in it whose lock it is. */
static void make_token(struct dibs__core *core, char token[DIBS__TOKEN_MAX])
{
    uint64_t number = atomic_fetch_add_explicit(&core->sequence, 1, memory_order_relaxed);

    snprintf(token, DIBS__TOKEN_MAX, "dibs:%s:%s:%ld:%lu:%s:%" PRIx64, core->runtime->settings.label, core->host,
             core->pid, dibs__thread_number(), core->id, number);
}

/* ---------------------------------------------------------------- the asking */

static dibs_status closed(struct attempt *attempt)
{
    return dibs__error_set(&attempt->error, DIBS_CLOSED, "the runtime is closing");
}

static dibs_status taken(struct attempt *attempt)
{
    char quoted[DIBS__QUOTED_MAX];

    dibs__quote(quoted, attempt->lease->name);
    if (attempt->limit == 0)
        return dibs__error_set(&attempt->error, DIBS_BUSY, "somebody else holds %s", quoted);
    return dibs__error_set(&attempt->error, DIBS_TIMEOUT, "somebody else held %s for all of %" PRId64 " ms", quoted,
                           attempt->wait_ms);
}

/* The wait ended before the store had its own time to answer: that it can't be reached is not known. */
static dibs_status out_of_time(struct attempt *attempt)
{
    char quoted[DIBS__QUOTED_MAX];

    return dibs__error_set(&attempt->error, DIBS_TIMEOUT,
                           "the store had not answered for %s when %" PRId64 " ms had passed",
                           dibs__quote(quoted, attempt->lease->name), attempt->wait_ms);
}

static dibs_status ask(struct attempt *attempt, struct dibs__answer *answer)
{
    struct dibs__core *core = attempt->core;
    struct dibs__lease *lease = attempt->lease;
    int64_t now = dibs__core_now(core);
    int64_t deadline = dibs__after_ms(now, core->runtime->settings.command_timeout_ms);
    int64_t grace = attempt->limit > 0 && attempt->limit != DIBS__NEVER
                        ? dibs__after_ms(attempt->limit > now ? attempt->limit : now, GRACE_MS)
                        : DIBS__NEVER;

    make_token(core, lease->token);
    dibs_status status = core->store->ops->acquire(core->store,
                                                   &(struct dibs__ask){
                                                       .name = lease->name,
                                                       .token = lease->token,
                                                       .lease_ms = attempt->lease_ms,
                                                       .deadline = deadline < grace ? deadline : grace,
                                                       .tries = attempt->taken,
                                                   },
                                                   answer, &attempt->error);
    if (status == DIBS_UNAVAILABLE && attempt->outages == 0 && grace < deadline && dibs__core_now(core) >= grace)
        return out_of_time(attempt);
    return status;
}

/* The store granted it: a lease from now on, unless the grant came so late that nothing is left of it. */
static dibs_status take_grant(struct attempt *attempt, const struct dibs__answer *answer)
{
    struct dibs__core *core = attempt->core;
    struct dibs__lease *lease = attempt->lease;
    int64_t deadline = dibs__lease_deadline(answer->proof, attempt->lease_ms);

    if (dibs__core_now(core) >= deadline) {
        core->store->ops->retract(core->store, lease->name, lease->token);
        return dibs__error_set(&attempt->error, DIBS_UNAVAILABLE, "the grant came when its lease of %u ms had ended",
                               attempt->lease_ms);
    }
    lease->store_fence = answer->fence;
    atomic_store(&lease->deadline, deadline);
    dibs__renewals_add(core->renewals, lease, attempt->lease_ms, answer->proof);
    return DIBS_OK;
}

/* Until when the caller rides out a store that can't be reached. */
static int64_t patience(const struct attempt *attempt)
{
    const struct dibs__core *core = attempt->core;
    int64_t heard = atomic_load_explicit(&core->counters.heard, memory_order_relaxed);

    return dibs__after_ms(heard > attempt->started ? heard : attempt->started, core->runtime->settings.outage_ms);
}

/* True: until when to sleep before the next ask. False: the status stands. */
static bool ride_out(struct attempt *attempt, int64_t *until)
{
    int64_t now = dibs__core_now(attempt->core), ms = OUTAGE_FIRST_MS;

    attempt->out_of_patience = now >= patience(attempt);
    if (attempt->limit == 0 || attempt->out_of_patience || now >= attempt->limit)
        return false;
    for (unsigned i = 0; i < attempt->outages && ms < OUTAGE_LAST_MS; i++)
        ms = ms * 2 < OUTAGE_LAST_MS ? ms * 2 : OUTAGE_LAST_MS;
    attempt->outages++;
    *until = dibs__after_ms(now, dibs__jitter(ms / 2, ms));
    return true;
}

/* The thread has the turn: asks until the answer is final. */
static dibs_status ask_until_final(struct attempt *attempt, struct dibs__cell *cell)
{
    struct dibs__core *core = attempt->core;
    int64_t until;

    while (!atomic_load(&core->runtime->closing)) {
        struct dibs__answer answer = {0};
        dibs_status status = ask(attempt, &answer);
        if (status == DIBS_OK)
            status = take_grant(attempt, &answer);
        if (status == DIBS_BUSY) {
            int64_t now = dibs__core_now(core);
            if (now >= attempt->limit)
                return taken(attempt);
            if (!attempt->waited)
                dibs__count(&core->stats.contended);
            attempt->waited = true;
            attempt->taken++;
            attempt->outages = 0;
            until = dibs__after_ms(now, answer.again_ms);
        } else if (status != DIBS_UNAVAILABLE || !ride_out(attempt, &until)) {
            return status;
        }
        dibs__cell_sleep(core->cells, cell, until < attempt->limit ? until : attempt->limit,
                         attempt->outages > 0 ? &attempt->error : NULL);
    }
    return closed(attempt);
}

static dibs_status take_turn_and_ask(struct attempt *attempt)
{
    struct dibs__core *core = attempt->core;
    struct dibs__cell *cell;
    struct dibs__turn turn = {
        .name = attempt->lease->name,
        .name_size = attempt->lease->name_size,
        .deadline = attempt->limit,
        .patience = patience(attempt),
        .contended = &core->stats.contended,
        .outage = &attempt->error,
    };
    dibs_status status = dibs__cell_take_turn(core->cells, &turn, &cell);

    attempt->waited = turn.waited;
    if (status == DIBS_BUSY)
        return taken(attempt);
    if (status == DIBS_CLOSED)
        return closed(attempt);
    if (status == DIBS_NO_MEMORY)
        return dibs__error_set(&attempt->error, status, "no memory for a lock");
    if (status != DIBS_OK)
        return status;
    status = ask_until_final(attempt, cell);
    if (status == DIBS_OK)
        dibs__cell_granted(core->cells, cell, attempt->lease);
    else
        dibs__cell_give_up(core->cells, cell, attempt->out_of_patience ? &attempt->error : NULL);
    return status;
}

static void count_outcome(struct dibs__core *core, dibs_status status)
{
    if (status == DIBS_OK) {
        dibs__count(&core->stats.acquired);
        dibs__count(&core->stats.holds);
    } else if (status == DIBS_BUSY) {
        dibs__count(&core->stats.busy);
    } else if (status == DIBS_TIMEOUT) {
        dibs__count(&core->stats.timed_out);
    }
}

dibs_status dibs__lock_acquire(struct dibs__core *core, const char *name, size_t name_size, int64_t wait_ms,
                               uint32_t lease_ms, bool fixed)
{
    int64_t now = dibs__core_now(core);
    struct attempt attempt = {
        .core = core,
        .wait_ms = wait_ms,
        .started = now,
        .limit = wait_ms < 0    ? DIBS__NEVER
                 : wait_ms == 0 ? 0
                                : dibs__after_ms(now, wait_ms),
        .lease_ms = lease_ms,
    };

    /* All memory first: what the store has granted must not be refused. */
    attempt.lease = dibs__lease_new(core->runtime->serial, name, name_size);
    if (!attempt.lease || !dibs__holds_reserve() || !dibs__renewals_reserve(core->renewals)) {
        dibs__lease_unref(attempt.lease);
        return dibs__fail(DIBS_NO_MEMORY, "no memory for a lock");
    }
    attempt.lease->fixed = fixed;
    dibs_status status = take_turn_and_ask(&attempt);
    count_outcome(core, status);
    if (status == DIBS_OK) {
        dibs__holds_add(attempt.lease, attempt.lease->store_fence * DIBS__FENCE_STEPS);
        return DIBS_OK;
    }
    dibs__renewals_unreserve(core->renewals);
    dibs__lease_unref(attempt.lease);
    return dibs__fail_with(&attempt.error);
}

/* --------------------------------------------------------------- the release */

static dibs_status was_lost(const struct dibs__lease *lease)
{
    char quoted[DIBS__QUOTED_MAX];

    return dibs__fail(DIBS_LOST, "the lease of %s ended before it was unlocked", dibs__quote(quoted, lease->name));
}

/* The store is asked to delete the key; what it said. */
static dibs_status release_in_store(struct dibs__core *core, struct dibs__lease *lease)
{
    struct dibs__error error;
    bool again;
    int64_t deadline = dibs__after_ms(dibs__core_now(core), core->runtime->settings.command_timeout_ms);
    dibs_status status = core->store->ops->release(core->store, lease->name, lease->token, deadline, &again, &error);

    if (status == DIBS_OK)
        return DIBS_OK;
    if (status != DIBS_NOT_HELD)
        return dibs__fail_with(&error);
    /* Sent twice, and in time: the first did it. Otherwise somebody has taken it away. */
    if (again && !dibs__lease_is_lost(lease, dibs__core_now(core)))
        return DIBS_OK;
    dibs__lease_lose(lease);
    dibs__core_lost(core, lease, true, "its key was no longer in the store when it was unlocked");
    return was_lost(lease);
}

dibs_status dibs__lock_release(struct dibs__core *core, struct dibs__hold *hold)
{
    struct dibs__lease *lease = dibs__holds_remove(hold);
    dibs_status status;

    atomic_fetch_sub_explicit(&core->stats.holds, 1, memory_order_relaxed);
    dibs__count(&core->stats.released);
    dibs__renewals_remove(core->renewals, lease);
    if (dibs__lease_is_lost(lease, dibs__core_now(core))) {
        dibs__core_lost(core, lease, false, "it was not renewed in time");
        status = was_lost(lease);
    } else {
        status = release_in_store(core, lease);
        dibs__cells_end(core->cells, lease);
    }
    dibs__lease_unref(lease);
    return status;
}
