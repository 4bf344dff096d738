/*
 * What an owner of locks holds: a table by runtime and name. A thread's table lies in thread-local storage. An owner
 * that is not a thread is a task. A task has a table of its own, which is used by a thread that has entered the task,
 * or by one begun call (begun.h, where a task also ends). One thread at a time uses a table, so it needs no lock. A
 * table with few holds is searched one by one, and needs no allocation for the first of them; a larger table has an
 * index. Allocated memory is freed with the last hold.
 */
#ifndef DIBS_CORE_HOLDS_H
#define DIBS_CORE_HOLDS_H

#include <stdbool.h>
#include <string.h>

#include "base/hash.h"
#include "core/lease.h"

struct dibs__hold {            /* the holding thread's */
    struct dibs__lease *lease; /* with one reference; its fence stays the same as long as the thread has the hold */
    uint32_t hash;             /* the low bits of the name's hash */
    uint32_t count;            /* how many unlocks end the hold; at least 1 */
    int64_t since;             /* when the thread acquired the lock */
};

/* Called by the holding thread, whose count is less than UINT32_MAX. */
static inline void dibs__hold_count_up(struct dibs__hold *hold)
{
    hold->count++;
    uint64_t reentered = atomic_load_explicit(&hold->lease->reentered, memory_order_relaxed);
    atomic_store_explicit(&hold->lease->reentered, reentered + 1, memory_order_relaxed); /* no other thread writes it */
}

#define DIBS__HOLDS_FEW 4 /* this many holds need no memory but the table's */

/*
 * All zero: nothing is held. The number of places in `index` is a power of two, at least twice the number of holds, so
 * linear probing ends. Each place has the number of a hold, or UINT32_MAX.
 */
struct dibs__holds {
    struct dibs__hold *holds; /* `few`, or allocated; NULL: no place was ever reserved */
    uint32_t count, cap;
    uint32_t *index; /* NULL: the holds are searched one by one */
    uint32_t index_mask;
    struct dibs__hold few[DIBS__HOLDS_FEW];
};

struct dibs__done;
struct dibs__wanting;

/* How a task is used. */
enum dibs__task_use {
    DIBS__TASK_FREE,    /* by nobody */
    DIBS__TASK_ENTERED, /* a thread is in the task */
    DIBS__TASK_BEGUN,   /* a begun call is not complete yet */
    DIBS__TASK_GONE     /* the task was freed; a begun call that completes after that gives up what the task holds */
};

/* `use` also has the fork generation: nobody uses a task in a forked child, unless the thread that forked was in it. */
struct dibs_task {
    struct dibs__holds holds;                  /* belongs to whoever uses the task; all of `serial` */
    struct dibs_task *outer;                   /* the entering thread's: the task it entered before; NULL: none */
    uint64_t serial;                           /* read-only; of the runtime */
    dibs_runtime *runtime;                     /* read-only */
    atomic_uint_fast64_t *untaken;             /* atomic; the runtime's count of completions in queues; never freed */
    atomic_uint references;                    /* atomic; the program's, and one for each completion and acquire */
    atomic_uint use;                           /* atomic; a dibs__task_use, and the generation above it */
    atomic_bool cancelled;                     /* atomic; never cleared */
    _Atomic(struct dibs__wanting *) wanting;   /* atomic; the acquire that waits, with a reference: whoever takes it out
                                                  of here decides how its call ends; NULL: none waits */
    _Atomic(struct dibs__done *) taken_losses; /* atomic; losses whose names the program may still use (done.h) */
};

/* The innermost task of the runtime of that serial that the calling thread has entered. NULL: the thread is in none. */
dibs_task *dibs__task_inside(uint64_t runtime);

/* The table that the calling thread uses for that runtime, and the one that it uses where it is in no task. */
struct dibs__holds *dibs__holds_here(uint64_t runtime);
struct dibs__holds *dibs__holds_own(void);

/* In the table that the calling thread uses. NULL: the name is not held. Valid until the next add or remove. */
struct dibs__hold *dibs__holds_find(uint64_t runtime, const char *name, size_t name_size);

/* The hold that the thread found or added last; NULL: that hold was removed, or its place may have changed. */
extern _Thread_local struct dibs__hold *dibs__holds_last;

static inline bool dibs__holds_is_it(const struct dibs__hold *hold, uint64_t runtime, const char *name,
                                     size_t name_size)
{
    const struct dibs__lease *lease = hold->lease;

    return lease->name_size == name_size && lease->runtime == runtime && dibs__same_bytes(lease->name, name, name_size);
}

/*
 * Like dibs__holds_find if the name is that of the last hold, in a time that does not depend on the number of holds;
 * else NULL, which says nothing. A pair of nested calls is about one name, so the second call, and usually the first,
 * need no more than this.
 */
static inline struct dibs__hold *dibs__holds_find_last(uint64_t runtime, const char *name)
{
    struct dibs__hold *last = dibs__holds_last;

    return last && dibs__holds_is_it(last, runtime, name, strnlen(name, DIBS_NAME_MAX + 1)) ? last : NULL;
}

/* ------------------------ in a table that the calling thread, or no thread, uses */

/* As dibs__holds_find. */
struct dibs__hold *dibs__holds_find_in(struct dibs__holds *holds, uint64_t runtime, const char *name, size_t name_size);

/* Makes room for `count` more holds. False: no memory. */
bool dibs__holds_reserve(struct dibs__holds *holds, uint32_t count);

/* Adds a hold of count 1, which takes over the caller's reference. There must be room for it (dibs__holds_reserve). */
struct dibs__hold *dibs__holds_add(struct dibs__holds *holds, struct dibs__lease *lease, int64_t since);

/* Takes the hold out of the table. Returns its lease; the reference becomes the caller's. */
struct dibs__lease *dibs__holds_remove(struct dibs__holds *holds, struct dibs__hold *hold);

/*
 * The next hold of that runtime; NULL: there are no more. *cursor must be DIBS__HOLDS_ALL at the beginning. Between two
 * calls the hold that was found may be removed, but no hold may be added. The whole walk looks at each hold once.
 */
#define DIBS__HOLDS_ALL UINT32_MAX
struct dibs__hold *dibs__holds_next(const struct dibs__holds *holds, uint64_t runtime, uint32_t *cursor);

/* --------------------------------------------------------------------------- tasks */

/* A task of the runtime with that serial and count of completions. The caller has one reference. NULL: no memory. */
dibs_task *dibs__task_new(dibs_runtime *runtime, uint64_t serial, atomic_uint_fast64_t *untaken);
void dibs__task_ref(dibs_task *task);
void dibs__task_unref(dibs_task *task); /* the last one frees the task, which must have ended or never been used */

/* As the functions of dibs.h; task is not NULL. */
dibs_status dibs__task_enter(dibs_task *task, struct dibs__error *error);
dibs_status dibs__task_leave(dibs_task *task, struct dibs__error *error);

/* A begun call begins to use the task, which nobody else uses. DIBS_OK, DIBS_BUSY. */
dibs_status dibs__task_begin(dibs_task *task, struct dibs__error *error);

/* The begun call is complete, or was not begun after all. True: the task is gone; the caller gives up what it holds. */
bool dibs__task_complete(dibs_task *task);

/* The task is gone from now on. True: the caller gives up what it holds. False: a begun call will, once complete. */
bool dibs__task_end(dibs_task *task);

bool dibs__task_is_gone(const dibs_task *task); /* whether the task was freed */

/* Fills in the error for DIBS_CANCELLED, and returns that status. */
dibs_status dibs__task_was_cancelled(struct dibs__error *error, const char *name);

/* ----------------------------------------------------------------- a thread's end */

/*
 * A thread that ends leaves its tasks, and calls orphaned(lease) for each hold of its own. A forked child, which holds
 * nothing, calls forgotten(lease) for each hold of the thread that forked and of the tasks that it is in. Both take
 * over the reference. Must be called before the first hold is added, and with the same functions each time. False: no
 * memory, or all keys for thread-specific data are in use; then dibs__holds_on_end must be called again.
 */
struct dibs__holds_hooks {
    void (*orphaned)(struct dibs__lease *lease);
    void (*forgotten)(struct dibs__lease *lease);
};
bool dibs__holds_on_end(const struct dibs__holds_hooks *hooks);

#endif
