/*
 * What the processes of integration/kept_holds_test share: a file that each of them maps. A holder writes its number
 * at the place of the name, and adds KEPT_GOOD if its lease is good then. If another has done both when the holder
 * leaves, and its own lease is still good, there were two holders.
 */
#ifndef DIBS_TEST_KEPT_JUDGE_H
#define DIBS_TEST_KEPT_JUDGE_H

#include <stdatomic.h>
#include <stdint.h>

enum { KEPT_PROCESSES = 4, KEPT_THREADS = 3, KEPT_OWN = 64, KEPT_NAMES = KEPT_PROCESSES * KEPT_OWN };

#define KEPT_GOOD (UINT64_C(1) << 63)

typedef struct kept_place {
    _Atomic uint64_t inside; /* the last holder that came; 0: none has */
    _Atomic uint64_t fence;  /* the largest fence of a holder */
} kept_place;

typedef struct kept_judge {
    _Atomic uint64_t stopped;        /* a process that is stopped, counted from 1: others want its names; 0: none */
    _Atomic uint64_t holds, retaken; /* in all; over kept leases */
    _Atomic uint64_t foreign;        /* holds of a name that another process uses */
    _Atomic uint64_t lost;           /* holds that were lost before they ended */
    _Atomic uint64_t unavailable;    /* acquires that failed because of the store */
    _Atomic uint64_t together;       /* holds whose lease was good when somebody else had come in */
    _Atomic uint64_t fallen;    /* holds of a new lease that was good, and whose fence was no larger than one before */
    _Atomic uint64_t overtaken; /* the same, of the lease that the process had of the name before: another was granted
                                   the lock meanwhile */
    _Atomic uint64_t odd;       /* calls that returned what they must not */
    kept_place places[KEPT_NAMES];
} kept_judge;

#endif
