/* Which leases are kept: what a process did with a name before, how much is left of the lease, and what a recall
 * changes. */
#include "unit/kept_cell_setup.h"

#define MOST 64 /* leases of a shard that are kept */

/* -------------------------------------------------------------------------- what is kept */

TEST_ON(the_lease_of_the_fourth_lock_in_a_row_is_kept, struct keeping *k)
{
    make_a_habit(k, "a");
    assert_true(use(k, "a"));
    assert_int_equal(dibs__kept_count(k->cells), 1);
    assert_false(use(k, "b"));
    drop(k, "a");
}

TEST_ON(a_lock_that_had_to_be_waited_for_ends_the_row, struct keeping *k)
{
    make_a_habit(k, "a");
    assert_false(use_as(k, "a", LEASE_MS, true)); /* though its token says that it may be kept */
    make_a_habit(k, "a");
    expect_kept(k, "a");
}

TEST_ON(an_extended_lease_is_not_kept, struct keeping *k)
{
    struct dibs__lease *lease = hold(k, "a");

    atomic_store(&lease->extended_ms, 1);
    assert_false(unlock(k, lease));
}

TEST_ON(no_lease_is_kept_while_the_store_recalls_none, struct keeping *k)
{
    struct dibs__lease *lease = hold(k, "a");

    atomic_store(&k->cells->recallable, 0);
    assert_false(unlock(k, lease));
    atomic_store(&k->cells->recallable, 1);
    lease = hold_again(k, "a");
    assert_true(unlock(k, lease));
    atomic_store(&k->cells->recallable, 0);
    find_unfit(k, lease, LEASE_MS);
}

/* Of the length that it has while it is kept. */
TEST_ON(a_lease_of_which_less_than_half_is_left_is_not_kept, struct keeping *k)
{
    static const struct {
        uint32_t lease_ms, half_ms;
    } cases[] = {{LEASE_MS, SHORT_MS / 2}, {120, 60}};

    make_a_habit(k, "a");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int short_of_it = 0; short_of_it < 2; short_of_it++) {
            take(k, "a", cases[i].lease_ms);
            struct dibs__lease *lease = grant(k, false);
            int64_t now = moved_clock_now(&k->clock);
            atomic_store(&lease->deadline, now + MS(cases[i].half_ms) - short_of_it);
            assert_int_equal(unlock(k, lease), !short_of_it);
            if (!short_of_it)
                drop(k, "a");
        }
}

TEST_ON(names_are_remembered_each_for_itself, struct keeping *k)
{
    assert_false(use(k, "a"));
    assert_false(use(k, "b"));
    assert_false(use(k, "a"));
    assert_false(use(k, "b"));
    assert_false(use(k, "a"));
    assert_false(use(k, "b"));
    assert_true(use(k, "a"));
    assert_true(use(k, "b"));
    assert_int_equal(dibs__kept_count(k->cells), 2);
    drop(k, "a");
    assert_int_equal(dibs__kept_count(k->cells), 1);
    drop(k, "b");
}

/* Where two names fall to the same place, the one that was recalled is the one to remember. */
TEST_ON(a_recalled_name_is_not_forgotten_for_another, struct keeping *k)
{
    struct dibs__lease *lease = keep(k, "a");
    unsigned number = 0;
    char other[16];
    find_name_beside(k, "a", true, &number, other);
    recall_kept(k, lease);
    for (unsigned i = 0; i < 2 * IN_A_ROW; i++)
        assert_false(use(k, other));
    make_a_habit(k, "a");
    assert_false(use(k, "a"));
    moved_clock_advance(&k->clock, MS(100));
    expect_kept(k, "a");
}

/* Nor are the pauses of two such names: the place remembers the later of their ends. */
TEST_ON(a_pause_counts_though_the_place_belongs_to_another_name, struct keeping *k)
{
    struct dibs__lease *first = hold(k, "a");
    unsigned number = 0;
    char other[16];
    find_name_beside(k, "a", true, &number, other);
    moved_clock_advance(&k->clock, 15 * MS(KEEP_MS));
    struct dibs__lease *second = keep(k, other);
    moved_clock_advance(&k->clock, 4 * MS(KEEP_MS));
    assert_false(unlock(k, first)); /* it was granted long ago, and has the place until 5 x KEEP_MS from now */
    dibs__lease_ref(second);
    moved_clock_advance(&k->clock, 5 * MS(KEEP_MS) - MS(10));
    assert_true(recall(k, second));
    dibs__lease_unref(second);
    moved_clock_advance(&k->clock, MS(90));
    for (unsigned i = 0; i < IN_A_ROW + 1; i++)
        assert_false(use(k, other));
    moved_clock_advance(&k->clock, MS(10));
    make_a_habit(k, other);
    expect_kept(k, other);
}

TEST_ON(sixty_four_leases_of_a_shard_are_kept, struct keeping *k)
{
    char names[MOST + 1][16], first[16];
    unsigned number = 0;
    find_name_beside(k, "a", false, &number, first);
    for (size_t i = 0; i <= MOST; i++) {
        find_name_beside(k, "a", false, &number, names[i]);
        make_a_habit(k, names[i]);
        assert_int_equal(use(k, names[i]), i < MOST);
    }
    take(k, names[0], LEASE_MS);
    struct dibs__lease *in_use = k->turn.lease;
    assert_false(look(k, in_use)); /* it is not looked at any more: another may be kept */
    make_a_habit(k, first);
    assert_true(use(k, first));
    assert_int_equal(dibs__kept_count(k->cells), MOST);
    assert_false(unlock(k, in_use));
}

/* -------------------------------------------------------------------------- what is not kept for a while */

TEST_ON(a_name_whose_lease_was_found_too_old_is_not_kept_for_a_while, struct keeping *k)
{
    struct dibs__lease *lease = keep(k, "a");

    moved_clock_advance(&k->clock, 19 * MS(KEEP_MS));
    find_unfit(k, lease, LEASE_MS);
    make_a_habit(k, "a");
    expect_kept_after(k, 5 * MS(KEEP_MS));
}

TEST_ON(the_longer_of_two_pauses_counts, struct keeping *k)
{
    k->cells->keep = MS(10);
    struct dibs__lease *lease = hold(k, "a");
    moved_clock_advance(&k->clock, 19 * MS(10));
    assert_false(recall(k, lease));
    assert_false(unlock(k, lease)); /* of 50 ms */
    make_a_habit(k, "a");
    expect_kept_after(k, MS(100));
}

TEST_ON(a_recalled_name_is_not_kept_for_a_while_that_doubles, struct keeping *k)
{
    static const int pauses_ms[] = {100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000};

    make_a_habit(k, "a");
    for (size_t i = 0; i < sizeof pauses_ms / sizeof pauses_ms[0]; i++) {
        struct dibs__lease *lease = hold_again(k, "a");
        dibs__lease_ref(lease);
        assert_true(unlock(k, lease));
        assert_true(recall(k, lease));
        dibs__lease_unref(lease);
        make_a_habit(k, "a");
        moved_clock_advance(&k->clock, MS(pauses_ms[i]) - 1);
        assert_false(use(k, "a"));
        moved_clock_advance(&k->clock, 1);
    }
    expect_kept(k, "a");
}

TEST_ON(a_recalled_lease_in_use_is_not_kept_afterwards, struct keeping *k)
{
    struct dibs__lease *lease = hold(k, "a");
    assert_false(recall(k, lease));
    assert_int_equal(atomic_load(&lease->keeping.use), DIBS__USE_WANTED);
    assert_true(atomic_load(&lease->keeping.tell));
    moved_clock_advance(&k->clock, MS(100)); /* the pause is over, but not the lease that was recalled */
    assert_false(unlock(k, lease));
    make_a_habit(k, "a");
    expect_kept(k, "a");
}

TEST_ON(a_recall_that_comes_twice_is_one, struct keeping *k)
{
    struct dibs__lease *lease = hold(k, "a");
    assert_false(recall(k, lease));
    moved_clock_advance(&k->clock, MS(99));
    assert_false(recall(k, lease));
    assert_false(unlock(k, lease));
    make_a_habit(k, "a");
    assert_false(use(k, "a"));
    moved_clock_advance(&k->clock, MS(1));
    expect_kept(k, "a");
}

TEST_ON(a_recall_ends_the_row, struct keeping *k)
{
    struct dibs__lease *lease = keep(k, "a");
    recall_kept(k, lease);
    moved_clock_advance(&k->clock, MS(100));
    make_a_habit(k, "a");
    expect_kept(k, "a");
}

TESTS(setup, teardown)
