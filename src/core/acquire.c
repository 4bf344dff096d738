/*
 * An acquire gets its turn (turn.h), or, for a fair lock, needs none. Then it
 * asks the store until the answer is final: the lock is granted, the wait is
 * over, or the store fails in a way that the acquire does not ride out. Between
 * two asks it sleeps (asker.h), and a grant that is pushed meanwhile ends it.
 */
#include "core/acquire.h"

#include <inttypes.h>

#include "base/order.h"
#include "base/probe.h"
#include "core/asker.h"
#include "core/bid.h"
#include "core/holds.h"
#include "core/patience.h"
#include "core/turn.h"

#define SUSPENDED_MS 1000 /* an ask that returns so long after its deadline was held up here, not by the store */
#define GRACE_MS 3        /* an ask that is under way when the wait ends has so long to return */

/* One call that wants a lock which its thread does not hold. The calling thread's. */
struct acquire {
    struct dibs__core *core;
    const struct dibs__wish *wish;
    const char *name;
    size_t name_size;
    struct dibs__cell *cell;
    struct dibs__lease *lease; /* that is asked for; NULL: there is no bid yet */
    int64_t limit;             /* when the wait ends; 0: one try */
    int64_t try_until;         /* when one try ends */

    struct dibs__patience patience;
    uint16_t group;             /* of the name (metrics.h) */
    bool waited;                /* it is counted as contended, and among the threads that wait now */
    int64_t acquired_at;        /* when it succeeded */
    uint64_t told;              /* what the store returned that tells when a foreign lock is free; 0: nothing */
    struct dibs__ear ear;       /* with which the thread waits before it asks again */
    enum dibs__learned learned; /* why the acquire fails */
    struct dibs__error *error;  /* the caller's; filled where it fails */
};

/* --------------------------------------------------------------- how it fails */

static dibs_status closed(struct acquire *acquire)
{
    return dibs__error_set(acquire->error, DIBS_CLOSED, "the runtime is closing");
}

static dibs_status no_memory(struct acquire *acquire)
{
    return dibs__error_set(acquire->error, DIBS_NO_MEMORY, "no memory for a lock");
}

static dibs_status taken(struct acquire *acquire)
{
    char quoted[DIBS__QUOTED_MAX];

    acquire->learned = DIBS__LEARNED_TAKEN;
    dibs__quote(quoted, acquire->name);
    if (acquire->limit == 0)
        return dibs__error_set(acquire->error, DIBS_BUSY, "somebody else holds %s", quoted);
    return dibs__error_set(acquire->error, DIBS_TIMEOUT, "somebody else held %s for all of %" PRId64 " ms", quoted,
                           acquire->wish->wait_ms);
}

/* The wait ended sooner than the time that the store has to answer, so it may be reachable. */
static dibs_status out_of_time(struct acquire *acquire)
{
    char quoted[DIBS__QUOTED_MAX];

    acquire->learned = DIBS__LEARNED_NOTHING;
    return dibs__error_set(acquire->error, DIBS_TIMEOUT,
                           "the store had not answered for %s when %" PRId64 " ms had passed",
                           dibs__quote(quoted, acquire->name), acquire->wish->wait_ms);
}

/* One try waited for all the time that the store has to answer; the thread that asked has had no answer either. */
static dibs_status no_answer(struct acquire *acquire)
{
    char quoted[DIBS__QUOTED_MAX];

    return dibs__error_set(acquire->error, DIBS_UNAVAILABLE,
                           "the store did not answer within %u ms for %s, which another thread asks for",
                           acquire->core->config.settings->command_timeout_ms, dibs__quote(quoted, acquire->name));
}

/* A wait that ends while grants are being taken back fails for lack of replicas, whoever had the lock last. */
static dibs_status for_lack_of_replicas(struct acquire *acquire, dibs_status status)
{
    if (status != DIBS_TIMEOUT || !dibs__patience_is_unmet(&acquire->patience, dibs__core_now(acquire->core)))
        return status;
    acquire->learned = DIBS__LEARNED_FAILURE;
    *acquire->error = acquire->patience.outage->error;
    return acquire->error->status;
}

/* ------------------------------------------------------------------- one ask */

static struct dibs__bid *bid_of(const struct acquire *acquire)
{
    DIBS__REQUIRE(acquire->lease && acquire->lease->asker);
    return &acquire->lease->asker->bid;
}

static dibs_status ask_store(struct acquire *acquire, struct dibs__answer *answer)
{
    struct dibs__core *core = acquire->core;
    struct dibs__bid *bid = bid_of(acquire);
    int64_t now = dibs__core_now(core);
    int64_t deadline =
        acquire->limit > 0 ? dibs__after_ms(now, core->config.settings->command_timeout_ms) : acquire->try_until;
    int64_t grace = acquire->limit > 0 && acquire->limit != DIBS__NEVER
                        ? dibs__after_ms(acquire->limit > now ? acquire->limit : now, GRACE_MS)
                        : DIBS__NEVER;

    bid->wait = acquire->limit > 0;
    bid->fair = acquire->lease->fair;
    bid->deadline = deadline < grace ? deadline : grace;
    dibs_status status = dibs__store_ask(core->store, bid, answer, acquire->error);
    if (answer->spent)
        dibs__bid_renew_token(core, acquire->cell, acquire->lease);
    bool cut_short = grace < deadline && dibs__core_now(core) >= grace;
    if (status == DIBS_UNAVAILABLE && !acquire->patience.in_outage && cut_short && !answer->unmet)
        return out_of_time(acquire);
    return status;
}

/* What the store answered to the ask that another thread made for this bid, unless that lease is over; or asks now. */
static dibs_status recall_or_ask(struct acquire *acquire, struct dibs__answer *answer)
{
    struct dibs__asker *asker = acquire->lease->asker;
    int64_t end = dibs__lease_deadline(asker->bid.proof, acquire->lease->asked_ms);
    bool answered = asker->answered;

    asker->answered = false;
    if (!answered || (asker->status == DIBS_OK && dibs__core_now(acquire->core) >= end))
        return ask_store(acquire, answer);
    *answer = asker->answer;
    return asker->status;
}

/* The store granted the lease to the last ask: it counts from when that was sent. False: nothing is left of it. */
static bool begin_lease(struct acquire *acquire, uint64_t fence)
{
    struct dibs__core *core = acquire->core;
    struct dibs__lease *lease = acquire->lease;
    struct dibs__bid *bid = bid_of(acquire);
    int64_t now = dibs__core_now(core), proof = bid->proof;
    int64_t deadline = dibs__lease_deadline(proof, lease->asked_ms);

    if (now >= deadline)
        return false;
    core->store->ops->conclude(core->store, bid, true);
    lease->store_fence = fence;
    lease->granted_at = acquire->acquired_at = now;
    lease->contended = acquire->waited;
    atomic_store(&lease->deadline, deadline);
    dibs__renewals_add(core->renewals, lease, lease->asked_ms, proof, &bid->lease);
    DIBS__PROBE(grant, lease->name, dibs__lease_fence(lease));
    return true;
}

static dibs_status take_grant(struct acquire *acquire, const struct dibs__answer *answer)
{
    struct dibs__core *core = acquire->core;

    if (begin_lease(acquire, answer->fence))
        return DIBS_OK;
    core->store->ops->conclude(core->store, bid_of(acquire), false);
    dibs__bid_renew_token(core, acquire->cell, acquire->lease);
    return dibs__error_set(acquire->error, DIBS_UNAVAILABLE, "the grant came when its lease of %u ms had ended",
                           acquire->wish->lease_ms);
}

/* A grant by push holds if it names the last ask, and its lease still lasts. Otherwise the store is to be asked. */
static bool take_push(struct acquire *acquire, const struct dibs__push *push)
{
    if (push->fence == 0 || push->confirm || push->number != bid_of(acquire)->number ||
        !begin_lease(acquire, push->fence))
        return false;
    dibs__count(&acquire->core->stats.granted);
    return true;
}

/* The ask failed. True: the acquire sleeps until *until, and asks again. False: the failure stands. */
static bool ride_out(struct acquire *acquire, const struct dibs__answer *answer, int64_t *until)
{
    int64_t now = dibs__core_now(acquire->core);

    if (now > dibs__after_ms(bid_of(acquire)->deadline, SUSPENDED_MS)) /* by a stop of the process: that is no outage */
        dibs__patience_renew(&acquire->patience, now);
    if (dibs__patience_is_over(&acquire->patience, acquire->error, answer, now)) {
        acquire->learned = DIBS__LEARNED_OUTAGE;
        return false;
    }
    if (now >= acquire->limit)
        return false;
    *until = dibs__patience_next_ask(&acquire->patience, now);
    return true;
}

/* ------------------------------------------------------- asking until it is final */

/* A foreign client has the lock. Whether the store tells when that changes, so that the thread need not ask so often.
 */
static bool is_told(struct acquire *acquire, const struct dibs__answer *answer)
{
    struct dibs__store *store = acquire->core->store;

    if (answer->told_ms == 0 || !store->ops->tell_when_free)
        return false;
    if (dibs__asker_expect_change(acquire->cell, acquire->lease))
        acquire->told = 0;
    acquire->told = store->ops->tell_when_free(store, acquire->name, acquire->told);
    return acquire->told != 0;
}

static void change_waiting(const struct acquire *acquire, int change)
{
    atomic_int_fast64_t *waiting = dibs__metrics_waiting(acquire->core->metrics, acquire->group);

    atomic_fetch_add_explicit(waiting, change, memory_order_relaxed);
}

/* Another has the lock: until when to sleep before the next ask. */
static int64_t wait_for_release(struct acquire *acquire, const struct dibs__answer *answer)
{
    if (!acquire->waited) {
        dibs__count(&acquire->core->stats.contended);
        change_waiting(acquire, 1);
    }
    acquire->waited = true;
    dibs__patience_heard(&acquire->patience);
    int64_t pause_ms = is_told(acquire, answer) ? answer->told_ms : answer->again_ms;
    return dibs__after_ms(dibs__core_now(acquire->core), pause_ms);
}

static struct dibs__push sleep_until(struct acquire *acquire, int64_t until)
{
    const struct dibs__patience *patience = &acquire->patience;
    bool meets_outage = patience->in_outage || dibs__patience_is_unmet(patience, dibs__core_now(acquire->core));
    const struct dibs__sleep sleep = {.deadline = until < acquire->limit ? until : acquire->limit,
                                      .ear = &acquire->ear,
                                      .store = acquire->core->store,
                                      .outage = meets_outage ? patience->outage : NULL};

    DIBS__REQUIRE(acquire->limit > 0);
    return dibs__asker_sleep(acquire->core->cells, acquire->cell, acquire->lease, &sleep);
}

/* The lease is listed in its cell. */
static dibs_status ask_until_final(struct acquire *acquire)
{
    struct dibs__core *core = acquire->core;
    int64_t until;

    while (!atomic_load(core->config.closing)) {
        struct dibs__answer answer = {0};
        dibs_status status = recall_or_ask(acquire, &answer);
        if (status == DIBS_OK) {
            status = take_grant(acquire, &answer);
            answer.unmet =
                status != DIBS_OK; /* a lease that is shorter than the way: each further ask meets the same */
        }
        if (status == DIBS_BUSY && dibs__core_now(core) >= acquire->limit)
            return taken(acquire);
        if (status == DIBS_BUSY)
            until = wait_for_release(acquire, &answer);
        else if (status != DIBS_UNAVAILABLE || !ride_out(acquire, &answer, &until))
            return status;
        struct dibs__push push = sleep_until(acquire, until);
        if (take_push(acquire, &push))
            return DIBS_OK;
        if (acquire->patience.in_outage)
            continue;
        int64_t now = dibs__core_now(core);
        dibs__patience_renew(&acquire->patience, now); /* it slept because the lock was taken: that is no outage */
        if (now >= acquire->limit)
            return taken(acquire);
    }
    return closed(acquire);
}

static dibs_status ask_patiently(struct acquire *acquire)
{
    dibs__ear_init(&acquire->ear);
    return ask_until_final(acquire);
}

static struct dibs__lease *new_bid(const struct acquire *acquire)
{
    return dibs__bid_new(acquire->core, acquire->name, acquire->name_size, acquire->group, acquire->wish->lease_ms,
                         acquire->wish->flags);
}

/* --------------------------------------------------------- in turn, or fairly */

/* The turn ends without the lock. Whether the bid goes on with the next thread here. */
static bool give_up(struct acquire *acquire, bool pass_on)
{
    return dibs__turn_give_up(acquire->core->cells, acquire->cell, acquire->lease,
                              &(struct dibs__leaving){acquire->learned, acquire->error, pass_on});
}

/* Who waits behind a holder leaves the queue before the call returns, if that takes no longer than a round trip. */
static void end_bid(struct acquire *acquire)
{
    if (acquire->learned == DIBS__LEARNED_TAKEN)
        dibs__bid_leave(acquire->core, acquire->lease);
    else
        dibs__bid_drop(acquire->core, acquire->lease);
}

/* The thread has the turn, and maybe a bid that another thread began. */
static dibs_status ask_in_turn(struct acquire *acquire)
{
    if (!acquire->lease) {
        acquire->lease = new_bid(acquire);
        if (!acquire->lease) {
            no_memory(acquire);
            give_up(acquire, false);
            return DIBS_NO_MEMORY;
        }
        dibs__asker_begin(acquire->cell, acquire->lease);
    }
    dibs_status status = ask_patiently(acquire);
    if (status == DIBS_OK) {
        dibs__turn_granted(acquire->cell, acquire->lease);
        return status;
    }
    /* A thread that only ran out of time leaves its place in the store's queue to the next thread here. */
    bool goes_on = status == DIBS_TIMEOUT && bid_of(acquire)->in_store;
    status = for_lack_of_replicas(acquire, status);
    if (give_up(acquire, goes_on))
        dibs__lease_unref(acquire->lease);
    else
        end_bid(acquire);
    return status;
}

/* A fair thread needs no turn: it has a place of its own in the store's queue. */
static dibs_status ask_fairly(struct acquire *acquire)
{
    struct dibs__core *core = acquire->core;

    acquire->lease = new_bid(acquire);
    if (!acquire->lease)
        return no_memory(acquire);
    acquire->cell = dibs__asker_begin_fair(core->cells, acquire->lease);
    dibs_status status = acquire->cell ? ask_patiently(acquire) : no_memory(acquire);
    if (status == DIBS_OK) {
        dibs__asker_end_fair(core->cells, acquire->lease);
        return status;
    }
    if (acquire->cell)
        dibs__asker_give_up_fair(acquire->cell, acquire->lease);
    end_bid(acquire);
    return for_lack_of_replicas(acquire, status);
}

/* The thread did not get the turn. */
static dibs_status fail_without_turn(struct acquire *acquire, dibs_status status)
{
    if (status == acquire->patience.outage->error.status) { /* what another thread was told */
        *acquire->error = acquire->patience.outage->error;
        return status;
    }
    if (status == DIBS_BUSY)
        return taken(acquire);
    if (status == DIBS_TIMEOUT)
        return acquire->limit == 0 ? no_answer(acquire) : out_of_time(acquire);
    return status == DIBS_CLOSED ? closed(acquire) : no_memory(acquire);
}

/* The lease was lost before this thread woke: as if it had not been handed over. */
static bool is_handed_too_late(struct acquire *acquire, struct dibs__turn *turn)
{
    struct dibs__core *core = acquire->core;

    if (turn->kind != DIBS__TURN_HANDED)
        return false;
    acquire->acquired_at = dibs__core_now(core);
    if (!dibs__lease_is_lost(turn->lease, acquire->acquired_at))
        return false;
    dibs__renewals_remove(core->renewals, turn->lease);
    dibs__core_lost(core, turn->lease, false, "");
    dibs__lease_unref(turn->lease);
    return true;
}

static dibs_status wait_for_turn(struct acquire *acquire, struct dibs__turn *turn)
{
    dibs_status status;

    do
        status = dibs__turn_take(acquire->core->cells, turn);
    while (status == DIBS_OK && is_handed_too_late(acquire, turn));
    acquire->waited = turn->waited;
    return status;
}

static dibs_status take_turn(struct acquire *acquire)
{
    struct dibs__core *core = acquire->core;
    struct dibs__turn turn = {
        .name = acquire->name,
        .name_size = acquire->name_size,
        .lease_ms = acquire->wish->lease_ms,
        .fixed = acquire->wish->flags & DIBS_FIXED_LEASE,
        .one_try = acquire->limit == 0,
        .deadline = acquire->limit > 0 ? acquire->limit : acquire->try_until,
        .patience = dibs__patience_until(&acquire->patience),
        .contended = &core->stats.contended,
        .waiting = dibs__metrics_waiting(core->metrics, acquire->group),
        .outage = acquire->patience.outage,
    };
    dibs_status status = wait_for_turn(acquire, &turn);

    if (status != DIBS_OK)
        return fail_without_turn(acquire, status);
    dibs__patience_take_over(&acquire->patience, turn.outage_since, dibs__core_now(core));
    acquire->lease = turn.lease;
    acquire->cell = turn.cell;
    if (turn.kind == DIBS__TURN_TO_ASK)
        return ask_in_turn(acquire);
    dibs__count(&core->stats.handed_off);
    DIBS__PROBE(handoff, turn.lease->name, dibs__lease_fence(turn.lease));
    return DIBS_OK;
}

/* began: when the call began. */
static void count_outcome(const struct acquire *acquire, dibs_status status, int64_t began)
{
    struct dibs__core *core = acquire->core;

    if (acquire->waited)
        change_waiting(acquire, -1);
    if (status == DIBS_OK) {
        dibs__metrics_count(core->metrics, acquire->group, DIBS__METRICS_WAIT, acquire->acquired_at - began);
    } else if (status == DIBS_BUSY) {
        dibs__count(&core->stats.busy);
    } else if (status == DIBS_TIMEOUT) {
        dibs__count(&core->stats.timed_out);
    }
}

dibs_status dibs__acquire(struct dibs__core *core, const char *name, size_t name_size, const struct dibs__wish *wish,
                          struct dibs__error *error)
{
    int64_t now = dibs__core_now(core), wait_ms = wish->wait_ms;
    struct dibs__outage outage;
    struct acquire acquire = {
        .core = core,
        .wish = wish,
        .name = name,
        .name_size = name_size,
        .group = dibs__metrics_group(core->metrics, name, name_size),
        .limit = wait_ms < 0    ? DIBS__NEVER
                 : wait_ms == 0 ? 0
                                : dibs__after_ms(now, wait_ms),
        .try_until = dibs__after_ms(now, core->config.settings->command_timeout_ms),
        .error = error,
    };

    DIBS__REQUIRE(wish->lease_ms > 0 && wait_ms >= DIBS_WAIT_FOREVER);
    DIBS__PROBE(acquire__start, name, wait_ms);
    dibs__patience_begin(&acquire.patience, core, &outage, now);
    if (!dibs__holds_reserve())
        return no_memory(&acquire);
    dibs_status status = wish->flags & DIBS_FAIR ? ask_fairly(&acquire) : take_turn(&acquire);
    count_outcome(&acquire, status, now);
    if (status == DIBS_OK) {
        dibs__holds_add(acquire.lease, acquire.acquired_at);
        dibs__order_acquired(name, name_size);
    }
    DIBS__PROBE(acquire__end, name, status);
    return status;
}
