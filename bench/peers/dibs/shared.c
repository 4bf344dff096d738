#include "peers/dibs/shared.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "support/bench.h"
#include "support/common/cleanup.h"
#include "support/common/timing.h"

enum { MOST = 64, NAME_SIZE = 128 };

struct wanted {
    dibs_runtime *runtime;
    char texts[MOST][NAME_SIZE];
    const char *names[MOST];
    unsigned count; /* of the names */
    dibs_lock_options options;
    atomic_bool over;
    atomic_ulong pairs;
};

static void take(const struct wanted *wanted)
{
    if (wanted->count > 1)
        must(dibs_lock_names(wanted->runtime, wanted->names, wanted->count, DIBS_WAIT_FOREVER, NULL));
    else
        must(dibs_lock_with(wanted->runtime, wanted->names[0], DIBS_WAIT_FOREVER, &wanted->options));
}

static void give_back(const struct wanted *wanted)
{
    must(dibs_unlock_names(wanted->runtime, wanted->names, wanted->count));
}

static void *make_pairs(void *arg)
{
    struct wanted *wanted = arg;

    while (!atomic_load(&wanted->over)) {
        take(wanted);
        give_back(wanted);
        atomic_fetch_add(&wanted->pairs, 1);
    }
    return NULL;
}

static void run_threads(struct wanted *wanted, unsigned count, double seconds)
{
    pthread_t threads[MOST];
    double start = now_ns();

    for (unsigned i = 0; i < count; i++)
        threads[i] = bench_thread(make_pairs, wanted);
    pause_us((uint64_t)(seconds * 1e6));
    double ns = now_ns() - start;
    unsigned long pairs = atomic_load(&wanted->pairs);
    atomic_store(&wanted->over, true);
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    printf("{\"seconds\": %.6f, \"pairs\": %lu, \"stuck\": 0}\n", ns / 1e9, pairs);
}

bool shared_knows(const char *kind)
{
    return strcmp(kind, "read") == 0 || strcmp(kind, "write") == 0 || strcmp(kind, "permit") == 0 ||
           strcmp(kind, "several") == 0;
}

void shared_run(dibs_runtime *runtime, const char *kind, const char *order, const char *name, unsigned count,
                double seconds)
{
    bool several = strcmp(kind, "several") == 0, is_permit = strcmp(kind, "permit") == 0;
    struct wanted wanted = {.runtime = runtime, .count = several ? count : 1};

    if (!name || count > MOST)
        cleanup_fail("a line without a name, or too many");
    if (is_permit || strcmp(kind, "read") == 0)
        wanted.options = (dibs_lock_options){.flags = DIBS_SHARED, .limit = is_permit ? count : 0};
    for (unsigned i = 0; i < wanted.count; i++) {
        snprintf(wanted.texts[i], NAME_SIZE, several ? "%s:%u" : "%s", name, i);
        wanted.names[i] = wanted.texts[i];
    }
    if (strcmp(order, "go") == 0) {
        run_threads(&wanted, several ? 1 : count, seconds);
    } else {
        take(&wanted);
        puts("held");
    }
}
