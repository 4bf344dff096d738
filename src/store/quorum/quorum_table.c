/* The table of locks, by token. Lock discipline: quorum_parts.h. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "store/quorum/quorum_parts.h"

#define BUCKETS_FIRST 64

static struct dibs__quorum_lock **bucket_of(struct dibs__quorum *q, uint64_t hash) DIBS__REQUIRES(dibs__quorum_mutex)
{
    return &q->buckets[hash & (q->bucket_count - 1)];
}

/* Where memory is out, the buckets stay as they are. */
static void grow(struct dibs__quorum *q) DIBS__REQUIRES(dibs__quorum_mutex)
{
    size_t count = q->bucket_count ? 2 * q->bucket_count : BUCKETS_FIRST;
    struct dibs__quorum_lock **old = q->buckets, **buckets = calloc(count, sizeof *buckets);
    size_t old_count = q->bucket_count;

    if (!buckets)
        return;
    q->buckets = buckets;
    q->bucket_count = count;
    for (size_t i = 0; i < old_count; i++)
        for (struct dibs__quorum_lock *lock = old[i], *next; lock; lock = next) {
            next = lock->next;
            struct dibs__quorum_lock **bucket = bucket_of(q, lock->hash);
            lock->next = *bucket;
            *bucket = lock;
        }
    free(old);
}

/* False: no memory. */
static bool put(struct dibs__quorum *q, struct dibs__quorum_lock *lock)
{
    dibs__quorum_mutex_lock(&q->mutex);
    if (q->lock_count >= q->bucket_count)
        grow(q);
    bool can = q->bucket_count > 0;
    if (can) {
        struct dibs__quorum_lock **bucket = bucket_of(q, lock->hash);
        lock->next = *bucket;
        *bucket = lock;
        lock->references = 1;
        q->lock_count++;
    }
    dibs__quorum_mutex_unlock(&q->mutex);
    return can;
}

struct dibs__quorum_lock *dibs__quorum_lock_new(struct dibs__quorum *q, const char *name, const char *token,
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
    lock->hash = dibs__hash(token, token_size - 1);
    lock->lease_ms = lease_ms;
    if (put(q, lock))
        return lock;
    free(lock);
    return NULL;
}

struct dibs__quorum_lock *dibs__quorum_lock_find(struct dibs__quorum *q, const char *token)
{
    uint64_t hash = dibs__hash(token, strlen(token));
    struct dibs__quorum_lock *lock = NULL;

    dibs__quorum_mutex_lock(&q->mutex);
    if (q->bucket_count > 0)
        lock = *bucket_of(q, hash);
    while (lock && (lock->hash != hash || strcmp(lock->token, token) != 0))
        lock = lock->next;
    if (lock)
        lock->references++;
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
    lock->ops = ops; /* only the thread that asks or releases makes them */
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
    struct dibs__quorum_lock **at = bucket_of(q, lock->hash);
    while (*at != lock)
        at = &(*at)->next;
    *at = lock->next;
    q->lock_count--;
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
    for (size_t i = 0; i < q->bucket_count; i++)
        for (struct dibs__quorum_lock *lock = q->buckets[i], *next; lock; lock = next) {
            next = lock->next;
            free(lock->ops);
            free(lock);
        }
    free(q->buckets);
    q->buckets = NULL;
    dibs__quorum_mutex_unlock(&q->mutex);
}
