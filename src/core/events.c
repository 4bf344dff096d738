/*
 * Lock discipline: `mutex` guards the ring. It is a leaf, and is not held while the callback runs. The thread of the
 * events sleeps on `filled` until
 *     count > 0, or ending.
 */
#include "core/events.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "base/utf8.h"

#define RING 1024 /* the most events that wait for the callback */

struct entry {
    dibs_event_kind kind;
    char *name; /* NULL for events of the store */
    uint64_t fence;
    char detail[DIBS__DETAIL_MAX];
};

DIBS__MUTEX_CLASS(events_mutex);

struct dibs__events {
    dibs_event_fn *callback;       /* read-only */
    void *arg;                     /* read-only */
    atomic_uint_fast64_t *dropped; /* read-only; what it points to is atomic */
    unsigned generation;           /* read-only; the fork generation of the process that made the events */
    pthread_t thread;              /* read-only after start; joined by stop */
    bool started;                  /* read-only after start */
    struct dibs__mutex mutex;
    pthread_cond_t filled; /* waited on with mutex */
    struct entry *ring[RING] DIBS__GUARDED_BY(events_mutex);
    size_t first DIBS__GUARDED_BY(events_mutex);  /* the place of the oldest event */
    size_t count DIBS__GUARDED_BY(events_mutex);  /* the number of events, from `first` on */
    bool ending DIBS__GUARDED_BY(events_mutex);   /* no more events are taken; the thread ends when none is left, */
    int64_t until DIBS__GUARDED_BY(events_mutex); /* or at that time */
    const struct dibs__clock *clock DIBS__GUARDED_BY(events_mutex); /* of that time */
};

static void free_entry(struct entry *entry)
{
    if (entry)
        free(entry->name);
    free(entry);
}

/* NULL: there is none. */
static struct entry *take_first(struct dibs__events *events) DIBS__REQUIRES(events_mutex)
{
    struct entry *entry = events->count > 0 ? events->ring[events->first] : NULL;

    events->first = (events->first + (entry != NULL)) % RING;
    events->count -= entry != NULL;
    return entry;
}

static void drop_all(struct dibs__events *events) DIBS__REQUIRES(events_mutex)
{
    atomic_fetch_add_explicit(events->dropped, events->count, memory_order_relaxed);
    for (struct entry *entry; (entry = take_first(events));)
        free_entry(entry);
}

/* Waits for the next entry and returns it. NULL: the events are ending, and none is left. */
static struct entry *next_entry(struct dibs__events *events)
{
    events_mutex_lock(&events->mutex);
    while (events->count == 0 && !events->ending)
        dibs__mutex_wait(&events->mutex, &events->filled);
    if (events->ending && dibs__now(events->clock) >= events->until)
        drop_all(events);
    struct entry *entry = take_first(events);
    events_mutex_unlock(&events->mutex);
    return entry;
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

/* False: the ring is full, or the events are ending. */
static bool put(struct dibs__events *events, struct entry *entry)
{
    events_mutex_lock(&events->mutex);
    bool fits = events->count < RING && !events->ending;
    if (fits) {
        events->ring[(events->first + events->count++) % RING] = entry;
        pthread_cond_signal(&events->filled);
    }
    events_mutex_unlock(&events->mutex);
    return fits;
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
    if (dibs__mutex_init(&events->mutex) != 0)
        goto no_mutex;
    if (pthread_cond_init(&events->filled, NULL) == 0)
        return events;
    dibs__mutex_destroy(&events->mutex);
no_mutex:
    free(events);
    return NULL;
}

bool dibs__events_start(struct dibs__events *events)
{
    DIBS__REQUIRE(!events->started);
    events->started = dibs__thread_start(&events->thread, run, events);
    return events->started;
}

void dibs__events_stop(struct dibs__events *events, const struct dibs__clock *clock, int64_t until)
{
    if (!events)
        return;
    events_mutex_lock(&events->mutex);
    bool first = !events->ending;
    events->ending = true;
    events->until = first ? until : events->until;
    events->clock = first ? clock : events->clock;
    pthread_cond_signal(&events->filled);
    events_mutex_unlock(&events->mutex);
    if (first && events->started)
        pthread_join(events->thread, NULL);
}

void dibs__events_free(struct dibs__events *events)
{
    if (!events)
        return;
    dibs__events_stop(events, &dibs__system_clock, DIBS__NEVER);
    for (struct entry *entry; (entry = next_entry(events));) /* those that are left if no thread was started */
        free_entry(entry);
    pthread_cond_destroy(&events->filled);
    dibs__mutex_destroy(&events->mutex);
    free(events);
}
