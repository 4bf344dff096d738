/* A quorum of three members. Each is a store whose functions the test gives. The test moves the clock. */
#ifndef DIBS_TEST_QUORUM_SETUP_H
#define DIBS_TEST_QUORUM_SETUP_H

#include "store/quorum/quorum_parts.h"
#include "support/moved_clock.h"
#include "support/test.h"

#define MEMBERS 3

struct setting {
    struct moved_clock clock;
    struct dibs__quorum q;
    struct dibs__member members[MEMBERS];
    struct dibs__store stores[MEMBERS];
    unsigned changes; /* how often the quorum has told that the lock may have changed */
};

static inline void on_wake(void *context)
{
}

static inline void on_changed(void *context, const char *name)
{
    struct setting *s = context;

    assert_string_equal(name, "x");
    s->changes++;
}

static inline void set_up(struct setting *s, const struct dibs__store_ops *ops)
{
    *s = (struct setting){.q = {.count = MEMBERS, .majority = MEMBERS / 2 + 1, .members = s->members}};
    moved_clock_init(&s->clock);
    s->q.config.clock = &s->clock.clock;
    s->q.config.listener = (struct dibs__listener){.context = s, .wake = on_wake, .changed = on_changed};
    assert_int_equal(dibs__mutex_init(&s->q.mutex), 0);
    for (unsigned i = 0; i < MEMBERS; i++) {
        s->stores[i].ops = ops;
        s->members[i].quorum = &s->q;
        s->members[i].index = i;
        s->members[i].store = &s->stores[i];
        s->members[i].rest.first_ms = 1;
    }
}

static inline void tear_down(struct setting *s)
{
    dibs__top_up_forget_all(&s->q);
    dibs__claims_free(&s->q);
    dibs__mutex_destroy(&s->q.mutex);
    moved_clock_destroy(&s->clock);
}

/* The lock x, which is asked for. */
static inline struct dibs__claim *asked_for(struct setting *s)
{
    const struct dibs__attempt attempt = {.name = "x", .token = "dibs:token", .lease_ms = 30000};
    struct dibs__claim *claim = dibs__claim_new(&s->q, &attempt);

    assert_non_null(claim);
    return claim;
}

/* The lock x is held at all masters, which watch it. The claim belongs to the quorum. */
static inline struct dibs__claim *held_at_all(struct setting *setting, uint32_t lease_ms)
{
    for (size_t i = 0; i < MEMBERS; i++)
        setting->stores[i].watches = true;
    atomic_store(&setting->q.voting.announced_ms, lease_ms);
    struct dibs__claim *claim = asked_for(setting);
    dibs__quorum_mutex_lock(&setting->q.mutex);
    claim->state = DIBS__CLAIM_HELD;
    for (size_t i = 0; i < MEMBERS; i++)
        claim->states[i].phase = DIBS__MEMBER_GRANTED;
    dibs__quorum_mutex_unlock(&setting->q.mutex);
    return claim;
}

#endif
