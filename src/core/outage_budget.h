/*
 * Outages, and how long one acquire rides one out: a store that can't be reached, or grants that the store takes back
 * because too few replicas acknowledged them. A budget belongs to the thread that drives the acquire.
 */
#ifndef DIBS_CORE_OUTAGE_BUDGET_H
#define DIBS_CORE_OUTAGE_BUDGET_H

#include "base/backoff.h"
#include "store/store.h"

/* Why the store grants a name to no thread here, though the name may be free. Shared by all who met it or were told. */
struct dibs__outage {
    atomic_uint references;   /* atomic */
    bool too_few_replicas;    /* read-only; the store grants the name and takes it back, because too few replicas
                                 acknowledge the grant */
    struct dibs__error error; /* read-only */
};

/* Never NULL: without memory, the sentence says only that there is none. */
struct dibs__outage *dibs__outage_new(const struct dibs__error *error, bool too_few_replicas);

/* Puts the outage into the place of another one, whose reference is given up. Both may be NULL. */
void dibs__outage_set(struct dibs__outage **place, struct dibs__outage *outage);

struct dibs__outage_budget {
    struct dibs__outage *outage; /* the last one that this acquire, or another thread for it, met, with a reference that
                                    whoever uses the budget gives up; NULL: none */
    struct dibs__backoff backoff;
    uint32_t outage_ms;    /* of the runtime */
    bool in_outage;        /* the last ask met an outage */
    int64_t from;          /* an outage counts from here: the acquire began, or woke to ask again */
    int64_t last_reply_at; /* when the servers of the name last replied, as the last ask reported; 0: not known */
    int64_t too_few_replicas_since; /* when the first grant was taken back; 0: none was */
    int64_t too_few_replicas_at;    /* when the last grant was taken back */
};

void dibs__outage_budget_begin(struct dibs__outage_budget *budget, uint32_t outage_ms, int64_t now);

/* Until when the acquire rides out an unreachable store: outage_ms after the later of `from` and `last_reply_at`. */
int64_t dibs__outage_budget_until(const struct dibs__outage_budget *budget);

/* The acquire slept or waited for another reason than an outage: an outage that follows counts from now. */
void dibs__outage_budget_renew(struct dibs__outage_budget *budget, int64_t now);

/* The store has replied, so the outage is over, and the next pause is the shortest one again. */
void dibs__outage_budget_note_reply(struct dibs__outage_budget *budget);

/* The acquire goes on with the outage that threads with the turn met before it, since then; NULL: they met none. */
void dibs__outage_budget_take_over(struct dibs__outage_budget *budget, struct dibs__outage *outage, int64_t since,
                                   int64_t now);

/* An ask met an outage. True: the acquire has ridden the outage out for as long as it may. */
bool dibs__outage_budget_is_over(struct dibs__outage_budget *budget, const struct dibs__error *error,
                                 const struct dibs__answer *answer, int64_t now);

/* When the acquire asks again after an ask that met an outage. */
int64_t dibs__outage_budget_next_ask(struct dibs__outage_budget *budget, int64_t now);

/* Whether grants were taken back lately, even if others have had the lock for moments in between. */
bool dibs__outage_budget_lacks_replicas(const struct dibs__outage_budget *budget, int64_t now);

#endif
