/*
 * Lock discipline: a space has two mutexes. `mutex` guards its locks and is a
 * leaf. `listeners_mutex` guards the list of runtimes that use the space; it is
 * held while they are told (what they lock then comes after it), and `mutex` is
 * not held then. `named_mutex` guards the list of named spaces and comes before
 * neither: it is held across a fork, so that the child finds the list whole.
 */
#include "store/memory.h"

#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct lock { /* guarded by the space's mutex */
    int64_t expires;
    uint64_t fence;
    char token[DIBS__TOKEN_MAX];
    char name[];
};

struct space {
    pthread_mutex_t mutex;
    void *locks;         /* guarded by mutex; a tree of struct lock by name */
    uint64_t last_fence; /* guarded by mutex */
    pthread_mutex_t listeners_mutex;
    struct memory *users; /* guarded by listeners_mutex */
    struct space *next;   /* guarded by named_mutex, as are these two */
    unsigned references;
    char *name; /* NULL: private */
};

struct memory {
    struct dibs__store store;
    struct space *space; /* these are read-only after open */
    const struct dibs__clock *clock;
    struct dibs__listener listener;
    struct dibs__counters *counters;
    struct memory *next; /* guarded by space->listeners_mutex */
};

static pthread_mutex_t named_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct space *named_spaces; /* guarded by named_mutex */

/* ------------------------------------------------------------------- spaces */

static void before_fork(void)
{
    pthread_mutex_lock(&named_mutex);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&named_mutex);
}

static void after_fork_in_child(void)
{
    named_spaces = NULL; /* the locks in them are the parent's threads' */
    pthread_mutex_unlock(&named_mutex);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

void dibs__memory_watch_forks(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, watch_forks);
}

static struct space *space_new(const char *name)
{
    struct space *space = calloc(1, sizeof *space);

    if (!space)
        return NULL;
    if (*name && !(space->name = strdup(name))) {
        free(space);
        return NULL;
    }
    space->references = 1;
    pthread_mutex_init(&space->mutex, NULL);
    pthread_mutex_init(&space->listeners_mutex, NULL);
    return space;
}

/* The space of that name, a new one where there is none or the name is "". NULL: no memory. */
static struct space *space_get(const char *name)
{
    struct space *space = NULL;

    dibs__memory_watch_forks();
    pthread_mutex_lock(&named_mutex);
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
    pthread_mutex_unlock(&named_mutex);
    return space;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct lock *)a)->name, ((const struct lock *)b)->name);
}

static void space_free(struct space *space)
{
    while (space->locks) {
        struct lock *lock = *(struct lock **)space->locks;
        tdelete(lock, &space->locks, compare_names);
        free(lock);
    }
    pthread_mutex_destroy(&space->listeners_mutex);
    pthread_mutex_destroy(&space->mutex);
    free(space->name);
    free(space);
}

static void space_put(struct space *space)
{
    pthread_mutex_lock(&named_mutex);
    bool last = --space->references == 0;
    for (struct space **at = &named_spaces; last && *at; at = &(*at)->next) {
        if (*at == space) {
            *at = space->next;
            break;
        }
    }
    pthread_mutex_unlock(&named_mutex);
    if (last)
        space_free(space);
}

/* -------------------------------------------------------------------- locks */

static struct lock *lock_new(const char *name)
{
    size_t size = strlen(name) + 1;
    struct lock *lock = calloc(1, sizeof *lock + size);

    if (lock)
        memcpy(lock->name, name, size);
    return lock;
}

static void remove_lock(struct space *space, struct lock *lock)
{
    tdelete(lock, &space->locks, compare_names);
    free(lock);
}

/* Requires space->mutex. The lock of name that is held now, or NULL. *probe: of that name, from lock_new. */
static struct lock *find(const struct memory *memory, const struct lock *probe)
{
    void *node = tfind(probe, &memory->space->locks, compare_names);
    struct lock *lock = node ? *(struct lock **)node : NULL;

    if (lock && lock->expires <= dibs__now(memory->clock)) {
        remove_lock(memory->space, lock);
        return NULL;
    }
    return lock;
}

static dibs_status no_memory(struct dibs__error *error)
{
    return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a lock");
}

static void count_command(struct memory *memory)
{
    atomic_fetch_add_explicit(&memory->counters->commands, 1, memory_order_relaxed);
    atomic_store_explicit(&memory->counters->heard, dibs__now(memory->clock), memory_order_relaxed);
}

/* Requires space->mutex. As in Redis: microseconds, or one more than the last. */
static uint64_t next_fence(struct space *space)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    uint64_t now = (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
    space->last_fence = now > space->last_fence ? now : space->last_fence + 1;
    return space->last_fence;
}

/* Not under any mutex. Tells all who use the space that name may be free. */
static void tell(struct space *space, const char *name)
{
    pthread_mutex_lock(&space->listeners_mutex);
    for (struct memory *user = space->users; user; user = user->next)
        user->listener.maybe_free(user->listener.context, name);
    pthread_mutex_unlock(&space->listeners_mutex);
}

/* ------------------------------------------------------------- the contract */

static struct memory *of(struct dibs__store *store)
{
    return (struct memory *)store;
}

/* Requires space->mutex. Takes over `lock` where it says so with DIBS_OK. */
static dibs_status grant(struct memory *memory, struct lock *lock, const struct dibs__ask *ask,
                         struct dibs__answer *answer, struct dibs__error *error)
{
    struct lock *held = find(memory, lock);
    int64_t now = dibs__now(memory->clock);

    if (held) {
        answer->again_ms = dibs__ms_until(held->expires, now);
        return DIBS_BUSY;
    }
    if (!tsearch(lock, &memory->space->locks, compare_names))
        return no_memory(error);
    lock->expires = dibs__after_ms(now, ask->lease_ms);
    lock->fence = next_fence(memory->space);
    snprintf(lock->token, sizeof lock->token, "%s", ask->token);
    answer->proof = now;
    answer->fence = lock->fence;
    return DIBS_OK;
}

static dibs_status acquire(struct dibs__store *store, const struct dibs__ask *ask, struct dibs__answer *answer,
                           struct dibs__error *error)
{
    struct memory *memory = of(store);
    struct lock *lock = lock_new(ask->name);

    if (!lock)
        return no_memory(error);
    count_command(memory);
    pthread_mutex_lock(&memory->space->mutex);
    dibs_status status = grant(memory, lock, ask, answer, error);
    pthread_mutex_unlock(&memory->space->mutex);
    if (status != DIBS_OK)
        free(lock);
    return status;
}

/* Removes the lock of name if `token` holds it, or anybody where that is NULL. DIBS_BUSY: another token does. */
static dibs_status take_away(struct memory *memory, const char *name, const char *token, bool *was_held,
                             struct dibs__error *error)
{
    struct lock *probe = lock_new(name);
    dibs_status status = DIBS_OK;

    *was_held = false;
    if (!probe)
        return no_memory(error);
    count_command(memory);
    pthread_mutex_lock(&memory->space->mutex);
    struct lock *lock = find(memory, probe);
    if (lock && token && strcmp(lock->token, token) != 0) {
        status = DIBS_BUSY;
    } else if (lock) {
        remove_lock(memory->space, lock);
        *was_held = true;
    }
    pthread_mutex_unlock(&memory->space->mutex);
    free(probe);
    if (*was_held)
        tell(memory->space, name);
    return status;
}

static dibs_status release(struct dibs__store *store, const char *name, const char *token, int64_t deadline,
                           bool *again, struct dibs__error *error)
{
    bool was_held;
    dibs_status status = take_away(of(store), name, token, &was_held, error);

    (void)deadline;
    *again = false;
    if (status == DIBS_NO_MEMORY)
        return status;
    return was_held ? DIBS_OK : DIBS_NOT_HELD;
}

static void retract(struct dibs__store *store, const char *name, const char *token)
{
    struct dibs__error unused;
    bool was_held;

    take_away(of(store), name, token, &was_held, &unused);
}

static dibs_status force_unlock(struct dibs__store *store, const char *name, const char *token, int64_t deadline,
                                struct dibs__error *error)
{
    bool was_held;
    dibs_status status = take_away(of(store), name, token, &was_held, error);

    (void)deadline;
    return status == DIBS_BUSY ? DIBS_NOT_HELD : status;
}

static dibs_status query(struct dibs__store *store, const char *name, int64_t deadline, dibs_owner *owner,
                         struct dibs__error *error)
{
    struct memory *memory = of(store);
    struct lock *probe = lock_new(name);

    (void)deadline;
    if (!probe)
        return no_memory(error);
    count_command(memory);
    pthread_mutex_lock(&memory->space->mutex);
    struct lock *lock = find(memory, probe);
    if (lock) {
        owner->held = true;
        owner->remaining_ms = dibs__ms_until(lock->expires, dibs__now(memory->clock));
        owner->fence = lock->fence;
        memcpy(owner->token, lock->token, sizeof owner->token);
    }
    pthread_mutex_unlock(&memory->space->mutex);
    free(probe);
    return DIBS_OK;
}

static void renew_one(struct memory *memory, struct dibs__renewal *renewal)
{
    struct lock *probe = lock_new(renewal->name);

    renewal->result = DIBS__UNANSWERED;
    if (!probe)
        return;
    pthread_mutex_lock(&memory->space->mutex);
    struct lock *lock = find(memory, probe);
    renewal->result = DIBS__GONE;
    if (lock && strcmp(lock->token, renewal->token) == 0) {
        int64_t expires = dibs__after_ms(dibs__now(memory->clock), renewal->lease_ms);
        if (renewal->extension || expires > lock->expires)
            lock->expires = expires;
        renewal->result = DIBS__RENEWED;
    }
    pthread_mutex_unlock(&memory->space->mutex);
    free(probe);
}

static void renew(struct dibs__store *store, struct dibs__batch *batch)
{
    struct memory *memory = of(store);
    struct dibs__error error = {DIBS_NO_MEMORY, "no memory for a lock"};

    count_command(memory);
    batch->proof = dibs__now(memory->clock);
    for (size_t i = 0; i < batch->count; i++)
        renew_one(memory, &batch->items[i]);
    batch->done(batch, &error);
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

static void close_memory(struct dibs__store *store)
{
    struct memory *memory = of(store);

    pthread_mutex_lock(&memory->space->listeners_mutex);
    for (struct memory **at = &memory->space->users; *at; at = &(*at)->next) {
        if (*at == memory) {
            *at = memory->next;
            break;
        }
    }
    pthread_mutex_unlock(&memory->space->listeners_mutex);
    space_put(memory->space);
    free(memory);
}

static const struct dibs__store_ops memory_ops = {
    .acquire = acquire,
    .release = release,
    .retract = retract,
    .query = query,
    .force_unlock = force_unlock,
    .renew = renew,
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
    pthread_mutex_lock(&memory->space->listeners_mutex);
    memory->next = memory->space->users;
    memory->space->users = memory;
    pthread_mutex_unlock(&memory->space->listeners_mutex);
    *out = &memory->store;
    return DIBS_OK;
}
