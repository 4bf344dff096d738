/*
 * What one master after the other loses is lost by all of them together: it is not set again at the first before the
 * next has lost it.
 */
#include "quorum_setup.h"

#define LEASE_MS 30000
#define SOON_MS 99   /* in this time, several losses are one */
#define LATER_MS 101 /* after this, what one master lost is set there again */

static struct dibs__batch *asked[MEMBERS]; /* the renewal that is under way at each; NULL: none */

static void renew(struct dibs__store *store, struct dibs__batch *batch)
{
    asked[store - setting.stores] = batch;
}

static uint32_t retracted_ms; /* the lease of the last retraction */

static void retract(struct dibs__store *store, const char *name, const char *token, uint32_t lease_ms, uint64_t fence)
{
    retracted_ms = lease_ms;
}

static void conclude(struct dibs__store *store, struct dibs__attempt *attempt, bool held)
{
}

static const struct dibs__store_ops renewing = {.renew = renew, .retract = retract, .conclude = conclude};

static void done(struct dibs__batch *batch, const struct dibs__error *error)
{
    *(bool *)batch->context = true;
}

static void answer(size_t i, enum dibs__renewed result)
{
    const struct dibs__error error = {DIBS_OK, ""};
    struct dibs__batch *batch = asked[i];

    asked[i] = NULL;
    batch->items[0].result = result;
    batch->done(batch, &error);
}

/* What a renewal comes to that the masters answer so. The first is asked to set the lock: `top_up`. */
static enum dibs__renewed renewed(const enum dibs__renewed results[MEMBERS], bool top_up)
{
    static struct dibs__batch batch;
    bool is_done = false;

    batch = (struct dibs__batch){.count = 1, .done = done, .context = &is_done};
    batch.items[0] = (struct dibs__renewal){.name = "x", .token = "dibs:token", .lease_ms = LEASE_MS, .fence = 7};
    dibs__quorum_renew(&setting.q.store, &batch);
    assert_int_equal(asked[0]->items[0].top_up, top_up);
    for (size_t i = 0; i < MEMBERS; i++) {
        assert_true(i == 0 || !asked[i]->items[0].top_up);
        answer(i, results[i]);
    }
    assert_true(is_done);
    return batch.items[0].result;
}

/* The lock x is held at all masters. */
static int setup(void **state)
{
    set_up(&renewing);
    held_at_all(LEASE_MS);
    return 0;
}

static const enum dibs__renewed by_all[MEMBERS] = {DIBS__RENEWED, DIBS__RENEWED, DIBS__RENEWED},
                                by_two[MEMBERS] = {DIBS__GONE, DIBS__RENEWED, DIBS__RENEWED},
                                by_one[MEMBERS] = {DIBS__GONE, DIBS__GONE, DIBS__RENEWED};

TEST(what_the_masters_lose_one_after_the_other_is_lost)
{
    assert_int_equal(renewed(by_two, false), DIBS__RENEWED);
    moved_clock_advance(&setting.clock, MS(SOON_MS));
    assert_int_equal(renewed(by_one, false), DIBS__GONE);
}

TEST(what_one_master_lost_is_set_there_again_later)
{
    assert_int_equal(renewed(by_two, false), DIBS__RENEWED);
    moved_clock_advance(&setting.clock, MS(SOON_MS));
    dibs__top_up_attend(&setting.q, moved_clock_now(&setting.clock));
    assert_int_equal(setting.changes, 0);
    moved_clock_advance(&setting.clock, MS(LATER_MS - SOON_MS));
    dibs__top_up_attend(&setting.q, moved_clock_now(&setting.clock));
    assert_int_equal(setting.changes, 1);
    assert_int_equal(renewed(by_all, true), DIBS__RENEWED);
    assert_int_equal(renewed(by_all, false), DIBS__RENEWED);
}

/* A retraction goes on for as long as the key may be there. */
TEST(a_retraction_knows_the_lease_of_an_extension)
{
    static struct dibs__batch batch;
    bool is_done = false;

    atomic_store(&setting.q.voting.announced_ms, 10 * LEASE_MS);
    batch = (struct dibs__batch){.count = 1, .done = done, .context = &is_done};
    batch.items[0] = (struct dibs__renewal){
        .name = "x", .token = "dibs:token", .lease_ms = 10 * LEASE_MS, .fence = 7, .extension = true};
    dibs__quorum_renew(&setting.q.store, &batch);
    for (size_t i = 0; i < MEMBERS; i++)
        answer(i, DIBS__RENEWED);
    dibs__quorum_retract(&setting.q.store, "x", "dibs:token", LEASE_MS, 7);
    assert_int_equal(retracted_ms, 10 * LEASE_MS);
}

/* What a look comes to where each master says that. */
static enum dibs__renewed watched(const enum dibs__renewed results[MEMBERS])
{
    static struct dibs__batch batch;
    bool is_done = false;

    batch = (struct dibs__batch){.count = 1, .done = done, .context = &is_done, .watch = true};
    batch.items[0] = (struct dibs__renewal){.name = "x", .token = "dibs:token"};
    dibs__quorum_renew(&setting.q.store, &batch);
    for (size_t i = 0; i < MEMBERS; i++)
        answer(i, results[i]);
    assert_true(is_done);
    return batch.items[0].result;
}

/*
 * A lease that waits for its look is not renewed for a change that is told meanwhile. So the look itself says that the
 * lock is to be set again.
 */
TEST(a_look_tells_of_a_lock_that_can_be_set_again)
{
    const enum dibs__renewed without_one[MEMBERS] = {DIBS__GONE, DIBS__WATCHED, DIBS__WATCHED};

    assert_int_equal(renewed(by_two, false), DIBS__RENEWED);
    moved_clock_advance(&setting.clock, MS(SOON_MS));
    assert_int_equal(watched(without_one), DIBS__WATCHED);
    moved_clock_advance(&setting.clock, MS(LATER_MS - SOON_MS));
    assert_int_equal(watched(without_one), DIBS__GONE);
    assert_int_equal(renewed(by_all, true), DIBS__RENEWED);
}

TESTS(setup, tear_down)
