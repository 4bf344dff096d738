/*
 * An acquire first gets the turn (turn.h), which a fair or a shared lock does not need. Then it asks the store until
 * the answer is final: the lock is granted, the wait is over, or the store fails in a way that the acquire does not
 * ride out. Between two asks the acquire rests (asker.h), and a grant that is pushed meanwhile ends it.
 */
#include "core/acquire.h"

#include <inttypes.h>
#include <string.h>

#include "base/order.h"
#include "base/probe.h"
#include "core/keeper.h"
#include "core/kept.h"

#define SUSPENDED_MS 1000 /* an ask that returns this long after its deadline was delayed here, not by the store */
#define GRACE_MS 3        /* an ask that is under way when the wait ends has this long to return */
#define ANSWER_KEEPS_MS 5 /* how long a fair ask behind others may leave its answer unread: longer than most turns */

/* --------------------------------------------------------------- how it fails */

static dibs_status closed(struct dibs__acquire *acquire)
{
    return dibs__error_set(acquire->error, DIBS_CLOSED, "the runtime is closing");
}

static dibs_status no_memory(struct dibs__acquire *acquire)
{
    return dibs__error_set(acquire->error, DIBS_NO_MEMORY, "no memory for a lock");
}

static dibs_status cancelled(struct dibs__acquire *acquire)
{
    acquire->learned = DIBS__LEARNED_NOTHING;
    return dibs__task_was_cancelled(acquire->error, acquire->name);
}

static dibs_status taken(struct dibs__acquire *acquire)
{
    /* A sharer is also kept out by those who wait and came before, and by as many sharers as its limit allows. */
    static const char *const holds[] = {"", ", or came before and waits for it",
                                        ", or came before and waits for it, or its limit is reached"};
    static const char *const held[] = {"", ", or came before and waited for it,",
                                       ", or came before and waited for it, or its limit was reached,"};
    size_t kind = !(acquire->wish.flags & DIBS_SHARED) ? 0 : acquire->wish.limit == 0 ? 1 : 2;

    /* Of a lease that is only kept nothing is learned by a try that does not wait until it is given back. */
    acquire->learned = acquire->never_rests && acquire->recalled ? DIBS__LEARNED_NOTHING : DIBS__LEARNED_TAKEN;
    if (acquire->wish.wait_ms == 0)
        return dibs__error_set(acquire->error, DIBS_BUSY, "somebody else holds %s%s", DIBS__QUOTED(acquire->name),
                               holds[kind]);
    return dibs__error_set(acquire->error, DIBS_TIMEOUT,
                           acquire->known ? "somebody else held %s%s when %" PRId64 " ms had passed"
                                          : "somebody else held %s%s for all of %" PRId64 " ms",
                           DIBS__QUOTED(acquire->name), held[kind], acquire->wish.wait_ms);
}

/* The wait ended before the store's time to answer was over, so the store may be reachable. */
static dibs_status out_of_time(struct dibs__acquire *acquire)
{
    acquire->learned = DIBS__LEARNED_NOTHING;
    return dibs__error_set(acquire->error, DIBS_TIMEOUT,
                           "the store had not answered for %s when %" PRId64 " ms had passed",
                           DIBS__QUOTED(acquire->name), acquire->wish.wait_ms);
}

/* One try waited as long as the store may take to answer; the thread that asks for the name has no answer either. */
static dibs_status no_answer(struct dibs__acquire *acquire)
{
    return dibs__error_set(acquire->error, DIBS_UNAVAILABLE,
                           "the store did not answer within %u ms for %s, which another thread asks for",
                           acquire->core->config.settings->command_timeout_ms, DIBS__QUOTED(acquire->name));
}

/*
 * If a wait ends while grants are being taken back, it fails for lack of replicas, whoever had the lock last, and even
 * if the end of the wait cut off the last ask.
 */
static dibs_status for_lack_of_replicas(struct dibs__acquire *acquire, dibs_status status)
{
    if ((status != DIBS_TIMEOUT && status != DIBS_UNAVAILABLE) ||
        !dibs__outage_budget_lacks_replicas(&acquire->budget, dibs__core_now(acquire->core)))
        return status;
    acquire->learned = DIBS__LEARNED_FAILURE;
    *acquire->error = acquire->budget.outage->error;
    return acquire->error->status;
}

/* ------------------------------------------------------------------- one ask */

static enum dibs__acquire_state end(struct dibs__acquire *acquire, dibs_status status);

/* Sets up the next ask and its deadline, unless the acquire must end. */
static enum dibs__acquire_state prepare_ask(struct dibs__acquire *acquire)
{
    struct dibs__asker *asker = acquire->lease->asker;
    int64_t now = dibs__core_now(acquire->core);
    /* All asks of one try share one command timeout, even while the try waits for a keeper. */
    bool one_try = acquire->wish.wait_ms == 0;

    if (acquire->cancelled)
        return end(acquire, cancelled(acquire));
    if (atomic_load(acquire->core->config.closing))
        return end(acquire, closed(acquire));
    /* Another thread asked for this attempt and left a grant here whose lease is over. */
    if (asker->answered && asker->status == DIBS_OK &&
        now >= dibs__lease_deadline(asker->attempt.proof, acquire->lease->asked_ms))
        asker->answered = false;
    int64_t deadline =
        one_try ? acquire->try_until : dibs__after_ms(now, acquire->core->config.settings->command_timeout_ms);

    asker->grace = !one_try && acquire->wait_until != DIBS__NEVER
                       ? dibs__after_ms(acquire->wait_until > now ? acquire->wait_until : now, GRACE_MS)
                       : DIBS__NEVER;
    if (asker->grace >= deadline)
        asker->grace = DIBS__NEVER;
    asker->attempt.wait = acquire->wait_until > 0;
    asker->ask = dibs__op_ask(&asker->attempt, &asker->answer, dibs__earlier(deadline, asker->grace));
    return DIBS__ACQUIRE_ASKS;
}

/* Finishes the ask, which may have been begun; or takes the answer to the ask that another thread made. */
static dibs_status finish_ask(struct dibs__acquire *acquire)
{
    struct dibs__store *store = acquire->core->store;
    struct dibs__asker *asker = acquire->lease->asker;
    const struct dibs__answer *answer = &asker->answer;

    if (asker->answered) {
        asker->answered = false;
        return asker->status;
    }
    dibs_status status = store->ops->finish(store, &asker->ask, acquire->error);
    if (answer->retired)
        dibs__attempt_renew_token(acquire->core, acquire->cell, acquire->lease);
    if (status == DIBS_UNAVAILABLE && acquire->never_rests && dibs__core_now(acquire->core) >= acquire->try_until)
        acquire->learned = DIBS__LEARNED_NOTHING; /* the call for several names may have left the try little time */
    if (status == DIBS_UNAVAILABLE && !acquire->budget.in_outage && answer->why != DIBS__WHY_TOO_FEW_REPLICAS &&
        asker->grace != DIBS__NEVER && dibs__core_now(acquire->core) >= asker->grace)
        return out_of_time(acquire);
    return status;
}

/* The store granted the last ask: the lease counts from when that ask was sent. False: the lease is over already. */
static bool begin_lease(struct dibs__acquire *acquire, uint64_t fence, uint32_t step)
{
    struct dibs__core *core = acquire->core;
    struct dibs__lease *lease = acquire->lease;
    struct dibs__attempt *attempt = &acquire->lease->asker->attempt;
    int64_t now = dibs__core_now(core), proof = attempt->proof;
    int64_t deadline = dibs__lease_deadline(proof, lease->asked_ms);

    if (now >= deadline)
        return false;
    core->store->ops->conclude(core->store, attempt, true);
    lease->store_fence = fence;
    atomic_store_explicit(&lease->step, step, memory_order_relaxed);
    lease->granted_at = acquire->acquired_at = now;
    lease->granted_in = now - proof;
    lease->contended = acquire->waited;
    atomic_store(&lease->deadline, deadline);
    dibs__renewals_add(core->renewals, lease, lease->asked_ms, proof, &attempt->lease);
    DIBS__PROBE(grant, lease->name, dibs__lease_fence(lease));
    return true;
}

static dibs_status take_grant(struct dibs__acquire *acquire)
{
    struct dibs__core *core = acquire->core;

    if (begin_lease(acquire, acquire->lease->asker->answer.fence, acquire->lease->asker->answer.step))
        return DIBS_OK;
    core->store->ops->conclude(core->store, &acquire->lease->asker->attempt, false);
    dibs__attempt_renew_token(core, acquire->cell, acquire->lease);
    return dibs__error_set(acquire->error, DIBS_UNAVAILABLE, "the grant came when its lease of %u ms had ended",
                           acquire->wish.lease_ms);
}

/* A pushed grant is valid if it names the last ask and its lease still lasts. Otherwise the store must be asked. */
static bool take_push(struct dibs__acquire *acquire, const struct dibs__push *push)
{
    if (push->fence == 0 || push->confirm || push->number != acquire->lease->asker->attempt.number ||
        !begin_lease(acquire, push->fence, 0))
        return false;
    dibs__count(&acquire->core->stats.granted);
    return true;
}

/* An ask failed. True: the acquire must sleep until *until and ask again. False: the failure is final. */
static bool ride_out(struct dibs__acquire *acquire, int64_t *until)
{
    int64_t now = dibs__core_now(acquire->core);

    /* The process was stopped, which is no outage. */
    if (now > dibs__after_ms(acquire->lease->asker->ask.deadline, SUSPENDED_MS))
        dibs__outage_budget_renew(&acquire->budget, now);
    if (dibs__outage_budget_is_over(&acquire->budget, acquire->error, &acquire->lease->asker->answer, now)) {
        acquire->learned = DIBS__LEARNED_OUTAGE;
        return false;
    }
    if (now >= acquire->wait_until)
        return false;
    *until = dibs__outage_budget_next_ask(&acquire->budget, now);
    return true;
}

/* ------------------------------------------------------- asking until it is final */

/* If a foreign client has the lock: whether the store reports when that changes, so that asking can be rare. */
static bool will_be_notified(struct dibs__acquire *acquire)
{
    struct dibs__store *store = acquire->core->store;

    if (acquire->lease->asker->answer.told_ms == 0 || !store->ops->tell_when_free)
        return false;
    if (dibs__asker_expect_change(acquire->cell, acquire->lease))
        acquire->tell_epoch = 0;
    acquire->tell_epoch = store->ops->tell_when_free(store, acquire->name, acquire->tell_epoch);
    return acquire->tell_epoch != 0;
}

/* The acquire has to wait for the name. */
static void count_wait(struct dibs__acquire *acquire)
{
    if (acquire->waited)
        return;
    acquire->waited = true;
    dibs__count(&acquire->core->stats.contended);
    dibs__metrics_wait(acquire->group, 1);
}

/* The lock is taken: returns until when to sleep before the next ask. */
static int64_t wait_for_release(struct dibs__acquire *acquire)
{
    const struct dibs__answer *answer = &acquire->lease->asker->answer;

    count_wait(acquire);
    dibs__outage_budget_note_reply(&acquire->budget);
    int64_t pause_ms = will_be_notified(acquire) ? answer->told_ms : answer->again_ms;
    if (answer->why == DIBS__WHY_KEPT && acquire->wish.wait_ms == 0 && pause_ms >= acquire->recall.first_ms)
        pause_ms = dibs__backoff_next(&acquire->recall, pause_ms);
    return dibs__after_ms(dibs__core_now(acquire->core), pause_ms);
}

/* Begins to rest until that time. An outage is reported to the threads that wait behind this acquire. */
static void begin_rest(struct dibs__acquire *acquire, int64_t until)
{
    const struct dibs__outage_budget *budget = &acquire->budget;
    bool meets_outage = budget->in_outage || dibs__outage_budget_lacks_replicas(budget, dibs__core_now(acquire->core));

    DIBS__REQUIRE(acquire->wait_until > 0);
    dibs__asker_rest(acquire->core->cells, acquire->cell, acquire->lease, dibs__earlier(until, acquire->wait_until),
                     acquire->wait_event, meets_outage ? acquire->budget.outage : NULL);
}

/* The calling thread sleeps until the rest is over. Returns what was pushed. */
static struct dibs__push sleep_out_rest(struct dibs__acquire *acquire)
{
    struct dibs__core *core = acquire->core;
    struct dibs__push push;
    int64_t until;

    for (;;) {
        dibs__wait_event_reset(acquire->wait_event);
        if (!dibs__asker_rests(core->cells, acquire->cell, acquire->lease, false, &until, &push))
            return push;
        dibs__store_listen(core->store, core->config.clock, acquire->name, acquire->wait_event, until);
    }
}

/*
 * One try waits for a lease that another process merely keeps. The keeper was asked to give the lease back, and either
 * does so or says that the lease is in use. It gets DIBS__RECALL_MS and a round trip, since it may be as far from the
 * store as this process; the try learns the outcome from the answer to its next ask. If a round trip takes longer than
 * the rest of the try, the try does not wait.
 */
static void note_recall(struct dibs__acquire *acquire)
{
    int64_t now = dibs__core_now(acquire->core), round_trip = now - acquire->lease->asker->attempt.proof;
    int64_t until = dibs__after_ms(now, DIBS__RECALL_MS) + round_trip;

    acquire->recalled = acquire->lease->asker->answer.why == DIBS__WHY_KEPT;
    if (!acquire->recalled || acquire->wait_until > 0 || acquire->never_rests || now + round_trip >= acquire->try_until)
        return;
    acquire->wait_until = dibs__earlier(until, acquire->try_until);
}

/* What the answer to an ask leads to. With RESTS, *until is when to ask again. */
static enum dibs__acquire_state after_ask(struct dibs__acquire *acquire, dibs_status status, int64_t *until)
{
    struct dibs__core *core = acquire->core;

    if (status == DIBS_OK) {
        status = take_grant(acquire);
        if (status == DIBS_OK)
            return end(acquire, status);
        /* The lease is shorter than the round trip, which is treated like grants that are taken back. */
        acquire->lease->asker->answer.why = DIBS__WHY_TOO_FEW_REPLICAS;
    }
    if (acquire->cancelled)
        return end(acquire, cancelled(acquire));
    if (status == DIBS_BUSY)
        note_recall(acquire);
    if (status == DIBS_BUSY &&
        (dibs__core_now(core) >= acquire->wait_until || (acquire->wish.wait_ms == 0 && !acquire->recalled)))
        return end(acquire, taken(acquire));
    if (status == DIBS_BUSY)
        *until = wait_for_release(acquire);
    else if (status != DIBS_UNAVAILABLE || !ride_out(acquire, until))
        return end(acquire, status);
    return DIBS__ACQUIRE_RESTS;
}

static enum dibs__acquire_state after_rest(struct dibs__acquire *acquire, const struct dibs__push *push)
{
    if (take_push(acquire, push))
        return end(acquire, DIBS_OK);
    if (!acquire->budget.in_outage) {
        int64_t now = dibs__core_now(acquire->core);
        /* The acquire slept because the lock was taken, which is no outage. */
        dibs__outage_budget_renew(&acquire->budget, now);
        if (now >= acquire->wait_until && !acquire->cancelled)
            return end(acquire, taken(acquire));
    }
    return DIBS__ACQUIRE_ASKS;
}

/* ------------------------------------------------- with a turn, or without */

/* Gives up the turn without the lock. True: the next acquire here goes on with the attempt. */
static bool give_up(struct dibs__acquire *acquire, bool pass_on)
{
    return dibs__turn_give_up(acquire->core->cells, acquire->cell, acquire->lease,
                              &(struct dibs__leaving){acquire->learned, acquire->error, pass_on});
}

/* Whether a thread drives other acquires besides this one, so that it must not sleep for this one alone. */
static bool is_one_of_many(const struct dibs__acquire *acquire)
{
    return acquire->wait_event->tell || acquire->never_rests;
}

/*
 * An acquire that was waiting behind a holder leaves the store's queue before the call returns, if that takes no
 * longer than a round trip to a nearby server.
 */
static void drop_attempt(struct dibs__acquire *acquire)
{
    struct dibs__lease *lease = acquire->lease;

    dibs__lease_ref(lease);
    dibs__attempt_drop(acquire->core, lease, acquire->learned == DIBS__LEARNED_TAKEN && !is_one_of_many(acquire));
    if (acquire->known)
        *acquire->known = lease->asker->attempt.store_state;
    dibs__lease_unref(lease);
}

void dibs__acquire_hold(const struct dibs__acquire *acquire, struct dibs__holds *holds)
{
    dibs__metrics_count(acquire->group, DIBS__METRICS_WAIT, acquire->acquired_at - acquire->began);
    dibs__order_acquired(acquire->name, acquire->name_size);
    dibs__holds_add(holds, acquire->lease, acquire->acquired_at);
}

void dibs__acquire_count(struct dibs__core *core, dibs_status status)
{
    if (status == DIBS_BUSY)
        dibs__count(&core->stats.busy);
    else if (status == DIBS_TIMEOUT)
        dibs__count(&core->stats.timed_out);
}

/* The acquire has nothing to give up, or has just given it up. */
static enum dibs__acquire_state ended(struct dibs__acquire *acquire, dibs_status status)
{
    /* The call for several names will wait for that lock. */
    bool is_waited_for = acquire->probes || (acquire->never_rests && acquire->recalled);

    acquire->status = status;
    dibs__outage_set(&acquire->budget.outage, NULL);
    dibs__outage_set(&acquire->waiter.outage, NULL);
    if (acquire->waited)
        dibs__metrics_wait(acquire->group, -1);
    if (!acquire->counts_end && !(status == DIBS_BUSY && is_waited_for))
        dibs__acquire_count(acquire->core, status);
    DIBS__PROBE(acquire__end, acquire->name, status);
    return DIBS__ACQUIRE_ENDED;
}

/* The acquire must have an attempt. */
static enum dibs__acquire_state end(struct dibs__acquire *acquire, dibs_status status)
{
    if (status == DIBS_OK) {
        dibs__turn_granted(acquire->core->cells, acquire->lease);
        return ended(acquire, DIBS_OK);
    }
    /* An acquire that ran out of time or was cancelled leaves its place in the store's queue to the next one here. */
    bool goes_on = (status == DIBS_TIMEOUT || status == DIBS_CANCELLED) && acquire->lease->asker->attempt.in_store;
    status = for_lack_of_replicas(acquire, status);
    if (acquire->cell && give_up(acquire, goes_on))
        dibs__lease_unref(acquire->lease);
    else
        drop_attempt(acquire);
    return ended(acquire, status);
}

/* Begins an attempt, unless another acquire began one that this one goes on with. */
static enum dibs__acquire_state begin_to_ask(struct dibs__acquire *acquire)
{
    if (acquire->lease)
        return DIBS__ACQUIRE_ASKS;
    acquire->lease = dibs__attempt_new(acquire->core, acquire->name, acquire->name_size, acquire->group, &acquire->wish,
                                       acquire->waiter.keeps);
    if (acquire->lease) {
        if (acquire->known)
            acquire->lease->asker->attempt.store_state = *acquire->known;
        acquire->cell = dibs__asker_begin(acquire->core->cells, acquire->lease);
        return acquire->cell ? DIBS__ACQUIRE_ASKS : end(acquire, no_memory(acquire));
    }
    no_memory(acquire);
    if (acquire->cell) /* the acquire has the turn */
        give_up(acquire, false);
    return ended(acquire, DIBS_NO_MEMORY);
}

/* The acquire did not get the turn. */
static dibs_status fail_without_turn(struct dibs__acquire *acquire, dibs_status status)
{
    if (status == DIBS_CANCELLED)
        return cancelled(acquire);
    if (acquire->waiter.outage) { /* what the thread with the turn met */
        *acquire->error = acquire->waiter.outage->error;
        return status;
    }
    if (status == DIBS_BUSY)
        return taken(acquire);
    if (status == DIBS_TIMEOUT)
        return acquire->wait_until == 0 ? no_answer(acquire) : out_of_time(acquire);
    return status == DIBS_CLOSED ? closed(acquire) : no_memory(acquire);
}

/* True: the lease that was handed over was lost before this acquire had it, which must wait for its turn again. */
static bool is_handed_too_late(struct dibs__acquire *acquire)
{
    struct dibs__core *core = acquire->core;
    const struct dibs__waiter *waiter = &acquire->waiter;

    if (!dibs__waiter_is_handed(waiter))
        return false;
    acquire->acquired_at = waiter->retaken_at > 0 ? waiter->retaken_at : dibs__core_now(core);
    if (!dibs__lease_is_lost(waiter->lease, acquire->acquired_at) && dibs__lease_claim(waiter->lease))
        return false;
    dibs__core_lost(core, waiter->lease, false, NULL); /* nobody used it, so nobody is told */
    dibs__lease_unref(waiter->lease);
    return true;
}

/* Gives back a kept lease that is not what the acquire wants. The store gets it before the acquire asks, or soon. */
static void give_back_unfit(struct dibs__acquire *acquire)
{
    dibs__core_give_back(acquire->core, acquire->waiter.unfit);
    dibs__lease_unref(acquire->waiter.unfit);
    acquire->waiter.unfit = NULL;
}

/* Goes on after the wait for the turn: with the turn, with a lease that was handed over in time, or with a failure. */
static enum dibs__acquire_state after_turn(struct dibs__acquire *acquire, dibs_status status)
{
    struct dibs__core *core = acquire->core;
    const struct dibs__waiter *waiter = &acquire->waiter;

    if (waiter->unfit)
        give_back_unfit(acquire);
    if (status != DIBS_OK)
        return ended(acquire, fail_without_turn(acquire, status));
    acquire->lease = waiter->lease;
    acquire->cell = waiter->cell;
    if (!dibs__waiter_is_handed(waiter)) {
        if (acquire->waited || waiter->outage)
            dibs__outage_budget_take_over(&acquire->budget, waiter->outage, waiter->outage_since, dibs__core_now(core));
        return begin_to_ask(acquire);
    }
    if (waiter->retaken_at > 0) {
        dibs__kept_count_retake(waiter->lease);
        dibs__renewals_use_changed(core->renewals, waiter->lease);
    } else {
        dibs__count(&core->stats.handed_off);
    }
    DIBS__PROBE(handoff, waiter->lease->name, dibs__lease_fence(waiter->lease));
    return ended(acquire, DIBS_OK);
}

/* ---------------------------------------------------------------------- steps */

void dibs__acquire_init(struct dibs__acquire *acquire, struct dibs__core *core, const char *name, size_t name_size,
                        const struct dibs__wish *wish, struct dibs__wait_event *wait_event, struct dibs__error *error)
{
    int64_t now = dibs__core_now(core), wait_ms = wish->wait_ms;

    DIBS__REQUIRE(wish->lease_ms > 0 && wait_ms >= DIBS_WAIT_FOREVER);
    memset(acquire, 0, sizeof *acquire);
    acquire->core = core;
    acquire->wish = *wish;
    acquire->name = name;
    acquire->name_size = name_size;
    acquire->error = error;
    acquire->began = now;
    acquire->group = dibs__metrics_group(core->metrics, name, name_size);
    acquire->wait_until = wait_ms < 0 ? DIBS__NEVER : wait_ms == 0 ? 0 : dibs__after_ms(now, wait_ms);
    acquire->try_until = dibs__after_ms(now, core->config.settings->command_timeout_ms);
    acquire->recall.first_ms = 1;
    acquire->wait_event = wait_event;
    dibs__outage_budget_begin(&acquire->budget, core->config.settings->outage_ms, now);
    DIBS__PROBE(acquire__start, name, wait_ms);
}

static enum dibs__acquire_state begin_turn(struct dibs__acquire *acquire)
{
    dibs_status status;

    do
        if (!dibs__turn_begin(acquire->core->cells, &acquire->waiter, &status)) {
            if (!acquire->waiter.one_try)
                count_wait(acquire);
            return DIBS__ACQUIRE_WAITS;
        }
    while (status == DIBS_OK && is_handed_too_late(acquire));
    return after_turn(acquire, status);
}

void dibs__acquire_start(struct dibs__acquire *acquire)
{
    struct dibs__waiter *waiter = &acquire->waiter;

    if (acquire->wish.flags & (DIBS_FAIR | DIBS_SHARED)) { /* it has its own place in the store's queue */
        dibs__keeper_give_back_name(acquire->core, acquire->name, acquire->name_size);
        acquire->state = begin_to_ask(acquire);
        return;
    }
    waiter->name = acquire->name;
    waiter->name_size = acquire->name_size;
    waiter->wish = acquire->wish;
    waiter->one_try = acquire->wait_until == 0;
    waiter->deadline = acquire->wait_until > 0 ? acquire->wait_until : acquire->try_until;
    waiter->budget = dibs__outage_budget_until(&acquire->budget);
    waiter->told = is_one_of_many(acquire) ? acquire->wait_event : NULL;
    acquire->state = begin_turn(acquire);
}

/* In WAITS: something may have changed. */
static enum dibs__acquire_state look(struct dibs__acquire *acquire)
{
    enum dibs__acquire_state state;
    dibs_status status;

    do { /* nobody would wake it to look whether it was cancelled */
        if (dibs__turn_goes_on(acquire->core->cells, &acquire->waiter, acquire->cancelled, &status))
            return DIBS__ACQUIRE_WAITS;
        if (status != DIBS_OK || !is_handed_too_late(acquire))
            return after_turn(acquire, status);
        state = begin_turn(acquire);
    } while (state == DIBS__ACQUIRE_WAITS && acquire->cancelled);
    return state;
}

enum dibs__job_next dibs__acquire_go_on(struct dibs__acquire *acquire, int64_t *until)
{
    struct dibs__core *core = acquire->core;
    struct dibs__push push;

    switch (acquire->state) {
    case DIBS__ACQUIRE_WAITS:
        acquire->state = look(acquire);
        *until = acquire->waiter.deadline;
        if (acquire->state == DIBS__ACQUIRE_WAITS)
            return DIBS__JOB_RESTS;
        break;
    case DIBS__ACQUIRE_RESTS:
        if (dibs__asker_rests(core->cells, acquire->cell, acquire->lease, acquire->cancelled, until, &push))
            return DIBS__JOB_RESTS;
        acquire->state = after_rest(acquire, &push);
        break;
    case DIBS__ACQUIRE_ASKS:
        acquire->state = prepare_ask(acquire);
        if (acquire->state == DIBS__ACQUIRE_ENDED)
            break;
        if (!acquire->lease->asker->answered)
            core->store->ops->begin(core->store, &acquire->lease->asker->ask);
        *until = acquire->lease->asker->ask.deadline;
        return DIBS__JOB_FINISHES;
    case DIBS__ACQUIRE_ENDED:
        break;
    }
    return acquire->state == DIBS__ACQUIRE_ENDED ? DIBS__JOB_ENDS : DIBS__JOB_GOES_ON;
}

enum dibs__awaited dibs__acquire_await(struct dibs__acquire *acquire, const struct dibs__waiting *waiting)
{
    struct dibs__asker *asker = acquire->lease->asker;

    return asker->answered ? DIBS__HAS_COME : dibs__op_await(acquire->core->store, &asker->ask, waiting);
}

bool dibs__acquire_is_sent(struct dibs__acquire *acquire)
{
    struct dibs__store *store = acquire->core->store;

    return acquire->lease->asker->answered ||
           dibs__op_was_sent(store->ops->progress(store, &acquire->lease->asker->ask, NULL));
}

/*
 * A fair acquire behind others of its process also comes behind them in the store's queue, so the answer to its first
 * ask is of no use to it. If a thread waits for the acquire, it begins to sleep until the grant at once, and takes the
 * answer when it wakes, or after ANSWER_KEEPS_MS: one sleep instead of two. Returns what was pushed, if it has slept.
 */
static struct dibs__push sleep_before_answer(struct dibs__acquire *acquire)
{
    const struct dibs__asker *asker = acquire->lease->asker;
    struct dibs__store *store = acquire->core->store;
    const struct dibs__push nothing = {.fence = 0};

    if (!asker->behind || asker->attempt.number > 0 || !asker->attempt.wait || !store->answers_keep ||
        is_one_of_many(acquire))
        return nothing;
    store->ops->begin(store, &acquire->lease->asker->ask);
    if (!dibs__acquire_is_sent(acquire))
        return nothing;
    begin_rest(acquire, dibs__after_ms(dibs__core_now(acquire->core), ANSWER_KEEPS_MS));
    return sleep_out_rest(acquire);
}

void dibs__acquire_finish(struct dibs__acquire *acquire)
{
    struct dibs__store *store = acquire->core->store;
    int64_t until = 0;
    struct dibs__push push = sleep_before_answer(acquire);
    dibs_status status = finish_ask(acquire);
    bool granted_since = status == DIBS_BUSY && push.fence > 0;

    if (granted_since)
        wait_for_release(acquire);
    else
        acquire->state = after_ask(acquire, status, &until);
    if (acquire->state == DIBS__ACQUIRE_ENDED)
        return;
    if (granted_since || push.again) {
        acquire->state = after_rest(acquire, &push);
        return;
    }
    begin_rest(acquire, until);
    if (is_one_of_many(acquire) && store->ops->listen) /* no thread listens */
        store->ops->listen(store, acquire->name, NULL, 0);
}

/* ------------------------------------------------------- by the calling thread */

void dibs__acquire_run(struct dibs__acquire *acquire)
{
    struct dibs__push push;

    while (acquire->state != DIBS__ACQUIRE_ENDED) {
        if (acquire->state == DIBS__ACQUIRE_ASKS) {
            acquire->state = prepare_ask(acquire);
            if (acquire->state == DIBS__ACQUIRE_ASKS)
                dibs__acquire_finish(acquire);
        } else if (acquire->state == DIBS__ACQUIRE_WAITS) {
            dibs__turn_sleep(acquire->core->cells, &acquire->waiter);
            acquire->state = look(acquire);
        } else {
            push = sleep_out_rest(acquire);
            acquire->state = after_rest(acquire, &push);
        }
    }
}

dibs_status dibs__acquire(struct dibs__core *core, const char *name, size_t name_size, const struct dibs__wish *wish,
                          struct dibs__error *error)
{
    struct dibs__holds *holds = dibs__holds_here(core->config.serial);
    struct dibs__wait_event wait_event;
    struct dibs__acquire acquire;

    dibs__wait_event_init(&wait_event);
    dibs__acquire_init(&acquire, core, name, name_size, wish, &wait_event, error);
    if (!dibs__holds_reserve(holds, 1))
        return no_memory(&acquire);
    dibs__acquire_start(&acquire);
    dibs__acquire_run(&acquire);
    if (acquire.status == DIBS_OK)
        dibs__acquire_hold(&acquire, holds);
    return acquire.status;
}
