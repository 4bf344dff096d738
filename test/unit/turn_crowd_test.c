/*
 * The cost of a crowd of waiters for one name: the same for each waiter, however many there are. The test compares the
 * CPU time of a crowd with that of one 8 times as large.
 */
#include <pthread.h>

#include "core/asker.h"
#include "support/common/timing.h"
#include "support/linear.h"
#include "support/test.h"
#include "support/turn.h"

#define SIZE 1000
#define STACK_SIZE ((size_t)256 << 20)

/* An assertion for other threads than the test's own. */
static void require(bool condition)
{
    if (!condition)
        abort();
}

/* The cells, and a clock whose sleepers need no threads: inside each sleep, the next wait begins and ends. */
struct crowd {
    struct dibs__clock clock;
    int64_t now;
    struct dibs__cells *cells;
    atomic_bool closing;
    size_t waiting, size, timed_out;
};

static int64_t now(const struct dibs__clock *clock)
{
    return ((const struct crowd *)clock)->now;
}

static void wait_once(struct crowd *crowd)
{
    struct dibs__waiter turn = {
        .name = "a", .name_size = 1, .wish.lease_ms = 1000, .deadline = 1, .budget = DIBS__NEVER};

    crowd->timed_out += turn_take(crowd->cells, &turn) == DIBS_TIMEOUT;
}

static void sleep_by_waiting(const struct dibs__clock *clock, atomic_uint *word, unsigned value, int64_t deadline)
{
    struct crowd *crowd = (struct crowd *)(uintptr_t)clock; /* the first member */

    if (++crowd->waiting < crowd->size)
        wait_once(crowd);
    crowd->now = deadline;
}

static void open_cells(struct crowd *crowd, size_t size)
{
    *crowd = (struct crowd){.clock = {.now = now, .sleep = sleep_by_waiting}, .size = size};
    crowd->cells = dibs__cells_new(&crowd->clock, &crowd->closing, 0);
    require(crowd->cells != NULL);
}

/* All wait for a thread that asks, and time out together: the last to come leaves first. */
static int64_t time_of_time_outs(void *arg, size_t size)
{
    (void)arg;
    struct dibs__waiter asker = {.name = "a", .name_size = 1};
    struct crowd crowd;

    open_cells(&crowd, size);
    require(turn_take(crowd.cells, &asker) == DIBS_OK);
    int64_t begin = thread_ns();
    wait_once(&crowd);
    int64_t took = thread_ns() - begin;
    require(crowd.timed_out == size);
    dibs__turn_give_up(crowd.cells, asker.cell, NULL, &(struct dibs__leaving){.learned = DIBS__LEARNED_NOTHING});
    dibs__cells_free(crowd.cells);
    return took;
}

static struct dibs__lease *new_lease(size_t number)
{
    struct dibs__lease *lease = dibs__lease_new(1, "a", 1, DIBS__TOKEN_MAX);

    require(lease != NULL);
    lease->turnless = true;
    lease->token.sequence = number;
    snprintf(lease->asker->token, DIBS__TOKEN_MAX, "dibs:label:host:1:2:0123456789abcdef0123456789abcdef:%zx", number);
    return lease;
}

/* Each asks for itself, is granted by the store, and leaves: the first to come leaves first. */
static int64_t time_of_pushes(void *arg, size_t size)
{
    struct dibs__lease **leases = calloc(size, sizeof(struct dibs__lease *));
    struct dibs__cell *cell = NULL;
    struct crowd crowd;

    require(leases != NULL);
    open_cells(&crowd, size);
    for (size_t i = 0; i < size; i++)
        leases[i] = new_lease(i);
    int64_t begin = thread_ns();
    for (size_t i = 0; i < size; i++)
        cell = dibs__asker_begin(crowd.cells, leases[i]);
    for (size_t i = 0; i < size; i++) {
        const struct dibs__grant grant = {.name = "a", .token = leases[i]->asker->token, .number = 1, .fence = i + 1};
        require(dibs__askers_push(crowd.cells, &grant));
        require(leases[i]->asker->push.fence == i + 1);
    }
    for (size_t i = 0; i < size; i++)
        dibs__turn_give_up(crowd.cells, cell, leases[i], &(struct dibs__leaving){.learned = DIBS__LEARNED_NOTHING});
    int64_t took = thread_ns() - begin;
    for (size_t i = 0; i < size; i++)
        dibs__lease_unref(leases[i]);
    dibs__cells_free(crowd.cells);
    free(leases);
    return took;
}

struct comparison {
    sized_work *work;
    struct sized_times times;
};

/* The work of the sanitizers for each wait is not linear, so no times are compared there. */
static void *compare(void *arg)
{
    struct comparison *c = arg;

#if defined(TEST_UNDER_TSAN) || defined(TEST_UNDER_ASAN)
    c->work(NULL, SIZE);
#else
    c->times = time_sizes(c->work, NULL, SIZE);
#endif
    return NULL;
}

/* On a stack that holds all who wait. */
static void expect_linear(sized_work *work)
{
    struct comparison c = {.work = work};
    pthread_attr_t attributes;
    pthread_t thread;

    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstacksize(&attributes, STACK_SIZE), 0);
    assert_int_equal(pthread_create(&thread, &attributes, compare, &c), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
    assert_linear(&c.times);
}

TEST(time_outs_in_a_crowd_strand_no_turn)
{
    expect_linear(time_of_time_outs);
}

TEST(pushes_to_a_crowd_strand_no_grant)
{
    expect_linear(time_of_pushes);
}

TESTS(NULL, NULL)
