#include "core/patience.h"

#define FIRST_MS 10 /* the first pause before the store is asked again, and the longest */
#define LAST_MS 200

static int64_t outage_ms(const struct dibs__patience *patience)
{
    return patience->core->config.settings->outage_ms;
}

void dibs__patience_begin(struct dibs__patience *patience, const struct dibs__core *core, struct dibs__outage *outage,
                          int64_t now)
{
    *patience = (struct dibs__patience){.core = core, .outage = outage, .backoff = {.first_ms = FIRST_MS}, .from = now};
    outage->error.status = DIBS_OK; /* without its sentence: a good acquire writes no more than it needs */
    outage->unmet = false;
}

int64_t dibs__patience_until(const struct dibs__patience *patience)
{
    return dibs__after_ms(patience->heard_at > patience->from ? patience->heard_at : patience->from,
                          outage_ms(patience));
}

void dibs__patience_renew(struct dibs__patience *patience, int64_t now)
{
    patience->from = now;
}

void dibs__patience_heard(struct dibs__patience *patience)
{
    patience->in_outage = false;
    dibs__backoff_reset(&patience->backoff);
}

void dibs__patience_take_over(struct dibs__patience *patience, int64_t outage_since, int64_t now)
{
    if (outage_since == 0) {
        dibs__patience_renew(patience, now);
        return;
    }
    if (outage_since > patience->from)
        patience->from = outage_since;
    if (patience->outage->unmet) {
        patience->unmet_since = patience->from;
        patience->unmet_at = now;
    }
}

bool dibs__patience_is_unmet(const struct dibs__patience *patience, int64_t now)
{
    return patience->outage->unmet && now < dibs__after_ms(patience->unmet_at, outage_ms(patience));
}

bool dibs__patience_is_over(struct dibs__patience *patience, const struct dibs__error *error,
                            const struct dibs__answer *answer, int64_t now)
{
    bool unmet = answer->unmet;

    DIBS__REQUIRE(error->status != DIBS_OK);
    patience->heard_at = answer->heard_at;
    if (unmet) {
        patience->unmet_at = now;
        if (patience->unmet_since == 0)
            patience->unmet_since = now;
    }
    if (unmet || !dibs__patience_is_unmet(patience, now)) /* no other outage hides that grants are taken back */
        *patience->outage = (struct dibs__outage){*error, unmet};
    return now >= (unmet ? dibs__after_ms(patience->unmet_since, outage_ms(patience)) : dibs__patience_until(patience));
}

int64_t dibs__patience_next_ask(struct dibs__patience *patience, int64_t now)
{
    patience->in_outage = true;
    return dibs__after_ms(now, dibs__backoff_next(&patience->backoff, LAST_MS));
}
