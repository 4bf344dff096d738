/* The table of locks, by token. Lock discipline: quorum_parts.h. */
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "store/quorum/quorum_parts.h"

static int compare_tokens(const void *one, const void *other)
{
    return strcmp(((const struct dibs__quorum_lock *)one)->token, ((const struct dibs__quorum_lock *)other)->token);
}

/* The lock is in no table, and has no reference. NULL: no memory. */
static struct dibs__quorum_lock *new_lock(const struct dibs__quorum *q, const char *name, const char *token,
                                          uint32_t lease_ms)
{
    size_t name_size = strlen(name) + 1, token_size = strlen(token) + 1;
    size_t members = q->count * sizeof(struct dibs__member_state);
    struct dibs__quorum_lock *lock = calloc(1, sizeof *lock + members + name_size + token_size);

    if (!lock)
        return NULL;
    char *text = (char *)lock + sizeof *lock + members;
    lock->name = memcpy(text, name, name_size);
    lock->token = memcpy(text + name_size, token, token_size);
    lock->lease_ms = lease_ms;
    return lock;
}

struct dibs__quorum_lock *dibs__quorum_lock_new(struct dibs__quorum *q, const struct dibs__attempt *attempt)
{
    struct dibs__quorum_lock *lock = new_lock(q, attempt->name, attempt->token, attempt->lease_ms);

    if (!lock)
        return NULL;
    dibs__quorum_mutex_lock(&q->mutex);
    lock->references = 1;
    struct dibs__quorum_lock **node = tsearch(lock, &q->locks, compare_tokens);
    DIBS__REQUIRE(!node || *node == lock);
    dibs__quorum_mutex_unlock(&q->mutex);
    if (node)
        return lock;
    free(lock);
    return NULL;
}

struct dibs__quorum_lock *dibs__quorum_lock_find(struct dibs__quorum *q, const char *token)
{
    const struct dibs__quorum_lock key = {.token = token};

    dibs__quorum_mutex_lock(&q->mutex);
    struct dibs__quorum_lock **node = tfind(&key, &q->locks, compare_tokens), *lock = node ? *node : NULL;
    if (lock)
        lock->references++;
    dibs__quorum_mutex_unlock(&q->mutex);
    return lock;
}

struct dibs__quorum_lock *dibs__quorum_lock_of_token(struct dibs__quorum *q, const char *name, const char *token,
                                                     uint32_t lease_ms)
{
    struct dibs__quorum_lock *lock = dibs__quorum_lock_find(q, token);

    if (lock || !(lock = new_lock(q, name, token, lease_ms)))
        return lock;
    dibs__quorum_mutex_lock(&q->mutex);
    lock->references = 1;
    lock->state = DIBS__QUORUM_LOCK_ENDED;
    for (size_t i = 0; i < q->count; i++)
        lock->states[i].phase = DIBS__MEMBER_GRANTED;
    dibs__quorum_mutex_unlock(&q->mutex);
    return lock;
}

bool dibs__quorum_lock_make_ops(struct dibs__quorum *q, struct dibs__quorum_lock *lock)
{
    struct dibs__pending_op *ops = NULL;

    dibs__quorum_mutex_lock(&q->mutex);
    bool has = lock->ops != NULL;
    dibs__quorum_mutex_unlock(&q->mutex);
    if (has)
        return true;
    if (!(ops = calloc(q->count, sizeof *ops)))
        return false;
    for (size_t i = 0; i < q->count; i++) {
        ops[i].member = &q->members[i];
        ops[i].lock = lock;
        ops[i].attempt.name = lock->name;
        ops[i].attempt.token = lock->token;
        ops[i].attempt.hint = true;
    }
    dibs__quorum_mutex_lock(&q->mutex);
    lock->ops = ops; /* no other thread does: only the one that asks or releases */
    dibs__quorum_mutex_unlock(&q->mutex);
    return true;
}

void dibs__quorum_lock_use(struct dibs__quorum *q, struct dibs__quorum_lock *lock)
{
    dibs__quorum_mutex_lock(&q->mutex);
    lock->users++;
    dibs__quorum_mutex_unlock(&q->mutex);
}

void dibs__quorum_lock_leave(struct dibs__quorum *q, struct dibs__quorum_lock *lock)
{
    struct dibs__pending_op *ops = NULL;

    dibs__quorum_mutex_lock(&q->mutex);
    DIBS__REQUIRE(lock->users > 0);
    bool needed = --lock->users > 0 || lock->state == DIBS__QUORUM_LOCK_ASKED;
    for (size_t i = 0; i < q->count && !needed; i++)
        needed = lock->states[i].has_attempt || (lock->ops && lock->ops[i].detached);
    if (!needed) {
        ops = lock->ops;
        lock->ops = NULL;
    }
    dibs__quorum_mutex_unlock(&q->mutex);
    free(ops);
}

bool dibs__quorum_lock_end(struct dibs__quorum *q, struct dibs__quorum_lock *lock)
{
    if (lock->state == DIBS__QUORUM_LOCK_ENDED)
        return false;
    lock->state = DIBS__QUORUM_LOCK_ENDED;
    tdelete(lock, &q->locks, compare_tokens);
    return true;
}

void dibs__quorum_lock_unref(struct dibs__quorum *q, struct dibs__quorum_lock *lock)
{
    dibs__quorum_mutex_lock(&q->mutex);
    DIBS__REQUIRE(lock->references > 0);
    bool last = --lock->references == 0;
    struct dibs__pending_op *ops = last ? lock->ops : NULL;
    dibs__quorum_mutex_unlock(&q->mutex);
    if (!last)
        return;
    free(ops);
    free(lock);
}

void dibs__quorum_locks_free(struct dibs__quorum *q)
{
    dibs__quorum_mutex_lock(&q->mutex);
    while (q->locks) {
        struct dibs__quorum_lock *lock = *(struct dibs__quorum_lock **)q->locks;
        tdelete(lock, &q->locks, compare_tokens);
        free(lock->ops);
        free(lock);
    }
    dibs__quorum_mutex_unlock(&q->mutex);
}
