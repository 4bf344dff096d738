/*
 * What is due by a time, the earliest first: a heap that is linked through its nodes, so a node enters it without
 * memory. A heap has no mutex of its own: whoever has it guards it, and the nodes in it.
 */
#ifndef DIBS_BASE_HEAP_H
#define DIBS_BASE_HEAP_H

#include <stdbool.h>
#include <stdint.h>

/* All zero: in no heap. */
struct dibs__heap_node {
    int64_t due; /* set by the caller, while it is in no heap */
    struct dibs__heap_node *left, *right, *parent;
    uint8_t rank; /* how long the way to a missing node is along `right`; 0: in no heap */
};

/* All zero: an empty heap. */
struct dibs__heap {
    struct dibs__heap_node *first; /* that is due first; NULL: the heap is empty */
};

static inline bool dibs__heap_has(const struct dibs__heap_node *node)
{
    return node->rank > 0;
}

/* The node is in no heap. */
void dibs__heap_add(struct dibs__heap *heap, struct dibs__heap_node *node);

/* The node is in that heap. */
void dibs__heap_remove(struct dibs__heap *heap, struct dibs__heap_node *node);

/* `other`, which is in no heap, takes the place of the node, and is due at the same time. */
void dibs__heap_replace(struct dibs__heap *heap, struct dibs__heap_node *node, struct dibs__heap_node *other);

/* Each node once: behind heap->first, in no order. NULL: there are no more. */
struct dibs__heap_node *dibs__heap_other(const struct dibs__heap_node *node);

#endif
