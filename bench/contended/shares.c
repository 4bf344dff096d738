/* What share of the acquires each of several processes gets. */
#include <dibs.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "contended/part.h"
#include "support/bench.h"
#include "support/common/timing.h"
#include "support/options.h"
#include "support/team.h"

enum { PROCESSES = 4, SHARERS = 8, SHARE_MS = 5000 };

struct shares {
    atomic_uint arrived;
    atomic_bool over;
    atomic_ulong acquires[PROCESSES];
};

struct sharer {
    pthread_t thread;
    struct shares *page;
    dibs_runtime *runtime;
    unsigned process;
};

static void *take_share(void *arg)
{
    struct sharer *sharer = arg;
    unsigned long acquires = 0;

    team_meet(&sharer->page->arrived, PROCESSES * SHARERS + 1);
    for (;;) {
        must(dibs_lock(sharer->runtime, "shares"));
        bool over = atomic_load(&sharer->page->over);
        must(dibs_unlock(sharer->runtime, "shares"));
        if (over)
            break;
        acquires++;
    }
    atomic_fetch_add(&sharer->page->acquires[sharer->process], acquires);
    return NULL;
}

static void share(unsigned number, void *memory)
{
    struct shares *page = memory;
    struct sharer sharers[SHARERS];
    dibs_runtime *runtime = bench_open(0);

    for (unsigned i = 0; i < SHARERS; i++) {
        sharers[i] = (struct sharer){.page = page, .runtime = runtime, .process = number};
        sharers[i].thread = bench_thread(take_share, &sharers[i]);
    }
    if (number == 0) { /* keeps the time for all */
        team_meet(&page->arrived, PROCESSES * SHARERS + 1);
        pause_us(bench_scaled(SHARE_MS) * UINT64_C(1000));
        atomic_store(&page->over, true);
    }
    for (unsigned i = 0; i < SHARERS; i++)
        pthread_join(sharers[i].thread, NULL);
    dibs_close(runtime);
}

static bool show_shares(void *memory)
{
    struct shares *page = memory;
    double total = 0, least = 100, most = 0;

    for (unsigned i = 0; i < PROCESSES; i++)
        total += (double)atomic_load(&page->acquires[i]);
    for (unsigned i = 0; i < PROCESSES; i++) {
        double acquires = (double)atomic_load(&page->acquires[i]), percent = total > 0 ? 100 * acquires / total : 0;
        printf("  process %u %9.0f acquires %6.2f %%\n", i + 1, acquires, percent);
        least = percent < least ? percent : least;
        most = percent > most ? percent : most;
    }
    printf("  in all    %9.0f acquires, %.0f a second\n", total, total * 1000 / bench_scaled(SHARE_MS));
    bool holds = at_least("smallest share", least, 15, " %");
    return at_most("largest share", most, 35, " %") && holds;
}

const struct part shares_part = {
    .name = "shares",
    .title = "4 processes of 8 threads, 5 s",
    .processes = PROCESSES,
    .limit_s = 60,
    .memory = sizeof(struct shares),
    .work = share,
    .show = show_shares,
};
