/*
 * A runtime: the handle that the user has, and the visits that threads pay to the core behind it.
 *
 * The handle (dibs_runtime) outlives a fork, but its core does not. In the child the core's threads do not exist, its
 * mutexes may be locked for ever, and its connections are the parent's. So the child leaves the core alone, and makes
 * a new one when it first uses the handle.
 *
 * The handle also outlives dibs_close, and is never freed, so that a call of another thread that comes too late can
 * see that the runtime is closed. That is about 440 bytes for each runtime that was ever opened.
 */
#ifndef DIBS_CORE_RUNTIME_H
#define DIBS_CORE_RUNTIME_H

#include "base/process.h"
#include "core/core.h"
#include "core/holds.h"

#define DIBS__VISITS_CLOSED (1u << 31)

/*
 * Counts some of the threads inside a runtime. Threads that run side by side mostly use different counters, each in a
 * cache line of its own: otherwise the processors would take that line from each other twice in each call.
 */
struct dibs__visits {
    atomic_uint inside; /* atomic; their number, and DIBS__VISITS_CLOSED once no more may come */
    char apart[64 - sizeof(atomic_uint)];
};

#define DIBS__VISITS 4

struct dibs_runtime {
    struct dibs__visits visits[DIBS__VISITS];          /* have their own atomics */
    uint64_t serial;                                   /* read-only; no other runtime of this process has it */
    struct dibs__settings settings;                    /* read-only; its strings only within a visit, because
                                                          dibs_close frees them */
    const struct dibs__clock *clock;                   /* read-only */
    atomic_bool closing;                               /* atomic; dibs_shutdown or dibs_close has begun */
    bool closed DIBS__GUARDED_BY(dibs__process_mutex); /* dibs_close has begun */
    bool making DIBS__GUARDED_BY(dibs__process_mutex); /* in a forked child: a visitor makes the core */
    atomic_uint generation; /* atomic; fork generation of the process that `core` belongs to, or will */
    _Atomic(struct dibs__core *)
        core; /* atomic; in a forked child NULL until the first visit; dibs_close frees it when no thread is inside */
    atomic_uint_fast64_t untaken; /* atomic; number of completions of its begun calls in queues */
    struct dibs_runtime *next DIBS__GUARDED_BY(dibs__process_mutex);
};

/* Whether this process is a forked child that has neither used the runtime nor closed it. */
static inline bool dibs__runtime_is_unused(const dibs_runtime *runtime)
{
    return atomic_load(&runtime->generation) != dibs__fork_generation() ||
           (!atomic_load(&runtime->core) && !(atomic_load(&runtime->visits[0].inside) & DIBS__VISITS_CLOSED));
}

/* Takes over *settings, and empties it, also on failure. Returns a status of dibs_open; *error is filled on failure. */
dibs_status dibs__runtime_open(dibs_runtime **out, struct dibs__settings *settings, const struct dibs__clock *clock,
                               struct dibs__error *error);
void dibs__runtime_close(dibs_runtime *runtime); /* does nothing the second time */
void dibs__runtime_shutdown(dibs_runtime *runtime);

/*
 * Every call that does more than look at its thread's own holds is a visit:
 * dibs_close waits for its end, and the thread can't be cancelled within it.
 */
struct dibs__visit {
    struct dibs__core *core;
    struct dibs__visits *among; /* the counter that has this visit */
    int cancel_state;
};

/*
 * DIBS_OK. Otherwise the error is filled, and there is nothing to end:
 * DIBS_CLOSED: dibs_close has begun (on_event may visit until it has returned
 * for the last time); DIBS_NO_MEMORY: no memory, thread or descriptor to make
 * a new core after a fork.
 */
dibs_status dibs__visit_begin(struct dibs__visit *visit, dibs_runtime *runtime, struct dibs__error *error);

/* The same, but DIBS_CLOSED also if dibs_shutdown has begun. */
dibs_status dibs__visit_begin_if_open(struct dibs__visit *visit, dibs_runtime *runtime, struct dibs__error *error);
void dibs__visit_end(struct dibs__visit *visit);

/* Within a visit: dibs_close then also waits until dibs__visit_drop was called, by any thread, once for each keep. */
void dibs__visit_keep(dibs_runtime *runtime);
void dibs__visit_drop(dibs_runtime *runtime);

/* Gives up all holds of a task that is gone, in the background. Nobody uses its table any more. */
void dibs__runtime_give_up(dibs_runtime *runtime, struct dibs__holds *holds);

#endif
