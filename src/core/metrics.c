/* Groups are added by a compare-and-swap of their place, and live as long as the metrics. */
#include "core/metrics.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/thread.h"

#define UNIT_NS INT64_C(500)              /* half of the first bound */
#define STRIPES 4                         /* copies of the histograms of a group */
#define PLACES (2 * DIBS__METRICS_GROUPS) /* places in the table of groups: a power of two */

_Static_assert((PLACES & (PLACES - 1)) == 0, "probing goes around by a mask");

struct counted {                 /* each field is an atomic */
    atomic_uint_fast64_t sum_ns; /* beside the counts of short times, and far from the stripe before */
    atomic_uint_fast64_t counts[DIBS__METRICS_BOUNDS + 1];
};

struct stripe {
    struct counted kinds[DIBS__METRICS_KINDS];
};

struct dibs__metrics_group {
    char name[DIBS__METRICS_GROUP_NAME_MAX]; /* read-only */
    size_t name_size;                        /* read-only */
    atomic_int_fast64_t waiting;             /* atomic */
    struct stripe stripes[STRIPES];          /* have their own atomics */
};

struct dibs__metrics {
    atomic_uint group_count; /* atomic; at most DIBS__METRICS_GROUPS */
    _Atomic(struct dibs__metrics_group *)
        places[PLACES];              /* atomic; by hash, with linear probing; a place is filled once */
    struct dibs__metrics_group rest; /* has its own atomics */
};

/* ------------------------------------------------------------------- making */

struct dibs__metrics *dibs__metrics_new(void)
{
    return calloc(1, sizeof(struct dibs__metrics));
}

void dibs__metrics_free(struct dibs__metrics *metrics)
{
    if (!metrics)
        return;
    for (unsigned i = 0; i < PLACES; i++)
        free(atomic_load(&metrics->places[i]));
    free(metrics);
}

/* ------------------------------------------------------------------- groups */

/*
 * Fills the place, unless another thread has filled it first. NULL: no memory, or there is no room for another group.
 */
static struct dibs__metrics_group *add_group(struct dibs__metrics *metrics, unsigned place, const char *name,
                                             size_t size)
{
    struct dibs__metrics_group *group, *present = NULL;

    if (atomic_fetch_add(&metrics->group_count, 1) >= DIBS__METRICS_GROUPS || !(group = calloc(1, sizeof *group))) {
        atomic_fetch_sub(&metrics->group_count, 1);
        return NULL;
    }
    memcpy(group->name, name, size);
    group->name_size = size;
    if (atomic_compare_exchange_strong(&metrics->places[place], &present, group))
        return group;
    atomic_fetch_sub(&metrics->group_count, 1);
    free(group);
    return present;
}

struct dibs__metrics_group *dibs__metrics_group(struct dibs__metrics *metrics, const char *name, size_t name_size)
{
    const char *colon = memchr(name, ':', name_size);
    size_t whole = colon ? (size_t)(colon - name) : 0;
    size_t size = whole < DIBS__METRICS_GROUP_NAME_MAX ? whole : DIBS__METRICS_GROUP_NAME_MAX - 1;
    unsigned place = (unsigned)dibs__hash(name, size) & (PLACES - 1);

    for (;; place = (place + 1) & (PLACES - 1)) { /* this ends, because at least half of the places are empty */
        struct dibs__metrics_group *group = atomic_load_explicit(&metrics->places[place], memory_order_acquire);
        if (!group && !(group = add_group(metrics, place, name, size)))
            return &metrics->rest;
        if (group->name_size == size && memcmp(group->name, name, size) == 0)
            return group;
    }
}

/* ----------------------------------------------------------------- counting */

int64_t dibs__metrics_bound(unsigned bucket)
{
    unsigned octave = (bucket + 2) / 2 - 1, half = bucket & 1;

    return bucket == 0 ? 2 * UNIT_NS : ((int64_t)(2 + half) << octave) * UNIT_NS;
}

/* The bucket for a time that is above the bound of the bucket before and at most its own. */
static unsigned bucket_of(int64_t ns)
{
    uint64_t units = ns > 0 ? (uint64_t)((ns - 1) / UNIT_NS) : 0;

    if (units < 2)
        return 0;
    unsigned octave = 63 - (unsigned)__builtin_clzll(units);
    unsigned bucket = 2 * octave + (unsigned)(units >> (octave - 1) & 1) - 1;
    return bucket < DIBS__METRICS_BOUNDS ? bucket : DIBS__METRICS_BOUNDS;
}

void dibs__metrics_count(struct dibs__metrics_group *group, enum dibs__metrics_kind kind, int64_t ns)
{
    struct counted *counted = &group->stripes[dibs__thread_number() & (STRIPES - 1)].kinds[kind];

    atomic_fetch_add_explicit(&counted->counts[bucket_of(ns)], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&counted->sum_ns, ns > 0 ? (uint64_t)ns : 0, memory_order_relaxed);
}

void dibs__metrics_wait(struct dibs__metrics_group *group, int change)
{
    atomic_fetch_add_explicit(&group->waiting, change, memory_order_relaxed);
}

/* ------------------------------------------------------------------ reading */

static void read_histogram(const struct dibs__metrics_group *group, unsigned kind, struct dibs__histogram *out)
{
    for (unsigned stripe = 0; stripe < STRIPES; stripe++) {
        const struct counted *counted = &group->stripes[stripe].kinds[kind];
        for (unsigned i = 0; i <= DIBS__METRICS_BOUNDS; i++) {
            uint64_t count = atomic_load_explicit(&counted->counts[i], memory_order_relaxed);
            out->counts[i] += count;
            out->count += count;
        }
        out->sum_ns += atomic_load_explicit(&counted->sum_ns, memory_order_relaxed);
    }
}

/* The holds are read before the waits, so that a hold which ends in between was not counted as ended alone. */
static void read_group(const struct dibs__metrics_group *group, struct dibs__metrics_view *out)
{
    memset(out, 0, sizeof *out);
    memcpy(out->name, group->name, group->name_size);
    out->waiting = atomic_load_explicit(&group->waiting, memory_order_relaxed);
    for (unsigned kind = DIBS__METRICS_KINDS; kind-- > 0;)
        read_histogram(group, kind, &out->histograms[kind]);
}

bool dibs__metrics_next(const struct dibs__metrics *metrics, unsigned *cursor, struct dibs__metrics_view *out)
{
    while (*cursor < PLACES) {
        const struct dibs__metrics_group *group =
            atomic_load_explicit(&metrics->places[(*cursor)++], memory_order_acquire);
        if (group) {
            read_group(group, out);
            return true;
        }
    }
    if ((*cursor)++ > PLACES)
        return false;
    read_group(&metrics->rest, out);
    out->is_rest = true;
    return out->waiting != 0 || out->histograms[DIBS__METRICS_WAIT].count > 0 ||
           out->histograms[DIBS__METRICS_HOLD].count > 0;
}

void dibs__metrics_add(struct dibs__metrics_view *sum, const struct dibs__metrics_view *group)
{
    sum->waiting += group->waiting;
    for (unsigned kind = 0; kind < DIBS__METRICS_KINDS; kind++) {
        struct dibs__histogram *to = &sum->histograms[kind];
        const struct dibs__histogram *from = &group->histograms[kind];
        for (unsigned i = 0; i <= DIBS__METRICS_BOUNDS; i++)
            to->counts[i] += from->counts[i];
        to->count += from->count;
        to->sum_ns += from->sum_ns;
    }
}
