/*
 * Mutexes and condition variables that the C library can't make: the call or the runtime that needed one says
 * DIBS_NO_MEMORY, and leaves nothing behind.
 *
 * The functions below stand in front of the C library's. They make what glibc makes; with another, nothing fails.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "core/asker.h"
#include "support/actor.h"
#include "support/fixture.h"
#include "support/stage.h"
#include "support/test.h"

static _Thread_local bool conds_fail;
static _Thread_local long mutexes;       /* mutexes that this thread has made and not destroyed */
static _Thread_local long mutex_fail_at; /* the one that is to fail, counted from now; 0: none */

#ifdef __GLIBC__
#define CAN_FAIL_TO_MAKE 1

int pthread_condattr_init(pthread_condattr_t *attributes)
{
    memset(attributes, 0, sizeof *attributes);
    return conds_fail ? ENOMEM : 0;
}

int pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes)
{
    static const pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER;

    (void)attributes; /* the library gives no attributes */
    if (mutex_fail_at > 0 && --mutex_fail_at == 0)
        return ENOMEM;
    *mutex = plain;
    mutexes++;
    return 0;
}

int pthread_mutex_destroy(pthread_mutex_t *mutex)
{
    (void)mutex;
    mutexes--;
    return 0;
}
#else
#define CAN_FAIL_TO_MAKE 0
#endif

/* A call by an actor, for which no condition variable can be made. */
struct call {
    dibs_runtime *rt;
    int64_t wait_ms;
    uint32_t flags;
    dibs_status status;
};

static void lock_without(void *arg)
{
    struct call *call = arg;

    conds_fail = true;
    call->status = dibs_lock_with(call->rt, "a", call->wait_ms, &(dibs_lock_options){.flags = call->flags});
    conds_fail = false;
}

static void expect_no_memory(stage *s, int64_t wait_ms, uint32_t flags)
{
    struct call call = {s->rt, wait_ms, flags, DIBS_OK};
    actor *a = actor_start();

    actor_begin(a, lock_without, &call);
    actor_end(a);
    assert_status(DIBS_NO_MEMORY, call.status);
}

/* The asker was answered DIBS_BUSY and stands in the store's queue. It cannot sleep there, so its bid is retracted. */
static void an_asker_that_can_not_sleep_leaves(void **state)
{
    stage *s = *state;
    dibs_owner owner;

    s->url = "mem:conds";
    stage_open(s, 0);
    dibs_runtime *second = stage_open_another(s, 0);
    assert_status(DIBS_OK, dibs_lock(second, "a"));
    for (size_t i = 0; i < 2 && CAN_FAIL_TO_MAKE; i++) {
        expect_no_memory(s, DIBS_WAIT_FOREVER, i == 0 ? 0 : DIBS_FAIR);
        assert_status(DIBS_OK, dibs_query(s->rt, "a", &owner));
        assert_int_equal(owner.waiters, 0);
    }
    assert_status(DIBS_OK, dibs_unlock(second, "a"));
    assert_status(DIBS_OK, dibs_trylock(s->rt, "a"));
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    dibs_close(second);
}

static void cells_without_all_their_mutexes_are_none(void **state)
{
    stage *s = *state;
    atomic_bool closing = false;
    long before = mutexes, nth = 1;
    struct dibs__cells *cells = NULL;

    for (; CAN_FAIL_TO_MAKE && nth < 1000; nth++) {
        mutex_fail_at = nth;
        cells = dibs__cells_new(&s->clock.clock, &closing, 0);
        if (mutex_fail_at > 0)
            break;
        assert_null(cells);
        assert_int_equal(mutexes, before);
    }
    mutex_fail_at = 0;
    assert_true(!CAN_FAIL_TO_MAKE || (nth > 2 && cells));
    dibs__cells_free(cells);
    assert_int_equal(mutexes, before);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, stage_setup, stage_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_asker_that_can_not_sleep_leaves),
        TEST(cells_without_all_their_mutexes_are_none),
    };

    return cmocka_run_group_tests_name("turn no cond", tests, NULL, NULL);
}
