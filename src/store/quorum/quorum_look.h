/*
 * What one look at the masters of a quorum found, and what follows from it.
 *
 * Lock discipline: a look belongs to one thread: the one that waits for it, or the scheduler's. For the rest
 * see quorum_parts.h.
 */
#ifndef DIBS_STORE_QUORUM_QUORUM_LOOK_H
#define DIBS_STORE_QUORUM_QUORUM_LOOK_H

#include "store/quorum/quorum_parts.h"

#define DIBS__ADMIT_GRACE_MS 20      /* added to waits, with 1 % of the lease: clocks may differ in pace */
#define DIBS__DISTRUST_LEAST_MS 1000 /* how long a master whose clock was set waits at least: others must notice it */

/* After that time, every lease of that length that a master may have granted is over. */
static inline int64_t dibs__admission_wait_ms(uint32_t longest_ms)
{
    return (int64_t)longest_ms + longest_ms / 100 + DIBS__ADMIT_GRACE_MS;
}

/*
 * Whether a master's wait should be shortened to wait_ms. The wait of a master whose clock was set is never
 * made shorter than its minimum.
 */
static inline bool dibs__waits_too_long(int64_t votes_in_ms, int64_t wait_ms)
{
    return votes_in_ms > wait_ms && votes_in_ms > DIBS__DISTRUST_LEAST_MS;
}

/* The fields are sets of members, unless their comments say otherwise. */
struct dibs__look {
    uint32_t open;       /* have not answered */
    uint32_t known;      /* know whether they may vote */
    uint32_t ready;      /* those of them that may vote now */
    uint32_t restarted;  /* knew in an earlier process whether they may vote */
    uint32_t unknown;    /* do not know whether they may vote */
    uint32_t strange;    /* members of another quorum, or the second name of a server; in none of the sets above */
    bool admitting;      /* whether the second part of the look has begun */
    uint32_t longest_ms; /* length of leases that this look announces */
    uint32_t others_ms;  /* longest length that the known and restarted members know of */
    int64_t deadline;
    int64_t first_began;                          /* when the first part began */
    int64_t began;                                /* when this part began */
    struct dibs__newness newness;                 /* of a thread that waits for the look */
    struct dibs__vote votes[DIBS__MEMBERS_MAX];   /* what the masters are asked now, with their answers */
    struct dibs__vote answers[DIBS__MEMBERS_MAX]; /* the last answer of each master; zero: none yet */
    struct dibs__pending_op ops[];
};

/* All that answered, except those that are strange. */
static inline uint32_t dibs__look_replied(const struct dibs__look *look)
{
    return look->known | look->restarted | look->unknown;
}

/* Those that belong to the quorum, or did in an earlier process. */
static inline uint32_t dibs__look_members(const struct dibs__look *look)
{
    return look->known | look->restarted;
}

/* Takes the answer of member i into the sets of the look. */
void dibs__look_take(struct dibs__look *look, const struct dibs__vote *vote, size_t i);

/* The same for an answer that was begun, which also says when the member may vote. */
void dibs__look_note(struct dibs__look *look, const struct dibs__pending_op *op, dibs_status status);

/* Updates the number of the quorum, and the set of strange members, from the answers so far. */
void dibs__look_identify(struct dibs__quorum *q, struct dibs__look *look);

/* The number that a majority has; 0: none. */
uint64_t dibs__look_number_of_majority(const struct dibs__quorum *q, const struct dibs__look *look);

/* Masters of another quorum than that with this number, and second names of a server, are strange from now on. */
void dibs__look_set_aside(const struct dibs__quorum *q, struct dibs__look *look, uint64_t number);

/*
 * Called before the masters of a new quorum are admitted. If all were heard, and none has a number, they are
 * given one when they are admitted. Every process that admits them makes the same number, even if it knew
 * another one that all of them have forgotten.
 */
void dibs__look_number_anew(struct dibs__quorum *q, const struct dibs__look *look);

/* Whether a master does not know to which quorum it belongs, and one more look can tell it. */
bool dibs__look_lacks_number(const struct dibs__quorum *q, const struct dibs__look *look);

/* Whether every master answered. */
bool dibs__look_is_whole(const struct dibs__quorum *q, const struct dibs__look *look);

/* Whether a majority was never in a quorum, or lost its data, and nobody that answered knows of a quorum. */
bool dibs__look_is_new_quorum(const struct dibs__quorum *q, const struct dibs__look *look);

/* Until when masters that have not answered are waited for, since the quorum has seemed to be new. */
int64_t dibs__look_given_until(const struct dibs__quorum *q, const struct dibs__newness *newness);

/* Whether the quorum seems to be new, and masters that did not answer were waited for until then. */
bool dibs__look_seems_new(const struct dibs__quorum *q, const struct dibs__look *look, struct dibs__newness *newness,
                          int64_t now);

/*
 * Called at the end of a look. Whether the quorum is new, so that masters admitted now may vote at once: it
 * seems to be new, and the look before found the same marks.
 */
bool dibs__look_proves_new(const struct dibs__quorum *q, const struct dibs__look *look, struct dibs__newness *newness,
                           int64_t now);

/*
 * Plans what the second part of a look must do at a member. False: nothing. `long_unknown`: members that have
 * said for long enough that they do not know whether they may vote.
 */
bool dibs__look_plan(struct dibs__quorum *q, const struct dibs__look *look, size_t i, uint32_t long_unknown,
                     struct dibs__vote *vote);

/* The admission of a master to a new quorum. */
struct dibs__vote dibs__look_admission(const struct dibs__quorum *q, const struct dibs__look *look, size_t i);

/* Whether two of the URLs are known to lead to the same server. */
bool dibs__look_has_twins(const struct dibs__quorum *q, const struct dibs__look *look);

/* DIBS_OK: no two of the URLs are known to lead to the same server. */
dibs_status dibs__look_check_twins(const struct dibs__quorum *q, const struct dibs__look *look,
                                   struct dibs__error *error);

/* The reason why the masters that answered are no majority. The worst reason matters more than their number. */
dibs_status dibs__look_tell_why(const struct dibs__quorum *q, const struct dibs__look *look, unsigned answered,
                                struct dibs__error *error);

#endif
