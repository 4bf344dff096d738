/*
 * Lock discipline: the mutex of the process guards the lists of runtimes.
 *
 * The threads inside a runtime are counted in the handle's `visits`, without a mutex: each adds itself to one of them
 * and takes itself off the same one, by sequentially consistent operations. dibs_close sets DIBS__VISITS_CLOSED in
 * all. A thread that finds it set where it has added itself leaves the core alone and returns DIBS_CLOSED. The closing
 * thread sleeps on `all_gone` until
 *     each of visits == DIBS__VISITS_CLOSED: no thread is inside, and none will be.
 * Once that is so for a counter, it stays so, except that calls which come too late add themselves for a moment. So
 * the counters may be looked at one after the other. A visit that a call keeps (dibs__visit_keep) is counted in the
 * first counter before the call leaves its own; so the first counter is looked at last, and no such visit is missed.
 * In a forked child a visitor that finds no core, while another makes one, sleeps on `core_made` until
 *     the runtime's core is there, or `making` is false: the other has failed.
 * The last thread that leaves touches nothing of the core, which may be freed by then: the handle is never freed, and
 * `all_gone` belongs to no runtime.
 */
#include "core/runtime.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/once.h"
#include "base/process.h"
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

static pthread_cond_t all_gone = PTHREAD_COND_INITIALIZER;           /* waited on with the mutex of the process */
static pthread_cond_t core_made = PTHREAD_COND_INITIALIZER;          /* likewise */
static dibs_runtime *runtimes DIBS__GUARDED_BY(dibs__process_mutex); /* the open ones, by falling serial */
static dibs_runtime *closed_runtimes DIBS__GUARDED_BY(dibs__process_mutex); /* kept for leak checkers to find */
static struct dibs__core *abandoned DIBS__GUARDED_BY(dibs__process_mutex);  /* likewise; of ancestors of this child */
static atomic_uint_fast64_t last_serial;                                    /* atomic */
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
    dibs__process_lock();
    pthread_cond_broadcast(&all_gone);
    dibs__process_unlock();
}

/* Whether the calling thread runs on_event of the runtime, for whose end dibs_close waits before it frees the core. */
static bool calls_back_for(const dibs_runtime *runtime)
{
    const struct dibs__core *core = dibs__core_of_callback();

    return core && core->config.serial == runtime->serial && core == atomic_load(&runtime->core);
}

/*
 * The core must be of this process, or NULL. False: the runtime is closed, or the thread is ending the process.
 */
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
    visit->core = atomic_load(&runtime->core);
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
 * Begins a visit to the newest open runtime that is wanted: while it is listed, its visits are not closed. That
 * runtime must have a core of this process.
 */
static bool visit_listed(struct dibs__visit *visit, bool (*is_wanted)(const dibs_runtime *runtime, uint64_t serial),
                         uint64_t serial)
{
    dibs_runtime *runtime;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &visit->cancel_state);
    dibs__process_lock();
    for (runtime = runtimes; runtime && !is_wanted(runtime, serial); runtime = runtime->next)
        continue;
    bool inside = runtime && enter(visit, runtime);
    dibs__process_unlock();
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
static bool leaves_something(const dibs_runtime *runtime) DIBS__REQUIRES(dibs__process_mutex)
{
    const struct dibs__core *core = atomic_load(&runtime->core);

    return core && !dibs__runtime_is_unused(runtime) &&
           (core->cells->keep > 0 || atomic_load(&core->counters.unconfirmed) > 0);
}

/*
 * Whether that runtime has a serial below `before`, and something to release at exit, held by
 * the calling thread or kept, and can release it. With TLS it can't, because OpenSSL has ended
 * before the destructors run; nor with a clock that a test moves, since that stands still.
 */
static bool can_release_at_exit(const dibs_runtime *runtime, uint64_t before) DIBS__REQUIRES(dibs__process_mutex)
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
static __attribute__((destructor)) void on_exit_of_process(void)
{
    int64_t deadline = dibs__after_ms(dibs__now(&dibs__system_clock), EXIT_MS);
    uint64_t before = UINT64_MAX;
    struct dibs__visit visit;

    if (calls > 0 || dibs__process_is_locked_here())
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

/* The threads that slept on these do not exist in the child. */
static void forget_threads(void)
{
    all_gone = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    core_made = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    dibs__spin_after_fork();
}

/* In a forked child: its parent holds the lease, and its holder there still learns of a loss. */
static void on_forgotten(struct dibs__lease *lease)
{
    dibs__done_drop(atomic_exchange(&lease->loss, NULL));
    dibs__lease_unref(lease);
}

static bool set_up(void)
{
    const struct dibs__holds_hooks hooks = {.orphaned = on_orphaned, .forgotten = on_forgotten};

    return dibs__process_at_fork(forget_threads) && dibs__holds_on_end(&hooks);
}

static dibs_status make_core(dibs_runtime *runtime, struct dibs__core **core, bool connect_later,
                             struct dibs__error *error)
{
    const struct dibs__core_config config = {runtime->serial, &runtime->settings, runtime->clock, &runtime->closing};

    return dibs__core_new(core, &config, connect_later, error);
}

/* In a forked child: leaves the core of the parent process alone, if that had one. */
static void abandon(dibs_runtime *runtime) DIBS__REQUIRES(dibs__process_mutex)
{
    struct dibs__core *core = atomic_exchange(&runtime->core, NULL);

    if (!core)
        return;
    core->next_abandoned = abandoned;
    abandoned = core;
}

/* In a forked child: from now on the runtime is this process's, which has yet to make a core. */
static void adopt(dibs_runtime *runtime)
{
    unsigned generation = dibs__fork_generation();

    dibs__process_lock();
    if (!runtime->closed && atomic_load(&runtime->generation) != generation) {
        for (unsigned i = 0; i < DIBS__VISITS; i++) /* those inside are the parent's threads */
            atomic_store(&runtime->visits[i].inside, 0);
        abandon(runtime);
        runtime->making = false;
        atomic_store(&runtime->untaken, 0); /* completions in queues are the parent's */
        atomic_store(&runtime->generation, generation);
    }
    dibs__process_unlock();
}

/*
 * In a forked child, whose visitors may come here at the same time. One of them makes the core, without the mutex; the
 * others wait for it, since there may be memory, threads and descriptors for one core alone. False: there are not.
 */
static bool make_core_of_child(struct dibs__visit *visit, dibs_runtime *runtime)
{
    struct dibs__core *made = NULL;
    struct dibs__error error;

    dibs__process_lock();
    while (!(visit->core = atomic_load(&runtime->core)) && runtime->making)
        dibs__process_wait(&core_made);
    if (!visit->core)
        runtime->making = true;
    dibs__process_unlock();
    if (visit->core)
        return true;
    bool good = make_core(runtime, &made, true, &error) == DIBS_OK;
    dibs__process_lock();
    if (good)
        atomic_store(&runtime->core, visit->core = made);
    runtime->making = false;
    pthread_cond_broadcast(&core_made);
    dibs__process_unlock();
    return good;
}

dibs_status dibs__visit_begin(struct dibs__visit *visit, dibs_runtime *runtime, struct dibs__error *error)
{
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &visit->cancel_state);
    if (atomic_load(&runtime->generation) != dibs__fork_generation())
        adopt(runtime);
    if (!enter(visit, runtime)) {
        pthread_setcancelstate(visit->cancel_state, NULL);
        return dibs__error_set(error, DIBS_CLOSED, "the runtime is closed");
    }
    if (visit->core || make_core_of_child(visit, runtime))
        return DIBS_OK;
    dibs__visit_end(visit);
    return dibs__error_set(error, DIBS_NO_MEMORY, "no memory, thread or descriptor for the runtime after a fork");
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
    struct dibs__core *core = NULL;
    dibs_status status = make_core(runtime, &core, false, error);
    atomic_init(&runtime->core, core);
    if (status == DIBS_OK) {
        dibs__process_lock();
        dibs_runtime **at = &runtimes;
        while (*at && (*at)->serial > runtime->serial) /* an open that began later may have ended before */
            at = &(*at)->next;
        runtime->next = *at;
        *at = runtime;
        dibs__process_unlock();
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
    if (dibs__runtime_is_unused(runtime) || dibs__visit_begin(&visit, runtime, &error) != DIBS_OK)
        return;
    dibs__askers_wake(visit.core->cells, DIBS__ASKERS_CLOSING);
    dibs__workers_wake(visit.core->workers);
    dibs__keeper_give_back_all(visit.core); /* nobody here can take them any more */
    dibs__visit_end(&visit);
}

/* From now on no thread comes in. False: the core is the parent's, for the caller to leave alone. */
static bool close_visits(dibs_runtime *runtime) DIBS__REQUIRES(dibs__process_mutex)
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
    return ours;
}

static void await_leaving(dibs_runtime *runtime)
{
    dibs__process_lock();
    for (unsigned i = DIBS__VISITS; i-- > 0;)
        while (atomic_load(&runtime->visits[i].inside) != DIBS__VISITS_CLOSED)
            dibs__process_wait(&all_gone);
    dibs__process_unlock();
}

/* The core may be NULL before the last visitor has left, in a forked child where nobody has used the runtime. */
static void end_core(dibs_runtime *runtime, int64_t deadline)
{
    struct dibs__core *core = atomic_load(&runtime->core);

    if (core) {
        dibs__askers_wake(core->cells, DIBS__ASKERS_CLOSING);
        dibs__workers_wake(core->workers);
    }
    await_leaving(runtime);
    core = atomic_load(&runtime->core);
    if (core) {
        dibs__core_end(core, deadline);
        atomic_store(&runtime->core, NULL);
        dibs__core_free(core);
    }
}

void dibs__runtime_close(dibs_runtime *runtime)
{
    int64_t wait_ms = (int64_t)runtime->settings.connect_timeout_ms + runtime->settings.command_timeout_ms;
    /* The end of both waits of dibs_close, as dibs.h says: for the calls that are inside, and for the store. */
    int64_t deadline = dibs__after_ms(dibs__now(runtime->clock), wait_ms);
    int cancel_state;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    calls++;
    atomic_store(&runtime->closing, true);
    dibs__process_lock();
    bool first = !runtime->closed;
    bool ours = first && close_visits(runtime);
    dibs__process_unlock();
    if (first) {
        if (ours)
            end_core(runtime, deadline);
        dibs__settings_free(&runtime->settings);
    }
    /* A thread may open and close runtimes for ever. Other threads keep their holds until they end. */
    drop_own_holds(runtime->serial, NULL);
    calls--;
    pthread_setcancelstate(cancel_state, NULL);
}
