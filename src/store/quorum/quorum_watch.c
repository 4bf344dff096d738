/*
 * Changes of locks. Each member that can tell of changes watches, and what one of
 * them tells has the lease renewed at all: that renewal finds out whether a
 * majority is left. So a loss is known as soon as the last master that is needed
 * for it has told. Lock discipline: quorum_parts.h.
 */
#include <stdlib.h>

#include "store/quorum/quorum_parts.h"

/* The caller's batch. The scheduler thread's. */
struct watching {
    struct dibs__quorum *quorum;
    struct dibs__batch *batch;
    size_t out; /* looks that have not ended; and 1 more while further ones may begin */
};

/* The look of one member. */
struct look {
    struct dibs__batch batch; /* the first member: what is done is freed by it. Copies of the items */
    struct watching *watching;
    struct dibs__member *member;
};

static void end_one(struct watching *watching)
{
    static const struct dibs__error none = {DIBS_OK, ""};

    if (--watching->out > 0)
        return;
    watching->batch->done(watching->batch, &none);
    free(watching);
}

/* Whether the member counts for the lease: elsewhere the lock may well be another's. */
static bool has_granted(const struct dibs__member *member, const char *token)
{
    struct dibs__quorum *q = member->quorum;
    struct dibs__quorum_lock *lock = dibs__quorum_lock_find(q, token);

    if (!lock)
        return false;
    dibs__quorum_mutex_lock(&q->mutex);
    bool granted = lock->states[member->index].phase == DIBS__MEMBER_GRANTED;
    dibs__quorum_mutex_unlock(&q->mutex);
    dibs__quorum_lock_unref(q, lock);
    return granted;
}

/* One member that lost the lock is reason enough for a renewal. */
static void look_done(struct dibs__batch *batch, const struct dibs__error *error)
{
    struct look *look = (struct look *)batch;

    (void)error;
    for (size_t i = 0; i < batch->count; i++) {
        struct dibs__renewal *item = &look->watching->batch->items[i];
        enum dibs__renewed said = batch->items[i].result;
        if (said == DIBS__GONE && has_granted(look->member, item->token))
            item->result = DIBS__GONE;
        else if (said == DIBS__WATCHED && item->result == DIBS__UNANSWERED)
            item->result = DIBS__WATCHED;
    }
    end_one(look->watching);
    free(look);
}

/* Where memory is out, the member is not asked: the others are. */
static void begin_look(struct watching *watching, struct dibs__member *member)
{
    struct look *look = member->store->watches ? malloc(sizeof *look) : NULL;

    if (!look)
        return;
    look->batch.watch = true;
    look->batch.count = watching->batch->count;
    look->batch.done = look_done;
    look->batch.landed = NULL;
    look->watching = watching;
    look->member = member;
    for (size_t i = 0; i < look->batch.count; i++)
        look->batch.items[i] = watching->batch->items[i];
    watching->out++;
    member->store->ops->renew(member->store, &look->batch);
}

void dibs__quorum_watch(struct dibs__store *base, struct dibs__batch *batch)
{
    struct dibs__quorum *q = dibs__quorum_of(base);
    struct watching *watching = malloc(sizeof *watching);
    struct dibs__error error;

    for (size_t i = 0; i < batch->count; i++)
        batch->items[i].result = DIBS__UNANSWERED;
    if (!watching) {
        batch->done(batch, (dibs__quorum_no_memory(&error), &error));
        return;
    }
    *watching = (struct watching){q, batch, 1};
    for (size_t i = 0; i < q->count; i++)
        begin_look(watching, &q->members[i]);
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): each look is freed when its member has done it */
    end_one(watching);
}
