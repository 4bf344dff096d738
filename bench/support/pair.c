#include "support/pair.h"

#include <stdio.h>

#include "support/common/cleanup.h"

const char *const pair_kind_name[] = {"plain hiredis", "dibs", "dibs without polling", "hiredis that polls",
                                      "the least with a fence"};

static bool is_plain(enum pair_kind kind)
{
    return kind == PAIR_PLAIN || kind == PAIR_POLLING || kind == PAIR_LEAST;
}

dibs_runtime *pair_runtime(enum pair_kind kind)
{
    if (kind == PAIR_SLEEPING)
        return bench_open_with((dibs_config){.spin_us = DIBS_NO_SPIN});
    return is_plain(kind) ? NULL : bench_open(0);
}

void pair_open(struct pair *pair, enum pair_kind kind, dibs_runtime *runtime, unsigned number)
{
    *pair = (struct pair){.kind = kind, .runtime = runtime, .number = number};
    snprintf(pair->name, sizeof pair->name, "pair:%u", number);
    if (is_plain(kind))
        plain_open(&pair->plain, kind == PAIR_POLLING);
}

void pair_close(struct pair *pair)
{
    if (is_plain(pair->kind))
        plain_close(&pair->plain);
}

static void run_plain(struct pair *pair)
{
    bool fenced = pair->kind == PAIR_LEAST;

    snprintf(pair->token, sizeof pair->token, "%u:%lu", pair->number, pair->count);
    if (!(fenced ? plain_lock_fenced : plain_lock)(&pair->plain, pair->name, pair->token))
        cleanup_fail("the lock %s of plain hiredis is not free", pair->name);
    if (!(fenced ? plain_unlock_fenced : plain_unlock)(&pair->plain, pair->name, pair->token))
        cleanup_fail("the lock %s of plain hiredis was lost", pair->name);
}

void pair_run(struct pair *pair)
{
    pair->count++;
    if (is_plain(pair->kind)) {
        run_plain(pair);
        return;
    }
    must(dibs_lock(pair->runtime, pair->name));
    must(dibs_unlock(pair->runtime, pair->name));
}
