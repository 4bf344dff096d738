/*
 * A task has no mutex: `use` says who uses it. It changes from FREE by compare-and-swap,
 * back to FREE by whoever uses the task, and to GONE by dibs_task_free. The table of
 * holds belongs to the user of the task, and what one user did there the next one sees.
 */
#include "core/task.h"

#include <stdlib.h>

#include "base/fd.h"

#define USES 4u

static unsigned with_generation(enum dibs__task_use use)
{
    return dibs__fork_generation() * USES + use;
}

static dibs_task *task_of(struct dibs__holder *holder)
{
    return (dibs_task *)((char *)holder - offsetof(dibs_task, holder));
}

/* ---------------------------------------------------------------- references */

dibs_task *dibs__task_new(dibs_runtime *runtime, uint64_t serial, atomic_uint_fast64_t *untaken)
{
    dibs_task *task = calloc(1, sizeof *task);

    if (!task)
        return NULL;
    task->holder.runtime = serial;
    task->runtime = runtime;
    task->untaken = untaken;
    atomic_init(&task->references, 1);
    atomic_init(&task->use, with_generation(DIBS__TASK_FREE));
    return task;
}

void dibs__task_ref(dibs_task *task)
{
    atomic_fetch_add_explicit(&task->references, 1, memory_order_relaxed);
}

void dibs__task_unref(dibs_task *task)
{
    if (atomic_fetch_sub_explicit(&task->references, 1, memory_order_acq_rel) > 1)
        return;
    DIBS__REQUIRE(task->holder.holds.count == 0 && !atomic_load(&task->taken_losses));
    dibs__holds_shrink(&task->holder.holds);
    free(task);
}

/* ----------------------------------------------------------------------- use */

/* In a forked child: what the task held, and the acquire that waits, are the parent's. before: the old `use`. */
static void forget(dibs_task *task, unsigned before)
{
    if (before % USES == DIBS__TASK_FREE)
        dibs__holds_forget(&task->holder.holds);
    else
        dibs__holds_abandon(&task->holder.holds);
    atomic_store(&task->wanting, NULL);
}

/* False: somebody uses the task. */
static bool take(dibs_task *task, enum dibs__task_use use)
{
    unsigned taken = with_generation(use), before = atomic_load_explicit(&task->use, memory_order_relaxed);
    bool is_old = before / USES != taken / USES;

    if ((!is_old && before % USES != DIBS__TASK_FREE) ||
        !atomic_compare_exchange_strong_explicit(&task->use, &before, taken, memory_order_acquire,
                                                 memory_order_relaxed))
        return false;
    if (is_old)
        forget(task, before);
    return true;
}

static dibs_status busy(struct dibs__error *error)
{
    return dibs__error_set(error, DIBS_BUSY, "a thread is in the task, or a begun call of it is not complete");
}

dibs_status dibs__task_enter(dibs_task *task, struct dibs__error *error)
{
    if (!take(task, DIBS__TASK_ENTERED))
        return busy(error);
    dibs__holder_enter(&task->holder);
    return DIBS_OK;
}

static void leave(dibs_task *task)
{
    atomic_store_explicit(&task->use, with_generation(DIBS__TASK_FREE), memory_order_release);
}

dibs_status dibs__task_leave(dibs_task *task, struct dibs__error *error)
{
    if (!dibs__holder_leave(&task->holder))
        return dibs__error_set(error, DIBS_INVALID, "the calling thread did not enter that task last");
    leave(task);
    return DIBS_OK;
}

void dibs__task_left(struct dibs__holder *holder)
{
    leave(task_of(holder));
}

void dibs__task_kept(struct dibs__holder *holder)
{
    dibs_task *task = task_of(holder);

    atomic_store(&task->wanting, NULL);
    atomic_store(&task->use, with_generation(DIBS__TASK_ENTERED));
}

bool dibs__task_is_gone(const dibs_task *task)
{
    return atomic_load(&task->use) % USES == DIBS__TASK_GONE;
}

dibs_status dibs__task_was_cancelled(struct dibs__error *error, const char *name)
{
    return dibs__error_set(error, DIBS_CANCELLED, "the task that wanted %s was cancelled", DIBS__QUOTED(name));
}

dibs_task *dibs__task_inside(uint64_t runtime)
{
    struct dibs__holder *holder = dibs__holder_inside(runtime);

    return holder ? task_of(holder) : NULL;
}

dibs_status dibs__task_begin(dibs_task *task, struct dibs__error *error)
{
    return take(task, DIBS__TASK_BEGUN) ? DIBS_OK : busy(error);
}

bool dibs__task_complete(dibs_task *task)
{
    unsigned begun = with_generation(DIBS__TASK_BEGUN);

    return !atomic_compare_exchange_strong(&task->use, &begun, with_generation(DIBS__TASK_FREE));
}

bool dibs__task_end(dibs_task *task)
{
    unsigned gone = with_generation(DIBS__TASK_GONE);

    dibs__holder_leave_anywhere(&task->holder);
    unsigned before = atomic_exchange(&task->use, gone);
    if (before / USES != gone / USES)
        forget(task, before);
    else if (before % USES == DIBS__TASK_BEGUN) /* whoever completes that call finds the task gone */
        return false;
    return true;
}
