/* Cells with leases that the process keeps, without a store: shared by the tests of core/kept.c. */
#ifndef DIBS_TEST_KEPT_CELL_SETUP_H
#define DIBS_TEST_KEPT_CELL_SETUP_H

#include "base/hash.h"
#include "core/asker.h"
#include "core/turn.h"
#include "core/kept.h"
#include "support/moved_clock.h"
#include "support/test.h"
#include "support/turn.h"

#define KEEP_MS 100
#define LEASE_MS 30000
#define SHORT_MS (4 * KEEP_MS) /* the length of a lease while it is kept */
#define IN_A_ROW 3             /* locks of a name before a lease of it is kept */
#define HABITS 64              /* names of a shard that are remembered, by their hashes */

static const struct dibs__leaving told_nothing = {.learned = DIBS__LEARNED_NOTHING};

struct keeping {
    struct moved_clock clock;
    atomic_bool closing;
    struct dibs__cells *cells;
    struct dibs__waiter turn; /* of the lock that was taken last */
    bool tells;               /* of the unlock that came last */
    uint64_t sequence;
};

static inline int setup(void **state)
{
    struct keeping *k = calloc(1, sizeof *k);

    moved_clock_init(&k->clock);
    k->cells = dibs__cells_new(&k->clock.clock, &k->closing, 1000);
    if (!k->cells || !dibs__kept_begin(k->cells, KEEP_MS))
        return -1;
    atomic_store(&k->cells->recallable, 1);
    *state = k;
    return 0;
}

static inline int teardown(void **state)
{
    struct keeping *k = *state;

    dibs__cells_free(k->cells);
    moved_clock_destroy(&k->clock);
    free(k);
    return 0;
}

static inline void take(struct keeping *k, const char *name, uint32_t lease_ms)
{
    k->turn =
        (struct dibs__waiter){.name = name, .name_size = strlen(name), .wish.lease_ms = lease_ms, .one_try = true};
    assert_status(DIBS_OK, turn_take(k->cells, &k->turn));
}

static inline struct dibs__lease *new_lease(struct keeping *k, const char *name, uint32_t lease_ms, bool keeps)
{
    struct dibs__lease *lease = dibs__lease_new(1, name, strlen(name), DIBS__TOKEN_MAX);

    lease->token = (struct dibs__token){.sequence = ++k->sequence, .keeps = keeps};
    lease->asked_ms = lease_ms;
    lease->granted_at = moved_clock_now(&k->clock);
    atomic_store(&lease->deadline, dibs__lease_deadline(lease->granted_at, lease_ms));
    return lease;
}

/* The store grants a lease to the turn that k->turn has. The reference is the caller's. */
static inline struct dibs__lease *grant(struct keeping *k, bool contended)
{
    struct dibs__lease *lease = new_lease(k, k->turn.name, k->turn.wish.lease_ms, k->turn.keeps);

    lease->contended = contended;
    dibs__asker_begin(k->cells, lease);
    dibs__turn_granted(k->cells, lease);
    return lease;
}

/*
 * Gives the lease up, with the caller's reference; with that number of the cells the store said that it tells of the
 * lock. True: the lease is kept.
 */
static inline bool unlock_told(struct keeping *k, struct dibs__lease *lease, unsigned recallable)
{
    struct dibs__wish next;

    enum dibs__parting parting = dibs__handover_part(k->cells, lease, recallable, moved_clock_now(&k->clock), &next);

    k->tells = atomic_exchange(&lease->keeping.news, false);
    assert_true(parting == DIBS__PART_KEPT || parting == DIBS__PART_RELEASE);
    if (parting == DIBS__PART_RELEASE)
        dibs__handover_end(k->cells, lease, NULL);
    dibs__lease_unref(lease);
    return parting == DIBS__PART_KEPT;
}

static inline bool unlock(struct keeping *k, struct dibs__lease *lease)
{
    return unlock_told(k, lease, atomic_load(&k->cells->recallable));
}

/* A lock and an unlock. True: its lease is kept. */
static inline bool use_as(struct keeping *k, const char *name, uint32_t lease_ms, bool contended)
{
    take(k, name, lease_ms);
    assert_false(dibs__waiter_is_handed(&k->turn));
    assert_null(k->turn.unfit);
    return unlock(k, grant(k, contended));
}

static inline bool use(struct keeping *k, const char *name)
{
    return use_as(k, name, LEASE_MS, false);
}

/* From here on the leases of the name are kept. */
static inline void make_a_habit(struct keeping *k, const char *name)
{
    for (unsigned i = 0; i < IN_A_ROW; i++)
        assert_false(use(k, name));
}

/* Locks a name that is a habit, by a lease that may be kept. */
static inline struct dibs__lease *hold_again(struct keeping *k, const char *name)
{
    take(k, name, LEASE_MS);
    assert_true(k->turn.keeps);
    return grant(k, false);
}

static inline struct dibs__lease *hold(struct keeping *k, const char *name)
{
    make_a_habit(k, name);
    return hold_again(k, name);
}

/* Locks and unlocks the name until its lease is kept. That is borrowed: it stands in its cell. */
static inline struct dibs__lease *keep(struct keeping *k, const char *name)
{
    struct dibs__lease *lease = hold(k, name);

    assert_true(unlock(k, lease));
    return lease;
}

static inline void drop(struct keeping *k, const char *name)
{
    struct dibs__lease *lease = dibs__kept_drop(k->cells, name, strlen(name));

    assert_non_null(lease);
    dibs__lease_unref(lease);
}

/* The time has come at which the lease must be looked at. True: it was given back. */
static inline bool look(struct keeping *k, struct dibs__lease *lease)
{
    moved_clock_set(&k->clock, atomic_load(&lease->keeping.look_at));
    return dibs__kept_look(k->cells, lease);
}

/* The kept lease is too old to be taken again, or is another one: the calling thread must ask the store. */
static inline void find_unfit(struct keeping *k, const struct dibs__lease *lease, uint32_t lease_ms)
{
    take(k, "a", lease_ms);
    assert_false(dibs__waiter_is_handed(&k->turn));
    assert_ptr_equal(k->turn.unfit, lease);
    assert_int_equal(dibs__kept_count(k->cells), 0);
    dibs__lease_unref(k->turn.unfit);
    dibs__turn_give_up(k->cells, k->turn.cell, NULL, &told_nothing);
}

/* The next name whose cell is in the shard of that name, and whose hash falls to the same place, if that matters. */
static inline void find_name_beside(struct keeping *k, const char *first, bool same_place, unsigned *number,
                                    char name[16])
{
    uint64_t hash = dibs__hash(first, strlen(first)), its;
    struct dibs__shard *shard, *other;

    dibs__cells_lock(k->cells, first, strlen(first), &shard);
    dibs__shard_mutex_unlock(&shard->mutex);
    do {
        snprintf(name, 16, "n%u", (*number)++);
        its = dibs__hash(name, strlen(name));
        dibs__cells_lock(k->cells, name, strlen(name), &other);
        dibs__shard_mutex_unlock(&other->mutex);
    } while (other != shard || (same_place && its % HABITS != hash % HABITS));
}

/* Another process asks for the lock of that lease. True: the lease was kept, and was given back. */
static inline bool recall(struct keeping *k, const struct dibs__lease *lease)
{
    const struct dibs__token_form form = {.tail = ":", .tail_size = 1};
    char token[DIBS__TOKEN_MAX], name[DIBS_NAME_MAX + 1];
    bool give_back;

    dibs__token_write(&form, &lease->token, token);
    strcpy(name, lease->name);
    struct dibs__lease *found = dibs__kept_recall(k->cells, name, token, &give_back);
    assert_ptr_equal(found, lease);
    dibs__lease_unref(found);
    return give_back;
}

/* The same of a lease that is kept: it is given back. */
static inline void recall_kept(struct keeping *k, struct dibs__lease *lease)
{
    dibs__lease_ref(lease);
    assert_true(recall(k, lease));
    dibs__lease_unref(lease);
}

/* A lease of the name is kept the next time; it is dropped. */
static inline void expect_kept(struct keeping *k, const char *name)
{
    assert_true(use(k, name));
    drop(k, name);
}

/* A lease of "a" is kept after so much time, and not before. */
static inline void expect_kept_after(struct keeping *k, int64_t ns)
{
    moved_clock_advance(&k->clock, ns - 1);
    assert_false(use(k, "a"));
    moved_clock_advance(&k->clock, 1);
    expect_kept(k, "a");
}

#endif
