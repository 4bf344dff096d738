/* Kept leases in their cells, without a store: who may take them again, and when they are given back. */
#include "unit/kept_cell_setup.h"

#define STEPS_BEFORE_RAISE 64

/* -------------------------------------------------------------------------- taken again */

TEST_ON(a_kept_lease_is_taken_again_with_the_next_fence, struct keeping *k)
{
    struct dibs__lease *lease = keep(k, "a");
    uint64_t fence = dibs__lease_fence(lease);

    for (unsigned i = 1; i <= 10; i++) {
        moved_clock_advance(&k->clock, MS(1));
        take(k, "a", LEASE_MS);
        assert_true(dibs__waiter_is_handed(&k->turn));
        assert_ptr_equal(k->turn.lease, lease);
        assert_int_equal(k->turn.retaken_at, moved_clock_now(&k->clock));
        assert_int_equal(dibs__lease_fence(lease), fence + i);
        assert_true(unlock(k, lease));
    }
    drop(k, "a");
}

TEST_ON(a_kept_lease_that_does_not_fit_is_given_back, struct keeping *k)
{
    struct dibs__lease *lease = keep(k, "a");

    find_unfit(k, lease, LEASE_MS + 1);
}

/* The store told of the lock before all that were kept were given back: it may not tell any more. */
TEST_ON(what_was_given_back_meanwhile_is_not_kept, struct keeping *k)
{
    struct dibs__lease *lease = keep(k, "a");

    take(k, "a", LEASE_MS);
    assert_ptr_equal(k->turn.lease, lease);
    unsigned told = atomic_fetch_add(&k->cells->recallable, 2);
    assert_false(unlock_told(k, lease, told));
    expect_kept(k, "a");
}

TEST_ON(a_kept_lease_of_which_less_than_half_is_left_is_given_back, struct keeping *k)
{
    struct dibs__lease *lease = keep(k, "a");

    atomic_store(&lease->deadline, moved_clock_now(&k->clock) + MS(SHORT_MS) / 2);
    take(k, "a", LEASE_MS);
    assert_ptr_equal(k->turn.lease, lease);
    assert_true(unlock(k, lease));
    moved_clock_advance(&k->clock, 1);
    find_unfit(k, lease, LEASE_MS);
}

/* So that a client which only looks now and then finds the lock free. */

TEST_ON(a_lease_is_not_kept_beyond_twenty_times_keep, struct keeping *k)
{
    struct dibs__lease *lease = keep(k, "a");

    moved_clock_advance(&k->clock, 19 * MS(KEEP_MS) - 1);
    take(k, "a", LEASE_MS);
    assert_ptr_equal(k->turn.lease, lease);
    moved_clock_advance(&k->clock, 1);
    assert_false(unlock(k, lease));
    for (unsigned i = 0; i < 2 * IN_A_ROW; i++)
        assert_false(use(k, "a"));
    expect_kept_after(k, 5 * MS(KEEP_MS));
}

TEST_ON(the_next_user_says_so_where_the_store_was_told_that_nobody_uses_the_lease, struct keeping *k)
{
    struct dibs__lease *lease = keep(k, "a");
    assert_false(look(k, lease));
    assert_int_equal(atomic_load(&lease->keeping.use), DIBS__USE_KEPT);
    take(k, "a", LEASE_MS);
    assert_true(atomic_exchange(&lease->keeping.news, false));
    assert_int_equal(atomic_load(&lease->keeping.use), DIBS__USE_HELD);
    assert_true(unlock(k, lease));
    take(k, "a", LEASE_MS);
    assert_false(atomic_load(&lease->keeping.news));
    assert_true(unlock(k, lease));
    drop(k, "a");
}

TEST_ON(more_fences_are_asked_for_before_they_are_used_up, struct keeping *k)
{
    struct dibs__lease *lease = keep(k, "a");

    for (unsigned step = 1; step < 2 * STEPS_BEFORE_RAISE; step++) {
        take(k, "a", LEASE_MS);
        assert_true(unlock(k, lease));
        assert_int_equal(atomic_load(&lease->keeping.raise), step >= STEPS_BEFORE_RAISE);
        assert_int_equal(k->tells, step == STEPS_BEFORE_RAISE);
    }
    atomic_store(&lease->keeping.raise, false);
    atomic_store(&lease->steps, UINT32_MAX - 1);
    atomic_store(&lease->step, UINT32_MAX - 3);
    take(k, "a", LEASE_MS);
    assert_true(unlock(k, lease));
    assert_false(atomic_load(&lease->keeping.raise)); /* there are no more */
    atomic_store(&lease->step, UINT32_MAX - 1);
    find_unfit(k, lease, LEASE_MS);
}

/* -------------------------------------------------------------------------- given back */

TEST_ON(an_unused_lease_is_told_to_be_kept_and_then_given_back, struct keeping *k)
{
    struct dibs__lease *lease = keep(k, "a");
    assert_true(k->tells);
    assert_int_equal(atomic_load(&lease->keeping.look_at), lease->granted_at + MS(5));
    assert_false(look(k, lease));
    assert_int_equal(atomic_load(&lease->keeping.use), DIBS__USE_KEPT);
    assert_int_equal(atomic_load(&lease->keeping.look_at), lease->granted_at + MS(KEEP_MS));
    dibs__lease_ref(lease);
    assert_true(look(k, lease));
    assert_int_equal(dibs__kept_count(k->cells), 0);
    assert_true(atomic_load(&lease->loss_told));
    dibs__lease_unref(lease);
}

TEST_ON(a_lease_that_is_kept_for_less_than_five_ms_is_looked_at_then, struct keeping *k)
{
    k->cells->keep = MS(3);
    struct dibs__lease *lease = keep(k, "a");
    assert_int_equal(atomic_load(&lease->keeping.look_at), lease->granted_at + MS(3));
    dibs__lease_ref(lease);
    assert_true(look(k, lease));
    dibs__lease_unref(lease);
}

/* Whoever asks for it may have recalled it unheard. */

TEST_ON(the_store_is_asked_now_and_then_whether_others_want_a_lease_that_is_used_again_and_again, struct keeping *k)
{
    struct dibs__lease *lease = keep(k, "a");
    unsigned asked = 0;

    for (int64_t end = lease->granted_at + MS(10) * SHORT_MS / 4; moved_clock_now(&k->clock) < end;) {
        bool looked = moved_clock_now(&k->clock) >= atomic_load(&lease->keeping.look_at);
        if (looked)
            assert_false(look(k, lease));
        asked += atomic_exchange(&lease->keeping.tell, false);
        take(k, "a", LEASE_MS);
        assert_ptr_equal(k->turn.lease, lease);
        assert_true(unlock(k, lease));
        moved_clock_advance(&k->clock, MS(1));
    }
    assert_in_range(asked, 4, 5); /* in 1,000 ms, each 200 ms */
    atomic_store(&lease->keeping.use, DIBS__USE_WANTED);
    moved_clock_advance(&k->clock, MS(SHORT_MS) / 2);
    take(k, "a", LEASE_MS);
    dibs__kept_look(k->cells, lease);
    assert_false(atomic_load(&lease->keeping.tell)); /* the store has said so already */
    unlock(k, lease);
    drop(k, "a");
}

TEST_ON(a_lost_lease_is_not_kept_any_more, struct keeping *k)
{
    struct dibs__lease *lease = keep(k, "a");

    dibs__lease_ref(lease);
    dibs__lease_lose(lease);
    dibs__handover_end(k->cells, lease, NULL);
    assert_int_equal(dibs__kept_count(k->cells), 0);
    dibs__lease_unref(lease);
}

TESTS(setup, teardown)
