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
    fixture_open_patient(f, 0);
}

static inline bool retakes(dibs_runtime *rt, const char *name, uint64_t retaken)
{
    lock_and_release(rt, name, DIBS_WAIT_FOREVER);
    return stats_of(rt).retaken > retaken;
}

/* Locks the name until the lease is kept: the server tells of changes by then. */
static inline void keep(dibs_runtime *rt, const char *name)
{
    uint64_t before = stats_of(rt).retaken;

    await_that(retakes(rt, name, before));
}

static inline void await_shown_kept(dibs_runtime *rt, const char *name)
{
    await_that(owner_of(rt, name).kept);
}

static inline void await_none_kept(dibs_runtime *rt)
{
    await_that(stats_of(rt).kept == 0);
}

#endif
