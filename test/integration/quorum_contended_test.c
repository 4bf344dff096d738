/* Many want a lock of a quorum: each gets it, one at a time, and fences grow from holder to holder. */
#include <pthread.h>
#include <stdatomic.h>

#include "support/masters.h"

#define CONTENDERS 16
#define PROMISED_MS 3000
#define ROUNDS 12

/* What the contenders share. */
static struct {
    pthread_barrier_t start;
    atomic_int inside, overlaps, unordered, failed;
    _Atomic uint64_t fence;
} shared;

struct contender {
    dibs_runtime *rt;
    int rounds;
    int64_t worst_ms;
};

static void be_inside(dibs_runtime *rt)
{
    dibs_hold hold;

    if (atomic_fetch_add(&shared.inside, 1) != 0)
        atomic_fetch_add(&shared.overlaps, 1);
    if (dibs_hold_of(rt, "a", &hold) != DIBS_OK)
        atomic_fetch_add(&shared.failed, 1);
    if (atomic_exchange(&shared.fence, hold.fence) >= hold.fence)
        atomic_fetch_add(&shared.unordered, 1);
    atomic_fetch_sub(&shared.inside, 1);
}

static void *contend(void *arg)
{
    struct contender *contender = arg;

    pthread_barrier_wait(&shared.start);
    for (int i = 0; i < contender->rounds; i++) {
        int64_t began = now_ms();
        if (dibs_timedlock(contender->rt, "a", LIMIT_MS) != DIBS_OK) {
            atomic_fetch_add(&shared.failed, 1);
            continue;
        }
        int64_t took = now_ms() - began;
        contender->worst_ms = took > contender->worst_ms ? took : contender->worst_ms;
        be_inside(contender->rt);
        if (dibs_unlock(contender->rt, "a") != DIBS_OK)
            atomic_fetch_add(&shared.failed, 1);
    }
    return NULL;
}

/* Returns the longest wait. */
static int64_t run(const masters *m, int count, int rounds)
{
    struct contender contenders[CONTENDERS];
    pthread_t threads[CONTENDERS];
    int64_t worst_ms = 0;

    atomic_store(&shared.fence, 0);
    pthread_barrier_init(&shared.start, NULL, (unsigned)count);
    for (int i = 0; i < count; i++)
        contenders[i] = (struct contender){.rt = masters_open_another(m, LONG_LEASE_MS), .rounds = rounds};
    for (int i = 0; i < count; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, contend, &contenders[i]), 0);
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        worst_ms = contenders[i].worst_ms > worst_ms ? contenders[i].worst_ms : worst_ms;
    }
    for (int i = 0; i < count; i++)
        dibs_close(contenders[i].rt);
    pthread_barrier_destroy(&shared.start);
    assert_int_equal(atomic_load(&shared.failed), 0);
    assert_int_equal(atomic_load(&shared.overlaps), 0);
    assert_int_equal(atomic_load(&shared.unordered), 0);
    return worst_ms;
}

struct told {
    masters *m;
    struct contender waiter;
    int64_t mean_ms;
};

/* Whether ten sleeping waiters in a row had the lock soon after its release. */
static bool are_told_soon(struct told *told)
{
    enum { TIMES = 10, SOON_MS = 25 };
    int64_t sum_ms = 0;

    for (int i = 0; i < TIMES; i++) {
        pthread_t thread;
        assert_status(DIBS_OK, dibs_timedlock(told->m->rt, "a", LIMIT_MS));
        pthread_barrier_init(&shared.start, NULL, 1);
        atomic_store(&shared.fence, 0);
        assert_int_equal(pthread_create(&thread, NULL, contend, &told->waiter), 0);
        pause_ms(150); /* it is in the queue by now, and sleeps */
        int64_t released = now_ms();
        assert_status(DIBS_OK, dibs_unlock(told->m->rt, "a"));
        pthread_join(thread, NULL);
        sum_ms += now_ms() - released;
        pthread_barrier_destroy(&shared.start);
    }
    told->mean_ms = sum_ms / TIMES;
    return told->mean_ms < SOON_MS;
}

/*
 * A message tells the waiter of the release, so it does not sleep until its next ask. A busy machine may let any thread
 * wait for longer than that, but not each time.
 */
TEST_ON(a_waiter_on_a_quorum_is_told_of_the_release, masters *m)
{
    masters_open_connected(m, LONG_LEASE_MS);
    struct told told = {m, {.rt = masters_open_another(m, LONG_LEASE_MS), .rounds = 1}, 0};
    bool soon = within(LIMIT_MS, are_told_soon(&told));
    dibs_close(told.waiter.rt);
    print_message("from a release to the end of the next hold: %lld ms\n", (long long)told.mean_ms);
    assert_int_equal(atomic_load(&shared.failed), 0);
    assert_true(soon);
}

TEST_WITH(sixteen_contenders_each_get_the_lock_within_three_seconds, masters_setup_5, masters_teardown, masters *m)
{
    int64_t worst_ms = run(m, CONTENDERS, 1);

    print_message("the longest wait: %lld ms\n", (long long)worst_ms);
    assert_true(worst_ms < PROMISED_MS);
}

TEST_ON_THREE_AND_FIVE(sixteen_contenders_keep_taking_turns, masters *m)
{
    print_message("the longest wait: %lld ms\n", (long long)run(m, 6, ROUNDS));
}

TESTS(masters_setup_3, masters_teardown)
