/*
 * Lock discipline: a space's `mutex` guards its locks and their queues; it is a
 * leaf. A listener is told of a grant by the thread whose call freed the lock,
 * under no mutex: each grant on its way is counted in the `pushes` of the user
 * it goes to, who is not freed before they are done. The listener must not call
 * the store. What it locks must not be held in a call of ask_finish, conclude,
 * release_finish, retract or force_unlock. `named_mutex` guards the list of named
 * spaces and is not held together with the other: it is held across a fork, so
 * that the child finds the list whole.
 */
#include "store/memory.h"

#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mutex.h"
#include "base/once.h"

/* In a queue: guarded by the space's mutex. Served: of the thread alone that tells its user. */
struct waiter {
    struct waiter *next;
    struct memory *user;
    uint64_t number; /* of its newest ask */
    uint32_t lease_ms;
    uint64_t fence; /* once it was served */
    char token[DIBS__TOKEN_MAX];
};

/* A name that somebody holds or waits for. Guarded by the space's mutex. */
struct lock {
    const char *name;     /* behind the struct */
    struct waiter *first; /* of the queue, in the order of arrival */
    int64_t expires;
    uint64_t fence;
    char token[DIBS__TOKEN_MAX]; /* the owner's; "": it is free */
};

DIBS__MUTEX_CLASS(space_mutex);
DIBS__MUTEX_CLASS(names_mutex);

struct space {
    struct dibs__mutex mutex;
    pthread_cond_t pushed; /* the pushes of a user have become zero */
    void *locks;           /* guarded by mutex; a tree of struct lock by name */
    uint64_t last_fence;   /* guarded by mutex */
    struct space *next;    /* guarded by named_mutex */
    unsigned references;   /* guarded by named_mutex */
    char *name;            /* read-only; NULL: private */
};

struct memory {
    struct dibs__store store;
    struct space *space; /* these are read-only after open */
    const struct dibs__clock *clock;
    struct dibs__listener listener;
    struct dibs__counters *counters;
    size_t pushes; /* guarded by space->mutex: grants that its listener is being told of */
};

static struct dibs__mutex named_mutex = DIBS__MUTEX_INITIALIZER;
static struct space *named_spaces; /* guarded by named_mutex */
static struct dibs__once watching; /* registers what is done at a fork */

/* ------------------------------------------------------------------- spaces */

static void before_fork(void)
{
    names_mutex_lock(&named_mutex);
}

static void after_fork_in_parent(void)
{
    names_mutex_unlock(&named_mutex);
}

static void after_fork_in_child(void)
{
    named_spaces = NULL; /* the locks in them are the parent's threads' */
    dibs__once_was_done(&watching);
    names_mutex_unlock(&named_mutex);
}

static bool watch_forks(void)
{
    return pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0;
}

bool dibs__memory_watch_forks(void)
{
    return dibs__once(&watching, watch_forks);
}

static struct space *space_new(const char *name)
{
    struct space *space = calloc(1, sizeof *space);

    if (!space)
        return NULL;
    if (*name && !(space->name = strdup(name)))
        goto no_name;
    if (dibs__mutex_init(&space->mutex) != 0)
        goto no_mutex;
    if (pthread_cond_init(&space->pushed, NULL) != 0)
        goto no_cond;
    space->references = 1;
    return space;
no_cond:
    dibs__mutex_destroy(&space->mutex);
no_mutex:
    free(space->name);
no_name:
    free(space);
    return NULL;
}

/* The space of that name, a new one where there is none or the name is "". NULL: no memory. */
static struct space *space_get(const char *name)
{
    struct space *space = NULL;

    if (!dibs__memory_watch_forks())
        return NULL;
    names_mutex_lock(&named_mutex);
    for (space = *name ? named_spaces : NULL; space && strcmp(space->name, name) != 0; space = space->next)
        continue;
    if (space) {
        space->references++;
    } else {
        space = space_new(name);
        if (space && *name) {
            space->next = named_spaces;
            named_spaces = space;
        }
    }
    names_mutex_unlock(&named_mutex);
    return space;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct lock *)a)->name, ((const struct lock *)b)->name);
}

/* Nobody uses it any more, so nobody waits for its locks. */
static void space_free(struct space *space)
{
    while (space->locks) {
        struct lock *lock = *(struct lock **)space->locks;
        tdelete(lock, &space->locks, compare_names);
        free(lock);
    }
    pthread_cond_destroy(&space->pushed);
    dibs__mutex_destroy(&space->mutex);
    free(space->name);
    free(space);
}

static void space_put(struct space *space)
{
    names_mutex_lock(&named_mutex);
    bool last = --space->references == 0;
    for (struct space **at = &named_spaces; last && *at; at = &(*at)->next) {
        if (*at == space) {
            *at = space->next;
            break;
        }
    }
    names_mutex_unlock(&named_mutex);
    if (last)
        space_free(space);
}

/* -------------------------------------------------------------------- locks */

static dibs_status no_memory(struct dibs__error *error)
{
    return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a lock");
}

static bool is_held(const struct lock *lock)
{
    return lock->token[0] != '\0';
}

static bool is_owner(const struct lock *lock, const char *token)
{
    return is_held(lock) && strcmp(lock->token, token) == 0;
}

/* Requires space->mutex, as all below do. True: nobody held it or waited for it, and it is no more. */
static bool drop_unused(struct space *space, struct lock *lock)
{
    if (is_held(lock) || lock->first)
        return false;
    tdelete(lock, &space->locks, compare_names);
    free(lock);
    return true;
}

/* NULL: nobody holds it or waits for it. A lease that is over has ended after this. */
static struct lock *find(struct space *space, const char *name, int64_t now)
{
    const struct lock probe = {.name = name};
    void *node = tfind(&probe, &space->locks, compare_names);
    struct lock *lock = node ? *(struct lock **)node : NULL;

    if (lock && lock->expires <= now)
        lock->token[0] = '\0';
    return lock && !drop_unused(space, lock) ? lock : NULL;
}

/* NULL: no memory. One that is new has no owner and no queue: it has to get either, or to be dropped. */
static struct lock *find_or_add(struct space *space, const char *name, int64_t now)
{
    struct lock *lock = find(space, name, now);
    size_t size = strlen(name) + 1;

    if (lock || !(lock = calloc(1, sizeof *lock + size)))
        return lock;
    lock->name = memcpy(lock + 1, name, size);
    if (tsearch(lock, &space->locks, compare_names))
        return lock;
    free(lock);
    return NULL;
}

/* As in Redis: microseconds, or one more than the last. */
static uint64_t next_fence(struct space *space)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    uint64_t now = (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
    space->last_fence = now > space->last_fence ? now : space->last_fence + 1;
    return space->last_fence;
}

static void grant(struct space *space, struct lock *lock, const char *token, uint32_t lease_ms, int64_t now)
{
    lock->expires = dibs__after_ms(now, lease_ms);
    lock->fence = next_fence(space);
    snprintf(lock->token, sizeof lock->token, "%s", token);
}

static void prolong(struct lock *lock, uint32_t lease_ms, int64_t now)
{
    int64_t expires = dibs__after_ms(now, lease_ms);

    if (expires > lock->expires)
        lock->expires = expires;
}

/* ------------------------------------------------------------------- queues */

/* Where the token waits, or the end of the queue. */
static struct waiter **place_of(struct lock *lock, const char *token)
{
    struct waiter **at = &lock->first;

    while (*at && strcmp((*at)->token, token) != 0)
        at = &(*at)->next;
    return at;
}

static struct waiter *take_out(struct waiter **place)
{
    struct waiter *waiter = *place;

    if (waiter)
        *place = waiter->next;
    return waiter;
}

/* An ask that waits joins the queue; one whose token is there keeps its place. False: no memory. */
static bool take_place(struct memory *memory, struct lock *lock, const struct dibs__bid *ask)
{
    struct waiter **place = place_of(lock, ask->token);

    if (!*place && ask->wait) {
        if (!(*place = calloc(1, sizeof **place)))
            return false;
        (*place)->user = memory;
        snprintf((*place)->token, sizeof(*place)->token, "%s", ask->token);
    }
    if (*place) {
        (*place)->number = ask->number;
        (*place)->lease_ms = ask->lease_ms;
    }
    return true;
}

/* A free lock goes to the first in the queue. Who is to be told by push(): NULL also where it was `me`, who asks. */
static struct waiter *serve(struct space *space, struct lock *lock, const char *me, int64_t now)
{
    struct waiter *first = is_held(lock) ? NULL : take_out(&lock->first);

    if (!first)
        return NULL;
    grant(space, lock, first->token, first->lease_ms, now);
    first->fence = lock->fence;
    if (me && strcmp(first->token, me) == 0) {
        free(first);
        return NULL;
    }
    first->user->pushes++;
    return first;
}

static struct waiter *serve_name(struct space *space, const char *name, int64_t now)
{
    struct lock *lock = find(space, name, now);

    return lock ? serve(space, lock, NULL, now) : NULL;
}

/* The token waits no longer, nor does it own the lock. True: it did own it. The queue has to be served after this. */
static bool end(struct space *space, const char *name, const char *token, int64_t now)
{
    struct lock *lock = find(space, name, now);

    if (!lock)
        return false;
    free(take_out(place_of(lock, token)));
    if (!is_owner(lock, token))
        return false;
    lock->token[0] = '\0';
    return true;
}

/* Under no mutex. Tells who was served; while nobody waits for the grant any more, it goes to the next. */
static void push(struct memory *memory, const char *name, struct waiter *served)
{
    struct space *space = memory->space;

    while (served) {
        struct memory *user = served->user;
        struct waiter *next = NULL;
        const struct dibs__grant news = {name, served->token, served->number, served->fence, false};
        bool wanted = user->listener.granted(user->listener.context, &news);

        space_mutex_lock(&space->mutex);
        if (--user->pushes == 0)
            pthread_cond_broadcast(&space->pushed);
        if (!wanted) {
            int64_t now = dibs__now(memory->clock);
            end(space, name, served->token, now);
            next = serve_name(space, name, now);
        }
        space_mutex_unlock(&space->mutex);
        free(served);
        served = next;
    }
}

/* ------------------------------------------------------------- the contract */

static struct memory *of(struct dibs__store *store)
{
    return (struct memory *)store;
}

static void count_command(struct memory *memory)
{
    atomic_fetch_add_explicit(&memory->counters->commands, 1, memory_order_relaxed);
    atomic_store_explicit(&memory->counters->heard, dibs__now(memory->clock), memory_order_relaxed);
}

static int64_t again_ms(const struct lock *lock, uint32_t lease_ms, int64_t now)
{
    int64_t left = dibs__ms_until(lock->expires, now), most = lease_ms / 3;

    left = left < most ? left : most;
    return left > 0 ? left : 1;
}

/* Requires space->mutex. *served: for push(). Once the mutex is let go of, the ask may be granted: it is complete. */
static dibs_status do_ask(struct memory *memory, struct dibs__bid *ask, struct dibs__answer *answer,
                          struct waiter **served, struct dibs__error *error)
{
    struct space *space = memory->space;
    int64_t now = dibs__now(memory->clock);
    struct lock *lock = find_or_add(space, ask->name, now);

    ask->number++;
    ask->proof = now;
    *answer = (struct dibs__answer){0};
    if (!lock)
        return no_memory(error);
    if (!is_owner(lock, ask->token) && !take_place(memory, lock, ask)) {
        drop_unused(space, lock);
        return no_memory(error);
    }
    *served = serve(space, lock, ask->token, now);
    if (!is_held(lock))
        grant(space, lock, ask->token, ask->lease_ms, now);
    if (is_owner(lock, ask->token)) {
        prolong(lock, ask->lease_ms, now);
        answer->fence = lock->fence;
        ask->in_store = true;
        return DIBS_OK;
    }
    answer->again_ms = again_ms(lock, ask->lease_ms, now);
    ask->in_store = ask->in_store || ask->wait;
    return DIBS_BUSY;
}

static dibs_status ask_finish(struct dibs__store *store, struct dibs__bid *bid, struct dibs__answer *answer,
                              struct dibs__error *error)
{
    struct memory *memory = of(store);
    struct waiter *served = NULL;

    count_command(memory);
    space_mutex_lock(&memory->space->mutex);
    dibs_status status = do_ask(memory, bid, answer, &served, error);
    space_mutex_unlock(&memory->space->mutex);
    push(memory, bid->name, served);
    return status;
}

/* The error is filled, too, where memory is short for the ask behind it: that does not keep the lock from its end. */
static dibs_status release_finish(struct dibs__store *store, struct dibs__release *release, struct dibs__error *error)
{
    struct memory *memory = of(store);
    struct space *space = memory->space;
    struct waiter *served = NULL;

    release->again = false;
    count_command(memory);
    space_mutex_lock(&space->mutex);
    bool was_owner = end(space, release->name, release->token, dibs__now(memory->clock));
    if (release->next)
        release->next_status = do_ask(memory, release->next, &release->next_answer, &served, error);
    if (!served)
        served = serve_name(space, release->name, dibs__now(memory->clock));
    space_mutex_unlock(&space->mutex);
    push(memory, release->name, served);
    return was_owner ? DIBS_OK : DIBS_NOT_HELD;
}

static void retract(struct dibs__store *store, const char *name, const char *token, uint32_t lease_ms)
{
    struct dibs__error unused;

    (void)lease_ms;
    release_finish(store, &(struct dibs__release){.name = name, .token = token}, &unused);
}

static void conclude(struct dibs__store *store, struct dibs__bid *bid, bool held)
{
    if (!held && bid->in_store)
        retract(store, bid->name, bid->token, bid->lease_ms);
    bid->in_store = false;
    if (held)
        return;
    bid->number = 0;
    bid->proof = 0;
}

/* Nothing has to be waited for, so finish does the whole. */
static void ask_begin(struct dibs__store *store, struct dibs__bid *bid)
{
    (void)store;
    (void)bid;
}

static void release_begin(struct dibs__store *store, struct dibs__release *release)
{
    (void)store;
    (void)release;
}

static void query_begin(struct dibs__store *store, struct dibs__query *query)
{
    (void)store;
    (void)query;
}

static bool await(struct dibs__store *store, const struct dibs__begun *begun, int64_t until)
{
    (void)store;
    (void)begun;
    (void)until;
    return true;
}

static dibs_status force_unlock(struct dibs__store *store, const char *name, const char *token, int64_t deadline,
                                struct dibs__error *error)
{
    struct memory *memory = of(store);
    struct space *space = memory->space;
    dibs_status status = DIBS_OK;

    (void)deadline;
    (void)error;
    count_command(memory);
    space_mutex_lock(&space->mutex);
    int64_t now = dibs__now(memory->clock);
    struct lock *lock = find(space, name, now);
    if (lock && token && is_held(lock) && !is_owner(lock, token))
        status = DIBS_NOT_HELD;
    else if (lock)
        lock->token[0] = '\0';
    struct waiter *served = serve_name(space, name, now); /* with a fence above that of the one who lost it */
    space_mutex_unlock(&space->mutex);
    push(memory, name, served);
    return status;
}

static uint32_t count_waiters(const struct lock *lock)
{
    uint32_t count = 0;

    for (const struct waiter *at = lock->first; at; at = at->next)
        count++;
    return count;
}

static dibs_status query_finish(struct dibs__store *store, struct dibs__query *query, dibs_owner *owner,
                                struct dibs__error *error)
{
    struct memory *memory = of(store);

    (void)error;
    count_command(memory);
    space_mutex_lock(&memory->space->mutex);
    int64_t now = dibs__now(memory->clock);
    struct lock *lock = find(memory->space, query->name, now);
    if (lock)
        owner->waiters = count_waiters(lock);
    if (lock && is_held(lock)) {
        owner->held = true;
        owner->remaining_ms = dibs__ms_until(lock->expires, now);
        owner->fence = lock->fence;
        memcpy(owner->token, lock->token, sizeof owner->token);
    }
    space_mutex_unlock(&memory->space->mutex);
    return DIBS_OK;
}

/* Requires space->mutex. */
static void renew_one(struct memory *memory, struct dibs__renewal *renewal)
{
    int64_t now = dibs__now(memory->clock);
    struct lock *lock = find(memory->space, renewal->name, now);

    renewal->result = DIBS__GONE;
    if (!lock || !is_owner(lock, renewal->token))
        return;
    if (renewal->extension)
        lock->expires = dibs__after_ms(now, renewal->lease_ms);
    else
        prolong(lock, renewal->lease_ms, now);
    renewal->result = DIBS__RENEWED;
}

static void renew(struct dibs__store *store, struct dibs__batch *batch)
{
    struct memory *memory = of(store);
    const struct dibs__error none = {DIBS_OK, ""};

    count_command(memory);
    batch->proof = dibs__now(memory->clock);
    space_mutex_lock(&memory->space->mutex);
    for (size_t i = 0; i < batch->count; i++)
        renew_one(memory, &batch->items[i]);
    space_mutex_unlock(&memory->space->mutex);
    batch->done(batch, &none);
}

static bool is_unproven(struct dibs__store *store, const struct dibs__lease_memo *lease)
{
    (void)store;
    (void)lease;
    return false;
}

static size_t interest(struct dibs__store *store, struct pollfd *fds, int64_t *deadline)
{
    (void)store;
    (void)fds;
    *deadline = DIBS__NEVER;
    return 0;
}

static void attend(struct dibs__store *store, const struct pollfd *fds, size_t count)
{
    (void)store;
    (void)fds;
    (void)count;
}

static size_t unconfirmed(struct dibs__store *store)
{
    (void)store;
    return 0;
}

static _Thread_local const struct memory *leaver; /* whose waiters leave: twalk hands nothing to what it calls */

static void leave_queue(const void *node, VISIT visit, int depth)
{
    struct lock *lock = *(struct lock *const *)node;

    (void)depth;
    if (visit != preorder && visit != leaf)
        return;
    for (struct waiter **at = &lock->first; *at;) {
        if ((*at)->user == leaver)
            free(take_out(at));
        else
            at = &(*at)->next;
    }
}

static void close_memory(struct dibs__store *store)
{
    struct memory *memory = of(store);
    struct space *space = memory->space;

    space_mutex_lock(&space->mutex);
    leaver = memory;
    twalk(space->locks, leave_queue);
    while (memory->pushes > 0)
        dibs__mutex_wait(&space->mutex, &space->pushed);
    space_mutex_unlock(&space->mutex);
    space_put(space);
    free(memory);
}

static const struct dibs__store_ops memory_ops = {
    .ask_begin = ask_begin,
    .ask_finish = ask_finish,
    .conclude = conclude,
    .release_begin = release_begin,
    .release_finish = release_finish,
    .query_begin = query_begin,
    .query_finish = query_finish,
    .await = await,
    .retract = retract,
    .force_unlock = force_unlock,
    .renew = renew,
    .is_unproven = is_unproven,
    .interest = interest,
    .attend = attend,
    .unconfirmed = unconfirmed,
    .close = close_memory,
};

dibs_status dibs__memory_open(struct dibs__store **out, const struct dibs__store_config *config,
                              struct dibs__error *error)
{
    if (config->min_replicas > 0)
        return dibs__error_set(error, DIBS_INVALID, "min_replicas: a store in memory has no replicas");
    struct memory *memory = calloc(1, sizeof *memory);
    if (!memory || !(memory->space = space_get(config->url + strlen("mem:")))) {
        free(memory);
        return no_memory(error);
    }
    memory->store.ops = &memory_ops;
    memory->clock = config->clock;
    memory->listener = config->listener;
    memory->counters = config->counters;
    *out = &memory->store;
    return DIBS_OK;
}
