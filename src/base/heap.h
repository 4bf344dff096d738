/*
 * A heap of nodes, with the one that is due first at its top. It is linked through the nodes, so that adding one needs
 * no memory. A heap has no mutex of its own: its owner guards the heap and the nodes in it.
 */
#ifndef DIBS_BASE_HEAP_H
#define DIBS_BASE_HEAP_H

#include <stdbool.h>
#include <stdint.h>

/* All zero: the node is in no heap. */
struct dibs__heap_node {
    int64_t due; /* set by the caller, while the node is in no heap */
    struct dibs__heap_node *left, *right, *parent;
    uint8_t rank; /* length of the path along `right` to a missing node; 0: the node is in no heap */
};

/* All zero: an empty heap. */
struct dibs__heap {
    struct dibs__heap_node *first; /* the node that is due first; NULL: the heap is empty */
};

static inline bool dibs__heap_has(const struct dibs__heap_node *node)
{
    return node->rank > 0;
}

/* Requires that the node is in no heap. */
void dibs__heap_add(struct dibs__heap *heap, struct dibs__heap_node *node);

/* Requires that the node is in this heap. */
void dibs__heap_remove(struct dibs__heap *heap, struct dibs__heap_node *node);

/* Puts `other`, which must be in no heap, in the place of the node. It is due at the same time. */
void dibs__heap_replace(struct dibs__heap *heap, struct dibs__heap_node *node, struct dibs__heap_node *other);

/*
 * Visits all nodes: called with heap->first and then with each result, returns each other node once, in no particular
 * order. NULL: there are no more.
 */
struct dibs__heap_node *dibs__heap_other(const struct dibs__heap_node *node);

#endif
