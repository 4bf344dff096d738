/*
 * Several independent masters, which are the members of a quorum. Used as setup and teardown of tests:
 *
 *     TESTS(masters_setup_3, masters_teardown)
 */
#ifndef DIBS_TEST_MASTERS_H
#define DIBS_TEST_MASTERS_H

#include "support/actor.h"
#include "support/events.h"
#include "support/server.h"
#include "support/test.h"

#define MASTERS_MAX 5

typedef struct masters {
    size_t count, majority;
    server *servers[MASTERS_MAX];
    const char *urls[MASTERS_MAX];
    int clocks[MASTERS_MAX]; /* of masters_setup_5_with_clocks: descriptors; else 0 */
    int64_t offsets_ms[MASTERS_MAX];
    events events;
    dibs_config config; /* with urls and on_event; to be changed before masters_open */
    dibs_runtime *rt;   /* NULL until masters_open; closed by the teardown */
} masters;

int masters_setup_3(void **state);
int masters_setup_5(void **state);

/* Five masters whose wall clocks differ by up to twelve seconds. */
int masters_setup_5_with_clocks(void **state);
void masters_step_clock(masters *m, size_t i, int64_t by_ms);

/* Closes the runtime and stops the servers; fails where a lock, or a key without expiry, is left in one of them. */
int masters_teardown(void **state);

/* As masters_teardown, but locks may be left: for tests whose processes end without a release. */
int masters_teardown_expiring(void **state);

/* Opens m->rt with m->config and this lease (0: the default). */
void masters_open(masters *m, uint32_t lease_ms);

/* As masters_open. On return, connections to all masters stand. */
void masters_open_connected(masters *m, uint32_t lease_ms);

/* The same, but no call fails because the machine stalls. */
void masters_open_patient(masters *m, uint32_t lease_ms);

/* Waits until m->rt is connected to all masters, and none of them rests. */
void masters_await_all(masters *m);

/*
 * Locks it by m->rt, again until all masters have granted it: one that was slow a moment ago is not asked, and gets its
 * key with the next renewal.
 */
void masters_lock_at_all(masters *m, const char *name);
void masters_lock_at_all_with(masters *m, const char *name, const dibs_lock_options *options);

/* Another runtime on the same masters, without events; the caller closes it. */
dibs_runtime *masters_open_another(const masters *m, uint32_t lease_ms);

/* On how many masters that run and are not paused the lock has a key; on how many that key has this value. */
size_t masters_with_key(const masters *m, const char *name);
size_t masters_with_value(const masters *m, const char *name, const char *value);

/* Waits until exactly so many have the key, at most LIMIT_MS. */
void masters_await_keys(masters *m, const char *name, size_t count);

/* Whether that master, a server, knows if it may vote, as dibs:vote says. */
bool master_knows(server *master);

/* Each of the first so many: a function of server.h, such as server_kill; or a command, as of server_do. */
void masters_each(masters *m, size_t count, void (*function)(server *s));
void masters_do(masters *m, size_t count, const char *command);

/* How many scripts clients have run at that master so far. */
long long masters_asks(masters *m, size_t i);

/* A test that runs on three masters, and then on five. */
#define TEST_ON_THREE_AND_FIVE(name, parameter)                                                                        \
    TEST_CALLED(name, parameter)                                                                                       \
    TEST_AGAIN(name, masters_setup_3, masters_teardown)                                                                \
    TEST_AGAIN(name, masters_setup_5, masters_teardown)                                                                \
    static void name(parameter)

#endif
