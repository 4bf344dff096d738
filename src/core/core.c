#include "core/core.h"

#include "base/probe.h"
#include "core/done.h"
#include "core/turn.h"

void dibs__core_retract(struct dibs__core *core, struct dibs__lease *lease)
{
    char token[DIBS__TOKEN_MAX];

    dibs__token_write(&core->tokens, &lease->token, token);
    core->store->ops->retract(core->store, lease->name, token, dibs__lease_longest_ms(lease),
                              dibs__lease_top_fence(lease));
}

static void tell(struct dibs__core *core, struct dibs__lease *lease, const char *why)
{
    dibs__count(&core->stats.lost);
    DIBS__PROBE(lost, lease->name, dibs__lease_fence(lease));
    dibs__events_emit(core->events, DIBS_EVENT_LOST, lease->name, dibs__lease_fence(lease),
                      "the lease ended under its holder%s%s", *why ? ": " : "", why);
    dibs__loss_tell(lease);
}

void dibs__core_lost(struct dibs__core *core, struct dibs__lease *lease, bool gone, const char *why)
{
    DIBS__REQUIRE(atomic_load(&lease->deadline) == DIBS__LEASE_LOST);
    bool has_holder = !dibs__lease_claim(lease);
    if (atomic_exchange(&lease->loss_told, true))
        return;
    if (has_holder)
        tell(core, lease, why);
    if (!gone) /* the store keeps the key longer than the lease lasts here, by the margin */
        dibs__core_retract(core, lease);
    dibs__handover_end(core->cells, lease, NULL);
}

void dibs__core_drop(struct dibs__core *core, struct dibs__lease *lease)
{
    dibs__renewals_remove(core->renewals, lease);
    if (atomic_exchange(&lease->loss_told, true))
        return;
    dibs__core_retract(core, lease);
    dibs__handover_end(core->cells, lease, NULL);
}
