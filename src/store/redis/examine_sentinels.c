/* What the sentinels say: whether there are enough of them, and whether they agree. */
#include <stdio.h>

#include "store/redis/examine_parts.h"

#define ENOUGH 3

struct survey {
    struct dibs__examining *e;
    unsigned known, agreeing;
};

static void told(void *context, const char *sentinel, const char *host, unsigned port, const struct dibs__error *error)
{
    struct survey *survey = context;
    struct dibs__examining *e = survey->e;

    survey->known++;
    if (error->status == DIBS_NO_MEMORY)
        e->examination->no_memory = true;
    else if (error->status != DIBS_OK)
        DIBS__SAY(e, "sentinels", DIBS_VERDICT_WARN, "Start the sentinel, or correct its credentials.",
                  "A sentinel names no master: %s.", error->detail);
    else if (dibs__endpoint_is_at(&e->store->endpoint, host, port))
        survey->agreeing++;
    else
        DIBS__SAY(e, "sentinels", DIBS_VERDICT_WARN,
                  "Wait until a failover is over; if it stays so, see what SENTINEL MASTERS says there.",
                  "The sentinel %s names another master, %s:%u, than the one that is used.", sentinel, host, port);
}

void dibs__examine_sentinels(struct dibs__examining *e)
{
    struct dibs__redis_store *store = e->store;
    int64_t deadline = dibs__after_ms(dibs__now(store->config.clock), store->config.connect_timeout_ms);
    struct survey survey = {.e = e};

    snprintf(e->server, sizeof e->server, "%s", store->endpoint.url.shown);
    dibs_status status = dibs__sentinel_survey(store->sentinel, deadline, told, &survey, e->error);
    if (status == DIBS_NO_MEMORY)
        e->examination->no_memory = true;
    else if (status != DIBS_OK)
        DIBS__SAY(e, "sentinels", DIBS_VERDICT_WARN, "Start sentinels that answer.",
                  "The sentinels could not be asked: %s.", e->error->detail);
    else if (survey.known < ENOUGH)
        DIBS__SAY(e, "sentinels", DIBS_VERDICT_WARN, "Run at least three sentinels, on different hosts.",
                  "There %s %u sentinel%s: when the host of one fails, the others are no majority, and there "
                  "is no failover.",
                  survey.known == 1 ? "is" : "are", survey.known, survey.known == 1 ? "" : "s");
    else if (survey.agreeing == survey.known)
        DIBS__SAY(e, "sentinels", DIBS_VERDICT_OK, "", "There are %u sentinels, and all name that master.",
                  survey.known);
}
