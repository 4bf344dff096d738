#include "store/redis/relock.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/text.h"
#include "store/redis/redis_store.h"

#define SETS 256 /* of two names each: 20 KiB */
#define WAYS 2

/* The commands before GET, in struct dibs__exchange. */
#define TOOK 1u   /* SET K NX PX */
#define QUEUED 2u /* EXISTS Q */

/*
 * So long after the grant its fence may be used again. F lives for an hour at least, dibs_query tells how long a lock
 * has been held by its fence, and a server whose data is taken back without a new connection has to become a replica
 * and a master again in that time.
 */
#define MOST (20 * DIBS__NS_PER_MS)

struct given_up {
    uint64_t hash; /* of the name */
    uint64_t server;
    int64_t granted_at;
    struct dibs__relock relock; /* fence 0: empty */
};

struct dibs__relocks {
    struct given_up names[SETS][WAYS];
};

void dibs__relocks_free(struct dibs__relocks *relocks)
{
    free(relocks);
}

/* Where the name is; else where it is to be: in place of the older fence. */
static struct given_up *find(struct dibs__relocks *relocks, uint64_t hash)
{
    struct given_up *set = relocks->names[hash % SETS];

    for (size_t i = 0; i < WAYS; i++)
        if (set[i].relock.fence && set[i].hash == hash)
            return &set[i];
    return set[0].relock.fence <= set[1].relock.fence ? &set[0] : &set[1];
}

static bool is_of(const struct given_up *found, uint64_t hash, uint64_t server)
{
    return found->relock.fence && found->hash == hash && found->server == server;
}

/* What was used again has the time of its grant here. Where that was lost, it is too old. */
void dibs__relocks_note(struct dibs__relocks **relocks, const char *name, uint64_t server, struct dibs__relock relock,
                        int64_t granted_at)
{
    uint64_t hash = dibs__hash(name, strlen(name));

    DIBS__REQUIRE(relock.fence && relock.step);
    if (!*relocks)
        *relocks = calloc(1, sizeof **relocks);
    if (!*relocks)
        return;
    struct given_up *found = find(*relocks, hash);
    if (is_of(found, hash, server) && found->relock.fence == relock.fence)
        found->relock.step = relock.step;
    else if (relock.step == 1)
        *found = (struct given_up){hash, server, granted_at, relock};
}

struct dibs__relock dibs__relocks_take(struct dibs__relocks *relocks, const char *name, uint64_t server, int64_t now)
{
    uint64_t hash = dibs__hash(name, strlen(name));
    struct given_up *found = relocks ? find(relocks, hash) : NULL;

    if (!found || !is_of(found, hash, server) || !found->relock.step || now - found->granted_at > MOST)
        return (struct dibs__relock){.fence = 0};
    struct dibs__relock relock = found->relock;
    found->relock.step = 0;
    return relock;
}

/* -------------------------------------------------------------- the commands */

static struct dibs__command command_of(int count, const char *const *words, const size_t *sizes)
{
    return (struct dibs__command){.count = count, .words = words, .sizes = sizes};
}

dibs_status dibs__sending_relock(struct dibs__redis_store *store, struct dibs__sending *sending,
                                 struct dibs__lock_call *call, int64_t deadline, struct dibs__error *error)
{
    const struct dibs__attempt *attempt = sending->attempt;
    const struct dibs__key *keys = call->keys;
    char lease[24];
    const size_t lease_size = (size_t)(dibs__put_number(lease, attempt->lease_ms, 10) - lease);
    const char *const exists[] = {"EXISTS", keys[DIBS__KEY_QUEUE].bytes};
    const char *const set[] = {"SET", keys[DIBS__KEY_LOCK].bytes, attempt->token, "NX", "PX", lease};
    const char *const get[] = {"GET", keys[DIBS__KEY_FENCE].bytes};
    const size_t exists_sizes[] = {6, keys[DIBS__KEY_QUEUE].size}, get_sizes[] = {3, keys[DIBS__KEY_FENCE].size};
    const size_t set_sizes[] = {3, keys[DIBS__KEY_LOCK].size, strlen(attempt->token), 2, 2, lease_size};
    const struct dibs__command before[] = {command_of(2, exists, exists_sizes), command_of(6, set, set_sizes)};
    struct dibs__command command = command_of(2, get, get_sizes);

    command.before = before;
    command.before_count = 2;
    dibs__redis_attempt_of(sending->attempt)->relocked = true;
    return dibs__lock_call_send_command(store, call, &command, deadline, error);
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
    bool took = exchange->before & TOOK;

    attempt->in_store = took;
    *decided = took && !(exchange->before & QUEUED) && says(exchange->reply, sending->relock.fence);
    if (!*decided)
        return dibs__error_set(exchange->error, DIBS_UNAVAILABLE, "%s: the lock was wanted elsewhere",
                               store->endpoint.url.shown);
    dibs__redis_attempt_of(attempt)->relocked = false;
    answer->fence = sending->relock.fence;
    answer->step = sending->relock.step;
    return DIBS_OK;
}
