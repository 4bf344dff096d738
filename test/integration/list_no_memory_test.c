/*
 * Memory that runs out in dibs_list and dibs_examine: each allocation of the calling thread fails once. Every call
 * comes back, and the next is a good one.
 *
 * Where a sanitizer has its own allocator, nothing fails.
 */
#include "support/failing_malloc.h"
#include "support/fixture.h"
#include "support/masters.h"

#define NTH_MOST 20000

static bool count_lock(const char *name, const dibs_owner *owner, void *arg)
{
    (*(size_t *)arg)++;
    return true;
}

static void count_finding(const dibs_finding *finding, void *arg)
{
    (*(size_t *)arg)++;
}

static dibs_status list(dibs_runtime *rt, size_t *count)
{
    return dibs_list(rt, "a*", count_lock, count);
}

static dibs_status examine(dibs_runtime *rt, size_t *count)
{
    return dibs_examine(rt, count_finding, count);
}

typedef dibs_status call_of(dibs_runtime *rt, size_t *count);

/* A connection whose answer could not be read may be given up. */
static void fail_each_allocation(dibs_runtime *rt, call_of *call)
{
    size_t expected = 0;
    bool failed = true;

    assert_status(DIBS_OK, call(rt, &expected));
    for (long nth = 1; nth < NTH_MOST && failed; nth++) {
        size_t count = 0;
        fails_here = CAN_FAIL;
        atomic_store(&fail_at, nth);
        dibs_status status = call(rt, &count);
        fails_here = false;
        failed = CAN_FAIL && atomic_exchange(&fail_at, 0) <= 0;
        assert_that(status == DIBS_OK || status == DIBS_NO_MEMORY || status == DIBS_UNAVAILABLE, "allocation %ld: %s",
                    nth, dibs_status_name(status));
        count = 0;
        assert_status(DIBS_OK, call(rt, &count));
        assert_int_equal(count, expected);
    }
    assert_false(failed);
}

TEST_ON(each_allocation_of_a_list_on_one_server_fails_once, fixture *f)
{
    f->config.command_timeout_ms = LIMIT_MS; /* no call fails because the machine stalls */
    fixture_open_connected(f, LONG_LEASE_MS);
    for (int i = 0; i < 5; i++)
        assert_status(DIBS_OK, dibs_lock(f->rt, formatted("a%d", i)));
    fail_each_allocation(f->rt, list);
    fail_each_allocation(f->rt, examine);
    assert_status(DIBS_OK, dibs_unlock_all(f->rt));
}

TEST_WITH(each_allocation_of_a_list_in_memory_fails_once, NULL, NULL, void *none)
{
    dibs_runtime *rt = test_runtime(open_url("mem:", NULL));

    assert_status(DIBS_OK, dibs_lock(rt, "a"));
    fail_each_allocation(rt, list);
    fail_each_allocation(rt, examine);
    assert_status(DIBS_OK, dibs_unlock(rt, "a"));
}

TEST_WITH(each_allocation_of_a_list_on_a_quorum_fails_once, masters_setup_3, masters_teardown, masters *m)
{
    masters_open_connected(m, LONG_LEASE_MS);
    masters_lock_at_all(m, "a");
    fail_each_allocation(m->rt, list);
    assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
}

TESTS(fixture_setup, fixture_teardown)
