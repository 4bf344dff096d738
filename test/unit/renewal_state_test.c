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

static void a_lease_is_looked_at_when_another_is_due_a_moment_sooner(void **state)
{
    struct dibs__lease *lease = new_lease();
    int64_t due = GRANTED + 10 * SECOND, moment = LEASE_MS * DIBS__NS_PER_MS / 1024;

    (void)state;
    assert_int_equal(dibs__renewal_state_plan(lease, DIBS__NEVER), due);
    assert_int_equal(dibs__renewal_state_plan(lease, due), due);
    assert_int_equal(dibs__renewal_state_plan(lease, due - moment), due - moment);
    assert_int_equal(dibs__renewal_state_plan(lease, due - moment - 1), due);
    assert_int_equal(dibs__renewal_state_plan(lease, 0), due);
    assert_int_equal(dibs__renewal_state_plan(lease, due + 1), due); /* never later than it must */
    dibs__lease_unref(lease);
}

/* Otherwise a lease that is looked at a moment sooner would have to be looked at again. */
static void a_lease_that_is_looked_at_a_little_sooner_is_renewed_at_once(void **state)
{
    struct dibs__lease *lease = new_lease();
    int64_t due = GRANTED + 10 * SECOND, little = 10 * SECOND / 8;

    (void)state;
    assert_true(dibs__renewal_state_is_due(lease, due - little, 0));
    assert_false(dibs__renewal_state_is_due(lease, due - little - 1, 0));
    lease->renewal_state.failed = true; /* then it waits for its time */
    assert_false(dibs__renewal_state_is_due(lease, due - 1, 0));
    assert_true(dibs__renewal_state_is_due(lease, due, 0));
    dibs__lease_unref(lease);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lease_is_looked_at_when_another_is_due_a_moment_sooner),
        cmocka_unit_test(a_lease_that_is_looked_at_a_little_sooner_is_renewed_at_once),
    };

    return cmocka_run_group_tests_name("renewal state", tests, NULL, NULL);
}
