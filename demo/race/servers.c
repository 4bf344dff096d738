#include "race/servers.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "race/failover.h"
#include "support/common/private_redis.h"
#include "support/common/redis_connect.h"
#include "support/common/redis_process.h"
#include "support/common/timing.h"

enum { SYNC_LIMIT_MS = 10000, POLL_MS = 10, PORT_TRIES = 5 };

static struct private_redis own[WAY_SERVERS_MOST], replicated[WAY_SERVERS_MOST];
static redisContext *first; /* to the server of first_url */
static char first_url[URL_SIZE];

static const char *given; /* the URL of a server that is not the program's. NULL: there is none */

void servers_given(const char *url)
{
    given = url && *url ? url : NULL;
}

/* A scene may have killed the server. */
static bool runs(struct private_redis *server)
{
    if (server->pid > 0 && waitpid(server->pid, NULL, WNOHANG) == server->pid)
        server->pid = 0;
    return server->pid > 0;
}

/* A server that is told to end would wait for its replicas: nothing of it is needed any more. */
static void stop(struct private_redis *server)
{
    if (server->pid > 0)
        kill(server->pid, SIGKILL);
    private_redis_stop(server);
}

static bool start(struct private_redis *server, const char *config)
{
    stop(server);
    return private_redis_start_with(server, config);
}

static void name_server(struct race *race, const struct private_redis *server)
{
    snprintf(race->urls[race->servers], URL_SIZE, "%s", server->url);
    race->pids[race->servers] = server->pid;
    race->servers++;
}

/* How many replicas have acknowledged a write. A replica whose link is up may not be heard by its master yet. */
static long long replicas_that_follow(redisContext *master, unsigned replicas)
{
    redisReply *reply;
    long long count;

    freeReplyObject(redisCommand(master, "SET ready 1"));
    reply = redisCommand(master, "WAIT %u %d", replicas, 2 * POLL_MS);
    count = reply && reply->type == REDIS_REPLY_INTEGER ? reply->integer : 0;
    freeReplyObject(reply);
    return count;
}

static bool have_caught_up(const struct private_redis *master, unsigned replicas)
{
    redisContext *redis = redis_connect(master->url);
    uint64_t end = clock_ns() + SYNC_LIMIT_MS * UINT64_C(1000000);
    bool good = false;

    while (redis && !good && clock_ns() < end) {
        good = replicas_that_follow(redis, replicas) >= replicas;
        pause_us(good ? 0 : POLL_MS * UINT64_C(1000));
    }
    if (redis)
        redisFree(redis);
    if (!good)
        fprintf(stderr, "a replica does not catch up with its master\n");
    return good;
}

static void name_address(struct race *race)
{
    race->address = race->servers;
    name_server(race, &replicated[0]);
    snprintf(race->urls[race->address], URL_SIZE, "unix://%s/address", replicated[0].folder);
}

/* All racers may connect at the same time. */
static const char all_at_once[] = "tcp-backlog 1024";
_Static_assert(RACERS_MOST < 1024, "racers find the backlog full");

/*
 * Starts the server as a replica of the server on the port `master`; 0: as a master. Another program may take a port
 * first. The result is the server's own port; 0: it does not start.
 */
static int start_on_a_port(struct private_redis *server, int master)
{
    char config[128];

    for (int i = 0; i < PORT_TRIES; i++) {
        int port = free_port();
        int length = snprintf(config, sizeof config, "bind 127.0.0.1\nport %d\nhz 100\nrepl-diskless-sync-delay 0\n%s",
                              port, all_at_once);
        if (master > 0)
            snprintf(config + length, sizeof config - (size_t)length, "\nreplicaof 127.0.0.1 %d", master);
        if (port > 0 && start(server, config))
            return port;
    }
    return 0;
}

static bool start_replicated(struct race *race, unsigned replicas)
{
    char address[URL_SIZE];
    int master = start_on_a_port(&replicated[0], 0);

    if (master == 0)
        return false;
    for (unsigned i = 1; i <= replicas; i++)
        if (start_on_a_port(&replicated[i], master) == 0)
            return false;
    name_address(race);
    if (!have_caught_up(&replicated[0], replicas))
        return false;
    for (unsigned i = 1; i <= replicas; i++)
        name_server(race, &replicated[i]);
    snprintf(address, sizeof address, "%s/address", replicated[0].folder);
    return failover_address(address, replicated[0].socket_path);
}

/*
 * Where a scene killed one of several masters, all are started again: one that comes back with no data has no vote in a
 * quorum whose others have theirs still, until the leases that it may have granted are over.
 */
static bool start_masters(struct race *race, unsigned masters)
{
    bool all_run = true;

    for (unsigned i = 0; i < masters; i++)
        all_run = runs(&own[i]) && all_run;
    for (unsigned i = 0; i < masters; i++) {
        if (!all_run && !start(&own[i], all_at_once))
            return false;
        name_server(race, &own[i]);
    }
    return true;
}

bool servers_ready(struct race *race, unsigned masters, unsigned replicas)
{
    race->servers = race->address = 0;
    if (masters == 1 && given) {
        snprintf(race->urls[0], URL_SIZE, "%s", given);
        race->pids[0] = 0;
        race->servers = 1;
    } else if (!start_masters(race, masters)) {
        return false;
    }
    if (replicas > 0 && !start_replicated(race, replicas))
        return false;
    return servers_first(race) != NULL;
}

redisContext *servers_first(struct race *race)
{
    if (first && (first->err || strcmp(first_url, race->urls[0]) != 0)) {
        redisFree(first);
        first = NULL;
    }
    if (!first) {
        first = redis_connect(race->urls[0]);
        snprintf(first_url, sizeof first_url, "%s", race->urls[0]);
    }
    return first;
}

static void delete_keys(redisContext *redis, const char *program)
{
    char cursor[32] = "0";

    do {
        redisReply *page = redisCommand(redis, "SCAN %s MATCH *%s* COUNT 1000", cursor, program);
        if (!page || page->type != REDIS_REPLY_ARRAY || page->elements != 2) {
            freeReplyObject(page);
            return;
        }
        for (size_t i = 0; i < page->element[1]->elements; i++) {
            const redisReply *key = page->element[1]->element[i];
            freeReplyObject(redisCommand(redis, "DEL %b", key->str, key->len));
        }
        snprintf(cursor, sizeof cursor, "%s", page->element[0]->str);
        freeReplyObject(page);
    } while (strcmp(cursor, "0") != 0);
}

void servers_stop(struct race *race)
{
    if (given) {
        redisContext *redis = redis_connect(given);
        if (redis) {
            delete_keys(redis, race->program);
            redisFree(redis);
        }
    }
    if (first)
        redisFree(first);
    first = NULL;
    for (unsigned i = 0; i < WAY_SERVERS_MOST; i++)
        stop(&own[i]);
    for (unsigned i = 0; i < WAY_SERVERS_MOST; i++)
        stop(&replicated[i]);
}
