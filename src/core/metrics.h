/*
 * How long threads wait for locks and how long they hold them, as histograms, and how many threads wait now, for each
 * group. The part of a lock's name before the first ':' names its group; a lock whose name has no ':' belongs to the
 * group "". Each runtime has room for a limited number of groups; the locks of all later groups count in one more
 * group, the rest.
 *
 * A histogram is log-linear: two buckets for each power of two, from 1 us to 36 minutes. Counting is two atomic
 * additions, to one of several copies of the histogram, so that threads seldom share a cache line. The numbers of
 * acquires and releases (stats_read.c) are taken from here, and are counted nowhere else.
 */
#ifndef DIBS_CORE_METRICS_H
#define DIBS_CORE_METRICS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DIBS__METRICS_GROUPS 64         /* groups with a name of their own */
#define DIBS__METRICS_GROUP_NAME_MAX 64 /* bytes with the NUL; a longer name is cut */
#define DIBS__METRICS_BOUNDS 65         /* bounds of the buckets; one more bucket counts what exceeds the last bound */

enum dibs__metrics_kind { DIBS__METRICS_WAIT, DIBS__METRICS_HOLD, DIBS__METRICS_KINDS };

struct dibs__metrics;
struct dibs__metrics_group; /* lives as long as the metrics */

struct dibs__metrics *dibs__metrics_new(void); /* NULL: no memory */
void dibs__metrics_free(struct dibs__metrics *metrics);

/* The name's group, which is made if it is new. Any thread; takes no mutex. */
struct dibs__metrics_group *dibs__metrics_group(struct dibs__metrics *metrics, const char *name, size_t name_size);

/* Counts a wait or a hold of `ns` nanoseconds. */
void dibs__metrics_count(struct dibs__metrics_group *group, enum dibs__metrics_kind kind, int64_t ns);

/* One more thread waits for a lock of the group, or, with -1, one less. */
void dibs__metrics_wait(struct dibs__metrics_group *group, int change);

/*
 * The upper bound of a bucket in nanoseconds. A bucket counts what is above the bound of the bucket before and at most
 * its own.
 */
int64_t dibs__metrics_bound(unsigned bucket);

struct dibs__histogram {
    uint64_t counts[DIBS__METRICS_BOUNDS + 1];
    uint64_t count, sum_ns;
};

/* What was counted for one group, or for all groups. */
struct dibs__metrics_view {
    char name[DIBS__METRICS_GROUP_NAME_MAX];
    bool is_rest; /* the group of all locks for whose groups there is no room; it has no name */
    int64_t waiting;
    struct dibs__histogram histograms[DIBS__METRICS_KINDS];
};

/*
 * The next group. *cursor must be 0 at the beginning. False: there are no more. The rest comes last, if anything was
 * counted in it.
 */
bool dibs__metrics_next(const struct dibs__metrics *metrics, unsigned *cursor, struct dibs__metrics_view *out);

/* Adds what was counted for a group to a sum. */
void dibs__metrics_add(struct dibs__metrics_view *sum, const struct dibs__metrics_view *group);

#endif
