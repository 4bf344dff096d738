#include "core/due.h"

static struct dibs__lease *lease_of(struct dibs__heap_node *node)
{
    return node ? (struct dibs__lease *)((char *)node - offsetof(struct dibs__lease, renewal_state.node)) : NULL;
}

struct dibs__lease *dibs__due_first(const struct dibs__due *due)
{
    return lease_of(due->leaders.first);
}

struct dibs__lease *dibs__due_leader(const struct dibs__due *due, const struct dibs__lease *after)
{
    return lease_of(after ? dibs__heap_other(&after->renewal_state.node) : due->leaders.first);
}

/* If the lease was the leader of its group, the next lease of the group becomes the leader. */
void dibs__due_remove(struct dibs__due *due, struct dibs__lease *lease)
{
    struct dibs__lease *next = lease->renewal_state.next, *previous = lease->renewal_state.previous;
    struct dibs__heap_node *node = &lease->renewal_state.node;

    DIBS__REQUIRE(dibs__due_has(lease) && due->count > 0);
    due->count--;
    lease->renewal_state.grouped = false;
    next->renewal_state.previous = previous;
    previous->renewal_state.next = next;
    if (!dibs__heap_has(node))
        return;
    if (next != lease)
        dibs__heap_replace(&due->leaders, node, &next->renewal_state.node);
    else
        dibs__heap_remove(&due->leaders, node);
    if (due->last == lease)
        due->last = next != lease ? next : dibs__due_first(due);
}

void dibs__due_set(struct dibs__due *due, struct dibs__lease *lease, int64_t when, struct dibs__lease *beside)
{
    DIBS__REQUIRE(when < DIBS__NEVER && beside != lease);
    if (when == dibs__due_at(lease))
        return;
    if (dibs__due_has(lease))
        dibs__due_remove(due, lease);
    due->count++;
    lease->renewal_state.grouped = true;
    lease->renewal_state.node.due = when;
    if (when == dibs__due_at(beside)) {
        lease->renewal_state.previous = beside;
        lease->renewal_state.next = beside->renewal_state.next;
        beside->renewal_state.next->renewal_state.previous = lease;
        beside->renewal_state.next = lease;
        return;
    }
    lease->renewal_state.next = lease->renewal_state.previous = lease;
    dibs__heap_add(&due->leaders, &lease->renewal_state.node);
    due->last = lease;
}

struct dibs__lease *dibs__due_take_all(struct dibs__due *due)
{
    struct dibs__lease *all = NULL, **end = &all;

    for (struct dibs__lease *lease; (lease = dibs__due_first(due)); end = &lease->renewal_state.next) {
        dibs__due_remove(due, lease);
        *end = lease;
    }
    *end = NULL;
    return all;
}
