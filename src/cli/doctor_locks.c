#include "cli/doctor_locks.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/owner_token.h"
#include "cli/text.h"

#define TOLD_MOST 10  /* at most this many locks are named */
#define LIMITS_MOST 4 /* at most this many different limits of one lock are told */
#define ENTRIES_MOST 256

struct census {
    dibs_runtime *rt;
    doctor_locks_fn *tell;
    void *context;
    size_t shared, wrong, kept; /* numbers of locks */
    dibs_sharer sharers[ENTRIES_MOST];
    dibs_waiter waiters[ENTRIES_MOST];
};

/* The different limits that the users of one lock give, and how many users give each. */
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

/* Notes the limits of up to ENTRIES_MOST sharers and waiters. A waiter that wants the lock alone gives no limit. */
static void gather(struct census *census, const char *name, const dibs_owner *owner, struct given *given)
{
    size_t count = 0;

    (void)dibs_query_sharers(census->rt, name, census->sharers, ENTRIES_MOST, &count);
    for (size_t i = 0; i < count; i++)
        note(given, census->sharers[i].token);
    if (owner->waiters == 0 || dibs_query_waiters(census->rt, name, census->waiters, ENTRIES_MOST, &count) != DIBS_OK)
        return;
    for (size_t i = 0; i < count; i++)
        note(given, census->waiters[i].token);
}

static void tell_of(struct census *census, const char *name, const struct given *given)
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
    census->tell(census->context, "limits", text,
                 "Give the same limit (--slots) wherever the name is used: each goes by its own, so more may be inside "
                 "than the smallest says.");
}

static bool look_at(const char *name, const dibs_owner *owner, void *arg)
{
    struct census *census = arg;
    struct given given = {.count = 0};

    census->kept += owner->kept;
    if (owner->sharers == 0)
        return true;
    census->shared++;
    gather(census, name, owner, &given);
    if (given.count > 1 && census->wrong++ < TOLD_MOST)
        tell_of(census, name, &given);
    return true;
}

static void tell_of_limits(const struct census *census)
{
    char text[128];

    if (census->wrong == 0) {
        snprintf(text, sizeof text, "%zu %s shared, with the same limit by all who use one.", census->shared,
                 census->shared == 1 ? "lock is" : "locks are");
        census->tell(census->context, "limits", text, "");
    } else if (census->wrong > TOLD_MOST) {
        snprintf(text, sizeof text, "%zu more locks are shared with different limits.", census->wrong - TOLD_MOST);
        census->tell(census->context, "limits", text, "Give the same limit wherever a name is used.");
    }
}

/* A kept lock is granted a little later than a free one. That is no fault, but may explain a measurement. */
static void tell_of_kept(const struct census *census)
{
    char text[256];

    snprintf(text, sizeof text,
             "%zu %s kept by a process that does not use it now (keep_ms). Who else asks for it waits for a message to "
             "that process, or for 200 ms and more where that process has died.",
             census->kept, census->kept == 1 ? "lock is" : "locks are each");
    census->tell(census->context, "kept", text, "");
}

void doctor_locks(dibs_runtime *rt, doctor_locks_fn *tell, void *context)
{
    static struct census census; /* static, because it is large; once in a process */

    census.rt = rt;
    census.tell = tell;
    census.context = context;
    dibs_status status = dibs_list(rt, NULL, look_at, &census);
    if (status == DIBS_OK && census.shared > 0)
        tell_of_limits(&census);
    if (status == DIBS_OK && census.kept > 0)
        tell_of_kept(&census);
}
