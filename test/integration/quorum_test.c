/* A quorum of masters: grants, renewals and releases while all masters are well, or a minority is not. */
#include "support/fixture.h"
#include "support/masters.h"

/* On a busy machine a master may rest at the time of the ask: then the next renewal tops the lock up there. */
TEST_ON_THREE_AND_FIVE(a_lock_is_granted_by_all_masters, masters *m)
{
    uint64_t last = 0;

    masters_open_connected(m, SAFE_LEASE_MS);
    for (int i = 0; i < 20; i++) {
        assert_status(DIBS_OK, dibs_lock(m->rt, "a"));
        dibs_hold hold = hold_of(m->rt, "a");
        assert_true(hold.fence > last);
        last = hold.fence;
        masters_await_keys(m, "a", m->count);
        assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
        masters_await_keys(m, "a", 0);
    }
}

TEST_ON_THREE_AND_FIVE(another_process_finds_a_lock_of_a_quorum_taken, masters *m)
{
    masters_open(m, LONG_LEASE_MS);
    dibs_runtime *other = test_runtime(masters_open_another(m, LONG_LEASE_MS));
    assert_status(DIBS_OK, dibs_lock(m->rt, "a"));
    assert_status(DIBS_BUSY, dibs_trylock(other, "a"));
    assert_status(DIBS_TIMEOUT, dibs_timedlock(other, "a", 30));
    assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
    assert_status(DIBS_OK, dibs_timedlock(other, "a", LIMIT_MS));
    assert_status(DIBS_BUSY, dibs_trylock(m->rt, "a"));
    assert_status(DIBS_OK, dibs_unlock(other, "a"));
}

TESTS(NULL, NULL)
