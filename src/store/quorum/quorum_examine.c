/* What endangers locks at the members, and at all of them together. Lock discipline: quorum_parts.h. */
#include <inttypes.h>

#include "store/quorum/quorum_parts.h"

#define CLOCKS_MOST_US 1000000 /* how much the clocks of the masters may differ without a warning */

static void tell_of_reach(const struct dibs__quorum *q, struct dibs__examination *all,
                          const struct dibs__examination *seen)
{
    size_t reached = 0;

    for (size_t i = 0; i < q->count; i++)
        reached += seen[i].reached;
    if (reached == q->count)
        DIBS__SAY_OF_ALL(all, DIBS_VERDICT_OK, "", "All %zu masters can be reached.", reached);
    else if (reached >= q->majority)
        DIBS__SAY_OF_ALL(all, DIBS_VERDICT_WARN, "Bring the others back.",
                         "Only %zu of %zu masters can be reached. That is a majority; %zu more may fail.", reached,
                         q->count, reached - q->majority);
    else
        DIBS__SAY_OF_ALL(all, DIBS_VERDICT_BAD, "Bring the others back.",
                         "Only %zu of %zu masters can be reached, which is no majority: no lock can be taken.", reached,
                         q->count);
}

/* Reports URLs that lead to the same server. */
static void tell_of_twins(const struct dibs__quorum *q, struct dibs__examination *all,
                          const struct dibs__examination *seen)
{
    for (size_t i = 0; i < q->count; i++)
        for (size_t other = i + 1; other < q->count; other++)
            if (seen[i].server != 0 && seen[i].server == seen[other].server)
                DIBS__SAY_OF_ALL(all, DIBS_VERDICT_BAD, "Give each master once, and no two names of one server.",
                                 "Number %zu and number %zu of the URLs are the same server: when it fails, two votes "
                                 "are lost.",
                                 i + 1, other + 1);
}

static void tell_of_clocks(const struct dibs__quorum *q, struct dibs__examination *all,
                           const struct dibs__examination *seen)
{
    int64_t least = INT64_MAX, most = INT64_MIN;

    for (size_t i = 0; i < q->count; i++) {
        if (!seen[i].clock_known)
            continue;
        least = seen[i].ahead_us < least ? seen[i].ahead_us : least;
        most = seen[i].ahead_us > most ? seen[i].ahead_us : most;
    }
    if (most < least)
        return;
    if (most - least <= CLOCKS_MOST_US)
        DIBS__SAY_OF_ALL(all, DIBS_VERDICT_OK, "", "The clocks of the masters are at most %.3f s apart.",
                         (double)(most - least) / 1e6);
    else
        DIBS__SAY_OF_ALL(
            all, DIBS_VERDICT_WARN, "Have the clocks kept by NTP, and set right in small steps (chrony does so).",
            "The clocks of the masters are up to %.3f s apart. Fences still rise. But a clock that is "
            "set forward ends the leases at its master early, and that master then does not vote for a while.",
            (double)(most - least) / 1e6);
}

/* Reports a member that does not vote, as for a while after it lost its data. */
static void tell_of_vote(const struct dibs__quorum *q, struct dibs__examination *all, size_t i)
{
    struct dibs__vote vote = {.what = DIBS__VOTE_LOOKS};
    uint64_t number = atomic_load(&q->number);
    struct dibs__error error;

    if (dibs__vote_ask(q, i, &vote, &error) != DIBS_OK)
        return;
    if (number != 0 && vote.quorum != 0 && vote.quorum != number)
        DIBS__SAY_OF_ALL(all, DIBS_VERDICT_BAD,
                         "Give all programs the same masters. Delete the key dibs:vote at this one, where it is no "
                         "master of the other quorum any more.",
                         "Number %zu of the URLs is a master of another quorum: it is not asked.", i + 1);
    else if (!vote.ready && vote.restarted)
        DIBS__SAY_OF_ALL(all, DIBS_VERDICT_WARN, "Wait: the other masters' clients admit it.",
                         "Number %zu of the URLs was restarted, and may have come back with older data.", i + 1);
    else if (!vote.ready && !vote.known)
        DIBS__SAY_OF_ALL(all, DIBS_VERDICT_WARN, "Wait: the other masters' clients admit it.",
                         "Number %zu of the URLs lost its data, and does not know yet whether it may vote.", i + 1);
    else if (!vote.ready)
        DIBS__SAY_OF_ALL(all, DIBS_VERDICT_WARN, "Wait until then.",
                         "Number %zu of the URLs forgot what it granted: it does not vote for another %" PRId64 " ms.",
                         i + 1, vote.votes_in_ms);
}

dibs_status dibs__quorum_examine(struct dibs__store *base, struct dibs__examination *examination,
                                 struct dibs__error *error)
{
    struct dibs__quorum *q = dibs__quorum_of(base);
    struct dibs__examination seen[DIBS__MEMBERS_MAX]; /* as each member left it */

    if (examination->admit_ms > 0)
        return dibs__quorum_admit(q, examination, error);
    for (size_t i = 0; i < q->count; i++) {
        struct dibs__store *store = q->members[i].store;
        dibs_status status = store->ops->examine(store, examination, error);
        if (status != DIBS_OK)
            return status;
        seen[i] = *examination;
    }
    tell_of_reach(q, examination, seen);
    tell_of_twins(q, examination, seen);
    for (size_t i = 0; i < q->count; i++)
        if (seen[i].reached)
            tell_of_vote(q, examination, i);
    tell_of_clocks(q, examination, seen);
    return DIBS_OK;
}
