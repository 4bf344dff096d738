/* Records the events that a runtime passes to on_event, for the test to look at. */
#ifndef DIBS_TEST_EVENTS_H
#define DIBS_TEST_EVENTS_H

#include <dibs.h>
#include <pthread.h>

enum { EVENTS_MAX = 256 };

typedef struct recorded_event {
    dibs_event_kind kind;
    char name[DIBS_NAME_MAX + 1]; /* "" for an event of the store */
    uint64_t fence;
    char detail[256];
    pthread_t thread;
} recorded_event;

typedef struct events {
    pthread_mutex_t mutex; /* guards count and list */
    unsigned count;        /* of all that came; the first EVENTS_MAX are kept */
    recorded_event list[EVENTS_MAX];
} events;

void events_init(events *e);
void events_destroy(events *e);

/* There are none so far. Others may come meanwhile. */
void events_forget(events *e);

/* A dibs_event_fn; arg is the events. */
void events_record(const dibs_event *event, void *arg);

/*
 * The place of the first event of that kind and name (NULL: any) in the order in which events came; -1: there is none.
 */
int events_find(events *e, dibs_event_kind kind, const char *name);

/* How many events of that kind and name (NULL: any) there are. */
unsigned events_count(events *e, dibs_event_kind kind, const char *name);

/*
 * Waits for the first event of that kind and name and returns a copy. Fails the test where none comes within LIMIT_MS.
 * From the test's thread.
 */
recorded_event events_await(events *e, dibs_event_kind kind, const char *name);

#endif
