#include "cli/doctor_limits.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/owner_token.h"
#include "cli/text.h"

#define TOLD_MOST 10  /* locks that are named */
#define LIMITS_MOST 4 /* of one lock: as many different ones are told */
#define ENTRIES_MOST 256

struct limits {
    dibs_runtime *rt;
    doctor_limits_fn *tell;
    void *context;
    size_t shared, wrong; /* locks */
    dibs_sharer sharers[ENTRIES_MOST];
    dibs_waiter waiters[ENTRIES_MOST];
};

/* The limits of those who use one lock, and how many give each. */
struct given {
    uint64_t limits[LIMITS_MOST];
    unsigned users[LIMITS_MOST];
    size_t count;
};

static void note(struct given *given, const char *token)
{
    struct cli_who who = {0};
    size_t i = 0;

    cli_who_parse(&who, token);
    if (!who.limit)
        return;
    uint64_t limit = strtoull(who.limit, NULL, 10);
    while (i < given->count && given->limits[i] != limit)
        i++;
    if (i == LIMITS_MOST)
        return;
    given->limits[i] = limit;
    given->users[i]++;
    given->count += i == given->count;
}

/* Who waits alone gives none. Both are the first of possibly more. */
static void gather(struct limits *limits, const char *name, const dibs_owner *owner, struct given *given)
{
    size_t count = 0;

    (void)dibs_query_sharers(limits->rt, name, limits->sharers, ENTRIES_MOST, &count);
    for (size_t i = 0; i < count; i++)
        note(given, limits->sharers[i].token);
    if (owner->waiters == 0 || dibs_query_waiters(limits->rt, name, limits->waiters, ENTRIES_MOST, &count) != DIBS_OK)
        return;
    for (size_t i = 0; i < count; i++)
        note(given, limits->waiters[i].token);
}

static void tell_of(struct limits *limits, const char *name, const struct given *given)
{
    char shown[CLI_SHOWN_MAX], text[CLI_SHOWN_MAX + 256];

    int used = snprintf(text, sizeof text,
                        "Those who share %s, or wait to, give different limits:", cli_show(shown, sizeof shown, name));
    for (size_t i = 0; i < given->count; i++) {
        const char *comma = i > 0 ? "," : "";
        size_t at = (size_t)used;
        if (given->limits[i] == 0)
            used += snprintf(text + at, sizeof text - at, "%s none (%u)", comma, given->users[i]);
        else
            used +=
                snprintf(text + at, sizeof text - at, "%s %" PRIu64 " (%u)", comma, given->limits[i], given->users[i]);
    }
    snprintf(text + used, sizeof text - (size_t)used, ".");
    limits->tell(limits->context, text,
                 "Give the same limit (--slots) wherever the name is used: each goes by its own, so more may be inside "
                 "than the smallest says.");
}

static bool look_at(const char *name, const dibs_owner *owner, void *arg)
{
    struct limits *limits = arg;
    struct given given = {.count = 0};

    if (owner->sharers == 0)
        return true;
    limits->shared++;
    gather(limits, name, owner, &given);
    if (given.count > 1 && limits->wrong++ < TOLD_MOST)
        tell_of(limits, name, &given);
    return true;
}

static void tell_in_all(const struct limits *limits)
{
    char text[128];

    if (limits->wrong == 0) {
        snprintf(text, sizeof text, "%zu %s shared, with the same limit by all who use one.", limits->shared,
                 limits->shared == 1 ? "lock is" : "locks are");
        limits->tell(limits->context, text, "");
    } else if (limits->wrong > TOLD_MOST) {
        snprintf(text, sizeof text, "%zu more locks are shared with different limits.", limits->wrong - TOLD_MOST);
        limits->tell(limits->context, text, "Give the same limit wherever a name is used.");
    }
}

void doctor_limits(dibs_runtime *rt, doctor_limits_fn *tell, void *context)
{
    struct limits *limits = calloc(1, sizeof *limits);

    if (!limits)
        return;
    limits->rt = rt;
    limits->tell = tell;
    limits->context = context;
    if (dibs_list(rt, NULL, look_at, limits) == DIBS_OK && limits->shared > 0)
        tell_in_all(limits);
    free(limits);
}
