#include "core/lock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "base/thread.h"

#define OUTAGE_FIRST_MS 10 /* a waiting call asks an unreachable store again after this, later up to the other */
#define OUTAGE_LAST_MS 200
#define SLEPT_MS 1000 /* an ask that comes back so much too late was held up here, not by the store */
#define GRACE_MS 3    /* an ask that is under way when the wait ends has so long to come back */

/* One call of dibs_lock_with. */
struct attempt {
    struct dibs__core *core;
    const char *name;
    size_t name_size;
    struct dibs__cell *cell;
    struct dibs__lease *lease; /* NULL until it is asked for */
    int64_t wait_ms;
    int64_t patient_from; /* an outage is ridden out from here on: when the call began, or woke to ask again */
    int64_t limit;        /* when the wait ends; 0: one try */
    int64_t try_until;    /* when one try ends */
    uint32_t lease_ms, flags;
    int64_t unmet_since; /* when a grant of it came to nothing first, or of another thread for it; 0: none did */
    int64_t unmet_at;    /* ... and last */
    unsigned outages;    /* in a row */
    bool waited;
    pthread_cond_t cond; /* only where has_cond: on which the call sleeps before it asks again */
    bool has_cond;
    enum dibs__learned learned; /* where the call came to nothing */
    struct dibs__outage outage; /* the last that it met, or another thread for it */
    struct dibs__error error;
};

/* A token is unique to one attempt. Printable; an administrator reads in it whose lock it is. */
static void make_token(struct dibs__core *core, char token[DIBS__TOKEN_MAX])
{
    uint64_t number = atomic_fetch_add_explicit(&core->sequence, 1, memory_order_relaxed);

    snprintf(token, DIBS__TOKEN_MAX, "dibs:%s:%s:%ld:%lu:%s:%" PRIx64, core->runtime->settings.label, core->host,
             core->pid, dibs__thread_number(), core->id, number);
}

/* All that a lease will need, before the store is asked for it: what was granted must not be refused. NULL: no memory.
 */
static struct dibs__lease *new_bid(struct dibs__core *core, const char *name, size_t name_size, uint32_t lease_ms,
                                   uint32_t flags)
{
    struct dibs__lease *lease = dibs__lease_new(core->runtime->serial, name, name_size);

    if (!lease || !dibs__renewals_reserve(core->renewals)) {
        dibs__lease_unref(lease);
        return NULL;
    }
    lease->asked_ms = lease_ms;
    lease->fixed = flags & DIBS_FIXED_LEASE;
    lease->fair = flags & DIBS_FAIR;
    make_token(core, lease->token);
    lease->bid.ask = (struct dibs__bid){.name = lease->name, .token = lease->token, .lease_ms = lease_ms};
    return lease;
}

/* The attempt came to nothing. */
static void drop_bid(struct dibs__core *core, struct dibs__lease *lease)
{
    core->store->ops->conclude(core->store, &lease->bid.ask, false);
    dibs__renewals_unreserve(core->renewals);
    dibs__lease_unref(lease);
}

/* ---------------------------------------------------------------- the asking */

static dibs_status closed(struct attempt *attempt)
{
    return dibs__error_set(&attempt->error, DIBS_CLOSED, "the runtime is closing");
}

static dibs_status no_memory(struct attempt *attempt)
{
    return dibs__error_set(&attempt->error, DIBS_NO_MEMORY, "no memory for a lock");
}

static dibs_status taken(struct attempt *attempt)
{
    char quoted[DIBS__QUOTED_MAX];

    attempt->learned = DIBS__LEARNED_TAKEN;
    dibs__quote(quoted, attempt->name);
    if (attempt->limit == 0)
        return dibs__error_set(&attempt->error, DIBS_BUSY, "somebody else holds %s", quoted);
    return dibs__error_set(&attempt->error, DIBS_TIMEOUT, "somebody else held %s for all of %" PRId64 " ms", quoted,
                           attempt->wait_ms);
}

/* The wait ended before the store had its own time to answer: that it can't be reached is not known. */
static dibs_status out_of_time(struct attempt *attempt)
{
    char quoted[DIBS__QUOTED_MAX];

    attempt->learned = DIBS__LEARNED_NOTHING;
    return dibs__error_set(&attempt->error, DIBS_TIMEOUT,
                           "the store had not answered for %s when %" PRId64 " ms had passed",
                           dibs__quote(quoted, attempt->name), attempt->wait_ms);
}

/* One try had all the time that the store has to answer; the thread that asked it has had no answer either. */
static dibs_status no_answer(struct attempt *attempt)
{
    char quoted[DIBS__QUOTED_MAX];

    return dibs__error_set(&attempt->error, DIBS_UNAVAILABLE,
                           "the store did not answer within %u ms for %s, which another thread asks for",
                           attempt->core->runtime->settings.command_timeout_ms, dibs__quote(quoted, attempt->name));
}

/* Whether grants came to nothing lately: others may have the lock in between, for moments. */
static bool is_unmet(const struct attempt *attempt, int64_t now)
{
    return attempt->outage.unmet && now < dibs__after_ms(attempt->unmet_at, attempt->core->runtime->settings.outage_ms);
}

/* Too few replicas acknowledged what was granted: an end of the wait is due to that, whoever had the lock last. */
static dibs_status for_lack_of_replicas(struct attempt *attempt, dibs_status status)
{
    if (status != DIBS_TIMEOUT || !is_unmet(attempt, dibs__core_now(attempt->core)))
        return status;
    attempt->learned = DIBS__LEARNED_FAILURE;
    attempt->error = attempt->outage.error;
    return attempt->error.status;
}

/* The store knows no more of the token, or takes it back by itself: the attempt goes on with a new one. */
static void renew_token(struct attempt *attempt)
{
    char token[DIBS__TOKEN_MAX];

    make_token(attempt->core, token);
    dibs__cell_set_token(attempt->core->cells, attempt->cell, attempt->lease, token);
}

static dibs_status ask_store(struct attempt *attempt, struct dibs__answer *answer)
{
    struct dibs__core *core = attempt->core;
    struct dibs__bid *ask = &attempt->lease->bid.ask;
    int64_t now = dibs__core_now(core);
    int64_t deadline =
        attempt->limit > 0 ? dibs__after_ms(now, core->runtime->settings.command_timeout_ms) : attempt->try_until;
    int64_t grace = attempt->limit > 0 && attempt->limit != DIBS__NEVER
                        ? dibs__after_ms(attempt->limit > now ? attempt->limit : now, GRACE_MS)
                        : DIBS__NEVER;

    ask->wait = attempt->limit > 0;
    ask->fair = attempt->lease->fair;
    ask->deadline = deadline < grace ? deadline : grace;
    dibs_status status = dibs__store_ask(core->store, ask, answer, &attempt->error);
    if (answer->spent)
        renew_token(attempt);
    bool cut_short = grace < deadline && dibs__core_now(core) >= grace;
    if (status == DIBS_UNAVAILABLE && attempt->outages == 0 && cut_short && !answer->unmet)
        return out_of_time(attempt);
    return status;
}

/* What the thread that asked before was told, or what the store answers now: also where that lease is over by now. */
static dibs_status ask_or_recall(struct attempt *attempt, struct dibs__answer *answer)
{
    struct dibs__asking *bid = &attempt->lease->bid;
    int64_t end = dibs__lease_deadline(bid->ask.proof, attempt->lease->asked_ms);
    bool answered = bid->answered;

    bid->answered = false;
    if (!answered || (bid->status == DIBS_OK && dibs__core_now(attempt->core) >= end))
        return ask_store(attempt, answer);
    *answer = bid->answer;
    return bid->status;
}

/* The store granted it to the last ask: a lease from then on. False: nothing is left of it. */
static bool begin_lease(struct attempt *attempt, uint64_t fence)
{
    struct dibs__core *core = attempt->core;
    struct dibs__lease *lease = attempt->lease;
    int64_t now = dibs__core_now(core), proof = lease->bid.ask.proof;
    int64_t deadline = dibs__lease_deadline(proof, lease->asked_ms);

    if (now >= deadline)
        return false;
    core->store->ops->conclude(core->store, &lease->bid.ask, true);
    lease->store_fence = fence;
    lease->granted_at = now;
    atomic_store(&lease->deadline, deadline);
    dibs__renewals_add(core->renewals, lease, lease->asked_ms, proof, &lease->bid.ask.lease);
    return true;
}

static dibs_status take_grant(struct attempt *attempt, const struct dibs__answer *answer)
{
    if (begin_lease(attempt, answer->fence))
        return DIBS_OK;
    attempt->core->store->ops->conclude(attempt->core->store, &attempt->lease->bid.ask, false);
    renew_token(attempt);
    return dibs__error_set(&attempt->error, DIBS_UNAVAILABLE, "the grant came when its lease of %u ms had ended",
                           attempt->lease_ms);
}

/* A grant by push holds if it names the last ask, and its lease still lasts. Else the store is to be asked. */
static bool take_push(struct attempt *attempt, const struct dibs__push *push)
{
    if (push->fence == 0 || push->confirm || push->number != attempt->lease->bid.ask.number ||
        !begin_lease(attempt, push->fence))
        return false;
    dibs__count(&attempt->core->stats.granted);
    return true;
}

/* Until when the caller rides out a store that can't be reached. */
static int64_t patience(const struct attempt *attempt)
{
    const struct dibs__core *core = attempt->core;
    int64_t heard = atomic_load_explicit(&core->counters.heard, memory_order_relaxed);

    return dibs__after_ms(heard > attempt->patient_from ? heard : attempt->patient_from,
                          core->runtime->settings.outage_ms);
}

/* Grants that come to nothing are an outage from the first on, which no answer in between ends. */
static void remember_outage(struct attempt *attempt, const struct dibs__answer *answer, int64_t now)
{
    if (answer->unmet) {
        attempt->unmet_at = now;
        if (attempt->unmet_since == 0)
            attempt->unmet_since = now;
    }
    if (answer->unmet || !is_unmet(attempt, now))
        attempt->outage = (struct dibs__outage){attempt->error, answer->unmet};
}

/* Whether this was the last time that the call asks in vain. */
static bool is_out_of_patience(const struct attempt *attempt, const struct dibs__answer *answer, int64_t now)
{
    int64_t outage_ms = attempt->core->runtime->settings.outage_ms;

    return now >= (answer->unmet ? dibs__after_ms(attempt->unmet_since, outage_ms) : patience(attempt));
}

/* True: until when to sleep before the next ask. False: the status stands. */
static bool ride_out(struct attempt *attempt, const struct dibs__answer *answer, int64_t *until)
{
    int64_t now = dibs__core_now(attempt->core), ms = OUTAGE_FIRST_MS;

    remember_outage(attempt, answer, now);
    if (now > dibs__after_ms(attempt->lease->bid.ask.deadline, SLEPT_MS))
        attempt->patient_from =
            now; /* the machine was suspended meanwhile, or the process stopped: that is no outage */
    if (is_out_of_patience(attempt, answer, now))
        attempt->learned = DIBS__LEARNED_OUTAGE;
    if (attempt->learned == DIBS__LEARNED_OUTAGE || now >= attempt->limit)
        return false;
    for (unsigned i = 0; i < attempt->outages && ms < OUTAGE_LAST_MS; i++)
        ms = ms * 2 < OUTAGE_LAST_MS ? ms * 2 : OUTAGE_LAST_MS;
    attempt->outages++;
    *until = dibs__after_ms(now, dibs__jitter(ms / 2, ms));
    return true;
}

/* Another has it: until when to sleep before the next ask. */
static int64_t wait_for_it(struct attempt *attempt, const struct dibs__answer *answer)
{
    if (!attempt->waited)
        dibs__count(&attempt->core->stats.contended);
    attempt->waited = true;
    attempt->outages = 0;
    return dibs__after_ms(dibs__core_now(attempt->core), answer->again_ms);
}

/* Made with the first sleep, for all. False: it can't be. */
static bool has_where_to_sleep(struct attempt *attempt)
{
    if (!attempt->has_cond)
        attempt->has_cond = dibs__cond_init(&attempt->cond) == 0;
    return attempt->has_cond;
}

static struct dibs__push sleep_until(struct attempt *attempt, int64_t until)
{
    bool meets_outage = attempt->outages > 0 || is_unmet(attempt, dibs__core_now(attempt->core));

    return dibs__cell_sleep(attempt->core->cells, attempt->cell, attempt->lease,
                            &(struct dibs__sleep){.deadline = until < attempt->limit ? until : attempt->limit,
                                                  .cond = &attempt->cond,
                                                  .outage = meets_outage ? &attempt->outage : NULL});
}

/* The attempt is at its cell: asks until the answer is final. */
static dibs_status ask_until_final(struct attempt *attempt)
{
    struct dibs__core *core = attempt->core;
    int64_t until;

    while (!atomic_load(&core->runtime->closing)) {
        struct dibs__answer answer = {0};
        dibs_status status = ask_or_recall(attempt, &answer);
        if (status == DIBS_OK) {
            status = take_grant(attempt, &answer);
            answer.unmet = status != DIBS_OK; /* as often as it is repeated: the lease is shorter than the way */
        }
        if (status == DIBS_BUSY && dibs__core_now(core) >= attempt->limit)
            return taken(attempt);
        if (status == DIBS_BUSY)
            until = wait_for_it(attempt, &answer);
        else if (status != DIBS_UNAVAILABLE || !ride_out(attempt, &answer, &until))
            return status;
        if (!has_where_to_sleep(attempt))
            return no_memory(attempt);
        struct dibs__push push = sleep_until(attempt, until);
        if (take_push(attempt, &push))
            return DIBS_OK;
        if (attempt->outages > 0)
            continue;
        int64_t now = dibs__core_now(core);
        attempt->patient_from = now; /* it slept because it was told to: that is no outage */
        if (now >= attempt->limit)
            return taken(attempt);
    }
    return closed(attempt);
}

static dibs_status ask_patiently(struct attempt *attempt)
{
    dibs_status status = ask_until_final(attempt);

    if (attempt->has_cond)
        pthread_cond_destroy(&attempt->cond);
    return status;
}

/* Nothing was got: whether the attempt goes on in the hands of the next thread here. */
static bool give_up(struct attempt *attempt, bool pass_on)
{
    return dibs__cell_give_up(attempt->core->cells, attempt->cell, attempt->lease,
                              &(struct dibs__leaving){attempt->learned, &attempt->error, pass_on});
}

/* The thread has the turn, and maybe an attempt that another began. */
static dibs_status ask_in_turn(struct attempt *attempt)
{
    struct dibs__core *core = attempt->core;

    if (!attempt->lease) {
        attempt->lease = new_bid(core, attempt->name, attempt->name_size, attempt->lease_ms, attempt->flags);
        if (!attempt->lease) {
            no_memory(attempt);
            give_up(attempt, false);
            return DIBS_NO_MEMORY;
        }
        dibs__cell_bid(core->cells, attempt->cell, attempt->lease);
    }
    dibs_status status = ask_patiently(attempt);
    if (status == DIBS_OK) {
        dibs__cell_granted(core->cells, attempt->cell, attempt->lease);
        return status;
    }
    /* Who only ran out of time leaves its place in the store's queue to the next here. */
    bool goes_on = status == DIBS_TIMEOUT && attempt->lease->bid.ask.in_store;
    status = for_lack_of_replicas(attempt, status);
    if (give_up(attempt, goes_on))
        dibs__lease_unref(attempt->lease);
    else
        drop_bid(core, attempt->lease);
    return status;
}

/* Each fair thread has a place of its own in the store's queue. */
static dibs_status ask_in_order(struct attempt *attempt)
{
    struct dibs__core *core = attempt->core;

    attempt->lease = new_bid(core, attempt->name, attempt->name_size, attempt->lease_ms, attempt->flags);
    if (!attempt->lease)
        return no_memory(attempt);
    attempt->cell = dibs__cells_bid_fair(core->cells, attempt->lease);
    dibs_status status = attempt->cell ? ask_patiently(attempt) : no_memory(attempt);
    if (status == DIBS_OK)
        return status;
    if (attempt->cell)
        give_up(attempt, false);
    drop_bid(core, attempt->lease);
    return for_lack_of_replicas(attempt, status);
}

static dibs_status no_turn(struct attempt *attempt, dibs_status status)
{
    attempt->error = attempt->outage.error;
    if (status == attempt->error.status) /* what another thread was told */
        return status;
    if (status == DIBS_BUSY)
        return taken(attempt);
    if (status == DIBS_TIMEOUT)
        return attempt->limit == 0 ? no_answer(attempt) : out_of_time(attempt);
    return status == DIBS_CLOSED ? closed(attempt) : no_memory(attempt);
}

/* The lease was lost before this thread came to: as if it had not been handed over. */
static bool is_handed_in_vain(struct dibs__core *core, struct dibs__turn *turn)
{
    if (turn->kind != DIBS__TURN_HANDED || !dibs__lease_is_lost(turn->lease, dibs__core_now(core)))
        return false;
    dibs__renewals_remove(core->renewals, turn->lease);
    dibs__core_lost(core, turn->lease, false, "");
    dibs__lease_unref(turn->lease);
    return true;
}

static dibs_status take_turn(struct attempt *attempt)
{
    struct dibs__core *core = attempt->core;
    struct dibs__turn turn = {
        .name = attempt->name,
        .name_size = attempt->name_size,
        .lease_ms = attempt->lease_ms,
        .fixed = attempt->flags & DIBS_FIXED_LEASE,
        .one_try = attempt->limit == 0,
        .deadline = attempt->limit > 0 ? attempt->limit : attempt->try_until,
        .patience = patience(attempt),
        .contended = &core->stats.contended,
        .outage = &attempt->outage,
    };
    dibs_status status;

    do
        status = dibs__cell_take_turn(core->cells, &turn);
    while (status == DIBS_OK && is_handed_in_vain(core, &turn));
    attempt->waited = turn.waited;
    if (status != DIBS_OK)
        return no_turn(attempt, status);
    if (turn.outage_since == 0) /* to wait behind others here is no outage */
        attempt->patient_from = dibs__core_now(core);
    else if (turn.outage_since > attempt->patient_from)
        attempt->patient_from = turn.outage_since;
    if (turn.outage_since != 0 && attempt->outage.unmet) {
        attempt->unmet_since = attempt->patient_from;
        attempt->unmet_at = dibs__core_now(core);
    }
    attempt->lease = turn.lease;
    attempt->cell = turn.cell;
    if (turn.kind == DIBS__TURN_TO_ASK)
        return ask_in_turn(attempt);
    dibs__count(&core->stats.handed_off);
    return DIBS_OK;
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
                               uint32_t lease_ms, uint32_t flags)
{
    int64_t now = dibs__core_now(core);
    struct attempt attempt = {
        .core = core,
        .name = name,
        .name_size = name_size,
        .wait_ms = wait_ms,
        .patient_from = now,
        .limit = wait_ms < 0    ? DIBS__NEVER
                 : wait_ms == 0 ? 0
                                : dibs__after_ms(now, wait_ms),
        .try_until = dibs__after_ms(now, core->runtime->settings.command_timeout_ms),
        .lease_ms = lease_ms,
        .flags = flags,
    };

    if (!dibs__holds_reserve())
        return dibs__fail(DIBS_NO_MEMORY, "no memory for a lock");
    dibs_status status = flags & DIBS_FAIR ? ask_in_order(&attempt) : take_turn(&attempt);
    count_outcome(core, status);
    if (status != DIBS_OK)
        return dibs__fail_with(&attempt.error);
    dibs__holds_add(attempt.lease, dibs__lease_fence(attempt.lease));
    return DIBS_OK;
}

/* --------------------------------------------------------------- the release */

static dibs_status was_lost(const struct dibs__lease *lease)
{
    char quoted[DIBS__QUOTED_MAX];

    return dibs__fail(DIBS_LOST, "the lease of %s ended before it was unlocked", dibs__quote(quoted, lease->name));
}

/* What the store said of it. */
static dibs_status released(struct dibs__core *core, struct dibs__lease *lease, const struct dibs__release *release,
                            dibs_status status, const struct dibs__error *error)
{
    if (status == DIBS_OK)
        return DIBS_OK;
    if (status != DIBS_NOT_HELD)
        return dibs__fail_with(error);
    /* Sent twice, and in time: the first did it. Otherwise somebody has taken it away. */
    if (release->again && !dibs__lease_is_lost(lease, dibs__core_now(core)))
        return DIBS_OK;
    dibs__lease_lose(lease);
    dibs__core_lost(core, lease, true, "its key was no longer in the store when it was unlocked");
    return was_lost(lease);
}

/*
 * The attempt that the next who waits here will go on with, in the same round
 * trip. NULL: it asks by itself, as it must where replicas are waited for on a
 * connection of its own.
 */
static struct dibs__lease *bid_for_the_next(struct dibs__core *core, struct dibs__lease *lease,
                                            const struct dibs__wanted *wanted)
{
    if (core->runtime->settings.min_replicas > 0)
        return NULL;
    struct dibs__lease *next =
        new_bid(core, lease->name, lease->name_size, wanted->lease_ms, wanted->fixed ? (uint32_t)DIBS_FIXED_LEASE : 0);
    if (next) {
        next->bid.ask.wait = true;
        dibs__cells_bid_behind(core->cells, lease, next);
    }
    return next;
}

/* The store is asked to delete the key, and for the lock again if another thread here waits for it. */
static dibs_status release_in_store(struct dibs__core *core, struct dibs__lease *lease, struct dibs__lease *next,
                                    int64_t deadline)
{
    struct dibs__error error;
    struct dibs__release release = {
        .name = lease->name,
        .token = lease->token,
        .lease_ms = dibs__lease_longest_ms(lease),
        .deadline = deadline,
        .next = next ? &next->bid.ask : NULL,
    };
    dibs_status status = dibs__store_release(core->store, &release, &error);

    if (next && (release.next_status == DIBS_OK || release.next_status == DIBS_BUSY)) {
        next->bid.answered = true;
        next->bid.status = release.next_status;
        next->bid.answer = release.next_answer;
    }
    bool taken_over = dibs__cells_end(core->cells, lease, next);
    if (next && taken_over)
        dibs__lease_unref(next);
    else if (next)
        drop_bid(core, next);
    return released(core, lease, &release, status, &error);
}

/* The lease stays in the process where another thread may have it, else the store gets it back. */
static dibs_status part_with(struct dibs__core *core, struct dibs__lease *lease)
{
    int64_t now = dibs__core_now(core), timeout_ms = core->runtime->settings.command_timeout_ms;
    struct dibs__wanted wanted;
    enum dibs__parting parting = dibs__cells_part(core->cells, lease, &wanted);

    if (parting == DIBS__PART_HANDED)
        return DIBS_OK;
    dibs__renewals_settle(core->renewals, lease, dibs__after_ms(now, timeout_ms / 2));
    bool settled = dibs__renewals_remove(core->renewals, lease);
    dibs_status status =
        release_in_store(core, lease, parting == DIBS__PART_REQUEUE ? bid_for_the_next(core, lease, &wanted) : NULL,
                         dibs__after_ms(now, timeout_ms));
    if (!settled) /* what may set it again is still under way: this goes behind it */
        dibs__core_retract(core, lease);
    return status;
}

dibs_status dibs__lock_release(struct dibs__core *core, struct dibs__hold *hold)
{
    struct dibs__lease *lease = dibs__holds_remove(hold);
    dibs_status status;

    atomic_fetch_sub_explicit(&core->stats.holds, 1, memory_order_relaxed);
    dibs__count(&core->stats.released);
    if (dibs__lease_is_lost(lease, dibs__core_now(core))) {
        dibs__renewals_remove(core->renewals, lease);
        dibs__core_lost(core, lease, false, "it was not renewed in time");
        status = was_lost(lease);
    } else {
        status = part_with(core, lease);
    }
    dibs__lease_unref(lease);
    return status;
}
