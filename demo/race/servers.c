#include "race/servers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "support/common/private_redis.h"
#include "support/common/redis_connect.h"

static struct private_redis own[WAY_MASTERS_MOST];
static redisContext *first; /* to the server of first_url */
static char first_url[URL_SIZE];

static const char *given_url(void)
{
    const char *url = getenv("DIBS_URL");

    return url && *url ? url : NULL;
}

/* A scene may have killed the server. */
static bool runs(struct private_redis *server)
{
    if (server->pid > 0 && waitpid(server->pid, NULL, WNOHANG) == server->pid)
        server->pid = 0;
    return server->pid > 0;
}

static bool start(struct private_redis *server)
{
    private_redis_stop(server);
    return private_redis_start(server);
}

bool servers_ready(struct race *race, unsigned count)
{
    race->servers = count;
    if (count == 1 && given_url()) {
        snprintf(race->urls[0], URL_SIZE, "%s", given_url());
        race->pids[0] = 0;
        return servers_first(race) != NULL;
    }
    for (unsigned i = 0; i < count; i++) {
        if (!runs(&own[i]) && !start(&own[i]))
            return false;
        snprintf(race->urls[i], URL_SIZE, "%s", own[i].url);
        race->pids[i] = own[i].pid;
    }
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
    if (given_url()) {
        redisContext *redis = redis_connect(given_url());
        if (redis) {
            delete_keys(redis, race->program);
            redisFree(redis);
        }
    }
    if (first)
        redisFree(first);
    first = NULL;
    for (unsigned i = 0; i < WAY_MASTERS_MOST; i++)
        private_redis_stop(&own[i]);
}
