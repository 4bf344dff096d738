/*
 * A second thread that runs what the test's own thread tells it to run.
 *
 * Locks: actor->mutex guards function, arg, leaving and running. The data of a call belong to the actor's thread while
 * `running` is set, and to the test otherwise.
 */
#include "support/actor.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "support/test.h"

typedef enum call_kind {
    CALL_LOCK,
    CALL_TASK_LOCK,
    CALL_UNLOCK,
    CALL_UNLOCK_ALL,
    CALL_EXTEND,
    CALL_HOLD,
    CALL_CHECK,
    CALL_ENTER,
    CALL_LEAVE
} call_kind;

typedef struct call {
    call_kind kind;
    dibs_runtime *rt;
    dibs_task *task;
    const char *name;
    int64_t wait_ms;
    uint32_t lease_ms;
    const dibs_lock_options *options;
    dibs_status status;
    dibs_hold hold;
} call;

struct actor {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t told;
    actor_function *function; /* NULL: nothing to do */
    void *arg;
    bool leaving;
    bool running; /* from actor_begin until the function has returned */
    atomic_int tid;
    call call;
};

static void unlock_mutex(void *arg)
{
    pthread_mutex_unlock(arg);
}

/*
 * Waits for the next order. False: the thread is to leave. Contains the cancellation point at which actor_cancel ends
 * the thread.
 */
static bool next_order(actor *a)
{
    bool stays;

    pthread_mutex_lock(&a->mutex);
    pthread_cleanup_push(unlock_mutex, &a->mutex);
    while (!a->function && !a->leaving)
        pthread_cond_wait(&a->told, &a->mutex);
    stays = !a->leaving;
    pthread_cleanup_pop(1);
    return stays;
}

static void *run(void *arg)
{
    actor *a = arg;

    atomic_store(&a->tid, (int)gettid());
    while (next_order(a)) {
        a->function(a->arg);
        pthread_mutex_lock(&a->mutex);
        a->function = NULL;
        a->running = false;
        pthread_mutex_unlock(&a->mutex);
    }
    return NULL;
}

static void make_call(void *a);

/* A function that the test gave may use what lay on the stack of the test, which is over. */
static void end(void *arg)
{
    actor *a = arg;

    pthread_mutex_lock(&a->mutex);
    bool is_inside = a->running && a->function != make_call;
    pthread_mutex_unlock(&a->mutex);
    assert_that(!is_inside, "the test has not waited for its actor");
    actor_end(a);
}

actor *actor_start(void)
{
    actor *a = calloc(1, sizeof *a);

    assert_true(a != NULL);
    pthread_mutex_init(&a->mutex, NULL);
    pthread_cond_init(&a->told, NULL);
    assert_int_equal(pthread_create(&a->thread, NULL, run, a), 0);
    test_ends(TEST_ACTOR, a, end);
    return a;
}

void actor_begin(actor *a, actor_function *function, void *arg)
{
    assert_that(!actor_busy(a), "the actor has not finished");
    pthread_mutex_lock(&a->mutex);
    a->function = function;
    a->arg = arg;
    a->running = true;
    pthread_cond_signal(&a->told);
    pthread_mutex_unlock(&a->mutex);
}

actor *actor_running(actor_function *function, void *arg)
{
    actor *a = actor_start();

    actor_begin(a, function, arg);
    return a;
}

void call_in_a_thread(actor_function *function, void *arg)
{
    actor_end(actor_running(function, arg));
}

bool actor_busy(actor *a)
{
    pthread_mutex_lock(&a->mutex);
    bool busy = a->running;
    pthread_mutex_unlock(&a->mutex);
    return busy;
}

void actor_finish(actor *a)
{
    await_or_say(!actor_busy(a), "the actor does not come back from its call");
}

/* Whether the kernel says that the thread sleeps: the state is the letter after the name in parentheses. */
static bool is_asleep(actor *a)
{
    char path[64];
    char line[512] = "";
    FILE *file;

    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)atomic_load(&a->tid));
    file = fopen(path, "re");
    if (file && !fgets(line, sizeof line, file))
        line[0] = '\0';
    if (file)
        fclose(file);
    const char *state = strrchr(line, ')');
    return state && strncmp(state, ") S", 3) == 0 && actor_busy(a);
}

void actor_await_asleep(actor *a)
{
    /* Checks several times in a row: the thread may also sleep for a moment before it gets to its wait. */
    for (int in_a_row = 0; in_a_row < 5; in_a_row++) {
        await_or_say(is_asleep(a), "the actor does not wait");
        pause_ms(2);
        if (!is_asleep(a))
            in_a_row = 0;
    }
}

long actor_sleeps(actor *a)
{
    char path[64], line[128];
    long sleeps = -1;

    snprintf(path, sizeof path, "/proc/self/task/%d/status", (int)atomic_load(&a->tid));
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (sleeps < 0 && fgets(line, sizeof line, file))
        sscanf(line, "voluntary_ctxt_switches: %ld", &sleeps);
    fclose(file);
    assert_true(sleeps >= 0);
    return sleeps;
}

/* ------------------------------------------------------------------- ends */

void actor_join(actor *a)
{
    test_ended(a);
    pthread_join(a->thread, NULL);
    pthread_mutex_destroy(&a->mutex);
    pthread_cond_destroy(&a->told);
    free(a);
}

void actor_end(actor *a)
{
    if (!a)
        return;
    actor_finish(a);
    pthread_mutex_lock(&a->mutex);
    a->leaving = true;
    pthread_cond_signal(&a->told);
    pthread_mutex_unlock(&a->mutex);
    actor_join(a);
}

static void exit_thread(void *arg)
{
    pthread_exit(arg);
}

void actor_exit(actor *a)
{
    actor_finish(a);
    actor_begin(a, exit_thread, NULL);
    actor_join(a);
}

void actor_cancel_begin(actor *a)
{
    assert_int_equal(pthread_cancel(a->thread), 0);
}

void actor_cancel(actor *a)
{
    actor_finish(a);
    actor_cancel_begin(a);
    actor_join(a);
}

/* ------------------------------------------------------------------ calls */

static dibs_status lock_inside(const call *c)
{
    dibs_status status = dibs_task_enter(c->task);

    if (status != DIBS_OK)
        return status;
    status = dibs_lock_with(c->rt, c->name, c->wait_ms, c->options);
    dibs_task_leave(c->task);
    return status;
}

static void make_call(void *arg)
{
    call *c = arg;

    switch (c->kind) {
    case CALL_LOCK:
        c->status = dibs_lock_with(c->rt, c->name, c->wait_ms, c->options);
        break;
    case CALL_TASK_LOCK:
        c->status = lock_inside(c);
        break;
    case CALL_UNLOCK:
        c->status = dibs_unlock(c->rt, c->name);
        break;
    case CALL_UNLOCK_ALL:
        c->status = dibs_unlock_all(c->rt);
        break;
    case CALL_EXTEND:
        c->status = dibs_extend(c->rt, c->name, c->lease_ms);
        break;
    case CALL_HOLD:
        c->status = dibs_hold_of(c->rt, c->name, &c->hold);
        break;
    case CALL_CHECK:
        c->status = dibs_check(c->rt, c->name);
        break;
    case CALL_ENTER:
        c->status = dibs_task_enter(c->task);
        break;
    case CALL_LEAVE:
        c->status = dibs_task_leave(c->task);
        break;
    }
}

static void begin_call(actor *a, call what)
{
    assert_that(!actor_busy(a), "the actor has not finished");
    a->call = what;
    actor_begin(a, make_call, &a->call);
}

static dibs_status full_call(actor *a, call what)
{
    begin_call(a, what);
    return actor_result(a);
}

dibs_status actor_result(actor *a)
{
    actor_finish(a);
    return a->call.status;
}

void actor_begin_lock(actor *a, dibs_runtime *rt, const char *name, int64_t wait_ms)
{
    actor_begin_lock_with(a, rt, name, wait_ms, NULL);
}

void actor_begin_lock_with(actor *a, dibs_runtime *rt, const char *name, int64_t wait_ms,
                           const dibs_lock_options *options)
{
    begin_call(a, (call){.kind = CALL_LOCK, .rt = rt, .name = name, .wait_ms = wait_ms, .options = options});
}

void actor_begin_unlock(actor *a, dibs_runtime *rt, const char *name)
{
    begin_call(a, (call){.kind = CALL_UNLOCK, .rt = rt, .name = name});
}

void actor_begin_extend(actor *a, dibs_runtime *rt, const char *name, uint32_t lease_ms)
{
    begin_call(a, (call){.kind = CALL_EXTEND, .rt = rt, .name = name, .lease_ms = lease_ms});
}

dibs_status actor_lock(actor *a, dibs_runtime *rt, const char *name, int64_t wait_ms)
{
    return actor_lock_with(a, rt, name, wait_ms, NULL);
}

dibs_status actor_lock_with(actor *a, dibs_runtime *rt, const char *name, int64_t wait_ms,
                            const dibs_lock_options *options)
{
    return full_call(a, (call){.kind = CALL_LOCK, .rt = rt, .name = name, .wait_ms = wait_ms, .options = options});
}

dibs_status actor_unlock(actor *a, dibs_runtime *rt, const char *name)
{
    return full_call(a, (call){.kind = CALL_UNLOCK, .rt = rt, .name = name});
}

dibs_status actor_unlock_all(actor *a, dibs_runtime *rt)
{
    return full_call(a, (call){.kind = CALL_UNLOCK_ALL, .rt = rt});
}

dibs_status actor_extend(actor *a, dibs_runtime *rt, const char *name, uint32_t lease_ms)
{
    actor_begin_extend(a, rt, name, lease_ms);
    return actor_result(a);
}

dibs_status actor_check(actor *a, dibs_runtime *rt, const char *name)
{
    return full_call(a, (call){.kind = CALL_CHECK, .rt = rt, .name = name});
}

dibs_status actor_hold(actor *a, dibs_runtime *rt, const char *name, dibs_hold *out)
{
    dibs_status status = full_call(a, (call){.kind = CALL_HOLD, .rt = rt, .name = name});

    *out = a->call.hold;
    return status;
}

void actor_begin_task_lock(actor *a, dibs_runtime *rt, dibs_task *task, const char *name, int64_t wait_ms,
                           const dibs_lock_options *options)
{
    begin_call(a, (call){CALL_TASK_LOCK, rt, task, name, wait_ms, .options = options});
}

dibs_status actor_enter(actor *a, dibs_task *task)
{
    return full_call(a, (call){.kind = CALL_ENTER, .task = task});
}

dibs_status actor_leave(actor *a, dibs_task *task)
{
    return full_call(a, (call){.kind = CALL_LEAVE, .task = task});
}

actor *actor_locking(dibs_runtime *rt, const char *name, int64_t wait_ms)
{
    actor *a = actor_start();

    actor_begin_lock(a, rt, name, wait_ms);
    return a;
}

actor *actor_holding(dibs_runtime *rt, const char *name)
{
    actor *a = actor_locking(rt, name, 0);

    assert_status(DIBS_OK, actor_result(a));
    return a;
}

void actor_gets(actor *a, dibs_runtime *rt, const char *name)
{
    assert_status(DIBS_OK, actor_result(a));
    assert_status(DIBS_OK, actor_check(a, rt, name));
    assert_status(DIBS_OK, actor_unlock(a, rt, name));
}
