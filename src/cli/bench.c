/*
 * dibs bench: how long acquire, release and hand-over take with this store.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/bench_report.h"
#include "cli/cli.h"
#include "cli/text.h"

/* clang-format off */
static const char help[] =
    "Usage: dibs bench [OPTION...]\n"
    "\n"
    "Measures how long it takes to acquire a free lock, to release it, and to hand it\n"
    "over: from the start of the release by one runtime to the end of the wait of\n"
    "another. The lock has a random name, and is gone at the end, also if the command\n"
    "is interrupted; then the figures so far are printed.\n"
    "\n"
    "  -s, --seconds TIME  measures for TIME (default 5)\n"
    CLI_JSON_HELP
    CLI_COMMON_HELP
    "\n"
    "Exit status: 0; 64 for wrong usage; 69 if the server can't be reached,\n"
    "refuses, or does not confirm the lock; 74 if the figures can't be written.\n";
/* clang-format on */

#define LEASE_MS 10000 /* the lock of a bench that was killed is free after this time */
#define WAIT_MS 20000
#define WARM_UP 20       /* acquires that are not counted */
#define PAUSE_NS 1000000 /* time for a waiter to fall asleep before it is handed the lock */
#define LOOK_NS 200000   /* between two looks for a waiter */
#define NS_OF_MS INT64_C(1000000)

/* Set by the options. */
static struct {
    int64_t length_ms;
    bool json;
} given = {.length_ms = 5000};

static const struct cli_option options[] = {
    {"seconds", 's', .time_ms = &given.length_ms, .least = 1, .most = 86400000},
    {"json", .flag = &given.json},
    {0},
};

/* One of two runtimes that pass a lock to one another, each used by a thread of its own. */
struct side {
    struct bench *bench;
    int number;
    dibs_runtime *rt;
    dibs_status status; /* its thread only */
    char why[512];      /* its thread only: the error */
};

struct bench {
    char name[CLI_OWN_NAME_MAX];
    struct cli_histogram acquires, releases; /* main thread only */
    pthread_mutex_t mutex;
    struct cli_histogram handovers; /* guarded by mutex while the threads run */
    struct side sides[2];
    int64_t end_ns;              /* read-only while the threads run */
    _Atomic int64_t released_ns; /* when the last release began */
    _Atomic int released_by;     /* number of the side that began it; -1: it is not measured */
    _Atomic bool failed;         /* one of the sides has failed */
};

static _Atomic int signal_number; /* atomic, not a sig_atomic_t, because both threads read it */

static void on_signal(int number)
{
    signal_number = number;
}

static bool over(const struct bench *bench)
{
    return signal_number || cli_now_ns() >= bench->end_ns;
}

static void pause_ns(long ns)
{
    const struct timespec length = {.tv_nsec = ns};

    nanosleep(&length, NULL);
}

/* --------------------------------------------------------- acquire and release */

static dibs_status measure_once(struct bench *bench, bool counts)
{
    dibs_runtime *rt = bench->sides[0].rt;
    int64_t begin = cli_now_ns();
    dibs_status status = dibs_lock(rt, bench->name);
    int64_t middle = cli_now_ns();

    if (status == DIBS_OK)
        status = dibs_unlock(rt, bench->name);
    if (status == DIBS_OK && counts) {
        cli_histogram_add(&bench->acquires, middle - begin);
        cli_histogram_add(&bench->releases, cli_now_ns() - middle);
    }
    return status;
}

static dibs_status measure_alone(struct bench *bench)
{
    dibs_status status = DIBS_OK;

    for (int i = 0; i < WARM_UP && status == DIBS_OK && !signal_number; i++)
        status = measure_once(bench, false);
    bench->end_ns = cli_now_ns() + given.length_ms * NS_OF_MS * 2 / 5;
    while (status == DIBS_OK && !over(bench))
        status = measure_once(bench, true);
    return status;
}

/* ------------------------------------------------------------------ hand-over */

/* Returns when the other side waits for the lock, the time is over, or one of the sides has failed. */
static dibs_status await_waiter(struct side *side)
{
    dibs_owner owner;
    dibs_status status = DIBS_OK;

    while (!over(side->bench) && !side->bench->failed && status == DIBS_OK) {
        status = dibs_query(side->rt, side->bench->name, &owner);
        if (status == DIBS_OK && owner.waiters > 0) {
            pause_ns(PAUSE_NS);
            return DIBS_OK;
        }
        pause_ns(LOOK_NS);
    }
    return status;
}

static dibs_status hand_over(struct side *side)
{
    struct bench *bench = side->bench;
    dibs_status status = dibs_timedlock(side->rt, bench->name, WAIT_MS);

    if (status != DIBS_OK)
        return status;
    int64_t now = cli_now_ns();
    pthread_mutex_lock(&bench->mutex);
    if (bench->released_by == 1 - side->number)
        cli_histogram_add(&bench->handovers, now - bench->released_ns);
    pthread_mutex_unlock(&bench->mutex);
    status = await_waiter(side);
    bench->released_by = over(bench) || status != DIBS_OK ? -1 : side->number;
    bench->released_ns = cli_now_ns();
    dibs_status released = dibs_unlock(side->rt, bench->name);
    return status != DIBS_OK ? status : released;
}

static void *run_side(void *arg)
{
    struct side *side = arg;

    while (side->status == DIBS_OK && !over(side->bench) && !side->bench->failed)
        side->status = hand_over(side);
    if (side->status != DIBS_OK) {
        snprintf(side->why, sizeof side->why, "%s", dibs_last_error());
        side->bench->failed = true;
    }
    return NULL;
}

static int measure_handovers(struct bench *bench)
{
    pthread_t other;

    cli_note("measuring hand-over between two runtimes");
    bench->released_by = -1;
    bench->end_ns = cli_now_ns() + given.length_ms * NS_OF_MS * 3 / 5;
    if (!cli_start_thread(&other, run_side, &bench->sides[1])) {
        cli_error("no thread can be started");
        return CLI_SYSTEM;
    }
    run_side(&bench->sides[0]);
    pthread_join(other, NULL);
    for (int i = 0; i < 2; i++) {
        if (bench->sides[i].status != DIBS_OK) {
            cli_warn("%s", bench->sides[i].why);
            return cli_exit_of(bench->sides[i].status);
        }
    }
    return CLI_OK;
}

/* -------------------------------------------------------------------- command */

static int measure(struct bench *bench)
{
    cli_common.config.lease_ms = LEASE_MS;
    int result = cli_open(&bench->sides[0].rt);

    if (result == CLI_OK)
        result = cli_open(&bench->sides[1].rt);
    if (result != CLI_OK)
        return result;
    /* A second signal ends the process at once. */
    cli_catch_ends(on_signal, (int)(SA_RESTART | SA_RESETHAND));
    cli_make_name(bench->name, "bench");
    cli_note("measuring acquire and release of \"%s\"", bench->name);
    dibs_status status = measure_alone(bench);
    if (status != DIBS_OK)
        return cli_failed(status);
    return signal_number ? CLI_OK : measure_handovers(bench);
}

static void report(const struct bench *bench)
{
    const struct cli_bench_part parts[] = {{"acquire", "acquire", &bench->acquires},
                                           {"release", "release", &bench->releases},
                                           {"hand-over", "handover", &bench->handovers},
                                           {NULL, NULL, NULL}};

    if (given.json)
        cli_bench_report_json(parts, signal_number != 0);
    else
        cli_bench_report_text(parts);
}

static int run(char **words)
{
    static struct bench bench = {.mutex = PTHREAD_MUTEX_INITIALIZER}; /* static, because it is large */
    int result;

    (void)words;
    for (int i = 0; i < 2; i++) {
        bench.sides[i].bench = &bench;
        bench.sides[i].number = i;
    }
    result = measure(&bench);
    if (*bench.name)
        (void)dibs_forget(bench.sides[0].rt, bench.name); /* what a failed call leaves expires */
    dibs_close(bench.sides[0].rt);
    dibs_close(bench.sides[1].rt);
    if (result == CLI_OK)
        report(&bench);
    result = cli_end(result);
    if (signal_number) {
        signal(signal_number, SIG_DFL);
        raise(signal_number);
    }
    return result;
}

const struct cli_command cli_bench = {
    .name = "bench",
    .summary = "measures how long acquire, release and hand-over take",
    .help = help,
    .options = {options},
    .arguments = CLI_NO_ARGUMENT,
    .run = run,
};
