/*
 * A second thread, and so another owner of locks, that runs one function at a time for the test's own thread. Only that
 * thread may use the actor. An actor that does not finish fails the test. An actor that a test starts ends with the
 * test, unless it ends before; but a test that gave it a function waits until that has returned.
 */
#ifndef DIBS_TEST_ACTOR_H
#define DIBS_TEST_ACTOR_H

#include <dibs.h>

typedef struct actor actor;

actor *actor_start(void);

/* Lets the thread return, with whatever it holds, and joins it. NULL is fine. */
void actor_end(actor *a);

/* As actor_end, but the thread ends by pthread_exit from inside a function, or by pthread_cancel. */
void actor_exit(actor *a);
void actor_cancel(actor *a);

/*
 * The two halves of actor_cancel: the first cancels the thread at once, even while it is inside a call, and the second
 * joins it.
 */
void actor_cancel_begin(actor *a);
void actor_join(actor *a);

/*
 * Makes the thread call function(arg). actor_finish waits until the function has returned, actor_busy tells whether it
 * still runs.
 */
typedef void actor_function(void *arg);
void actor_begin(actor *a, actor_function *function, void *arg);
void actor_finish(actor *a);
bool actor_busy(actor *a);

/* A new actor that has begun that; or a thread that makes that call alone, and has ended on return. */
actor *actor_running(actor_function *function, void *arg);
void call_in_a_thread(actor_function *function, void *arg);

/* Waits until the thread sleeps inside the function that it was told to call. */
void actor_await_asleep(actor *a);

/* How often its thread has gone to sleep so far. */
long actor_sleeps(actor *a);

/* The thread makes the call of dibs; these return its status when it has come back. */
dibs_status actor_lock(actor *a, dibs_runtime *rt, const char *name, int64_t wait_ms);
dibs_status actor_lock_with(actor *a, dibs_runtime *rt, const char *name, int64_t wait_ms,
                            const dibs_lock_options *options);
dibs_status actor_unlock(actor *a, dibs_runtime *rt, const char *name);
dibs_status actor_unlock_all(actor *a, dibs_runtime *rt);
dibs_status actor_extend(actor *a, dibs_runtime *rt, const char *name, uint32_t lease_ms);
dibs_status actor_check(actor *a, dibs_runtime *rt, const char *name);
dibs_status actor_hold(actor *a, dibs_runtime *rt, const char *name, dibs_hold *out);

/* These only begin the call, which may wait; actor_result waits for its end and returns its status. */
void actor_begin_lock(actor *a, dibs_runtime *rt, const char *name, int64_t wait_ms);
void actor_begin_lock_with(actor *a, dibs_runtime *rt, const char *name, int64_t wait_ms,
                           const dibs_lock_options *options);
void actor_begin_unlock(actor *a, dibs_runtime *rt, const char *name);
void actor_begin_extend(actor *a, dibs_runtime *rt, const char *name, uint32_t lease_ms);
dibs_status actor_result(actor *a);

/* The actor enters the task, begins that call, and leaves; or only enters, or leaves. */
void actor_begin_task_lock(actor *a, dibs_runtime *rt, dibs_task *task, const char *name, int64_t wait_ms,
                           const dibs_lock_options *options);
dibs_status actor_enter(actor *a, dibs_task *task);
dibs_status actor_leave(actor *a, dibs_task *task);

/* A new actor that has begun that call; or that holds the lock, which was free. */
actor *actor_locking(dibs_runtime *rt, const char *name, int64_t wait_ms);
actor *actor_holding(dibs_runtime *rt, const char *name);

/* The call that was begun gets the lock of that name; the actor holds it, and unlocks it. */
void actor_gets(actor *a, dibs_runtime *rt, const char *name);

#endif
