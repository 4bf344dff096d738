/*
 * A leftist heap: a leader is due no later than `left` and `right`, and from none
 * of them is the way to a missing one shorter on the left. So the way along `right`
 * is never longer than the logarithm of their number, and nothing else is walked.
 */
#include "core/heap.h"

/* ------------------------------------------------------------------ the groups */

/* How long the way to a missing one is along `right`; 0: it is missing. */
static unsigned rank(const struct dibs__lease *leader) DIBS__REQUIRES(dibs__renewals_mutex)
{
    return leader ? leader->renewal_state.rank : 0;
}

/* False: the rank stays as it was. */
static bool set_rank(struct dibs__lease *leader) DIBS__REQUIRES(dibs__renewals_mutex)
{
    struct dibs__lease *left = leader->renewal_state.left, *right = leader->renewal_state.right;
    unsigned before = rank(leader);

    if (rank(left) < rank(right)) {
        leader->renewal_state.left = right;
        leader->renewal_state.right = left;
    }
    leader->renewal_state.rank = (uint8_t)(rank(leader->renewal_state.right) + 1);
    return rank(leader) != before;
}

/* Two heaps, either of which may be empty, become one. */
static struct dibs__lease *merge(struct dibs__lease *one, struct dibs__lease *other)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    struct dibs__lease *root = NULL, *parent = NULL, **at = &root;

    while (one && other) {
        struct dibs__lease *first = other->renewal_state.due < one->renewal_state.due ? other : one;
        other = first == one ? other : one;
        one = first->renewal_state.right;
        first->renewal_state.parent = parent;
        parent = *at = first;
        at = &first->renewal_state.right;
    }
    *at = one ? one : other;
    if (*at)
        (*at)->renewal_state.parent = parent;
    for (; parent; parent = parent->renewal_state.parent)
        set_rank(parent);
    return root;
}

/* The other takes the leader's place in the heap; NULL: nothing does. */
static void replace(struct dibs__heap *heap, const struct dibs__lease *leader, struct dibs__lease *other)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    struct dibs__lease *parent = leader->renewal_state.parent;

    if (!parent)
        heap->first = other;
    else if (parent->renewal_state.left == leader)
        parent->renewal_state.left = other;
    else
        parent->renewal_state.right = other;
    if (other)
        other->renewal_state.parent = parent;
}

static void take_out(struct dibs__heap *heap, struct dibs__lease *leader) DIBS__REQUIRES(dibs__renewals_mutex)
{
    replace(heap, leader, merge(leader->renewal_state.left, leader->renewal_state.right));
    for (struct dibs__lease *at = leader->renewal_state.parent; at && set_rank(at);)
        at = at->renewal_state.parent;
    if (heap->last == leader)
        heap->last = heap->first;
}

/* Another lease of the group becomes its leader. */
static void lead(struct dibs__heap *heap, const struct dibs__lease *leader, struct dibs__lease *next)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    struct dibs__lease *left = leader->renewal_state.left, *right = leader->renewal_state.right;

    replace(heap, leader, next);
    next->renewal_state.place = DIBS__HEAP_LEADER;
    next->renewal_state.rank = leader->renewal_state.rank;
    next->renewal_state.left = left;
    next->renewal_state.right = right;
    if (left)
        left->renewal_state.parent = next;
    if (right)
        right->renewal_state.parent = next;
    if (heap->last == leader)
        heap->last = next;
}

struct dibs__lease *dibs__heap_other(const struct dibs__lease *leader)
{
    const struct dibs__lease *at = leader, *parent;

    if (at->renewal_state.left) /* without it there is no `right` */
        return at->renewal_state.left;
    for (; (parent = at->renewal_state.parent); at = parent)
        if (parent->renewal_state.left == at && parent->renewal_state.right)
            return parent->renewal_state.right;
    return NULL;
}

/* ------------------------------------------------------------------ the leases */

/* The lease, which is in no group, joins that of `beside`, or becomes one by itself. */
static void join(struct dibs__heap *heap, struct dibs__lease *lease, struct dibs__lease *beside)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    if (beside && dibs__heap_has(beside) && beside->renewal_state.due == lease->renewal_state.due) {
        lease->renewal_state.place = DIBS__HEAP_MEMBER;
        lease->renewal_state.previous = beside;
        lease->renewal_state.next = beside->renewal_state.next;
        beside->renewal_state.next->renewal_state.previous = lease;
        beside->renewal_state.next = lease;
        return;
    }
    lease->renewal_state.next = lease->renewal_state.previous = lease;
    lease->renewal_state.place = DIBS__HEAP_LEADER;
    lease->renewal_state.rank = 1;
    lease->renewal_state.left = lease->renewal_state.right = NULL;
    heap->first = merge(heap->first, lease);
    heap->last = lease;
}

static void leave(struct dibs__heap *heap, struct dibs__lease *lease) DIBS__REQUIRES(dibs__renewals_mutex)
{
    struct dibs__lease *next = lease->renewal_state.next, *previous = lease->renewal_state.previous;
    bool leads = lease->renewal_state.place == DIBS__HEAP_LEADER;

    lease->renewal_state.place = DIBS__HEAP_NOWHERE;
    next->renewal_state.previous = previous;
    previous->renewal_state.next = next;
    if (leads && next != lease)
        lead(heap, lease, next);
    else if (leads)
        take_out(heap, lease);
}

void dibs__heap_add(struct dibs__heap *heap, struct dibs__lease *lease, struct dibs__lease *beside)
{
    DIBS__REQUIRE(!dibs__heap_has(lease));
    heap->count++;
    join(heap, lease, beside);
}

void dibs__heap_move(struct dibs__heap *heap, struct dibs__lease *lease, int64_t due, struct dibs__lease *beside)
{
    DIBS__REQUIRE(dibs__heap_has(lease) && beside != lease);
    if (due == lease->renewal_state.due)
        return;
    leave(heap, lease);
    lease->renewal_state.due = due;
    join(heap, lease, beside);
}

void dibs__heap_remove(struct dibs__heap *heap, struct dibs__lease *lease)
{
    DIBS__REQUIRE(dibs__heap_has(lease) && heap->count > 0);
    heap->count--;
    leave(heap, lease);
}

struct dibs__lease *dibs__heap_take_all(struct dibs__heap *heap)
{
    struct dibs__lease *all = NULL, **end = &all;

    for (struct dibs__lease *lease; (lease = heap->first); end = &lease->renewal_state.next) {
        dibs__heap_remove(heap, lease);
        *end = lease;
    }
    *end = NULL;
    return all;
}
