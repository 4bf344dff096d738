/*
 * A cluster: which node has which slot, as each of them knows it; which commands a node redirects; and slots that move.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server.h"

#define NODE_TIMEOUT (1 * SIM_S)   /* a node that is away for longer makes all others refuse: slots are not served */
#define SETTLES_FOR (200 * SIM_MS) /* a node that was started again refuses for so long */
#define GOSSIP_MOST (500 * SIM_MS) /* for so long the other nodes do not know */

void sim_cluster_begin(int nodes)
{
    for (struct sim_server *server = sim_servers; server; server = server->next) {
        server->cluster = calloc(1, sizeof *server->cluster);
        for (int node = 0; node < nodes; node++)
            for (int slot = DIBS__SLOTS * node / nodes; slot < DIBS__SLOTS * (node + 1) / nodes; slot++)
                server->cluster->owner[slot] = (unsigned char)(node + 1);
    }
}

struct sim_server *sim_cluster_owner(const char *key)
{
    struct sim_server *server = sim_servers;
    unsigned slot = dibs__slot_of(key, strlen(key));

    while (server && server->cluster->owner[slot] != server->number)
        server = server->next;
    return server ? server : sim_servers;
}

/* --------------------------------------------------------------- what a node says */

static bool is_down(const struct sim_server *server)
{
    if (sim_now < server->began_at + SETTLES_FOR && server->began_at > 0)
        return true;
    for (const struct sim_server *other = sim_servers; other; other = other->next)
        if (!other->alive && sim_now > other->killed_at + NODE_TIMEOUT)
            return true;
    return false;
}

static const char *redirect(const char *how, unsigned slot, int to)
{
    static char text[64];

    snprintf(text, sizeof text, "-%s %u %s:6379", how, slot, sim_server_name(sim_server_of(to)));
    return text;
}

/* Why a node does not do what concerns these keys; NULL: it does. */
const char *sim_cluster_refusal(const struct sim_call *call, const char *const *keys, int count, bool is_channel)
{
    const struct sim_cluster *cluster = call->server->cluster;
    unsigned slot = count > 0 ? dibs__slot_of(keys[0], strlen(keys[0])) : 0;
    int missing = 0, own = call->server->number;
    bool several = false;

    for (int i = 0; i < count; i++) {
        if (dibs__slot_of(keys[i], strlen(keys[i])) != slot)
            return "-CROSSSLOT Keys in request don't hash to the same slot";
        several = several || strcmp(keys[i], keys[0]) != 0;
        missing += !is_channel && !sim_server_look(call->server, keys[i]);
    }
    if (count == 0)
        return NULL;
    if (is_down(call->server))
        return "-CLUSTERDOWN The cluster is down";
    if (cluster->owner[slot] == own)
        return cluster->to[slot] == 0 || missing == 0 ? NULL
               : missing < count                      ? "-TRYAGAIN Multiple keys request during rehashing of slot"
                                                      : redirect("ASK", slot, cluster->to[slot]);
    if (cluster->from[slot] && call->client->now.asking)
        return several && missing > 0 ? "-TRYAGAIN Multiple keys request during rehashing of slot" : NULL;
    return redirect("MOVED", slot, cluster->owner[slot]);
}

void sim_cluster_slots(struct sim_call *call)
{
    const unsigned char *owner = call->server->cluster->owner;
    struct bytes ranges = {NULL, 0, 0};
    int count = 0;

    for (int first = 0, last; first < DIBS__SLOTS; first = last + 1, count++) {
        const struct sim_server *node = sim_server_of(owner[first]);
        for (last = first; last + 1 < DIBS__SLOTS && owner[last + 1] == owner[first];)
            last++;
        sim_put_line(&ranges, "*3\r\n:%d\r\n:%d\r\n*4\r\n$%zu\r\n%s\r\n:6379\r\n$40\r\n%s\r\n*0", first, last,
                     strlen(sim_server_name(node)), sim_server_name(node), node->run_id);
    }
    sim_put_array(call->out, count, &ranges);
}

struct news {
    struct sim_server *to;
    char *channel, *message;
};

static void on_news(void *arg, uint64_t number)
{
    const struct news *news = arg;

    if (news->to->alive)
        sim_publish(news->to, news->channel, news->message);
    sim_server_flush_clients(news->to);
}

void sim_cluster_pass_on(struct sim_server *to, const char *channel, const char *message)
{
    struct news *news = malloc(sizeof *news);

    *news = (struct news){to, strdup(channel), strdup(message)};
    sim_at(sim_now + sim_between(SIM_NETWORK, SIM_MS / 20, 2 * SIM_MS), on_news, news, 0);
}

/* ---------------------------------------------------------------- slots that move */

/* The key of that number among those of the slot; NULL: there are fewer. */
static const char *key_in(const struct sim_server *server, unsigned slot, size_t number)
{
    for (size_t i = 0; i < SIM_BUCKETS; i++)
        for (const struct sim_object *object = server->keys.buckets[i]; object; object = object->next)
            if (dibs__slot_of(object->key, strlen(object->key)) == slot && number-- == 0)
                return object->key;
    return NULL;
}

/* One of them, which is drawn. False: there is no key in that slot any more. */
static bool move_key(struct sim_server *from, struct sim_server *to, unsigned slot)
{
    size_t count = 0;

    while (key_in(from, slot, count))
        count++;
    if (count > 0)
        sim_server_move(from, to, key_in(from, slot, (size_t)sim_between(SIM_FAULTS, 0, (int64_t)count - 1)));
    return count > 0;
}

/* The node learns which node owns the slot. */
void sim_cluster_own(struct sim_server *server, unsigned slot, int owner)
{
    struct sim_cluster *cluster = server->cluster;

    if (cluster->owner[slot] == server->number && owner != server->number) {
        cluster->to[slot] = 0;
        sim_server_leave_slot(server, slot);
    }
    cluster->owner[slot] = (unsigned char)owner;
    if (owner == server->number)
        cluster->from[slot] = 0;
}

static bool moving[DIBS__SLOTS];

struct move {
    struct sim_server *from, *to;
    unsigned slot;
    int64_t pause, until; /* then it goes on without pauses */
};

static void on_known(void *arg, uint64_t number)
{
    const struct move *move = arg;
    struct sim_server *server = sim_server_of((int)number);

    if (server->alive)
        sim_cluster_own(server, move->slot, move->to->number);
    else
        sim_at(sim_now + GOSSIP_MOST, on_known, arg, number);
}

/* Its next step, once both nodes are there. */
static void on_move(void *arg, uint64_t step)
{
    struct move *move = arg;
    struct sim_server *from = move->from, *to = move->to;

    if (from->alive && to->alive && from->stopped_until <= sim_now && to->stopped_until <= sim_now) {
        if (step == 0)
            to->cluster->from[move->slot] = (unsigned char)from->number;
        else if (step == 1)
            from->cluster->to[move->slot] = (unsigned char)to->number;
        else if (step == 2)
            step -= move_key(from, to, move->slot);
        else if (step == 3)
            sim_cluster_own(to, move->slot, to->number);
        else
            sim_cluster_own(from, move->slot, to->number);
        step++;
    }
    if (step < 5) {
        sim_at(sim_now + (sim_now < move->until ? sim_between(SIM_FAULTS, SIM_MS / 10, move->pause) : SIM_MS / 10),
               on_move, move, step);
        return;
    }
    moving[move->slot] = false;
    sim_tell("slot %u is at server %d", move->slot, to->number);
    for (struct sim_server *server = sim_servers; server; server = server->next)
        if (server != from && server != to)
            sim_at(sim_now + sim_between(SIM_FAULTS, 0, GOSSIP_MOST), on_known, move, (uint64_t)server->number);
}

void sim_cluster_move(const char *key, int which, int64_t pause, int64_t until)
{
    unsigned slot = dibs__slot_of(key, strlen(key));
    struct sim_server *from = sim_cluster_owner(key);
    struct move *move = malloc(sizeof *move);

    *move = (struct move){from, from, slot, pause, until};
    for (which = 1 + which % 2; which > 0; which--)
        move->to = move->to->next ? move->to->next : sim_servers;
    for (struct sim_server *server = sim_servers; server; server = server->next)
        if (server->cluster->owner[slot] != from->number || moving[slot])
            return; /* it moves, or not all nodes know of its last move */
    moving[slot] = true;
    sim_tell("slot %u, of %s, goes from server %d to server %d", slot, key, from->number, move->to->number);
    sim_at(sim_now, on_move, move, 0);
}
