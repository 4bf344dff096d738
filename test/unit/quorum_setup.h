/* A quorum of three members. Each is a store whose functions the test gives. The test moves the clock. */
#ifndef DIBS_TEST_QUORUM_SETUP_H
#define DIBS_TEST_QUORUM_SETUP_H

#include "store/quorum/quorum_parts.h"
#include "support/moved_clock.h"
#include "support/test.h"

#define MEMBERS 3

static struct setting {
    struct moved_clock clock;
    struct dibs__quorum q;
    struct dibs__member members[MEMBERS];
    struct dibs__store stores[MEMBERS];
    unsigned changes; /* how often the quorum has told that the lock may have changed */
} setting;

static inline void on_wake(void *context)
{
}

static inline void on_changed(void *context, const char *name)
{
    assert_ptr_equal(context, &setting);
    if (name) /* else any lock may have changed */
        assert_string_equal(name, "x");
    setting.changes++;
}

#define UNDER_MUTEX(statement)                                                                                         \
    do {                                                                                                               \
        dibs__quorum_mutex_lock(&setting.q.mutex);                                                                     \
        statement;                                                                                                     \
        dibs__quorum_mutex_unlock(&setting.q.mutex);                                                                   \
    } while (0)

/* The teardown of each test. Where nothing is set up, it does nothing. */
static inline int tear_down(void **state)
{
    if (!setting.q.members)
        return 0;
    dibs__claims_free(&setting.q);
    dibs__mutex_destroy(&setting.q.mutex);
    moved_clock_destroy(&setting.clock);
    setting.q.members = NULL;
    return 0;
}

/* Anew: what the test had set up before is torn down. */
static inline void set_up(const struct dibs__store_ops *ops)
{
    tear_down(NULL);
    setting = (struct setting){.q = {.count = MEMBERS, .majority = MEMBERS / 2 + 1, .members = setting.members}};
    moved_clock_init(&setting.clock);
    setting.q.config.clock = &setting.clock.clock;
    setting.q.config.listener = (struct dibs__listener){.context = &setting, .wake = on_wake, .changed = on_changed};
    assert_int_equal(dibs__mutex_init(&setting.q.mutex), 0);
    for (unsigned i = 0; i < MEMBERS; i++) {
        setting.stores[i].ops = ops;
        setting.members[i].quorum = &setting.q;
        setting.members[i].index = i;
        setting.members[i].store = &setting.stores[i];
        setting.members[i].rest.first_ms = 1;
    }
}

/* The lock x, which is asked for. */
static inline struct dibs__claim *asked_for(void)
{
    const struct dibs__attempt attempt = {.name = "x", .token = "dibs:token", .lease_ms = 30000};
    struct dibs__claim *claim = dibs__claim_new(&setting.q, &attempt);

    assert_non_null(claim);
    return claim;
}

/* The lock x is held at all masters, which watch it. The claim belongs to the quorum. */
static inline struct dibs__claim *held_at_all(uint32_t lease_ms)
{
    for (size_t i = 0; i < MEMBERS; i++)
        setting.stores[i].watches = true;
    atomic_store(&setting.q.voting.announced_ms, lease_ms);
    struct dibs__claim *claim = asked_for();
    dibs__quorum_mutex_lock(&setting.q.mutex);
    claim->state = DIBS__CLAIM_HELD;
    for (size_t i = 0; i < MEMBERS; i++)
        claim->states[i].phase = DIBS__MEMBER_GRANTED;
    dibs__quorum_mutex_unlock(&setting.q.mutex);
    return claim;
}

#endif
