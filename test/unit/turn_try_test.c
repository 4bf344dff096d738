/*
 * One try beside another thread of the process that asks for the same name: what is known of the name, and what the try
 * returns while nothing is known.
 */
#include "support/fixture.h"
#include "support/stage.h"

#define CROWD 4
#define FOREVER DIBS_WAIT_FOREVER

/* A thread that asks for "a", and what it is told. */
struct asker {
    actor *actor;
    dibs_runtime *rt;
    int64_t wait_ms;
    dibs_status status;
    char detail[400];
};

static void lock(void *arg)
{
    struct asker *asker = arg;

    asker->status = dibs_timedlock(asker->rt, "a", asker->wait_ms);
    snprintf(asker->detail, sizeof asker->detail, "%s", dibs_last_error());
}

static void begin(struct asker *asker, stage *s, int64_t wait_ms)
{
    *asker = (struct asker){.rt = s->rt, .wait_ms = wait_ms};
    asker->actor = actor_running(lock, asker);
}

/* As begin; that many threads sleep then. */
static void begin_waiting(struct asker *asker, stage *s, int64_t wait_ms, size_t waiting)
{
    begin(asker, s, wait_ms);
    stage_await_waiting(s, waiting);
}

/* The store gives one such answer, and goes on. */
static void let_go_with(stage *s, dibs_status answer)
{
    faults_acquire(&s->faults, answer, 1);
    faults_unblock_acquires(&s->faults);
}

/* Expects that the call ended with that status, and releases what it acquired. */
static void expect(struct asker *asker, dibs_status status)
{
    actor_finish(asker->actor);
    assert_status(status, asker->status);
    if (status == DIBS_OK)
        assert_status(DIBS_OK, actor_unlock(asker->actor, asker->rt, "a"));
    actor_end(asker->actor);
}

/* The store does not answer the first thread; the others come after that, and wait. */
static void begin_beside_silence(stage *s, struct asker *first, int64_t wait_ms, struct asker *others, size_t count)
{
    faults_block_acquires(&s->faults);
    begin(first, s, wait_ms);
    faults_await_blocked(&s->faults);
    for (size_t i = 0; i < count; i++)
        begin_waiting(&others[i], s, 0, i + 1);
}

/* All are told at once, without an ask of their own, and with the store's detail. */
TEST_ON(single_tries_get_the_askers_answer, stage *s)
{
    static const struct {
        dibs_status answer, told;
        int64_t wait_ms; /* the asker's */
    } rows[] = {{DIBS_OK, DIBS_BUSY, 0},
                {DIBS_OK, DIBS_BUSY, FOREVER},
                {DIBS_BUSY, DIBS_BUSY, 0},
                {DIBS_UNAVAILABLE, DIBS_UNAVAILABLE, 0},
                {DIBS_DENIED, DIBS_DENIED, 0},
                {DIBS_DENIED, DIBS_DENIED, FOREVER},
                {DIBS_STORE_ERROR, DIBS_STORE_ERROR, FOREVER},
                {DIBS_NO_MEMORY, DIBS_NO_MEMORY, FOREVER}};
    struct asker first, others[CROWD];

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        unsigned before = acquires(s);
        begin_beside_silence(s, &first, rows[i].wait_ms, others, CROWD);
        let_go_with(s, rows[i].answer);
        for (size_t k = 0; k < CROWD; k++) {
            expect(&others[k], rows[i].told);
            if (rows[i].told != DIBS_BUSY)
                assert_non_null(strstr(others[k].detail, "the test wants"));
        }
        assert_int_equal(acquires(s), before + 1);
        expect(&first, rows[i].answer);
    }
    assert_int_equal(stats_of(s->rt).contended, 0);
}

/* The asker goes on waiting, because it has been told that the lock is taken. */
TEST_ON(single_tries_wait_only_for_the_first_answer, stage *s)
{
    static const dibs_status answers[] = {DIBS_BUSY, DIBS_UNAVAILABLE};
    struct asker first, others[CROWD];

    for (size_t i = 0; i < 2; i++) {
        begin_beside_silence(s, &first, FOREVER, others, CROWD);
        let_go_with(s, answers[i]);
        for (size_t k = 0; k < CROWD; k++)
            expect(&others[k], answers[i]);
        stage_await_waiting(s, 1);
        moved_clock_advance(&s->clock, MS(1000));
        expect(&first, DIBS_OK);
    }
}

/* The tries do not report that somebody else holds the lock: nobody does. */
TEST_ON(a_single_try_ends_after_the_time_of_one_command, stage *s)
{
    struct asker first, other;

    begin_beside_silence(s, &first, FOREVER, NULL, 0);
    moved_clock_advance(&s->clock, MS(400));
    begin_waiting(&other, s, 0, 1);
    moved_clock_advance(&s->clock, MS(1000) - 1);
    stage_await_waiting(s, 1);
    moved_clock_advance(&s->clock, 1);
    expect(&other, DIBS_UNAVAILABLE);
    assert_non_null(strstr(other.detail, "did not answer within 1000 ms"));
    assert_int_equal(acquires(s), 1);
    assert_int_equal(stats_of(s->rt).busy, 0);
    dibs_owner owner = owner_of(s->rt, "a");
    assert_false(owner.held);
    faults_unblock_acquires(&s->faults);
    expect(&first, DIBS_OK);
}

/* The asker leaves without an answer: one of the others asks, and the rest get its answer. */
TEST_ON(single_tries_ask_when_the_asker_left_without_an_answer, stage *s)
{
    struct asker first, others[CROWD];
    size_t got = 0;

    begin_beside_silence(s, &first, 5, others, CROWD);
    moved_clock_advance(&s->clock, MS(8));
    let_go_with(s, DIBS_UNAVAILABLE);
    expect(&first, DIBS_TIMEOUT);
    for (size_t i = 0; i < CROWD; i++) {
        actor_finish(others[i].actor);
        got += others[i].status == DIBS_OK;
        expect(&others[i], others[i].status == DIBS_OK ? DIBS_OK : DIBS_BUSY);
    }
    assert_int_equal(got, 1);
    assert_int_equal(acquires(s), 2);
}

/* The thread that asks in their place has only the time that it had left. */
static void lock_names(void *arg)
{
    struct asker *asker = arg;

    asker->status = dibs_lock_names(asker->rt, (const char *const[]){"a", "b"}, 2, asker->wait_ms, NULL);
}

/* What such a call was not told in its short time says nothing of the store. */
TEST_ON(single_tries_ask_when_a_call_for_several_names_left_without_an_answer, stage *s)
{
    struct asker first = {.rt = s->rt, .wait_ms = 10}, other;

    faults_block_acquires(&s->faults);
    first.actor = actor_running(lock_names, &first);
    faults_await_blocked(&s->faults);
    begin_waiting(&other, s, 0, 1);
    moved_clock_advance(&s->clock, MS(20));
    let_go_with(s, DIBS_UNAVAILABLE);
    actor_finish(first.actor); /* before the lock is free again, which it would still get */
    expect(&other, DIBS_OK);
    expect(&first, DIBS_TIMEOUT);
}

TEST_ON(a_single_try_that_asks_has_the_time_of_one_try, stage *s)
{
    struct asker first, other;

    begin_beside_silence(s, &first, 900, &other, 1);
    moved_clock_advance(&s->clock, MS(903));
    let_go_with(s, DIBS_UNAVAILABLE);
    expect(&first, DIBS_TIMEOUT);
    expect(&other, DIBS_OK);
    assert_int_equal(s->faults.last_deadline, moved_clock_now(&s->clock) - MS(903) + MS(1000));
}

TEST_ON(a_shutdown_ends_single_tries, stage *s)
{
    struct asker first, others[CROWD];

    begin_beside_silence(s, &first, FOREVER, others, CROWD);
    dibs_shutdown(s->rt);
    for (size_t i = 0; i < CROWD; i++)
        expect(&others[i], DIBS_CLOSED);
    let_go_with(s, DIBS_UNAVAILABLE);
    actor_finish(first.actor);
    expect(&first, DIBS_CLOSED);
}

/* ------------------------------------------------------------------- what is known */

/* The asker was told that the lock is taken, and asks again. */
TEST_ON(a_single_try_knows_the_askers_last_answer_while_it_asks_again, stage *s)
{
    struct asker first;

    faults_acquire(&s->faults, DIBS_BUSY, 1);
    begin_waiting(&first, s, FOREVER, 1);
    assert_status(DIBS_BUSY, dibs_trylock(s->rt, "a"));
    faults_block_acquires(&s->faults);
    moved_clock_advance(&s->clock, MS(1000));
    faults_await_blocked(&s->faults);
    assert_status(DIBS_BUSY, dibs_trylock(s->rt, "a"));
    assert_non_null(strstr(dibs_last_error(), "somebody else holds"));
    faults_unblock_acquires(&s->faults);
    expect(&first, DIBS_OK);
}

/* The same is known where the next thread asks, if that was the last answer to the one before. */
TEST_ON(a_single_try_knows_the_last_askers_answer, stage *s)
{
    struct asker first, next;

    faults_acquire(&s->faults, DIBS_BUSY, 1);
    begin_waiting(&first, s, 500, 1);
    begin_waiting(&next, s, FOREVER, 2);
    faults_block_acquires(&s->faults);
    moved_clock_advance(&s->clock, MS(500));
    expect(&first, DIBS_TIMEOUT);
    faults_await_blocked(&s->faults);
    assert_status(DIBS_BUSY, dibs_trylock(s->rt, "a"));
    faults_unblock_acquires(&s->faults);
    expect(&next, DIBS_OK);
}

/*
 * The known answer expires when the store no longer answers: threads with short waits follow each other, and none knows
 * anything.
 */
TEST_ON(an_unanswered_ask_ends_the_known_answer, stage *s)
{
    struct asker first, next, other;

    faults_acquire(&s->faults, DIBS_BUSY, 1);
    begin_waiting(&first, s, 1100, 1);
    begin_waiting(&next, s, FOREVER, 2);
    faults_block_acquires(&s->faults);
    moved_clock_advance(&s->clock, MS(1000));
    faults_await_blocked(&s->faults);
    assert_status(DIBS_BUSY, dibs_trylock(s->rt, "a"));
    moved_clock_advance(&s->clock, MS(103));
    faults_acquire(&s->faults, DIBS_UNAVAILABLE, 1);
    faults_let_one_go(&s->faults);
    expect(&first, DIBS_TIMEOUT);
    faults_await_blocked(&s->faults);
    begin_waiting(&other, s, 0, 1);
    faults_unblock_acquires(&s->faults);
    expect(&next, DIBS_OK);
    expect(&other, DIBS_BUSY);
}

/*
 * An outage is not known any more when the threads that met it have left, even where a fair thread still waits for the
 * name.
 */
TEST_WITH(an_old_outage_does_not_answer_a_single_try, stage_setup, stage_teardown, stage *s)
{
    struct asker first, other;
    const dibs_lock_options fairly = {.flags = DIBS_FAIR};

    stage_open_at(s, "mem:old", 0);
    dibs_runtime *second = stage_rival(s, 0, "a");
    actor *fair = stage_waiter_with(s, "a", FOREVER, &fairly, 1);
    faults_acquire(&s->faults, DIBS_UNAVAILABLE, FOR_EVER);
    begin_waiting(&first, s, 100, 2);
    moved_clock_advance(&s->clock, MS(100));
    expect(&first, DIBS_UNAVAILABLE);
    faults_acquire(&s->faults, DIBS_OK, 0);
    begin_beside_silence(s, &first, 0, NULL, 0);
    begin_waiting(&other, s, 0, 2);
    faults_unblock_acquires(&s->faults);
    expect(&other, DIBS_BUSY);
    expect(&first, DIBS_BUSY);
    assert_status(DIBS_OK, dibs_unlock(second, "a"));
    actor_gets(fair, s->rt, "a");
}

/* The lock was released in this process, and the next asker has not been answered yet. */
TEST_WITH(a_hold_ends_the_known_answer, stage_setup, stage_teardown, stage *s)
{
    struct asker next, other;

    s->settings.handoff_ms = DIBS_NO_HANDOFF;
    stage_open_holding(s, 0);
    begin_waiting(&next, s, FOREVER, 1);
    faults_block_acquires(&s->faults);
    faults_release(&s->faults, DIBS_UNAVAILABLE, 1);
    assert_status(DIBS_UNAVAILABLE, dibs_unlock(s->rt, "a"));
    faults_await_blocked(&s->faults);
    begin_waiting(&other, s, 0, 1);
    moved_clock_advance(&s->clock, MS(1000));
    expect(&other, DIBS_UNAVAILABLE);
    faults_confirm(&s->faults);
    let_go_with(s, DIBS_DENIED);
    expect(&next, DIBS_DENIED);
}

/* A wait that ends before the first answer does not say that somebody else held the lock. */
TEST_ON(a_wait_that_ends_while_nothing_is_known_says_so, stage *s)
{
    struct asker first, waiter;

    begin_beside_silence(s, &first, FOREVER, NULL, 0);
    begin_waiting(&waiter, s, 100, 1);
    moved_clock_advance(&s->clock, MS(100));
    expect(&waiter, DIBS_TIMEOUT);
    assert_non_null(strstr(waiter.detail, "had not answered"));
    let_go_with(s, DIBS_BUSY);
    stage_await_waiting(s, 1);
    begin_waiting(&waiter, s, 100, 2);
    moved_clock_advance(&s->clock, MS(100));
    expect(&waiter, DIBS_TIMEOUT);
    assert_non_null(strstr(waiter.detail, "somebody else held"));
    moved_clock_advance(&s->clock, MS(900));
    expect(&first, DIBS_OK);
}

TESTS(stage_setup_open, stage_teardown)
