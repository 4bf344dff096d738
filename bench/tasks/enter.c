/* What a thread pays for acting for a task: to enter it and leave it, and a pair inside against one of its own. */
#include <dibs.h>

#include <stdio.h>

#include "support/bench.h"
#include "support/common/cleanup.h"
#include "support/common/timing.h"
#include "support/options.h"
#include "tasks/sides.h"

enum { BATCH = 2000, PAIRS = 20, BATCHES_MOST = 8192 };

const struct figure enter_figures[ENTER_FIGURES] = {[ENTER_LEAVE] = {"enter and leave", "ns"},
                                                    [ENTER_THREAD] = {"pair of a thread", "us"},
                                                    [ENTER_TASK] = {"pair inside a task", "us"},
                                                    [ENTER_RATIO] = {"inside a task over a thread", "x"}};

static dibs_runtime *runtime;
static dibs_task *task;

static double enter_and_leave(void)
{
    double start = now_ns();

    for (unsigned i = 0; i < BATCH; i++)
        if (dibs_task_enter(task) != DIBS_OK || dibs_task_leave(task) != DIBS_OK)
            cleanup_fail("a task could not be entered or left: %s", dibs_last_error());
    return (now_ns() - start) / BATCH;
}

static double pairs_of_thread(void)
{
    double start = now_ns();

    for (unsigned i = 0; i < PAIRS; i++) {
        must(dibs_lock(runtime, "enter"));
        must(dibs_unlock(runtime, "enter"));
    }
    return (now_ns() - start) / 1e3 / PAIRS;
}

static double pairs_of_task(void)
{
    double start = now_ns();

    for (unsigned i = 0; i < PAIRS; i++) {
        must(dibs_task_enter(task));
        must(dibs_lock(runtime, "enter"));
        must(dibs_unlock(runtime, "enter"));
        must(dibs_task_leave(task));
    }
    return (now_ns() - start) / 1e3 / PAIRS;
}

/* The kinds take turns, batch by batch, each first as often as the other; what is told is the median of the batches. */
void tasks_enter(const void *condition, double out[])
{
    static double enter[BATCHES_MOST], own[BATCHES_MOST], inside[BATCHES_MOST], ratio[BATCHES_MOST];
    unsigned batches = 0;

    (void)condition;
    runtime = bench_open(0);
    must(dibs_task_new(runtime, &task));
    pairs_of_thread();
    pairs_of_task();
    double end = now_ns() + bench_options.round_ms * 1e6;
    for (; (now_ns() < end || batches < 2) && batches < BATCHES_MOST; batches++) {
        enter[batches] = enter_and_leave();
        if (batches % 2)
            inside[batches] = pairs_of_task();
        own[batches] = pairs_of_thread();
        if (batches % 2 == 0)
            inside[batches] = pairs_of_task();
        ratio[batches] = inside[batches] / own[batches];
    }
    out[ENTER_LEAVE] = median(enter, batches);
    out[ENTER_THREAD] = median(own, batches);
    out[ENTER_TASK] = median(inside, batches);
    out[ENTER_RATIO] = median(ratio, batches);
    dibs_task_free(task);
    dibs_close(runtime);
}
