#include "core/heap.h"

#include <stdlib.h>

#define ROOM_FIRST 16
#define MEMBER UINT32_MAX /* renewal_state.place of a lease that is in a group and is not its leader */

/* ------------------------------------------------------------------ the groups */

static void place(struct dibs__heap *heap, struct dibs__lease *leader, size_t at) DIBS__REQUIRES(dibs__renewals_mutex)
{
    heap->leaders[at] = leader;
    leader->renewal_state.place = (uint32_t)at + 1;
}

static int64_t due_at(const struct dibs__heap *heap, size_t at) DIBS__REQUIRES(dibs__renewals_mutex)
{
    return heap->leaders[at]->renewal_state.due;
}

/* Puts the group at `at`, or where it belongs from there. */
static void sift(struct dibs__heap *heap, struct dibs__lease *leader, size_t at) DIBS__REQUIRES(dibs__renewals_mutex)
{
    DIBS__REQUIRE(at < heap->groups);
    while (at > 0 && due_at(heap, (at - 1) / 2) > leader->renewal_state.due) {
        place(heap, heap->leaders[(at - 1) / 2], at);
        at = (at - 1) / 2;
    }
    for (size_t child; (child = 2 * at + 1) < heap->groups; at = child) {
        if (child + 1 < heap->groups && due_at(heap, child + 1) < due_at(heap, child))
            child++;
        if (due_at(heap, child) >= leader->renewal_state.due)
            break;
        place(heap, heap->leaders[child], at);
    }
    place(heap, leader, at);
}

/* ------------------------------------------------------------------ the leases */

/* The lease, which is in no group, joins that of `beside`, or becomes one by itself. */
static void join(struct dibs__heap *heap, struct dibs__lease *lease, struct dibs__lease *beside)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    if (beside && dibs__heap_has(beside) && beside->renewal_state.due == lease->renewal_state.due) {
        lease->renewal_state.place = MEMBER;
        lease->renewal_state.previous = beside;
        lease->renewal_state.next = beside->renewal_state.next;
        beside->renewal_state.next->renewal_state.previous = lease;
        beside->renewal_state.next = lease;
        return;
    }
    lease->renewal_state.next = lease->renewal_state.previous = lease;
    heap->groups++;
    sift(heap, lease, heap->groups - 1);
}

/* The lease leaves its group. Where it was the leader, the next one is. */
static void leave(struct dibs__heap *heap, struct dibs__lease *lease) DIBS__REQUIRES(dibs__renewals_mutex)
{
    struct dibs__lease *next = lease->renewal_state.next, *previous = lease->renewal_state.previous;
    uint32_t at = lease->renewal_state.place;

    lease->renewal_state.place = 0;
    if (next != lease) {
        next->renewal_state.previous = previous;
        previous->renewal_state.next = next;
        if (at != MEMBER)
            place(heap, next, at - 1);
        return;
    }
    struct dibs__lease *last = heap->leaders[--heap->groups];
    if (last != lease)
        sift(heap, last, at - 1);
}

bool dibs__heap_reserve(struct dibs__heap *heap)
{
    DIBS__REQUIRE(heap->groups <= heap->count && heap->count + heap->reserved <= heap->room);
    if (heap->count + heap->reserved == heap->room) {
        size_t room = heap->room ? heap->room * 2 : ROOM_FIRST;
        struct dibs__lease **leaders = room < MEMBER ? realloc(heap->leaders, room * sizeof *leaders) : NULL;
        if (!leaders)
            return false;
        heap->leaders = leaders;
        heap->room = room;
    }
    heap->reserved++;
    return true;
}

void dibs__heap_unreserve(struct dibs__heap *heap)
{
    DIBS__REQUIRE(heap->reserved > 0);
    heap->reserved--;
}

void dibs__heap_add(struct dibs__heap *heap, struct dibs__lease *lease, struct dibs__lease *beside)
{
    DIBS__REQUIRE(heap->reserved > 0 && !dibs__heap_has(lease));
    heap->reserved--;
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

    for (struct dibs__lease *lease; (lease = dibs__heap_first(heap)); end = &lease->renewal_state.next) {
        dibs__heap_remove(heap, lease);
        heap->reserved++;
        *end = lease;
    }
    *end = NULL;
    return all;
}

struct dibs__lease *dibs__heap_first(const struct dibs__heap *heap)
{
    return heap->groups > 0 ? heap->leaders[0] : NULL;
}

struct dibs__lease *dibs__heap_last(const struct dibs__heap *heap)
{
    return heap->groups > 0 ? heap->leaders[heap->groups - 1] : NULL;
}

void dibs__heap_free(struct dibs__heap *heap)
{
    free(heap->leaders);
    *heap = (struct dibs__heap){0};
}
