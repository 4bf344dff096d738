/* Restarts a server without its data, and waits for what must follow. */
#ifndef DIBS_TEST_RESTART_H
#define DIBS_TEST_RESTART_H

#include <dibs.h>

#include "support/fixture.h"
#include "support/server.h"
#include "support/test.h"

/* A lease that outlives a restart with ease, and is renewed while a test waits for that. */
#define LEASE_MS (5 * SAFE_LEASE_MS)

/* In place of the fixture's server, one that keeps its data when it is restarted. */
void set_up_persistent(fixture *f);

void restart(server *s);

/* The first tells how many keys begin with "lock:", the second waits until there are so many. */
long long locks_in(server *s);
void await_locks(server *s, long long count);

/* Waits until the runtime has connected by itself: it can be used, and its scheduler has sent what it had to send. */
void await_connected(dibs_runtime *rt);

#endif
