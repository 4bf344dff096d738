/* The commands that dibs sends, and that its scripts call. */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "server.h"

enum {
    READS = 1,
    WRITES = 2,
    ADDS = 4 /* not without memory */,
    LISTENS = 8 /* also while subscribed */,
    SHARDED = 16, /* its channel lies in a slot */
    MANY = 32,    /* all its words are keys */
    STRING = 64,  /* its key has that type, */
    HASH = 128    /* or that one */
};

struct command {
    const char *name, *second; /* NULL: whatever the second word is */
    int words;                 /* at least, or, negative, exactly */
    unsigned kind;
    unsigned right; /* SIM_DENIES_... */
    void (*run)(struct sim_call *call);
};

static bool is_sharded(const struct sim_call *call)
{
    return call->command->kind & SHARDED;
}

bool sim_is(const char *word, const char *name)
{
    return (word[0] | 32) == (name[0] | 32) && strcasecmp(word, name) == 0;
}

static void put_int(const struct sim_call *call, int64_t number)
{
    sim_put_head(call->out, ':', number);
}

/* --------------------------------------------------------------------- messages */

/* kind: as it is called where the channel is sharded, with an s at the beginning */
static void put_push(struct sim_client *client, const char *kind, bool sharded, const char *channel)
{
    kind += !sharded;
    sim_put_head(&client->out, '*', 3);
    sim_put_bulk(&client->out, kind);
    sim_put_bulk(&client->out, channel);
}

bool sim_server_listens(const struct sim_client *client)
{
    return client->channels[0].count + client->channels[1].count > 0;
}

static int publish(struct sim_server *server, bool sharded, const char *channel, const char *message)
{
    int heard = 0;

    for (struct sim_client *client = server->clients; client; client = client->next)
        if (sim_field(&client->channels[sharded], channel)) {
            put_push(client, "smessage", sharded, channel);
            sim_put_bulk(&client->out, message);
            heard++;
        }
    return heard;
}

int sim_publish(struct sim_server *server, const char *channel, const char *message)
{
    return publish(server, false, channel, message);
}

static void leave(struct sim_client *client, bool sharded, const char *channel)
{
    put_push(client, "sunsubscribe", sharded, channel);
    sim_drop_field(&client->channels[sharded], channel);
    sim_put_head(&client->out, ':', (long long)client->channels[sharded].count);
}

void sim_server_leave_slot(struct sim_server *server, unsigned slot)
{
    for (struct sim_client *client = server->clients; client; client = client->next)
        for (size_t i = client->channels[1].count; i-- > 0;) {
            const char *channel = client->channels[1].fields[i].name;
            if (dibs__slot_of(channel, strlen(channel)) == slot)
                leave(client, true, channel);
        }
    sim_server_flush_clients(server);
}

/* ------------------------------------------------------------ keys that change */

static struct sim_client *client_of(struct sim_server *server, int64_t id)
{
    struct sim_client *client = server->clients;

    while (client && client->id != id)
        client = client->next;
    return client;
}

static void tell_of_change(struct sim_client *client, const char *key)
{
    struct sim_client *to = client_of(client->server, client->redirect);

    if (!to || !sim_server_listens(to))
        return;
    put_push(to, "smessage", false, SIM_TRACKING);
    if (key) {
        sim_put_line(&to->out, "*1");
        sim_put_bulk(&to->out, key);
    } else {
        sim_put_line(&to->out, "*-1");
    }
}

/* by: the client that sent the command; NULL: the key expired. */
static void tell_all(struct sim_server *server, const struct sim_client *by, const char *key)
{
    for (struct sim_client *client = server->clients; client; client = client->next)
        if (client->tracking && sim_drop_field(&client->tracked, key) && !(client->noloop && client == by))
            tell_of_change(client, key);
}

static void changed(const struct sim_call *call, const char *key)
{
    tell_all(call->server, call->client, key);
    sim_server_changed(call->server, key);
    call->client->written = call->server->changes;
    if (call->script)
        call->script->wrote = true;
}

/* Nobody's command: it expired, or was evicted or deleted by a client without dibs. */
bool sim_server_drop(struct sim_server *server, const char *of)
{
    char *key = strdup(of);
    bool was_there = sim_remove(&server->keys, key);

    if (was_there) {
        tell_all(server, NULL, key);
        sim_server_changed(server, key);
    }
    free(key);
    return was_there;
}

void sim_server_flush(struct sim_server *server)
{
    sim_clear(&server->keys);
    sim_server_changed(server, NULL);
    for (struct sim_client *client = server->clients; client; client = client->next)
        if (client->tracking) {
            sim_drop_fields(&client->tracked);
            tell_of_change(client, NULL);
        }
    sim_server_flush_clients(server);
}

void sim_server_move(struct sim_server *from, struct sim_server *to, const char *name)
{
    char *key = strdup(name);
    int64_t ahead = (sim_server_us(to) - sim_server_us(from)) / 1000;
    struct sim_object *object = sim_server_look(from, key);

    if (object) {
        if (sim_server_look(to, key))
            sim_judge_twice(key);
        object = sim_put_object(&to->keys, sim_copy_object(object));
        object->expires += object->expires ? ahead : 0;
        tell_all(to, NULL, key);
        sim_server_flush_clients(to);
    }
    sim_remove(&from->keys, key);
    tell_all(from, NULL, key);
    sim_server_flush_clients(from);
    free(key);
}

/* An expired key does not exist. */
static struct sim_object *look_up(const struct sim_call *call, const char *key)
{
    struct sim_object *object = sim_find(&call->server->keys, key);

    if (!object || !sim_server_expired(call->server, object))
        return object;
    if (!call->server->master)
        sim_server_drop(call->server, key);
    return NULL;
}

static const char *key_of(const struct sim_call *call)
{
    return call->words[1];
}

/* The object at its key, which is made if there is none. */
static struct sim_object *made(const struct sim_call *call, bool is_hash)
{
    return call->object ? call->object : sim_make(&call->server->keys, key_of(call), is_hash);
}

/* --------------------------------------------------------------------- strings */

static void do_get(struct sim_call *call)
{
    sim_put_bulk(call->out, call->object ? call->object->value : NULL);
}

static void do_mget(struct sim_call *call)
{
    sim_put_head(call->out, '*', call->count - 1);
    for (int i = 1; i < call->count; i++) {
        struct sim_object *object = look_up(call, call->words[i]);
        sim_put_bulk(call->out, object && !object->is_hash ? object->value : NULL);
    }
}

static void do_set(struct sim_call *call)
{
    struct sim_object *object = call->object;
    bool only_new = false;
    int64_t ms = 0;

    for (int i = 3; i < call->count; i++)
        if (sim_is(call->words[i], "NX"))
            only_new = true;
        else if (sim_is(call->words[i], "PX") && i + 1 < call->count)
            ms = sim_number(call->words[++i]);
    if (object && only_new) {
        sim_put_bulk(call->out, NULL);
        return;
    }
    if (object && object->is_hash) {
        sim_remove(&call->server->keys, key_of(call));
        call->object = NULL;
    }
    object = made(call, false);
    sim_set_value(object, call->words[2]);
    object->expires = ms ? sim_server_ms(call->server) + ms : 0;
    changed(call, key_of(call));
    sim_put_line(call->out, "+OK");
}

static void do_incrby(struct sim_call *call)
{
    int64_t value = sim_number(call->words[2]) + (call->object ? sim_number(call->object->value) : 0);
    char text[24];

    sim_set_value(made(call, false), sim_digits(text, value));
    changed(call, key_of(call));
    put_int(call, value);
}

/* ------------------------------------------------------------------- any type */

static void do_del(struct sim_call *call)
{
    int count = 0;

    for (int i = 1; i < call->count; i++)
        if (look_up(call, call->words[i]) && sim_remove(&call->server->keys, call->words[i])) {
            changed(call, call->words[i]);
            count++;
        }
    put_int(call, count);
}

/* Of Valkey from 9.0 on. */
static void do_delifeq(struct sim_call *call)
{
    bool equal = call->object && strcmp(call->object->value, call->words[2]) == 0;

    if (equal && sim_remove(&call->server->keys, key_of(call)))
        changed(call, key_of(call));
    put_int(call, equal);
}

static void do_exists(struct sim_call *call)
{
    int count = 0;

    for (int i = 1; i < call->count; i++)
        count += look_up(call, call->words[i]) != NULL;
    put_int(call, count);
}

static void do_pttl(struct sim_call *call)
{
    const struct sim_object *object = call->object;
    int64_t left = object ? object->expires - sim_server_ms(call->server) : 0;

    put_int(call, !object ? -2 : !object->expires ? -1 : left > 0 ? left : 0);
}

static void do_pexpire(struct sim_call *call)
{
    if (call->object) {
        call->object->expires = sim_server_ms(call->server) + sim_number(call->words[2]);
        changed(call, key_of(call));
    }
    put_int(call, call->object != NULL);
}

static void do_scan(struct sim_call *call)
{
    const char *pattern = "*";
    bool strings = false;
    struct bytes found = {NULL, 0, 0};
    int count = 0;

    for (int i = 2; i + 1 < call->count; i += 2) {
        if (sim_is(call->words[i], "MATCH"))
            pattern = call->words[i + 1];
        strings = strings || sim_is(call->words[i], "TYPE");
    }
    for (size_t i = 0; i < SIM_BUCKETS; i++)
        for (struct sim_object *object = call->server->keys.buckets[i], *next; object; object = next) {
            next = object->next;
            if (!look_up(call, object->key) || (strings && object->is_hash) || fnmatch(pattern, object->key, 0) != 0)
                continue;
            sim_put_bulk(&found, object->key);
            count++;
        }
    sim_put_head(call->out, '*', 2);
    sim_put_bulk(call->out, "0");
    sim_put_array(call->out, count, &found);
}

/* ---------------------------------------------------------------------- hashes */

/* HGET and HMGET. */
static void do_hget(struct sim_call *call)
{
    if (sim_is(call->words[0], "HMGET"))
        sim_put_head(call->out, '*', call->count - 2);
    for (int i = 2; i < call->count; i++) {
        const struct sim_field *field = call->object ? sim_field(call->object, call->words[i]) : NULL;
        sim_put_bulk(call->out, field ? field->value : NULL);
    }
}

static void do_hset(struct sim_call *call)
{
    struct sim_object *object = made(call, true);
    int count = 0;

    for (int i = 2; i + 1 < call->count; i += 2)
        count += sim_set_field(object, call->words[i], call->words[i + 1]);
    changed(call, key_of(call));
    put_int(call, count);
}

static void do_hdel(struct sim_call *call)
{
    struct sim_object *object = call->object;
    int count = 0;

    for (int i = 2; object && i < call->count; i++)
        count += sim_drop_field(object, call->words[i]);
    if (object && object->count == 0)
        sim_remove(&call->server->keys, key_of(call));
    if (count > 0)
        changed(call, key_of(call));
    put_int(call, count);
}

static void do_hlen(struct sim_call *call)
{
    put_int(call, call->object ? (int64_t)call->object->count : 0);
}

static void do_hkeys(struct sim_call *call)
{
    size_t count = call->object ? call->object->count : 0;

    sim_put_head(call->out, '*', (long long)count);
    for (size_t i = 0; i < count; i++)
        sim_put_bulk(call->out, call->object->fields[i].name);
}

/* ----------------------------------------------------------------- sorted sets */

static void do_zadd(struct sim_call *call)
{
    bool known = false, adds = false, differs = false;
    const struct sim_field *member = NULL;
    int at = 2, added = 0;
    char text[24];

    for (; at < call->count && (sim_is(call->words[at], "XX") || sim_is(call->words[at], "INCR")); at++) {
        known = known || sim_is(call->words[at], "XX");
        adds = adds || sim_is(call->words[at], "INCR");
    }
    struct sim_object *set = known ? call->object : made(call, true);
    for (; set && at + 1 < call->count; at += 2) {
        member = sim_field(set, call->words[at + 1]);
        if (!member && known)
            continue;
        int64_t score = sim_number(call->words[at]) + (adds && member ? sim_score(member) : 0);
        differs = differs || !member || score != sim_score(member);
        added += sim_set_field(set, call->words[at + 1], sim_digits(text, score));
        member = sim_field(set, call->words[at + 1]);
    }
    if (differs)
        changed(call, key_of(call));
    if (adds)
        sim_put_bulk(call->out, member ? member->value : NULL);
    else
        put_int(call, added);
}

static void put_member(struct bytes *out, const struct sim_field *member, bool with_score)
{
    sim_put_bulk(out, member->name);
    if (with_score)
        sim_put_bulk(out, member->value);
}

static void do_zrange(struct sim_call *call)
{
    int64_t first = sim_number(call->words[2]), last = sim_number(call->words[3]);
    int64_t count = call->object ? (int64_t)call->object->count : 0;
    bool with_scores = call->count > 4;

    first = first < 0 ? first + count : first;
    last = last < 0 ? last + count : last;
    first = first < 0 ? 0 : first;
    last = last >= count ? count - 1 : last;
    sim_sort(call->object);
    sim_put_head(call->out, '*', last < first ? 0 : (last - first + 1) * (with_scores ? 2 : 1));
    for (; first <= last; first++)
        put_member(call->out, &call->object->fields[first], with_scores);
}

static bool is_within(int64_t score, const char *least, const char *most)
{
    int64_t from = sim_number(least + (least[0] == '(')), to = sim_number(most + (most[0] == '('));

    return (least[0] == '(' ? score > from : score >= from) && (most[0] == '(' ? score < to : score <= to);
}

/* At most as many as the seventh word says. */
static void do_zrangebyscore(struct sim_call *call)
{
    struct sim_object *set = call->object;
    struct bytes found = {NULL, 0, 0};
    int64_t count = 0, limit = call->count > 6 ? atoll(call->words[6]) : INT64_MAX;

    sim_sort(set);
    for (size_t i = 0; set && i < set->count && count < limit; i++)
        if (is_within(sim_score(&set->fields[i]), call->words[2], call->words[3])) {
            put_member(&found, &set->fields[i], false);
            count++;
        }
    sim_put_array(call->out, count, &found);
}

/* --------------------------------------------------------------- subscriptions */

static void do_subscribe(struct sim_call *call)
{
    struct sim_object *channels = &call->client->channels[is_sharded(call)];

    for (int i = 1; i < call->count; i++) {
        sim_set_field(channels, call->words[i], "");
        put_push(call->client, "ssubscribe", is_sharded(call), call->words[i]);
        put_int(call, (int64_t)channels->count);
    }
}

static void do_unsubscribe(struct sim_call *call)
{
    for (int i = 1; i < call->count; i++)
        leave(call->client, is_sharded(call), call->words[i]);
}

/* In a cluster, the other nodes get the message, unless its channel is sharded. */
static void do_publish(struct sim_call *call)
{
    struct sim_server *other = call->server->cluster && !is_sharded(call) ? sim_servers : NULL;

    put_int(call, publish(call->server, is_sharded(call), call->words[1], call->words[2]));
    for (; other; other = other->next)
        if (other != call->server)
            sim_cluster_pass_on(other, call->words[1], call->words[2]);
}

static void do_pubsub(struct sim_call *call)
{
    bool sharded = sim_is(call->words[1], "SHARDNUMSUB");

    sim_put_head(call->out, '*', 2 * (call->count - 2));
    for (int i = 2; i < call->count; i++) {
        int heard = 0;
        for (struct sim_client *client = call->server->clients; client; client = client->next)
            heard += sim_field(&client->channels[sharded], call->words[i]) != NULL;
        sim_put_bulk(call->out, call->words[i]);
        put_int(call, heard);
    }
}

/* ------------------------------------------------------------------ connections */

static void do_tracking(struct sim_call *call)
{
    struct sim_client *client = call->client;
    bool on = call->count > 2 && sim_is(call->words[2], "ON");
    int64_t redirect = 0;

    bool optout = false, noloop = false;
    for (int i = 3; i < call->count; i++) {
        optout = optout || sim_is(call->words[i], "OPTOUT");
        noloop = noloop || sim_is(call->words[i], "NOLOOP");
        if (sim_is(call->words[i], "REDIRECT") && i + 1 < call->count)
            redirect = sim_number(call->words[++i]);
    }
    if (on && redirect && !client_of(call->server, redirect)) {
        sim_put_line(call->out, "-ERR The client ID you want redirect to does not exist");
        return;
    }
    client->tracking = on;
    client->optout = optout;
    client->noloop = noloop;
    client->redirect = redirect;
    if (!on)
        sim_drop_fields(&client->tracked);
    sim_put_line(call->out, "+OK");
}

static void do_kill(struct sim_call *call)
{
    struct sim_client *client = client_of(call->server, sim_number(call->words[3]));

    put_int(call, client != NULL);
    if (client && client != call->client)
        sim_server_end_client(client, false);
}

static void do_caching(struct sim_call *call)
{
    call->client->next_is.not_cached = call->client->tracking && call->client->optout;
    sim_put_line(call->out, call->client->next_is.not_cached
                                ? "+OK"
                                : "-ERR CLIENT CACHING can be called only when the client is in tracking mode with "
                                  "OPTIN or OPTOUT mode enabled");
}

static void do_id(struct sim_call *call)
{
    put_int(call, call->client->id);
}

static void do_info(struct sim_call *call)
{
    const struct sim_server *server = call->server;
    char text[512];

    if (call->count > 1 && sim_is(call->words[1], "server"))
        snprintf(text, sizeof text, "# Server\r\nredis_version:%s\r\nrun_id:%s\r\n", server->version, server->run_id);
    else if (call->count > 1 && sim_is(call->words[1], "replication"))
        snprintf(text, sizeof text, "# Replication\r\nrole:%s\r\nmaster_replid:%s\r\n",
                 server->master ? "slave" : "master", server->replication_id);
    else
        snprintf(text, sizeof text, "# Cluster\r\ncluster_enabled:%d\r\n", server->cluster != NULL);
    sim_put_bulk(call->out, text);
}

static void do_role(struct sim_call *call)
{
    if (call->server->master) {
        sim_put_line(call->out, "*5");
        sim_put_bulk(call->out, "slave");
        sim_put_bulk(call->out, sim_server_name(call->server->master));
        put_int(call, 6379);
        sim_put_bulk(call->out, "connected");
        put_int(call, call->server->heard);
    } else {
        sim_put_line(call->out, "*3");
        sim_put_bulk(call->out, "master");
        put_int(call, call->server->changes);
        sim_put_line(call->out, "*0");
    }
}

static void do_time(struct sim_call *call)
{
    char text[24];
    int64_t us = sim_server_us(call->server);

    sim_put_head(call->out, '*', 2);
    for (int i = 0; i < 2; i++) {
        sim_put_bulk(call->out, sim_digits(text, i ? us % 1000000 : us / 1000000));
    }
}

static void do_ping(struct sim_call *call)
{
    if (sim_server_listens(call->client))
        sim_put_words(call->out, (const char *const[]){"pong", "", NULL});
    else
        sim_put_line(call->out, "+PONG");
}

static void do_asking(struct sim_call *call)
{
    call->client->next_is.asking = true;
    sim_put_line(call->out, "+OK");
}

static void do_ok(struct sim_call *call)
{
    sim_put_line(call->out, "+OK");
}

static void do_wait(struct sim_call *call)
{
    sim_server_wait(call->client, (int)sim_number(call->words[1]), sim_number(call->words[2]));
}

/* ----------------------------------------------------------------- the table */

static const struct command commands[] = {
    {"GET", NULL, -2, READS | STRING, 0, do_get},
    {"MGET", NULL, 2, READS | MANY, 0, do_mget},
    {"SET", NULL, 3, WRITES | ADDS, 0, do_set},
    {"INCRBY", NULL, -3, WRITES | ADDS | STRING, 0, do_incrby},
    {"DEL", NULL, 2, WRITES | MANY, 0, do_del},
    {"DELIFEQ", NULL, -3, WRITES | STRING, 0, do_delifeq},
    {"EXISTS", NULL, 2, READS | MANY, 0, do_exists},
    {"PTTL", NULL, -2, READS, 0, do_pttl},
    {"PEXPIRE", NULL, 3, WRITES, 0, do_pexpire},
    {"SCAN", NULL, 2, 0, 0, do_scan},
    {"HGET", NULL, -3, READS | HASH, 0, do_hget},
    {"HMGET", NULL, 3, READS | HASH, 0, do_hget},
    {"HSET", NULL, 4, WRITES | ADDS | HASH, 0, do_hset},
    {"HDEL", NULL, 3, WRITES | HASH, 0, do_hdel},
    {"HLEN", NULL, -2, READS | HASH, 0, do_hlen},
    {"HKEYS", NULL, -2, READS | HASH, 0, do_hkeys},
    {"ZADD", NULL, 4, WRITES | ADDS | HASH, 0, do_zadd},
    {"ZREM", NULL, 3, WRITES | HASH, 0, do_hdel},
    {"ZCARD", NULL, -2, READS | HASH, 0, do_hlen},
    {"ZRANGE", NULL, 4, READS | HASH, 0, do_zrange},
    {"ZRANGEBYSCORE", NULL, 4, READS | HASH, 0, do_zrangebyscore},
    {"TIME", NULL, -1, 0, 0, do_time},
    {"PUBLISH", NULL, -3, 0, SIM_DENIES_PUBLISH, do_publish},
    {"SPUBLISH", NULL, -3, SHARDED, SIM_DENIES_PUBLISH, do_publish},
    {"SSUBSCRIBE", NULL, 2, LISTENS | SHARDED, SIM_DENIES_SUBSCRIBE, do_subscribe},
    {"SUNSUBSCRIBE", NULL, 2, LISTENS | SHARDED, 0, do_unsubscribe},
    {"CLUSTER", "SLOTS", -2, 0, 0, sim_cluster_slots},
    {"ASKING", NULL, -1, 0, 0, do_asking},
    {"PUBSUB", NULL, 2, 0, 0, do_pubsub},
    {"SUBSCRIBE", NULL, 2, LISTENS, SIM_DENIES_SUBSCRIBE, do_subscribe},
    {"UNSUBSCRIBE", NULL, 2, LISTENS, 0, do_unsubscribe},
    {"CLIENT", "SETNAME", -3, 0, 0, do_ok},
    {"CLIENT", "ID", -2, 0, 0, do_id},
    {"CLIENT", "KILL", 4, 0, SIM_DENIES_KILL, do_kill},
    {"CLIENT", "TRACKING", 3, 0, SIM_DENIES_TRACKING, do_tracking},
    {"CLIENT", "CACHING", -3, 0, SIM_DENIES_TRACKING, do_caching},
    {"INFO", NULL, 1, 0, SIM_DENIES_INFO, do_info},
    {"ROLE", NULL, -1, 0, 0, do_role},
    {"PING", NULL, 1, LISTENS, 0, do_ping},
    {"SELECT", NULL, -2, 0, 0, do_ok},
    {"WAIT", NULL, -3, 0, 0, do_wait},
    {"EVAL", NULL, 3, 0, 0, sim_script_eval},
    {"EVALSHA", NULL, 3, 0, 0, sim_script_eval},
    {"SCRIPT", "EXISTS", 3, 0, 0, sim_script_exist},
    {"SCRIPT", "FLUSH", -2, 0, 0, sim_script_flush},
    {"SENTINEL", NULL, 2, 0, 0, sim_sentinel_answer},
};

/* -------------------------------------------------------------------- calling */

static const struct command *command_of(const struct sim_call *call)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (sim_is(call->words[0], commands[i].name) &&
            (!commands[i].second || (call->count > 1 && sim_is(call->words[1], commands[i].second))))
            return &commands[i];
    return NULL;
}

/* The keys that it names, or the channel that lies in a slot. */
static const char *const *keys_of(const struct sim_call *call, int *count)
{
    unsigned kind = call->command->kind;

    if (call->command->run == sim_script_eval) {
        *count = atoi(call->words[2]) < call->count - 2 ? atoi(call->words[2]) : 0;
        return call->words + 3;
    }
    *count = kind & MANY ? call->count - 1 : kind & (READS | WRITES | SHARDED) ? 1 : 0;
    return call->words + 1;
}

static const char *refusal_of_keys(const struct sim_call *call)
{
    int count;
    const char *const *keys = keys_of(call, &count);

    return sim_cluster_refusal(call, keys, count, is_sharded(call));
}

/* NULL: it may be run. */
static const char *refusal(const struct sim_call *call)
{
    unsigned kind = call->command->kind;
    int words = call->command->words;

    if (call->count < (words < 0 ? -words : words) || (words < 0 && call->count > -words))
        return "-ERR wrong number of arguments";
    const char *elsewhere = call->server->cluster ? refusal_of_keys(call) : NULL;
    if (elsewhere)
        return call->script ? "-ERR Script attempted to access a non local key in a cluster node" : elsewhere;
    if (call->server->denied & call->command->right)
        return "-NOPERM this user has no permissions to run this command";
    if (!call->script && sim_server_listens(call->client) && !(kind & LISTENS))
        return "-ERR Can't execute the command: only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are "
               "allowed in this context";
    if ((kind & WRITES) && call->server->master)
        return "-READONLY You can't write against a read only replica.";
    if ((kind & ADDS) && call->server->no_memory_until > sim_now && !(call->script && call->script->wrote))
        return "-OOM command not allowed when used memory > 'maxmemory'.";
    return NULL;
}

static const char *find_object(struct sim_call *call)
{
    unsigned kind = call->command->kind;

    if ((kind & (READS | WRITES)) && !(kind & MANY))
        call->object = look_up(call, key_of(call));
    return call->object && (kind & (call->object->is_hash ? STRING : HASH))
               ? "-WRONGTYPE Operation against a key holding the wrong kind of value"
               : NULL;
}

/* The client will be told when these keys change: of a script that reads one, all its keys. */
static void track(const struct sim_call *call)
{
    struct sim_client *client = call->client;
    int count;

    if (!client->tracking || (client->optout && client->now.not_cached))
        return;
    const char *const *keys = keys_of(call->script ? call->script : call, &count);
    for (int i = 0; i < count; i++)
        sim_set_field(&client->tracked, keys[i], "");
}

void sim_server_call(struct sim_call *call)
{
    call->server->busy_until += call->server->cost;
    call->command = command_of(call);
    if (!call->command)
        sim_fail("test/sim/commands.c does not have the command %s", call->words[0]);
    const char *no = call->command ? refusal(call) : "-ERR unknown command";
    const char *wrong = no ? no : find_object(call);
    if (wrong)
        sim_put_line(call->out, "%s", wrong);
    else
        call->command->run(call);
    if (!no && (call->command->kind & READS)) /* also where the key has another type */
        track(call);
}
