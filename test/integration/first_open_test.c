/*
 * Memory that runs out in the first dibs_open of a process, which sets up what the process needs once: the next
 * dibs_open succeeds. Each time another allocation fails, in a child that has used nothing of the library yet.
 *
 * Where a sanitizer has its own allocator, nothing fails.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "support/child.h"
#include "support/failing_malloc.h"
#include "support/fixture.h"

#define NTH_MOST 5000

enum outcome { NOTHING_FAILED, RECOVERED, FIRST_IS_WRONG, SECOND_FAILS };

static enum outcome open_twice(const dibs_config *config, long nth)
{
    dibs_runtime *first, *second;

    atomic_store(&fails_elsewhere, true);
    atomic_store(&fail_at, nth);
    dibs_status status = dibs_open(&first, config);
    bool failed = nth > 0 && atomic_load(&fail_at) <= 0;
    atomic_store(&fails_elsewhere, false);
    /* The library gives up a connection whose answer it could not read. */
    if (status != DIBS_OK && status != DIBS_NO_MEMORY && status != DIBS_UNAVAILABLE)
        return FIRST_IS_WRONG;
    if (dibs_open(&second, config) != DIBS_OK || dibs_lock(second, "x") != DIBS_OK ||
        dibs_unlock(second, "x") != DIBS_OK)
        return SECOND_FAILS;
    dibs_close(second);
    dibs_close(first);
    return failed ? RECOVERED : NOTHING_FAILED;
}

static enum outcome in_a_child(const dibs_config *config, long nth)
{
    int status = 0;
    pid_t child = fork_child();

    assert_true(child >= 0);
    if (child == 0)
        _exit((int)open_twice(config, nth));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_that(WIFEXITED(status), "allocation %ld: status %x", nth, (unsigned)status);
    return (enum outcome)WEXITSTATUS(status);
}

TEST_ON(open_succeeds_after_a_failed_first_open, fixture *f)
{
    long nth = 1;

    assert_int_equal(in_a_child(&f->config, 0), NOTHING_FAILED);
    for (enum outcome outcome = RECOVERED; CAN_FAIL && outcome != NOTHING_FAILED && nth < NTH_MOST; nth++) {
        outcome = in_a_child(&f->config, nth);
        assert_that(outcome <= RECOVERED, "allocation %ld: the %s dibs_open is wrong", nth,
                    outcome == FIRST_IS_WRONG ? "first" : "second");
    }
    assert_true(!CAN_FAIL || (nth > 50 && nth < NTH_MOST));
}

TESTS(fixture_setup, fixture_teardown)
