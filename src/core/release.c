#include "core/release.h"

#include "base/order.h"
#include "base/probe.h"
#include "core/bid.h"
#include "core/handover.h"

static dibs_status was_lost(const struct dibs__lease *lease, struct dibs__error *error)
{
    char quoted[DIBS__QUOTED_MAX];

    return dibs__error_set(error, DIBS_LOST, "the lease of %s ended before it was unlocked",
                           dibs__quote(quoted, lease->name));
}

/* What the store's answer means for the caller. The error is the store's. */
static dibs_status released(struct dibs__core *core, struct dibs__lease *lease, const struct dibs__release *release,
                            dibs_status status, struct dibs__error *error)
{
    if (status != DIBS_NOT_HELD)
        return status;
    /* Sent twice, and in time: the first request did it. Otherwise the lock was taken away. */
    if (release->again && !dibs__lease_is_lost(lease, dibs__core_now(core)))
        return DIBS_OK;
    dibs__lease_lose(lease);
    dibs__core_lost(core, lease, true, "its key was no longer in the store when it was unlocked");
    return was_lost(lease, error);
}

/*
 * The bid of the next waiter here, to be asked for in the same round trip as
 * the release. NULL: the waiter asks by itself. It must where replicas or the
 * disk are waited for, which happens on a connection of its own.
 */
static struct dibs__lease *bid_for_next(struct dibs__core *core, struct dibs__lease *lease,
                                        const struct dibs__wanted *wanted)
{
    if (core->config.settings->min_replicas > 0 || core->config.settings->durable)
        return NULL;
    struct dibs__lease *next = dibs__bid_new(core, lease->name, lease->name_size, lease->group, wanted->lease_ms,
                                             wanted->fixed ? (uint32_t)DIBS_FIXED_LEASE : 0);
    if (next) {
        next->asker->bid.wait = true;
        dibs__asker_begin_behind(core->cells, lease, next);
    }
    return next;
}

/* The lease is over. The next waiter learns what the store answered for it, or begins a bid of its own. */
static void end_lease(struct dibs__core *core, struct dibs__lease *lease, struct dibs__lease *next,
                      const struct dibs__release *release)
{
    if (next && (release->next_status == DIBS_OK || release->next_status == DIBS_BUSY)) {
        next->asker->answered = true;
        next->asker->status = release->next_status;
        next->asker->answer = release->next_answer;
    }
    bool taken_over = dibs__handover_end(core->cells, lease, next);
    if (next && taken_over)
        dibs__lease_unref(next);
    else if (next)
        dibs__bid_drop(core, next);
}

static dibs_status release_in_store(struct dibs__core *core, struct dibs__lease *lease, struct dibs__lease *next,
                                    int64_t deadline, struct dibs__error *error)
{
    char token[DIBS__TOKEN_MAX];
    struct dibs__release release = {
        .name = lease->name,
        .token = token,
        .lease_ms = dibs__lease_longest_ms(lease),
        .fence = lease->store_fence,
        .deadline = deadline,
        .contended = lease->contended,
        .next = next ? &next->asker->bid : NULL,
    };

    dibs__token_write(&core->tokens, &lease->token, token);
    dibs_status status = dibs__store_release(core->store, &release, error);

    end_lease(core, lease, next, &release);
    return released(core, lease, &release, status, error);
}

/* The lease stays in the process if another thread may have it. Otherwise the store gets it back. */
static dibs_status part_with(struct dibs__core *core, struct dibs__lease *lease, int64_t now, struct dibs__error *error)
{
    int64_t timeout_ms = core->config.settings->command_timeout_ms;
    struct dibs__wanted wanted;
    enum dibs__parting parting = dibs__handover_part(core->cells, lease, &wanted);

    if (parting == DIBS__PART_HANDED)
        return DIBS_OK;
    dibs__renewals_settle(core->renewals, lease, dibs__after_ms(now, timeout_ms / 2));
    bool settled = dibs__renewals_remove(core->renewals, lease);
    struct dibs__lease *next = parting == DIBS__PART_REQUEUE ? bid_for_next(core, lease, &wanted) : NULL;
    dibs_status status = release_in_store(core, lease, next, dibs__after_ms(now, timeout_ms), error);
    if (!settled) /* a request that may restore the lease is under way: this goes behind that */
        dibs__core_retract(core, lease);
    return status;
}

dibs_status dibs__release(struct dibs__core *core, struct dibs__hold *hold, struct dibs__error *error)
{
    int64_t now = dibs__core_now(core), since = hold->since;
    struct dibs__lease *lease = dibs__holds_remove(hold);
    dibs_status status;

    DIBS__REQUIRE(lease->runtime == core->config.serial && !lease->asker);
    DIBS__PROBE(release, lease->name, dibs__lease_fence(lease));
    dibs__metrics_count(core->metrics, lease->group, DIBS__METRICS_HOLD, now - since);
    if (dibs__lease_is_lost(lease, now)) {
        dibs__renewals_remove(core->renewals, lease);
        dibs__core_lost(core, lease, false, "it was not renewed in time");
        status = was_lost(lease, error);
    } else {
        dibs__order_releases(lease->name, lease->name_size);
        status = part_with(core, lease, now, error);
    }
    dibs__lease_unref(lease);
    return status;
}

void dibs__release_at_exit(struct dibs__core *core, struct dibs__lease *lease)
{
    bool lost = dibs__lease_is_lost(lease, dibs__core_now(core));

    DIBS__REQUIRE(lease->runtime == core->config.serial && !lease->asker);
    dibs__renewals_remove(core->renewals, lease);
    if (!lost) {
        dibs__order_releases(lease->name, lease->name_size);
        dibs__core_retract(core, lease);
    }
}

void dibs__release_orphaned(struct dibs__core *core, struct dibs__lease *lease)
{
    bool lost = dibs__lease_is_lost(lease, dibs__core_now(core));

    DIBS__REQUIRE(lease->runtime == core->config.serial && !lease->asker);
    dibs__count(&core->stats.ended_with_thread);
    dibs__renewals_remove(core->renewals, lease);
    if (lost) {
        dibs__core_lost(core, lease, false, "");
        return;
    }
    dibs__count(&core->stats.orphaned);
    dibs__order_releases(lease->name, lease->name_size);
    dibs__core_retract(core, lease);
    dibs__handover_end(core->cells, lease, NULL);
    dibs__events_emit(core->events, DIBS_EVENT_ORPHANED, lease->name, dibs__lease_fence(lease),
                      "a thread ended while it held the lock, which was released");
}
