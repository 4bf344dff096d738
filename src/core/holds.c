#include "core/holds.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "base/once.h"

#define LINEAR 8 /* a table with room for this many holds or fewer has no index */
#define FEW DIBS__HOLDS_FEW
#define NOTHING UINT32_MAX
#define USES 4u /* values of dibs__task_use */

_Static_assert(LINEAR >= FEW && LINEAR % FEW == 0, "a table grows by doubling from FEW");

static _Thread_local struct dibs__holds own; /* what the calling thread holds itself */
static _Thread_local dibs_task *innermost;   /* the task that the calling thread entered last; NULL: none */

_Thread_local struct dibs__hold *dibs__holds_last;

static pthread_key_t end_key; /* read-only once it is made; its destructor runs when a thread ends that has holds or has
                                 entered a task */
static struct dibs__holds_hooks hooks; /* written with the same values each time */

/* ------------------------------------------------------------------- index */

static void index_put(struct dibs__holds *t, uint32_t number)
{
    uint32_t place = t->holds[number].hash & t->index_mask;

    while (t->index[place] != NOTHING)
        place = (place + 1) & t->index_mask;
    t->index[place] = number;
}

static uint32_t index_place_of(const struct dibs__holds *t, uint32_t number)
{
    uint32_t place = t->holds[number].hash & t->index_mask;

    while (t->index[place] != number)
        place = (place + 1) & t->index_mask;
    return place;
}

/*
 * Knuth, The Art of Computer Programming 3, 6.4, algorithm R: an entry that probing would not find behind the gap moves
 * into the gap.
 */
static void index_remove(struct dibs__holds *t, uint32_t number)
{
    uint32_t gap = index_place_of(t, number);

    for (uint32_t at = (gap + 1) & t->index_mask; t->index[at] != NOTHING; at = (at + 1) & t->index_mask) {
        uint32_t home = t->holds[t->index[at]].hash & t->index_mask;
        if (((at - home) & t->index_mask) >= ((at - gap) & t->index_mask)) {
            t->index[gap] = t->index[at];
            gap = at;
        }
    }
    t->index[gap] = NOTHING;
}

static bool make_index(struct dibs__holds *t, uint32_t cap)
{
    uint32_t places = cap * 2;
    uint32_t *index = malloc(places * sizeof *index);

    if (!index)
        return false;
    for (uint32_t i = 0; i < places; i++)
        index[i] = NOTHING;
    free(t->index);
    t->index = index;
    t->index_mask = places - 1;
    for (uint32_t i = 0; i < t->count; i++)
        index_put(t, i);
    return true;
}

/* -------------------------------------------------------------------- table */

struct dibs__hold *dibs__holds_find_in(struct dibs__holds *t, uint64_t runtime, const char *name, size_t name_size)
{
    if (!t->index) {
        for (uint32_t i = t->count; i-- > 0;)
            if (dibs__holds_is_it(&t->holds[i], runtime, name, name_size))
                return &t->holds[i];
        return NULL;
    }
    uint32_t hash = (uint32_t)dibs__hash(name, name_size);
    for (uint32_t at = hash & t->index_mask; t->index[at] != NOTHING; at = (at + 1) & t->index_mask) {
        struct dibs__hold *hold = &t->holds[t->index[at]];
        if (hold->hash == hash && dibs__holds_is_it(hold, runtime, name, name_size))
            return hold;
    }
    return NULL;
}

/* Copies the holds to another place, and does not free the old one. NULL: no memory. */
static struct dibs__hold *move_holds(struct dibs__holds *t, uint32_t cap)
{
    struct dibs__hold *holds = cap > FEW ? malloc(cap * sizeof *holds) : t->few;

    if (holds && t->count > 0)
        memcpy(holds, t->holds, t->count * sizeof *holds);
    return holds;
}

static void leave_place(const struct dibs__holds *t, struct dibs__hold *place)
{
    if (place != t->few)
        free(place);
}

/*
 * cap: FEW, doubled any number of times, at least the count and not the present cap. False: no memory; nothing has
 * changed.
 */
static bool resize(struct dibs__holds *t, uint32_t cap)
{
    DIBS__REQUIRE(cap >= FEW && cap != t->cap && cap >= t->count && (cap & (cap - 1)) == 0);
    struct dibs__hold *old = t->holds, *holds = move_holds(t, cap);

    if (!holds)
        return false;
    t->holds = holds;
    if (cap > LINEAR && !make_index(t, cap)) {
        t->holds = old;
        leave_place(t, holds);
        return false;
    }
    if (cap <= LINEAR) {
        free(t->index);
        t->index = NULL;
    }
    t->cap = cap;
    leave_place(t, old);
    return true;
}

/* Frees memory that the present holds do not need, unless there is none for the smaller table. */
static void shrink(struct dibs__holds *t)
{
    if (t->cap > FEW && t->count <= t->cap / 4)
        resize(t, t->count > 0 ? t->cap / 2 : FEW);
}

/* ------------------------------------------------- the calling thread's table */

/* False: the end of the thread would not be noticed. */
static bool watch_end(void)
{
    return pthread_getspecific(end_key) || pthread_setspecific(end_key, &own) == 0;
}

dibs_task *dibs__task_inside(uint64_t runtime)
{
    dibs_task *at = innermost;

    while (at && at->serial != runtime)
        at = at->outer;
    return at;
}

struct dibs__holds *dibs__holds_here(uint64_t runtime)
{
    dibs_task *task = innermost ? dibs__task_inside(runtime) : NULL;

    return task ? &task->holds : &own;
}

struct dibs__holds *dibs__holds_own(void)
{
    return &own;
}

struct dibs__hold *dibs__holds_find(uint64_t runtime, const char *name, size_t name_size)
{
    struct dibs__hold *hold = dibs__holds_find_in(dibs__holds_here(runtime), runtime, name, name_size);

    if (hold)
        dibs__holds_last = hold;
    return hold;
}

/* ------------------------------------------------------------ changes of a table */

bool dibs__holds_reserve(struct dibs__holds *t, uint32_t count)
{
    uint32_t cap = t->cap ? t->cap : FEW;

    dibs__holds_last = NULL; /* the hold may get another place */
    if (!watch_end())
        return false;
    while (cap - t->count < count)
        cap *= 2;
    return cap == t->cap || resize(t, cap);
}

struct dibs__hold *dibs__holds_add(struct dibs__holds *t, struct dibs__lease *lease, int64_t since)
{
    struct dibs__hold *hold = &t->holds[t->count];

    DIBS__REQUIRE(t->count < t->cap);
    DIBS__REQUIRE(!dibs__holds_find_in(t, lease->runtime, lease->name, lease->name_size));
    *hold = (struct dibs__hold){
        .lease = lease,
        .hash = (uint32_t)dibs__hash(lease->name, lease->name_size),
        .count = 1,
        .since = since,
    };
    t->count++;
    if (t->index)
        index_put(t, t->count - 1);
    if (t == dibs__holds_here(lease->runtime))
        dibs__holds_last = hold;
    return hold;
}

struct dibs__lease *dibs__holds_remove(struct dibs__holds *t, struct dibs__hold *hold)
{
    struct dibs__lease *lease = hold->lease;
    uint32_t number = (uint32_t)(hold - t->holds), last = t->count - 1;

    DIBS__REQUIRE(t->count > 0 && number < t->count);
    dibs__holds_last = NULL;
    if (t->index) {
        index_remove(t, number);
        if (number != last)
            t->index[index_place_of(t, last)] = number;
    }
    *hold = t->holds[last];
    t->count--;
    shrink(t);
    return lease;
}

/*
 * Walks from the end, because a removal moves the last hold to the cursor's place, and all holds above the cursor
 * belong to other runtimes.
 */
struct dibs__hold *dibs__holds_next(const struct dibs__holds *t, uint64_t runtime, uint32_t *cursor)
{
    uint32_t at = *cursor < t->count ? *cursor : t->count;

    while (at > 0 && t->holds[at - 1].lease->runtime != runtime)
        at--;
    *cursor = at > 0 ? at - 1 : 0;
    return at > 0 ? &t->holds[at - 1] : NULL;
}

/* In a forked child: forgets what a table holds that no other thread of the parent used. */
static void forget_holds(struct dibs__holds *t)
{
    while (t->count > 0)
        hooks.forgotten(dibs__holds_remove(t, &t->holds[t->count - 1]));
}

/*
 * ------------------------------------------------------------------- tasks
 *
 * A task has no mutex: `use` says who uses it. It changes from FREE by compare-and-swap, back to FREE by whoever uses
 * the task, and to GONE by dibs_task_free. The table of holds belongs to the user of the task, and what one user did
 * there the next one sees.
 */

static unsigned with_generation(enum dibs__task_use use)
{
    return dibs__fork_generation() * USES + use;
}

dibs_task *dibs__task_new(dibs_runtime *runtime, uint64_t serial, atomic_uint_fast64_t *untaken)
{
    dibs_task *task = calloc(1, sizeof *task);

    if (!task)
        return NULL;
    task->serial = serial;
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
    DIBS__REQUIRE(task->holds.count == 0 && !atomic_load(&task->taken_losses));
    shrink(&task->holds);
    free(task);
}

/* In a forked child: what the task held, and the acquire that waits, are the parent's. before: the old `use`. */
static void forget(dibs_task *task, unsigned before)
{
    if (before % USES == DIBS__TASK_FREE)
        forget_holds(&task->holds);
    else
        memset(&task->holds, 0, sizeof task->holds); /* another thread of the parent may have been changing it */
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
    if (!watch_end())
        return dibs__error_set(error, DIBS_NO_MEMORY, "no memory to notice the end of the thread");
    if (!take(task, DIBS__TASK_ENTERED))
        return busy(error);
    task->outer = innermost;
    innermost = task;
    dibs__holds_last = NULL;
    return DIBS_OK;
}

/* Leaves the task wherever it is in the thread's nesting. False: the calling thread is not in it. */
static bool get_out(dibs_task *task)
{
    dibs_task **at = &innermost;

    while (*at && *at != task)
        at = &(*at)->outer;
    if (!*at)
        return false;
    *at = task->outer;
    dibs__holds_last = NULL;
    return true;
}

static void set_free(dibs_task *task)
{
    atomic_store_explicit(&task->use, with_generation(DIBS__TASK_FREE), memory_order_release);
}

dibs_status dibs__task_leave(dibs_task *task, struct dibs__error *error)
{
    if (innermost != task || !get_out(task))
        return dibs__error_set(error, DIBS_INVALID, "the calling thread did not enter that task last");
    set_free(task);
    return DIBS_OK;
}

bool dibs__task_is_gone(const dibs_task *task)
{
    return atomic_load(&task->use) % USES == DIBS__TASK_GONE;
}

dibs_status dibs__task_was_cancelled(struct dibs__error *error, const char *name)
{
    return dibs__error_set(error, DIBS_CANCELLED, "the task that wanted %s was cancelled", DIBS__QUOTED(name));
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

    get_out(task);
    unsigned before = atomic_exchange(&task->use, gone);
    if (before / USES != gone / USES)
        forget(task, before);
    else if (before % USES == DIBS__TASK_BEGUN) /* whoever completes that call finds the task gone */
        return false;
    return true;
}

/* --------------------------------------------------------- a thread's end */

static void thread_ends(void *unused)
{
    (void)unused;
    dibs__holds_last = NULL; /* other destructors of the thread may still call the library */
    while (innermost) {
        dibs_task *task = innermost;
        innermost = task->outer;
        set_free(task);
    }
    while (own.count > 0)
        hooks.orphaned(dibs__holds_remove(&own, &own.holds[own.count - 1]));
    shrink(&own); /* frees what was reserved for an acquire that failed */
}

static void forget_in_child(void)
{
    dibs__holds_last = NULL;
    forget_holds(&own);
    for (dibs_task *at = innermost; at; at = at->outer) {
        forget_holds(&at->holds);
        atomic_store(&at->wanting, NULL);
        atomic_store(&at->use, with_generation(DIBS__TASK_ENTERED));
    }
}

static bool make_key(void)
{
    return pthread_key_create(&end_key, thread_ends) == 0;
}

bool dibs__holds_on_end(const struct dibs__holds_hooks *at_end)
{
    static struct dibs__once key;

    hooks = *at_end;
    return dibs__once(&key, make_key) && dibs__process_at_fork(forget_in_child);
}
