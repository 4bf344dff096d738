/*
 * The judge: a file that all workers map. It accepts a write to a name only with a fence at least as large as any
 * before it for that name, and likewise a sharer's read; and keeps a log of every hold, which outlives a worker that is
 * killed.
 *
 * Each thread of a worker has a slot: a ring of records that only it writes. The rig takes what is done (or what a dead
 * worker left) and moves `tail`; a full ring makes the thread wait, so that nothing is lost. judge.py reads the same
 * layout: 64-bit words only, in the byte order of the host. Times are nanoseconds of CLOCK_MONOTONIC.
 */
#ifndef DIBS_FAULT_JUDGE_H
#define DIBS_FAULT_JUDGE_H

#include <stdatomic.h>
#include <stdint.h>

#define JUDGE_MAGIC UINT64_C(0x6a75646765303033)
#define JUDGE_HEAD_WORDS 512 /* of the file's head, in whole pages */
#define JUDGE_PROCESSES_MAX 256

enum hold_state { HOLD_NONE, HOLD_ASKING, HOLD_HELD, HOLD_LEAVING, HOLD_DONE };

enum hold_oddity {                       /* what must not be, whatever the faults */
                   ODD_NOT_HELD = 1,     /* a call about a lock that is held, or was lost, said that it is not held */
                   ODD_LOSS_UNDONE = 2,  /* held again after it was lost */
                   ODD_NO_FENCE = 4,     /* a hold without a fence */
                   ODD_FENCE_CHANGED = 8 /* a hold whose fence changed */
};

#define HOLD_LIMIT 8 /* the lowest bit of the limit */

typedef struct hold_record {
    _Atomic uint64_t state;
    uint64_t phase, name;
    uint64_t flags; /* of dibs_lock_options; in HOLD_LIMIT and above, the limit with DIBS_SHARED */
    uint64_t lease_ms;
    int64_t wait_ms;
    uint64_t status;        /* of the acquire */
    uint64_t unlock_status; /* of the last unlock */
    uint64_t asked, returned;
    uint64_t fence;
    uint64_t first_ok_end;      /* end of the first dibs_check that said DIBS_OK; 0: none did */
    uint64_t last_ok;           /* begin of the last one that did */
    uint64_t told_lost;         /* end of the first call that said DIBS_LOST; 0: none did */
    uint64_t left, left_end;    /* around the last unlock */
    uint64_t accepted;          /* writes that the judge accepted, and rejected */
    uint64_t rejected;          /* ... */
    uint64_t first_accept_end;  /* end of the first write accepted */
    uint64_t last_accept;       /* begin of the last one */
    uint64_t ok_after_rejected; /* begin of the last check that said DIBS_OK though a write was rejected before */
    uint64_t odd;               /* hold_oddity */
    uint64_t extended_ms;       /* the longest lease that a dibs_extend asked for; 0: none did */
    uint64_t sure_until;        /* until when the last dibs_hold_of since the last dibs_extend was sure; 0: none was */
} hold_record;

enum burst_state { BURST_NONE, BURST_TAKING, BURST_ENDING, BURST_ENDED };

/* Of the process that holds many locks and then lets go of all of them at once; by that process. */
typedef struct judge_burst {
    _Atomic uint64_t state;
    _Atomic uint64_t taken;   /* locks */
    uint64_t ending, ended;   /* around the end of their threads, or of their runtime */
    _Atomic uint64_t at_risk; /* DIBS_EVENT_AT_RISK for a lock of the phase since then */
} judge_burst;

typedef struct judge_slot {
    _Atomic uint64_t head;  /* records begun; by the thread */
    _Atomic uint64_t tail;  /* records taken; by the rig */
    _Atomic uint64_t phase; /* of the work under way, 0: none; by the thread */
    _Atomic uint64_t beats; /* rounds of work; by the thread */
} judge_slot;               /* followed by `capacity` records */

typedef struct judge_head {
    uint64_t magic, phases, names, processes, threads, capacity; /* set by the rig before it starts a worker */
    _Atomic uint64_t phase;                     /* names are those of this phase; 0: pause; by the rig */
    _Atomic uint64_t lease_ms;                  /* the usual lease of the phase; by the rig, before the phase */
    _Atomic uint64_t stretches;                 /* percent of the holds that are extended twice; by the rig, as that */
    _Atomic uint64_t quit[JUDGE_PROCESSES_MAX]; /* a worker that is to end; by the rig */
    judge_burst burst;                          /* by the last process that made one */
    uint64_t shared;          /* percent of the holds that are shared; set by the rig before it starts a worker */
    uint64_t keep_ms;         /* how long workers keep leases; set by the rig before it starts one */
    _Atomic uint64_t retaken; /* holds over kept leases; by the workers */
} judge_head;                 /* then at JUDGE_HEAD_WORDS the fences [phase][name], then the slots */

_Static_assert(sizeof(judge_head) <= JUDGE_HEAD_WORDS * sizeof(uint64_t), "the judge's head has its place");

#endif
