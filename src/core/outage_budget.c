#include "core/outage_budget.h"

#include <stdlib.h>

#define FIRST_MS 10 /* first pause before the store is asked again */
#define LAST_MS 200 /* longest such pause */

struct dibs__outage *dibs__outage_new(const struct dibs__error *error, bool too_few_replicas)
{
    static struct dibs__outage untold[] = {
        {1, false, {DIBS_UNAVAILABLE, "the store can't be used, and there is no memory to say why"}},
        {1, true, {DIBS_UNAVAILABLE, "too few replicas acknowledge a grant, and there is no memory to say more"}},
    };
    struct dibs__outage *outage = malloc(sizeof *outage);

    if (!outage) {
        outage = &untold[too_few_replicas];
        atomic_fetch_add(&outage->references, 1); /* its own reference is never given up */
        return outage;
    }
    atomic_init(&outage->references, 1);
    outage->too_few_replicas = too_few_replicas;
    outage->error = *error;
    return outage;
}

void dibs__outage_set(struct dibs__outage **place, struct dibs__outage *outage)
{
    struct dibs__outage *old = *place;

    if (outage)
        atomic_fetch_add(&outage->references, 1);
    *place = outage;
    if (old && atomic_fetch_sub(&old->references, 1) == 1)
        free(old);
}

void dibs__outage_budget_begin(struct dibs__outage_budget *budget, uint32_t outage_ms, int64_t now)
{
    *budget = (struct dibs__outage_budget){.outage_ms = outage_ms, .backoff = {.first_ms = FIRST_MS}, .from = now};
}

int64_t dibs__outage_budget_until(const struct dibs__outage_budget *budget)
{
    return dibs__after_ms(budget->last_reply_at > budget->from ? budget->last_reply_at : budget->from,
                          budget->outage_ms);
}

void dibs__outage_budget_renew(struct dibs__outage_budget *budget, int64_t now)
{
    budget->from = now;
}

void dibs__outage_budget_note_reply(struct dibs__outage_budget *budget)
{
    budget->in_outage = false;
    dibs__backoff_reset(&budget->backoff);
}

void dibs__outage_budget_take_over(struct dibs__outage_budget *budget, struct dibs__outage *outage, int64_t since,
                                   int64_t now)
{
    if (!outage) {
        budget->from = now;
        return;
    }
    dibs__outage_set(&budget->outage, outage);
    if (since > budget->from)
        budget->from = since;
    if (outage->too_few_replicas) {
        budget->too_few_replicas_since = budget->from;
        budget->too_few_replicas_at = now;
    }
}

bool dibs__outage_budget_lacks_replicas(const struct dibs__outage_budget *budget, int64_t now)
{
    return budget->outage && budget->outage->too_few_replicas &&
           now < dibs__after_ms(budget->too_few_replicas_at, budget->outage_ms);
}

bool dibs__outage_budget_is_over(struct dibs__outage_budget *budget, const struct dibs__error *error,
                                 const struct dibs__answer *answer, int64_t now)
{
    bool too_few_replicas = answer->why == DIBS__WHY_TOO_FEW_REPLICAS;

    DIBS__REQUIRE(error->status != DIBS_OK);
    budget->last_reply_at = answer->last_reply_at;
    if (too_few_replicas) {
        budget->too_few_replicas_at = now;
        if (budget->too_few_replicas_since == 0)
            budget->too_few_replicas_since = now;
    }
    if (too_few_replicas ||
        /* Another outage must not hide that grants are taken back. */
        !dibs__outage_budget_lacks_replicas(budget, now)) {
        dibs__outage_set(&budget->outage, NULL);
        budget->outage = dibs__outage_new(error, too_few_replicas);
    }
    return now >= (too_few_replicas ? dibs__after_ms(budget->too_few_replicas_since, budget->outage_ms)
                                    : dibs__outage_budget_until(budget));
}

int64_t dibs__outage_budget_next_ask(struct dibs__outage_budget *budget, int64_t now)
{
    budget->in_outage = true;
    return dibs__after_ms(now, dibs__backoff_next(&budget->backoff, LAST_MS));
}
