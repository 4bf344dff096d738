/*
 * A batch of retractions on its way to the server: the words, over which
 * connection they go, and what the answer means for each entry.
 */
#ifndef DIBS_STORE_REDIS_RETRACT_BATCH_H
#define DIBS_STORE_REDIS_RETRACT_BATCH_H

#include "base/backoff.h"
#include "store/redis/redis.h"
#include "store/redis/route.h"

#define DIBS__RETRACT_BATCH_MAX 64 /* tokens in one command */

/* A token that is being retracted. Belongs to the list that it stands in, or to its batch. */
struct dibs__retraction {
    struct dibs__retraction *next; /* in its list */
    struct dibs__route route;      /* read-only after dibs__retractions_add */
    int64_t ends;                  /* read-only after dibs__retractions_add; nothing of the token is left then */
    int64_t due;                   /* its list's; when to look at it again */
    struct dibs__backoff backoff;  /* its list's */
    bool alone;                    /* its list's or batch's; a batch that it was in was refused */
    bool asking;                   /* its list's or batch's; as of struct dibs__redirect */
    unsigned hops;                 /* read-only once listed; from node to node of a cluster */
    bool with_text;                /* its list's or batch's; the server has lost the script */
    char fence[24];                /* read-only once listed; of the grant, as text; "0": not known */
    uint32_t lease_ms;             /* read-only once listed; the longest that the token may have */
    bool surpasses;                /* its batch's; waiters may leave the lock to the token, as they saw it elsewhere */
    const char *name;              /* read-only after dibs__retractions_add; behind the token, as is its text */
    char token[];                  /* read-only after dibs__retractions_add */
};

/* What becomes of an entry when its batch has ended. */
enum dibs__retract_ending {
    DIBS__RETRACT_CONFIRMED,
    DIBS__RETRACT_AT_ONCE,      /* to be sent again at once: in another form, or because there is more to do */
    DIBS__RETRACT_LATER,        /* to be sent again after a pause, longer each time */
    DIBS__RETRACT_AFTER,        /* to be sent again after pause_ms */
    DIBS__RETRACT_DISCONNECTED, /* to be sent again when there is another connection */
    DIBS__RETRACT_ELSEWHERE,    /* to be sent by another node of the cluster */
};

struct dibs__retract_end {
    enum dibs__retract_ending ending;
    int64_t pause_ms;
    struct dibs__redirect redirect; /* elsewhere */
};

/*
 * All its entries go the same way. It never has more than one command under
 * way. Where a field is not read-only, it is the scheduler thread's, which also
 * takes the answer: see dibs__channel_submit.
 */
struct dibs__retract_batch {
    const char *key_prefix;              /* read-only */
    const struct dibs__node_hooks *node; /* read-only; of a node of a cluster; else NULL */
    struct dibs__channel *carrier;       /* takes the batch where the connection of the asks does not stand */
    struct dibs__buffer *text;           /* shared by all batches; for the words of the command that is built */
    uint64_t carriers; /* for the owner: how many connections had carried batches by the time it was sent */
    bool untracked;    /* the server tells of its keys no more, if the command changes them (rule 33) */
    bool settled;      /* where the answer comes, nothing of the asks can arrive behind it */
    size_t count;
    struct dibs__retraction *entries[DIBS__RETRACT_BATCH_MAX];
    struct dibs__retract_end ends[DIBS__RETRACT_BATCH_MAX]; /* set before on_ended */
    void (*on_ended)(struct dibs__retract_batch *batch);    /* read-only; it was answered, or could not be sent */
    void *context;                                          /* read-only */
};

/* Whether both go the same way, in one command. */
bool dibs__retract_batch_takes_both(const struct dibs__retraction *a, const struct dibs__retraction *b);

/* The scheduler's. Where it can't be sent, the batch ends before this returns. */
void dibs__retract_batch_send(struct dibs__retract_batch *batch);

#endif
