/*
 * A second thread that does what the test's own thread tells it, one thing at
 * a time: another owner of locks, by remote control. The test's thread owns the
 * actor; what goes wrong (it doesn't finish) fails the test.
 */
#ifndef DIBS_TEST_ACTOR_H
#define DIBS_TEST_ACTOR_H

#include <dibs.h>

typedef struct actor actor;

actor *actor_start(void);

/* Lets the thread return, with whatever it holds, and joins it. NULL is fine. */
void actor_end(actor *a);

/* The same by pthread_exit from inside a function, and by pthread_cancel. */
void actor_exit(actor *a);
void actor_cancel(actor *a);

/* As actor_cancel, but at once, while it still is inside a call, and without a join; then join it. */
void actor_cancel_begin(actor *a);
void actor_join(actor *a);

/* Has it call function(arg); actor_finish waits for the end of that, actor_busy tells whether it still runs. */
typedef void actor_function(void *arg);
void actor_begin(actor *a, actor_function *function, void *arg);
void actor_finish(actor *a);
bool actor_busy(actor *a);

/* Waits until it sleeps inside what it was told: a call that waits does. */
void actor_await_asleep(actor *a);

/* Calls of dibs: made and finished, the status returned. */
dibs_status actor_lock(actor *a, dibs_runtime *rt, const char *name, int64_t wait_ms);
dibs_status actor_lock_with(actor *a, dibs_runtime *rt, const char *name, int64_t wait_ms,
                            const dibs_lock_options *options);
dibs_status actor_unlock(actor *a, dibs_runtime *rt, const char *name);
dibs_status actor_unlock_all(actor *a, dibs_runtime *rt);
dibs_status actor_extend(actor *a, dibs_runtime *rt, const char *name, uint32_t lease_ms);
dibs_status actor_check(actor *a, dibs_runtime *rt, const char *name);
dibs_status actor_hold(actor *a, dibs_runtime *rt, const char *name, dibs_hold *out);

/* A lock that may wait, and an unlock: begun here; actor_result finishes it and returns its status. */
void actor_begin_lock(actor *a, dibs_runtime *rt, const char *name, int64_t wait_ms);
void actor_begin_unlock(actor *a, dibs_runtime *rt, const char *name);
dibs_status actor_result(actor *a);

#endif
