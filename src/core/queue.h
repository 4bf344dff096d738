/* A queue of waiting threads, first come, first served: linked through the waiters, so entering it needs no memory. */
#ifndef DIBS_CORE_QUEUE_H
#define DIBS_CORE_QUEUE_H

#include "core/lease.h"

struct dibs__turn;

/* A thread that waits for a name; on its stack. */
struct dibs__waiter {
    struct dibs__waiter *next DIBS__GUARDED_BY(dibs__shard_mutex);
    struct dibs__waiter *previous DIBS__GUARDED_BY(dibs__shard_mutex);
    struct dibs__queue *queue DIBS__GUARDED_BY(dibs__shard_mutex); /* in which the thread waits; NULL: in none */
    bool called DIBS__GUARDED_BY(dibs__shard_mutex);               /* the thread has what its turn says */
    dibs_status answer DIBS__GUARDED_BY(dibs__shard_mutex);        /* what the thread is to return; DIBS_OK: none yet */
    pthread_cond_t cond;                                           /* read-only; only this thread sleeps there */
    int64_t since;                                                 /* read-only; when the thread began to wait */
    struct dibs__turn *turn; /* read-only; its content is guarded by the shard's mutex while the thread waits */
};

struct dibs__queue {
    struct dibs__waiter *first DIBS__GUARDED_BY(dibs__shard_mutex);
    struct dibs__waiter *last DIBS__GUARDED_BY(dibs__shard_mutex);
};

/* The waiter becomes the last. It must stand in no queue. */
void dibs__queue_add(struct dibs__queue *queue, struct dibs__waiter *waiter) DIBS__REQUIRES(dibs__shard_mutex);

/* Takes the waiter out of its queue, if it stands in one. */
void dibs__queue_remove(struct dibs__waiter *waiter) DIBS__REQUIRES(dibs__shard_mutex);

#endif
