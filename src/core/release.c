#include "core/release.h"

#include "base/order.h"
#include "base/probe.h"
#include "core/done.h"
#include "core/keeper.h"

static dibs_status was_lost(const struct dibs__lease *lease, struct dibs__error *error)
{
    return dibs__error_set(error, DIBS_LOST, "the lease of %s ended before it was unlocked", DIBS__QUOTED(lease->name));
}

/* What the store's answer means for the caller. *error was filled by the store. */
static dibs_status released(struct dibs__core *core, struct dibs__lease *lease, const struct dibs__release *release,
                            dibs_status status, struct dibs__error *error)
{
    if (status != DIBS_NOT_HELD)
        return status;
    /* If the release was sent twice, and in time, the first request did it. Otherwise the lock was taken away. */
    if (release->again && !dibs__lease_is_lost(lease, dibs__core_now(core)))
        return DIBS_OK;
    dibs__lease_lose(lease);
    dibs__core_lost(core, lease, true,
                    "its key was gone from the store, or belonged to somebody else, when it was unlocked");
    return was_lost(lease, error);
}

/*
 * The attempt of the next waiter here, to be asked for in the same round trip as the release. NULL: the waiter asks by
 * itself. It must do so if replicas or the disk are waited for, because that takes a connection of its own.
 */
static struct dibs__lease *attempt_for_next(struct dibs__core *core, struct dibs__lease *lease,
                                            const struct dibs__wish *wanted)
{
    if (dibs__core_confirms(core))
        return NULL;
    struct dibs__lease *next = dibs__attempt_new(core, lease->name, lease->name_size, lease->group, wanted, false);
    if (next) {
        next->asker->attempt.wait = true;
        dibs__asker_begin(core->cells, next);
    }
    return next;
}

/* The lease is over. The next waiter here learns the store's answer for `next`, or begins an attempt of its own. */
static void end_lease(struct dibs__core *core, struct dibs__lease *lease, struct dibs__lease *next,
                      const struct dibs__release *release)
{
    if (next && (release->next_status == DIBS_OK || release->next_status == DIBS_BUSY)) {
        next->asker->answered = true;
        next->asker->status = release->next_status;
    }
    bool taken_over = dibs__handover_end(core->cells, lease, next);
    if (next && taken_over)
        dibs__lease_unref(next);
    else if (next)
        dibs__attempt_drop(core, next, false);
}

/*
 * The first step of this fence that no holder had, if the store may grant the fence again; else 0. It may not if the
 * lease may be kept, because its fence is raised meanwhile, nor if others wait elsewhere, who must get the lock.
 */
static uint32_t next_step(const struct dibs__lease *lease)
{
    unsigned step = atomic_load_explicit(&lease->step, memory_order_relaxed) + 1;
    bool again =
        (lease->shared || !lease->turnless) && !lease->contended && !lease->token.keeps && step < DIBS__FENCE_STEPS;

    return again ? step : 0;
}

/* False: the lease stays in the process, for another thread or kept. True: it must be released in the store. */
static bool part_with(struct dibs__unlocking *unlocking, int64_t now)
{
    struct dibs__core *core = unlocking->core;
    struct dibs__lease *lease = unlocking->lease;
    enum dibs__parting parting =
        dibs__handover_part(core->cells, lease, dibs__keeper_may_keep(core, lease), now, &unlocking->wanted);
    int64_t timeout_ms = core->config.settings->command_timeout_ms;

    if (parting == DIBS__PART_KEPT)
        dibs__renewals_use_changed(core->renewals, lease);
    if (parting == DIBS__PART_HANDED || parting == DIBS__PART_KEPT)
        return false;
    unlocking->requeues = parting == DIBS__PART_REQUEUE;
    unlocking->prepared = false;
    unlocking->settle_until = dibs__after_ms(now, timeout_ms / 2);
    unlocking->op =
        (struct dibs__op){.kind = DIBS__OP_RELEASE, .name = lease->name, .deadline = dibs__after_ms(now, timeout_ms)};
    return true;
}

bool dibs__release_lease(struct dibs__unlocking *unlocking, struct dibs__core *core, struct dibs__lease *lease,
                         int64_t now, dibs_status *status, struct dibs__error *error)
{
    DIBS__REQUIRE(lease->runtime == core->config.serial && !lease->asker);
    DIBS__PROBE(release, lease->name, dibs__lease_fence(lease));
    unlocking->core = core;
    unlocking->lease = lease;
    dibs__loss_unwatch(lease);
    *status = DIBS_OK;
    if (dibs__lease_is_lost(lease, now)) {
        dibs__core_lost(core, lease, false, "it was not renewed in time");
        *status = was_lost(lease, error);
    } else {
        dibs__order_releases(lease->name, lease->name_size);
        if (part_with(unlocking, now))
            return true;
    }
    dibs__lease_unref(lease);
    return false;
}

/* Whether the release can be sent now. Waits for that until that time, but no longer than the release may wait. */
static bool may_begin(struct dibs__unlocking *unlocking, int64_t until)
{
    struct dibs__core *core = unlocking->core;
    int64_t limit = dibs__earlier(unlocking->op.deadline, unlocking->settle_until);

    DIBS__REQUIRE(!unlocking->prepared);
    return dibs__renewals_settle(core->renewals, unlocking->lease, dibs__earlier(until, limit)) ||
           dibs__core_now(core) >= limit;
}

/* From now on no renewal of the lease begins, and `op` is complete. */
static void prepare(struct dibs__unlocking *unlocking)
{
    struct dibs__core *core = unlocking->core;
    struct dibs__lease *lease = unlocking->lease;

    unlocking->settled = dibs__renewals_remove(core->renewals, lease);
    struct dibs__lease *next = unlocking->requeues ? attempt_for_next(core, lease, &unlocking->wanted) : NULL;
    dibs__token_write(&core->tokens, &lease->token, unlocking->token);
    unlocking->op.release = (struct dibs__release){
        .token = unlocking->token,
        .lease_ms = dibs__lease_longest_ms(lease),
        .fence = dibs__lease_top_fence(lease),
        .next_step = next_step(lease),
        .granted_at = lease->granted_at,
        .contended = lease->contended,
        .shared = lease->shared,
    };
    if (next)
        unlocking->op.release.next = (struct dibs__ask){&next->asker->attempt, &next->asker->answer};
    unlocking->next = next;
    unlocking->prepared = true;
}

bool dibs__release_begin(struct dibs__unlocking *unlocking, int64_t until)
{
    struct dibs__store *store = unlocking->core->store;

    if (unlocking->prepared)
        return true;
    if (!may_begin(unlocking, until))
        return false;
    prepare(unlocking);
    store->ops->begin(store, &unlocking->op);
    return true;
}

dibs_status dibs__release_finish(struct dibs__unlocking *unlocking, struct dibs__error *error)
{
    struct dibs__core *core = unlocking->core;
    struct dibs__lease *lease = unlocking->lease;

    if (!unlocking->prepared) {
        may_begin(unlocking, DIBS__NEVER);
        prepare(unlocking);
    }
    dibs_status status = core->store->ops->finish(core->store, &unlocking->op, error);
    end_lease(core, lease, unlocking->next, &unlocking->op.release);
    status = released(core, lease, &unlocking->op.release, status, error);
    /* A request that may restore the lease is under way; the retraction comes behind it. */
    if (!unlocking->settled)
        dibs__core_retract(core, lease);
    dibs__lease_unref(lease);
    return status;
}

dibs_status dibs__release(struct dibs__core *core, struct dibs__hold *hold, struct dibs__error *error)
{
    struct dibs__holds *holds = dibs__holds_here(core->config.serial);
    int64_t now = dibs__core_now(core);
    struct dibs__unlocking unlocking;
    dibs_status status;

    dibs__metrics_count(hold->lease->group, DIBS__METRICS_HOLD, now - hold->since);
    if (dibs__release_lease(&unlocking, core, dibs__holds_remove(holds, hold), now, &status, error))
        return dibs__release_finish(&unlocking, error);
    return status;
}

bool dibs__release_in_background(struct dibs__core *core, struct dibs__lease *lease)
{
    if (dibs__lease_is_lost(lease, dibs__core_now(core))) {
        dibs__core_lost(core, lease, false, "");
        return false;
    }
    dibs__order_releases(lease->name, lease->name_size);
    dibs__core_give_back(core, lease);
    dibs__handover_end(core->cells, lease, NULL);
    return true;
}

void dibs__release_orphaned(struct dibs__core *core, struct dibs__lease *lease)
{
    dibs__count(&core->stats.ended_with_owner);
    if (!dibs__release_in_background(core, lease))
        return;
    dibs__count(&core->stats.orphaned);
    dibs__events_emit(core->events, DIBS_EVENT_ORPHANED, lease->name, dibs__lease_fence(lease),
                      "a thread ended while it held the lock, which was released");
}
