/*
 * What most tests need: a server of their own, and a runtime on it whose events are recorded. Used as setup and
 * teardown of tests:
 *
 *     TESTS(fixture_setup, fixture_teardown)
 *
 * The test itself opens the runtime, with the lease that it wants.
 */
#ifndef DIBS_TEST_FIXTURE_H
#define DIBS_TEST_FIXTURE_H

#include "support/actor.h"
#include "support/events.h"
#include "support/script_server.h"
#include "support/server.h"
#include "support/test.h"

typedef struct fixture {
    server *server;
    events events;
    const char *urls[1];
    dibs_config config; /* with url and on_event; to be changed before fixture_open */
    dibs_runtime *rt;   /* NULL until fixture_open; closed by the teardown */
    script_server *net; /* NULL until fixture_between; stopped by the teardown */
} fixture;

/* Starts the server. */
int fixture_setup(void **state);

/* Closes the runtime and stops the server; fails where a lock, or a key without expiry, is left in it. */
int fixture_teardown(void **state);

/* As fixture_teardown, but locks may be left: for tests whose processes end without a release. */
int fixture_teardown_expiring(void **state);

/*
 * dibs_open, again while the store can't be reached: a busy machine may take longer than connect_timeout_ms, which is
 * short where a test relies on that. The functions below open so.
 */
dibs_status open_in_time(dibs_runtime **rt, const dibs_config *config);

/*
 * Once per test: a server that stands between a client and f->server. A runtime goes through it whose URL it is; for
 * f->rt, put that into f->urls[0]. It is stopped after f->rt is closed.
 */
script_server *fixture_between(fixture *f);

/* Opens f->rt with f->config and this lease (0: the default). */
void fixture_open(fixture *f, uint32_t lease_ms);

/* As fixture_open; then the calling thread locks the name. */
void fixture_open_holding(fixture *f, uint32_t lease_ms, const char *name);

/* As fixture_open, but no call fails because the machine stalls. */
void fixture_open_patient(fixture *f, uint32_t lease_ms);

/*
 * As fixture_open. On return, a connection for calls and the scheduler's connection stand, and the server knows the
 * scripts.
 */
void fixture_open_connected(fixture *f, uint32_t lease_ms);

/*
 * Returns when the scheduler has ended what it was doing, and connected. So waiters have been told by then of a
 * subscription that the server knew before: for that they ask once more.
 */
void await_scheduler(dibs_runtime *rt);

/* Expects that a wait of that time ends because the store can't be reached. */
void expect_unavailable(dibs_runtime *rt, const char *name, int64_t wait_ms);

/* Another runtime on a server, or on a URL; NULL in config means the defaults. The caller closes it. */
dibs_runtime *open_runtime(const server *s, uint32_t lease_ms);
dibs_runtime *open_url(const char *url, const dibs_config *config);

/* dibs_close; *rt is NULL from then on. */
void close_runtime(dibs_runtime **rt);

/*
 * Calls dibs_open of that URL with config (NULL: timeouts of a second) and returns its status; *rt is NULL where it
 * failed.
 */
dibs_status open_status(const char *url, const dibs_config *config, dibs_runtime **rt);

/* The same, expecting a failure of that status, with these words in its detail (NULL: whatever it says). */
void expect_not_opened(dibs_status status, const char *url, const dibs_config *config, const char *words);

/*
 * Expects that rt can acquire the name, that its key is then in the store, and that the key is gone after the unlock.
 */
void expect_works(fixture *f, dibs_runtime *rt, const char *name);

/* Unlocks the name, whose key is gone from the store then. */
void unlock_for_good(fixture *f, const char *name);

/* Acquires the name within that time, which must succeed, and releases it. */
void lock_and_release(dibs_runtime *rt, const char *name, int64_t wait_ms);

/* Of the calling thread's hold; the thread must hold the name. */
uint64_t fence_of(dibs_runtime *rt, const char *name);
dibs_hold hold_of(dibs_runtime *rt, const char *name);

/* As dibs_query says, which must succeed. */
dibs_owner owner_of(dibs_runtime *rt, const char *name);

/* Waits until the store shows so many waiters for the name, at most LIMIT_MS. */
void await_waiters(dibs_runtime *rt, const char *name, uint64_t count);

/* Waits until nobody holds the name or waits for it, by the store, at most LIMIT_MS. */
void await_nobody(dibs_runtime *rt, const char *name);

/* Waits until dibs_check by this thread says LOST, at most LIMIT_MS. */
void await_lost(dibs_runtime *rt, const char *name);

dibs_stats stats_of(dibs_runtime *rt);

/* Waits until a statistic is that or more, at most LIMIT_MS: comes_to(rt, STAT(contended), 2). */
#define STAT(name) offsetof(dibs_stats, name)
bool comes_to(dibs_runtime *rt, size_t stat, uint64_t least);

/* Waits until no thread or task holds anything, and no lease is left, at most LIMIT_MS. */
bool comes_to_nothing(dibs_runtime *rt);

#endif
