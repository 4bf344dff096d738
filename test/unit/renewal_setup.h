/* What the store was asked to renew: shared by the renewal tests. */
#ifndef DIBS_TEST_RENEWAL_SETUP_H
#define DIBS_TEST_RENEWAL_SETUP_H

#include "support/stage.h"

#define LEASE 30000 /* ms; a third: 10 s */

static const dibs_lock_options fixed = {.flags = DIBS_FIXED_LEASE};

static inline unsigned renewals(stage *s)
{
    return faults_count(&s->faults, &s->faults.renewals);
}

/* That much later, so many were sent in all. */
static inline void expect_renewals_after(stage *s, int64_t ns, unsigned count)
{
    stage_advance(s, ns);
    assert_int_equal(renewals(s), count);
}

static inline unsigned batches(stage *s)
{
    return faults_count(&s->faults, &s->faults.batches);
}

static inline struct renewal_record last_renewal(stage *s)
{
    unsigned count = renewals(s);

    assert_true(count > 0);
    return s->faults.records[count - 1];
}

static inline void lock_many(stage *s, unsigned count)
{
    char name[32];

    for (unsigned i = 0; i < count; i++) {
        snprintf(name, sizeof name, "many-%u", i);
        assert_status(DIBS_OK, dibs_lock(s->rt, name));
    }
}

#endif
