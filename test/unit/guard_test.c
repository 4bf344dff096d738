/* DIBS_GUARD: it unlocks where its block ends, however the block is left, and only what it locked. */
#include "support/fixture.h"

static int opens(void **state)
{
    *state = open_url("mem:", &(dibs_config){.lease_ms = LONG_LEASE_MS});
    return 0;
}

static int closes(void **state)
{
    dibs_close(*state);
    return 0;
}

static uint32_t count_of(dibs_runtime *rt, const char *name)
{
    dibs_hold hold;

    dibs_hold_of(rt, name, &hold);
    return hold.count;
}

TEST_ON(a_guard_unlocks_at_the_end_of_its_block, dibs_runtime *rt)
{
    {
        DIBS_GUARD(rt, "a", first);
        assert_status(DIBS_OK, first);
        {
            DIBS_GUARD(rt, "a", again);
            assert_status(DIBS_OK, again);
            assert_int_equal(2, count_of(rt, "a"));
        }
        assert_int_equal(1, count_of(rt, "a"));
    }
    assert_status(DIBS_NOT_HELD, dibs_check(rt, "a"));
}

static int leaves_early(dibs_runtime *rt)
{
    DIBS_GUARD(rt, "a", outer);
    for (int i = 0; outer == DIBS_OK; i++) {
        DIBS_GUARD(rt, "b", inner);
        assert_status(DIBS_OK, inner);
        if (i == 0)
            continue;
        if (i == 1)
            break;
    }
    if (count_of(rt, "b") == 0) {
        DIBS_GUARD(rt, "c", last);
        assert_status(DIBS_OK, last);
        goto end;
    }
    return -1;
end:
    return (int)(count_of(rt, "a") + count_of(rt, "b") + count_of(rt, "c"));
}

TEST(a_guard_unlocks_when_its_block_is_left)
{
    assert_int_equal(1, leaves_early(*state)); /* the value is computed before the last guard ends */
    assert_int_equal(0, count_of(*state, "a") + count_of(*state, "b") + count_of(*state, "c"));
}

TEST_ON(a_guard_that_got_no_lock_unlocks_nothing, dibs_runtime *rt)
{
    assert_status(DIBS_OK, dibs_lock(rt, "a"));
    {
        DIBS_GUARD(NULL, "a", without_runtime);
        assert_status(DIBS_INVALID, without_runtime);
        DIBS_GUARD(rt, "", without_name);
        assert_status(DIBS_INVALID, without_name);
        DIBS_GUARD(rt, NULL, with_null);
        assert_status(DIBS_INVALID, with_null);
        assert_status(DIBS_NOT_HELD, DIBS_UNGUARD(with_null));
        dibs_shutdown(rt);
        DIBS_GUARD(rt, "b", closed);
        assert_status(DIBS_CLOSED, closed);
    }
    assert_int_equal(1, count_of(rt, "a"));
}

TEST_ON(a_guard_keeps_the_name_that_it_locked, dibs_runtime *rt)
{
    char name[DIBS_NAME_MAX + 1] = {0};

    memset(name, 'n', DIBS_NAME_MAX);
    {
        DIBS_GUARD(rt, name, locked);
        assert_status(DIBS_OK, locked);
        name[0] = 'm';
        assert_status(DIBS_OK, dibs_lock(rt, name));
    }
    assert_int_equal(1, count_of(rt, name));
    name[0] = 'n';
    assert_int_equal(0, count_of(rt, name));
}

TEST_ON(a_guard_may_be_ended_once, dibs_runtime *rt)
{
    assert_status(DIBS_OK, dibs_lock(rt, "a"));
    {
        DIBS_GUARD(rt, "a", locked);
        assert_status(DIBS_OK, locked);
        assert_status(DIBS_OK, DIBS_UNGUARD(locked));
        assert_int_equal(1, count_of(rt, "a"));
        assert_status(DIBS_NOT_HELD, DIBS_UNGUARD(locked));
    }
    assert_int_equal(1, count_of(rt, "a"));
}

TEST_ON(a_guard_that_is_ended_tells_of_a_loss, dibs_runtime *rt)
{
    const dibs_lock_options options = {.lease_ms = 20, .flags = DIBS_FIXED_LEASE};
    dibs_status status;

    do
        status = dibs_lock_with(rt, "a", 0, &options);
    while (status == DIBS_UNAVAILABLE); /* the thread was stopped for as long as the lease: it came too late */
    assert_status(DIBS_OK, status);
    DIBS_GUARD(rt, "a", again);
    assert_true(again == DIBS_OK || again == DIBS_LOST);
    while (dibs_check(rt, "a") == DIBS_OK)
        ;
    assert_status(again == DIBS_OK ? DIBS_LOST : DIBS_NOT_HELD, DIBS_UNGUARD(again));
}

static dibs_runtime *evaluated(dibs_runtime *rt, int *count)
{
    ++*count;
    return rt;
}

TEST(a_guard_evaluates_its_arguments_once)
{
    int runtimes = 0, names = 0;

    {
        DIBS_GUARD(evaluated(*state, &runtimes), "name" + names++, locked);
        assert_status(DIBS_OK, locked);
    }
    assert_int_equal(1, runtimes);
    assert_int_equal(1, names);
}

TESTS(opens, closes)
