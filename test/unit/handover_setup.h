/* A runtime that hands leases over, and what its store was asked: shared by the tests of handing over. */
#ifndef DIBS_TEST_HANDOVER_SETUP_H
#define DIBS_TEST_HANDOVER_SETUP_H

#include "support/fixture.h"
#include "support/stage.h"

#define LEASE 30000
#define HANDOFF 10
#define LONG (MS(1) + 1) /* a thread that has waited so long gets the lease before any running thread */
#define FOR_LONG 3600000 /* a handoff_ms that no test comes to the end of */
#define FOREVER DIBS_WAIT_FOREVER

static const dibs_lock_options fixed = {.flags = DIBS_FIXED_LEASE}, fair = {.flags = DIBS_FAIR},
                               shorter = {.lease_ms = 20000};

/* As stage_setup, with handing over, and with a store that other runtimes see. */
static inline int setup(void **state)
{
    int status = stage_setup(state);
    stage *s = *state;

    s->settings.handoff_ms = HANDOFF;
    s->url = "mem:handoff";
    return status;
}

/* How many commands s->rt has sent, and how many asks and releases came to the store from all runtimes. */
struct asked {
    uint64_t commands;
    unsigned acquires, releases;
};

static inline struct asked asked(stage *s)
{
    return (struct asked){
        stats_of(s->rt).store_commands,
        faults_count(&s->faults, &s->faults.acquires),
        faults_count(&s->faults, &s->faults.releases),
    };
}

static inline void expect_asked(stage *s, struct asked before, unsigned commands, unsigned releases, unsigned acquires)
{
    struct asked now = asked(s);

    assert_int_equal(now.commands, before.commands + commands);
    assert_int_equal(now.releases, before.releases + releases);
    assert_int_equal(now.acquires, before.acquires + acquires);
}

static inline void expect_untouched(stage *s, struct asked before)
{
    expect_asked(s, before, 0, 0, 0);
}

/* One command, which released the lease and asked for the next. */
static inline void expect_released_with_an_ask(stage *s, struct asked before)
{
    expect_asked(s, before, 1, 1, 1);
}

static inline uint64_t fence_in(actor *a, dibs_runtime *rt)
{
    dibs_hold hold;

    assert_status(DIBS_OK, actor_hold(a, rt, "a", &hold));
    return hold.fence;
}

/* Expects that another runtime can acquire the lock at once. */
static inline void expect_free(stage *s)
{
    dibs_runtime *other = stage_open_another(s, LEASE);

    dibs_owner owner = owner_of(other, "a");
    assert_false(owner.held);
    assert_int_equal(owner.waiters, 0);
    lock_and_release(other, "a", 0);
    dibs_close(other);
}

static inline void expect_nothing_left(stage *s)
{
    assert_int_equal(stats_of(s->rt).holds, 0);
    assert_int_equal(stats_of(s->rt).leases, 0);
    assert_null(dibs__renewals_take_any(s->rt->core->renewals));
    expect_free(s);
}

/* Releases "a", which goes to a waiter that the machine does not run yet. */
static inline void unlock_to_the_standing(stage *s)
{
    moved_clock_stop_the_woken(&s->clock);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    moved_clock_await_standing(&s->clock, 1);
}

#endif
