/*
 * What follows from a look at the masters (PROTOCOL.md, rules 15, 56 and 57): which of them belong
 * to this quorum, and which are admitted, after which wait, and above which fence.
 *
 * A master that lost its data, or came back with older data, has forgotten fences. It waits until
 * every lease that it may have granted is over. Only then is it told its floor, by a look that
 * began after the wait: the largest fence of a majority of masters that never forgot. That is
 * enough. If the master voted for a hold before it forgot, the fence of that hold was raised at a
 * majority by then, or never will be. Even without this master, that majority has a member in
 * common with any majority of masters that never forgot.
 *
 * Lock discipline: quorum_parts.h.
 */
#include <stdlib.h>

#include "base/hash.h"
#include "store/quorum/quorum_look.h"

#define UNFLOORED_MS 10000      /* how long a majority's floor is waited for while masters can't be reached */
#define NUMBER_MOST (1LL << 52) /* a script counts exactly up to this */

/* ---------------------------------------------------------------- the answers */

static void take_out(struct dibs__look *look, uint32_t bit)
{
    look->known &= ~bit;
    look->ready &= ~bit;
    look->restarted &= ~bit;
    look->unknown &= ~bit;
}

void dibs__look_take(struct dibs__look *look, const struct dibs__vote *vote, size_t i)
{
    uint32_t bit = (uint32_t)1 << i;

    take_out(look, bit);
    look->answers[i] = *vote;
    look->known |= vote->known ? bit : 0;
    look->ready |= vote->ready ? bit : 0;
    look->restarted |= !vote->known && vote->restarted ? bit : 0;
    look->unknown |= !vote->known && !vote->restarted ? bit : 0;
    if ((vote->known || vote->restarted) && vote->longest_ms > look->others_ms)
        look->others_ms = vote->longest_ms;
}

/*
 * A master is not asked for locks before it may vote. The answer proves nothing about a step that was found, or
 * that the master was told of, after the question was sent.
 */
void dibs__look_note(struct dibs__look *look, const struct dibs__pending_op *op, dibs_status status)
{
    const struct dibs__vote *vote = op->begun.vote;
    struct dibs__member *member = op->member;
    int64_t now = dibs__quorum_now(member->quorum);

    look->open &= ~((uint32_t)1 << member->index);
    if (status != DIBS_OK)
        return;
    dibs__look_take(look, vote, member->index);
    atomic_store(&member->votes_from, vote->votes_in_ms > 0 ? dibs__after_ms(now, vote->votes_in_ms) : 0);
    dibs__quorum_mutex_lock(&member->quorum->mutex);
    if (vote->what == DIBS__VOTE_DISTRUSTS)
        atomic_store(&member->told_steps, op->steps);
    if (vote->ready && atomic_load(&member->steps) == op->told_steps && !dibs__member_is_distrusted(member))
        atomic_store(&member->set_back, false);
    dibs__quorum_mutex_unlock(&member->quorum->mutex);
}

/* ---------------------------------------------------------- whose members they are */

static size_t count_number(const struct dibs__quorum *q, const struct dibs__look *look, uint64_t number)
{
    size_t count = 0;

    for (size_t i = 0; i < q->count; i++)
        count += dibs__set_has(dibs__look_replied(look) | look->strange, i) && look->answers[i].quorum == number;
    return count;
}

static int compare(const void *one, const void *other)
{
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;

    return a < b ? -1 : a > b;
}

/*
 * A number for a quorum whose masters have none yet. Every process that sees all of these masters makes the
 * same number, whatever URLs it uses. 0: a master's process is not known.
 */
static uint64_t make_number(const struct dibs__quorum *q, const struct dibs__look *look)
{
    uint64_t processes[DIBS__MEMBERS_MAX] = {0}, hash = 0;

    for (size_t i = 0; i < q->count; i++) {
        processes[i] = look->answers[i].process;
        if (processes[i] == 0)
            return 0;
    }
    qsort(processes, q->count, sizeof processes[0], compare);
    for (size_t i = 0; i < q->count; i++)
        hash = dibs__hash_step(hash, processes[i]);
    return hash % NUMBER_MOST + 1;
}

uint64_t dibs__look_number_of_majority(const struct dibs__quorum *q, const struct dibs__look *look)
{
    for (size_t i = 0; i < q->count; i++)
        if (look->answers[i].quorum != 0 && count_number(q, look, look->answers[i].quorum) >= q->majority)
            return look->answers[i].quorum;
    return 0;
}

/*
 * The number that a majority has. If there is none, and all masters have answered and know whether they may
 * vote, the number that they will be given. 0: not known. A number that is known stays, unless every master
 * answered and none has it any more: then they lost their data, and another process has begun a new quorum.
 */
static uint64_t find_number(const struct dibs__quorum *q, const struct dibs__look *look, uint64_t known)
{
    if (known != 0 && (!dibs__look_is_whole(q, look) || count_number(q, look, known) > 0))
        return known;
    uint64_t number = dibs__look_number_of_majority(q, look);
    if (number != 0 || known != 0)
        return number != 0 ? number : known;
    return dibs__set_count(look->known) == q->count ? make_number(q, look) : 0;
}

/* The first of the URLs that leads to the same server as this one. */
static size_t first_twin(const struct dibs__look *look, size_t i)
{
    size_t first = 0;

    while (first < i && (look->answers[i].process == 0 || look->answers[first].process != look->answers[i].process))
        first++;
    return first;
}

bool dibs__look_has_twins(const struct dibs__quorum *q, const struct dibs__look *look)
{
    bool has = false;

    for (size_t i = 0; i < q->count; i++)
        has = has || first_twin(look, i) < i;
    return has;
}

void dibs__look_set_aside(const struct dibs__quorum *q, struct dibs__look *look, uint64_t number)
{
    for (size_t i = 0; i < q->count; i++) {
        if (!dibs__set_has(dibs__look_replied(look) | look->strange, i))
            continue;
        uint32_t bit = (uint32_t)1 << i;
        bool strange = first_twin(look, i) < i ||
                       (number != 0 && look->answers[i].quorum != 0 && look->answers[i].quorum != number);
        atomic_store(&q->members[i].strange, strange);
        if (!strange)
            continue;
        take_out(look, bit);
        look->strange |= bit;
    }
}

void dibs__look_identify(struct dibs__quorum *q, struct dibs__look *look)
{
    uint64_t known = atomic_load(&q->number), number = find_number(q, look, known);

    if (number != known)
        atomic_store(&q->number, number);
    dibs__look_set_aside(q, look, number);
}

void dibs__look_number_anew(struct dibs__quorum *q, const struct dibs__look *look)
{
    bool has_none = dibs__look_is_whole(q, look) && count_number(q, look, 0) == q->count;
    uint64_t number = has_none ? make_number(q, look) : 0;

    if (number != 0)
        atomic_store(&q->number, number);
}

bool dibs__look_lacks_number(const struct dibs__quorum *q, const struct dibs__look *look)
{
    bool lacks = false, may_be_made = dibs__set_count(look->known) == q->count && make_number(q, look) != 0;

    for (size_t i = 0; i < q->count; i++)
        lacks = lacks || (dibs__set_has(look->known, i) && look->answers[i].quorum == 0);
    return lacks && (may_be_made || atomic_load(&q->number) != 0);
}

/* ------------------------------------------------------------------- admissions */

bool dibs__look_is_whole(const struct dibs__quorum *q, const struct dibs__look *look)
{
    return dibs__set_count(dibs__look_replied(look) | look->strange) == q->count;
}

/* Whether this process has seen a majority of masters that know that they may vote. */
static bool has_begun(const struct dibs__quorum *q)
{
    return dibs__vote_is_announced(&q->voting, 1);
}

/*
 * Whether some of the masters that answered belong to a quorum that this process does not know, or knew by a number
 * that none of these has. Either the others lost their data, or these belong to other URLs: only an operator can tell,
 * or a master that answers later.
 */
static bool is_disputed(const struct dibs__quorum *q, const struct dibs__look *look)
{
    uint64_t number = atomic_load(&q->number);
    bool disputed = false;

    if (number != 0 && count_number(q, look, number) > 0)
        return false;
    for (size_t i = 0; i < q->count; i++)
        disputed =
            disputed || (dibs__set_has(dibs__look_members(look) | look->strange, i) && look->answers[i].quorum != 0);
    return disputed;
}

/*
 * If one master knows of a quorum, then the others lost their data, perhaps one after the other, or it belongs
 * to another quorum. Once the quorum has begun, a master that does not answer may know, too. URLs of which two lead
 * to one server are refused, so they begin none: its masters would be lost to the quorum that was meant.
 */
bool dibs__look_is_new_quorum(const struct dibs__quorum *q, const struct dibs__look *look)
{
    return dibs__set_count(look->unknown) >= q->majority && dibs__look_members(look) == 0 && !is_disputed(q, look) &&
           (has_begun(q) ? dibs__look_is_whole(q, look) : !dibs__look_has_twins(q, look));
}

/* The masters that said in an earlier look that they do not know whether they may vote. */
static uint32_t marked(const struct dibs__quorum *q, const struct dibs__newness *newness)
{
    uint32_t set = 0;

    for (size_t i = 0; i < q->count; i++)
        set |= newness->marks[i] != 0 ? (uint32_t)1 << i : 0;
    return set;
}

int64_t dibs__look_given_until(const struct dibs__quorum *q, const struct dibs__newness *newness)
{
    return dibs__after_ms(newness->since, q->config.command_timeout_ms / 2);
}

/* A silent master may know better. Masters that answered in an earlier look are waited for. */
bool dibs__look_seems_new(const struct dibs__quorum *q, const struct dibs__look *look, struct dibs__newness *newness,
                          int64_t now)
{
    if (dibs__look_members(look) != 0)
        *newness = (struct dibs__newness){.since = 0};
    if (!dibs__look_is_new_quorum(q, look))
        return false;
    if (newness->since == 0)
        newness->since = now;
    if (dibs__look_is_whole(q, look))
        return true;
    return now >= dibs__look_given_until(q, newness) &&
           ((marked(q, newness) & look->open) == 0 || now >= look->deadline);
}

/*
 * It takes two looks, the second begun after the first was over. A master that forgot what it granted did so
 * before its mark was set. So the other masters that granted it say in the second look that the quorum is not
 * new (test/model/admission.pml).
 */
bool dibs__look_proves_new(const struct dibs__quorum *q, const struct dibs__look *look, struct dibs__newness *newness,
                           int64_t now)
{
    bool is_proved = dibs__look_seems_new(q, look, newness, now);

    for (size_t i = 0; i < q->count; i++) {
        if (!dibs__set_has(look->unknown, i))
            continue;
        is_proved = is_proved && look->answers[i].mark != 0 && look->answers[i].mark == newness->marks[i];
        newness->marks[i] = look->answers[i].mark;
    }
    return is_proved;
}

static uint64_t highest_of(const struct dibs__quorum *q, const struct dibs__look *look, uint32_t set)
{
    uint64_t highest = 1;

    for (size_t i = 0; i < q->count; i++)
        if (dibs__set_has(set, i) && look->answers[i].highest > highest)
            highest = look->answers[i].highest;
    return highest;
}

struct dibs__vote dibs__look_admission(const struct dibs__quorum *q, const struct dibs__look *look, size_t i)
{
    return (struct dibs__vote){.what = DIBS__VOTE_ADMITS,
                               .floor = highest_of(q, look, dibs__look_members(look)),
                               .mark = look->answers[i].mark};
}

/*
 * Whether the masters that answered know how long leases may be: a majority does, or there is nobody else to
 * ask. A master that forgot the length and still waits only knows what others told it, so it does not count.
 */
static bool tell(const struct dibs__quorum *q, const struct dibs__look *look)
{
    uint32_t forgot = 0;

    for (size_t i = 0; i < q->count; i++)
        if (dibs__set_has(look->known, i) && look->answers[i].votes_in_ms > 0)
            forgot |= (uint32_t)1 << i;
    return dibs__set_count(dibs__look_members(look) & ~forgot) >= q->majority || dibs__look_is_whole(q, look);
}

/*
 * After that time, every lease that a master may have granted is over. If the masters that answered do not know
 * how long leases may be, one that can't be reached may know of longer ones.
 */
static int64_t wait_ms(const struct dibs__quorum *q, const struct dibs__look *look)
{
    uint32_t longest_ms = tell(q, look) ? look->others_ms : DIBS__LEASE_MAX_MS;

    longest_ms = look->longest_ms > longest_ms ? look->longest_ms : longest_ms;
    return dibs__admission_wait_ms(longest_ms);
}

/*
 * The floor of a master; 0: not known yet. If masters that never forgot can't be a majority, because too many
 * were restarted, the fences of the restarted ones count, too.
 */
static uint64_t floor_of(struct dibs__quorum *q, const struct dibs__look *look, size_t i)
{
    uint32_t replied = dibs__look_replied(look) | look->strange, all = dibs__quorum_all(q);
    int64_t since = q->voting.unfloored_since[i];
    bool late = look->first_began >= dibs__after_ms(since, UNFLOORED_MS);

    if (since == 0 || look->first_began <= since)
        return 0;
    if (dibs__set_count(look->ready) < q->majority && !late &&
        dibs__set_count(look->ready | (all & ~replied)) >= q->majority)
        return 0;
    return highest_of(q, look, dibs__look_members(look));
}

bool dibs__look_plan(struct dibs__quorum *q, const struct dibs__look *look, size_t i, uint32_t long_unknown,
                     struct dibs__vote *vote)
{
    int64_t wait = wait_ms(q, look);
    bool waits_too_long =
        dibs__set_has(look->known, i) && tell(q, look) && dibs__waits_too_long(look->answers[i].votes_in_ms, wait);
    bool is_over = dibs__set_has(look->known & ~look->ready, i) && look->answers[i].votes_in_ms == 0;

    if (is_disputed(q, look))
        return false;
    if (dibs__set_has(look->known, i) && tell(q, look) && dibs__member_is_distrusted(&q->members[i]))
        *vote = (struct dibs__vote){.what = DIBS__VOTE_DISTRUSTS,
                                    .wait_ms = wait > DIBS__DISTRUST_LEAST_MS ? wait : DIBS__DISTRUST_LEAST_MS};
    else if (dibs__set_has(look->restarted | long_unknown, i) || waits_too_long)
        *vote = (struct dibs__vote){.what = DIBS__VOTE_ADMITS, .wait_ms = wait};
    else if (is_over)
        *vote = (struct dibs__vote){.what = DIBS__VOTE_FLOORS, .floor = floor_of(q, look, i)};
    else
        return false;
    return vote->what != DIBS__VOTE_FLOORS || vote->floor != 0;
}

/* -------------------------------------------------------------------- sentences */

dibs_status dibs__look_check_twins(const struct dibs__quorum *q, const struct dibs__look *look,
                                   struct dibs__error *error)
{
    for (size_t i = 0; i < q->count; i++)
        if (first_twin(look, i) < i)
            return dibs__error_set(error, DIBS_INVALID, "urls[%zu] and urls[%zu] are the same master",
                                   first_twin(look, i), i);
    return DIBS_OK;
}

dibs_status dibs__look_tell_why(const struct dibs__quorum *q, const struct dibs__look *look, unsigned answered,
                                struct dibs__error *error)
{
    bool is_known = atomic_load(&q->number) != 0;

    for (size_t i = 0; answered >= q->majority && i < q->count; i++) {
        if (is_known && atomic_load(&q->members[i].strange))
            return dibs__error_set(error, DIBS_UNAVAILABLE, "number %zu of the URLs is a master of another quorum",
                                   i + 1);
        if (!is_known && look->answers[i].quorum != 0 && answered < q->count)
            return dibs__error_set(
                error, DIBS_UNAVAILABLE,
                "number %zu of the URLs is a master of a quorum that those of the others which answered do not "
                "know: start the masters that are missing, or, where they are gone for good, have "
                "these vote again (dibs doctor --admit)",
                i + 1);
        if (!is_known && look->answers[i].quorum != 0)
            return dibs__error_set(
                error, DIBS_UNAVAILABLE,
                "number %zu of the URLs is a master of a quorum that the others do not know: they lost their data, "
                "or it belongs to other URLs. Where those are not used any more, delete its key "
                "dibs:vote",
                i + 1);
    }
    return dibs__quorum_no_majority(q, answered, error);
}
