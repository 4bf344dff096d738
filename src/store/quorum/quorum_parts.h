/*
 * What the files of the quorum share; doc/ARCHITECTURE.md says what each of them is for.
 *
 * Lock discipline: `mutex` guards the table of claims, the states of each claim, the list of
 * detached operations, and how long a member rests. It is also held while the number of reachable
 * members changes and the listener is told, so that the listener is told in the right order; the
 * listener may lock a leaf of its own (room_mutex). A member reports its reachability while it
 * holds its own mutex, so the quorum's mutex is not held in a call of a member.
 *
 * An operation that was begun at a member is a pending operation. It belongs to one thread at a
 * time: to the thread that began it or, while it is detached, to the scheduler's. A thread that
 * asks or releases under the same token takes its detached operations back (dibs__detached_take),
 * unless the scheduler's thread is about to finish them.
 */
#ifndef DIBS_STORE_QUORUM_QUORUM_PARTS_H
#define DIBS_STORE_QUORUM_QUORUM_PARTS_H

#include "base/backoff.h"
#include "base/list.h"
#include "base/mutex.h"
#include "store/quorum/quorum_clock.h"
#include "store/store.h"

#define DIBS__MEMBERS_MAX 15 /* a set of members fits into 32 bits */

DIBS__MUTEX_CLASS(dibs__quorum_mutex);

struct dibs__quorum;

/* A member of the quorum: one of its masters. */
struct dibs__member {
    struct dibs__quorum *quorum; /* read-only after open */
    unsigned index;              /* read-only after open */
    struct dibs__store *store;   /* read-only after open */
    _Atomic int64_t usual;       /* atomic; how long it takes to answer, averaged over its last answers, in ns */
    _Atomic int64_t rests_until; /* atomic; it failed, or is slow: before that time it is asked only if there is no
                                    majority without it; 0: it does not rest */
    int64_t rest_ends DIBS__GUARDED_BY(dibs__quorum_mutex); /* when the last rest ends, or ended; 0: it has answered
                                                              since */
    _Atomic int64_t votes_from; /* atomic; the master may not vote before that time; 0: it may vote */
    atomic_uint steps;          /* atomic; how often its clock was found to have been set */
    atomic_uint told_steps;     /* atomic; how many of these it was told of; then it does not vote for a while */
    atomic_bool set_back; /* atomic; its clock was set back, and it has not voted since: a lease that it renews may end
                             early once the clock is set right, so its renewals do not count */
    atomic_bool strange; /* atomic; it is a master of another quorum, or the second name of a server: it is not asked */
    struct dibs__clock_bounds clock DIBS__GUARDED_BY(dibs__quorum_mutex);
    struct dibs__backoff rest DIBS__GUARDED_BY(dibs__quorum_mutex);
    bool down DIBS__GUARDED_BY(dibs__quorum_mutex); /* it reported that it can't be reached */
    bool is_known;    /* the scheduler thread's: it reported which server renewals go to */
    bool is_watching; /* the scheduler thread's: it reports changes of watched locks */
    size_t fd_count;  /* the scheduler thread's: how many descriptors its last interest filled in */
};

/* The member's clock was set: the member must be told so before it is asked again. */
static inline bool dibs__member_is_distrusted(const struct dibs__member *member)
{
    return atomic_load(&member->told_steps) != atomic_load(&member->steps);
}

/* -------------------------------------------------------------------- claims */

/* What a member knows of a token. */
enum dibs__member_phase {
    DIBS__MEMBER_NOTHING, /* nothing, as far as this process knows */
    DIBS__MEMBER_PENDING, /* an ask is under way, or a release, because there was no majority */
    DIBS__MEMBER_GRANTED, /* the token has the lock */
    DIBS__MEMBER_TAKEN,   /* another token had the lock; this one may be in the queue */
    DIBS__MEMBER_RETIRED  /* the member retracts the token: nothing may be asked there under the token any more */
};

/* What is known of a token at one member. */
struct dibs__member_state {
    enum dibs__member_phase phase;
    bool stuck;       /* an ask may still arrive, and nothing can prove that it will not: no other ask may follow */
    bool in_doubt;    /* an ask had no answer, and may have been granted */
    bool renewing;    /* a renewal is under way */
    bool passed_over; /* a renewal was wanted while another, or an ask, was under way: perhaps because of a change that
                         happened after the member had answered */
    bool behind;      /* an extension could not be sent, or was not answered: the next renewal is sent as one */
    bool topping_up;  /* the renewal under way, or an earlier one that was not answered, may set the lock there */
    int64_t top_up_from;                  /* the member lost the lock: renewals do not set it there before this time */
    uint64_t fence;                       /* if granted: the member's fence */
    struct dibs__lease_store_state lease; /* of the member's lease */
    struct dibs__extension_store_state pending_extension; /* of the member's lease */
    uint32_t pending_extension_ms;
};

struct dibs__pending_op;

enum dibs__claim_state {
    DIBS__CLAIM_ASKED, /* the token is asked for */
    DIBS__CLAIM_HELD,  /* a majority granted the lock */
    DIBS__CLAIM_ENDED  /* the token is retired, and not in the table; operations may still be under way */
};

/*
 * The claim of a token that asks for a lock or holds it: what each member knows of the token. Freed with the last
 * reference. References are held by the table, each detached pending operation, each renewal under way, and the
 * thread that ends the claim.
 */
struct dibs__claim {
    unsigned references DIBS__GUARDED_BY(dibs__quorum_mutex);
    enum dibs__claim_state state DIBS__GUARDED_BY(dibs__quorum_mutex);
    struct dibs__pending_op *ops; /* read-only; one for each member, stored behind the states */
    uint64_t fence;               /* the asking thread's until the claim is held, then read-only */
    int64_t until; /* the asking thread's until the claim is held, then read-only: until when a majority has granted the
                      lock */
    uint32_t open; /* the asking thread's: the members at which something was under way when the ask was begun */
    uint32_t spared; /* the asking thread's: members that rest: they are asked only if the others take long, or can't be
                        a majority */
    unsigned splits; /* the asking thread's: how often in a row some members granted the lock, but no majority */
    _Atomic uint32_t longest_ms; /* atomic; the longest lease that was asked for, or renewed; written under the mutex */
    const char *name;            /* read-only; stored behind the pending operations */
    const char *token;           /* read-only; stored behind the name */
    struct dibs__member_state states[] DIBS__GUARDED_BY(dibs__quorum_mutex);
};

/* The claim of an attempt that was not asked for yet: in the table, with the table's reference. NULL: no memory. */
struct dibs__claim *dibs__claim_new(struct dibs__quorum *q, const struct dibs__attempt *attempt);

/* The claim of a token that is in the table, with a reference for the caller. NULL: there is none. */
struct dibs__claim *dibs__claim_find(struct dibs__quorum *q, const char *token);

/*
 * The same; for a token that is not in the table, and may be at any member, a new claim that has ended. NULL: no
 * memory.
 */
struct dibs__claim *dibs__claim_of_token(struct dibs__quorum *q, const char *name, const char *token,
                                         uint32_t lease_ms);

/* Takes the claim out of the table; the table's reference becomes the caller's. False: it was not in the table. */
bool dibs__claim_end(struct dibs__quorum *q, struct dibs__claim *claim) DIBS__REQUIRES(dibs__quorum_mutex);

void dibs__claim_unref(struct dibs__quorum *q, struct dibs__claim *claim);
void dibs__claims_free(struct dibs__quorum *q); /* frees the claims in the table */

/* ------------------------------------------------------- pending operations */

/*
 * An operation that was begun at one member. Its fields belong to the thread to which it belongs, unless a
 * field says otherwise.
 */
struct dibs__pending_op {
    struct dibs__member *member; /* read-only */
    struct dibs__claim *claim;   /* read-only; NULL for a query or a vote */
    struct dibs__op begun;       /* the operation; with the kind NONE once it is finished */
    int64_t sent_at;
    int64_t came_at;              /* when the reply was seen; 0: it was not */
    unsigned steps, told_steps;   /* of the member, when the operation was begun */
    bool was_sent;                /* it was seen to be under way: without an answer, it may have had its effect */
    struct dibs__attempt attempt; /* the member's, over all its asks */
    struct dibs__answer answer;   /* of the last ask */
    DIBS__LINKS(struct dibs__pending_op) links DIBS__GUARDED_BY(dibs__quorum_mutex); /* in the list of detached ones */
    bool is_looked_at DIBS__GUARDED_BY(dibs__quorum_mutex); /* the scheduler's thread is looking at it */
    int64_t look_at;                                        /* if detached: when to look for the reply */
};

/* Whether it is left to the scheduler's thread. */
static inline bool dibs__pending_op_is_detached(const struct dibs__pending_op *op) DIBS__REQUIRES(dibs__quorum_mutex)
{
    return op->links.previous != NULL;
}

/* Whether the member granted the lock, and its replicas or its disk did not confirm that in time. Requires an ask. */
static inline bool dibs__pending_op_is_unconfirmed(const struct dibs__pending_op *op)
{
    return op->answer.why == DIBS__WHY_TOO_FEW_REPLICAS;
}

/* Begins the operation; its deadline is not needed yet. */
void dibs__pending_op_begin(struct dibs__pending_op *op, struct dibs__op begun);

/* As progress of store.h. Notes what it shows: whether the operation may have had its effect. */
enum dibs__progress dibs__pending_op_progress(struct dibs__pending_op *op, struct dibs__wait *wait);

/* Finishes the pending operation, and notes how the member performed. */
dibs_status dibs__pending_op_finish(struct dibs__pending_op *op, int64_t deadline, struct dibs__error *error);

/* Finishes a raise, a query or a vote whose outcome is not wanted any more. */
void dibs__pending_op_abandon(struct dibs__pending_op *op);

/* Lets a member that takes much longer than usual rest, as if it had failed. */
void dibs__pending_op_note_delay(const struct dibs__pending_op *op, int64_t now);

/* When a detached pending operation is given up. */
int64_t dibs__pending_op_end(const struct dibs__pending_op *op);

/*
 * The members to ask now: without those that rest or may not vote, if the others are a majority. *spared: those
 * that rest.
 */
uint32_t dibs__members_to_ask(struct dibs__quorum *q, uint32_t *spared);

/* How one thread waits for pending operations at several members at the same time. */
struct dibs__fan_out {
    struct dibs__quorum *quorum;
    struct dibs__pending_op *ops; /* one for each member */
    uint32_t open;                /* members whose pending operations are under way */
    uint32_t unsent;              /* those of them that have no connection: the scheduler's thread makes one */
    uint32_t answered;            /* members that have answered */
    int64_t deadline;
    void *context;
    bool (*is_decided)(const struct dibs__fan_out *fan_out, int64_t now);
    int (*least)(const struct dibs__fan_out *fan_out); /* how many more replies a decision needs at least; NULL: 1 */
    int64_t (*decides_at)(const struct dibs__fan_out *fan_out); /* when is_decided may change although no reply has
                                                                   come; NULL: only when an operation becomes overdue */
    void (*land)(struct dibs__fan_out *fan_out, struct dibs__pending_op *op, enum dibs__op_kind what,
                 dibs_status status);
    struct dibs__error *error; /* filled with the worst of the reasons why members failed */
};

/*
 * Runs until the outcome is decided, no operation is open, or the deadline has passed. What is then still open
 * is left to the caller.
 */
void dibs__fan_out_run(struct dibs__fan_out *fan_out);

/*
 * How many members must answer at least before a majority is for it, or can't be any more. for_it: how many are
 * for it so far; open: those that have not answered.
 */
int dibs__least_to_decide(const struct dibs__quorum *q, unsigned for_it, uint32_t open);

/* Whether all operations that are open and were sent take much longer than usual. */
bool dibs__fan_out_is_overdue(const struct dibs__fan_out *fan_out, int64_t now);

static inline bool dibs__set_has(uint32_t set, size_t i)
{
    return set >> i & 1;
}

static inline unsigned dibs__set_count(uint32_t set)
{
    return (unsigned)__builtin_popcount(set);
}

/* -------------------------------------------------------------------- detached */

/* Leaves the pending operations at the members of the set to the scheduler's thread. */
void dibs__detached_add(struct dibs__quorum *q, struct dibs__claim *claim, uint32_t set);

/*
 * Takes a detached pending operation back for the calling thread. False: it is not detached, or the scheduler's
 * thread is looking at it.
 */
bool dibs__detached_take(struct dibs__quorum *q, struct dibs__pending_op *op) DIBS__REQUIRES(dibs__quorum_mutex);

/* The scheduler's. */
int64_t dibs__detached_deadline(struct dibs__quorum *q);
void dibs__detached_attend(struct dibs__quorum *q, int64_t now);

/* As dibs__detached_attend, but looks at all of them, however long they have taken. */
void dibs__detached_attend_all(struct dibs__quorum *q);

void dibs__detached_finish_all(struct dibs__quorum *q); /* at the closing */

/* ------------------------------------------------- asks, releases, the others */

/*
 * Takes back the operation that is under way at the member, or else begins an ask for the attempt, unless the attempt
 * is NULL, or the member can't be asked now. False: neither; the calling thread has nothing to wait for there.
 */
bool dibs__member_ask(struct dibs__pending_op *op, const struct dibs__attempt *attempt);

/* Notes how an ask ended. Returns the state of the claim. */
enum dibs__claim_state dibs__member_note(struct dibs__quorum *q, struct dibs__pending_op *op, dibs_status status);

/*
 * Begins to give back what the member granted; waiters are not told. The pending operation must be the calling
 * thread's.
 */
void dibs__member_leave(struct dibs__quorum *q, struct dibs__pending_op *op);

/* Called when that is over. If it was not confirmed, the member retracts the token. */
void dibs__member_left(struct dibs__quorum *q, struct dibs__pending_op *op, dibs_status status);

/* The token has the lock at the member, or may have it. What its attempt was granted needs no other retraction. */
void dibs__member_retract(struct dibs__pending_op *op);

/* Concludes the member's attempt; a second time changes nothing. held: the token has the lock there. */
static inline void dibs__member_conclude(struct dibs__pending_op *op, bool held)
{
    op->member->store->ops->conclude(op->member->store, &op->attempt, held);
}

/* The claim of an attempt that is being asked for. NULL: it was not asked for yet. */
static inline struct dibs__claim *dibs__claim_of(const struct dibs__attempt *attempt)
{
    return (struct dibs__claim *)(uintptr_t)attempt->store_state.outer; /* NOLINT: a store state holds numbers */
}

/* Ends the claim: in the background, the members retract what they have of it. */
void dibs__claim_retract(struct dibs__quorum *q, struct dibs__claim *claim);

void dibs__quorum_ask_begin(struct dibs__store *base, struct dibs__op *op);
dibs_status dibs__quorum_ask_finish(struct dibs__store *base, struct dibs__op *op, struct dibs__error *error);
void dibs__quorum_conclude(struct dibs__store *base, struct dibs__attempt *attempt, bool held);

void dibs__quorum_release_begin(struct dibs__store *base, struct dibs__op *op);
dibs_status dibs__quorum_release_finish(struct dibs__store *base, struct dibs__op *op, struct dibs__error *error);
void dibs__quorum_retract(struct dibs__store *base, const char *name, const char *token, uint32_t lease_ms,
                          uint64_t fence);

void dibs__quorum_query_begin(struct dibs__store *base, struct dibs__op *op);
dibs_status dibs__quorum_query_finish(struct dibs__store *base, struct dibs__op *op, struct dibs__error *error);
dibs_status dibs__quorum_force(struct dibs__store *base, struct dibs__op *op, struct dibs__error *error);
dibs_status dibs__quorum_forget(struct dibs__store *base, struct dibs__op *op, struct dibs__error *error);

/* What at least n of the numbers reach; if there are fewer, what all reach. Sorts them. There is at least one. */
uint64_t dibs__nth_largest(uint64_t *numbers, size_t count, size_t n);

/* Lists all members; those that rest come last. */
void dibs__quorum_put_in_order(struct dibs__quorum *q, struct dibs__member *order[DIBS__MEMBERS_MAX]);

/* Carries out the operation at one member, in its share of the time that is left for `count` members. */
dibs_status dibs__quorum_finish_at(const struct dibs__member *member, const struct dibs__op *op, size_t count,
                                   struct dibs__error *error);

/* Sleeps for the backoff's next pause. False: the pause would last until the deadline, or longer. */
bool dibs__quorum_pause(const struct dibs__quorum *q, struct dibs__backoff *backoff, int64_t last_ms, int64_t deadline);

dibs_status dibs__quorum_walk(struct dibs__store *base, const struct dibs__walk *walk, struct dibs__error *error);
dibs_status dibs__quorum_examine(struct dibs__store *base, struct dibs__examination *examination,
                                 struct dibs__error *error);

void dibs__quorum_renew(struct dibs__store *base, struct dibs__batch *batch);

/* The scheduler's. */
int64_t dibs__top_up_deadline(const struct dibs__quorum *q);
void dibs__top_up_attend(struct dibs__quorum *q, int64_t now);

/* -------------------------------------------------------------------- votes */

/* For how long, and by which marks, looks have found that a quorum seems to be new. All zero: it did not seem so. */
struct dibs__newness {
    int64_t since;                     /* when that began */
    uint64_t marks[DIBS__MEMBERS_MAX]; /* of the masters that do not know whether they may vote; 0: none yet */
};

/* Which masters may vote. A look asks all of them. */
struct dibs__voting {
    _Atomic uint32_t longest_ms;              /* atomic; of all leases that were wanted so far */
    _Atomic uint32_t announced_ms;            /* atomic; the length of leases that was announced to a majority */
    atomic_bool due;                          /* atomic; the scheduler's thread must look */
    int64_t next;                             /* the scheduler thread's: latest time of the next look */
    int64_t last;                             /* the scheduler thread's: time of the last look */
    struct dibs__newness newness;             /* the scheduler thread's */
    struct dibs__look *look;                  /* the scheduler thread's: the look under way; NULL: none */
    int64_t unknown_since[DIBS__MEMBERS_MAX]; /* the scheduler thread's: since when the master has said that it does not
                                                 know whether it may vote; 0: it knows */
    int64_t unfloored_since[DIBS__MEMBERS_MAX]; /* the scheduler thread's: since when the master's wait has been over
                                                   while it has no floor; 0: it does not lack one */
};

void dibs__vote_init(struct dibs__quorum *q);

/*
 * Announces leases of that length, and returns when a majority knows of them. DIBS_OK, or why there is no such
 * majority. *answered: how many masters answered at all.
 */
dibs_status dibs__vote_announce(struct dibs__quorum *q, uint32_t lease_ms, int64_t deadline, unsigned *answered,
                                struct dibs__error *error);

/* Asks one master, on the calling thread, for a command timeout at most. */
dibs_status dibs__vote_ask(const struct dibs__quorum *q, size_t i, struct dibs__vote *vote, struct dibs__error *error);

/* Has the scheduler's thread look: a master answered that it may not vote, or longer leases are wanted. */
void dibs__vote_want(struct dibs__quorum *q, uint32_t lease_ms);

/*
 * Notes the member's clock, which an answer showed; sent_at is the time just before the request was sent. True:
 * the clock was set, now or before, and the member's server has not been told so yet: a grant of the member is
 * no vote.
 */
bool dibs__member_note_clock(struct dibs__member *member, int64_t sent_at, int64_t server_us);

/* The master's clock was set: the master is not asked again before it was told not to vote. */
void dibs__vote_distrust(struct dibs__member *member);

static inline bool dibs__vote_is_announced(const struct dibs__voting *voting, uint32_t lease_ms)
{
    return atomic_load_explicit(&voting->announced_ms, memory_order_acquire) >= lease_ms;
}

/* The scheduler's. */
int64_t dibs__vote_deadline(const struct dibs__quorum *q);
void dibs__vote_attend(struct dibs__quorum *q, int64_t now);
void dibs__vote_finish_all(struct dibs__quorum *q); /* at the closing */

/* --------------------------------------------------------------------- whole */

struct dibs__quorum {
    struct dibs__store store;         /* read-only after open */
    struct dibs__store_config config; /* read-only after open */
    size_t count, majority;           /* read-only after open */
    int64_t connect_by;               /* the opening thread's: until when the masters may be waited for */
    struct dibs__member *members;     /* read-only after open */
    _Atomic int64_t last_reply_at; /* atomic; when a majority last gave an answer other than that it can't serve now */
    _Atomic uint64_t generation;   /* atomic; how often the renewals of any member went over to another server */
    struct dibs__voting voting;    /* its fields name their guards */
    _Atomic uint64_t number;       /* atomic; the number of the quorum, as its masters know it; 0: not known */
    struct dibs__mutex mutex;
    size_t down_count DIBS__GUARDED_BY(dibs__quorum_mutex); /* members that can't be reached */
    void *claims DIBS__GUARDED_BY(dibs__quorum_mutex);      /* the table: a tree of struct dibs__claim by token */
    struct dibs__pending_op *detached DIBS__GUARDED_BY(dibs__quorum_mutex); /* a list */
    int64_t top_up_at;      /* the scheduler thread's: when members that lost locks are topped up; 0: none has */
    int64_t last_top_up_at; /* the scheduler thread's: when the last of them can be */
};

static inline struct dibs__quorum *dibs__quorum_of(struct dibs__store *store)
{
    return (struct dibs__quorum *)store;
}

/* The set of all members. */
static inline uint32_t dibs__quorum_all(const struct dibs__quorum *q)
{
    return ((uint32_t)1 << q->count) - 1;
}

static inline int64_t dibs__quorum_now(const struct dibs__quorum *q)
{
    return dibs__now(q->config.clock);
}

/* Notes the status of a call: unless it is DIBS_UNAVAILABLE, or memory ran out here, a majority has answered. */
static inline void dibs__quorum_note_reply(struct dibs__quorum *q, dibs_status status)
{
    if (status != DIBS_UNAVAILABLE && status != DIBS_NO_MEMORY)
        atomic_store_explicit(&q->last_reply_at, dibs__quorum_now(q), memory_order_relaxed);
}

dibs_status dibs__quorum_no_memory(struct dibs__error *error);

/*
 * The error of too few answers: `answered` masters did. It says why the others did not; an error that does not
 * pass by waiting is kept as it is.
 */
dibs_status dibs__quorum_no_majority(const struct dibs__quorum *q, unsigned answered, struct dibs__error *error);

/* Keeps the worse of both errors: one that does not pass by waiting is worse than one that may. */
void dibs__error_keep_worst(struct dibs__error *worst, const struct dibs__error *other);

#endif
