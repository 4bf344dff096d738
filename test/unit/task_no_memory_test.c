/*
 * Tasks and begun calls where memory runs out: each allocation of a run fails once, a begin says DIBS_NO_MEMORY, or its
 * completion does, and nothing is left behind. A begun call completes whatever fails from then on.
 */
#include <stdatomic.h>

#include "support/failing_malloc.h"
#include "support/fixture.h"
#include "support/tasks.h"

#define FOREVER DIBS_WAIT_FOREVER
#define URL "mem:exhausted tasks"

static bool is_good(dibs_status status)
{
    return status == DIBS_OK || status == DIBS_NO_MEMORY;
}

/* ------------------------------------------------------------ each allocation fails */

/* One run, on a thread that ends. No assertion may fail in there, so it tells the line. */
struct run {
    dibs_runtime *rt;
    long fail_at;
    bool failed; /* one allocation failed */
    uint64_t begun;
    int line; /* which expectation did not hold; 0: all did */
};

#define WANT(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition) && run->line == 0)                                                                            \
            run->line = __LINE__;                                                                                      \
    } while (0)

/* A begun call and its completion, whether it could be begun or not. */
static dibs_status end_of(struct run *run, dibs_status begun, dibs_queue *q, const dibs_task *task)
{
    dibs_completion c;

    WANT(is_good(begun));
    if (begun != DIBS_OK) {
        WANT(dibs_queue_take(q, &c, 1, 0) == 0);
        return begun;
    }
    run->begun++;
    WANT(dibs_queue_take(q, &c, 1, LIMIT_MS) == 1);
    WANT(c.task == task && is_good(c.status) && (c.detail[0] == '\0') == (c.status == DIBS_OK));
    return c.status;
}

/* Takes a name by a blocking call, others by begun ones, one of them twice; gives up all, or leaves that to the end. */
static void use(struct run *run, dibs_task *task, dibs_queue *q)
{
    static const dibs_lock_options fair = {.flags = DIBS_FAIR};
    char name[2] = "a";

    WANT(dibs_task_enter(task) == DIBS_OK);
    WANT(is_good(dibs_lock(run->rt, "by a thread")));
    WANT(dibs_task_leave(task) == DIBS_OK);
    for (int i = 0; i < 12; i++) {
        name[0] = (char)('a' + i);
        dibs_status status =
            end_of(run, dibs_lock_begin(task, name, i % 2 ? FOREVER : 0, i % 3 ? NULL : &fair, q, NULL), q, task);
        if (status != DIBS_OK)
            continue;
        if (i % 3 == 1) {
            status = end_of(run, dibs_lock_begin(task, name, 0, NULL, q, NULL), q, task);
            if (status == DIBS_OK)
                end_of(run, dibs_unlock_begin(task, name, q, NULL), q, task);
        }
        if (i % 2)
            end_of(run, dibs_unlock_begin(task, name, q, NULL), q, task);
    }
}

static void run_once(void *arg)
{
    struct run *run = arg;
    dibs_task *task = NULL;
    dibs_queue *q = NULL;

    fail_here(run->fail_at);
    dibs_status made = dibs_task_new(run->rt, &task);
    WANT(is_good(made) && (made == DIBS_OK) == (task != NULL));
    made = dibs_queue_new(&q);
    WANT(is_good(made) && (made == DIBS_OK) == (q != NULL));
    if (task && q)
        use(run, task, q);
    WANT(stats_of(run->rt).begun == run->begun);
    run->failed = fail_no_more();
    dibs_task_free(task);
    dibs_queue_free(q);
}

static struct run try_with(long nth)
{
    struct run run = {.rt = open_url(URL, NULL), .fail_at = nth};

    call_in_a_thread(run_once, &run);
    dibs_close(run.rt);
    return run;
}

/*
 * The failing run leaves nothing but the runtime's handle. A worker more than ever before has the C library keep memory
 * for its stack: so what is left counts if it is left each time. False: the run has fewer allocations.
 */
static bool leaves_nothing(long nth)
{
    long left = 1;

    for (int i = 0; i < 5 && left > 0; i++) {
        long before = atomic_load(&living) + 1;
        struct run run = try_with(nth);
        assert_that(run.line == 0, "allocation %ld: line %d", nth, run.line);
        if (!run.failed)
            return false;
        left = atomic_load(&living) - before;
    }
    assert_that(left <= 0, "allocation %ld left %ld behind", nth, left);
    return true;
}

TEST(each_allocation_of_a_tasks_cycle_fails_once)
{
    long nth = 1;

    for (int i = 0; i < 3; i++) /* so that the C library has allocated what it allocates only once */
        assert_int_equal(try_with(0).line, 0);
    while (CAN_FAIL && leaves_nothing(nth))
        nth++;
    assert_true(nth > 40 || !CAN_FAIL);
}

/* ------------------------------------------------- memory is set aside at the begin */

/* From the begin on an allocation fails, in any thread: exactly one completion still comes. */
static bool completes_with(dibs_runtime *rt, long nth)
{
    static const char *const names[] = {"free", "taken", "cancelled", "held"};
    enum { CALLS = 4 };
    dibs_queue *q = queue_new();
    dibs_task *tasks[CALLS];
    dibs_completion c[CALLS + 1];
    bool done[CALLS] = {false};

    for (int i = 0; i < CALLS; i++)
        tasks[i] = task_of_runtime(rt);
    assert_status(DIBS_OK, task_lock(tasks[3], "held", 0, q));
    assert_status(DIBS_OK, dibs_lock(rt, "taken"));
    assert_status(DIBS_OK, dibs_lock(rt, "cancelled"));
    for (int i = 0; i < CALLS; i++)
        assert_status(DIBS_OK, i == 3 ? dibs_unlock_begin(tasks[i], names[i], q, &done[i])
                                      : dibs_lock_begin(tasks[i], names[i], FOREVER, NULL, q, &done[i]));
    fails_here = true; /* so does the thread that takes, which may do a worker's work */
    atomic_store(&fails_elsewhere, true);
    atomic_store(&fail_at, nth);
    dibs_unlock(rt, "taken");
    dibs_task_cancel(tasks[2]);
    size_t count = 0;
    for (size_t more = 1; count < CALLS && more > 0; count += more)
        more = dibs_queue_take(q, &c[count], 1, LIMIT_MS);
    bool failed = nth > 0 && atomic_load(&fail_at) <= 0;
    atomic_store(&fail_at, 0);
    atomic_store(&fails_elsewhere, false);
    fails_here = false;
    assert_int_equal(count, CALLS);
    for (size_t i = 0; i < CALLS; i++) {
        bool *its = c[i].arg;
        assert_false(*its);
        *its = true;
        assert_true(c[i].task == tasks[2] ? c[i].status == DIBS_CANCELLED : is_good(c[i].status));
        assert_true(c[i].task != tasks[3] || c[i].status == DIBS_OK);
    }
    expect_none(q);
    assert_status(DIBS_OK, dibs_unlock(rt, "cancelled"));
    for (int i = 0; i < CALLS; i++)
        dibs_task_free(tasks[i]);
    expect_none(q);
    dibs_queue_free(q);
    for (int i = 0; i < CALLS; i++)
        assert_status(DIBS_OK, dibs_timedlock(rt, names[i], LIMIT_MS));
    assert_status(DIBS_OK, dibs_unlock_all(rt));
    return failed;
}

TEST(begun_calls_complete_without_memory)
{
    dibs_runtime *rt = test_runtime(open_url(URL, NULL));
    int in_row = 0;

    for (long nth = 1; nth < 200 && in_row < 3; nth++) /* how many there are depends on which thread comes first */
        in_row = completes_with(rt, nth) ? 0 : in_row + 1;
    assert_int_equal(in_row, 3);
}

/* ------------------------------------------------------------- entering costs none */

struct visit {
    dibs_task *task;
    long left;
};

static void enter_and_leave(void *arg)
{
    struct visit *v = arg;
    dibs_task *task = v->task;

    fail_here(1);
    for (int i = 0; i < 100; i++)
        if (dibs_task_enter(task) != DIBS_OK || dibs_task_leave(task) != DIBS_OK)
            atomic_store(&fail_at, -1);
    v->left = atomic_load(&fail_at);
    fail_no_more();
}

/* Also on a thread that has never called dibs before. */
TEST(entering_a_task_needs_no_memory)
{
    dibs_runtime *rt = test_runtime(open_url(URL, NULL));
    struct visit v = {.task = task_of_runtime(rt)};

    call_in_a_thread(enter_and_leave, &v);
    assert_int_equal(v.left, 1);
    dibs_task_free(v.task);
}

TESTS(NULL, NULL)
