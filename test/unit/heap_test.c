/* What is due by a time. */
#include "base/heap.h"
#include "support/test.h"

#define COUNT 500
#define MOST_ALONG_RIGHT 8 /* the logarithm of COUNT */

static unsigned next(unsigned *seed)
{
    *seed = *seed * 1103515245u + 12345u;
    return *seed >> 8;
}

static void add(struct dibs__heap *heap, struct dibs__heap_node *node, int64_t due)
{
    node->due = due;
    dibs__heap_add(heap, node);
}

/* The nodes in the order in which they come out: returns how many. */
static size_t expect_order(struct dibs__heap *heap)
{
    int64_t last = INT64_MIN;
    size_t count = 0;

    for (struct dibs__heap_node *node; (node = heap->first); count++) {
        assert_true(dibs__heap_has(node) && node->due >= last);
        last = node->due;
        dibs__heap_remove(heap, node);
        assert_false(dibs__heap_has(node));
    }
    return count;
}

/* How many nodes are looked at where one is added behind all others. */
static size_t way_along_right(const struct dibs__heap *heap)
{
    size_t way = 0;

    for (const struct dibs__heap_node *node = heap->first; node; node = node->right)
        way++;
    return way;
}

TEST(the_earliest_comes_first)
{
    static struct dibs__heap_node nodes[COUNT];
    struct dibs__heap heap = {.first = NULL};
    unsigned seed = 1;

    for (size_t i = 0; i < COUNT; i++)
        add(&heap, &nodes[i], next(&seed) % 1000);
    assert_int_equal(expect_order(&heap), COUNT);
}

/* Whatever is removed and added again, in whatever order. */
TEST(few_nodes_are_looked_at)
{
    static struct dibs__heap_node nodes[COUNT];
    struct dibs__heap heap = {.first = NULL};
    unsigned seed = 2;

    for (size_t i = 0; i < COUNT; i++) {
        add(&heap, &nodes[i], (int64_t)i);
        assert_in_range(way_along_right(&heap), 1, MOST_ALONG_RIGHT);
    }
    for (size_t i = 0; i < 4 * COUNT; i++) {
        struct dibs__heap_node *node = i % 5 ? &nodes[next(&seed) % COUNT] : heap.first;
        dibs__heap_remove(&heap, node);
        assert_in_range(way_along_right(&heap), 1, MOST_ALONG_RIGHT);
        add(&heap, node, next(&seed) % 1000);
        assert_in_range(way_along_right(&heap), 1, MOST_ALONG_RIGHT);
    }
    assert_int_equal(expect_order(&heap), COUNT);
}

TEST(another_node_takes_the_place_of_any)
{
    static struct dibs__heap_node nodes[COUNT], others[COUNT];
    struct dibs__heap heap = {.first = NULL};
    unsigned seed = 3;

    for (size_t i = 0; i < COUNT; i++)
        add(&heap, &nodes[i], next(&seed) % 1000);
    for (size_t i = 0; i < COUNT; i++) {
        dibs__heap_replace(&heap, &nodes[i], &others[i]);
        assert_false(dibs__heap_has(&nodes[i]));
        assert_true(dibs__heap_has(&others[i]) && others[i].due == nodes[i].due);
    }
    assert_int_equal(expect_order(&heap), COUNT);
}

TEST(a_walk_meets_each_node_once)
{
    static struct dibs__heap_node nodes[COUNT];
    bool met[COUNT] = {false};
    struct dibs__heap heap = {.first = NULL};
    unsigned seed = 4;
    size_t count = 0;

    for (size_t i = 0; i < COUNT; i++)
        add(&heap, &nodes[i], next(&seed) % 1000);
    for (const struct dibs__heap_node *node = heap.first; node; node = dibs__heap_other(node), count++) {
        assert_false(met[node - nodes]);
        met[node - nodes] = true;
    }
    assert_int_equal(count, COUNT);
}

TESTS(NULL, NULL)
