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
    struct dibs__lock_call call; /* about no lock */
    const struct dibs__walk *walk;
    char cursor[CURSOR_MAX]; /* "0" at the beginning and at the end */
    uint64_t server;         /* that gave the cursor */
    bool any_type;           /* the server can't select keys by their type: before Redis 6 */
    bool more;               /* the walk must go on */
    char pattern[];          /* of keys */
};

/* op: an operation without a name. NULL: no memory. */
static struct scan *new_scan(const struct dibs__redis_store *store, const struct dibs__walk *walk,
                             const struct dibs__op *op)
{
    const char *prefix = store->config.key_prefix, *pattern = walk->pattern ? walk->pattern : "*";
    size_t prefix_size = strlen(prefix), own_size = strlen(pattern);
    struct scan *scan = dibs__lock_call_new(sizeof *scan + 2 * prefix_size + own_size + 1, store, op);

    if (!scan)
        return NULL;
    scan->walk = walk;
    strcpy(scan->cursor, "0");
    scan->server = 0;
    scan->any_type = false;
    scan->more = true;
    memcpy(scan->pattern + dibs__glob_escape(scan->pattern, prefix, prefix_size), pattern, own_size + 1);
    return scan;
}

static dibs_status ask_for_page(struct dibs__redis_store *store, struct dibs__lock_call *call,
                                struct dibs__error *error)
{
    const struct scan *scan = (const struct scan *)call;
    const char *const words[] = {
        "SCAN", scan->cursor, "MATCH", scan->pattern, "COUNT", PAGE, scan->any_type ? NULL : "TYPE", "string", NULL};
    const struct dibs__command command = {.words = words};

    return dibs__lock_call_send(store, call, &command, error);
}

/* The name of the lock with that key; NULL: it is no lock's key. */
static const char *name_of(const struct dibs__redis_store *store, const redisReply *key)
{
    if (key->type != REDIS_REPLY_STRING || strncmp(key->str, RESERVED, sizeof RESERVED - 1) == 0)
        return NULL;
    return dibs__key_name(store->config.key_prefix, key->str, (size_t)key->len);
}

/* {cursor, {key, ...}}. False: the reply is no such page. */
static bool is_page(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 && reply->element[0]->type == REDIS_REPLY_STRING &&
           (size_t)reply->element[0]->len < CURSOR_MAX && reply->element[1]->type == REDIS_REPLY_ARRAY;
}

static dibs_status take_page(struct dibs__redis_store *store, struct scan *scan, const redisReply *reply,
                             struct dibs__error *error)
{
    const redisReply *keys = reply->element[1];

    for (size_t i = 0; i < keys->elements; i++) {
        const char *name = name_of(store, keys->element[i]);
        if (name && !scan->walk->found(scan->walk->context, name))
            return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a list of locks");
    }
    snprintf(scan->cursor, sizeof scan->cursor, "%s", reply->element[0]->str);
    scan->more = strcmp(scan->cursor, "0") != 0;
    return DIBS_OK;
}

static dibs_status read_page(struct dibs__redis_store *store, struct dibs__lock_call *call,
                             struct dibs__exchange *exchange)
{
    struct scan *scan = (struct scan *)call;
    const redisReply *reply = exchange->reply;
    bool another = strcmp(scan->cursor, "0") != 0 && call->view.server != scan->server;

    scan->server = call->view.server;
    if (another) {
        strcpy(scan->cursor, "0");
        return DIBS_OK;
    }
    if (dibs__reply_is_error(reply, "ERR syntax error") && !scan->any_type) {
        scan->any_type = true;
        return DIBS_OK;
    }
    if (!is_page(reply))
        return dibs__reply_error(exchange->error, reply, store->endpoint.url.shown, "listing locks");
    return take_page(store, scan, reply, exchange->error);
}

dibs_status dibs__redis_walk(struct dibs__store *base, const struct dibs__walk *walk, struct dibs__error *error)
{
    static const struct dibs__lock_call_ops ops = {.send = ask_for_page, .read = read_page};
    struct dibs__redis_store *store = dibs__redis_of(base);
    struct dibs__op op = {.kind = DIBS__OP_NONE};
    struct scan *scan = new_scan(store, walk, &op);
    dibs_status status = DIBS_OK;

    if (!scan)
        return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a list of locks");
    while (status == DIBS_OK && scan->more) {
        if (!walk->goes_on(walk->context)) {
            status = dibs__error_set(error, DIBS_CLOSED, "the runtime is closing");
            break;
        }
        op.deadline = dibs__after_ms(dibs__now(store->config.clock), store->config.command_timeout_ms);
        status = dibs__lock_call_run(store, &scan->call, &ops, error);
    }
    dibs__lock_call_free(&scan->call);
    return status;
}
