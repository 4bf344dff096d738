#include "core/heap.h"

#include <stdlib.h>

#define ROOM_FIRST 16

static void place(struct dibs__heap *heap, struct dibs__lease *lease, size_t at) DIBS__REQUIRES(dibs__renewals_mutex)
{
    heap->leases[at] = lease;
    lease->upkeep.heap_place = at + 1;
}

static int64_t due_at(const struct dibs__heap *heap, size_t at) DIBS__REQUIRES(dibs__renewals_mutex)
{
    return heap->leases[at]->upkeep.due;
}

/* Puts the lease at `at`, or where it belongs from there. */
static void sift(struct dibs__heap *heap, struct dibs__lease *lease, size_t at) DIBS__REQUIRES(dibs__renewals_mutex)
{
    DIBS__REQUIRE(at < heap->count);
    while (at > 0 && due_at(heap, (at - 1) / 2) > lease->upkeep.due) {
        place(heap, heap->leases[(at - 1) / 2], at);
        at = (at - 1) / 2;
    }
    for (size_t child; (child = 2 * at + 1) < heap->count; at = child) {
        if (child + 1 < heap->count && due_at(heap, child + 1) < due_at(heap, child))
            child++;
        if (due_at(heap, child) >= lease->upkeep.due)
            break;
        place(heap, heap->leases[child], at);
    }
    place(heap, lease, at);
}

bool dibs__heap_reserve(struct dibs__heap *heap)
{
    DIBS__REQUIRE(heap->count + heap->reserved <= heap->room);
    if (heap->count + heap->reserved == heap->room) {
        size_t room = heap->room ? heap->room * 2 : ROOM_FIRST;
        struct dibs__lease **leases = realloc(heap->leases, room * sizeof *leases);
        if (!leases)
            return false;
        heap->leases = leases;
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

void dibs__heap_add(struct dibs__heap *heap, struct dibs__lease *lease)
{
    DIBS__REQUIRE(heap->reserved > 0 && !dibs__heap_has(lease));
    heap->reserved--;
    heap->count++;
    sift(heap, lease, heap->count - 1);
}

void dibs__heap_move(struct dibs__heap *heap, struct dibs__lease *lease)
{
    DIBS__REQUIRE(dibs__heap_has(lease));
    sift(heap, lease, lease->upkeep.heap_place - 1);
}

void dibs__heap_remove(struct dibs__heap *heap, struct dibs__lease *lease)
{
    DIBS__REQUIRE(dibs__heap_has(lease) && heap->leases[lease->upkeep.heap_place - 1] == lease);
    size_t at = lease->upkeep.heap_place - 1;
    struct dibs__lease *last = heap->leases[--heap->count];
    lease->upkeep.heap_place = 0;
    if (last != lease)
        sift(heap, last, at);
}

struct dibs__lease *dibs__heap_first(const struct dibs__heap *heap)
{
    return heap->count > 0 ? heap->leases[0] : NULL;
}

void dibs__heap_free(struct dibs__heap *heap)
{
    free(heap->leases);
    *heap = (struct dibs__heap){0};
}
