/* A queue of waiting threads, and of begun acquires that wait, first come, first served: linked through the waiters, so
 * entering it needs no memory. */
#ifndef DIBS_CORE_QUEUE_H
#define DIBS_CORE_QUEUE_H

#include "core/lease.h"

struct dibs__turn;

/*
 * What a waiting thread does. Changed under the shard's mutex, except that the
 * thread itself goes from AWAKE to ASLEEP without.
 */
enum dibs__waiter_state {
    DIBS__WAITER_AWAKE,   /* it looks at the cell, or goes to sleep */
    DIBS__WAITER_ASLEEP,  /* or about to wake by itself */
    DIBS__WAITER_WOKEN,   /* it must look at the cell again */
    DIBS__WAITER_COMPLETE /* it leaves without a look at the cell: it may be gone at once */
};

/* A thread that waits for a name, on its stack; or a begun acquire, which no thread waits for (begun.h). */
struct dibs__waiter {
    struct dibs__waiter *next DIBS__GUARDED_BY(dibs__shard_mutex);     /* NULL: this is the last */
    struct dibs__waiter *previous DIBS__GUARDED_BY(dibs__shard_mutex); /* of the first: the last */
    struct dibs__queue *queue DIBS__GUARDED_BY(dibs__shard_mutex);     /* in which the thread waits; NULL: in none */
    atomic_uint state;         /* atomic; a dibs__waiter_state. The thread sleeps on this word */
    dibs_status answer;        /* what the thread must return, DIBS_OK: what its turn says. Written under the shard's
                                  mutex before COMPLETE, then the thread's */
    struct dibs__shard *shard; /* read-only; of the cell */
    void (*tell)(struct dibs__waiter *waiter); /* read-only; of a begun acquire: called under the shard's mutex instead
                                                  of waking a thread, may lock the workers' mutex; else NULL */
    int64_t since;                             /* read-only; when the thread began to wait */
    struct dibs__turn *turn; /* read-only; its content is guarded by the shard's mutex while the thread waits, and the
                                thread's once it is COMPLETE */
};

struct dibs__queue {
    struct dibs__waiter *first DIBS__GUARDED_BY(dibs__shard_mutex);
};

/* The waiter becomes the last. It must stand in no queue. */
void dibs__queue_add(struct dibs__queue *queue, struct dibs__waiter *waiter) DIBS__REQUIRES(dibs__shard_mutex);

/* Takes the waiter out of its queue, if it stands in one. */
void dibs__queue_remove(struct dibs__waiter *waiter) DIBS__REQUIRES(dibs__shard_mutex);

#endif
