/*
 * The faults of a faulty_store, and its counters. There is one struct faults at a time, shared by all runtimes that are
 * open.
 */
#ifndef DIBS_TEST_FAULTS_H
#define DIBS_TEST_FAULTS_H

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
    pthread_mutex_t mutex; /* guards all but `server`, which is atomic */
    const struct dibs__clock *clock;
    int64_t last_reply_at; /* when the store answered an ask or a look last */
    struct fault acquire, release, renewal, look;
    bool watches;        /* stores that are opened from now on can watch locks, tell when one is free, and recall */
    bool unanswered;     /* asks are done, but their answers get lost */
    bool unsent;         /* no connection stands for asks before they are finished */
    const char *only;    /* `unsent` and `blocked` concern asks for that name alone; NULL: for all */
    bool spends;         /* an ask that is refused spends its token */
    bool released_again; /* a release answers that it was sent twice and found nothing */
    void (*on_release)(void *arg); /* called in each release, without mutex; NULL: nothing */
    void *on_release_arg;
    bool too_few_replicas;  /* asks are done and retracted, because no replica acknowledged them */
    bool late_proof;        /* an answer comes when the lease that it grants is over already */
    bool pushes_lost;       /* nobody hears of the grants that the store makes by itself */
    bool blocked, blocking; /* asks wait in the store; one waits */
    bool one_goes;          /* one ask may go on although asks wait */
    pthread_cond_t unblocked;
    bool held_back;                /* answers to renewals are not told */
    bool looks_held_back;          /* nor are answers to looks */
    bool apart;                    /* each renewal that fails does so by itself, with a reason that names the lock */
    uint64_t tells;                /* what tell_when_free returns */
    char gone[32];                 /* renewals of that name find the lease gone */
    char other[32];                /* looks find that the lock of that name looks to be another's */
    uint64_t grants_server;        /* the server that grants come from, which the store notes with each lease */
    _Atomic uint64_t server;       /* the server that renewals go to; 0: not known */
    struct kept *kept, **kept_end; /* answers that are held back */
    struct unconfirmed *unconfirmed;
    unsigned acquires, releases, retractions, batches,
        renewals;                 /* how often the store was asked; `renewals` counts leases */
    unsigned looks;               /* how many leases were looked at */
    unsigned look_batches;        /* in so many batches */
    unsigned tellings;            /* how often the store was asked to tell when a lock is free, ... */
    unsigned told_again;          /* ... and how often with another `since` than what it had returned */
    unsigned unheard;             /* how often the store was told that somebody waits without listening */
    unsigned pushes;              /* grants that the store made by itself, including lost ones */
    unsigned inside, inside_most; /* asks that are in the store now, and the most at any time */
    int64_t last_deadline;        /* of the last ask that was not sent with a release */
    struct renewal_record records[RENEWALS_MAX];
    struct renewal_record look_records[RENEWALS_MAX];
};

void faults_init(struct faults *faults, const struct dibs__clock *clock);
void faults_destroy(struct faults *faults); /* requires that all runtimes are closed */

/*
 * The next `count` calls of that kind are not done, and answered with that status; DIBS_OK ends the fault. A release
 * that is refused stays unconfirmed until faults_confirm. DIBS_NOT_HELD is the answer to a release whose key is gone,
 * and then the key is deleted. An ask that is answered DIBS_BUSY in this way is in no queue. An ask that is sent with a
 * release counts as an ask, and is refused with the release. A call of faults_renewal or faults_look is a batch. Where
 * the store tells when a lock is free, an ask that is answered DIBS_BUSY in this way found a foreign holder.
 */
void faults_acquire(struct faults *faults, dibs_status status, unsigned count);
void faults_release(struct faults *faults, dibs_status status, unsigned count);
void faults_renewal(struct faults *faults, dibs_status status, unsigned count);
void faults_look(struct faults *faults, dibs_status status, unsigned count);
void faults_renewal_gone(struct faults *faults, const char *name);
void faults_look_gone(struct faults *faults, const char *name);
void faults_set(struct faults *faults, bool *flag, bool value); /* sets one of the flags of struct faults */

/*
 * From the first call on, renewals reach the store but their answers are kept. The second lets go of the answers, which
 * are told when the scheduler wakes next.
 */
void faults_hold_renewals(struct faults *faults);
void faults_let_renewals_go(struct faults *faults);

/* The same for looks. */
void faults_hold_looks(struct faults *faults);
void faults_let_looks_go(struct faults *faults);

/*
 * Asks, but for those that are sent with a release, wait inside the store from the first call on, until they are
 * unblocked. faults_await_blocked waits until one ask waits there; faults_let_one_go lets that one be answered.
 */
void faults_block_acquires(struct faults *faults);
void faults_await_blocked(struct faults *faults);
void faults_let_one_go(struct faults *faults);
void faults_unblock_acquires(struct faults *faults);

/* The store now confirms what it could not release; no scheduler is told. */
void faults_confirm(struct faults *faults);

/* Reads one of the counters of struct faults. */
unsigned faults_count(struct faults *faults, const unsigned *counter);

/* ------------------------------------------------------- for faulty_store.c */

/* What the last faults_init was given. */
struct faults *faults_current(void);

/* The status that this call is to have. Requires mutex. */
dibs_status faults_use(struct fault *fault);

/* That token could not be released in `inner`, until faults_confirm. Requires mutex. */
void faults_keep_unconfirmed(struct faults *faults, struct dibs__store *inner, struct dibs__counters *counters,
                             const char *name, const char *token);

#endif
