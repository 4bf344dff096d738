/*
 * dibs bench: how long acquire, release and hand-over take with this store.
 */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/json.h"
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
#define AGAIN_NS (500 * NS_OF_MS) /* a second signal that comes so long after the first ends the process at once */
#define STEPS ((size_t)32)        /* buckets for each doubling */
#define BAR 15                    /* columns of the longest bar */
#define TIME_MAX 24
#define BUCKETS ((size_t)59 * 32) /* the last bucket counts INT64_MAX */

static const int limits[] = {100, 200, 500}; /* each bar begins at one of these times in ns, times a power of ten */

#define LIMITS (sizeof limits / sizeof limits[0])
#define BARS (10 * LIMITS) /* from 100 ns to 1,000 s */

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

/* ---------------------------------------------------------------- histogram */

/*
 * Times, counted in buckets whose width is at most 1/32 of the times in them, so percentiles need no memory for each
 * time; and in bars, which are printed. Used by one thread at a time.
 */
struct histogram {
    uint64_t count;
    int64_t least_ns, most_ns; /* exact; 0 if count is 0 */
    uint64_t buckets[BUCKETS];
    uint64_t bars[BARS]; /* the first counts shorter times as well, the last one longer times */
};

static size_t bucket_of(uint64_t ns)
{
    size_t shift = 0;

    while (ns >> shift >= 2 * STEPS)
        shift++;
    return shift * STEPS + (size_t)(ns >> shift);
}

/* The middle of the times that a bucket counts. */
static int64_t middle_of(size_t bucket)
{
    size_t shift = bucket < 2 * STEPS ? 0 : bucket / STEPS - 1;
    int64_t begin = (int64_t)(bucket - shift * STEPS) << shift;

    return begin + ((INT64_C(1) << shift) >> 1);
}

static int64_t limit_of(size_t bar)
{
    int64_t limit = limits[bar % LIMITS];

    for (size_t i = 0; i < bar / LIMITS; i++)
        limit *= 10;
    return limit;
}

static size_t bar_of(int64_t ns)
{
    size_t bar = 0;

    while (bar + 1 < BARS && ns >= limit_of(bar + 1))
        bar++;
    return bar;
}

static void histogram_add(struct histogram *histogram, int64_t ns)
{
    if (ns < 0)
        ns = 0;
    if (histogram->count == 0 || ns < histogram->least_ns)
        histogram->least_ns = ns;
    if (ns > histogram->most_ns)
        histogram->most_ns = ns;
    histogram->count++;
    histogram->buckets[bucket_of((uint64_t)ns)]++;
    histogram->bars[bar_of(ns)]++;
}

static int64_t within(const struct histogram *histogram, int64_t ns)
{
    if (ns < histogram->least_ns)
        return histogram->least_ns;
    return ns > histogram->most_ns ? histogram->most_ns : ns;
}

/* The time that the given share of all times, from 0 to 1, does not exceed; 0 if there are no times. */
static int64_t percentile(const struct histogram *histogram, double share)
{
    double wanted = share * (double)histogram->count;
    uint64_t seen = 0;

    for (size_t i = 0; i < BUCKETS; i++) {
        seen += histogram->buckets[i];
        if (seen > 0 && (double)seen >= wanted)
            return within(histogram, middle_of(i));
    }
    return histogram->most_ns;
}

/* ---------------------------------------------------------------------- text */

enum part { ACQUIRE, RELEASE, HAND_OVER, PARTS };

static const struct {
    const char *name, *key; /* key: in JSON */
} parts[PARTS] = {{"acquire", "acquire"}, {"release", "release"}, {"hand-over", "handover"}};

static const struct {
    const char *head, *key;
    double share;
} percentiles[] = {
    {"p50", "p50_us", 0.5}, {"p90", "p90_us", 0.9}, {"p99", "p99_us", 0.99}, {"p99.9", "p99_9_us", 0.999}};

#define PERCENTILES (sizeof percentiles / sizeof percentiles[0])

static const char *show(char out[TIME_MAX], int64_t ns)
{
    if (ns < 1000000)
        snprintf(out, TIME_MAX, ns < 10000 ? "%.1fus" : "%.0fus", (double)ns / 1e3);
    else if (ns < 1000000000)
        snprintf(out, TIME_MAX, ns < 10000000 ? "%.2fms" : "%.0fms", (double)ns / 1e6);
    else
        snprintf(out, TIME_MAX, "%.2fs", (double)ns / 1e9);
    return out;
}

static void print_row(const char *name, const struct histogram *times)
{
    char text[TIME_MAX];

    printf("%-9s  %8" PRIu64, name, times->count);
    if (times->count > 0) {
        printf("  %7s", show(text, times->least_ns));
        for (size_t i = 0; i < PERCENTILES; i++)
            printf("  %7s", show(text, percentile(times, percentiles[i].share)));
        printf("  %7s", show(text, times->most_ns));
    }
    putchar('\n');
}

/* The length of a bar is in proportion to its count; the largest count of a part has the longest bar. */
static void print_bar(uint64_t count, uint64_t most)
{
    int length = most ? (int)(count * BAR / most) : 0;

    fputs("  ", stdout);
    for (int i = 0; i < BAR; i++)
        putchar(i < length ? '#' : i == 0 && count > 0 ? '.' : ' ');
    printf(" %7" PRIu64, count);
}

/* Prints the bars of all parts side by side, from the first that counts anything to the last. */
static void print_bars(const struct histogram times[PARTS])
{
    size_t first = BARS, last = 0;
    uint64_t most[PARTS] = {0};
    char text[TIME_MAX];

    printf("\n%8s", "from");
    for (int part = 0; part < PARTS; part++) {
        printf("  %-*s", part + 1 < PARTS ? BAR + 8 : 0, parts[part].name);
        for (size_t i = 0; i < BARS; i++) {
            uint64_t count = times[part].bars[i];
            most[part] = count > most[part] ? count : most[part];
            first = count && i < first ? i : first;
            last = count && i > last ? i : last;
        }
    }
    putchar('\n');
    for (size_t row = first; row <= last; row++) {
        printf("%8s", show(text, limit_of(row)));
        for (int part = 0; part < PARTS; part++)
            print_bar(times[part].bars[row], most[part]);
        putchar('\n');
    }
}

static void print_text(const struct histogram times[PARTS])
{
    printf("%-9s  %8s  %7s", "", "count", "min");
    for (size_t i = 0; i < PERCENTILES; i++)
        printf("  %7s", percentiles[i].head);
    printf("  %7s\n", "max");
    for (int part = 0; part < PARTS; part++)
        print_row(parts[part].name, &times[part]);
    print_bars(times);
}

/* ---------------------------------------------------------------------- JSON */

static void bars_json(const struct histogram *times)
{
    cli_json_open("histogram", '[');
    for (size_t i = 0; i < BARS; i++) {
        if (times->bars[i] == 0)
            continue;
        cli_json_open(NULL, '{');
        cli_json_us("from_us", limit_of(i));
        cli_json_us("to_us", limit_of(i + 1));
        cli_json_int("count", (int64_t)times->bars[i]);
        cli_json_close('}');
    }
    cli_json_close(']');
}

static void part_json(const char *key, const struct histogram *times)
{
    bool any = times->count > 0;

    cli_json_open(key, '{');
    cli_json_int("count", (int64_t)times->count);
    cli_json_us("min_us", any ? times->least_ns : -1);
    for (size_t i = 0; i < PERCENTILES; i++)
        cli_json_us(percentiles[i].key, any ? percentile(times, percentiles[i].share) : -1);
    cli_json_us("max_us", any ? times->most_ns : -1);
    bars_json(times);
    cli_json_close('}');
}

static void print_json(const struct histogram times[PARTS], bool interrupted)
{
    cli_json_open(NULL, '{');
    cli_json_bool("interrupted", interrupted);
    for (int part = 0; part < PARTS; part++)
        part_json(parts[part].key, &times[part]);
    cli_json_close('}');
}

/* -------------------------------------------------------------------- measures */

/* One of two runtimes that pass a lock to one another, each used by a thread of its own. */
struct side {
    dibs_runtime *rt;
    dibs_status status; /* its thread only */
    char why[512];      /* its thread only: the error */
};

static struct {
    char name[CLI_OWN_NAME_MAX];
    pthread_mutex_t mutex;
    struct histogram times[PARTS]; /* HAND_OVER: guarded by mutex while the threads run; else main thread only */
    struct side sides[2];
    int64_t end_ns;                   /* read-only while the threads run */
    _Atomic int64_t released_ns;      /* when the last release began */
    struct side *_Atomic released_by; /* the side that began it; NULL: it is not measured */
    _Atomic bool failed;              /* one of the sides has failed */
} bench = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static _Atomic int signal_number;      /* atomic, not a sig_atomic_t, because both threads read it */
static _Atomic int64_t interrupted_ns; /* when the first signal came */

/* timeout(1) sends its signal twice in a row, to the process and to its group; one that comes later is meant. */
static void on_signal(int number)
{
    int64_t now = cli_now_ns();

    if (!signal_number) {
        interrupted_ns = now;
        signal_number = number;
    } else if (now - interrupted_ns >= AGAIN_NS) {
        signal(number, SIG_DFL);
        raise(number);
    }
}

static bool over(void)
{
    return signal_number || cli_now_ns() >= bench.end_ns;
}

static void pause_ns(long ns)
{
    const struct timespec length = {.tv_nsec = ns};

    nanosleep(&length, NULL);
}

/* --------------------------------------------------------- acquire and release */

static dibs_status measure_once(bool counts)
{
    dibs_runtime *rt = bench.sides[0].rt;
    int64_t begin = cli_now_ns();
    dibs_status status = dibs_lock(rt, bench.name);
    int64_t middle = cli_now_ns();

    if (status == DIBS_OK)
        status = dibs_unlock(rt, bench.name);
    if (status == DIBS_OK && counts) {
        histogram_add(&bench.times[ACQUIRE], middle - begin);
        histogram_add(&bench.times[RELEASE], cli_now_ns() - middle);
    }
    return status;
}

static dibs_status measure_alone(void)
{
    dibs_status status = DIBS_OK;

    for (int i = 0; i < WARM_UP && status == DIBS_OK && !signal_number; i++)
        status = measure_once(false);
    bench.end_ns = cli_now_ns() + given.length_ms * NS_OF_MS * 2 / 5;
    while (status == DIBS_OK && !over())
        status = measure_once(true);
    return status;
}

/* ------------------------------------------------------------------ hand-over */

/* Returns when the other side waits for the lock, the time is over, or one of the sides has failed. */
static dibs_status await_waiter(struct side *side)
{
    dibs_owner owner;
    dibs_status status = DIBS_OK;

    while (!over() && !bench.failed && status == DIBS_OK) {
        status = dibs_query(side->rt, bench.name, &owner);
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
    dibs_status status = dibs_timedlock(side->rt, bench.name, WAIT_MS);

    if (status != DIBS_OK)
        return status;
    int64_t now = cli_now_ns();
    const struct side *by = bench.released_by;
    pthread_mutex_lock(&bench.mutex);
    if (by && by != side)
        histogram_add(&bench.times[HAND_OVER], now - bench.released_ns);
    pthread_mutex_unlock(&bench.mutex);
    status = await_waiter(side);
    bench.released_by = over() || status != DIBS_OK ? NULL : side;
    bench.released_ns = cli_now_ns();
    dibs_status released = dibs_unlock(side->rt, bench.name);
    return status != DIBS_OK ? status : released;
}

static void *run_side(void *arg)
{
    struct side *side = arg;

    while (side->status == DIBS_OK && !over() && !bench.failed)
        side->status = hand_over(side);
    if (side->status != DIBS_OK) {
        snprintf(side->why, sizeof side->why, "%s", dibs_last_error());
        bench.failed = true;
    }
    return NULL;
}

static int measure_handovers(void)
{
    struct cli_thread other;

    cli_note("measuring hand-over between two runtimes");
    bench.end_ns = cli_now_ns() + given.length_ms * NS_OF_MS * 3 / 5;
    if (!cli_thread_start(&other, run_side, &bench.sides[1])) {
        cli_error("no thread can be started");
        return CLI_SYSTEM;
    }
    run_side(&bench.sides[0]);
    cli_thread_end(&other);
    for (int i = 0; i < 2; i++) {
        if (bench.sides[i].status != DIBS_OK) {
            cli_warn("%s", bench.sides[i].why);
            return cli_exit_of(bench.sides[i].status);
        }
    }
    return CLI_OK;
}

/* -------------------------------------------------------------------- command */

static int measure(void)
{
    cli_common.config.lease_ms = LEASE_MS;
    dibs_status status = cli_open(&bench.sides[0].rt);

    if (status == DIBS_OK)
        status = cli_open(&bench.sides[1].rt);
    if (status != DIBS_OK)
        return cli_failed(status);
    cli_catch_ends(on_signal);
    cli_make_name(bench.name, "bench");
    cli_note("measuring acquire and release of \"%s\"", bench.name);
    status = measure_alone();
    if (status != DIBS_OK)
        return cli_failed(status);
    return signal_number ? CLI_OK : measure_handovers();
}

static int run(char **words)
{
    int result;

    (void)words;
    result = measure();
    if (*bench.name)
        (void)dibs_forget(bench.sides[0].rt, bench.name); /* what a failed call leaves expires */
    dibs_close(bench.sides[0].rt);
    dibs_close(bench.sides[1].rt);
    if (result == CLI_OK && given.json)
        print_json(bench.times, signal_number != 0);
    else if (result == CLI_OK)
        print_text(bench.times);
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
