/*
 * A leftist heap: a node is due no later than its children `left` and `right`, and the shortest path to a missing child
 * is at least as long on the left as on the right. So the path along `right` is never longer than the logarithm of the
 * number of nodes, and adding and removing walk no longer path than that.
 */
#include "base/heap.h"

#include <stddef.h>

#include "base/require.h"

static unsigned rank(const struct dibs__heap_node *node)
{
    return node ? node->rank : 0;
}

/* Puts the child of higher rank on the left, and sets the rank of the node. False: the rank has not changed. */
static bool set_rank(struct dibs__heap_node *node)
{
    struct dibs__heap_node *left = node->left, *right = node->right;
    unsigned before = node->rank;

    if (rank(left) < rank(right)) {
        node->left = right;
        node->right = left;
    }
    node->rank = (uint8_t)(rank(node->right) + 1);
    return node->rank != before;
}

/* Merges two heaps, either of which may be empty. */
static struct dibs__heap_node *merge(struct dibs__heap_node *one, struct dibs__heap_node *other)
{
    struct dibs__heap_node *root = NULL, *parent = NULL, **at = &root;

    while (one && other) {
        struct dibs__heap_node *first = other->due < one->due ? other : one;
        other = first == one ? other : one;
        one = first->right;
        first->parent = parent;
        parent = *at = first;
        at = &first->right;
    }
    *at = one ? one : other;
    if (*at)
        (*at)->parent = parent;
    for (; parent; parent = parent->parent)
        set_rank(parent);
    return root;
}

/* Makes whatever points to the node point to `other` instead, which may be NULL. */
static void relink(struct dibs__heap *heap, const struct dibs__heap_node *node, struct dibs__heap_node *other)
{
    struct dibs__heap_node *parent = node->parent;

    if (!parent)
        heap->first = other;
    else if (parent->left == node)
        parent->left = other;
    else
        parent->right = other;
    if (other)
        other->parent = parent;
}

void dibs__heap_add(struct dibs__heap *heap, struct dibs__heap_node *node)
{
    DIBS__REQUIRE(!dibs__heap_has(node));
    node->rank = 1;
    node->left = node->right = NULL;
    heap->first = merge(heap->first, node);
}

void dibs__heap_remove(struct dibs__heap *heap, struct dibs__heap_node *node)
{
    DIBS__REQUIRE(dibs__heap_has(node));
    relink(heap, node, merge(node->left, node->right));
    for (struct dibs__heap_node *at = node->parent; at && set_rank(at);)
        at = at->parent;
    node->rank = 0;
}

void dibs__heap_replace(struct dibs__heap *heap, struct dibs__heap_node *node, struct dibs__heap_node *other)
{
    DIBS__REQUIRE(dibs__heap_has(node) && !dibs__heap_has(other));
    *other = *node;
    relink(heap, node, other);
    if (other->left)
        other->left->parent = other;
    if (other->right)
        other->right->parent = other;
    node->rank = 0;
}

struct dibs__heap_node *dibs__heap_other(const struct dibs__heap_node *node)
{
    const struct dibs__heap_node *at = node, *parent;

    if (at->left) /* a node without `left` has no `right` */
        return at->left;
    for (; (parent = at->parent); at = parent)
        if (parent->left == at && parent->right)
            return parent->right;
    return NULL;
}
