/* The faults of a run: what its plan does to the servers, the network and the processes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge.h"

static const struct sim_plan *plan;

/* The lock that it concerns. */
static const char *key_of(const struct sim_fault *fault)
{
    static char key[16];

    snprintf(key, sizeof key, "lock:%s", sim_name(fault->which % plan->names));
    return key;
}

static struct sim_server *server_of(const struct sim_fault *fault)
{
    struct sim_server *server = sim_servers;

    int count = plan->servers + (sim_fault_is(fault->kind, SIM_AT_ANY) ? plan->sentinels : 0);
    int at = fault->which / plan->procs % count;

    if (plan->topology == SIM_CLUSTER && sim_fault_is(fault->kind, SIM_AT_KEY))
        return sim_cluster_owner(key_of(fault));
    if (plan->topology == SIM_QUORUM &&
        sim_fault_is(fault->kind, SIM_HARMS_A_VOTE)) { /* the same minority all the time, or all */
        int faulty = plan->in_turn ? plan->servers : (plan->servers - 1) / 2;
        at = (int)((plan->seed + (uint64_t)(fault->which / 2 % faulty)) % (uint64_t)plan->servers);
    }
    while (at-- > 0)
        server = server->next;
    return server;
}

static void on_begin(void *arg, uint64_t number)
{
    struct sim_server *server = arg;

    if (server->alive)
        return;
    sim_tell("server %d begins again", server->number);
    sim_server_begin(server, (enum sim_data)number);
    if (number != SIM_KEEPS)
        sim_judge_came_back();
}

/* In a quorum a majority stays up. */
static bool may_fall(const struct sim_server *server)
{
    int down = 0;

    if (plan->topology != SIM_QUORUM)
        return server->alive;
    for (struct sim_server *other = sim_servers; other; other = other->next)
        down += !other->alive;
    return server->alive && 2 * (down + 1) < plan->servers;
}

/* In a quorum: whether the master knows if it may vote. */
static bool knows_vote(struct sim_server *server)
{
    const struct sim_object *noted = sim_server_look(server, "dibs:vote");

    return noted && strncmp(noted->value, "new ", 4) != 0;
}

/* In a quorum: whether the master may vote, and knows which fence the next must be larger than. */
static bool may_vote(struct sim_server *server)
{
    const struct sim_object *noted = sim_server_look(server, "dibs:vote");
    long long from;
    char floor[24];

    return noted && sscanf(noted->value, "%lld %*s %*s %*s %23s", &from, floor) == 2 && floor[0] != '-' &&
           from <= sim_server_us(server);
}

/* A master that can be reached answers long before half a command timeout is over. */
static bool is_quick(void)
{
    const struct sim_network *network = &plan->network;

    return network->lost_chance == 0 && network->stuck_chance == 0 && network->silence_chance == 0 &&
           (network->slow_chance == 0 || network->slow_most < plan->command_timeout_ms * SIM_MS / 4);
}

/* A process may not reach the master now. */
static bool is_silent(const struct sim_server *server)
{
    bool silent = !server->alive || server->stopped_until > sim_now;

    for (int i = 0; i < SIM_CUT_OFF; i++)
        silent = silent || server->cut_off_until[i] > sim_now || server->silent_until[i] > sim_now;
    return silent;
}

/* Each process has opened the quorum, and no other will. */
static bool all_have_opened(void)
{
    /* A process whose threads all end, as those do that leave their locks behind, opens it once more. */
    bool all = !plan->shuts_down && plan->orphans == 0 && !sim_has_fault(SIM_FAULT_proc_kill);

    for (int i = 0; i < plan->procs; i++)
        all = all && sim_work_proc(i) && sim_work_proc(i)->runtimes > 0;
    return all;
}

/*
 * Less than half of a quorum may have forgotten. A process that opens a new quorum must reach all of it
 * (ARCHITECTURE.md, Known limits).
 */
static bool may_forget(const struct sim_server *server)
{
    bool is_new = false, silent = !is_quick();
    int empty = 1;

    if (plan->topology != SIM_QUORUM)
        return true;
    for (struct sim_server *other = sim_servers; other; other = other->next) {
        is_new = is_new || (!knows_vote(other) && !other->forgot);
        silent = silent || is_silent(other);
        /* Where clocks differ, fences may fall while one does not know its floor: see doc/GUARANTEES.md. */
        bool is_back = plan->in_turn && plan->skew_most > 0 ? may_vote(other) : knows_vote(other);
        empty += other != server && other->forgot && !is_back;
    }
    return 2 * empty < plan->servers && (!silent || !is_new || all_have_opened());
}

static void kill_server(const struct sim_fault *fault, enum sim_data data)
{
    struct sim_server *server = server_of(fault);

    if (!may_fall(server) || (data != SIM_KEEPS && !may_forget(server)))
        return;
    sim_judge_grants();
    sim_server_kill(server);
    server->forgot = server->forgot || data != SIM_KEEPS;
    sim_at(sim_now + fault->length / 4, on_begin, server, data);
}

static void on_right(void *arg, uint64_t number)
{
    ((struct sim_server *)arg)->denied = plan->denied;
}

/* A fault that happens now. */
struct happening {
    const struct sim_fault *fault;
    struct sim_server *server;
    struct sim_proc *proc; /* NULL: there is none */
    int64_t end;           /* of what lasts: not after the last fault */
};

static double chance_of(const struct sim_fault *fault)
{
    return 0.1 * (1 + fault->which % 10);
}

static void do_cut(const struct happening *now)
{
    sim_net_cut_all(now->server, chance_of(now->fault));
}

static void do_full(const struct happening *now)
{
    sim_net_cut_all(now->server, chance_of(now->fault) / 2);
    now->server->full_until = now->end;
}

static void do_half_open(const struct happening *now)
{
    sim_net_forget(now->server, chance_of(now->fault));
}

static void do_server_stop(const struct happening *now)
{
    if (now->server->stopped_until < sim_now)
        now->server->stopped_until = now->end;
}

static void do_server_kill(const struct happening *now)
{
    kill_server(now->fault, SIM_KEEPS);
}

static void do_server_lose(const struct happening *now)
{
    kill_server(now->fault, SIM_FORGETS);
}

static void do_server_recall(const struct happening *now)
{
    if (now->fault->which % 2)
        sim_server_save(now->server);
    else
        kill_server(now->fault, SIM_RECALLS);
}

static void do_cut_off(const struct happening *now)
{
    if (now->proc)
        now->server->cut_off_until[now->proc->number % SIM_CUT_OFF] = now->end;
}

static void do_deaf(const struct happening *now)
{
    if (now->proc)
        now->server->silent_until[now->proc->number % SIM_CUT_OFF] = now->end;
}

static void do_proc_stop(const struct happening *now)
{
    if (!now->proc || now->proc->stopped_until > sim_now)
        return;
    now->proc->stopped_until = now->end;
    sim_at(now->end, NULL, NULL, 0);
}

static void do_proc_kill(const struct happening *now)
{
    sim_work_kill(now->fault->which);
}

static void do_flushall(const struct happening *now)
{
    if (!now->server->alive || !may_forget(now->server))
        return;
    now->server->forgot = true;
    sim_judge_took(-1);
    sim_server_flush(now->server);
}

/* A client deletes the key, or the server evicts it. */
static void drop(struct sim_server *server, const char *key)
{
    if (sim_server_drop(server, key))
        sim_server_flush_clients(server);
}

static void do_del(const struct happening *now)
{
    if (!now->server->alive)
        return;
    sim_judge_took(now->fault->which % plan->names);
    drop(now->server, key_of(now->fault));
}

static void do_fence_evicted(const struct happening *now)
{
    char key[32];

    snprintf(key, sizeof key, "dibs:fence:{%s}", key_of(now->fault));
    if (now->server->alive)
        drop(now->server, key);
}

static void do_no_script(const struct happening *now)
{
    now->server->scripts = 0;
}

static void do_oom(const struct happening *now)
{
    now->server->no_memory_until = now->end;
}

static void do_no_right(const struct happening *now)
{
    now->server->denied |= 1u << now->fault->which % 5;
    sim_at(now->end, on_right, now->server, 0);
}

static void do_clock_step(const struct happening *now)
{
    now->server->offset += (now->fault->which % 2 ? 1 : -1) * now->fault->length * 10;
}

/* A command of a client without dibs. True: it changed something. */
static bool command(struct sim_server *server, const char *const *words, int count)
{
    struct bytes out = {NULL, 0, 0};
    struct sim_client nobody = {.server = server};

    sim_server_call(
        &(struct sim_call){.server = server, .client = &nobody, .words = words, .count = count, .out = &out});
    bool done = out.data[0] == '+' || (out.data[0] == ':' && out.data[1] != '0');
    free(out.data);
    return done;
}

static void do_foreign(const struct happening *now)
{
    char ms[16];
    int length = 20 + now->fault->which;

    snprintf(ms, sizeof ms, "%d", length);
    const char *words[] = {"SET", key_of(now->fault), "somebody", "PX", ms, "NX"};
    if (now->server->alive && command(now->server, words, 6))
        sim_judge_foreign(now->fault->which % plan->names, sim_now + length * SIM_MS);
}

static void do_touched(const struct happening *now)
{
    char ms[24];
    const struct sim_object *lock = sim_server_look(now->server, key_of(now->fault));

    if (!now->server->alive || !lock)
        return;
    snprintf(ms, sizeof ms, "%lld", (long long)(lock->expires - sim_server_us(now->server) / 1000 + 1));
    const char *words[] = {"PEXPIRE", key_of(now->fault), ms};
    command(now->server, words, 3);
}

static void do_failover(const struct happening *now)
{
    const struct sim_fault *fault = now->fault;

    if (fault->which % 3 == 0 && sim_sentinel_master()->alive) {
        sim_server_kill(sim_sentinel_master());
        sim_at(sim_now + fault->length, on_begin, sim_sentinel_master(), SIM_KEEPS);
    }
    sim_sentinel_fail_over(fault->which % 3 ? fault->length / 10 : fault->length + 300 * SIM_MS);
}

static void do_slot_move(const struct happening *now)
{
    const struct sim_fault *fault = now->fault;

    sim_cluster_move(key_of(fault), fault->which / SIM_NAMES, fault->length / 10 + SIM_MS, plan->last_fault);
}

static void on_fault(void *arg, uint64_t number)
{
    static void (*const effects[SIM_FAULT_KINDS])(const struct happening *) = {
#define SIM_FAULT_EFFECT(name, traits) [SIM_FAULT_##name] = do_##name,
        SIM_FAULT_MAP(SIM_FAULT_EFFECT)
#undef SIM_FAULT_EFFECT
    };
    const struct sim_fault *fault = arg;
    int64_t end = sim_now + fault->length < plan->last_fault ? sim_now + fault->length : plan->last_fault;

    sim_tell("FAULT %s %d, %.1f ms", sim_fault_name(fault->kind), fault->which, (double)fault->length / SIM_MS);
    sim_mix((uint64_t)fault->kind);
    effects[fault->kind](&(struct happening){fault, server_of(fault), sim_work_proc(fault->which), end});
}

/* After the last fault all is well. */
static void on_last(void *arg, uint64_t number)
{
    sim_tell("no more faults");
    sim_network =
        (struct sim_network){.delay = plan->network.delay, .jitter = plan->network.jitter, .until = SIM_NEVER};
    sim_schedule.stall_chance = 0;
    sim_scarce = 0;
    for (struct sim_server *server = sim_servers; server; server = server->next)
        on_begin(server, SIM_KEEPS);
}

static void begin_server(int number)
{
    struct sim_server *server = sim_server_new(number);

    server->rate = plan->server_rate;
    if (plan->has_delifeq)
        server->version = SIM_DELIFEQ;
    server->offset += plan->skew_most ? sim_between(SIM_FAULTS, 0, plan->skew_most) : 0;
    server->cost = plan->server_cost;
    server->denied = plan->denied;
    if (plan->topology != SIM_REPLICAS)
        return;
    server->replication_delay = plan->replication_delay;
    if (server != sim_servers)
        sim_server_follow(server, sim_servers);
}

void sim_plan_begin(const struct sim_plan *drawn)
{
    plan = drawn;
    if (plan->script_budget)
        sim_script_look_at(plan->script_budget);
    sim_network = plan->network;
    sim_network.until = plan->last_fault ? plan->last_fault : SIM_NEVER;
    sim_schedule = plan->schedule;
    sim_scarce = plan->scarce;
    for (int i = 1; i <= plan->servers; i++)
        begin_server(i);
    for (int i = 1; i <= plan->sentinels; i++)
        sim_sentinel_new(20 + i, sim_servers)->denied = plan->denied;
    if (plan->topology == SIM_CLUSTER)
        sim_cluster_begin(plan->servers);
    for (int i = 0; i < plan->fault_count; i++)
        sim_at(plan->faults[i].time, on_fault, (void *)(uintptr_t)&plan->faults[i], 0);
    if (plan->last_fault > 0)
        sim_at(plan->last_fault, on_last, NULL, 0);
}
