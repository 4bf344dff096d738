/*
 * What is known of one racer in one round. Records lie in memory that all processes of a race share; a record is
 * written by its racer (its counters by the racer's helpers, too), and read by the program when all processes have
 * ended.
 */
#ifndef DIBS_DEMO_RECORD_H
#define DIBS_DEMO_RECORD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "ways/way.h"

enum { RECORD_EVENTS = 40 };

enum happening {
    HAPPENED_ARRIVE = 1,
    HAPPENED_ENTER,
    HAPPENED_WORK,     /* found the counter below its limit */
    HAPPENED_RAISE,    /* is about to raise the counter, which was not refused */
    HAPPENED_LEAVE,    /* before unlock */
    HAPPENED_LEFT,     /* behind it; where the way has a race of its own, at the end of that */
    HAPPENED_ANOTHERS, /* deleted the lock of another */
    HAPPENED_UNKNOWN,  /* deleted a lock; whose it was shows from who was inside */
    HAPPENED_LOST,     /* the way said that the lock was lost */
    HAPPENED_REFUSED,  /* the counter refused the fence */
    HAPPENED_STOP,     /* its process is about to be stopped */
    HAPPENED_GO,       /* goes on */
    HAPPENED_DIE,      /* is about to be killed */
    HAPPENED_DENIED,   /* was told that the lock can't be had safely at present */
    HAPPENED_GIVE_UP,  /* waited for as long as it had patience */
};

struct event {
    uint64_t at; /* ns, CLOCK_MONOTONIC */
    enum happening what;
};

struct record {
    unsigned count;                     /* the racer's */
    struct event events[RECORD_EVENTS]; /* the racer's */
    unsigned crew;                      /* read-only once the round began */
    unsigned item;                      /* the racer's: which of several locks */
    _Atomic uint64_t commands;
    atomic_uint threads;
    _Atomic uint64_t lease_end; /* ns; when the lease that was set last was to end. 0: none was */
    _Atomic uint64_t extras[WAY_EXTRAS];
};

/* The racer's thread alone may note. */
void record_note(struct record *record, enum happening what, uint64_t at);

/* When it happened first; 0: never. */
uint64_t record_time(const struct record *record, enum happening what);

#endif
