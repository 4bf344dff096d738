/*
 * Whether a server tracks what a runtime reads, and so tells the runtime at once that a lock has changed (CLIENT
 * TRACKING). Used by the test's own thread only.
 */
#ifndef DIBS_TEST_TRACKING_H
#define DIBS_TEST_TRACKING_H

#include <dibs.h>

#include "support/fixture.h"
#include "support/server.h"

/* Within this time a change must be known; the renewals of the default lease are five times as far apart. */
#define SOON_MS (LIMIT_MS / 30)

/* A number of INFO, by its name; 0: INFO does not name it. */
long long server_info(server *s, const char *name);

/* How many pairs of a key and a client that read it are in the server's table; a pair ends with the next change of the
 * key, but not with the client. */
long long tracked_pairs(server *s);

/* Waits until the runtime's tracking is on and the table has at least so many pairs. */
void await_tracked(server *s, dibs_runtime *rt, long long pairs);

/* The calling thread locks the name, and waits until it is tracked. No other lock may be. */
void lock_tracked(fixture *f, const char *name);

/* The same after fixture_open_patient: the server's first message is not too late even on a slow machine. */
void open_with_tracked(fixture *f, uint32_t lease_ms, const char *name);

/* How often CLIENT TRACKING was called, refused or not. */
long long tracking_calls(server *s);

/* Waits until the tracking that is on was begun after there were so many calls. */
void await_tracking_again(server *s, dibs_runtime *rt, long long calls);

/* Ends a connection that tracks: the background connection of a runtime. There must be one. */
void kill_tracker(server *s);

/* Wait until that counter of rt is at least so large. */
void await_invalidations(dibs_runtime *rt, uint64_t count);
void await_renewed(dibs_runtime *rt, uint64_t count);

/*
 * The calling thread held the name until something ended the hold, not before `since` (now_ms): expects that the loss
 * is known SOON. Unlocks the name.
 */
void expect_told_of_loss(fixture *f, const char *name, int64_t since);

/* The same for a lock of f->rt, whose key this deletes. */
void expect_deletion_told(fixture *f, const char *name);

/*
 * Calls `expect` with names, and with f->config.key_prefix, that are long, or of odd bytes or none, each time with a
 * runtime that is open.
 */
void with_odd_names(fixture *f, void (*expect)(fixture *f, const char *name));

/* Expects that no lock was lost, and that no renewal came late. */
void expect_no_loss(fixture *f);

/* Ends the connection that hears of changes; and that, with all others but the test's own. */
void kill_subscription(server *s);
void kill_all(server *s);

#endif
