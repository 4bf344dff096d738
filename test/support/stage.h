/*
 * A runtime on a clock that the test moves (moved_clock.h) and a store that fails on demand (faulty_store.h). Used as
 * setup and teardown of the unit tests of a program:
 *
 *     TESTS(stage_setup, stage_teardown)
 *
 * The test itself changes `settings`, and opens the runtime.
 */
#ifndef DIBS_TEST_STAGE_H
#define DIBS_TEST_STAGE_H

#include "core/runtime.h"
#include "support/actor.h"
#include "support/events.h"
#include "support/faulty_store.h"
#include "support/moved_clock.h"
#include "support/test.h"

typedef struct stage {
    struct moved_clock clock;
    struct faults faults;
    events events;
    /*
     * For the next runtime to be opened, but for its strings. on_event records to `events`; handoff_ms is 0, so no
     * lease is handed over.
     */
    struct dibs__settings settings;
    const char *url;  /* "mem:" */
    dibs_runtime *rt; /* NULL until stage_open; closed by the teardown */
} stage;

int stage_setup(void **state);
int stage_teardown(void **state);

/* A setup that also opens the runtime, with the usual settings and a lease of 30 s. */
int stage_setup_open(void **state);

/* Opens s->rt, with this lease (0: 30 s). */
void stage_open(stage *s, uint32_t lease_ms);

/* The same at that URL, as "mem:name": what is opened later shares the store. */
void stage_open_at(stage *s, const char *url, uint32_t lease_ms);

/* As stage_open; the test's own thread then holds "a". Returns the fence. */
uint64_t stage_open_holding(stage *s, uint32_t lease_ms);

/* One more runtime on the same clock and the same faults; the caller closes it. */
dibs_runtime *stage_open_another(stage *s, uint32_t lease_ms);

/* One that holds the name, and is closed at the end of the test. */
dibs_runtime *stage_rival(stage *s, uint32_t lease_ms, const char *name);

/*
 * Waits until the scheduler of s->rt has done all work that is due; stage_advance moves the clock first. Requires that
 * no other runtime is open.
 */
void stage_settle(stage *s);
void stage_advance(stage *s, int64_t ns);

/* For how long, in ns, a lease counts as held: its length less 1 % and 2 ms. */
int64_t believed(uint32_t lease_ms);

/* Waits until exactly that many threads wait for a lock, or poll for one, in s->rt. */
void stage_await_waiting(stage *s, size_t count);

/* A new thread that waits for the name; so many threads wait then. */
actor *stage_waiter(stage *s, const char *name, int64_t wait_ms, size_t count);
actor *stage_waiter_with(stage *s, const char *name, int64_t wait_ms, const dibs_lock_options *options, size_t count);

/* Answers the renewals that faults_hold_renewals holds back, and wakes the scheduler to that. */
void stage_let_renewals_go(stage *s);

/* Asks of the store, so far. */
unsigned acquires(stage *s);

#endif
