/* When the renewals look at one lease, and whether they renew it then. */
#include "core/renewal_state.h"
#include "support/test.h"

#define SECOND (1000 * DIBS__NS_PER_MS)
#define GRANTED (100 * SECOND)
#define LEASE_MS 30000 /* to be renewed after 10 s */

static struct dibs__lease *new_lease(void)
{
    struct dibs__lease *lease = dibs__lease_new(1, "a", 1, DIBS__TOKEN_MAX);

    assert_non_null(lease);
    atomic_store(&lease->deadline, dibs__lease_deadline(GRANTED, LEASE_MS));
    dibs__renewal_state_begin(lease, LEASE_MS, GRANTED, &(struct dibs__lease_store_state){.words = {0}}, 0);
    lease->renewal_state.watch_at = DIBS__NEVER;
    return lease;
}

TEST(a_lease_is_looked_at_when_another_is_due_a_moment_sooner)
{
    struct dibs__lease *lease = new_lease();
    int64_t due = GRANTED + 10 * SECOND, moment = LEASE_MS * DIBS__NS_PER_MS / 1024;

    assert_int_equal(dibs__renewal_state_plan(lease, DIBS__NEVER), due);
    assert_int_equal(dibs__renewal_state_plan(lease, due), due);
    assert_int_equal(dibs__renewal_state_plan(lease, due - moment), due - moment);
    assert_int_equal(dibs__renewal_state_plan(lease, due - moment - 1), due);
    assert_int_equal(dibs__renewal_state_plan(lease, 0), due);
    assert_int_equal(dibs__renewal_state_plan(lease, due + 1), due); /* never later than it must */
    dibs__lease_unref(lease);
}

/* Otherwise a lease that is looked at a moment sooner would have to be looked at again. */
TEST(a_lease_that_is_looked_at_a_little_sooner_is_renewed_at_once)
{
    struct dibs__lease *lease = new_lease();
    int64_t due = GRANTED + 10 * SECOND, little = 10 * SECOND / 8;

    assert_true(dibs__renewal_state_is_due(lease, due - little));
    assert_false(dibs__renewal_state_is_due(lease, due - little - 1));
    lease->renewal_state.failed = true; /* then it waits for its time */
    assert_false(dibs__renewal_state_is_due(lease, due - 1));
    assert_true(dibs__renewal_state_is_due(lease, due));
    dibs__lease_unref(lease);
}

#define SHORT_MS 2000 /* the greatest length of a kept lease */

static struct dibs__lease *new_kept_lease(void)
{
    struct dibs__lease *lease = new_lease();

    lease->token.keeps = true;
    lease->renewal_state.extending = calloc(1, sizeof *lease->renewal_state.extending);
    assert_non_null(lease->renewal_state.extending);
    atomic_store(&lease->keeping.use, DIBS__USE_KEPT);
    return lease;
}

/* The store renews the lease. Returns what it was sent. */
static struct dibs__renewal renew(struct dibs__lease *lease, int64_t now)
{
    struct dibs__renewal item;

    assert_true(dibs__renewal_state_is_due(lease, now));
    dibs__renewal_state_send(lease, "token", &item, now);
    item.result = DIBS__RENEWED;
    return item;
}

static void land(struct dibs__lease *lease, const struct dibs__renewal *item, int64_t now)
{
    dibs__renewal_state_land(lease, item);
    dibs__renewal_state_take_result(lease, item, now, DIBS_OK, now);
}

/*
 * The thread that takes a kept lease says so, and only then tells the renewals. A request that is sent between the two
 * shortens the lease: then it must be made long again, at once, though nobody is told anything new.
 */
TEST(a_lease_that_is_taken_while_it_is_shortened_is_made_long_again)
{
    struct dibs__lease *lease = new_kept_lease();
    int64_t now = GRANTED + SECOND;

    dibs__renewal_state_use_changed(lease, SHORT_MS);
    atomic_store(&lease->keeping.use, DIBS__USE_HELD);
    struct dibs__renewal item = renew(lease, now);
    dibs__renewal_state_use_changed(lease, SHORT_MS);
    assert_int_equal(item.lease_ms, SHORT_MS);
    assert_int_equal(item.use, DIBS__USE_KEPT);
    land(lease, &item, now);
    item = renew(lease, now);
    assert_int_equal(item.lease_ms, LEASE_MS);
    assert_int_equal(item.use, DIBS__USE_HELD);
    land(lease, &item, now);
    assert_in_range(dibs__lease_remaining_ms(lease, now), LEASE_MS / 2, LEASE_MS);
    assert_false(dibs__renewal_state_is_due(lease, now));
    dibs__lease_unref(lease);
}

/* Otherwise the store would count a lease as kept that is as long as one in use: a dead keeper would be in the way. */
TEST(a_lease_is_told_to_be_kept_only_when_it_is_shortened)
{
    struct dibs__lease *lease = new_kept_lease();
    int64_t now = GRANTED + 10 * SECOND;

    struct dibs__renewal item = renew(lease, now); /* the renewals are not told yet that it is kept */
    assert_int_equal(item.use, DIBS__USE_UNTOLD);
    dibs__renewal_state_use_changed(lease, SHORT_MS);
    land(lease, &item, now);
    item = renew(lease, now);
    assert_int_equal(item.use, DIBS__USE_KEPT);
    assert_int_equal(item.lease_ms, SHORT_MS);
    assert_true(item.extension);
    land(lease, &item, now);
    assert_in_range(dibs__lease_remaining_ms(lease, now), SHORT_MS / 2, SHORT_MS);
    dibs__lease_unref(lease);
}

/* The store is asked for more fences only when the thread that takes the lease again and again wants them. */
TEST(the_fence_of_a_kept_lease_is_raised_when_more_steps_are_wanted)
{
    struct dibs__lease *lease = new_kept_lease();
    int64_t now = GRANTED + SECOND;
    uint64_t top = dibs__lease_top_fence(lease);
    unsigned steps = atomic_load(&lease->steps);

    dibs__renewal_state_use_changed(lease, SHORT_MS);
    struct dibs__renewal item = renew(lease, now);
    assert_int_equal(item.fence, top);
    item.raised = true;
    land(lease, &item, now);
    assert_int_equal(atomic_load(&lease->steps), steps);
    for (int raised = 0; raised < 2; raised++) { /* the first time the store can't raise it */
        atomic_store(&lease->keeping.raise, true);
        dibs__renewal_state_use_changed(lease, SHORT_MS);
        item = renew(lease, now);
        assert_int_equal(item.fence, top + DIBS__RAISE);
        item.raised = raised;
        land(lease, &item, now);
        assert_false(atomic_load(&lease->keeping.raise));
        assert_int_equal(atomic_load(&lease->steps), steps + (raised ? DIBS__RAISE * DIBS__FENCE_STEPS : 0));
    }
    dibs__lease_unref(lease);
}

/* A change was told, and then there was no memory for a request: it is sent later, and not again and again at once. */
static void expect_put_off(struct dibs__lease *lease)
{
    int64_t now = GRANTED + SECOND;

    dibs__renewal_state_hint(lease, now);
    assert_true(dibs__renewal_state_is_due(lease, now));
    dibs__renewal_state_put_off(lease, now);
    int64_t due = dibs__renewal_state_plan(lease, DIBS__NEVER);
    assert_in_range(due, now + 1, now + 2 * SECOND);
    assert_true(dibs__renewal_state_is_due(lease, due));
    dibs__lease_unref(lease);
}

TEST(a_look_without_memory_is_put_off)
{
    struct dibs__lease *lease = new_lease();

    lease->shared = true;
    expect_put_off(lease);
}

TEST(a_fixed_lease_is_looked_at_once_there_is_memory_again)
{
    struct dibs__lease *lease = new_lease();

    lease->fixed = true;
    lease->renewal_state.renew_at = DIBS__NEVER;
    expect_put_off(lease);
}

TESTS(NULL, NULL)
