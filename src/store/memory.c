/*
 * The thread whose call freed a lock tells the listener of the grant, with no mutex held. The grants on their
 * way are counted in the `pushes` of their user, which is freed only once all of them are delivered. The
 * listener must not call the store, and a mutex that it locks must not be held in a call of finish, conclude or
 * retract.
 */
#include "store/memory.h"

#include <stdlib.h>
#include <string.h>

#include "store/memory_space.h"

struct memory {
    struct dibs__store store;        /* read-only after open */
    struct dibs__space *space;       /* read-only after open */
    const struct dibs__clock *clock; /* read-only after open */
    struct dibs__counters *counters; /* read-only after open; what it points to is atomic */
    struct dibs__space_user user;    /* has its own guards */
    const _Atomic uint64_t *quorum;  /* read-only after open; what it points to is atomic; NULL: no member */
};

/* The state of a lease that was just granted or renewed: 1, and the time. Zero: the store never granted it. */
static struct dibs__lease_store_state confirmed_at(int64_t now)
{
    return (struct dibs__lease_store_state){.words = {1, (uint64_t)now}};
}

static dibs_status no_memory(struct dibs__error *error)
{
    return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a lock");
}

static struct memory *of(struct dibs__store *store)
{
    return (struct memory *)store;
}

/* The name of a lock in the space, where runtimes with different prefixes have different locks. */
struct key {
    char bytes[DIBS__PREFIX_MAX + DIBS_NAME_MAX + 1];
};

static const char *key_of(const struct memory *memory, const char *name, struct key *key)
{
    memcpy(key->bytes, memory->user.prefix, memory->user.prefix_size);
    strcpy(&key->bytes[memory->user.prefix_size], name);
    return key->bytes;
}

static void count_command(struct memory *memory)
{
    atomic_fetch_add_explicit(&memory->counters->commands, 1, memory_order_relaxed);
}

static int64_t again_ms(const struct dibs__space_lock *lock, const struct dibs__attempt *attempt, int64_t now)
{
    int64_t left = dibs__ms_until(dibs__space_first_ends(lock), now), most = attempt->lease_ms / 3;

    left = left < most ? left : most;
    return left > 0 ? left : 1;
}

static bool may_vote(const struct memory *memory, uint32_t lease_ms, int64_t now) DIBS__REQUIRES(dibs__space_mutex)
{
    uint64_t quorum = memory->quorum ? atomic_load(memory->quorum) : 0;

    return !memory->user.is_member || dibs__space_votes(memory->space, lease_ms, quorum, now);
}

/*
 * After dibs__space_serve: whether the lock may now be granted to the attempt that asks. A shared lock may not
 * as long as others wait; at a member of a quorum, as long as the first of them wants it exclusively.
 */
static bool is_next(const struct memory *memory, const struct dibs__space_lock *lock,
                    const struct dibs__attempt *attempt)
{
    const struct dibs__space_waiter *first = lock->first;

    if (dibs__space_is_held(lock) && first && !(memory->user.is_member && dibs__token_limit(first->token) == 0))
        return false;
    return dibs__space_admits(lock, attempt->token);
}

/* --------------------------------------------------------------- operations */

/*
 * They run under the mutex of the space. `state` of the operation is a list of those who were served meanwhile,
 * whom `finish` tells afterwards.
 */

/* Once the mutex is unlocked, another thread may grant the lock to the attempt, so all its fields are set by then. */
static dibs_status ask_for(struct memory *memory, struct dibs__op *op, const struct dibs__ask *ask,
                           struct dibs__error *error) DIBS__REQUIRES(dibs__space_mutex)
{
    struct dibs__attempt *attempt = ask->attempt;
    struct dibs__answer *answer = ask->answer;
    struct dibs__space *space = memory->space;
    int64_t now = dibs__now(memory->clock);

    attempt->number++;
    attempt->proof = now;
    *answer = (struct dibs__answer){0};
    if (!may_vote(memory, attempt->lease_ms, now)) {
        answer->why = DIBS__WHY_NO_VOTE;
        return dibs__error_set(error, DIBS_UNAVAILABLE, "the store in memory may not vote in the quorum now");
    }
    struct dibs__space_lock *lock = dibs__space_find_or_add(space, op->name, now);
    if (!lock)
        return no_memory(error);
    if (!dibs__space_hold_of(lock, attempt->token) && !dibs__space_take_place(&memory->user, lock, attempt)) {
        dibs__space_drop_unused(space, lock);
        return no_memory(error);
    }
    op->state = dibs__space_serve(space, lock, attempt->token, now);
    struct dibs__space_hold *hold = dibs__space_hold_of(lock, attempt->token);
    if (!hold && is_next(memory, lock, attempt) &&
        !(hold = dibs__space_grant(space, lock, attempt->token, attempt->lease_ms, now))) {
        dibs__space_drop_unused(space, lock);
        return no_memory(error);
    }
    if (hold) {
        dibs__space_prolong(hold, attempt->lease_ms, now);
        answer->fence = hold->fence;
        attempt->in_store = true;
        attempt->lease = confirmed_at(now);
        return DIBS_OK;
    }
    attempt->lease = (struct dibs__lease_store_state){.words = {0}};
    answer->again_ms = again_ms(lock, attempt, now);
    attempt->in_store = attempt->in_store || attempt->wait;
    return DIBS_BUSY;
}

static dibs_status ask(struct dibs__store *store, struct dibs__op *op, struct dibs__error *error)
    DIBS__REQUIRES(dibs__space_mutex)
{
    return ask_for(of(store), op, &op->ask, error);
}

static dibs_status release(struct dibs__store *store, struct dibs__op *op, struct dibs__error *error)
    DIBS__REQUIRES(dibs__space_mutex)
{
    struct memory *memory = of(store);
    struct dibs__release *release = &op->release;
    bool asks = release->next.attempt && !memory->user.is_member && !release->quiet;
    struct dibs__error of_next;

    (void)error;
    release->again = false;
    release->next_status = DIBS_BUSY; /* if the next attempt is not asked for here, it must ask at once */
    if (release->next.attempt)
        *release->next.answer = (struct dibs__answer){0};
    bool was_owner = dibs__space_end(memory->space, op->name, release->token, dibs__now(memory->clock));
    if (asks)
        release->next_status = ask_for(memory, op, &release->next, &of_next);
    if (!op->state && !release->quiet)
        op->state = dibs__space_serve_name(memory->space, op->name, dibs__now(memory->clock));
    return was_owner ? DIBS_OK : DIBS_NOT_HELD;
}

static dibs_status vote(struct dibs__store *store, struct dibs__op *op, struct dibs__error *error)
    DIBS__REQUIRES(dibs__space_mutex)
{
    (void)error;
    dibs__space_vote(of(store)->space, op->vote, dibs__now(of(store)->clock));
    return DIBS_OK;
}

/* NULL: nobody holds the lock or waits for it. */
static struct dibs__space_lock *find(const struct memory *memory, const struct dibs__op *op)
    DIBS__REQUIRES(dibs__space_mutex)
{
    return dibs__space_find(memory->space, op->name, dibs__now(memory->clock));
}

static dibs_status raise_fence(struct dibs__store *store, struct dibs__op *op, struct dibs__error *error)
    DIBS__REQUIRES(dibs__space_mutex)
{
    struct dibs__space_lock *lock = find(of(store), op);
    struct dibs__space_hold *hold = lock ? dibs__space_hold_of(lock, op->raise.token) : NULL;

    (void)error;
    if (!hold)
        return DIBS_NOT_HELD;
    dibs__space_raise(of(store)->space, hold, op->raise.fence);
    return DIBS_OK;
}

static dibs_status force(struct dibs__store *store, struct dibs__op *op, struct dibs__error *error)
    DIBS__REQUIRES(dibs__space_mutex)
{
    const struct memory *memory = of(store);
    struct dibs__space_lock *lock = find(memory, op);
    const char *token = op->force.token;
    dibs_status status = DIBS_OK;

    (void)error;
    if (lock && !token)
        dibs__space_end_all(lock);
    else if (lock && dibs__space_is_held(lock) && !dibs__space_end_hold(lock, token))
        status = DIBS_NOT_HELD;
    /* The next fence is above that of the former holder. */
    op->state = dibs__space_serve_name(memory->space, op->name, dibs__now(memory->clock));
    return status;
}

/* A lock that nobody holds or waits for is not stored, and one counter gives the fences of all locks. */
static dibs_status forget(struct dibs__store *store, struct dibs__op *op, struct dibs__error *error)
    DIBS__REQUIRES(dibs__space_mutex)
{
    (void)error;
    return find(of(store), op) ? DIBS_BUSY : DIBS_OK;
}

static dibs_status query(struct dibs__store *store, struct dibs__op *op, struct dibs__error *error)
    DIBS__REQUIRES(dibs__space_mutex)
{
    const struct dibs__space_lock *lock = find(of(store), op);
    int64_t now = dibs__now(of(store)->clock);
    dibs_owner *owner = op->query.owner;

    (void)error;
    if (!lock)
        return DIBS_OK;
    owner->waiters = dibs__space_count_waiters(lock);
    dibs__space_show_waiters(lock, op->query.waiters);
    dibs__space_show_sharers(lock, op->query.sharers, now);
    if (!dibs__space_is_held(lock))
        return DIBS_OK;
    const struct dibs__space_hold *newest = lock->holds;
    owner->held = true;
    owner->remaining_ms = dibs__ms_until(dibs__space_ends(lock), now);
    owner->held_ms = (now - newest->granted) / DIBS__NS_PER_MS;
    owner->fence = newest->fence;
    owner->sharers = dibs__token_limit(newest->token) >= 0 ? lock->hold_count : 0;
    memcpy(owner->token, newest->token, sizeof owner->token);
    return DIBS_OK;
}

static const struct dibs__op_row rows[DIBS__OP_KINDS] = {
    [DIBS__OP_ASK] = {NULL, ask},           [DIBS__OP_RELEASE] = {NULL, release}, [DIBS__OP_QUERY] = {NULL, query},
    [DIBS__OP_FORCE] = {NULL, force},       [DIBS__OP_FORGET] = {NULL, forget},   [DIBS__OP_VOTE] = {NULL, vote},
    [DIBS__OP_RAISE] = {NULL, raise_fence},
};

/* There is nothing to wait for, so finish does everything. Meanwhile the name of the operation is that in the space. */
static enum dibs__progress progress(struct dibs__store *store, const struct dibs__op *op, struct dibs__wait *wait)
{
    (void)store, (void)op, (void)wait;
    return DIBS__OP_IMMEDIATE;
}

static dibs_status finish(struct dibs__store *store, struct dibs__op *op, struct dibs__error *error)
{
    struct memory *memory = of(store);
    const char *name = op->name;
    struct key key;

    count_command(memory);
    op->name = key_of(memory, name ? name : "", &key); // cppcheck-suppress autoVariables ; the name is put back
    dibs__space_mutex_lock(&memory->space->mutex);
    dibs_status status = dibs__rows_finish(store, op, error);
    dibs__space_mutex_unlock(&memory->space->mutex);
    struct dibs__space_waiter *served = op->state;
    op->state = NULL;
    dibs__space_push(memory->space, memory->clock, op->name, served);
    op->name = name;
    return status;
}

/* ----------------------------------------------------------------- the rest */

static void retract(struct dibs__store *store, const char *name, const char *token, uint32_t lease_ms, uint64_t fence)
{
    struct dibs__error unused;

    (void)lease_ms, (void)fence;
    finish(store, &(struct dibs__op){.kind = DIBS__OP_RELEASE, .name = name, .release = {.token = token}}, &unused);
}

static void conclude(struct dibs__store *store, struct dibs__attempt *attempt, bool held)
{
    if (!held && attempt->in_store)
        retract(store, attempt->name, attempt->token, attempt->lease_ms, 0);
    attempt->in_store = false;
    if (!held)
        dibs__attempt_clear(attempt);
}

static dibs_status walk_names(struct dibs__store *store, const struct dibs__walk *walk, struct dibs__error *error)
{
    struct memory *memory = of(store);

    if (!walk->goes_on(walk->context))
        return dibs__error_set(error, DIBS_CLOSED, "the runtime is closing");
    count_command(memory);
    dibs__space_mutex_lock(&memory->space->mutex);
    bool good = dibs__space_walk(memory->space, &memory->user, walk, dibs__now(memory->clock));
    dibs__space_mutex_unlock(&memory->space->mutex);
    return good ? DIBS_OK : dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a list of locks");
}

static dibs_status examine(struct dibs__store *store, struct dibs__examination *examination, struct dibs__error *error)
{
    (void)error;
    count_command(of(store));
    examination->reached = true;
    examination->clock_known = false;
    examination->server = 0;
    dibs__found(examination, "mem:", "connection", DIBS_VERDICT_OK, "",
                "The store is inside this process. No other process sees its locks, and they end with the process.");
    return DIBS_OK;
}

/*
 * Grants the lock to the token, beside those who share it, if the store may vote, unless the token had the lock and
 * its lease can't be over: then somebody took the lock away. NULL: not granted, or no memory.
 */
static struct dibs__space_hold *top_up(struct memory *memory, const char *key, struct dibs__renewal *renewal,
                                       int64_t now) DIBS__REQUIRES(dibs__space_mutex)
{
    const uint64_t *granted = renewal->store_state.words;

    renewal->was_anothers = granted[0] != 0 && now < dibs__after_ms((int64_t)granted[1], renewal->lease_ms);
    if (renewal->was_anothers || !may_vote(memory, renewal->lease_ms, now))
        return NULL;
    struct dibs__space_lock *lock = dibs__space_find_or_add(memory->space, key, now);
    struct dibs__space_hold *hold =
        lock ? dibs__space_grant(memory->space, lock, renewal->token, renewal->lease_ms, now) : NULL;
    if (!hold)
        return NULL;
    hold->fence = 0;
    dibs__space_raise(memory->space, hold, renewal->fence);
    return hold;
}

static void renew_one(struct memory *memory, struct dibs__renewal *renewal) DIBS__REQUIRES(dibs__space_mutex)
{
    int64_t now = dibs__now(memory->clock);
    struct key key;
    struct dibs__space_lock *lock = dibs__space_find(memory->space, key_of(memory, renewal->name, &key), now);
    struct dibs__space_hold *hold = lock ? dibs__space_hold_of(lock, renewal->token) : NULL;

    renewal->result = DIBS__GONE;
    renewal->was_anothers = false;
    if (renewal->top_up && !hold && (!lock || dibs__space_admits(lock, renewal->token)))
        hold = top_up(memory, key.bytes, renewal, now);
    if (!hold)
        return;
    if (renewal->extension)
        hold->expires = dibs__after_ms(now, renewal->lease_ms);
    else
        dibs__space_prolong(hold, renewal->lease_ms, now);
    renewal->result = DIBS__RENEWED;
    renewal->store_state = confirmed_at(now);
}

static void renew(struct dibs__store *store, struct dibs__batch *batch)
{
    struct memory *memory = of(store);
    const struct dibs__error none = {DIBS_OK, ""};

    count_command(memory);
    batch->proof = dibs__now(memory->clock);
    dibs__space_mutex_lock(&memory->space->mutex);
    for (size_t i = 0; i < batch->count; i++)
        renew_one(memory, &batch->items[i]);
    dibs__space_mutex_unlock(&memory->space->mutex);
    batch->done(batch, &none);
}

static bool is_unconfirmed(struct dibs__store *store, const struct dibs__lease_store_state *lease)
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

static void close_memory(struct dibs__store *store)
{
    struct memory *memory = of(store);

    dibs__space_leave(memory->space, &memory->user);
    dibs__space_put(memory->space);
    free(memory);
}

static dibs_status connect_nothing(struct dibs__store *store, bool wait, struct dibs__error *error)
{
    (void)store, (void)wait, (void)error;
    return DIBS_OK;
}

static const struct dibs__store_ops memory_ops = {
    .connect = connect_nothing,
    .begin = dibs__rows_begin,
    .rows = rows,
    .progress = progress,
    .finish = finish,
    .conclude = conclude,
    .walk = walk_names,
    .examine = examine,
    .retract = retract,
    .renew = renew,
    .is_unconfirmed = is_unconfirmed,
    .interest = interest,
    .attend = attend,
    .close = close_memory,
};

dibs_status dibs__memory_open(struct dibs__store **out, const struct dibs__store_config *config,
                              struct dibs__error *error)
{
    if (config->min_replicas > 0)
        return dibs__error_set(error, DIBS_INVALID, "min_replicas: a store in memory has no replicas");
    if (config->durable)
        return dibs__error_set(error, DIBS_INVALID, "durable: a store in memory has no disk");
    struct memory *memory = calloc(1, sizeof *memory);
    if (!memory || !(memory->space = dibs__space_get(config->url + strlen("mem:")))) {
        free(memory);
        return no_memory(error);
    }
    memory->store.ops = &memory_ops;
    memory->clock = config->clock;
    memory->user.listener = config->listener;
    memory->user.prefix = config->key_prefix ? config->key_prefix : "";
    memory->user.prefix_size = strlen(memory->user.prefix);
    memory->user.is_member = config->is_member;
    memory->quorum = config->quorum;
    memory->counters = config->counters;
    *out = &memory->store;
    return DIBS_OK;
}
