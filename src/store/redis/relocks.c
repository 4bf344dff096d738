#include "store/redis/relocks.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/require.h"

#define SETS 256 /* of two names each: 20 KiB */
#define WAYS 2

/*
 * A fence may be used again this long after its grant. F lives for an hour at least; dibs_query tells by the fence how
 * long a lock has been held; and a server whose data is replaced without a new connection has to become a replica and a
 * master again in that time.
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

/* Where the name is or, if it is not noted, where it will be put: in place of the older fence. */
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

/*
 * A fence that was used again keeps the time of its grant, which is noted here. If that was lost, the fence is not
 * noted: it may be too old.
 */
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

struct dibs__relock dibs__relocks_take(struct dibs__relocks *relocks, const char *name, uint64_t server, bool shared,
                                       int64_t now)
{
    uint64_t hash = dibs__hash(name, strlen(name));
    struct given_up *found = relocks ? find(relocks, hash) : NULL;

    if (!found || !is_of(found, hash, server) || !found->relock.step || found->relock.shared != shared ||
        now - found->granted_at > MOST)
        return (struct dibs__relock){.fence = 0};
    struct dibs__relock relock = found->relock;
    found->relock.step = 0;
    return relock;
}
