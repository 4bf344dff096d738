/*
 * Mutexes that the C library can't make: cells that need one are not made, and leave nothing behind.
 *
 * The functions below stand in front of the C library's. They make what glibc makes; with another, nothing fails.
 */
#include <errno.h>
#include <pthread.h>

#include "core/cells.h"
#include "support/stage.h"

static _Thread_local long mutexes;       /* mutexes that this thread has made and not destroyed */
static _Thread_local long mutex_fail_at; /* the one that is to fail, counted from now; 0: none */

#ifdef __GLIBC__
#define CAN_FAIL_TO_MAKE 1

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
    mutexes--;
    return 0;
}
#else
#define CAN_FAIL_TO_MAKE 0
#endif

TEST_ON(cells_are_not_made_without_all_mutexes, stage *s)
{
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

TESTS(stage_setup, stage_teardown)
