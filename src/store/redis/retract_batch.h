/*
 * A batch of retractions on its way to the server: its words, the connection that it is sent on, and what the answer
 * means for each entry.
 */
#ifndef DIBS_STORE_REDIS_RETRACT_BATCH_H
#define DIBS_STORE_REDIS_RETRACT_BATCH_H

#include "base/backoff.h"
#include "store/redis/redis.h"
#include "store/redis/route.h"

#define DIBS__RETRACT_BATCH_MAX 64 /* tokens in one command */

/*
 * A token that is being retracted. It belongs to the list that it is in, and so is guarded by the store's mutex, or to
 * its batch, and so to the scheduler thread.
 */
struct dibs__retraction {
    struct dibs__retraction *next; /* the next one in the list */
    struct dibs__route route;      /* read-only once listed, except not_after, which its batch may set to 0 */
    int64_t ends;                  /* read-only once listed; by then nothing of the token is left */
    int64_t due;                   /* when to look at the entry again */
    struct dibs__backoff backoff;  /* of the pauses between sendings */
    bool alone;    /* the entry is sent by itself: a batch that it was in was refused, or each entry of this store has a
                      slot of its own */
    bool asking;   /* as in struct dibs__redirect */
    unsigned hops; /* read-only once listed; how often the retraction went from node to node of a cluster */
    bool with_text;    /* the server has lost the script */
    char fence[24];    /* read-only once listed; of the grant, as text; "0": not known */
    uint32_t lease_ms; /* read-only once listed; the longest that the token may have */
    bool surpasses; /* set when a batch takes the entry; waiters may leave the lock to the token, because they saw it at
                       another server */
    const char *name; /* read-only once listed; its text is stored after the token */
    char token[];     /* read-only once listed */
};

/* What becomes of an entry when its batch has ended. */
enum dibs__retract_ending {
    DIBS__RETRACT_CONFIRMED,
    DIBS__RETRACT_AT_ONCE, /* the entry must be sent again at once: in another form, or because there is more to do */
    DIBS__RETRACT_LATER,   /* the entry must be sent again after a pause, longer each time */
    DIBS__RETRACT_AFTER,   /* the entry must be sent again after pause_ms */
    DIBS__RETRACT_DISCONNECTED, /* the entry must be sent again when there is another connection */
    DIBS__RETRACT_ELSEWHERE,    /* another node of the cluster must send the entry */
};

struct dibs__retract_end {
    enum dibs__retract_ending ending;
    int64_t pause_ms;
    struct dibs__redirect redirect; /* with DIBS__RETRACT_ELSEWHERE */
};

/*
 * All entries of a batch take the same route. A batch never has more than one command under way. Its fields belong to
 * the scheduler thread, which also takes the answer (dibs__channel_submit), except those marked as read-only.
 */
struct dibs__retract_batch {
    const char *key_prefix;              /* read-only */
    const struct dibs__node_hooks *node; /* read-only; of a node of a cluster; else NULL */
    struct dibs__channel *carrier;       /* takes the batch if the connection of the asks is gone */
    struct dibs__buffer *text;           /* shared by all batches; for the words of the command that is being written */
    uint64_t carriers; /* for the owner: number of carrier connections so far when the batch was sent */
    bool untracked;    /* the server no longer reports changes of its keys if the command changes them (rule 33) */
    bool all_moved;    /* as of dibs__redis_turned_away */
    bool settled;      /* if the answer comes, nothing of the asks can arrive after it */
    size_t count;
    struct dibs__retraction *entries[DIBS__RETRACT_BATCH_MAX];
    struct dibs__retract_end ends[DIBS__RETRACT_BATCH_MAX]; /* set before on_ended is called */
    void (*on_ended)(struct dibs__retract_batch *batch);    /* read-only; called when the batch ends */
    void *context;                                          /* read-only */
};

/* Whether both can be sent in one command, because they take the same route. */
bool dibs__retract_batch_takes_both(const struct dibs__retraction *a, const struct dibs__retraction *b);

/* The scheduler's. If the batch can't be sent, it ends before this returns. */
void dibs__retract_batch_send(struct dibs__retract_batch *batch);

#endif
