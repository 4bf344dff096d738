/* dibs, run as the other locks of this folder are. "run" and "shared" say what the arguments and the lines of input
 * mean. */
#include <dibs.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "peers/dibs/shared.h"
#include "support/bench.h"
#include "support/common/cleanup.h"
#include "support/common/timing.h"

enum { LINE_SIZE = 512, NAME_SIZE = 128, NESTED_BATCH = 100, GRACE_MS = 2000 };

static dibs_runtime *runtime;

/* ------------------------------------------------------------------- crowd */

struct contender {
    char name[NAME_SIZE];
    int file; /* -1: a name of its own, nothing to count */
    atomic_ulong acquires;
};

static atomic_bool over;
static atomic_uint ended;

/* The increment that two holders at once would spoil. */
static void count_in_file(int file)
{
    uint64_t count = 0;

    if (pread(file, &count, sizeof count, 0) != sizeof count)
        cleanup_fail("the counter cannot be read");
    count++;
    if (pwrite(file, &count, sizeof count, 0) != sizeof count)
        cleanup_fail("the counter cannot be written");
}

static void *contend(void *arg)
{
    struct contender *contender = arg;

    while (!atomic_load(&over)) {
        must(dibs_lock(runtime, contender->name));
        if (!atomic_load(&over)) {
            if (contender->file >= 0)
                count_in_file(contender->file);
            atomic_fetch_add(&contender->acquires, 1);
        }
        must(dibs_unlock(runtime, contender->name));
    }
    atomic_fetch_add(&ended, 1);
    return NULL;
}

/* Gives up when none of them has ended for GRACE_MS. Returns how many have not. */
static unsigned await_end(unsigned count)
{
    unsigned before = 0, now;
    double limit = now_ns() + GRACE_MS * 1e6;

    while ((now = atomic_load(&ended)) < count && now_ns() < limit) {
        if (now > before)
            limit = now_ns() + GRACE_MS * 1e6;
        before = now;
        pause_us(1000);
    }
    return count - now;
}

static void show_crowd(const struct contender *contenders, unsigned count, double ns, unsigned stuck)
{
    printf("{\"seconds\": %.6f, \"gave_up\": 0, \"stuck\": %u, \"acquires\": [", ns / 1e9, stuck);
    for (unsigned i = 0; i < count; i++)
        printf(i ? ", %lu" : "%lu", atomic_load(&contenders[i].acquires));
    puts("]}");
}

static void crowd(const char *name, const char *path, unsigned count, double seconds)
{
    struct contender *contenders = calloc(count, sizeof *contenders);
    pthread_t *threads = calloc(count, sizeof *threads);
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;

    if (!contenders || !threads || (path && file < 0))
        cleanup_fail("no memory, or no file %s", path ? path : "");
    atomic_store(&over, false);
    atomic_store(&ended, 0);
    double start = now_ns();
    for (unsigned i = 0; i < count; i++) {
        contenders[i].file = file;
        snprintf(contenders[i].name, NAME_SIZE, path ? "%s" : "%s:%u", name, i);
        threads[i] = bench_thread(contend, &contenders[i]);
    }
    pause_us((uint64_t)(seconds * 1e6));
    atomic_store(&over, true);
    double ns = now_ns() - start;
    unsigned stuck = await_end(count);
    show_crowd(contenders, count, ns, stuck);
    if (stuck)
        cleanup_exit(0);
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    if (file >= 0)
        close(file);
    free(threads);
    free(contenders);
}

/* ------------------------------------------------------------ nested, hold */

static void nested(const char *name, double seconds)
{
    unsigned long pairs = 0;

    must(dibs_lock(runtime, name));
    double start = now_ns(), ns = 0;
    while (ns < seconds * 1e9) {
        for (int i = 0; i < NESTED_BATCH; i++) {
            must(dibs_lock(runtime, name));
            must(dibs_unlock(runtime, name));
        }
        pairs += NESTED_BATCH;
        ns = now_ns() - start;
    }
    must(dibs_unlock(runtime, name));
    printf("{\"seconds\": %.6f, \"pairs\": %lu}\n", ns / 1e9, pairs);
}

static void hold(const char *base, unsigned count, bool take)
{
    char name[NAME_SIZE];
    uint64_t called = clock_ns();

    for (unsigned i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%s:%u", base, i);
        must(take ? dibs_lock(runtime, name) : dibs_unlock(runtime, name));
    }
    printf("%llu\n", (unsigned long long)(take ? clock_ns() : called));
}

/* ----------------------------------------------------------------- program */

static void run_line(char *line, char **argv, bool odd)
{
    char *rest = NULL, *first = strtok_r(line, " \n", &rest), *second = strtok_r(NULL, " \n", &rest);
    double seconds = strtod(argv[5], NULL);
    unsigned count = (unsigned)strtoul(argv[4], NULL, 10);

    if (!first)
        cleanup_fail("a line without a name");
    if (shared_knows(argv[1]))
        shared_run(runtime, argv[1], first, second, count, seconds);
    else if (strcmp(argv[1], "crowd") == 0)
        crowd(first, second, count, seconds);
    else if (strcmp(argv[1], "nested") == 0)
        nested(first, seconds);
    else
        hold(first, count, odd);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    char line[LINE_SIZE];

    if (argc != 6) {
        fputs("Usage: dibs crowd|nested|hold|read|write|permit|several URL LEASE_MS COUNT SECONDS\n", stderr);
        return 2;
    }
    const char *urls[] = {argv[2]};
    dibs_config config = {.urls = urls, .url_count = 1, .lease_ms = (uint32_t)strtoul(argv[3], NULL, 10)};
    must(dibs_open(&runtime, &config));
    puts("ready");
    fflush(stdout);
    for (bool odd = true; fgets(line, sizeof line, stdin); odd = !odd)
        run_line(line, argv, odd);
    dibs_close(runtime);
    return 0;
}
