/*
 * There is no mutex, because events are also emitted under mutexes of the stores. `newest` is a stack: any thread
 * pushes an event, and the thread of the events takes all of them at once. That thread sleeps by `sleeper` until
 *     an event was pushed, or ending.
 */
#include "core/events.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "base/sleeper.h"
#include "base/thread.h"
#include "base/utf8.h"

#define MOST 1024 /* the most events that wait for the callback */

struct entry {
    struct entry *next; /* in `newest` the event before this one, in `oldest` the one after it */
    dibs_event_kind kind;
    char *name; /* NULL for events of the store */
    uint64_t fence;
    char detail[DIBS__DETAIL_MAX];
};

struct dibs__events {
    dibs_event_fn *callback;        /* read-only */
    void *arg;                      /* read-only */
    atomic_uint_fast64_t *dropped;  /* read-only; what it points to is atomic */
    unsigned generation;            /* read-only; the fork generation of the process that made the events */
    pthread_t thread;               /* read-only after start; joined by stop */
    bool started;                   /* read-only after start */
    _Atomic(struct entry *) newest; /* atomic; what was emitted and not taken yet */
    struct entry *oldest;           /* the thread's, and that of events_free once the thread has ended: taken */
    atomic_uint count;              /* atomic; the number of events in both */
    atomic_bool ending; /* atomic; no more events are taken; the thread ends when none is left, or at `until` */
    int64_t until;      /* written before `ending` */
    const struct dibs__clock *clock; /* of `until`; written before `ending` */
    struct dibs__sleeper sleeper;    /* has its own guard */
};

static void free_entry(struct entry *entry)
{
    if (entry)
        free(entry->name);
    free(entry);
}

/* NULL: there is none. */
static struct entry *take_first(struct dibs__events *events)
{
    struct entry *newest = events->oldest ? NULL : atomic_exchange(&events->newest, NULL);

    while (newest) {
        struct entry *before = newest->next;
        newest->next = events->oldest;
        events->oldest = newest;
        newest = before;
    }
    struct entry *entry = events->oldest;
    if (entry) {
        events->oldest = entry->next;
        atomic_fetch_sub(&events->count, 1);
    }
    return entry;
}

static void drop_all(struct dibs__events *events)
{
    for (struct entry *entry; (entry = take_first(events)); free_entry(entry))
        atomic_fetch_add_explicit(events->dropped, 1, memory_order_relaxed);
}

/* Waits for the next entry and returns it. NULL: the events are ending, and none is left. */
static struct entry *next_entry(struct dibs__events *events)
{
    for (;;) {
        bool ending = atomic_load(&events->ending); /* first: what was emitted before the end is not missed */
        if (ending && dibs__now(events->clock) >= events->until)
            drop_all(events);
        struct entry *entry = take_first(events);
        if (entry || ending)
            return entry;
        dibs__sleeper_sleep(&events->sleeper, &dibs__system_clock, DIBS__NEVER);
    }
}

static void *run(void *arg)
{
    struct dibs__events *events = arg;
    struct entry *entry;

    dibs__thread_set_name("dibs-events");
    while ((entry = next_entry(events))) {
        dibs_event event = {.kind = entry->kind, .name = entry->name, .fence = entry->fence, .detail = entry->detail};
        events->callback(&event, events->arg);
        if (dibs__fork_generation() != events->generation)
            return NULL; /* the callback forked, and this is the child, to which nothing here belongs */
        free_entry(entry);
    }
    return NULL;
}

/* False: there are too many events already, or the events are ending. */
static bool put(struct dibs__events *events, struct entry *entry)
{
    if (atomic_load(&events->ending))
        return false;
    if (atomic_fetch_add(&events->count, 1) >= MOST) {
        atomic_fetch_sub(&events->count, 1);
        return false;
    }
    entry->next = atomic_load(&events->newest);
    while (!atomic_compare_exchange_weak(&events->newest, &entry->next, entry))
        continue;
    dibs__sleeper_wake(&events->sleeper);
    return true;
}

void dibs__events_emit(struct dibs__events *events, dibs_event_kind kind, const char *name, uint64_t fence,
                       const char *format, ...)
{
    va_list arguments;

    if (!events)
        return;
    struct entry *entry = calloc(1, sizeof *entry);
    if (entry) {
        entry->kind = kind;
        entry->fence = fence;
        va_start(arguments, format);
        vsnprintf(entry->detail, sizeof entry->detail, format, arguments);
        va_end(arguments);
        dibs__utf8_make_line(entry->detail);
        entry->name = name ? strdup(name) : NULL;
    }
    if (entry && (!name || entry->name) && put(events, entry))
        return;
    free_entry(entry);
    atomic_fetch_add_explicit(events->dropped, 1, memory_order_relaxed);
}

struct dibs__events *dibs__events_new(dibs_event_fn *callback, void *arg, atomic_uint_fast64_t *dropped)
{
    struct dibs__events *events = calloc(1, sizeof *events);

    if (!events)
        return NULL;
    events->callback = callback;
    events->arg = arg;
    events->dropped = dropped;
    events->generation = dibs__fork_generation();
    return events;
}

bool dibs__events_start(struct dibs__events *events)
{
    DIBS__REQUIRE(!events->started);
    events->started = dibs__thread_start(&events->thread, run, events);
    return events->started;
}

void dibs__events_stop(struct dibs__events *events, const struct dibs__clock *clock, int64_t until)
{
    if (!events || atomic_load(&events->ending))
        return;
    events->until = until;
    events->clock = clock;
    atomic_store(&events->ending, true);
    dibs__sleeper_wake(&events->sleeper);
    if (events->started)
        pthread_join(events->thread, NULL);
}

void dibs__events_free(struct dibs__events *events)
{
    if (!events)
        return;
    dibs__events_stop(events, &dibs__system_clock, DIBS__NEVER);
    for (struct entry *entry; (entry = next_entry(events));) /* those that are left if no thread was started */
        free_entry(entry);
    free(events);
}
