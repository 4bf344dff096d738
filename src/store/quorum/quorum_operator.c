/*
 * What an operator vouches for: how long leases are, if masters that know longer ones can't be asked; and that
 * all these masters belong to one quorum, if only a minority knows of one (PROTOCOL.md, rules 15 and 57).
 *
 * The masters are asked one after the other, since nobody waits for a lock meanwhile. Lock discipline:
 * quorum_parts.h.
 */
#include <inttypes.h>

#include "store/findings.h"
#include "store/quorum/quorum_look.h"

#define SUBJECT "quorum"
#define SHOWN "the quorum"

/* One admission by an operator. */
struct admission {
    struct dibs__quorum *quorum;
    struct dibs__examination *told;
    uint32_t longest_ms; /* the longest lease that the operator names or a master knows of */
    uint64_t number;     /* of the quorum; 0: nobody knows one */
    uint32_t replied, strange;
    struct dibs__vote votes[DIBS__MEMBERS_MAX]; /* of the masters that answered */
};

static dibs_status ask(const struct admission *admission, size_t i, struct dibs__vote *vote, struct dibs__error *error)
{
    vote->longest_ms = admission->longest_ms;
    vote->quorum = admission->number;
    return dibs__vote_ask(admission->quorum, i, vote, error);
}

static bool has_replied(const struct admission *admission, size_t i)
{
    return dibs__set_has(admission->replied, i);
}

/* Whether the master votes, or would if it had not been restarted. */
static bool is_member(const struct admission *admission, size_t i)
{
    const struct dibs__vote *vote = &admission->votes[i];

    return has_replied(admission, i) && !dibs__set_has(admission->strange, i) && (vote->known || vote->restarted);
}

static void look_at_all(struct admission *admission, struct dibs__error *error)
{
    admission->number = atomic_load(&admission->quorum->number);
    for (size_t i = 0; i < admission->quorum->count; i++) {
        struct dibs__error its;
        admission->votes[i] = (struct dibs__vote){.what = DIBS__VOTE_LOOKS};
        if (ask(admission, i, &admission->votes[i], &its) == DIBS_OK)
            admission->replied |= (uint32_t)1 << i;
        else
            dibs__error_keep_worst(error, &its);
    }
}

static size_t count_number(const struct admission *admission, uint64_t number)
{
    size_t count = 0;

    for (size_t i = 0; i < admission->quorum->count; i++)
        count += has_replied(admission, i) && admission->votes[i].quorum == number;
    return count;
}

/* The number that a majority has, or else the only one that there is. False: there are several. */
static bool find_number(struct admission *admission)
{
    uint64_t known = admission->number, one = 0;
    bool agreed = true;

    for (size_t i = 0; i < admission->quorum->count && known == 0; i++) {
        uint64_t its = has_replied(admission, i) ? admission->votes[i].quorum : 0;
        if (its != 0 && count_number(admission, its) >= admission->quorum->majority)
            known = its;
        agreed = agreed && (its == 0 || one == 0 || its == one);
        one = its != 0 ? its : one;
    }
    admission->number = known != 0 ? known : one;
    return known != 0 || agreed;
}

/* Finds masters of another quorum, and second names of a server. */
static void find_strange(struct admission *admission)
{
    for (size_t i = 0; i < admission->quorum->count; i++) {
        const struct dibs__vote *vote = &admission->votes[i];
        bool strange = vote->quorum != 0 && vote->quorum != admission->number;
        for (size_t before = 0; before < i; before++)
            strange = strange || (vote->process != 0 && admission->votes[before].process == vote->process);
        if (has_replied(admission, i) && strange)
            admission->strange |= (uint32_t)1 << i;
    }
}

/* The longest lease is the longest that a master knows of, or that the operator names. */
static void find_longest(struct admission *admission)
{
    for (size_t i = 0; i < admission->quorum->count; i++)
        if (is_member(admission, i) && admission->votes[i].longest_ms > admission->longest_ms)
            admission->longest_ms = admission->votes[i].longest_ms;
}

/* Whether the master does not know whether it may vote, or would vote only after a longer wait. */
static bool needs_admission(const struct admission *admission, size_t i)
{
    const struct dibs__vote *vote = &admission->votes[i];

    return !vote->known || dibs__waits_too_long(vote->votes_in_ms, dibs__admission_wait_ms(admission->longest_ms));
}

static void tell_of_one(const struct admission *admission, size_t i)
{
    struct dibs__examination *told = admission->told;
    const struct dibs__vote *vote = &admission->votes[i];

    if (!has_replied(admission, i))
        dibs__found(told, SHOWN, SUBJECT, DIBS_VERDICT_WARN, "Bring it back, or admit it when it is back.",
                    "Number %zu of the URLs did not answer: nothing was changed there.", i + 1);
    else if (dibs__set_has(admission->strange, i))
        dibs__found(told, SHOWN, SUBJECT, DIBS_VERDICT_BAD,
                    "Give all programs the same masters, each once. Delete the key dibs:vote at this one, where "
                    "it is no master of the other quorum any more.",
                    "Number %zu of the URLs is a master of another quorum, or another one of these: it was "
                    "not admitted.",
                    i + 1);
    else if (vote->ready)
        dibs__found(told, SHOWN, SUBJECT, DIBS_VERDICT_OK, "", "Number %zu of the URLs votes.", i + 1);
    else
        dibs__found(told, SHOWN, SUBJECT, DIBS_VERDICT_OK, "",
                    "Number %zu of the URLs may vote in %" PRId64 " ms, once a program that is open then has told "
                    "it above which fence.",
                    i + 1, vote->votes_in_ms);
}

static void admit_one(struct admission *admission, size_t i)
{
    struct dibs__vote vote = {.what = DIBS__VOTE_ADMITS, .wait_ms = dibs__admission_wait_ms(admission->longest_ms)};
    struct dibs__error error = {DIBS_OK, ""};
    bool needed = has_replied(admission, i) && !dibs__set_has(admission->strange, i) && needs_admission(admission, i);

    if (needed && ask(admission, i, &vote, &error) == DIBS_OK)
        admission->votes[i] = vote;
    if (!needed || (error.status == DIBS_OK && vote.known))
        tell_of_one(admission, i);
    else
        dibs__found(admission->told, SHOWN, SUBJECT, DIBS_VERDICT_BAD, "Try again.",
                    "Number %zu of the URLs could not be admitted: %s.", i + 1,
                    error.status == DIBS_OK ? "it belongs to another quorum by now" : error.detail);
}

static void admit_all(struct admission *admission)
{
    struct dibs__quorum *q = admission->quorum;
    uint64_t unknown = 0;
    bool is_new = true;

    find_strange(admission);
    find_longest(admission);
    for (size_t i = 0; i < q->count; i++)
        is_new = is_new && !is_member(admission, i);
    if (is_new) {
        dibs__found(admission->told, SHOWN, SUBJECT, DIBS_VERDICT_OK, "",
                    "No master knows of a quorum: it is new, and the next lock begins it.");
        return;
    }
    atomic_compare_exchange_strong(&q->number, &unknown, admission->number);
    for (size_t i = 0; i < q->count; i++)
        admit_one(admission, i);
    dibs__vote_want(q, 0);
}

dibs_status dibs__quorum_admit(struct dibs__quorum *q, struct dibs__examination *told, struct dibs__error *error)
{
    struct admission admission = {.quorum = q, .told = told, .longest_ms = told->admit_ms};

    error->status = DIBS_OK;
    look_at_all(&admission, error);
    if (dibs__set_count(admission.replied) < q->majority)
        return dibs__quorum_no_majority(q, dibs__set_count(admission.replied), error);
    if (find_number(&admission))
        admit_all(&admission);
    else
        dibs__found(told, SHOWN, SUBJECT, DIBS_VERDICT_BAD,
                    "Delete the key dibs:vote at those that are no masters of the other quorum any more.",
                    "Some of the masters belong to one quorum, others to another: nothing was changed.");
    error->status = DIBS_OK;
    return DIBS_OK;
}
