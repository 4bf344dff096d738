/*
 * A walk over the names of locks: SCAN, page by page. A cursor means something only to the server that gave it, so when
 * another server answers, the walk starts over.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/glob.h"
#include "redis/reply.h"
#include "store/redis/redis_store.h"

#define PAGE "1000" /* keys that the server goes through for one page, in less than a millisecond */
#define RESERVED "dibs:"
#define CURSOR_MAX 24

struct scan {
    struct dibs__redis_store *store;
    const struct dibs__walk *walk;
    size_t prefix_size;
    char *pattern;           /* of keys */
    char cursor[CURSOR_MAX]; /* "0" at the beginning and at the end */
    uint64_t server;         /* that gave the cursor */
    bool any_type;           /* the server can't select keys by their type: before Redis 6 */
};

/* For free(). NULL: no memory. */
static char *make_pattern(const char *prefix, const char *pattern)
{
    size_t prefix_size = strlen(prefix), own_size = strlen(pattern);
    char *made = malloc(2 * prefix_size + own_size + 1);

    if (!made)
        return NULL;
    memcpy(made + dibs__glob_escape(made, prefix, prefix_size), pattern, own_size + 1);
    return made;
}

/* Asks on a shared connection, which *view shows then; again if that broke. The reply belongs to the caller. */
static dibs_status ask(struct dibs__redis_store *store, const struct dibs__command *command,
                       struct dibs__link_view *view, redisReply **reply, struct dibs__error *error)
{
    int64_t deadline = dibs__after_ms(dibs__now(store->config.clock), store->config.command_timeout_ms);
    struct dibs__exchange exchange = {.deadline = deadline, .error = error};
    dibs_status status;
    int resends = 0;

    do {
        size_t at = dibs__redis_pick(store);
        struct dibs__channel *channel = store->channels[at];
        status = dibs__channel_open(channel, deadline, view, error);
        if (status == DIBS_UNAVAILABLE && !dibs__redis_another_is_connected(store, at))
            break;
        if (status != DIBS_OK)
            continue;
        struct dibs__request *request = dibs__channel_send(channel, view->serial, command, 0, error);
        status = request ? dibs__channel_wait(channel, request, &exchange) : error->status;
    } while (status == DIBS_UNAVAILABLE && ++resends <= DIBS__RESENDS && dibs__now(store->config.clock) < deadline);
    *reply = exchange.reply;
    dibs__redis_note_reply(store, status);
    return status;
}

static dibs_status ask_for_page(struct scan *scan, struct dibs__link_view *view, redisReply **reply,
                                struct dibs__error *error)
{
    const char *const words[] = {
        "SCAN", scan->cursor, "MATCH", scan->pattern, "COUNT", PAGE, scan->any_type ? NULL : "TYPE", "string", NULL};
    const struct dibs__command command = {.words = words};

    return ask(scan->store, &command, view, reply, error);
}

/* The name of the lock with that key; NULL: it is no lock's key. */
static const char *name_of(const struct scan *scan, const redisReply *key)
{
    size_t size = key->len, prefix = scan->prefix_size;

    if (key->type != REDIS_REPLY_STRING || size <= prefix || size - prefix > DIBS_NAME_MAX ||
        memcmp(key->str, scan->store->config.key_prefix, prefix) != 0 || memchr(key->str, '\0', size) ||
        strncmp(key->str, RESERVED, sizeof RESERVED - 1) == 0)
        return NULL;
    return key->str + prefix;
}

/* {cursor, {key, ...}}. False: the reply is no such page. */
static bool is_page(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 && reply->element[0]->type == REDIS_REPLY_STRING &&
           (size_t)reply->element[0]->len < CURSOR_MAX && reply->element[1]->type == REDIS_REPLY_ARRAY;
}

static dibs_status take_page(struct scan *scan, const redisReply *reply, struct dibs__error *error)
{
    const redisReply *keys = reply->element[1];

    for (size_t i = 0; i < keys->elements; i++) {
        const char *name = name_of(scan, keys->element[i]);
        if (name && !scan->walk->found(scan->walk->context, name))
            return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a list of locks");
    }
    snprintf(scan->cursor, sizeof scan->cursor, "%s", reply->element[0]->str);
    return DIBS_OK;
}

/* *more: the walk must go on. */
static dibs_status read_page(struct scan *scan, uint64_t server, const redisReply *reply, bool *more,
                             struct dibs__error *error)
{
    bool another = strcmp(scan->cursor, "0") != 0 && server != scan->server;

    scan->server = server;
    *more = true;
    if (another) {
        snprintf(scan->cursor, sizeof scan->cursor, "0");
        return DIBS_OK;
    }
    if (dibs__reply_is_error(reply, "ERR syntax error") && !scan->any_type) {
        scan->any_type = true;
        return DIBS_OK;
    }
    if (!is_page(reply))
        return dibs__reply_error(error, reply, scan->store->endpoint.url.shown, "listing locks");
    dibs_status status = take_page(scan, reply, error);
    *more = strcmp(scan->cursor, "0") != 0;
    return status;
}

dibs_status dibs__redis_walk(struct dibs__store *base, const struct dibs__walk *walk, struct dibs__error *error)
{
    struct dibs__redis_store *store = dibs__redis_of(base);
    struct scan scan = {.store = store, .walk = walk, .prefix_size = strlen(store->config.key_prefix), .cursor = "0"};
    dibs_status status = DIBS_OK;
    bool more = true;

    scan.pattern = make_pattern(store->config.key_prefix, walk->pattern ? walk->pattern : "*");
    if (!scan.pattern)
        return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a list of locks");
    while (status == DIBS_OK && more) {
        struct dibs__link_view view;
        redisReply *reply;
        if (!walk->goes_on(walk->context)) {
            status = dibs__error_set(error, DIBS_CLOSED, "the runtime is closing");
            break;
        }
        status = ask_for_page(&scan, &view, &reply, error);
        if (status != DIBS_OK || !reply)
            break;
        status = read_page(&scan, view.server, reply, &more, error);
        freeReplyObject(reply);
    }
    free(scan.pattern);
    return status;
}
