#include "core/core.h"

#include "base/probe.h"
#include "base/thread.h"
#include "core/done.h"
#include "core/turn.h"

#define LEAVE_MS 3 /* a round trip to a nearby server; a call returns at most this long after its time is over */

/* ---------------------------------------------------------------- an attempt */

/* Makes the token unique, and names the calling thread in it. */
static void sign(struct dibs__core *core, struct dibs__token *token)
{
    token->thread = dibs__thread_number();
    token->sequence = atomic_fetch_add_explicit(&core->sequence, 1, memory_order_relaxed);
}

struct dibs__lease *dibs__attempt_new(struct dibs__core *core, const char *name, size_t name_size,
                                      struct dibs__metrics_group *group, const struct dibs__wish *wish, bool keeps)
{
    struct dibs__lease *lease = dibs__lease_new(core->config.serial, name, name_size, core->tokens.most);

    DIBS__REQUIRE(wish->lease_ms > 0);
    if (!lease)
        return NULL;
    lease->group = group;
    lease->asked_ms = wish->lease_ms;
    lease->fixed = wish->flags & DIBS_FIXED_LEASE;
    lease->turnless = wish->flags & (DIBS_FAIR | DIBS_SHARED);
    lease->shared = wish->flags & DIBS_SHARED;
    lease->token = (struct dibs__token){.shared = lease->shared, .limit = wish->limit, .keeps = keeps};
    sign(core, &lease->token);
    dibs__token_write(&core->tokens, &lease->token, lease->asker->token);
    lease->asker->attempt = (struct dibs__attempt){.name = lease->name,
                                                   .token = lease->asker->token,
                                                   .lease_ms = wish->lease_ms,
                                                   .shared = lease->shared,
                                                   .limit = wish->limit,
                                                   .fair = wish->flags & DIBS_FAIR};
    return lease;
}

/* If the store does not answer in time, it goes on retracting in the background. */
void dibs__attempt_drop(struct dibs__core *core, struct dibs__lease *lease, bool may_wait)
{
    DIBS__REQUIRE(lease->asker);
    struct dibs__store *store = core->store;
    struct dibs__attempt *attempt = &lease->asker->attempt;
    struct dibs__op op = {.kind = DIBS__OP_RELEASE,
                          .name = attempt->name,
                          .release = {.token = attempt->token, .lease_ms = attempt->lease_ms}};
    struct dibs__error unused;

    if (may_wait && attempt->may_release) {
        store->ops->conclude(store, attempt, true);
        op.deadline = dibs__after_ms(dibs__core_now(core), LEAVE_MS);
        store->ops->finish(store, &op, &unused);
    }
    store->ops->conclude(store, attempt, false);
    dibs__lease_unref(lease);
}

void dibs__attempt_renew_token(struct dibs__core *core, struct dibs__cell *cell, struct dibs__lease *lease)
{
    struct dibs__token token = lease->token;

    sign(core, &token);
    dibs__asker_set_token(cell, lease, &token);
    dibs__token_write(&core->tokens, &token, lease->asker->token);
}

/* ---------------------------------------------------------------- the end */

void dibs__core_retract(struct dibs__core *core, struct dibs__lease *lease)
{
    char token[DIBS__TOKEN_MAX];

    dibs__token_write(&core->tokens, &lease->token, token);
    core->store->ops->retract(core->store, lease->name, token, dibs__lease_longest_ms(lease),
                              dibs__lease_top_fence(lease));
}

void dibs__core_give_back(struct dibs__core *core, struct dibs__lease *lease)
{
    DIBS__REQUIRE(lease->runtime == core->config.serial && !lease->asker);
    dibs__renewals_remove(core->renewals, lease);
    dibs__core_retract(core, lease);
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
    dibs__renewals_remove(core->renewals, lease);
    if (atomic_exchange(&lease->loss_told, true))
        return;
    bool has_holder = !dibs__lease_claim(lease); /* by the first call alone: a second one would find it claimed */
    if (has_holder && why)
        tell(core, lease, why);
    if (!gone) /* the store keeps the key longer than the lease lasts here, by the margin */
        dibs__core_retract(core, lease);
    dibs__handover_end(core->cells, lease, NULL);
}
