/* What the records of a race say, seen from outside the lock. */
#ifndef DIBS_DEMO_COUNT_H
#define DIBS_DEMO_COUNT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "race/race.h"

enum { ROUNDS_MOST = 100 };

struct tally {
    unsigned rounds;
    long long counts[ROUNDS_MOST]; /* where the counter ended */
    unsigned limit;
    unsigned racers;      /* that wanted the lock, or what the way has instead */
    unsigned holds;       /* how often the lock was got */
    unsigned gave_up;     /* how often a racer waited and did not get the lock */
    unsigned denied;      /* how often a racer was told that the lock can't be had safely at present */
    unsigned left;        /* locks that stayed behind for ever */
    unsigned most;        /* inside at once */
    unsigned pairs;       /* of holds that overlap */
    unsigned outlasted;   /* holds that took longer than the lease, from getting the lock to having released it */
    unsigned deleted;     /* locks that the release of another deleted */
    unsigned noticed;     /* holds whose loss the way told in time, or whose write was refused */
    uint64_t order_pairs; /* pairs of racers that got the lock, and */
    uint64_t inverted;    /* those of them in which the later one was in earlier */
    uint64_t idle_ns;     /* the longest time for which the lock was free though somebody waited */
    uint64_t commands;    /* that the way sent */
    unsigned threads;     /* that the way started */
    uint64_t extras[WAY_EXTRAS];
    double seconds;
    uint64_t
        *waits; /* ns, one for each racer that got what it came for; sorted by tally_wait_ms. Freed by tally_free */
    size_t wait_count, wait_room;
};

/*
 * Adds a round. A hold lasts from having the lock to the begin of its release. Where the way told the holder of its
 * loss, or the counter refused its fence, the hold ends when the holder was last at work.
 */
void tally_add(struct tally *tally, const struct race *race);

/*
 * The waiting time that so many per cent did not exceed: until the racer was in, or, where it never was in because
 * there was nothing left to do, until it had what it came for.
 */
double tally_wait_ms(struct tally *tally, double percent);

/* The way's commands for each time that the lock was got; where a way has a race of its own, for each racer. */
double tally_commands(const struct tally *tally, const struct way *way);

double tally_inverted(const struct tally *tally); /* in per cent of all pairs of the same lock */

/* Which of the numbers mean something. Where there is no lock, none can be deleted, left behind or granted in order. */
bool tally_has_inside(const struct tally *tally, const struct way *way);
bool tally_has_lock(const struct way *way);
bool tally_has_waits(const struct tally *tally, const struct way *way);
bool tally_has_commands(const struct tally *tally, const struct way *way);

/* Whether the lock was free for so long, though somebody waited, that the scene calls it a flaw. */
bool tally_idle(const struct tally *tally, const struct race *race);

/* The flaws (enum flaw) that the numbers show. */
unsigned tally_flaws(const struct tally *tally, const struct race *race);

void tally_free(struct tally *tally);

/* When the hold of this record began and ended; false: the racer never got the lock. */
bool hold_of(const struct race *race, const struct record *record, uint64_t *begin, uint64_t *end);

/*
 * Whether what this record deleted was another's. Where the lock does not tell whose it is, it belongs to the one who
 * got in last.
 */
bool deleted_anothers(const struct race *race, const struct record *record);

#endif
