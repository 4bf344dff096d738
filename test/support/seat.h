/*
 * A store without a runtime, used as a runtime would use it: with a thread in place of the scheduler, and a listener
 * that records what the store reports.
 */
#ifndef DIBS_TEST_SEAT_H
#define DIBS_TEST_SEAT_H

#include <pthread.h>

#include "base/wake.h"
#include "store/store.h"
#include "support/store_call.h"

/* The last grant that the listener was told of. */
struct seat_grant {
    unsigned count; /* of all grants so far */
    char name[64], token[DIBS__TOKEN_MAX];
    uint64_t number, fence;
    bool confirm;
};

struct seat {
    char id[32];                    /* read-only while it is open */
    struct dibs__store *store;      /* read-only while it is open */
    struct dibs__access *access;    /* read-only while the store is open; empty unless the test gave one */
    struct dibs__counters counters; /* atomic */
    struct dibs__wake wake;         /* has its own atomic */
    pthread_t scheduler;            /* the test's own thread's */
    atomic_bool ending;
    atomic_bool refuses; /* nobody waits for grants */
    pthread_mutex_t mutex;
    struct seat_grant grant; /* guarded by mutex */
    struct dibs__batch *due; /* guarded by mutex; to be renewed by the scheduler's thread */
    bool renewed;            /* guarded by mutex; the last batch that was due is done */
};

/* For calls that are not to fail. */
int64_t seat_deadline(void);

/* As dibs__op_await, for the reply alone. */
bool seat_await(struct seat *seat, const struct dibs__op *op, int64_t until);

/* Opens the store, and connects it as a runtime does; config has the URL, and what is not the default here. Takes over
 * config->access. */
void seat_open(struct seat *seat, const struct dibs__store_config *config);

/* The same without connecting. */
void seat_open_unconnected(struct seat *seat, const struct dibs__store_config *config);

void seat_close(struct seat *seat);

struct seat_grant seat_last_grant(struct seat *seat);

/* Waits until so many grants were told in all; returns the last. */
struct seat_grant seat_await_grant(struct seat *seat, unsigned count);

/* Has the scheduler's thread renew one lease, and waits for the outcome, in *renewal. Returns the result. */
enum dibs__renewed seat_renew(struct seat *seat, struct dibs__renewal *renewal);

/* The same of several in one batch, on one server. */
void seat_renew_batch(struct seat *seat, struct dibs__renewal *renewals, size_t count);

/* As seat_renew, in two steps, and only once. */
void seat_begin_renewal(struct seat *seat, const struct dibs__renewal *renewal);
enum dibs__renewed seat_end_renewal(struct seat *seat, struct dibs__renewal *renewal);

/* Waits until the store has confirmed all that it retracts. */
void seat_await_confirmed(struct seat *seat);

#endif
