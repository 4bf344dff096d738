/* Pairs of many tasks, each with a name of its own, all begun and taken by one thread with one queue. */
#include <dibs.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/common/cleanup.h"
#include "support/common/timing.h"
#include "support/options.h"
#include "support/pair_side.h"
#include "support/usage.h"
#include "tasks/sides.h"

enum { TAKE_MOST = 256, WARM_UP_LEAST_MS = 20 };

struct runner {
    dibs_task *task;
    char name[32];
};

static dibs_queue *queue;
static unsigned under_way;
static unsigned long pairs;
static bool over;

static void begin_lock(struct runner *runner)
{
    must(dibs_lock_begin(runner->task, runner->name, DIBS_WAIT_FOREVER, NULL, queue, runner));
    under_way++;
}

static void go_on(const dibs_completion *done)
{
    struct runner *runner = done->arg;

    if (done->status != DIBS_OK)
        cleanup_fail("a begun call failed: %s", done->detail);
    under_way--;
    if (done->kind == DIBS_DONE_LOCK) {
        must(dibs_unlock_begin(runner->task, runner->name, queue, runner));
        under_way++;
        return;
    }
    pairs++;
    if (!over)
        begin_lock(runner);
}

static size_t take_polled(dibs_completion *out)
{
    struct pollfd one = {.fd = dibs_queue_fd(queue), .events = POLLIN};

    if (poll(&one, 1, -1) != 1)
        cleanup_fail("poll failed");
    return dibs_queue_take(queue, out, TAKE_MOST, 0);
}

static void run_until(double end_ns, bool polls)
{
    static dibs_completion done[TAKE_MOST];

    while (under_way > 0 && now_ns() < end_ns) {
        size_t count = polls ? take_polled(done) : dibs_queue_take(queue, done, TAKE_MOST, DIBS_WAIT_FOREVER);
        for (size_t i = 0; i < count; i++)
            go_on(&done[i]);
    }
}

static void measure(unsigned tasks, bool polls, double out[])
{
    struct runner *runners = calloc(tasks, sizeof *runners);
    dibs_runtime *runtime = bench_open(0);
    unsigned warm_up_ms = bench_options.round_ms / 4;

    if (!runners)
        cleanup_fail("no memory for the tasks");
    must(dibs_queue_new(&queue));
    for (unsigned i = 0; i < tasks; i++) {
        must(dibs_task_new(runtime, &runners[i].task));
        snprintf(runners[i].name, sizeof runners[i].name, "pair:%u", i);
        begin_lock(&runners[i]);
    }
    run_until(now_ns() + (warm_up_ms > WARM_UP_LEAST_MS ? warm_up_ms : WARM_UP_LEAST_MS) * 1e6, polls);
    unsigned long before = pairs;
    struct usage start = usage_now();
    run_until(start.wall_ns + bench_options.round_ms * 1e6, polls);
    struct usage used = usage_between(start, usage_now());
    double made = (double)(pairs - before);
    if (made > 0) {
        out[PAIRS_TIME] = used.wall_ns / 1e3 / made * tasks;
        out[PAIRS_RATE] = made / used.wall_ns * 1e9;
        out[PAIRS_CLIENT] = used.client_ns / 1e3 / made;
        out[PAIRS_SERVER] = used.server_ns / 1e3 / made;
        out[PAIRS_SWITCHES] = used.switches / made;
        out[PAIRS_CONNECTIONS] = usage_connections();
    }
    over = true;
    run_until(1e300, polls);
    for (unsigned i = 0; i < tasks; i++)
        dibs_task_free(runners[i].task);
    dibs_close(runtime);
    dibs_queue_free(queue);
    free(runners);
}

void tasks_one_queue(const void *condition, double out[])
{
    measure(((const struct pairs_condition *)condition)->threads, false, out);
}

void tasks_polled_queue(const void *condition, double out[])
{
    measure(((const struct pairs_condition *)condition)->threads, true, out);
}
