/* Leases by the time at which they are due. */
#include "core/due.h"
#include "support/test.h"

#define COUNT 500

static struct dibs__lease *leases[COUNT];

static int setup(void **state)
{
    for (size_t i = 0; i < COUNT; i++)
        assert_non_null(leases[i] = dibs__lease_new(1, "a", 1, 8));
    return 0;
}

static int teardown(void **state)
{
    for (size_t i = 0; i < COUNT; i++)
        dibs__lease_unref(leases[i]);
    return 0;
}

static unsigned next(unsigned *seed)
{
    *seed = *seed * 1103515245u + 12345u;
    return *seed >> 8;
}

/* The leases in the order in which they come out: returns how many. */
static size_t expect_order(struct dibs__due *due)
{
    int64_t last = INT64_MIN;
    size_t count = 0;

    for (struct dibs__lease *lease; (lease = dibs__due_first(due)); count++) {
        assert_true(dibs__due_has(lease));
        assert_true(dibs__due_at(lease) >= last);
        last = dibs__due_at(lease);
        dibs__due_remove(due, lease);
        assert_false(dibs__due_has(lease));
        assert_true(dibs__due_at(lease) == DIBS__NEVER);
    }
    assert_int_equal(due->count, 0);
    assert_null(due->last);
    return count;
}

static size_t groups_of(const struct dibs__due *due)
{
    size_t groups = 0;

    for (struct dibs__lease *leader = NULL; (leader = dibs__due_leader(due, leader));)
        groups++;
    return groups;
}

static void fill(struct dibs__due *due, unsigned *seed)
{
    for (size_t i = 0; i < COUNT; i++)
        dibs__due_set(due, leases[i], next(seed) % 1000, NULL);
}

TEST(the_earliest_comes_first)
{
    struct dibs__due due = {.count = 0};
    unsigned seed = 1;

    assert_null(dibs__due_first(&due));
    fill(&due, &seed);
    assert_int_equal(due.count, COUNT);
    assert_int_equal(expect_order(&due), COUNT);
}

/* To a earlier time and to a later one, the first and the last too. */
TEST(a_lease_may_become_due_at_another_time)
{
    struct dibs__due due = {.count = 0};
    unsigned seed = 2;

    fill(&due, &seed);
    for (size_t i = 0; i < 4 * COUNT; i++) {
        struct dibs__lease *lease = i % 5 ? leases[next(&seed) % COUNT] : dibs__due_first(&due);
        int64_t when = next(&seed) % 1000;
        dibs__due_set(&due, lease, when, NULL);
        assert_true(dibs__due_at(lease) == when);
    }
    assert_int_equal(expect_order(&due), COUNT);
}

TEST(any_lease_may_be_removed)
{
    struct dibs__due due = {.count = 0};
    unsigned seed = 3;

    fill(&due, &seed);
    for (size_t i = 0; i < COUNT; i += 3)
        dibs__due_remove(&due, leases[i]);
    assert_int_equal(expect_order(&due), COUNT - (COUNT + 2) / 3);
}

/* Leases that are added as due together are one group, and come out in the same order. */
TEST(leases_due_together_are_one_group)
{
    struct dibs__due due = {.count = 0};

    for (size_t i = 0; i < COUNT; i++)
        dibs__due_set(&due, leases[i], (int64_t)(i / 100), i > 0 ? leases[i - 1] : NULL);
    assert_int_equal(groups_of(&due), COUNT / 100);
    for (size_t i = 0; i < COUNT; i++) {
        assert_ptr_equal(dibs__due_first(&due), leases[i]);
        dibs__due_remove(&due, leases[i]);
    }
    assert_null(dibs__due_first(&due));
}

/* The first of a group leaves it, others leave and join, in any order. */
TEST(a_lease_may_go_from_group_to_group)
{
    struct dibs__due due = {.count = 0};
    unsigned seed = 4;

    fill(&due, &seed);
    for (size_t i = 0; i < 20 * COUNT; i++) {
        struct dibs__lease *lease = leases[next(&seed) % COUNT], *beside = leases[next(&seed) % COUNT];
        if (beside != lease)
            dibs__due_set(&due, lease, i % 3 ? dibs__due_at(beside) : next(&seed) % 1000, beside);
        assert_true(dibs__due_has(due.last));
    }
    assert_in_range(groups_of(&due), 1, COUNT - 1);
    assert_int_equal(expect_order(&due), COUNT);
    assert_int_equal(groups_of(&due), 0);
}

TEST(all_leases_come_out_in_order_and_may_go_back)
{
    struct dibs__due due = {.count = 0};
    unsigned seed = 5;
    size_t count = 0;

    assert_null(dibs__due_take_all(&due));
    fill(&due, &seed);
    int64_t last = INT64_MIN;
    for (struct dibs__lease *lease, *next_lease = dibs__due_take_all(&due); (lease = next_lease); count++) {
        next_lease = lease->renewal_state.next;
        assert_true(lease->renewal_state.node.due >= last);
        last = lease->renewal_state.node.due;
        dibs__due_set(&due, lease, last, NULL);
    }
    assert_int_equal(count, COUNT);
    assert_int_equal(expect_order(&due), COUNT);
}

TESTS(setup, teardown)
