/*
 * Memory that runs out while dibs_lock_names asks for several names: each allocation of the calling thread fails once.
 * The call has all names or none, leaves nothing behind, and the next one is good.
 *
 * Where a sanitizer has its own allocator, nothing fails.
 */
#include "support/failing_malloc.h"
#include "support/fixture.h"

enum { NAMES = 12, NTH_MOST = 20000 };

static const char *const names[NAMES] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"};

static void lock_and_unlock(fixture *f, int64_t wait_ms)
{
    assert_status(DIBS_OK, dibs_lock_names(f->rt, names, NAMES, wait_ms, NULL));
    for (int i = 0; i < NAMES; i++)
        assert_status(DIBS_OK, dibs_check(f->rt, names[i]));
    assert_status(DIBS_OK, dibs_unlock_all(f->rt));
}

static void has_all_or_none(fixture *f, dibs_status status, long nth)
{
    for (int i = 0; i < NAMES; i++) {
        dibs_status its = dibs_check(f->rt, names[i]);
        assert_that(its == (status == DIBS_OK ? DIBS_OK : DIBS_NOT_HELD), "allocation %ld, %s: %s is %s", nth,
                    dibs_status_name(status), names[i], dibs_status_name(its));
    }
    if (status == DIBS_OK)
        assert_status(DIBS_OK, dibs_unlock_all(f->rt));
    assert_true(comes_to_nothing(f->rt));
}

static void fail_each_allocation(fixture *f, int64_t wait_ms)
{
    bool failed = true;
    long nth;

    for (nth = 1; nth < NTH_MOST && failed; nth++) {
        fails_here = CAN_FAIL;
        atomic_store(&fail_at, nth);
        dibs_status status = dibs_lock_names(f->rt, names, NAMES, wait_ms, NULL);
        fails_here = false;
        failed = CAN_FAIL && atomic_exchange(&fail_at, 0) <= 0;
        assert_that(status == DIBS_OK || status == DIBS_NO_MEMORY || status == DIBS_UNAVAILABLE, "allocation %ld: %s",
                    nth, dibs_status_name(status));
        has_all_or_none(f, status, nth);
        lock_and_unlock(f, LIMIT_MS); /* the release of what was given up may be under way */
    }
    assert_false(failed);
    print_message("# %ld allocations\n", nth - 1);
    server_assert_no_locks(f->server);
}

TEST_ON(each_allocation_of_one_try_for_several_names_fails_once, fixture *f)
{
    f->config.command_timeout_ms = LIMIT_MS; /* no call fails because the machine stalls */
    fixture_open_connected(f, LONG_LEASE_MS);
    lock_and_unlock(f, LIMIT_MS);
    fail_each_allocation(f, 0);
}

TEST_ON(each_allocation_of_a_wait_for_several_names_fails_once, fixture *f)
{
    f->config.command_timeout_ms = LIMIT_MS; /* no call fails because the machine stalls */
    fixture_open_connected(f, LONG_LEASE_MS);
    lock_and_unlock(f, LIMIT_MS);
    fail_each_allocation(f, LIMIT_MS);
}

TESTS(fixture_setup, fixture_teardown)
