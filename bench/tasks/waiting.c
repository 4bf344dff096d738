/*
 * Very many tasks of one process that wait for locks which another process holds: what they take, how long it is until
 * all of them have been granted in turn, and until all have been cancelled.
 */
#include <dibs.h>

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include "support/bench.h"
#include "support/common/cleanup.h"
#include "support/common/naive_lock.h"
#include "support/common/timing.h"
#include "support/options.h"
#include "support/team.h"
#include "support/usage.h"
#include "tasks/sides.h"

enum { TAKE_MOST = 1024, LOOK_US = 20000, REST_LOOKS = 10, LIMIT_S = 50, KEYS_LIMIT_MS = 5000 };

const struct figure waiting_figures[WAITING_FIGURES] = {[WAITING_THREADS] = {"threads of the process", ""},
                                                        [WAITING_BYTES] = {"heap for each task", "bytes"},
                                                        [WAITING_RESIDENT] = {"memory for each task", "bytes"},
                                                        [WAITING_BEGIN] = {"time to begin all", "ms"},
                                                        [WAITING_GRANT] = {"time to grant each in turn", "us"},
                                                        [WAITING_CANCEL] = {"time to cancel all", "ms"},
                                                        [WAITING_KEYS] = {"keys left", ""}};

struct waiter {
    dibs_task *task;
    unsigned name;
};

static dibs_queue *queue;
static dibs_runtime *runtime;
static unsigned tasks, names;

/* ------------------------------------------------------------ the other process */

struct page {
    atomic_uint wanted; /* how often the holder was told to lock all names */
    atomic_uint held;   /* how often it had them */
    atomic_uint freed;  /* how often it was told to unlock them */
};

static const char *name_of(unsigned number)
{
    static char text[16];

    snprintf(text, sizeof text, "w:%u", number);
    return text;
}

static void hold(unsigned number, void *memory)
{
    struct page *page = memory;
    dibs_runtime *own = bench_open_with((dibs_config){.lease_ms = 60000});

    (void)number;
    for (unsigned turn = 1; turn <= 2; turn++) {
        team_await(&page->wanted, turn);
        for (unsigned i = 0; i < names; i++)
            must(dibs_lock(own, name_of(i)));
        atomic_store(&page->held, turn);
        team_await(&page->freed, turn);
        for (unsigned i = 0; i < names; i++)
            must(dibs_unlock(own, name_of(i)));
    }
    for (;;)
        pause();
}

/* ------------------------------------------------------------------ what it takes */

static double heap(void)
{
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
    struct mallinfo2 all = mallinfo2();

    return (double)(all.uordblks + all.hblkhd);
#else
    return NAN;
#endif
}

static double resident(void)
{
    char line[128], *pages; /* all, those in memory, and more */
    FILE *file = fopen("/proc/self/statm", "r");
    bool read = file && fgets(line, sizeof line, file) && (pages = strchr(line, ' ')) != NULL;

    if (file)
        fclose(file);
    return read ? (double)strtoul(pages, NULL, 10) * (double)sysconf(_SC_PAGESIZE) : NAN;
}

static double threads(void)
{
    double count = 0;
    DIR *folder = opendir("/proc/self/task");

    if (!folder)
        return NAN;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

/*
 * Waits until neither this process nor the server has had anything to do for REST_LOOKS looks: then all begun calls
 * wait.
 */
static void await_rest(void)
{
    double limit = now_ns() + LIMIT_S * 1e9;

    for (unsigned looks = 0; looks < REST_LOOKS;) {
        struct usage before = usage_now();
        pause_us(LOOK_US);
        struct usage used = usage_between(before, usage_now());
        looks = used.client_ns < LOOK_US * 1e3 * 0.1 ? looks + 1 : 0;
        if (now_ns() > limit)
            cleanup_fail("the tasks do not come to rest");
    }
}

/* Of all keys but those of the fences, which remain. */
static double keys_left(void)
{
    redisContext *redis = bench_connect();
    double limit = now_ns() + KEYS_LIMIT_MS * 1e6, left;

    do {
        redisReply *reply = naive_command(redis, "EVAL %s 0",
                                          "local n = 0 for _, key in ipairs(redis.call('KEYS', '*')) do "
                                          "if not key:find('^dibs:fence:') then n = n + 1 end end return n");
        left = (double)reply->integer;
        freeReplyObject(reply);
    } while (left > 0 && now_ns() < limit && (pause_us(LOOK_US), true));
    redisFree(redis);
    return left;
}

/* -------------------------------------------------------------------- the tasks */

static void begin_all(struct waiter *waiters)
{
    for (unsigned i = 0; i < tasks; i++)
        must(dibs_lock_begin(waiters[i].task, name_of(waiters[i].name), DIBS_WAIT_FOREVER, NULL, queue, &waiters[i]));
}

/* The task has the lock of its name, later than all that had it before. */
static void pass_on(struct waiter *waiter, uint64_t fence)
{
    static uint64_t *newest;

    newest = newest ? newest : calloc(names, sizeof *newest);
    if (fence <= newest[waiter->name])
        cleanup_fail("the fence of %s fell", name_of(waiter->name));
    newest[waiter->name] = fence;
    must(dibs_unlock_begin(waiter->task, name_of(waiter->name), queue, waiter));
}

/* Takes so many completions; each lock that was granted is unlocked, so that the next one gets it. */
static void take_all(unsigned count, dibs_status expected)
{
    static dibs_completion done[TAKE_MOST];
    double limit = now_ns() + LIMIT_S * 1e9;

    while (count > 0) {
        size_t taken = dibs_queue_take(queue, done, TAKE_MOST, 1000);
        for (size_t i = 0; i < taken; i++, count--) {
            if (done[i].status != expected)
                cleanup_fail("a begun call failed: %s", done[i].detail);
            if (done[i].kind == DIBS_DONE_LOCK && expected == DIBS_OK)
                pass_on(done[i].arg, done[i].fence);
        }
        if (now_ns() > limit)
            cleanup_fail("%u completions did not come", count);
    }
}

static struct waiter *make_waiters(void)
{
    struct waiter *waiters = calloc(tasks, sizeof *waiters);

    if (!waiters)
        cleanup_fail("no memory for the waiters");
    for (unsigned i = 0; i < tasks; i++) {
        must(dibs_task_new(runtime, &waiters[i].task));
        waiters[i].name = i % names;
    }
    return waiters;
}

static void have_held(struct page *page, unsigned turn)
{
    atomic_store(&page->wanted, turn);
    team_await(&page->held, turn);
}

static void wait_for_grants(struct waiter *waiters, struct page *page, double out[])
{
    double start = now_ns();

    begin_all(waiters);
    out[WAITING_BEGIN] = (now_ns() - start) / 1e6;
    await_rest();
    out[WAITING_THREADS] = threads();
    out[WAITING_BYTES] = (heap() - out[WAITING_BYTES]) / tasks;
    out[WAITING_RESIDENT] = (resident() - out[WAITING_RESIDENT]) / tasks;
    start = now_ns();
    atomic_store(&page->freed, 1);
    take_all(2 * tasks, DIBS_OK);
    out[WAITING_GRANT] = (now_ns() - start) / 1e3 / tasks;
}

static void cancel_all(struct waiter *waiters, struct page *page, double out[])
{
    have_held(page, 2);
    begin_all(waiters);
    await_rest();
    double start = now_ns();
    for (unsigned i = 0; i < tasks; i++)
        dibs_task_cancel(waiters[i].task);
    take_all(tasks, DIBS_CANCELLED);
    out[WAITING_CANCEL] = (now_ns() - start) / 1e6;
    atomic_store(&page->freed, 2);
    out[WAITING_KEYS] = keys_left();
}

void tasks_waiting(const void *condition, double out[])
{
    const struct waiting_condition *wanted = condition;
    struct page *page = team_memory(sizeof *page);

    tasks = wanted->tasks;
    names = wanted->names;
    int holder = helper_start(0, hold, page);
    have_held(page, 1);
    runtime = bench_open(0);
    must(dibs_queue_new(&queue));
    out[WAITING_BYTES] = heap();
    out[WAITING_RESIDENT] = resident();
    struct waiter *waiters = make_waiters();
    wait_for_grants(waiters, page, out);
    cancel_all(waiters, page, out);
    for (unsigned i = 0; i < tasks; i++)
        dibs_task_free(waiters[i].task);
    dibs_close(runtime);
    dibs_queue_free(queue);
    free(waiters);
    helper_stop(holder);
}
