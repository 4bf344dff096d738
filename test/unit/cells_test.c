/* The cells alone: how they come and go, and a lease that is lost before its cell knows. */
#include <inttypes.h>

#include "core/asker.h"
#include "core/turn.h"
#include "support/turn.h"
#include "unit/turn_setup.h"

static const struct dibs__leaving told_nothing = {.learned = DIBS__LEARNED_NOTHING};

struct alone {
    struct moved_clock *clock;
    struct dibs__cells *cells;
    atomic_bool closing;
    atomic_int status; /* of the waiter; -1: it still waits */
    struct dibs__waiter turn;
};

static void wait_alone(void *arg)
{
    struct alone *alone = arg;

    alone->turn = (struct dibs__waiter){
        .name = "a",
        .name_size = 1,
        .deadline = DIBS__NEVER,
        .budget = DIBS__NEVER,
    };
    atomic_store(&alone->status, (int)turn_take(alone->cells, &alone->turn));
}

/*
 * The scheduler may find a lease lost before the cell is told of its grant, because the process was stopped there. The
 * cell then is told of the end first, and finds nothing to end. The waiter must still get the turn.
 */
TEST_ON(a_lease_lost_before_its_cell_knows_keeps_nobody_waiting, stage *s)
{
    struct alone alone = {.clock = &s->clock, .status = -1};
    struct dibs__waiter turn = {.name = "a", .name_size = 1};
    struct dibs__lease *lease = dibs__lease_new(1, "a", 1, DIBS__TOKEN_MAX);

    alone.cells = dibs__cells_new(&s->clock.clock, &alone.closing, 0);
    assert_status(DIBS_OK, turn_take(alone.cells, &turn));
    dibs__asker_begin(alone.cells, lease);
    actor *waiter = actor_running(wait_alone, &alone);
    stage_await_waiting(s, 1);
    dibs__lease_lose(lease);
    atomic_store(&lease->loss_told, true);
    dibs__handover_end(alone.cells, lease, NULL);
    dibs__turn_granted(alone.cells, lease);
    bool woken = within(LIMIT_MS, atomic_load(&alone.status) >= 0);
    atomic_store(&alone.closing, true); /* so that the waiter ends in any case */
    dibs__askers_wake(alone.cells, DIBS__ASKERS_CLOSING);
    actor_end(waiter);
    if (atomic_load(&alone.status) == DIBS_OK)
        dibs__turn_give_up(alone.cells, alone.turn.cell, NULL, &told_nothing);
    dibs__cells_free(alone.cells);
    dibs__lease_unref(lease);
    assert_true(woken);
}

/*
 * A lease is lost, but the cell was not told: the next thread finds that out, and a waiting thread gets the turn. When
 * the cell is told of the end later, it no longer matters.
 */
TEST_ON(an_unreported_loss_keeps_nobody_waiting, stage *s)
{
    for (int waits = 0; waits < 2; waits++) {
        struct alone alone = {.clock = &s->clock, .status = -1};
        struct dibs__waiter turn = {.name = "a", .name_size = 1, .one_try = true};
        struct dibs__lease *lease = dibs__lease_new(1, "a", 1, DIBS__TOKEN_MAX);
        actor *waiter = NULL;
        alone.cells = dibs__cells_new(&s->clock.clock, &alone.closing, 0);
        atomic_store(&lease->deadline, moved_clock_now(&s->clock) + MS(100));
        assert_status(DIBS_OK, turn_take(alone.cells, &turn));
        dibs__asker_begin(alone.cells, lease);
        dibs__turn_granted(alone.cells, lease);
        if (waits) {
            waiter = actor_running(wait_alone, &alone);
            stage_await_waiting(s, 1);
        }
        moved_clock_advance(&s->clock, MS(100) - 1);
        assert_status(DIBS_BUSY, turn_take(alone.cells, &turn));
        moved_clock_advance(&s->clock, 1);
        assert_status(waits ? DIBS_TIMEOUT : DIBS_OK, turn_take(alone.cells, &turn));
        actor_end(waiter);
        assert_false(dibs__handover_end(alone.cells, lease, NULL));
        assert_status(DIBS_TIMEOUT, turn_take(alone.cells, &turn));
        dibs__turn_give_up(alone.cells, waits ? alone.turn.cell : turn.cell, NULL, &told_nothing);
        assert_status(DIBS_OK, turn_take(alone.cells, &turn));
        dibs__turn_give_up(alone.cells, turn.cell, NULL, &told_nothing);
        dibs__cells_free(alone.cells);
        dibs__lease_unref(lease);
    }
}

TEST_ON(cells_come_and_go_with_their_names, stage *s)
{
    enum { NAMES = 20000 };
    atomic_bool closing = false;
    struct dibs__cells *cells = dibs__cells_new(&s->clock.clock, &closing, 0);
    struct dibs__cell **all = calloc(NAMES, sizeof(struct dibs__cell *));
    char name[16];

    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < NAMES; i++) {
            struct dibs__waiter turn = {
                .name = name, .name_size = (size_t)snprintf(name, sizeof name, "%u", i), .one_try = true};
            assert_status(DIBS_OK, turn_take(cells, &turn));
            all[i] = turn.cell;
            assert_status(DIBS_TIMEOUT, turn_take(cells, &turn));
        }
        for (unsigned i = 0; i < NAMES; i++) /* in another order than they came */
            dibs__turn_give_up(cells, all[(i * 7919) % NAMES], NULL, &told_nothing);
    }
    dibs__cells_free(cells);
    free(all);
}

/* Whatever the struct held before. */
TEST_ON(a_free_turn_follows_no_outage, stage *s)
{
    atomic_bool closing = false;
    struct dibs__cells *cells = dibs__cells_new(&s->clock.clock, &closing, 0);
    struct dibs__lease *other = dibs__lease_new(1, "b", 1, DIBS__TOKEN_MAX);
    struct dibs__waiter turn = {.name = "a",
                                .name_size = 1,
                                .outage = dibs__outage_new(&(struct dibs__error){DIBS_UNAVAILABLE, "away"}, false),
                                .retaken_at = 77,
                                .lease = other};

    assert_status(DIBS_OK, turn_take(cells, &turn));
    assert_null(turn.outage);
    assert_int_equal(turn.retaken_at, 0);
    assert_null(turn.lease);
    dibs__turn_give_up(cells, turn.cell, NULL, &told_nothing);
    dibs__lease_unref(other);
    dibs__cells_free(cells);
}

static bool push(struct dibs__cells *cells, const struct dibs__lease *lease, uint64_t fence)
{
    char token[DIBS__TOKEN_MAX];
    const struct dibs__grant grant = {.name = "a", .token = token, .number = 1, .fence = fence};

    snprintf(token, sizeof token, "dibs:label:host:1:2:0:%" PRIx64, lease->token.sequence);
    return dibs__askers_push(cells, &grant);
}

/* In any order, whichever were granted or have another token by then; not one that is asked for no more. */
TEST_ON(a_push_finds_its_attempt, stage *s)
{
    enum { COUNT = 40 };

    atomic_bool closing = false;
    struct dibs__cells *cells = dibs__cells_new(&s->clock.clock, &closing, 0);
    struct dibs__lease *leases[COUNT];
    struct dibs__cell *cell = NULL;

    for (size_t i = 0; i < COUNT; i++) {
        leases[i] = dibs__lease_new(1, "a", 1, DIBS__TOKEN_MAX);
        leases[i]->turnless = true;
        leases[i]->token.sequence = i;
        cell = dibs__asker_begin(cells, leases[i]);
    }
    dibs__asker_set_token(cell, leases[COUNT - 1], &(struct dibs__token){.sequence = 2 * COUNT});
    dibs__turn_granted(cells, leases[COUNT - 2]);
    dibs__turn_give_up(cells, cell, leases[COUNT - 3], &told_nothing);
    for (size_t i = 0; i < COUNT; i++) {
        struct dibs__lease *lease = leases[i * 7 % COUNT];
        assert_int_equal(push(cells, lease, i + 1), lease != leases[COUNT - 3]);
        if (lease->asker && lease != leases[COUNT - 3])
            assert_int_equal(lease->asker->push.fence, i + 1);
    }
    assert_false(push(cells, &(struct dibs__lease){.token.sequence = COUNT - 1}, 1)); /* an old token */
    dibs__cells_free(cells);
    for (size_t i = 0; i < COUNT; i++)
        dibs__lease_unref(leases[i]);
}

TESTS(stage_setup, stage_teardown)
