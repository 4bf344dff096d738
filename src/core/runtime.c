/*
 * Lock discipline: `registry_mutex` guards the lists of runtimes, and making a new core in a forked child. It is held
 * across a fork, but not across I/O or a callback.
 *
 * The threads inside a runtime are counted in the handle's `visits`, without a mutex: each adds itself to one of them
 * and takes itself off the same one, by sequentially consistent operations. dibs_close sets DIBS__VISITS_CLOSED in
 * all. A thread that finds it set where it has added itself leaves the core alone and returns DIBS_CLOSED. The closing
 * thread sleeps on `all_gone` until
 *     each of visits == DIBS__VISITS_CLOSED: no thread is inside, and none will be.
 * Once that is so for a counter, it stays so, except that calls which come too late add themselves for a moment. So
 * the counters may be looked at one after the other. A visit that a call keeps (dibs__visit_keep) is counted in the
 * first counter before the call leaves its own; so the first counter is looked at last, and no such visit is missed.
 * The last thread that leaves touches nothing of the core, which may be freed by then: the handle is never freed, and
 * `all_gone` belongs to no runtime.
 */
#include "core/runtime.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/fd.h"
#include "base/once.h"
#include "base/spin.h"
#include "base/thread.h"
#include "core/asker.h"
#include "core/assembly.h"
#include "core/done.h"
#include "core/keeper.h"
#include "core/release.h"

#define ENDS (1u << 16)
#define EXIT_MS 500 /* exit(3) waits at most this long for the store to confirm what is released then */

_Static_assert(sizeof(struct dibs_runtime) <= 440, "runtime.h and dibs.h say how much of a closed one stays");

static struct dibs__mutex registry_mutex = DIBS__MUTEX_INITIALIZER;
static pthread_cond_t all_gone = PTHREAD_COND_INITIALIZER;                   /* waited on with registry_mutex */
static dibs_runtime *runtimes DIBS__GUARDED_BY(dibs__registry_mutex);        /* the open ones, by falling serial */
static dibs_runtime *closed_runtimes DIBS__GUARDED_BY(dibs__registry_mutex); /* kept for leak checkers to find */
static struct dibs__core *abandoned DIBS__GUARDED_BY(dibs__registry_mutex);  /* likewise; of ancestors of this child */
static atomic_uint_fast64_t last_serial;                                     /* atomic */
static _Thread_local unsigned calls;   /* how many this thread is in, which an exit in a signal handler would cut off;
                                          ENDS: there will be no more */
static struct dibs__once being_set_up; /* has its own atomic; for what is registered once in a process */

/* -------------------------------------------------------------------- visits */

/* The last thread that leaves a closed runtime wakes the closing thread. */
static void leave(struct dibs__visits *visits)
{
    unsigned before = atomic_fetch_sub(&visits->inside, 1);

    DIBS__REQUIRE((before & ~DIBS__VISITS_CLOSED) > 0);
    if (before - 1 != DIBS__VISITS_CLOSED)
        return;
    dibs__registry_mutex_lock(&registry_mutex);
    pthread_cond_broadcast(&all_gone);
    dibs__registry_mutex_unlock(&registry_mutex);
}

/* Whether the calling thread runs on_event of the runtime, for whose end dibs_close waits before it frees the core. */
static bool calls_back_for(const dibs_runtime *runtime)
{
    const struct dibs__core *core = dibs__core_of_callback();

    return core && core->config.serial == runtime->serial && core == runtime->core;
}

/* The core must be of this process. False: the runtime is closed, or the thread is ending the process. */
static bool enter(struct dibs__visit *visit, dibs_runtime *runtime)
{
    struct dibs__visits *among = &runtime->visits[dibs__thread_number() % DIBS__VISITS];

    if (calls >= ENDS)
        return false;
    /* Before anything is added: calls that come too late again and again must not keep the number from falling. */
    if ((atomic_load(&among->inside) & DIBS__VISITS_CLOSED) && !calls_back_for(runtime))
        return false;
    if ((atomic_fetch_add(&among->inside, 1) & DIBS__VISITS_CLOSED) && !calls_back_for(runtime)) {
        leave(among);
        return false;
    }
    calls++;
    visit->among = among;
    visit->core = runtime->core;
    return true;
}

void dibs__visit_end(struct dibs__visit *visit)
{
    leave(visit->among);
    calls--;
    pthread_setcancelstate(visit->cancel_state, NULL);
}

void dibs__visit_keep(dibs_runtime *runtime)
{
    atomic_fetch_add(&runtime->visits[0].inside, 1);
}

void dibs__visit_drop(dibs_runtime *runtime)
{
    leave(&runtime->visits[0]);
}

/* ------------------------------------------------------------ an owner's end */

/*
 * Begins a visit to the newest open runtime that is wanted: while it is listed, its visits are not closed. Its core
 * must be of this process.
 */
static bool visit_listed(struct dibs__visit *visit, bool (*is_wanted)(const dibs_runtime *runtime, uint64_t serial),
                         uint64_t serial)
{
    dibs_runtime *runtime;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &visit->cancel_state);
    calls++; /* as in dibs__visit_begin */
    dibs__registry_mutex_lock(&registry_mutex);
    for (runtime = runtimes; runtime && !is_wanted(runtime, serial); runtime = runtime->next)
        continue;
    bool inside = runtime && enter(visit, runtime);
    dibs__registry_mutex_unlock(&registry_mutex);
    calls--;
    if (!inside)
        pthread_setcancelstate(visit->cancel_state, NULL);
    return inside;
}

/* A thread that holds a lock made sure that the core is of this process. */
static bool has_serial(const dibs_runtime *runtime, uint64_t serial)
{
    return runtime->serial == serial;
}

static void on_orphaned(struct dibs__lease *lease)
{
    struct dibs__visit visit;

    if (visit_listed(&visit, has_serial, lease->runtime)) {
        dibs__release_orphaned(visit.core, lease);
        dibs__visit_end(&visit);
    }
    dibs__lease_unref(lease);
}

void dibs__runtime_give_up(dibs_runtime *runtime, struct dibs__holds *holds)
{
    struct dibs__visit visit;
    struct dibs__error unused;
    bool inside = holds->count > 0 && dibs__visit_begin(&visit, runtime, &unused) == DIBS_OK;

    while (holds->count > 0) {
        struct dibs__lease *lease = dibs__holds_remove(holds, holds->holds);
        dibs__loss_unwatch(lease);
        if (inside) {
            dibs__count(&visit.core->stats.ended_with_owner);
            dibs__release_in_background(visit.core, lease);
        }
        dibs__lease_unref(lease);
    }
    if (inside)
        dibs__visit_end(&visit);
}

/* ---------------------------------------------------------- the process's end */

/*
 * Whether this process may be keeping leases in that runtime, or has released locks of threads that have ended, which
 * the store has not confirmed. A forked child has nothing of its parent's.
 */
static bool leaves_something(const dibs_runtime *runtime) DIBS__REQUIRES(dibs__registry_mutex)
{
    const struct dibs__core *core = runtime->core;

    return atomic_load(&runtime->generation) == dibs__fork_generation() &&
           (core->cells->keep > 0 || atomic_load(&core->counters.unconfirmed) > 0);
}

/*
 * Whether that runtime has a serial below `before`, and something to release at exit, held by
 * the calling thread or kept, and can release it. With TLS it can't, because OpenSSL has ended
 * before the destructors run; nor with a clock that a test moves, since that stands still.
 */
static bool can_release_at_exit(const dibs_runtime *runtime, uint64_t before) DIBS__REQUIRES(dibs__registry_mutex)
{
    uint32_t cursor = DIBS__HOLDS_ALL;

    if (runtime->serial >= before || runtime->clock != &dibs__system_clock ||
        (!leaves_something(runtime) && !dibs__holds_next(dibs__holds_own(), runtime->serial, &cursor)))
        return false;
    for (size_t i = 0; i < runtime->settings.url_count; i++)
        if (strncasecmp(runtime->settings.urls[i], "rediss", strlen("rediss")) == 0)
            return false;
    return true;
}

static void on_exit_of_process(void) __attribute__((destructor));

/*
 * Removes the calling thread's holds of the runtime with that serial, and gives their leases back, unless the core is
 * NULL. For a thread that has called exit: no other thread here gets the lock, as these end with the process, and no
 * event is emitted, because what on_event needs may be gone.
 */
static void drop_own_holds(uint64_t serial, struct dibs__core *core)
{
    uint32_t cursor = DIBS__HOLDS_ALL;
    struct dibs__hold *hold;

    while ((hold = dibs__holds_next(dibs__holds_own(), serial, &cursor))) {
        struct dibs__lease *lease = dibs__holds_remove(dibs__holds_own(), hold);
        if (core)
            dibs__core_give_back(core, lease);
        dibs__lease_unref(lease);
    }
}

/*
 * At exit(3), or the return from main: releases what the calling thread holds, and what is kept, and waits for what
 * threads that have ended held. What other threads hold stays, because they run on until the process is gone, perhaps
 * in the midst of what the lock protects. A destructor runs after all handlers of atexit(3) and the destructors of C++
 * objects, which may still need the lock. Nothing is done if a signal handler called exit in the midst of a call of
 * dibs, which may have locked anything. Afterwards all calls of the thread are refused: a lock that it has just
 * released would never be handed over to it.
 */
static void on_exit_of_process(void)
{
    int64_t deadline = dibs__after_ms(dibs__now(&dibs__system_clock), EXIT_MS);
    uint64_t before = UINT64_MAX;
    struct dibs__visit visit;

    if (calls > 0)
        return;
    while (visit_listed(&visit, can_release_at_exit, before)) {
        before = visit.core->config.serial;
        drop_own_holds(before, visit.core);
        dibs__keeper_give_back_all(visit.core);
        dibs__scheduler_drain(visit.core->scheduler, deadline);
        dibs__visit_end(&visit);
    }
    calls = ENDS;
}

/* ---------------------------------------------------------------------- fork */

static void before_fork(void) DIBS__UNANALYSED /* unlocked by after_fork_in_parent or after_fork_in_child */
{
    dibs__registry_mutex_lock(&registry_mutex);
}

static void after_fork_in_parent(void) DIBS__UNANALYSED /* locked by before_fork */
{
    dibs__registry_mutex_unlock(&registry_mutex);
}

/* The threads that slept on all_gone do not exist in the child. */
static void after_fork_in_child(void) DIBS__UNANALYSED /* locked by before_fork */
{
    all_gone = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    dibs__once_was_done(&being_set_up);
    dibs__spin_after_fork();
    dibs__registry_mutex_unlock(&registry_mutex);
}

/* In a forked child: its parent holds the lease, and its holder there still learns of a loss. */
static void on_forgotten(struct dibs__lease *lease)
{
    dibs__done_drop(atomic_exchange(&lease->loss, NULL));
    dibs__lease_unref(lease);
}

/*
 * At a fork, what was registered first is locked last. The registry comes first in the order of locks, because revive
 * holds its mutex while it makes a core, so it is registered last. The descriptors are registered first, because what
 * the others do in a child looks at the fork generation. If memory runs out, the next dibs_open goes on from there, so
 * the order is always the same.
 */
static bool set_up(void)
{
    const struct dibs__holds_hooks hooks = {.orphaned = on_orphaned, .forgotten = on_forgotten};

    return dibs__fd_watch_forks() && dibs__holds_on_end(&hooks) && dibs__store_watch_forks() &&
           dibs__done_watch_forks() && pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0;
}

static dibs_status make_core(dibs_runtime *runtime, struct dibs__core **core, bool connect_later,
                             struct dibs__error *error)
{
    const struct dibs__core_config config = {runtime->serial, &runtime->settings, runtime->clock, &runtime->closing};

    return dibs__core_new(core, &config, connect_later, error);
}

/* In a forked child: leaves the core of the parent process alone. */
static void abandon(dibs_runtime *runtime) DIBS__REQUIRES(dibs__registry_mutex)
{
    runtime->core->next_abandoned = abandoned;
    abandoned = runtime->core;
}

/* Makes sure that the core is of this process: DIBS_OK, DIBS_CLOSED or DIBS_NO_MEMORY. */
static dibs_status revive(dibs_runtime *runtime) DIBS__REQUIRES(dibs__registry_mutex)
{
    unsigned generation = dibs__fork_generation();
    struct dibs__core *core = NULL;
    struct dibs__error error;

    dibs__registry_mutex_held(&registry_mutex);
    if (atomic_load(&runtime->generation) == generation)
        return DIBS_OK;
    if (runtime->closed)
        return DIBS_CLOSED;
    if (make_core(runtime, &core, true, &error) != DIBS_OK)
        return DIBS_NO_MEMORY;
    for (unsigned i = 0; i < DIBS__VISITS; i++) /* those inside are the parent's threads */
        atomic_store(&runtime->visits[i].inside, 0);
    abandon(runtime);
    runtime->core = core;
    atomic_store(&runtime->untaken, 0); /* completions in queues are the parent's */
    atomic_store(&runtime->generation, generation);
    return DIBS_OK;
}

dibs_status dibs__visit_begin(struct dibs__visit *visit, dibs_runtime *runtime, struct dibs__error *error)
{
    dibs_status status = DIBS_OK;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &visit->cancel_state);
    if (atomic_load(&runtime->generation) != dibs__fork_generation()) {
        calls++; /* an exit in a signal handler must not lock the mutex again */
        dibs__registry_mutex_lock(&registry_mutex);
        status = revive(runtime);
        dibs__registry_mutex_unlock(&registry_mutex);
        calls--;
    }
    if (status == DIBS_OK && !enter(visit, runtime))
        status = DIBS_CLOSED;
    if (status == DIBS_OK)
        return DIBS_OK;
    pthread_setcancelstate(visit->cancel_state, NULL);
    return dibs__error_set(error, status, "%s",
                           status == DIBS_CLOSED ? "the runtime is closed"
                                                 : "no memory, thread or descriptor for the runtime after a fork");
}

dibs_status dibs__visit_begin_if_open(struct dibs__visit *visit, dibs_runtime *runtime, struct dibs__error *error)
{
    if (atomic_load(&runtime->closing))
        return dibs__error_set(error, DIBS_CLOSED, "the runtime is closing");
    return dibs__visit_begin(visit, runtime, error);
}

/* ------------------------------------------------------------------------ open */

static dibs_status open_runtime(dibs_runtime **out, struct dibs__settings *settings, const struct dibs__clock *clock,
                                struct dibs__error *error)
{
    bool ready = dibs__once(&being_set_up, set_up);
    dibs_runtime *runtime = ready ? calloc(1, sizeof *runtime) : NULL;

    if (!runtime) {
        dibs__settings_free(settings);
        return dibs__error_set(error, DIBS_NO_MEMORY,
                               ready ? "no memory for a runtime" : "pthread_key_create or pthread_atfork failed");
    }
    runtime->settings = *settings;
    memset(settings, 0, sizeof *settings);
    runtime->clock = clock;
    runtime->serial = atomic_fetch_add(&last_serial, 1) + 1;
    atomic_init(&runtime->generation, dibs__fork_generation());
    dibs_status status = make_core(runtime, &runtime->core, false, error);
    if (status == DIBS_OK) {
        dibs__registry_mutex_lock(&registry_mutex);
        dibs_runtime **at = &runtimes;
        while (*at && (*at)->serial > runtime->serial) /* an open that began later may have ended before */
            at = &(*at)->next;
        runtime->next = *at;
        *at = runtime;
        dibs__registry_mutex_unlock(&registry_mutex);
        *out = runtime;
        return DIBS_OK;
    }
    dibs__settings_free(&runtime->settings);
    free(runtime);
    return status;
}

dibs_status dibs__runtime_open(dibs_runtime **out, struct dibs__settings *settings, const struct dibs__clock *clock,
                               struct dibs__error *error)
{
    calls++;
    dibs_status status = open_runtime(out, settings, clock, error);
    calls--;
    return status;
}

/* ----------------------------------------------------------------------- close */

void dibs__runtime_shutdown(dibs_runtime *runtime)
{
    struct dibs__visit visit;
    struct dibs__error error;

    atomic_store(&runtime->closing, true);
    /* In a forked child that has not used the runtime nobody waits. */
    if (atomic_load(&runtime->generation) != dibs__fork_generation() ||
        dibs__visit_begin(&visit, runtime, &error) != DIBS_OK)
        return;
    dibs__askers_wake(visit.core->cells, DIBS__ASKERS_CLOSING);
    dibs__workers_wake(visit.core->workers);
    dibs__keeper_give_back_all(visit.core); /* nobody here can take them any more */
    dibs__visit_end(&visit);
}

/* From now on no thread comes in. Returns the core for the caller to free; NULL: the core is the parent's. */
static struct dibs__core *close_visits(dibs_runtime *runtime) DIBS__REQUIRES(dibs__registry_mutex)
{
    dibs_runtime **at = &runtimes;
    bool ours = atomic_load(&runtime->generation) == dibs__fork_generation();

    while (*at != runtime)
        at = &(*at)->next;
    *at = runtime->next;
    runtime->next = closed_runtimes;
    closed_runtimes = runtime;
    runtime->closed = true;
    if (!ours)
        abandon(runtime);
    for (unsigned i = 0; i < DIBS__VISITS; i++)
        atomic_fetch_or(&runtime->visits[i].inside, DIBS__VISITS_CLOSED);
    return ours ? runtime->core : NULL;
}

static void await_leaving(dibs_runtime *runtime)
{
    dibs__registry_mutex_lock(&registry_mutex);
    for (unsigned i = DIBS__VISITS; i-- > 0;)
        while (atomic_load(&runtime->visits[i].inside) != DIBS__VISITS_CLOSED)
            dibs__mutex_wait(&registry_mutex, &all_gone);
    dibs__registry_mutex_unlock(&registry_mutex);
}

/* The end of both waits of dibs_close, as dibs.h says: for the calls that are inside, and for the store. */
static int64_t close_deadline(const dibs_runtime *runtime)
{
    const struct dibs__settings *settings = &runtime->settings;

    return dibs__after_ms(dibs__now(runtime->clock),
                          (int64_t)settings->connect_timeout_ms + settings->command_timeout_ms);
}

static void end_core(dibs_runtime *runtime, struct dibs__core *core, int64_t deadline)
{
    dibs__askers_wake(core->cells, DIBS__ASKERS_CLOSING);
    dibs__workers_wake(core->workers);
    await_leaving(runtime);
    dibs__core_end(core, deadline);
    runtime->core = NULL;
    dibs__core_free(core);
}

void dibs__runtime_close(dibs_runtime *runtime)
{
    int64_t deadline = close_deadline(runtime);
    int cancel_state;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    calls++;
    atomic_store(&runtime->closing, true);
    dibs__registry_mutex_lock(&registry_mutex);
    bool first = !runtime->closed;
    struct dibs__core *core = first ? close_visits(runtime) : NULL;
    dibs__registry_mutex_unlock(&registry_mutex);
    if (first) {
        if (core)
            end_core(runtime, core, deadline);
        dibs__settings_free(&runtime->settings);
    }
    /* A thread may open and close runtimes for ever. Other threads keep their holds until they end. */
    drop_own_holds(runtime->serial, NULL);
    calls--;
    pthread_setcancelstate(cancel_state, NULL);
}
