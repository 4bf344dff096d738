/* The counters that a core keeps itself, for the statistics (stats_read.h). */
#ifndef DIBS_CORE_STATS_H
#define DIBS_CORE_STATS_H

#include <stdatomic.h>
#include <stdint.h>

/* The counters that have the name of their field of dibs_stats. */
#define DIBS__STATS_MAP(XX)                                                                                            \
    XX(busy)                                                                                                           \
    XX(timed_out)                                                                                                      \
    XX(contended)                                                                                                      \
    XX(granted)                                                                                                        \
    XX(handed_off)                                                                                                     \
    XX(renewed)                                                                                                        \
    XX(renew_failed)                                                                                                   \
    XX(lost)                                                                                                           \
    XX(orphaned)                                                                                                       \
    XX(events_dropped)                                                                                                 \
    XX(not_held)                                                                                                       \
    XX(begun)                                                                                                          \
    XX(cancelled)

struct dibs__stats {
#define DIBS__STATS_FIELD(name) atomic_uint_fast64_t name;
    DIBS__STATS_MAP(DIBS__STATS_FIELD)
#undef DIBS__STATS_FIELD
    atomic_uint_fast64_t
        reentered; /* of leases that are no longer kept alive; each of the others counts its own (lease.h) */
    atomic_uint_fast64_t retaken;          /* likewise */
    atomic_uint_fast64_t ended_with_owner; /* holds of threads that ended, and of tasks that were freed; for acquires
                                              and releases see metrics.h */
};

static inline void dibs__count_more(atomic_uint_fast64_t *counter, uint64_t more)
{
    atomic_fetch_add_explicit(counter, more, memory_order_relaxed);
}

static inline void dibs__count(atomic_uint_fast64_t *counter)
{
    dibs__count_more(counter, 1);
}

#endif
