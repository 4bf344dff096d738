/*
 * What one look at the masters of a quorum found, and what follows from it.
 * Lock discipline: a look is its thread's, the one that waits for it or the
 * scheduler's; quorum_parts.h for the rest.
 */
#ifndef DIBS_STORE_QUORUM_QUORUM_LOOK_H
#define DIBS_STORE_QUORUM_QUORUM_LOOK_H

#include "store/quorum/quorum_parts.h"

#define DIBS__ADMIT_GRACE_MS 20      /* the clocks of masters may differ in pace: this, and 1 % of the lease */
#define DIBS__DISTRUST_LEAST_MS 1000 /* until all have noticed, a master whose clock was set does not vote */

/* After that time every lease of that length is over that a master may have granted. */
static inline int64_t dibs__admission_wait_ms(uint32_t longest_ms)
{
    return (int64_t)longest_ms + longest_ms / 100 + DIBS__ADMIT_GRACE_MS;
}

/* Nobody makes a wait shorter than what a master whose clock was set waits at least. */
static inline bool dibs__waits_too_long(int64_t votes_in_ms, int64_t wait_ms)
{
    return votes_in_ms > wait_ms && votes_in_ms > DIBS__DISTRUST_LEAST_MS;
}

/* Sets of members, unless a field says otherwise. */
struct dibs__look {
    uint32_t open;      /* have not answered */
    uint32_t known;     /* know whether they may vote */
    uint32_t ready;     /* those among them that may vote now */
    uint32_t restarted; /* knew it in an earlier process */
    uint32_t unknown;   /* do not know */
    uint32_t strange;   /* members of another quorum, or the second name of a server; in none of the sets above */
    uint32_t admitted;
    bool admitting;      /* the second part */
    uint32_t longest_ms; /* that is announced */
    uint32_t others_ms;  /* the longest that those know of who know, or knew */
    int64_t deadline;
    int64_t first_began;                 /* when the first part began */
    int64_t began;                       /* when this part began */
    struct dibs__newness newness;        /* of a thread that waits */
    uint64_t highest[DIBS__MEMBERS_MAX]; /* no fence was larger at the master */
    uint64_t numbers[DIBS__MEMBERS_MAX]; /* of the quorum that the master is a member of; 0: not known */
    uint64_t processes[DIBS__MEMBERS_MAX];
    uint64_t marks[DIBS__MEMBERS_MAX]; /* of masters that do not know whether they may vote */
    int64_t votes_in_ms[DIBS__MEMBERS_MAX];
    unsigned steps[DIBS__MEMBERS_MAX];          /* of the clocks that had been found when the masters were asked */
    struct dibs__vote votes[DIBS__MEMBERS_MAX]; /* what the masters are asked, and answer */
    struct dibs__pending_op ops[];
};

/* All that answered, but for those that are strange. */
static inline uint32_t dibs__look_replied(const struct dibs__look *look)
{
    return look->known | look->restarted | look->unknown;
}

/* Those that knew the quorum once. */
static inline uint32_t dibs__look_members(const struct dibs__look *look)
{
    return look->known | look->restarted;
}

/* Notes what a member said. */
void dibs__look_note(struct dibs__look *look, const struct dibs__pending_op *op, dibs_status status);

/* What answered so far may tell the number of the quorum, and who is strange. */
void dibs__look_identify(struct dibs__quorum *q, struct dibs__look *look);

/*
 * Before masters of a new quorum are admitted: where all were heard, and none has a number, they get one with that.
 * Every process that admits them makes the same, also one that knew a number which all have forgotten.
 */
void dibs__look_number_anew(struct dibs__quorum *q, const struct dibs__look *look);

/* A master does not know which quorum it belongs to, and one more look can tell it. */
bool dibs__look_lacks_number(const struct dibs__quorum *q, const struct dibs__look *look);

/* Every master answered. */
bool dibs__look_is_whole(const struct dibs__quorum *q, const struct dibs__look *look);

/* A majority has never been a member of a quorum, or lost its data, and nobody who answered knows of one. */
bool dibs__look_is_new_quorum(const struct dibs__quorum *q, const struct dibs__look *look);

/* So long masters that did not answer are given, since the quorum has seemed to be new. */
int64_t dibs__look_given_until(const struct dibs__quorum *q, const struct dibs__newness *newness);

/* It seems to be new, and masters that did not answer were given that time. */
bool dibs__look_seems_new(const struct dibs__quorum *q, const struct dibs__look *look, struct dibs__newness *newness,
                          int64_t now);

/*
 * The look is over. It is new: who is admitted now may vote at once. So it is
 * where it seems to be new, and the look before found the same marks.
 */
bool dibs__look_proves_new(const struct dibs__quorum *q, const struct dibs__look *look, struct dibs__newness *newness,
                           int64_t now);

/*
 * What must be done at a member now that the first part of a look is over.
 * False: nothing. `long_unknown`: members that have said for long enough that
 * they do not know whether they may vote.
 */
bool dibs__look_plan(struct dibs__quorum *q, const struct dibs__look *look, size_t i, uint32_t long_unknown,
                     struct dibs__vote *vote);

/* What is said to a master of a new quorum. */
struct dibs__vote dibs__look_admission(const struct dibs__quorum *q, const struct dibs__look *look, size_t i);

/* DIBS_OK: no two of the URLs are known to be the same server. */
dibs_status dibs__look_check_twins(const struct dibs__quorum *q, const struct dibs__look *look,
                                   struct dibs__error *error);

/* Why masters that answered are no majority: the worst reason goes before that so many did not answer. */
dibs_status dibs__look_tell_why(const struct dibs__quorum *q, const struct dibs__look *look, unsigned answered,
                                struct dibs__error *error);

#endif
