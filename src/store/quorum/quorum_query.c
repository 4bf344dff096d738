/* Queries, and the walk over all names. Lock discipline: quorum_parts.h. */
#include <stdlib.h>
#include <string.h>

#include "store/quorum/quorum_parts.h"

/* A query that was begun, or is being finished. */
struct looking {
    uint32_t seen;      /* the members that have answered */
    uint32_t free;      /* those of them at which nobody has the lock */
    dibs_owner *owners; /* one for each member */
    struct dibs__pending_op ops[];
};

/* ---------------------------------------------------------------------- query */

void dibs__quorum_query_begin(struct dibs__store *base, struct dibs__op *op)
{
    struct dibs__quorum *q = dibs__quorum_of(base);
    struct looking *looking = calloc(1, sizeof *looking + q->count * (sizeof *looking->ops + sizeof(dibs_owner)));

    DIBS__REQUIRE(!op->state);
    op->state = looking;
    if (!looking)
        return;
    looking->owners = (dibs_owner *)&looking->ops[q->count];
    for (size_t i = 0; i < q->count; i++) {
        looking->ops[i].member = &q->members[i];
        dibs__pending_op_begin(&looking->ops[i], (struct dibs__op){.kind = DIBS__OP_QUERY,
                                                                   .name = op->name,
                                                                   .query = {.owner = &looking->owners[i],
                                                                             .any_type = op->query.any_type}});
    }
}

static void land(struct dibs__fan_out *fan_out, struct dibs__pending_op *op, enum dibs__op_kind what,
                 dibs_status status)
{
    struct looking *looking = fan_out->context;
    uint32_t bit = (uint32_t)1 << op->member->index;

    (void)what;
    if (status != DIBS_OK)
        return;
    looking->seen |= bit;
    looking->free |= looking->owners[op->member->index].held ? 0 : bit;
}

/* Whether both name the same owner, or both say that the lock is shared, no matter by whom. */
static bool agrees(const dibs_owner *one, const dibs_owner *other)
{
    if (one->sharers > 0 || other->sharers > 0)
        return one->sharers > 0 && other->sharers > 0;
    return strcmp(one->token, other->token) == 0;
}

/* The members that agree with member i on the lock's owner. */
static uint32_t who_agree(const struct dibs__quorum *q, const struct looking *looking, size_t i)
{
    uint32_t agree = 0;

    for (size_t other = 0; other < q->count; other++)
        if (dibs__set_has(looking->seen & ~looking->free, other) &&
            agrees(&looking->owners[other], &looking->owners[i]))
            agree |= (uint32_t)1 << other;
    return agree;
}

/* The largest set of members that agree on the owner. */
static uint32_t most_agree(const struct dibs__quorum *q, const struct looking *looking)
{
    uint32_t most = 0;

    for (size_t i = 0; i < q->count; i++) {
        uint32_t agree = dibs__set_has(looking->seen & ~looking->free, i) ? who_agree(q, looking, i) : 0;
        if (dibs__set_count(agree) > dibs__set_count(most))
            most = agree;
    }
    return most;
}

static bool is_decided(const struct dibs__fan_out *fan_out, int64_t now)
{
    const struct looking *looking = fan_out->context;
    unsigned most = dibs__set_count(most_agree(fan_out->quorum, looking));
    bool replied = dibs__set_count(looking->seen) >= fan_out->quorum->majority;

    if (most >= fan_out->quorum->majority)
        return true;
    if (!replied)
        return false;
    return most + dibs__set_count(fan_out->open) < fan_out->quorum->majority || !(fan_out->open & ~fan_out->unsent) ||
           dibs__fan_out_is_overdue(fan_out, now);
}

static int compare_down(const void *one, const void *other)
{
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;

    return a < b ? 1 : a > b ? -1 : 0;
}

uint64_t dibs__nth_largest(uint64_t *numbers, size_t count, size_t n)
{
    qsort(numbers, count, sizeof numbers[0], compare_down);
    return numbers[n <= count ? n - 1 : count - 1];
}

/*
 * The member of the set whose token most of the set name. They may differ if the lock is shared, because each
 * member names its newest sharer.
 */
static size_t most_named(const struct dibs__quorum *q, const struct looking *looking, uint32_t set)
{
    unsigned best_count = 0;
    size_t best = 0;

    for (size_t i = 0; i < q->count; i++) {
        unsigned count = 0;
        for (size_t other = 0; other < q->count && dibs__set_has(set, i); other++)
            count += dibs__set_has(set, other) && strcmp(looking->owners[other].token, looking->owners[i].token) == 0;
        best = count > best_count ? i : best;
        best_count = count > best_count ? count : best_count;
    }
    return best;
}

/*
 * Who has the lock, as the members of the set say. held_ms is the largest that they tell: members whose clocks
 * are behind tell less. The fence of a shared lock is the one to which most members are raised.
 */
static void show_owner(const struct dibs__quorum *q, const struct looking *looking, uint32_t set, dibs_owner *owner)
{
    const dibs_owner *named = &looking->owners[most_named(q, looking, set)];
    uint64_t remaining[DIBS__MEMBERS_MAX] = {0}, sharers[DIBS__MEMBERS_MAX] = {0}, fences[DIBS__MEMBERS_MAX] = {0};
    int64_t held_ms = -1;
    size_t count = 0, named_count = 0;

    for (size_t i = 0; i < q->count; i++) {
        const dibs_owner *its = &looking->owners[i];
        if (!dibs__set_has(set, i))
            continue;
        remaining[count] = (uint64_t)its->remaining_ms; /* -1, of a lock without expiry, is the largest */
        sharers[count++] = its->sharers;
        if (strcmp(its->token, named->token) != 0)
            continue;
        fences[named_count++] = its->fence;
        held_ms = its->held_ms > held_ms ? its->held_ms : held_ms;
    }
    memcpy(owner->token, named->token, sizeof owner->token);
    owner->held = true;
    owner->remaining_ms = (int64_t)dibs__nth_largest(remaining, count, q->majority);
    owner->sharers = (uint32_t)dibs__nth_largest(sharers, count, q->majority);
    owner->held_ms = held_ms;
    if (owner->sharers > 0)
        owner->fence = dibs__nth_largest(fences, named_count, q->majority);
}

/* The fence is the largest that any master tells, and a majority of the masters is raised to it. */
static void show(const struct dibs__quorum *q, const struct looking *looking, struct dibs__query *query)
{
    uint32_t most = most_agree(q, looking);
    unsigned not_seen = (unsigned)q->count - dibs__set_count(looking->seen);
    dibs_owner *owner = query->owner;

    for (size_t i = 0; i < q->count; i++) {
        const dibs_owner *its = &looking->owners[i];
        owner->fence = its->fence > owner->fence ? its->fence : owner->fence;
        owner->waiters = its->waiters > owner->waiters ? its->waiters : owner->waiters;
    }
    if (dibs__set_count(most) >= q->majority)
        show_owner(q, looking, most, owner);
    query->unsure = !owner->held && dibs__set_count(most) + not_seen >= q->majority;
}

static dibs_status look(struct dibs__quorum *q, struct dibs__op *op, struct looking *looking, struct dibs__error *error)
{
    struct dibs__fan_out fan_out = {.quorum = q,
                                    .ops = looking->ops,
                                    .open = dibs__quorum_all(q),
                                    .deadline = op->deadline,
                                    .context = looking,
                                    .is_decided = is_decided,
                                    .land = land,
                                    .error = error};

    dibs__fan_out_run(&fan_out);
    for (size_t i = 0; i < q->count; i++)
        if (dibs__set_has(fan_out.open, i))
            dibs__pending_op_abandon(&looking->ops[i]);
    if (dibs__set_count(looking->seen) < q->majority)
        return dibs__quorum_no_majority(q, dibs__set_count(looking->seen), error);
    show(q, looking, &op->query);
    return DIBS_OK;
}

/*
 * Asks for the queue the master with the most waiters. If that fails, no waiters are shown: the queue is not
 * subject to a majority.
 */
static void ask_who_waits(const struct dibs__quorum *q, const struct dibs__op *op, const struct looking *looking)
{
    dibs_owner owner = {0};
    const struct dibs__op who = {.kind = DIBS__OP_QUERY,
                                 .name = op->name,
                                 .deadline = op->deadline,
                                 .query = {.owner = &owner, .waiters = op->query.waiters}};
    struct dibs__error unused;
    size_t most = 0;

    for (size_t i = 1; i < q->count; i++)
        if (looking->owners[i].waiters > looking->owners[most].waiters)
            most = i;
    if (looking->owners[most].waiters > 0)
        (void)dibs__quorum_finish_at(&q->members[most], &who, 1, &unused);
}

static int newest_first(const void *one, const void *other)
{
    uint64_t a = ((const dibs_sharer *)one)->fence, b = ((const dibs_sharer *)other)->fence;

    return a < b ? 1 : a > b ? -1 : 0;
}

/* Adds the sharers that one more master names. reserved[0] counts how many masters name each of them. */
static void add_sharers(struct dibs__sharers *all, const struct dibs__sharers *its)
{
    for (size_t i = 0; i < its->count; i++) {
        const dibs_sharer *said = &its->items[i];
        size_t at = 0;
        while (at < all->count && strcmp(all->items[at].token, said->token) != 0)
            at++;
        if (at == all->count && at == all->most)
            continue;
        dibs_sharer *known = &all->items[at];
        if (at == all->count)
            all->items[all->count++] = *said;
        known->fence = said->fence > known->fence ? said->fence : known->fence;
        known->remaining_ms = said->remaining_ms > known->remaining_ms ? said->remaining_ms : known->remaining_ms;
        known->reserved[0]++;
    }
}

/* Keeps those that at least that number of masters name. */
static void keep_named(struct dibs__sharers *all, uint64_t least)
{
    size_t kept = 0;

    for (size_t i = 0; i < all->count; i++) {
        bool is_named = all->items[i].reserved[0] >= least;
        all->items[i].reserved[0] = 0;
        all->items[kept] = all->items[i];
        kept += is_named;
    }
    memset(&all->items[kept], 0, (all->count - kept) * sizeof all->items[0]);
    all->count = kept;
}

/* Adds the sharers at one master. False: the master failed. */
static bool ask_sharers_of(const struct dibs__member *member, const struct dibs__op *op, size_t left,
                           struct dibs__sharers *its)
{
    struct dibs__error unused;
    dibs_owner owner = {0};
    struct dibs__op who = {.kind = DIBS__OP_QUERY,
                           .name = op->name,
                           .deadline = op->deadline,
                           .query = {.owner = &owner, .any_type = op->query.any_type, .sharers = its}};

    its->count = 0;
    if (dibs__quorum_finish_at(member, &who, left + 1, &unused) != DIBS_OK)
        return false;
    add_sharers(op->query.sharers, its);
    return true;
}

/* Collects all sharers that the masters name: those that have a majority, and perhaps some that are asking for one. */
static dibs_status ask_who_shares(struct dibs__quorum *q, struct dibs__op *op, const struct looking *looking,
                                  struct dibs__error *error)
{
    struct dibs__sharers *all = op->query.sharers,
                         its = {.items = calloc(all->most, sizeof *its.items), .most = all->most};
    struct dibs__member *order[DIBS__MEMBERS_MAX] = {NULL};

    if (!its.items)
        return dibs__quorum_no_memory(error);
    dibs__quorum_put_in_order(q, order);
    for (size_t i = 0; i < q->count; i++) {
        unsigned at = order[i]->index;
        bool may_name = looking->owners[at].sharers > 0 || (all->by_majority && !dibs__set_has(looking->seen, at));
        if (may_name && !ask_sharers_of(order[i], op, q->count - i, &its))
            op->query.unsure = true;
    }
    keep_named(all, all->by_majority ? q->majority : 1);
    qsort(all->items, all->count, sizeof *its.items, newest_first);
    free(its.items);
    return DIBS_OK;
}

dibs_status dibs__quorum_query_finish(struct dibs__store *base, struct dibs__op *op, struct dibs__error *error)
{
    struct dibs__quorum *q = dibs__quorum_of(base);
    const struct dibs__query *query = &op->query;

    error->status = DIBS_OK;
    if (!op->state)
        dibs__quorum_query_begin(base, op);
    struct looking *looking = op->state;
    op->state = NULL;
    if (!looking)
        return dibs__quorum_no_memory(error);
    dibs_status status = look(q, op, looking, error);
    if (status == DIBS_OK && query->waiters)
        ask_who_waits(q, op, looking);
    if (query->sharers)
        query->sharers->count = 0;
    if (status == DIBS_OK && query->sharers && (query->owner->sharers > 0 || !query->sharers->by_majority))
        status = ask_who_shares(q, op, looking, error);
    free(looking);
    return status;
}

/* ----------------------------------------------------------------------- walk */

void dibs__quorum_put_in_order(struct dibs__quorum *q, struct dibs__member *order[DIBS__MEMBERS_MAX])
{
    uint32_t unused, first = dibs__members_to_ask(q, &unused);
    size_t front = 0, back = q->count;

    for (size_t i = 0; i < q->count; i++)
        order[dibs__set_has(first, i) ? front++ : --back] = &q->members[i];
}

/* A lock that a majority granted is known to at least one master of any majority. */
dibs_status dibs__quorum_walk(struct dibs__store *base, const struct dibs__walk *walk, struct dibs__error *error)
{
    struct dibs__quorum *q = dibs__quorum_of(base);
    struct dibs__member *order[DIBS__MEMBERS_MAX] = {NULL};
    size_t walked = 0;

    error->status = DIBS_OK;
    dibs__quorum_put_in_order(q, order);
    for (size_t i = 0; i < q->count && walked < q->majority; i++) {
        struct dibs__error its = {DIBS_OK, ""};
        dibs_status status = order[i]->store->ops->walk(order[i]->store, walk, &its);
        if (status == DIBS_CLOSED || status == DIBS_NO_MEMORY) {
            *error = its;
            return status;
        }
        walked += status == DIBS_OK;
        dibs__error_keep_worst(error, &its);
    }
    return walked >= q->majority ? DIBS_OK : dibs__quorum_no_majority(q, (unsigned)walked, error);
}
