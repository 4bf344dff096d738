/* What the tests of kept leases share: a runtime that keeps, others that do not, and a name that is kept. */
#ifndef DIBS_TEST_KEPT_SETUP_H
#define DIBS_TEST_KEPT_SETUP_H

#include "support/fixture.h"
#include "support/tracking.h"

#define KEEP_LONG_MS 60000 /* no unused lease is given back while a test runs */
#define IN_A_ROW 4

/* f->rt keeps leases for so long. */
static inline void open_keeping(fixture *f, uint32_t keep_ms)
{
    f->config.keep_ms = keep_ms;
    open_tracking(f, 0);
}

struct keeping {
    dibs_runtime *rt;
    const char *name;
    uint64_t retaken, sent; /* as dibs_stats, before */
};

static inline bool retakes(void *arg)
{
    struct keeping *k = arg;

    lock_and_release(k->rt, k->name, DIBS_WAIT_FOREVER);
    return stats_of(k->rt).retaken > k->retaken;
}

/* Locks the name until the lease is kept: the server tells of changes by then. */
static inline void keep(dibs_runtime *rt, const char *name)
{
    struct keeping k = {.rt = rt, .name = name, .retaken = stats_of(rt).retaken};

    assert_true(wait_until(retakes, &k, LIMIT_MS));
}

static inline bool shows_kept(void *arg)
{
    struct keeping *k = arg;

    return owner_of(k->rt, k->name).kept;
}

static inline void await_shown_kept(dibs_runtime *rt, const char *name)
{
    assert_true(wait_until(shows_kept, &(struct keeping){.rt = rt, .name = name}, LIMIT_MS));
}

static inline bool keeps_none(void *rt)
{
    return stats_of(rt).kept == 0;
}

static inline void await_none_kept(dibs_runtime *rt)
{
    assert_true(wait_until(keeps_none, rt, LIMIT_MS));
}

#endif
