/*
 * Locks a name again that this process gave up a moment ago, by plain commands.
 *
 * acquire.lua makes a fence that is larger than all before, which costs the server twice as much as SET NX. The process
 * that was granted the lock last needs no new fence: as long as F is what that grant left, nobody has been granted the
 * lock since, and the next of the 1,024 steps of that fence is larger than all before. So one write asks three things:
 * does nobody wait (EXISTS Q)? Is the lock free (SET K NX PX)? If so, it is taken. Was nobody granted it since (GET F)?
 * The lock is granted if all three are true. If one is not, everything is left as it was, except K, which requeue.lua
 * gives back to whoever waits, and asks for with a new fence (rule 70 of PROTOCOL.md). A sharer that was the only one
 * does the same.
 */
#include <string.h>

#include "base/text.h"
#include "store/redis/redis_store.h"

/* The bits of `before` of struct dibs__exchange: the commands before GET. */
#define TOOK 1u   /* SET K NX PX */
#define QUEUED 2u /* EXISTS Q */

dibs_status dibs__sending_relock(struct dibs__redis_store *store, struct dibs__sending *sending,
                                 struct dibs__lock_call *call, struct dibs__error *error)
{
    const struct dibs__attempt *attempt = sending->attempt;
    const struct dibs__key *keys = call->keys;
    char lease[24];
    const char *const exists[] = {"EXISTS", keys[DIBS__KEY_QUEUE].bytes, NULL};
    const char *const set[] = {"SET", keys[DIBS__KEY_LOCK].bytes, attempt->token, "NX", "PX", lease, NULL};
    const char *const get[] = {"GET", keys[DIBS__KEY_FENCE].bytes, NULL};
    const struct dibs__command before[] = {{.words = exists}, {.words = set}};
    const struct dibs__command command = {.words = get, .before = before, .before_count = 2};

    *dibs__put_number(lease, attempt->lease_ms, 10) = '\0';
    dibs__redis_attempt_of(sending->attempt)->may_lack_fence = true;
    return dibs__lock_call_send(store, call, &command, error);
}

static bool says(const redisReply *reply, uint64_t fence)
{
    char text[24];
    size_t size = (size_t)(dibs__put_number(text, fence, 10) - text);

    return reply->type == REDIS_REPLY_STRING && reply->len == size && memcmp(reply->str, text, size) == 0;
}

dibs_status dibs__sending_read_relock(struct dibs__redis_store *store, const struct dibs__sending *sending,
                                      const struct dibs__exchange *exchange, bool *decided, struct dibs__answer *answer)
{
    struct dibs__attempt *attempt = sending->attempt;
    bool took = exchange->before & TOOK, may_queue = exchange->before & (QUEUED | DIBS__BEFORE_REFUSED);

    attempt->in_store = took;
    *decided = took && !may_queue && says(exchange->reply, sending->relock.fence);
    if (!*decided)
        return dibs__error_set(exchange->error, DIBS_UNAVAILABLE, "%s: the lock was wanted elsewhere",
                               store->endpoint.url.shown);
    dibs__redis_attempt_of(attempt)->may_lack_fence = false;
    answer->fence = sending->relock.fence;
    answer->step = sending->relock.step;
    return DIBS_OK;
}
