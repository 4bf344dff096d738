/* Sentinels: what a client asks them, and the failovers that they make. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server.h"

#define TOLD_WITHIN (500 * SIM_MS) /* of a failover, by the sentinel that made it */

struct sim_sentinel {
    struct sim_server *believed; /* to be the master */
    int64_t epoch;
    struct sim_server *told; /* on its way: what another sentinel told it */
    int64_t told_epoch;
};

static int64_t last_epoch;
static struct sim_server *elected; /* the master of the last failover; NULL: there was none */

struct sim_server *sim_sentinel_new(int number, struct sim_server *master)
{
    struct sim_server *server = sim_server_new(number);

    server->sentinel = calloc(1, sizeof *server->sentinel);
    *server->sentinel = (struct sim_sentinel){.believed = master};
    return server;
}

/* -------------------------------------------------------------------- failovers */

static void believe(struct sim_server *server, struct sim_server *master, int64_t epoch)
{
    struct sim_sentinel *sentinel = server->sentinel;
    char text[128], before[16];

    if (!server->alive || epoch <= sentinel->epoch)
        return;
    snprintf(before, sizeof before, "%s", sim_server_name(sentinel->believed));
    sentinel->believed = master;
    sentinel->epoch = epoch;
    sim_tell("sentinel %d names server %d", server->number, master->number);
    snprintf(text, sizeof text, "main %s 6379 %s 6379", before, sim_server_name(master));
    sim_publish(server, "+switch-master", text);
    sim_server_flush_clients(server);
}

static void on_told(void *arg, uint64_t number)
{
    struct sim_server *server = arg;

    if (server->alive)
        believe(server, server->sentinel->told, server->sentinel->told_epoch);
    else /* it learns of that once it is back */
        sim_at(sim_now + 500 * SIM_MS, on_told, server, 0);
}

static void on_demoted(void *arg, uint64_t number)
{
    struct sim_server *server = arg;

    if (!server->alive)
        sim_at(sim_now + 300 * SIM_MS, on_demoted, arg, number);
    else if (server != elected && server->master != elected)
        sim_server_follow(server, elected);
}

struct sim_server *sim_sentinel_master(void)
{
    return elected ? elected : sim_servers;
}

void sim_sentinel_fail_over(int64_t demoted_after)
{
    struct sim_server *old = sim_sentinel_master(), *best = NULL;

    for (struct sim_server *server = sim_servers; server; server = server->next)
        if (server->master == old && server->alive && server->linked && (!best || server->heard > best->heard))
            best = server;
    if (!best)
        return;
    sim_tell("server %d becomes the master, with %lld of %lld changes", best->number, (long long)best->heard,
             (long long)old->changes);
    elected = best;
    sim_server_follow(best, NULL);
    last_epoch++;
    for (struct sim_server *server = sim_servers; server; server = server->next) {
        if (server->sentinel) {
            server->sentinel->told = best;
            server->sentinel->told_epoch = last_epoch;
            sim_at(sim_now + sim_between(SIM_FAULTS, 0, TOLD_WITHIN), on_told, server, 0);
        } else if (server != best) {
            int64_t delay = server == old ? demoted_after : sim_between(SIM_FAULTS, 0, 200 * SIM_MS);
            sim_at(sim_now + delay, on_demoted, server, 0);
        }
    }
}

/* --------------------------------------------------------------------- commands */

static void describe(struct sim_call *call, const struct sim_server *server, int64_t epoch)
{
    char number[24];

    snprintf(number, sizeof number, "%lld", (long long)epoch);
    sim_put_words(call->out, (const char *const[]){"name", "x", "ip", sim_server_name(server), "port", "6379", "runid",
                                                   server->run_id, "config-epoch", number, NULL});
}

void sim_sentinel_answer(struct sim_call *call)
{
    const struct sim_sentinel *sentinel = call->server->sentinel;
    const char *what = call->words[1];
    int others = 0;

    if (sim_is(what, "MYID")) {
        sim_put_bulk(call->out, call->server->run_id);
    } else if (sim_is(what, "MASTER")) {
        describe(call, sentinel->believed, sentinel->epoch);
    } else if (sim_is(what, "GET-MASTER-ADDR-BY-NAME")) {
        sim_put_words(call->out, (const char *const[]){sim_server_name(sentinel->believed), "6379", NULL});
    } else {
        for (struct sim_server *server = sim_servers; server; server = server->next)
            others += server->sentinel && server != call->server;
        sim_put_line(call->out, "*%d", others);
        for (struct sim_server *server = sim_servers; server; server = server->next)
            if (server->sentinel && server != call->server)
                describe(call, server, 0);
    }
}
