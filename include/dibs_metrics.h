/*
 * dibs - the statistics of a runtime in the text format of Prometheus. Apart from
 * dibs.h because of <stdio.h>.
 */
#ifndef DIBS_METRICS_H
#define DIBS_METRICS_H

#include <stdio.h>

#include "dibs.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Writes what dibs_stats_get tells, and how long threads wait for locks and hold
 * them, in the text format 0.0.4 of Prometheus (also read by OpenTelemetry and
 * VictoriaMetrics), to be sent as the body of an answer to a scrape:
 *
 *   dibs_acquired_total ...              each counter of dibs_stats
 *   dibs_holds, dibs_leases, dibs_kept, dibs_tracking, dibs_untaken   gauges
 *   dibs_waiting                         gauge: threads and tasks that wait for a lock now
 *   dibs_wait_seconds                    histogram: the time of each first acquire that succeeded
 *   dibs_hold_seconds                    histogram: from there to the last unlock
 *   dibs_group_waiting{group="sku"}      the last three once more, for each group of names
 *   dibs_group_wait_seconds{...}, dibs_group_hold_seconds{...}
 *
 * The group of a lock is what comes before the first ':' of its name, at most 63
 * bytes; names without a ':' are in the group "". A runtime tells 64 groups apart;
 * names of later groups count in the group "(others)". Each group has a label of its
 * own: its name, in which \xHH stands for a byte that is not UTF-8, for a backslash
 * before an x, and for the first byte of a group that is itself named (others). A
 * histogram has 66 buckets, two for each power of two from 1 us to 36 minutes, and
 * takes some 5 KB of text.
 *
 * Metrics of two runtimes have the same names: a process that has several runtimes
 * serves each under a path of its own.
 *
 * No I/O but that of out, whose buffer and whose errors are the caller's: see
 * ferror(3). The counters are read one by one, not at one instant.
 *
 * DIBS_OK. DIBS_INVALID: an argument is NULL. DIBS_CLOSED: dibs_close has begun;
 * nothing was written.
 */
DIBS_API dibs_status dibs_stats_write_prometheus(dibs_runtime *rt, FILE *out);

#ifdef __cplusplus
}
#endif

#endif
