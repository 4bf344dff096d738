/* Leases by the time at which they are due. */
#include <stdlib.h>

#include "core/heap.h"
#include "support/test.h"

#define COUNT 500
#define MOST_ALONG_RIGHT 8 /* the logarithm of COUNT */

static struct dibs__lease *leases[COUNT];

static int setup(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT; i++)
        assert_non_null(leases[i] = dibs__lease_new(1, "a", 1, 8));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT; i++)
        dibs__lease_unref(leases[i]);
    return 0;
}

static unsigned next(unsigned *seed)
{
    *seed = *seed * 1103515245u + 12345u;
    return *seed >> 8;
}

/* What is in the heap, in the order in which it comes out: returns how much. */
static size_t expect_order(struct dibs__heap *heap)
{
    int64_t last = INT64_MIN;
    size_t count = 0;

    for (struct dibs__lease *lease; (lease = heap->first); count++) {
        assert_true(lease->renewal_state.due >= last);
        assert_true(dibs__heap_has(lease));
        last = lease->renewal_state.due;
        dibs__heap_remove(heap, lease);
        assert_false(dibs__heap_has(lease));
    }
    return count;
}

/* Each leader comes once. */
static size_t groups_of(const struct dibs__heap *heap)
{
    size_t groups = 0;

    for (const struct dibs__lease *leader = heap->first; leader; leader = dibs__heap_other(leader)) {
        assert_int_equal(leader->renewal_state.place, DIBS__HEAP_LEADER);
        groups++;
    }
    return groups;
}

/* How many leases are looked at where one is added behind all others. */
static size_t way_along_right(const struct dibs__heap *heap)
{
    size_t way = 0;

    for (const struct dibs__lease *leader = heap->first; leader; leader = leader->renewal_state.right)
        way++;
    return way;
}

static void fill(struct dibs__heap *heap, unsigned *seed)
{
    for (size_t i = 0; i < COUNT; i++) {
        leases[i]->renewal_state.due = next(seed) % 1000;
        dibs__heap_add(heap, leases[i], NULL);
    }
}

static void the_heap_gives_the_earliest_first(void **state)
{
    struct dibs__heap heap = {0};
    unsigned seed = 1;

    (void)state;
    assert_null(heap.first);
    fill(&heap, &seed);
    assert_int_equal(expect_order(&heap), COUNT);
}

/* To a earlier time and to a later one, the first and the last too. */
static void a_lease_may_become_due_at_another_time(void **state)
{
    struct dibs__heap heap = {0};
    unsigned seed = 2;

    (void)state;
    fill(&heap, &seed);
    for (size_t i = 0; i < 4 * COUNT; i++) {
        struct dibs__lease *lease = i % 5 ? leases[next(&seed) % COUNT] : heap.first;
        dibs__heap_move(&heap, lease, next(&seed) % 1000, NULL);
        assert_in_range(way_along_right(&heap), 1, MOST_ALONG_RIGHT);
    }
    assert_int_equal(expect_order(&heap), COUNT);
}

static void any_lease_may_be_removed(void **state)
{
    struct dibs__heap heap = {0};
    unsigned seed = 3;

    (void)state;
    fill(&heap, &seed);
    for (size_t i = 0; i < COUNT; i += 3)
        dibs__heap_remove(&heap, leases[i]);
    assert_int_equal(expect_order(&heap), COUNT - (COUNT + 2) / 3);
}

/* Leases that are added as due together take one place in the heap, and come out in the same order. */
static void leases_due_together_are_one_entry(void **state)
{
    struct dibs__heap heap = {0};

    (void)state;
    for (size_t i = 0; i < COUNT; i++) {
        leases[i]->renewal_state.due = (int64_t)(i / 100);
        dibs__heap_add(&heap, leases[i], i > 0 ? leases[i - 1] : NULL);
    }
    assert_int_equal(groups_of(&heap), COUNT / 100);
    assert_int_equal(heap.count, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        assert_ptr_equal(heap.first, leases[i]);
        dibs__heap_remove(&heap, leases[i]);
    }
    assert_null(heap.first);
}

/* The first of a group leaves it, others leave and join, in any order. */
static void a_lease_may_go_from_group_to_group(void **state)
{
    struct dibs__heap heap = {0};
    unsigned seed = 4;

    (void)state;
    fill(&heap, &seed);
    for (size_t i = 0; i < 20 * COUNT; i++) {
        struct dibs__lease *lease = leases[next(&seed) % COUNT], *beside = leases[next(&seed) % COUNT];
        if (beside != lease)
            dibs__heap_move(&heap, lease, i % 3 ? beside->renewal_state.due : next(&seed) % 1000, beside);
    }
    assert_in_range(groups_of(&heap), 1, COUNT - 1);
    assert_int_equal(expect_order(&heap), COUNT);
    assert_null(heap.last);
}

static void all_leases_come_out_in_order_and_may_go_back(void **state)
{
    struct dibs__heap heap = {0};
    unsigned seed = 5;
    size_t count = 0;

    (void)state;
    assert_null(dibs__heap_take_all(&heap));
    fill(&heap, &seed);
    int64_t last = INT64_MIN;
    for (struct dibs__lease *lease, *next_lease = dibs__heap_take_all(&heap); (lease = next_lease); count++) {
        next_lease = lease->renewal_state.next;
        assert_true(lease->renewal_state.due >= last);
        last = lease->renewal_state.due;
        dibs__heap_add(&heap, lease, NULL);
    }
    assert_int_equal(count, COUNT);
    assert_int_equal(expect_order(&heap), COUNT);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_heap_gives_the_earliest_first),  TEST(a_lease_may_become_due_at_another_time),
        TEST(any_lease_may_be_removed),           TEST(leases_due_together_are_one_entry),
        TEST(a_lease_may_go_from_group_to_group), TEST(all_leases_come_out_in_order_and_may_go_back),
    };

    return cmocka_run_group_tests_name("heap", tests, NULL, NULL);
}
