/*
 * What endangers locks at the members, and at all of them together; and who may vote because an operator vouches for
 * it. Lock discipline: quorum_parts.h.
 */
#include <inttypes.h>

#include "store/quorum/quorum_look.h"

/* Reports a finding about the quorum: verdict, remedy, and the text as for printf. */
#define SAY(examination, ...) dibs__found(examination, "the quorum", "quorum", __VA_ARGS__)

#define CLOCKS_MOST_US 1000000 /* how much the clocks of the masters may differ without a warning */

static void tell_of_reach(const struct dibs__quorum *q, struct dibs__examination *all,
                          const struct dibs__examination *seen)
{
    size_t reached = 0;

    for (size_t i = 0; i < q->count; i++)
        reached += seen[i].reached;
    if (reached == q->count)
        SAY(all, DIBS_VERDICT_OK, "", "All %zu masters can be reached.", reached);
    else if (reached >= q->majority)
        SAY(all, DIBS_VERDICT_WARN, "Bring the others back.",
            "Only %zu of %zu masters can be reached. That is a majority; %zu more may fail.", reached, q->count,
            reached - q->majority);
    else
        SAY(all, DIBS_VERDICT_BAD, "Bring the others back.",
            "Only %zu of %zu masters can be reached, which is no majority: no lock can be taken.", reached, q->count);
}

/* Reports URLs that lead to the same server. */
static void tell_of_twins(const struct dibs__quorum *q, struct dibs__examination *all,
                          const struct dibs__examination *seen)
{
    for (size_t i = 0; i < q->count; i++)
        for (size_t other = i + 1; other < q->count; other++)
            if (seen[i].server != 0 && seen[i].server == seen[other].server)
                SAY(all, DIBS_VERDICT_BAD, "Give each master once, and no two names of one server.",
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
        SAY(all, DIBS_VERDICT_OK, "", "The clocks of the masters are at most %.3f s apart.",
            (double)(most - least) / 1e6);
    else
        SAY(all, DIBS_VERDICT_WARN, "Have the clocks kept by NTP, and set right in small steps (chrony does so).",
            "The clocks of the masters are up to %.3f s apart. Fences still rise. But a clock that is "
            "set forward ends the leases at its master early, and that master then does not vote for a while.",
            (double)(most - least) / 1e6);
}

/* Reports a member that does not vote, as for a while after it lost its data. */
static void tell_of_vote(const struct dibs__quorum *q, struct dibs__examination *all, size_t i)
{
    struct dibs__vote vote = {.what = DIBS__VOTE_LOOKS};
    uint64_t number = atomic_load(&q->number);
    const char *remedy = number != 0
                             ? "Wait: the other masters' clients admit it."
                             : "Start the masters that are missing; or, where they are gone for good, vouch for "
                               "those that are left (dibs doctor --admit).";
    struct dibs__error error;

    if (dibs__vote_ask(q, i, &vote, &error) != DIBS_OK)
        return;
    if (number != 0 && vote.quorum != 0 && vote.quorum != number)
        SAY(all, DIBS_VERDICT_BAD,
            "Give all programs the same masters. Delete the key dibs:vote at this one, where it is no "
            "master of the other quorum any more.",
            "Number %zu of the URLs is a master of another quorum: it is not asked.", i + 1);
    else if (!vote.ready && vote.restarted)
        SAY(all, DIBS_VERDICT_WARN, remedy,
            "Number %zu of the URLs was restarted, and may have come back with older data.", i + 1);
    else if (!vote.ready && !vote.known)
        SAY(all, DIBS_VERDICT_WARN, remedy,
            "Number %zu of the URLs lost its data, and does not know yet whether it may vote.", i + 1);
    else if (!vote.ready)
        SAY(all, DIBS_VERDICT_WARN, "Wait until then.",
            "Number %zu of the URLs forgot what it granted: it does not vote for another %" PRId64 " ms.", i + 1,
            vote.votes_in_ms);
}

/* ------------------------------------------------------------------- an operator admits */

/*
 * What an operator vouches for: how long leases are, if masters that know longer ones can't be asked; and that
 * all these masters belong to one quorum, if only a minority knows of one (PROTOCOL.md, rules 15 and 57).
 *
 * The masters are asked one after the other, since nobody waits for a lock meanwhile. Lock discipline:
 * quorum_parts.h.
 */

/* One admission by an operator. */
struct admission {
    struct dibs__quorum *quorum;
    struct dibs__examination *told;
    uint64_t number;         /* of the quorum; 0: nobody knows one */
    struct dibs__look *look; /* longest_ms: the longest lease that the operator names or a master knows of */
};

static dibs_status ask(const struct admission *admission, size_t i, struct dibs__vote vote, struct dibs__error *error)
{
    vote.longest_ms = admission->look->longest_ms;
    vote.quorum = admission->number;
    dibs_status status = dibs__vote_ask(admission->quorum, i, &vote, error);
    if (status == DIBS_OK)
        dibs__look_take(admission->look, &vote, i);
    return status;
}

static void look_at_all(const struct admission *admission, struct dibs__error *error)
{
    for (size_t i = 0; i < admission->quorum->count; i++) {
        struct dibs__error its;
        if (ask(admission, i, (struct dibs__vote){.what = DIBS__VOTE_LOOKS}, &its) != DIBS_OK)
            dibs__error_keep_worst(error, &its);
    }
}

/* The number that a majority has, or else the only one that there is. False: there are several. */
static bool find_number(struct admission *admission)
{
    uint64_t known = admission->number, one = 0;

    if (known == 0)
        known = dibs__look_number_of_majority(admission->quorum, admission->look);
    for (size_t i = 0; i < admission->quorum->count && known == 0; i++) {
        uint64_t its = admission->look->answers[i].quorum;
        if (its != 0 && one != 0 && its != one)
            return false;
        one = its != 0 ? its : one;
    }
    admission->number = known != 0 ? known : one;
    return true;
}

/* Whether the master does not know whether it may vote, or would vote only after a longer wait. */
static bool needs_admission(const struct dibs__look *look, size_t i)
{
    const struct dibs__vote *vote = &look->answers[i];

    return !vote->known || dibs__waits_too_long(vote->votes_in_ms, dibs__admission_wait_ms(look->longest_ms));
}

static void tell_of_one(const struct admission *admission, size_t i)
{
    struct dibs__examination *told = admission->told;
    const struct dibs__vote *vote = &admission->look->answers[i];
    uint32_t strange = admission->look->strange;

    if (!dibs__set_has(dibs__look_replied(admission->look) | strange, i))
        SAY(told, DIBS_VERDICT_WARN, "Bring it back, or admit it when it is back.",
            "Number %zu of the URLs did not answer: nothing was changed there.", i + 1);
    else if (dibs__set_has(strange, i))
        SAY(told, DIBS_VERDICT_BAD,
            "Give all programs the same masters, each once. Delete the key dibs:vote at this one, where "
            "it is no master of the other quorum any more.",
            "Number %zu of the URLs is a master of another quorum, or another one of these: it was "
            "not admitted.",
            i + 1);
    else if (vote->ready)
        SAY(told, DIBS_VERDICT_OK, "", "Number %zu of the URLs votes.", i + 1);
    else
        SAY(told, DIBS_VERDICT_OK, "",
            "Number %zu of the URLs may vote in %" PRId64 " ms, once a program that is open then has told "
            "it above which fence.",
            i + 1, vote->votes_in_ms);
}

static void admit_one(const struct admission *admission, size_t i)
{
    const struct dibs__look *look = admission->look;
    bool needed = dibs__set_has(dibs__look_replied(look), i) && needs_admission(look, i);
    struct dibs__error error = {DIBS_OK, ""};

    if (needed)
        ask(admission, i,
            (struct dibs__vote){.what = DIBS__VOTE_ADMITS, .wait_ms = dibs__admission_wait_ms(look->longest_ms)},
            &error);
    if (!needed || (error.status == DIBS_OK && look->answers[i].known))
        tell_of_one(admission, i);
    else
        SAY(admission->told, DIBS_VERDICT_BAD, "Try again.", "Number %zu of the URLs could not be admitted: %s.", i + 1,
            error.status == DIBS_OK ? "it belongs to another quorum by now" : error.detail);
}

static void admit_all(const struct admission *admission)
{
    struct dibs__quorum *q = admission->quorum;
    struct dibs__look *look = admission->look;
    uint64_t unknown = 0;

    dibs__look_set_aside(q, look, admission->number);
    if (dibs__look_members(look) == 0) {
        SAY(admission->told, DIBS_VERDICT_OK, "",
            "No master knows of a quorum: it is new, and the next lock begins it.");
        return;
    }
    for (size_t i = 0; i < q->count; i++)
        if (dibs__set_has(dibs__look_members(look), i) && look->answers[i].longest_ms > look->longest_ms)
            look->longest_ms = look->answers[i].longest_ms;
    atomic_compare_exchange_strong(&q->number, &unknown, admission->number);
    for (size_t i = 0; i < q->count; i++)
        admit_one(admission, i);
    dibs__vote_want(q, 0);
}

static dibs_status admit(struct dibs__quorum *q, struct dibs__examination *told, struct dibs__error *error)
{
    struct dibs__look look = {.longest_ms = told->admit_ms};
    struct admission admission = {q, told, atomic_load(&q->number), &look};

    error->status = DIBS_OK;
    look_at_all(&admission, error);
    unsigned replied = dibs__set_count(dibs__look_replied(&look));
    if (replied < q->majority)
        return dibs__quorum_no_majority(q, replied, error);
    if (find_number(&admission))
        admit_all(&admission);
    else
        SAY(told, DIBS_VERDICT_BAD,
            "Delete the key dibs:vote at those that are no masters of the other quorum any more.",
            "Some of the masters belong to one quorum, others to another: nothing was changed.");
    error->status = DIBS_OK;
    return DIBS_OK;
}

/* ---------------------------------------------------------------------- the contract */

dibs_status dibs__quorum_examine(struct dibs__store *base, struct dibs__examination *examination,
                                 struct dibs__error *error)
{
    struct dibs__quorum *q = dibs__quorum_of(base);
    struct dibs__examination seen[DIBS__MEMBERS_MAX]; /* as each member left it */

    if (examination->admit_ms > 0)
        return admit(q, examination, error);
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
