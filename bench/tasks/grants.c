/*
 * How long after a grant its waiter knows: a thread that blocks in dibs_lock, one that blocks in dibs_queue_take, and
 * one that sleeps in poll(2) on the queue's descriptor. The fence of a grant is the server's time of it in 1/1024 us,
 * by the clock that this machine has as well: so what is measured begins when the server's script does, which sends the
 * push.
 */
#include <dibs.h>

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "support/bench.h"
#include "support/common/cleanup.h"
#include "support/common/timing.h"
#include "support/options.h"
#include "tasks/sides.h"

enum { GRANTS = 1000, TOGETHER = 10, KINDS = 3, PAUSE_US = 300, QUEUED_LIMIT_MS = 3000, FENCES_OF_US = 1024 };

const struct figure grant_figures[GRANT_FIGURES] = {[GRANT_THREAD] = {"dibs_lock", "us"},
                                                    [GRANT_QUEUE] = {"dibs_queue_take", "us"},
                                                    [GRANT_POLL] = {"poll and dibs_queue_take", "us"},
                                                    [GRANT_RATIO] = {"dibs_queue_take over dibs_lock", "x"},
                                                    [GRANT_POLL_RATIO] = {"with poll over dibs_lock", "x"}};

static dibs_runtime *waiting, *holding;
static dibs_queue *queue;
static dibs_task *task;
static atomic_uint held;    /* turns for which the holder has the lock, so that the waiter will have to wait */
static atomic_uint granted; /* turns in which the waiter had the lock and gave it up */

static double since(uint64_t fence)
{
    struct timespec now;
    uint64_t granted_us = fence / FENCES_OF_US;

    clock_gettime(CLOCK_REALTIME, &now);
    return (double)((int64_t)now.tv_sec * 1000000 - (int64_t)granted_us) + (double)now.tv_nsec / 1e3;
}

static double wait_in_thread(void)
{
    dibs_hold hold;

    must(dibs_lock(waiting, "grant"));
    must(dibs_hold_of(waiting, "grant", &hold));
    double us = since(hold.fence);
    must(dibs_unlock(waiting, "grant"));
    return us;
}

static void take(dibs_completion *done, int64_t wait_ms)
{
    if (dibs_queue_take(queue, done, 1, wait_ms) != 1 || done->status != DIBS_OK)
        cleanup_fail("a begun call failed");
}

static double wait_in_queue(bool polls)
{
    struct pollfd one = {.fd = polls ? dibs_queue_fd(queue) : -1, .events = POLLIN};
    dibs_completion done;

    must(dibs_lock_begin(task, "grant", DIBS_WAIT_FOREVER, NULL, queue, NULL));
    if (polls && poll(&one, 1, -1) != 1)
        cleanup_fail("poll failed");
    take(&done, polls ? 0 : DIBS_WAIT_FOREVER);
    double us = since(done.fence);
    must(dibs_unlock_begin(task, "grant", queue, NULL));
    take(&done, DIBS_WAIT_FOREVER);
    return us;
}

/* The kinds take turns, some grants of each at a time: a program does not change its way from call to call. */
static unsigned kind_of(unsigned turn)
{
    return turn / TOGETHER % KINDS;
}

/* Of each kind. */
static unsigned grants(void)
{
    unsigned count = bench_scaled(GRANTS);

    return count - count % TOGETHER;
}

static void *wait_again_and_again(void *arg)
{
    double(*us)[GRANTS] = arg;
    unsigned turns = grants() * KINDS, count[KINDS] = {0};

    for (unsigned i = 0; i < turns; i++) {
        unsigned kind = kind_of(i);
        while (atomic_load(&held) <= i)
            pause_us(PAUSE_US);
        us[kind][count[kind]++] = kind == 0 ? wait_in_thread() : wait_in_queue(kind == 2);
        atomic_fetch_add(&granted, 1);
    }
    return NULL;
}

static void await_queued(void)
{
    double limit = now_ns() + QUEUED_LIMIT_MS * 1e6;
    dibs_owner owner;

    do {
        if (now_ns() > limit)
            cleanup_fail("dibs_query shows no waiter, though there is one: there is nothing to measure");
        pause_us(PAUSE_US);
        must(dibs_query(holding, "grant", &owner));
    } while (owner.waiters != 1);
    pause_us(PAUSE_US);
}

void tasks_grants(const void *condition, double out[])
{
    static double us[KINDS][GRANTS];
    unsigned each = grants();

    (void)condition;
    waiting = bench_open(0);
    holding = bench_open(0);
    must(dibs_queue_new(&queue));
    must(dibs_task_new(waiting, &task));
    pthread_t waiter = bench_thread(wait_again_and_again, us);
    for (unsigned turn = 0; turn < each * KINDS; turn++) {
        must(dibs_lock(holding, "grant"));
        atomic_store(&held, turn + 1);
        await_queued();
        must(dibs_unlock(holding, "grant"));
        while (atomic_load(&granted) <= turn)
            pause_us(PAUSE_US);
    }
    pthread_join(waiter, NULL);
    for (unsigned kind = 0; kind < KINDS; kind++)
        out[GRANT_THREAD + kind] = median(us[kind], each);
    out[GRANT_RATIO] = out[GRANT_QUEUE] / out[GRANT_THREAD];
    out[GRANT_POLL_RATIO] = out[GRANT_POLL] / out[GRANT_THREAD];
    dibs_task_free(task);
    dibs_close(waiting);
    dibs_close(holding);
    dibs_queue_free(queue);
}
