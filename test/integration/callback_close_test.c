/* An on_event that is busy while dibs_close runs: the callback keeps what it holds until it has returned. */
#include <stdatomic.h>

#include "support/fixture.h"

/* What the callback shares with the test. */
struct callback {
    fixture *fixture;
    dibs_runtime *looker; /* another runtime, to look into the store */
    bool unlocks;
    atomic_bool holds; /* the callback has acquired the lock */
    dibs_status locked, closing, checked, queried,
        unlocked; /* set by the callback; read when dibs_close has returned */
    bool gone;    /* the lock was gone from the store while the callback held it */
};

static bool is_gone(dibs_runtime *rt)
{
    dibs_owner owner;

    return dibs_query(rt, "callback", &owner) == DIBS_OK && !owner.held;
}

static void hold_during_the_close(const dibs_event *event, void *arg)
{
    struct callback *c = arg;
    dibs_runtime *rt = c->fixture->rt;
    dibs_owner owner;

    if (event->kind != DIBS_EVENT_ORPHANED)
        return;
    c->locked = dibs_lock(rt, "callback");
    atomic_store(&c->holds, true);
    c->closing = within(LIMIT_MS, dibs_trylock(rt, "other") == DIBS_CLOSED) ? DIBS_CLOSED : DIBS_OK;
    c->gone = within(300, is_gone(c->looker)); /* must not happen: dibs_close would have released the lock */
    c->checked = dibs_check(rt, "callback");
    c->queried = dibs_query(rt, "callback", &owner);
    c->unlocked = c->unlocks ? dibs_unlock(rt, "callback") : DIBS_OK;
}

static void close_under_the_callback(fixture *f, bool unlocks)
{
    struct callback c = {.fixture = f, .looker = open_runtime(f->server, 0), .unlocks = unlocks};
    actor *orphan = actor_start();

    f->config.on_event = hold_during_the_close;
    f->config.on_event_arg = &c;
    fixture_open_holding(f, LONG_LEASE_MS, "before");
    assert_status(DIBS_OK, actor_lock(orphan, f->rt, "orphan", DIBS_WAIT_FOREVER));
    actor_end(orphan);
    await_that(atomic_load(&c.holds));
    assert_status(DIBS_OK, dibs_lock(f->rt, "meanwhile"));
    close_runtime(&f->rt);
    assert_status(DIBS_OK, c.locked);
    assert_status(DIBS_CLOSED, c.closing);
    assert_false(c.gone);
    assert_status(DIBS_OK, c.checked);
    assert_status(DIBS_OK, c.queried);
    assert_status(DIBS_OK, c.unlocked);
    /* dibs_close released the remaining locks, those of the callback and of the test. */
    server_assert_no_locks(f->server);
    dibs_close(c.looker);
}

TEST(a_callback_may_unlock_during_close)
{
    close_under_the_callback(*state, true);
}

TEST(close_releases_what_a_callback_holds)
{
    close_under_the_callback(*state, false);
}

TESTS(fixture_setup, fixture_teardown)
