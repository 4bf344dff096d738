#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server.h"

#define PORT 6379
#define EPOCH_NS (INT64_C(1790000000) * SIM_S)
#define CYCLE (100 * SIM_MS) /* how often expired keys are removed */

struct sim_server *sim_servers;

static int64_t last_client = 2;

/* ------------------------------------------------------------------ servers */

static void draw_id(char out[41])
{
    for (int i = 0; i < 40; i++)
        out[i] = "0123456789abcdef"[sim_draw(SIM_ENTROPY) % 16];
    out[40] = '\0';
}

int64_t sim_server_us(const struct sim_server *server)
{
    return (server->offset + (int64_t)((double)sim_now * server->rate)) / 1000;
}

int64_t sim_server_ms(const struct sim_server *server)
{
    return sim_server_us(server) / 1000;
}

bool sim_server_expired(const struct sim_server *server, const struct sim_object *object)
{
    return object->expires && object->expires < sim_server_ms(server);
}

static void on_cycle(void *arg, uint64_t number);

struct sim_server *sim_server_new(int number)
{
    struct sim_server *server = calloc(1, sizeof *server), **last = &sim_servers;

    *server = (struct sim_server){.number = number,
                                  .alive = true,
                                  .rate = 1,
                                  .offset = EPOCH_NS,
                                  .version = "7.0.15",
                                  .linked = true,
                                  .replication_delay = SIM_MS};
    draw_id(server->run_id);
    draw_id(server->replication_id);
    while (*last)
        last = &(*last)->next;
    sim_at(sim_now + CYCLE, on_cycle, server, 0);
    return *last = server;
}

struct sim_server *sim_server_of(int number)
{
    struct sim_server *server = sim_servers;

    while (server && server->number != number)
        server = server->next;
    return server;
}

/* 10.0.0.NUMBER. A sentinel listens on any port. */
struct sim_server *sim_server_at(uint32_t address, unsigned port)
{
    struct sim_server *server = sim_server_of((int)(address & 0xff));

    return server && (port == PORT || server->sentinel) ? server : NULL;
}

const char *sim_server_name(const struct sim_server *server)
{
    static char name[16];

    snprintf(name, sizeof name, "10.0.0.%d", server->number);
    return name;
}

/* ------------------------------------------------------------------- clients */

struct sim_client *sim_server_accept(struct sim_server *server, struct sim_conn *conn)
{
    struct sim_client *client = calloc(1, sizeof *client), **last = &server->clients;

    client->conn = conn;
    client->server = server;
    client->id = ++last_client;
    while (*last)
        last = &(*last)->next;
    return *last = client;
}

void sim_server_gone(struct sim_client *client)
{
    struct sim_client **at = &client->server->clients;

    while (*at && *at != client)
        at = &(*at)->next;
    if (*at)
        *at = client->next;
    client->conn->client = NULL;
    client->ended = true; /* others may still refer to it: it is not freed as long as the run lasts */
}

void sim_server_end_client(struct sim_client *client, bool reset)
{
    sim_conn_end(client->conn, reset);
    sim_server_gone(client);
}

static void end_clients(struct sim_server *server, bool reset)
{
    while (server->clients)
        sim_server_end_client(server->clients, reset);
}

void sim_server_flush_clients(struct sim_server *server)
{
    for (struct sim_client *client = server->clients; client; client = client->next) {
        if (client->out.length == 0)
            continue;
        sim_conn_reply(client->conn, client->out.data, client->out.length);
        client->out.length = 0;
    }
}

/* ------------------------------------------------------------------ requests */

enum { WORDS = 8192 };

size_t sim_read_request(const struct bytes *in, const char **words, int *count)
{
    char *byte = in->data, *end = in->data + in->length, *line;

    if (byte == end || !(line = memchr(byte, '\n', (size_t)(end - byte))))
        return 0;
    *count = (int)sim_number(byte + 1);
    byte = line + 1;
    for (int i = 0; i < *count; i++) {
        if (byte >= end || !(line = memchr(byte, '\n', (size_t)(end - byte))))
            return 0;
        size_t size = (size_t)sim_number(byte + 1);
        byte = line + 1;
        if ((size_t)(end - byte) < size + 2)
            return 0;
        words[i] = byte;
        byte[size] = '\0'; /* instead of what follows a word */
        byte += size + 2;
    }
    return (size_t)(byte - in->data);
}

static void take_requests(struct sim_client *client)
{
    static const char *words[WORDS];
    struct sim_server *server = client->server;
    size_t size;
    int count;

    while (!client->ended && client->waits_for == 0 && client->server->alive &&
           (size = sim_read_request(&client->in, words, &count)) > 0) {
        struct sim_call call = {
            .server = server, .client = client, .words = words, .count = count, .out = &client->out};
        client->now = client->next_is;
        client->next_is = (struct sim_manner){false, false};
        if (server->busy_until < sim_now)
            server->busy_until = sim_now;
        sim_server_call(&call);
        bytes_drop(&client->in, size);
    }
}

void sim_server_take(struct sim_client *client, const char *bytes, size_t size)
{
    struct sim_server *server = client->server;

    bytes_add(&client->in, bytes, size);
    take_requests(client);
    sim_server_flush_clients(server);
}

/* ---------------------------------------------------------------- replication */

struct effect {
    struct sim_server *replica, *master;
    char *key;                 /* NULL: all are gone */
    struct sim_object *object; /* NULL: it is gone */
    int64_t number;
};

static void see_to_waits(struct sim_server *master)
{
    for (struct sim_client *client = master->clients, *next; client; client = next) {
        int replicas = 0;
        next = client->next;
        if (client->waits_for == 0)
            continue;
        for (struct sim_server *server = sim_servers; server; server = server->next)
            replicas += server->master == master && server->alive && server->acknowledged >= client->written;
        if (replicas < client->waits_for && sim_now < client->waits_until)
            continue;
        client->waits_for = 0;
        sim_put_line(&client->out, ":%d", replicas);
        take_requests(client);
    }
    sim_server_flush_clients(master);
}

static void on_wait_over(void *arg, uint64_t number)
{
    see_to_waits(arg);
}

static void on_acknowledged(void *arg, uint64_t number)
{
    struct sim_server *replica = arg;

    if (!replica->master)
        return;
    replica->acknowledged = (int64_t)number;
    see_to_waits(replica->master);
}

void sim_server_wait(struct sim_client *client, int replicas, int64_t ms)
{
    client->waits_for = replicas > 0 ? replicas : 1;
    client->waits_until = ms > 0 ? sim_now + ms * SIM_MS : SIM_NEVER;
    for (struct sim_server *replica = sim_servers; replica; replica = replica->next)
        if (replica->master == client->server && replica->heard >= client->written)
            sim_at(sim_now + replica->replication_delay, on_acknowledged, replica, (uint64_t)replica->heard);
    sim_at(ms > 0 ? client->waits_until : sim_now, on_wait_over, client->server, 0);
}

static void on_effect(void *arg, uint64_t number)
{
    struct effect *effect = arg;
    struct sim_server *replica = effect->replica;

    if (replica->master == effect->master && replica->alive && effect->number == replica->heard + 1) {
        if (effect->object)
            sim_put_object(&replica->keys, effect->object);
        else if (effect->key)
            sim_remove(&replica->keys, effect->key);
        else
            sim_clear(&replica->keys);
        effect->object = NULL;
        replica->heard = effect->number;
        sim_at(sim_now + replica->replication_delay, on_acknowledged, replica, (uint64_t)replica->heard);
    }
    sim_free_object(effect->object);
    free(effect->key);
    free(effect);
}

void sim_server_changed(struct sim_server *server, const char *key)
{
    server->changes++;
    for (struct sim_server *replica = sim_servers; replica; replica = replica->next) {
        if (replica->master != server || !replica->linked)
            continue;
        struct effect *effect = calloc(1, sizeof *effect);
        *effect = (struct effect){.replica = replica, .master = server, .number = server->changes};
        if (key) {
            const struct sim_object *object = sim_find(&server->keys, key);
            effect->key = strdup(key);
            effect->object = object ? sim_copy_object(object) : NULL;
        }
        int64_t time = sim_now + replica->replication_delay;
        replica->last_effect = time > replica->last_effect ? time : replica->last_effect;
        sim_at(replica->last_effect, on_effect, effect, 0);
    }
}

static void on_synchronised(void *arg, uint64_t number)
{
    struct sim_server *server = arg;

    if (!server->master || !server->alive || !server->master->alive)
        return;
    sim_copy_table(&server->keys, &server->master->keys);
    memcpy(server->replication_id, server->master->replication_id, sizeof server->replication_id);
    server->linked = true;
    server->heard = server->acknowledged = server->master->changes;
}

void sim_server_follow(struct sim_server *server, struct sim_server *master)
{
    server->master = master;
    server->linked = false;
    if (master) {
        end_clients(server, false);
        sim_at(sim_now + 20 * SIM_MS, on_synchronised, server, 0);
    } else {
        draw_id(server->replication_id);
    }
}

/* -------------------------------------------------------------------- faults */

void sim_server_kill(struct sim_server *server)
{
    end_clients(server, true);
    server->alive = false;
    server->killed_at = sim_now;
}

void sim_server_save(struct sim_server *server)
{
    sim_copy_table(&server->saved, &server->keys);
}

void sim_server_begin(struct sim_server *server, enum sim_data data)
{
    server->alive = true;
    server->began_at = sim_now;
    server->stopped_until = 0;
    server->scripts = 0;
    draw_id(server->run_id);
    if (!server->master)
        draw_id(server->replication_id);
    if (data == SIM_FORGETS)
        sim_clear(&server->keys);
    else if (data == SIM_RECALLS)
        sim_copy_table(&server->keys, &server->saved);
    if (server->master)
        sim_server_follow(server, server->master);
    for (struct sim_server *replica = sim_servers; replica; replica = replica->next)
        if (replica->master == server)
            sim_server_follow(replica, server);
}

/* ------------------------------------------------------------------ the judge */

struct sim_object *sim_server_look(struct sim_server *server, const char *key)
{
    struct sim_object *object = sim_find(&server->keys, key);

    return object && sim_server_expired(server, object) ? NULL : object;
}

size_t sim_server_keys(struct sim_server *server, const char *prefix)
{
    size_t count = 0;

    for (size_t i = 0; i < SIM_BUCKETS; i++)
        for (const struct sim_object *object = server->keys.buckets[i]; object; object = object->next)
            count += strncmp(object->key, prefix, strlen(prefix)) == 0 && !sim_server_expired(server, object);
    return count;
}

const char *sim_server_eternal(const struct sim_server *server)
{
    for (size_t i = 0; i < SIM_BUCKETS; i++)
        for (const struct sim_object *object = server->keys.buckets[i]; object; object = object->next)
            if (!object->expires)
                return object->key;
    return NULL;
}

void sim_server_print(struct sim_server *server)
{
    int64_t now = sim_server_ms(server);

    sim_tell("server %d%s%s, its clock %lld ms", server->number, server->alive ? "" : ", which is down",
             server->master ? ", a replica" : "", (long long)now);
    for (size_t i = 0; i < SIM_BUCKETS; i++)
        for (const struct sim_object *object = server->keys.buckets[i]; object; object = object->next) {
            sim_tell("    %s%s%s, for %lld ms", object->key, object->is_hash ? "" : " = ",
                     object->is_hash ? "" : object->value, (long long)(object->expires - now));
            for (size_t k = 0; k < object->count; k++)
                sim_tell("        '%s' = %s", object->fields[k].name, object->fields[k].value);
        }
}

/* --------------------------------------------------------------------- expiry */

static void on_cycle(void *arg, uint64_t number)
{
    struct sim_server *server = arg;

    if (server->alive && !server->master && server->stopped_until <= sim_now)
        for (size_t i = 0; i < SIM_BUCKETS; i++)
            for (struct sim_object *object = server->keys.buckets[i], *next; object; object = next) {
                next = object->next;
                if (sim_server_expired(server, object))
                    sim_server_drop(server, object->key);
            }
    sim_server_flush_clients(server);
    sim_at(sim_now + CYCLE, on_cycle, server, 0);
}
