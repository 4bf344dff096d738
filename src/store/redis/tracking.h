/*
 * How the server tells that locks have changed: CLIENT TRACKING, in the form for
 * RESP2 (Redis' documentation, "Client-side caching in Redis"). The background
 * connection reads the keys; the server remembers that, and sends one message to
 * the client of the subscription when such a key is changed next, except by the
 * background connection itself. After that the key must be read again.
 *
 * Tracking belongs to a pair of a connection and a subscription. For each new
 * pair one key is written, over the background connection, to see whether the
 * server tells of it: a proxy may swallow the messages. Where it does not work,
 * it is not tried again with that pair.
 *
 * The fields are the scheduler thread's where nothing else is said.
 */
#ifndef DIBS_STORE_REDIS_TRACKING_H
#define DIBS_STORE_REDIS_TRACKING_H

#include <stdatomic.h>

#include "redis/subscriber.h"
#include "store/redis/keys.h"
#include "store/store.h"

DIBS__MUTEX_CLASS(dibs__tracking_mutex);

struct dibs__redis_store;

enum dibs__tracking_state {
    DIBS__TRACKING_IDLE,    /* not tried yet with the pair, or there is none */
    DIBS__TRACKING_PROBING, /* the probe was written; the server has not told of it yet */
    DIBS__TRACKING_ON,
    DIBS__TRACKING_REFUSED /* it does not work with this pair */
};

/* A name that a foreign client has, which is to be read. */
struct dibs__foreign {
    struct dibs__redis_store *store;
    struct dibs__foreign *next;
    char name[];
};

/* Lock discipline: the mutex is a leaf. */
struct dibs__tracking {
    atomic_bool wanted; /* atomic; set for good by the first that has something to watch */
    enum dibs__tracking_state state;
    uint64_t link, subscription; /* the serials of the pair */
    unsigned unanswered;         /* of the commands that begin to track */
    bool enabled;                /* the first of them was accepted: the server tracks */
    bool refused;                /* one of them was not */
    int64_t until;               /* when the server must have told of the probe */
    uint64_t last;               /* of the trackings that were on */
    atomic_uint_fast64_t on;     /* atomic; which tracking is on; 0: none is */
    atomic_bool heard;           /* atomic; the server has told of the probe */
    struct dibs__mutex mutex;
    struct dibs__key probe DIBS__GUARDED_BY(dibs__tracking_mutex); /* empty: no name is known for it yet */
    struct dibs__foreign *foreign DIBS__GUARDED_BY(dibs__tracking_mutex);
};

bool dibs__tracking_init(struct dibs__tracking *tracking); /* false: no mutex is to be had */
void dibs__tracking_free(struct dibs__tracking *tracking);

/* The scheduler's part. To attend: behind the subscriber and the background connection. */
int64_t dibs__tracking_deadline(const struct dibs__tracking *tracking);
void dibs__tracking_attend(struct dibs__redis_store *store, int64_t now);

/* Any thread: the server told that the key was changed; NULL: that all may have been. */
void dibs__tracking_changed(struct dibs__redis_store *store, const char *key, size_t size);

/* As recalls of store.h: while the server tells of changes, the subscription stands, on which recalls come. */
bool dibs__redis_recalls(struct dibs__store *base, const char *name);
void dibs__redis_watch(struct dibs__store *base, struct dibs__batch *batch);
uint64_t dibs__redis_tell_when_free(struct dibs__store *base, const char *name, uint64_t since);

#endif
