/*
 * The memory store's queue: the order of grants, and what releases, retractions and the end of an attempt leave behind.
 */
#include "unit/memory_setup.h"

/* ----------------------------------------------------------------- the queue */

TEST(waiters_are_served_in_the_order_of_arrival)
{
    struct user one, other;
    struct dibs__attempt asks[] = {waiting("1", 1000), waiting("2", 1000), waiting("3", 1000), waiting("4", 2000)};

    open_user(&one, *state, "mem:x");
    open_user(&other, *state, "mem:x");
    assert_status(DIBS_OK, ask(&one, &asks[0]));
    assert_status(DIBS_BUSY, ask(&other, &asks[1]));
    assert_status(DIBS_BUSY, ask(&one, &asks[2]));
    assert_status(DIBS_BUSY, ask(&other, &asks[3]));
    assert_owner(&one, "1", 3);
    assert_status(DIBS_OK, release(&one, "a", "1"));
    assert_told(&other, 1, "2", 1);
    uint64_t fence = other.told[0].fence;
    assert_int_equal(query(&one, "a").fence, fence);
    assert_status(DIBS_OK, release(&other, "a", "2"));
    assert_told(&one, 1, "3", 1);
    assert_true(one.told[0].fence > fence);
    assert_status(DIBS_OK, release(&one, "a", "3"));
    assert_told(&other, 2, "4", 1);
    assert_true(other.told[1].fence > one.told[0].fence);
    assert_int_equal(query(&one, "a").remaining_ms, 2000);
    assert_status(DIBS_OK, release(&other, "a", "4"));
    assert_owner(&one, "", 0);
    close_user(&one);
    close_user(&other);
}

TEST(a_waiter_that_asks_again_keeps_its_place_and_is_granted_by_the_newest_ask)
{
    struct dibs__attempt first = waiting("first", 1000), second = waiting("second", 1000);

    assert_status(DIBS_OK, acquire(&user, "a", "owner", 10000, NULL));
    assert_status(DIBS_BUSY, ask(&user, &first));
    assert_status(DIBS_BUSY, ask(&user, &second));
    moved_clock_advance(user.clock, MS(5));
    first.lease_ms = 3000;
    assert_status(DIBS_BUSY, ask(&user, &first));
    assert_int_equal(first.number, 2);
    assert_int_equal(first.proof, moved_clock_now(user.clock));
    first.wait = false; /* its last try: it still stays in the queue until it concludes */
    assert_status(DIBS_BUSY, ask(&user, &first));
    assert_owner(&user, "owner", 2);
    assert_status(DIBS_OK, release(&user, "a", "owner"));
    assert_told(&user, 1, "first", 3);
    assert_int_equal(query(&user, "a").remaining_ms, 3000);
}

TEST(nobody_passes_the_queue_when_a_lease_ends)
{
    struct dibs__attempt first = waiting("first", 1000), late = waiting("late", 1000);

    assert_status(DIBS_OK, acquire(&user, "a", "owner", 100, NULL));
    assert_status(DIBS_BUSY, ask(&user, &first));
    moved_clock_advance(user.clock, MS(100));
    assert_owner(&user, "", 1); /* a query changes nothing */
    assert_status(DIBS_BUSY, acquire(&user, "a", "once", 1000, NULL));
    assert_told(&user, 1, "first", 1);
    assert_owner(&user, "first", 0);
    moved_clock_advance(user.clock, MS(999));
    assert_status(DIBS_BUSY, ask(&user, &late));
    moved_clock_advance(user.clock, MS(1));
    assert_status(DIBS_OK, ask(&user, &late)); /* the head is answered, so it is not told as well */
    assert_int_equal(user.told_count, 1);
    assert_owner(&user, "late", 0);
}

TEST(one_try_of_the_head_gets_the_lock)
{
    struct dibs__attempt head = waiting("head", 1000), next = waiting("next", 1000);

    assert_status(DIBS_OK, acquire(&user, "a", "owner", 100, NULL));
    assert_status(DIBS_BUSY, ask(&user, &head));
    assert_status(DIBS_BUSY, ask(&user, &next));
    moved_clock_advance(user.clock, MS(100));
    head.wait = false;
    head.lease_ms = 500;
    assert_status(DIBS_OK, ask(&user, &head));
    assert_int_equal(query(&user, "a").remaining_ms, 500);
    assert_owner(&user, "head", 1);
    assert_int_equal(user.told_count, 0);
}

TEST(the_owner_that_asks_is_granted_again)
{
    static const struct {
        uint32_t lease_ms;
        int64_t remaining_ms;
    } rows[] = {{1000, 1000}, {100, 900}, {2000, 2000}};
    struct dibs__answer first, answer;
    struct dibs__attempt other = waiting("other", 1000);

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        set_up_again(state);
        assert_status(DIBS_OK, acquire(&user, "a", "owner", 1000, &first));
        assert_status(DIBS_BUSY, ask(&user, &other));
        moved_clock_advance(user.clock, MS(100));
        assert_status(DIBS_OK, acquire(&user, "a", "owner", rows[i].lease_ms, &answer));
        assert_int_equal(answer.fence, first.fence);
        assert_int_equal(query(&user, "a").remaining_ms, rows[i].remaining_ms);
        assert_owner(&user, "owner", 1);
    }
}

TEST(a_waiter_granted_by_a_push_owns_the_lock_when_it_asks)
{
    struct dibs__answer answer;
    struct dibs__error error;
    struct dibs__attempt waiter = waiting("waiter", 1000);

    assert_status(DIBS_OK, acquire(&user, "a", "owner", 1000, &answer));
    assert_status(DIBS_BUSY, ask(&user, &waiter));
    assert_status(DIBS_OK, release(&user, "a", "owner"));
    moved_clock_advance(user.clock, MS(10));
    assert_status(DIBS_OK, store_ask(user.store, &waiter, DIBS__NEVER, &answer, &error));
    assert_int_equal(answer.fence, user.told[0].fence);
    assert_int_equal(query(&user, "a").remaining_ms, 1000);
    assert_owner(&user, "waiter", 0);
}

TEST(a_waiter_is_told_when_to_ask_again)
{
    static const struct {
        uint32_t owners_ms, elapsed_ms, askers_ms;
        int64_t again_ms;
    } rows[] = {
        {1000, 0, 30000, 1000}, {1000, 400, 30000, 600}, {30000, 0, 1000, 333}, {1000, 999, 30000, 1},
        {1000, 0, 3000, 1000},  {1000, 0, 2, 1},         {1000, 0, 0, 1},
    };
    struct dibs__answer answer;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        set_up_again(state);
        assert_status(DIBS_OK, acquire(&user, "a", "owner", rows[i].owners_ms, &answer));
        moved_clock_advance(user.clock, MS(rows[i].elapsed_ms));
        assert_status(DIBS_BUSY, acquire(&user, "a", "asker", rows[i].askers_ms, &answer));
        assert_int_equal(answer.again_ms, rows[i].again_ms);
        assert_int_equal(answer.fence, 0);
    }
}

/* ------------------------------------------- releases, retractions, the rest */

TEST(an_ask_with_a_release_comes_behind_the_queue)
{
    struct dibs__attempt one = waiting("1", 1000), two = waiting("2", 1000), three = waiting("3", 1000);

    assert_status(DIBS_OK, ask(&user, &one));
    assert_status(DIBS_OK, release_with(&user, "a", "1", &two, DIBS_OK)); /* nobody waited */
    assert_int_equal(two.number, 1);
    assert_int_equal(two.proof, moved_clock_now(user.clock));
    assert_true(two.in_store);
    assert_owner(&user, "2", 0);
    assert_status(DIBS_BUSY, ask(&user, &three));
    one = waiting("1 again", 1000);
    assert_status(DIBS_OK, release_with(&user, "a", "2", &one, DIBS_BUSY));
    assert_told(&user, 1, "3", 1);
    assert_true(one.in_store);
    assert_owner(&user, "3", 1);
    two = waiting("2 again", 1000);
    two.wait = false;
    assert_status(DIBS_OK, release_with(&user, "a", "3", &two, DIBS_BUSY)); /* one try */
    assert_told(&user, 2, "1 again", 1);
    assert_false(two.in_store);
    assert_owner(&user, "1 again", 0);
}

TEST(an_ask_with_a_release_keeps_an_earlier_place)
{
    struct dibs__attempt one = waiting("1", 1000), two = waiting("2", 1000), three = waiting("3", 1000);

    assert_status(DIBS_OK, ask(&user, &one));
    assert_status(DIBS_BUSY, ask(&user, &two));
    assert_status(DIBS_BUSY, ask(&user, &three));
    assert_status(DIBS_OK, release_with(&user, "a", "1", &two, DIBS_OK));
    assert_int_equal(two.number, 2);
    assert_int_equal(user.told_count, 0); /* the waiter was answered, and not told */
    assert_owner(&user, "2", 1);
}

TEST(releasing_what_is_not_held_changes_nothing)
{
    struct dibs__attempt first = waiting("first", 1000), second = waiting("second", 1000),
                         third = waiting("third", 1000);

    assert_status(DIBS_OK, acquire(&user, "a", "owner", 100, NULL));
    assert_status(DIBS_BUSY, ask(&user, &first));
    assert_status(DIBS_BUSY, ask(&user, &second));
    assert_status(DIBS_NOT_HELD, release(&user, "a", "stranger"));
    assert_owner(&user, "owner", 2);
    moved_clock_advance(user.clock, MS(100));
    assert_status(DIBS_NOT_HELD, release(&user, "a", "owner")); /* too late; the queue is served nevertheless */
    assert_told(&user, 1, "first", 1);
    assert_status(DIBS_NOT_HELD, release_with(&user, "a", "second", &third, DIBS_BUSY)); /* "second" waits no longer */
    assert_owner(&user, "first", 1);
    assert_status(DIBS_NOT_HELD, release_with(&user, "b", "b", NULL, DIBS_OK));
}

TEST(waiting_and_granted_attempts_may_be_retracted)
{
    struct dibs__attempt asks[] = {waiting("1", 1000), waiting("2", 1000), waiting("3", 1000), waiting("4", 1000)};

    assert_status(DIBS_OK, acquire(&user, "a", "owner", 1000, NULL));
    for (size_t i = 0; i < 4; i++)
        assert_status(DIBS_BUSY, ask(&user, &asks[i]));
    retract(&user, "1"); /* the head */
    retract(&user, "3"); /* from the middle */
    retract(&user, "5");
    assert_owner(&user, "owner", 2);
    assert_int_equal(user.told_count, 0);
    assert_status(DIBS_OK, release(&user, "a", "owner"));
    assert_told(&user, 1, "2", 1);
    retract(&user, "2"); /* granted */
    assert_told(&user, 2, "4", 1);
    retract(&user, "4"); /* the last */
    assert_owner(&user, "", 0);
    assert_int_equal(user.told_count, 2);
}

TEST(a_concluded_attempt_leaves_only_its_hold)
{
    struct dibs__attempt owner = waiting("owner", 1000), waiter = waiting("waiter", 1000), last = waiting("last", 1000);

    assert_status(DIBS_OK, ask(&user, &owner));
    user.store->ops->conclude(user.store, &owner, true);
    assert_false(owner.in_store);
    assert_status(DIBS_BUSY, ask(&user, &waiter));
    assert_status(DIBS_BUSY, ask(&user, &last));
    assert_true(waiter.in_store);
    user.store->ops->conclude(user.store, &waiter, false);
    assert_false(waiter.in_store);
    assert_owner(&user, "owner", 1);
    uint_fast64_t commands = atomic_load(&user.counters.commands);
    user.store->ops->conclude(user.store, &waiter, false); /* the store knows nothing of it */
    assert_int_equal(atomic_load(&user.counters.commands), commands);
    assert_status(DIBS_OK, release(&user, "a", "owner"));
    user.store->ops->conclude(user.store, &last, false); /* granted, and nobody took it */
    assert_owner(&user, "", 0);
}

TEST(a_grant_that_nobody_waits_for_goes_to_the_next)
{
    struct user one, other;
    struct dibs__attempt asks[] = {waiting("1", 1000), waiting("2", 1000), waiting("3", 1000), waiting("4", 1000)};

    open_user(&one, *state, "mem:x");
    open_user(&other, *state, "mem:x");
    assert_status(DIBS_OK, ask(&one, &asks[0]));
    assert_status(DIBS_BUSY, ask(&one, &asks[1]));
    assert_status(DIBS_BUSY, ask(&other, &asks[2]));
    assert_status(DIBS_BUSY, ask(&other, &asks[3]));
    one.refusals = other.refusals = 1;
    assert_status(DIBS_OK, release(&one, "a", "1"));
    assert_told(&one, 1, "2", 1);
    assert_told(&other, 2, "4", 1);
    assert_owner(&one, "4", 0);
    assert_true(other.told[1].fence > other.told[0].fence);
    other.refusals = 1;
    assert_status(DIBS_BUSY, ask(&other, &asks[2]));
    assert_status(DIBS_OK, release(&other, "a", "4"));
    assert_owner(&one, "", 0); /* nobody was left */
    close_user(&one);
    close_user(&other);
}

TEST(force_unlock_serves_the_queue)
{
    struct dibs__answer answer;

    struct dibs__attempt first = waiting("first", 100), second = waiting("second", 1000),
                         third = waiting("third", 1000);

    assert_status(DIBS_OK, acquire(&user, "a", "owner", 1000, &answer));
    assert_status(DIBS_BUSY, ask(&user, &first));
    assert_status(DIBS_BUSY, ask(&user, &second));
    assert_status(DIBS_BUSY, ask(&user, &third));
    assert_status(DIBS_NOT_HELD, store_force(user.store, "a", "first", DIBS__NEVER));
    assert_owner(&user, "owner", 3);
    assert_status(DIBS_OK, store_force(user.store, "a", NULL, DIBS__NEVER));
    assert_told(&user, 1, "first", 1);
    assert_true(user.told[0].fence > answer.fence);
    moved_clock_advance(user.clock, MS(100));
    assert_status(DIBS_OK, store_force(user.store, "a", "owner", DIBS__NEVER));
    assert_told(&user, 2, "second", 1); /* it was free */
    assert_status(DIBS_OK, store_force(user.store, "a", "second", DIBS__NEVER));
    assert_told(&user, 3, "third", 1);
}

TESTS(setup, teardown)
