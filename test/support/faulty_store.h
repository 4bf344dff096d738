/*
 * A store in memory that fails when it is told to, counts what it is asked,
 * and can keep its answers back. A runtime gets it by settings.open_store =
 * faulty_store_open, after faults_init; there is one struct faults at a time,
 * and all runtimes that are open then share it.
 */
#ifndef DIBS_TEST_FAULTY_STORE_H
#define DIBS_TEST_FAULTY_STORE_H

#include <limits.h>

#include "store/store.h"

#define FOR_EVER UINT_MAX /* a fault that does not end by itself */
#define RENEWALS_MAX 8192

struct renewal_record {
    int64_t at;     /* when it was sent */
    unsigned batch; /* from 1 */
    uint32_t lease_ms;
    char name[32];
};

struct fault {
    dibs_status status;
    unsigned left; /* for how many calls */
};

struct faults {
    pthread_mutex_t mutex; /* guards the rest */
    const struct dibs__clock *clock;
    struct fault acquire, release, renewal;
    bool unanswered;        /* acquires are done all the same; their answers get lost */
    bool released_again;    /* a release answers that it was sent twice, and found nothing */
    bool unmet;             /* acquires are done and taken back: no replica acknowledged them */
    bool late_proof;        /* answers come when the lease that their ask could prove is over */
    bool pushes_lost;       /* the store believes that it told of its grants; nobody hears of them */
    bool blocked, blocking; /* acquires are to wait; one does */
    bool one_goes;          /* although they are to wait */
    pthread_cond_t unblocked;
    bool held_back;                /* answers to renewals are not told */
    char gone[32];                 /* renewals of that name find it gone */
    uint64_t grants_server;        /* that grants come from, as the store notes with their leases */
    _Atomic uint64_t server;       /* that renewals go to; 0: not known. Atomic, not under mutex */
    struct kept *kept, **kept_end; /* answers that are held back */
    struct unconfirmed *unconfirmed;
    unsigned acquires, releases, retractions, batches, renewals; /* how often it was asked; renewals: of leases */
    unsigned pushes;              /* grants that the store made by itself, with those that were lost */
    unsigned inside, inside_most; /* acquires at the same time */
    int64_t last_deadline;        /* of the last acquire that was not behind a release */
    struct renewal_record records[RENEWALS_MAX];
};

void faults_init(struct faults *faults, const struct dibs__clock *clock);
void faults_destroy(struct faults *faults); /* all runtimes are closed */

dibs_status faulty_store_open(struct dibs__store **out, const struct dibs__store_config *config,
                              struct dibs__error *error);

/*
 * The next `count` calls of that kind are answered with that status and not
 * done, DIBS_OK: as they should be. A release that is refused stays unconfirmed
 * until faults_confirm; DIBS_NOT_HELD is what a release says whose key is gone,
 * and it is gone then. An ask that is "taken" this way is in no queue. The ask
 * behind a release is an acquire, and is refused with the release. For renewals
 * a call is a batch.
 */
void faults_acquire(struct faults *faults, dibs_status status, unsigned count);
void faults_release(struct faults *faults, dibs_status status, unsigned count);
void faults_renewal(struct faults *faults, dibs_status status, unsigned count);
void faults_renewal_gone(struct faults *faults, const char *name);
void faults_set(struct faults *faults, bool *flag, bool value); /* one of the flags above */

/* Renewals reach the store, their answers are kept, until they are let go of: told when the scheduler wakes next. */
void faults_hold_renewals(struct faults *faults);
void faults_let_renewals_go(struct faults *faults);

/*
 * Acquires, but for those behind a release, wait inside the store until
 * unblocked; await_blocked: one does. let_one_go: that one is answered.
 */
void faults_block_acquires(struct faults *faults);
void faults_await_blocked(struct faults *faults);
void faults_let_one_go(struct faults *faults);
void faults_unblock_acquires(struct faults *faults);

/* The store confirms what it could not release. It tells no scheduler. */
void faults_confirm(struct faults *faults);

/* Reads one of the counters above. */
unsigned faults_count(struct faults *faults, const unsigned *counter);

#endif
