/*
 * A counter that must stop at ten, and a hundred threads that raise it.
 *
 * Every thread gets into the lock once. Inside it reads the counter (GET); if
 * that is ten already it leaves at once; else it does its work (10 ms) and
 * raises the counter (INCR). So the lock alone keeps it from passing ten.
 *
 * Work may take longer than the lease (50 ms). At each of five points a thread
 * that works is held up for 15 ms more, by chance (85 %), as it might be by a
 * page fault, a garbage collector or a slow reply: at four points between
 * reading and raising the counter, and at one in the middle of releasing,
 * before the command that deletes the lock (where GET compares first: behind
 * it). Three delays before the counter is raised outlast the lease. All ways
 * get the same treatment; the delays are sleeps, drawn from a seeded generator,
 * and nothing else is arranged.
 *
 * The ways:
 *   del      SET NX PX; DEL. Retries every 10 ms.
 *   compare  SET NX PX; GET, compare with the owner's token, DEL. The same.
 *   script   SET NX PX; the comparison and the DEL in one Lua script. The same.
 *   dibs     dibs_lock, dibs_check before the counter is raised, dibs_unlock;
 *            a thread that lost its lease does not raise the counter.
 *
 * Shown for each: the counter at the end of each round, how many threads were
 * inside at once at most, how many holds lasted longer than the lease, how
 * many releases deleted a lock that belonged to another. That last number is
 * known from the value that the same transaction or script saw; for dibs, an
 * unlock that says it released while another thread was inside counts.
 *
 * Exit status: 0 if dibs stopped at ten in every round and every other way
 * passed it in at least one; 1 if not; 2 if the race could not be run.
 */
#include <dibs.h>

#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "race/picture.h"
#include "support/common/cleanup.h"
#include "support/common/naive_lock.h"
#include "support/common/private_redis.h"
#include "support/common/redis_connect.h"
#include "support/common/timing.h"

enum { LIMIT = 10, STALLS_INSIDE = 4, RETRY_MS = 10, KEY_LIFE_S = 600, MAX_THREADS = 900, MAX_ROUNDS = 100 };

static const struct way {
    const char *name;
    const char *title;
    bool uses_dibs;
    enum naive_release release;
} ways[] = {
    {"del", "SET NX PX, DEL", false, NAIVE_DEL},
    {"compare", "SET NX PX, GET + compare, DEL", false, NAIVE_COMPARE},
    {"script", "SET NX PX, compare + DEL in Lua", false, NAIVE_SCRIPT},
    {"dibs", "dibs", true, NAIVE_SCRIPT},
};
enum { WAY_COUNT = sizeof ways / sizeof *ways };

/* Read-only once the command line is read. */
static struct options {
    unsigned rounds, threads, lease_ms, work_ms, delay_ms, chance;
    uint64_t seed;
    const char *way; /* NULL: all */
    const char *svg; /* NULL: no picture */
} options = {.rounds = 5, .threads = 100, .lease_ms = 50, .work_ms = 10, .delay_ms = 15, .chance = 85};

/* Read-only once the server is there, until the cleaning up. */
static struct store {
    struct private_redis redis;
    const char *url;
    char name[64]; /* of the lock, for dibs */
    char lock_key[80];
    char counter_key[80];
} store;

/* What came of the rounds of one way. */
struct outcome {
    long long counts[MAX_ROUNDS]; /* main thread only */
    double seconds;               /* main thread only */
    atomic_int inside;
    atomic_int most_inside;
    atomic_int outlasted;
    atomic_int wrong_deletes;
    atomic_int lost;          /* dibs only */
    struct picture_bar *bars; /* of the first round, one for each thread, which writes its own; NULL: no picture */
};

struct racer {
    const struct way *way;
    struct outcome *outcome;
    dibs_runtime *rt; /* NULL but for dibs */
    redisContext *redis;
    uint64_t random;
    struct picture_bar *bar; /* NULL: no picture of this round */
    bool worked;             /* found the counter below its limit */
    char token[96];
    pthread_t thread;
};

/* The threads wait here until all of them are there. */
static struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t opened;
    bool open; /* guarded by mutex */
} gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};

/* ------------------------------------------------------------------ chance */

/* splitmix64 */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static void held_up_by_chance(void *arg)
{
    struct racer *racer = arg;

    if (racer->worked && next_random(&racer->random) % 100 < options.chance)
        pause_us(options.delay_ms * UINT64_C(1000));
}

/* ------------------------------------------------------------- the counter */

static long long read_counter(redisContext *redis)
{
    redisReply *reply = naive_command(redis, "GET %s", store.counter_key);
    long long value = reply->type == REDIS_REPLY_STRING ? strtoll(reply->str, NULL, 10) : 0;

    freeReplyObject(reply);
    return value;
}

/* The expiry goes out in the same packet: if the program is ended now, no key stays for ever. */
static void raise_counter(redisContext *redis)
{
    redisReply *reply;

    redisAppendCommand(redis, "INCR %s", store.counter_key);
    redisAppendCommand(redis, "EXPIRE %s %d", store.counter_key, KEY_LIFE_S);
    for (int i = 0; i < 2; i++) {
        if (redisGetReply(redis, (void **)&reply) != REDIS_OK)
            cleanup_fail("Redis: %s", redis->errstr);
        freeReplyObject(reply);
    }
}

/* -------------------------------------------------------------- one thread */

static void enter(struct outcome *outcome)
{
    int inside = atomic_fetch_add(&outcome->inside, 1) + 1;
    int most = atomic_load(&outcome->most_inside);

    while (inside > most && !atomic_compare_exchange_weak(&outcome->most_inside, &most, inside)) {
        /* another thread changed the value, which `most` now holds */
    }
}

/* The question that a program should ask before it does what cannot be undone. Only dibs can answer it. */
static bool still_owns(const struct racer *racer)
{
    return !racer->rt || dibs_check(racer->rt, store.name) == DIBS_OK;
}

static void critical_section(struct racer *racer)
{
    enter(racer->outcome);
    racer->worked = read_counter(racer->redis) < LIMIT;
    if (racer->worked) {
        pause_us(options.work_ms * UINT64_C(1000));
        for (int i = 0; i < STALLS_INSIDE; i++)
            held_up_by_chance(racer);
        if (still_owns(racer))
            raise_counter(racer->redis);
    }
    atomic_fetch_sub(&racer->outcome->inside, 1);
}

static void note_hold(struct racer *racer, double entered, double left, bool deleted_anothers)
{
    if (now_ns() - entered > options.lease_ms * 1e6)
        atomic_fetch_add(&racer->outcome->outlasted, 1);
    if (deleted_anothers)
        atomic_fetch_add(&racer->outcome->wrong_deletes, 1);
    if (racer->bar)
        *racer->bar = (struct picture_bar){entered, left, racer->worked, deleted_anothers};
}

static void race_naively(struct racer *racer)
{
    struct naive_lock lock = {racer->redis, store.lock_key, racer->token, options.lease_ms};
    double entered, left;

    while (!naive_try(&lock))
        pause_us(RETRY_MS * UINT64_C(1000));
    entered = now_ns();
    critical_section(racer);
    left = now_ns();
    bool anothers = naive_release(&lock, racer->way->release, held_up_by_chance, racer) == NAIVE_ANOTHERS;
    note_hold(racer, entered, left, anothers);
}

static void race_with_dibs(struct racer *racer)
{
    double entered, left;
    int others;
    dibs_status status;

    if (dibs_lock(racer->rt, store.name) != DIBS_OK)
        cleanup_fail("dibs_lock: %s", dibs_last_error());
    entered = now_ns();
    critical_section(racer);
    left = now_ns();
    held_up_by_chance(racer);
    others = atomic_load(&racer->outcome->inside);
    status = dibs_unlock(racer->rt, store.name);
    note_hold(racer, entered, left, status == DIBS_OK && others > 0);
    if (status == DIBS_LOST)
        atomic_fetch_add(&racer->outcome->lost, 1);
    else if (status != DIBS_OK)
        cleanup_fail("dibs_unlock: %s", dibs_last_error());
}

static void *race(void *arg)
{
    struct racer *racer = arg;

    racer->redis = redis_connect(store.url);
    if (!racer->redis)
        cleanup_exit(2);
    pthread_mutex_lock(&gate.mutex);
    while (!gate.open)
        pthread_cond_wait(&gate.opened, &gate.mutex);
    pthread_mutex_unlock(&gate.mutex);
    if (racer->rt)
        race_with_dibs(racer);
    else
        race_naively(racer);
    redisFree(racer->redis);
    return NULL;
}

/* --------------------------------------------------------------- one round */

static void open_gate(bool open)
{
    pthread_mutex_lock(&gate.mutex);
    gate.open = open;
    pthread_cond_broadcast(&gate.opened);
    pthread_mutex_unlock(&gate.mutex);
}

static void start_racers(struct racer *racers, const struct racer *model, unsigned round)
{
    for (unsigned i = 0; i < options.threads; i++) {
        uint64_t seed = options.seed ^ ((uint64_t)round << 32) ^ i;

        racers[i] = *model;
        racers[i].random = next_random(&seed);
        racers[i].bar = round == 0 && model->outcome->bars ? &model->outcome->bars[i] : NULL;
        snprintf(racers[i].token, sizeof racers[i].token, "%s/%s/%u/%u", store.name, model->way->name, round, i);
        if (pthread_create(&racers[i].thread, NULL, race, &racers[i]) != 0)
            cleanup_fail("no thread number %u could be started", i + 1);
    }
}

static long long run_round(redisContext *redis, const struct racer *model, unsigned round)
{
    struct racer *racers = calloc(options.threads, sizeof *racers);
    long long count;

    if (!racers)
        cleanup_fail("out of memory");
    freeReplyObject(naive_command(redis, "SET %s 0 EX %d", store.counter_key, KEY_LIFE_S));
    open_gate(false);
    start_racers(racers, model, round);
    open_gate(true);
    for (unsigned i = 0; i < options.threads; i++)
        pthread_join(racers[i].thread, NULL);
    count = read_counter(redis);
    free(racers);
    return count;
}

static void run_way(redisContext *redis, const struct way *way, struct outcome *outcome)
{
    dibs_config config = {.urls = &store.url, .url_count = 1, .lease_ms = options.lease_ms};
    struct racer model = {.way = way, .outcome = outcome};
    double started = now_ns();

    if (way->uses_dibs && dibs_open(&model.rt, &config) != DIBS_OK)
        cleanup_fail("dibs_open: %s", dibs_last_error());
    for (unsigned round = 0; round < options.rounds; round++)
        outcome->counts[round] = run_round(redis, &model, round);
    dibs_close(model.rt);
    outcome->seconds = (now_ns() - started) / 1e9;
}

/* --------------------------------------------------------------- the table */

static int counts_width(void)
{
    int width = (int)options.rounds * 3 + 1;

    return width > 20 ? width : 20;
}

static void print_head(void)
{
    printf("%u threads raise a counter that must stop at %d.\n", options.threads, LIMIT);
    printf("Lease %u ms, work %u ms, at each of %d points %u ms more with a chance of %u %%. Seed %llu.\n\n",
           options.lease_ms, options.work_ms, STALLS_INSIDE + 1, options.delay_ms, options.chance,
           (unsigned long long)options.seed);
    printf("%-31s  %-*s  %8s  %9s  %9s\n", "", counts_width(), "", "most", "outlasted", "deleted");
    printf("%-31s  %-*s  %8s  %9s  %9s  %7s\n", "way", counts_width(), "count, each round", "inside", "the lease",
           "another's", "time");
    fflush(stdout);
}

static void print_outcome(const struct way *way, struct outcome *outcome)
{
    int width = 0;

    printf("%-31s  ", way->title);
    for (unsigned i = 0; i < options.rounds; i++)
        width += printf("%2lld ", outcome->counts[i]);
    printf("%*s  %8d  %9d  %9d  %5.1f s\n", counts_width() - width, "", atomic_load(&outcome->most_inside),
           atomic_load(&outcome->outlasted), atomic_load(&outcome->wrong_deletes), outcome->seconds);
    if (atomic_load(&outcome->lost) > 0)
        printf("%-31s  %d leases were lost and noticed: the machine kept the process from renewing them\n", "",
               atomic_load(&outcome->lost));
    fflush(stdout);
}

/* Whether the way did what this demo says it does; says so on stderr if not. */
static bool as_expected(const struct way *way, const struct outcome *outcome)
{
    bool passed = false, exact = true;

    for (unsigned i = 0; i < options.rounds; i++) {
        passed |= outcome->counts[i] > LIMIT;
        exact &= outcome->counts[i] == LIMIT;
    }
    if (way->uses_dibs && !exact)
        fprintf(stderr, "%s: the counter did not stop at %d in every round\n", way->title, LIMIT);
    if (!way->uses_dibs && !passed)
        fprintf(stderr, "%s: the counter never passed %d\n", way->title, LIMIT);
    return way->uses_dibs ? exact : passed;
}

/* ------------------------------------------------------------ command line */

static noreturn void usage(int status)
{
    fprintf(status ? stderr : stdout,
            "usage: counter_race [options]\n"
            "\n"
            "A counter in Redis must stop at %d. Every thread gets into a lock once; inside it reads the counter and,\n"
            "if that is below %d, works and raises it. At each of %d points, %d between reading and raising and one\n"
            "amid releasing, it is held up for a while by chance, so that work may outlast the lease. The lock is\n"
            "taken in four ways: three with bare Redis commands, and dibs.\n"
            "\n"
            "  --rounds N     of each way (5)\n"
            "  --threads N    (100)\n"
            "  --lease MS     (50)\n"
            "  --work MS      (10)\n"
            "  --delay MS     how long a thread is held up at a point (15)\n"
            "  --chance PCT   and how likely (85)\n"
            "  --seed N       of the chance (the time)\n"
            "  --way NAME     del, compare, script or dibs only (all of them)\n"
            "  --svg FILE     draws the first round of each way\n"
            "  --help\n"
            "\n"
            "Uses the Redis server of $DIBS_URL, else starts one of its own on a Unix socket.\n"
            "Exit status: 0 if dibs stopped at %d in every round and the others each passed it, 1 if not.\n",
            LIMIT, LIMIT, STALLS_INSIDE + 1, STALLS_INSIDE, LIMIT);
    exit(status);
}

static uint64_t number(const char *option, const char *text, uint64_t least, uint64_t most)
{
    char *end;
    unsigned long long value;

    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno || end == text || *end || *text == '-' || value < least || value > most) {
        fprintf(stderr, "--%s: a number from %llu to %llu, not \"%s\"\n", option, (unsigned long long)least,
                (unsigned long long)most, text);
        exit(2);
    }
    return value;
}

static const char *known_way(const char *name)
{
    for (size_t i = 0; i < WAY_COUNT; i++)
        if (strcmp(ways[i].name, name) == 0)
            return name;
    fprintf(stderr, "--way: del, compare, script or dibs, not \"%s\"\n", name);
    exit(2);
}

static void read_options(int argc, char **argv)
{
    static const struct option known[] = {{"rounds", required_argument, NULL, 'r'},
                                          {"threads", required_argument, NULL, 't'},
                                          {"lease", required_argument, NULL, 'l'},
                                          {"work", required_argument, NULL, 'w'},
                                          {"delay", required_argument, NULL, 'd'},
                                          {"chance", required_argument, NULL, 'c'},
                                          {"seed", required_argument, NULL, 's'},
                                          {"way", required_argument, NULL, 'y'},
                                          {"svg", required_argument, NULL, 'p'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    int option;

    options.seed = (uint64_t)time(NULL);
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (option) {
        case 'r':
            options.rounds = (unsigned)number("rounds", optarg, 1, MAX_ROUNDS);
            break;
        case 't':
            options.threads = (unsigned)number("threads", optarg, 1, MAX_THREADS);
            break;
        case 'l':
            options.lease_ms = (unsigned)number("lease", optarg, 20, 3600000);
            break;
        case 'w':
            options.work_ms = (unsigned)number("work", optarg, 0, 3600000);
            break;
        case 'd':
            options.delay_ms = (unsigned)number("delay", optarg, 0, 3600000);
            break;
        case 'c':
            options.chance = (unsigned)number("chance", optarg, 0, 100);
            break;
        case 's':
            options.seed = number("seed", optarg, 0, UINT64_MAX);
            break;
        case 'y':
            options.way = known_way(optarg);
            break;
        case 'p':
            options.svg = optarg;
            break;
        case 'h':
            usage(0);
        default:
            usage(2);
        }
    }
    if (optind < argc)
        usage(2);
}

/* --------------------------------------------------------------- the store */

static void name_keys(void)
{
    uint64_t mix = (uint64_t)time(NULL) ^ ((uint64_t)getpid() << 32);

    snprintf(store.name, sizeof store.name, "counter_race:%016llx", (unsigned long long)next_random(&mix));
    snprintf(store.lock_key, sizeof store.lock_key, "lock:%s", store.name);
    snprintf(store.counter_key, sizeof store.counter_key, "%s:count", store.name);
}

/*
 * On a server that this program did not start, the keys are deleted, and nothing else; what dibs keeps beside a lock
 * expires.
 */
static void clean_up(void *unused)
{
    redisContext *redis;

    (void)unused;
    if (store.url && store.url != store.redis.url) {
        redis = redis_connect(store.url);
        if (redis) {
            freeReplyObject(redisCommand(redis, "DEL %s %s", store.lock_key, store.counter_key));
            redisFree(redis);
        }
    }
    private_redis_stop(&store.redis);
}

static redisContext *open_store(void)
{
    const char *url = getenv("DIBS_URL");
    redisContext *redis;

    name_keys();
    cleanup_install(clean_up, NULL);
    if (!url || !*url) {
        if (!private_redis_start(&store.redis))
            cleanup_exit(2);
        url = store.redis.url;
    }
    redis = redis_connect(url);
    if (!redis)
        cleanup_exit(2);
    store.url = url;
    return redis;
}

/* -------------------------------------------------------------- the picture */

static void draw(const struct outcome *outcomes)
{
    struct picture_strip strips[WAY_COUNT];
    size_t count = 0;
    FILE *out = fopen(options.svg, "w");

    if (!out)
        cleanup_fail("%s: %s", options.svg, strerror(errno));
    for (size_t i = 0; i < WAY_COUNT; i++) {
        if (!outcomes[i].bars)
            continue;
        struct picture_strip *strip = &strips[count++];
        snprintf(strip->title, sizeof strip->title, "%s: the counter ends at %lld", ways[i].title,
                 outcomes[i].counts[0]);
        strip->lease_ns = options.lease_ms * 1e6;
        strip->bars = outcomes[i].bars;
        strip->count = options.threads;
    }
    if (!picture_write(out, strips, count))
        cleanup_fail("out of memory");
    if (fclose(out) != 0)
        cleanup_fail("%s: %s", options.svg, strerror(errno));
}

int main(int argc, char **argv)
{
    static struct outcome outcomes[WAY_COUNT];
    redisContext *redis;
    bool good = true;

    read_options(argc, argv);
    redis = open_store();
    print_head();
    for (size_t i = 0; i < WAY_COUNT; i++) {
        struct outcome *outcome = &outcomes[i];

        if (options.way && strcmp(options.way, ways[i].name) != 0)
            continue;
        if (options.svg && !(outcome->bars = calloc(options.threads, sizeof *outcome->bars)))
            cleanup_fail("out of memory");
        run_way(redis, &ways[i], outcome);
        print_outcome(&ways[i], outcome);
        good &= as_expected(&ways[i], outcome);
    }
    if (options.svg)
        draw(outcomes);
    for (size_t i = 0; i < WAY_COUNT; i++)
        free(outcomes[i].bars);
    redisFree(redis);
    cleanup_exit(good ? 0 : 1);
}
