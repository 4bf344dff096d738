/* A memory store whose asks, grants and releases are spied upon: shared by the tests of grants and places. */
#ifndef DIBS_TEST_ACQUIRE_SETUP_H
#define DIBS_TEST_ACQUIRE_SETUP_H

#include "core/asker.h"
#include "support/fixture.h"
#include "support/stage.h"

#define LEASE 30000
#define FOREVER DIBS_WAIT_FOREVER
#define OWNER UINT64_C(77)

/*
 * The faulty store, with a spy on its asks and releases. The fields are set while no thread asks, and otherwise belong
 * to the one thread that asks. token and number are those of the last ask that was not granted; after it, and before
 * the asker learns of the answer, `taken` is called.
 */
static struct {
    const struct dibs__store_ops *real;
    struct dibs__store_ops ops;
    char token[DIBS__TOKEN_MAX];
    uint64_t number;
    uint64_t noted; /* what the store had noted with the attempt before that ask */
    uint64_t note;  /* what the store notes with the next such attempt; 0: nothing */
    char behind[DIBS__TOKEN_MAX];
    void (*taken)(stage *s); /* called once */
    void (*releasing)(stage *s);
    stage *s;
    dibs_runtime *second; /* the test's own thread holds "a" by this runtime */
    dibs_runtime *third;
} spy;

static inline dibs_status spied_ask(struct dibs__store *store, struct dibs__op *op, struct dibs__error *error)
{
    struct dibs__attempt *attempt = op->ask.attempt;
    uint64_t number = attempt->number + 1;
    dibs_status status = spy.real->finish(store, op, error);

    if (status != DIBS_OK) {
        snprintf(spy.token, sizeof spy.token, "%s", attempt->token);
        spy.number = number;
        spy.noted = attempt->store_state.words[0];
        if (spy.note)
            attempt->store_state.words[0] = spy.note;
        void (*taken)(stage * s) = spy.taken;
        spy.taken = NULL;
        if (taken)
            taken(spy.s);
    }
    return status;
}

static inline dibs_status spied_release(struct dibs__store *store, struct dibs__op *op, struct dibs__error *error)
{
    void (*releasing)(stage * s) = spy.releasing;

    spy.releasing = NULL;
    if (releasing)
        releasing(spy.s);
    if (op->release.next.attempt)
        snprintf(spy.behind, sizeof spy.behind, "%s", op->release.next.attempt->token);
    return spy.real->finish(store, op, error);
}

static inline dibs_status spied_finish(struct dibs__store *store, struct dibs__op *op, struct dibs__error *error)
{
    return op->kind == DIBS__OP_ASK       ? spied_ask(store, op, error)
           : op->kind == DIBS__OP_RELEASE ? spied_release(store, op, error)
                                          : spy.real->finish(store, op, error);
}

static inline dibs_status spied_open(struct dibs__store **out, const struct dibs__store_config *config,
                                     struct dibs__error *error)
{
    dibs_status status = faulty_store_open(out, config, error);

    if (status == DIBS_OK) {
        spy.real = (*out)->ops;
        spy.ops = *spy.real;
        spy.ops.finish = spied_finish;
        (*out)->ops = &spy.ops;
    }
    return status;
}

/* Sets up s->rt, whose asks and releases are recorded. The test's own thread holds "a" by spy.second. */
static inline int setup(void **state)
{
    int status = stage_setup(state);
    stage *s = *state;

    s->url = "mem:grant";
    memset(&spy, 0, sizeof spy);
    spy.s = s;
    spy.second = stage_open_another(s, LEASE);
    spy.third = stage_open_another(s, LEASE);
    s->settings.open_store = spied_open;
    stage_open(s, LEASE);
    assert_status(DIBS_OK, dibs_lock(spy.second, "a"));
    return status;
}

static inline int teardown(void **state)
{
    dibs_close(spy.second);
    dibs_close(spy.third);
    return stage_teardown(state);
}

/* As stage_waiter, but by another runtime, as a thread of another process would. */
static inline actor *stranger_of(stage *s, size_t waiting)
{
    actor *a = actor_locking(spy.third, "a", FOREVER);
    stage_await_waiting(s, waiting);
    return a;
}

/* Waits until that many asks have come to the store, and that many threads sleep after them. */
static inline void await_asks(stage *s, unsigned count, size_t waiting)
{
    await_that(acquires(s) == count);
    stage_await_waiting(s, waiting);
}

static inline unsigned in_queue(void)
{
    dibs_owner owner = owner_of(spy.second, "a");
    return owner.waiters;
}

static inline bool push(stage *s, const char *token, uint64_t number, bool confirm)
{
    const struct dibs__grant grant = {"a", token, number, UINT64_C(1) << 40, confirm};

    return dibs__askers_push(s->rt->core->cells, &grant);
}

static inline void expect_nothing_left(stage *s)
{
    assert_int_equal(stats_of(s->rt).leases, 0);
    assert_int_equal(in_queue(), 0);
    assert_status(DIBS_OK, dibs_trylock(spy.second, "a"));
}

/* The test's own thread releases "a": the asker gets it, and nobody waits for it then. */
static inline void expect_the_lock_next(stage *s, actor *asker)
{
    assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
    actor_gets(asker, s->rt, "a");
    expect_nothing_left(s);
}

#endif
