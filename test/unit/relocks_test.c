/* Which fences a process may use again for a name that it gave up a moment ago. */
#include "store/redis/relocks.h"

#include "base/clock.h"
#include "support/test.h"

#define FENCE 1700000000000000
#define SERVER 7
#define GRANTED 1000
#define MOMENT (20 * DIBS__NS_PER_MS) /* so long a fence is used again */

static struct dibs__relocks *noted(const char *name, uint32_t step)
{
    struct dibs__relocks *relocks = NULL;

    dibs__relocks_note(&relocks, name, SERVER, (struct dibs__relock){FENCE, step, false}, GRANTED);
    assert_non_null(relocks);
    return relocks;
}

static void expect_step(struct dibs__relocks *relocks, const char *name, uint64_t server, int64_t now, uint32_t step)
{
    struct dibs__relock relock = dibs__relocks_take(relocks, name, server, false, now);

    assert_int_equal(relock.fence, step ? FENCE : 0);
    assert_int_equal(relock.step, step);
}

TEST(a_noted_fence_is_used_once)
{
    struct dibs__relocks *relocks = noted("a", 1);

    expect_step(NULL, "a", SERVER, GRANTED, 0);
    expect_step(relocks, "b", SERVER, GRANTED, 0);
    expect_step(relocks, "a", SERVER, GRANTED, 1);
    expect_step(relocks, "a", SERVER, GRANTED, 0);
    dibs__relocks_free(relocks);
}

TEST(a_noted_fence_is_not_used_at_another_server)
{
    struct dibs__relocks *relocks = noted("a", 1);

    expect_step(relocks, "a", SERVER + 1, GRANTED, 0);
    expect_step(relocks, "a", SERVER, GRANTED, 1);
    dibs__relocks_note(&relocks, "a", SERVER + 1, (struct dibs__relock){FENCE, 2, false}, GRANTED);
    expect_step(relocks, "a", SERVER + 1, GRANTED, 0);
    dibs__relocks_free(relocks);
}

/* Else a lock that was held alone would have the fence of a sharer. */
TEST(a_noted_fence_is_used_for_its_kind)
{
    struct dibs__relocks *relocks = NULL;

    dibs__relocks_note(&relocks, "a", SERVER, (struct dibs__relock){FENCE, 1, true}, GRANTED);
    expect_step(relocks, "a", SERVER, GRANTED, 0);
    assert_int_equal(dibs__relocks_take(relocks, "a", SERVER, true, GRANTED).step, 1);
    dibs__relocks_free(relocks);
}

/* The time counts from the first grant with the fence, however often that is used again. */
TEST(an_old_noted_fence_is_not_used)
{
    struct dibs__relocks *relocks = noted("a", 1);

    for (uint32_t step = 1; step < 10; step++) {
        expect_step(relocks, "a", SERVER, GRANTED + MOMENT, step);
        dibs__relocks_note(&relocks, "a", SERVER, (struct dibs__relock){FENCE, step + 1, false}, GRANTED + MOMENT);
    }
    expect_step(relocks, "a", SERVER, GRANTED + MOMENT + 1, 0);
    dibs__relocks_free(relocks);
}

/* The grant time of a fence is unknown if its name was displaced while the fence was reused. */
TEST(a_reused_fence_is_noted_where_its_grant_is_known)
{
    struct dibs__relocks *relocks = noted("a", 2);

    expect_step(relocks, "a", SERVER, GRANTED, 0);
    dibs__relocks_free(relocks);
}

/* Names that share a slot of the table: the newest are kept, and none is taken for another. */
TEST(the_newest_of_many_noted_names_are_kept)
{
    enum { NAMES = 10000, NEWEST = 100 };
    struct dibs__relocks *relocks = NULL;
    char name[24];
    int kept = 0;

    for (int i = 1; i <= NAMES; i++) {
        snprintf(name, sizeof name, "name:%d", i);
        dibs__relocks_note(&relocks, name, SERVER, (struct dibs__relock){(uint64_t)(FENCE + i), 1, false}, GRANTED);
    }
    for (int i = NAMES; i > 0; i--) {
        snprintf(name, sizeof name, "name:%d", i);
        struct dibs__relock relock = dibs__relocks_take(relocks, name, SERVER, false, GRANTED);
        assert_true(relock.fence == 0 || relock.fence == (uint64_t)(FENCE + i));
        kept += relock.fence != 0 && i > NAMES - NEWEST;
    }
    assert_true(kept > NEWEST * 9 / 10);
    dibs__relocks_free(relocks);
}

TESTS(NULL, NULL)
