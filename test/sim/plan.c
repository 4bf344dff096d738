#include "plan.h"

#include <stdio.h>
#include <string.h>

const char *sim_fault_name(enum sim_fault_kind kind)
{
    static const char *const names[] = {
#define SIM_FAULT_NAME(name) #name,
        SIM_FAULT_MAP(SIM_FAULT_NAME)
#undef SIM_FAULT_NAME
    };

    return names[kind];
}

/* ---------------------------------------------------------------------- drawing */

static double often(double chance, double low, double high)
{
    return sim_chance(SIM_FAULTS, chance)
               ? (double)sim_between_log(SIM_FAULTS, (int64_t)(low * 1e9), (int64_t)(high * 1e9)) / 1e9
               : 0;
}

/* From the seed alone: what is drawn is the same as before for all else. */
static uint64_t hash_of(const struct sim_plan *drawn, uint64_t salt)
{
    uint64_t mixed = (drawn->seed + salt * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;

    return (mixed ^ mixed >> 29) * 0x94d049bb133111ebu >> 33;
}

/* In half of the runs, so that recorded seeds of the other half still give the same runs. */
static bool also(const struct sim_plan *drawn, uint64_t salt)
{
    return hash_of(drawn, 26) % 2 && hash_of(drawn, salt) % 4;
}

static void draw_network(struct sim_network *network)
{
    network->delay = sim_between_log(SIM_FAULTS, 10000, 2 * SIM_MS);
    network->jitter = sim_between_log(SIM_FAULTS, 1000, 2 * network->delay);
    network->slow_most = sim_between_log(SIM_FAULTS, SIM_MS, 3 * SIM_S);
    network->slow_chance = often(0.3, 0.0005, 0.1);
    network->cut_chance = often(0.3, 0.0002, 0.03);
    network->silence_chance = often(0.2, 0.0001, 0.005);
    network->silence_most = 3 * SIM_S;
    network->stuck_chance = often(0.15, 0.0005, 0.02);
    network->stuck_most = sim_between_log(SIM_FAULTS, 2 * SIM_MS, 2 * SIM_S);
    network->refuse_chance = often(0.15, 0.01, 0.3);
    network->lost_chance = often(0.15, 0.01, 0.3);
    network->short_chance = often(0.15, 0.001, 0.2);
}

static void draw_schedule(struct sim_schedule *schedule)
{
    schedule->point_mean = (double)sim_between_log(SIM_FAULTS, 20, 20000);
    schedule->stall_chance = often(0.4, 0.001, 0.2);
    schedule->stall_most = sim_between_log(SIM_FAULTS, 10000, 200 * SIM_MS);
}

bool sim_takes_data(const struct sim_plan *drawn, enum sim_fault_kind kind)
{
    switch (kind) {
    case SIM_FAULT_server_lose:
    case SIM_FAULT_server_recall:
    case SIM_FAULT_flushall:
    case SIM_FAULT_clock_step:
    case SIM_FAULT_del:
    case SIM_FAULT_fence_evicted:
    case SIM_FAULT_foreign:
        return drawn->topology != SIM_QUORUM; /* there a minority has it */
    case SIM_FAULT_failover:
        return true;
    default:
        return false;
    }
}

static bool fits(const struct sim_plan *drawn, enum sim_fault_kind kind)
{
    if (kind == SIM_FAULT_failover)
        return drawn->topology == SIM_REPLICAS;
    if (kind == SIM_FAULT_slot_move)
        return drawn->topology == SIM_CLUSTER;
    if (drawn->is_voting && kind == SIM_FAULT_no_right)
        return false;
    if (drawn->skew_most > 0 && kind == SIM_FAULT_fence_evicted) /* fences may fall: see doc/GUARANTEES.md */
        return false;
    /* Of a quorum's member a deleted lock is not promised to do no harm, nor, without INFO, older data. */
    return drawn->topology != SIM_QUORUM ||
           (kind != SIM_FAULT_del && (kind != SIM_FAULT_server_recall || drawn->is_voting));
}

static bool takes_what_it_knows(enum sim_fault_kind kind)
{
    return kind == SIM_FAULT_server_lose || kind == SIM_FAULT_server_recall || kind == SIM_FAULT_flushall;
}

bool sim_harms_a_vote(enum sim_fault_kind kind)
{
    return takes_what_it_knows(kind) || kind == SIM_FAULT_clock_step || kind == SIM_FAULT_fence_evicted;
}

/* Only the faults of its theme happen. */
static bool is_narrow(const struct sim_plan *drawn)
{
    return drawn->is_told || drawn->is_quiet || drawn->is_late || drawn->is_full;
}

/* A run in which some kinds of trouble come together, which rarely happens by chance. */
enum theme {
    ANY,
    LATE,
    IN_TURN,
    RESTARTS,
    TOLD,
    STOPS,
    CROWD,
    VOTES,
    KEPT,
    FOUNDING,
    THIN,
    RECALLED,
    MOVED,
    SEVERAL,
    EPISODE,
    HELD,
    FULL,
    SCARCE,
    ABSENT,
    TAKEN,
    THEMES
};
static const char *const theme_names[] = {"any",     "late", "turn",     "restarts", "told",     "stops", "crowd",
                                          "votes",   "kept", "founding", "thin",     "recalled", "moved", "several",
                                          "episode", "held", "full",     "scarce",   "absent",   "taken"};

/* A run in which nothing goes wrong but that processes do not hear the server, some of them while they keep leases. */
static bool is_kept_deaf(const struct sim_plan *drawn)
{
    return drawn->is_quiet && hash_of(drawn, 33) % 3 == 0;
}

static bool favours(const struct sim_plan *drawn, enum theme theme, enum sim_fault_kind kind)
{
    switch (theme) {
    case RESTARTS:
        return kind == SIM_FAULT_server_lose || kind == SIM_FAULT_server_kill || kind == SIM_FAULT_failover;
    case TOLD:
    case SEVERAL:
        return drawn->topology != SIM_QUORUM && (kind == SIM_FAULT_del || kind == SIM_FAULT_flushall ||
                                                 kind == SIM_FAULT_foreign || kind == SIM_FAULT_touched);
    case RECALLED:
        return kind == SIM_FAULT_server_recall || kind == SIM_FAULT_foreign;
    case FULL:
        return kind == SIM_FAULT_full;
    case MOVED:
        return kind == SIM_FAULT_slot_move;
    case IN_TURN:
        return kind == SIM_FAULT_proc_kill || kind == SIM_FAULT_no_script;
    case STOPS:
        return kind == SIM_FAULT_proc_stop || kind == SIM_FAULT_proc_kill;
    case LATE:
        return !drawn->is_late && (kind == SIM_FAULT_cut || kind == SIM_FAULT_half_open);
    case KEPT:
        if (is_kept_deaf(drawn))
            return kind == SIM_FAULT_deaf;
        if (drawn->is_quiet)
            return kind == (hash_of(drawn, 9) % 2 ? SIM_FAULT_proc_kill : SIM_FAULT_server_lose);
        return kind == SIM_FAULT_proc_stop || kind == SIM_FAULT_proc_kill || kind == SIM_FAULT_deaf ||
               kind == SIM_FAULT_cut || kind == SIM_FAULT_server_kill || kind == SIM_FAULT_failover;
    case VOTES: /* masters that forget, or whose clocks are set, and others that are out of reach of some */
        return sim_harms_a_vote(kind) || kind == SIM_FAULT_cut_off || (kind == SIM_FAULT_proc_kill && also(drawn, 15));
    case FOUNDING:
        return takes_what_it_knows(kind);
    case THIN:
        return takes_what_it_knows(kind) || kind == SIM_FAULT_clock_step ||
               (kind == SIM_FAULT_proc_kill && also(drawn, 15));
    default:
        return false;
    }
}

/* Answers that arrive after the command timeout. */
static void be_late(struct sim_plan *drawn)
{
    drawn->lease_ms = (uint32_t)sim_between_log(SIM_FAULTS, 150, sim_chance(SIM_FAULTS, 0.5) ? 800 : 15000);
    drawn->hold_most = (int64_t)(drawn->lease_ms < 1000 ? drawn->lease_ms * 3 : 1000) * SIM_MS;
    drawn->hold_least = 20 * SIM_MS;
    drawn->extends = 0.3;
    drawn->forces = sim_chance(SIM_FAULTS, 0.3) ? 0.1 : 0;
    drawn->command_timeout_ms = (uint32_t)sim_between(SIM_FAULTS, 40, 150);
    drawn->network.silence_chance = 0.003;
    drawn->network.stuck_chance = 0.04;
    drawn->network.stuck_most = drawn->command_timeout_ms * 2 * SIM_MS;
    drawn->network.silence_most = (int64_t)(drawn->lease_ms < 1000 ? drawn->lease_ms * 2 : 2000) * SIM_MS;
    if (sim_chance(SIM_FAULTS, 0.6))
        drawn->denied = SIM_DENIES_KILL;
    drawn->end = 6 * SIM_S;
    drawn->is_late = drawn->topology == SIM_ONE && hash_of(drawn, 17) % 2;
    if (!drawn->is_late)
        return;
    /* Only answers that break off, while the requests still arrive. */
    drawn->lease_ms += 5000;
    drawn->connect_timeout_ms = drawn->command_timeout_ms;
    drawn->denied = SIM_DENIES_KILL;
    drawn->forces = drawn->fixed = drawn->extends = 0;
    drawn->waits = 0.2;
}

/* All waits are fair, and little goes wrong. */
static void be_in_turn(struct sim_plan *drawn)
{
    drawn->is_calm = sim_chance(SIM_FAULTS, 0.5);
    drawn->lease_ms = (uint32_t)sim_between_log(SIM_FAULTS, 300, 10000);
    drawn->is_quiet = !drawn->is_calm;
    drawn->denied = 0;
    drawn->forces = drawn->extends = 0;
    drawn->command_timeout_ms = drawn->connect_timeout_ms = 1000;
    drawn->fair = drawn->topology == SIM_QUORUM ? 0 : 1;
    drawn->fixed = 0;
    drawn->handoff_ms = DIBS_NO_HANDOFF;
    drawn->hold_most = 300 * SIM_MS;
    drawn->hold_least = 5 * SIM_MS;
    drawn->pause_most = 100 * SIM_MS;
    drawn->waits = sim_chance(SIM_FAULTS, 0.5) ? 0.95 : 0.4;
    drawn->queries = hash_of(drawn, 18) % 2 ? 0.3 : drawn->queries;
    drawn->script_budget = hash_of(drawn, 19) % 3 ? 0 : 2;
    drawn->end = 4 * SIM_S;
}

/* Others take and delete locks, and the server tells of it. */
static void be_told(struct sim_plan *drawn)
{
    drawn->lease_ms = (uint32_t)sim_between_log(SIM_FAULTS, 8000, 30000);
    drawn->hold_least = 200 * SIM_MS;
    drawn->hold_most = 6 * SIM_S;
    drawn->denied = 0;
    drawn->is_told = drawn->topology == SIM_ONE || drawn->topology == SIM_QUORUM;
    drawn->forces = 0.05;
    drawn->fixed = drawn->extends = 0;
    if (drawn->topology == SIM_ONE && hash_of(drawn, 10) % 2) { /* a change comes while a renewal is under way */
        drawn->network.delay = SIM_MS;
        drawn->network.jitter = 20 * SIM_MS;
        drawn->handoff_ms = DIBS_NO_HANDOFF;
    }
    drawn->queries = hash_of(drawn, 18) % 2 ? 0.3 : drawn->queries;
    drawn->waits = 0.9;
    drawn->end = 10 * SIM_S;
    drawn->command_timeout_ms = drawn->connect_timeout_ms = 1000;
}

/* The same for calls that lock several names, by tasks that are cancelled. */
static void be_several(struct sim_plan *drawn)
{
    be_told(drawn);
    drawn->names = 4;
    drawn->nests = 0.5;
    drawn->queries = drawn->orphans = 0;
}

/* Many locks are released at once. */
static void be_crowded(struct sim_plan *drawn)
{
    drawn->topology = SIM_ONE;
    drawn->is_calm = true;
    drawn->procs = 2;
    drawn->threads = 3;
    drawn->names = 3;
    drawn->lease_ms = (uint32_t)sim_between_log(SIM_FAULTS, 300, 800);
    drawn->server_cost = drawn->lease_ms * 200;
    drawn->bursts = 0.3;
    drawn->fixed = drawn->orphans = drawn->extends = 0;
    drawn->hold_least = 500 * SIM_MS;
    drawn->hold_most = 2 * SIM_S;
    drawn->pause_most = 20 * SIM_MS;
    drawn->end = 3 * SIM_S;
    drawn->denied = 0;
}

/* A quorum whose masters come and go. */
static void be_voting(struct sim_plan *drawn)
{
    drawn->topology = SIM_QUORUM;
    drawn->is_voting = true;
    drawn->names = 1;
    drawn->procs = (int)sim_between(SIM_FAULTS, 2, 3);
    drawn->threads = 1;
    drawn->lease_ms = (uint32_t)sim_between_log(SIM_FAULTS, 600, 8000);
    drawn->hold_least = 10 * SIM_MS;
    drawn->hold_most = (int64_t)drawn->lease_ms * 3 / 2 * SIM_MS;
    drawn->pause_most = 200 * SIM_MS;
    drawn->command_timeout_ms = drawn->connect_timeout_ms = (uint32_t)sim_between(SIM_FAULTS, 100, 400);
    drawn->fixed = sim_chance(SIM_FAULTS, 0.3) ? 0.5 : 0;
    drawn->forces = 0;
    drawn->denied = 0;
    drawn->end = 4 * SIM_S + (int64_t)drawn->lease_ms * SIM_MS;
}

/* New masters that forget while some processes still take the quorum for new. */
static void be_founding(struct sim_plan *drawn)
{
    be_voting(drawn);
    drawn->procs = 3;
    drawn->lease_ms = (uint32_t)sim_between(SIM_FAULTS, 2000, 5000);
    drawn->hold_least = 500 * SIM_MS;
    drawn->hold_most = 2 * SIM_S;
    drawn->pause_most = SIM_MS;
    drawn->fixed = 0;
    drawn->orphans = 0; /* whoever leaves its locks behind opens once more */
    drawn->command_timeout_ms = 1000;
    drawn->network.slow_chance = 0.2;
    drawn->network.slow_most = 100 * SIM_MS;
    drawn->end = 3 * SIM_S;
}

/* Each process has the votes of a bare majority. */
static void be_thin(struct sim_plan *drawn)
{
    be_voting(drawn);
    drawn->procs = 3;
    drawn->lease_ms = (uint32_t)sim_between_log(SIM_FAULTS, 300, 4000);
    drawn->hold_least = 20 * SIM_MS;
    drawn->hold_most = (int64_t)drawn->lease_ms * SIM_MS + (sim_chance(SIM_FAULTS, 0.5) ? 2 * SIM_S : 0);
    drawn->pause_most = 20 * SIM_MS;
    drawn->waits = 1;
    drawn->odd_leases = 0.4;
}

/* The same, and all faults of the masters come one soon after the other, to the same few (draw_episode). */
static void be_episode(struct sim_plan *drawn)
{
    be_thin(drawn);
    drawn->lease_ms = (uint32_t)sim_between_log(SIM_FAULTS, 600, 8000);
    drawn->odd_leases = drawn->orphans = 0;
    drawn->shuts_down = false;
    drawn->fixed = sim_chance(SIM_FAULTS, 0.5) ? 0.5 : 0;
    drawn->hold_least = 100 * SIM_MS;
    drawn->hold_most = (int64_t)drawn->lease_ms * 2 * SIM_MS;
    drawn->pause_most = sim_chance(SIM_FAULTS, 0.7) ? 20 * SIM_MS : (int64_t)drawn->lease_ms * SIM_MS;
    drawn->command_timeout_ms = drawn->connect_timeout_ms = (uint32_t)sim_between_log(SIM_FAULTS, 400, 3000);
    drawn->in_turn = sim_chance(SIM_FAULTS, 0.33);
    drawn->looks_on = sim_chance(SIM_FAULTS, 0.3);
    drawn->end = 3 * SIM_S + (drawn->in_turn ? 5 : 2) * (int64_t)drawn->lease_ms * SIM_MS;
}

/*
 * Masters that forget (draw_absences: `in_turn`), or one whose clock is set (draw_unseen_steps), while others are
 * silent.
 */
static void be_absent(struct sim_plan *drawn)
{
    be_thin(drawn);
    drawn->in_turn = drawn->looks_on = sim_chance(SIM_FAULTS, 0.5);
    drawn->procs = 2;
    drawn->lease_ms = (uint32_t)sim_between_log(SIM_FAULTS, 300, 1500) + (drawn->in_turn ? 0 : 1000);
    drawn->odd_leases = drawn->orphans = drawn->fixed = drawn->bursts = 0;
    drawn->shuts_down = false;
    drawn->hold_least = drawn->in_turn ? SIM_MS : 100 * SIM_MS;
    drawn->hold_most = drawn->in_turn ? 100 * SIM_MS : SIM_S;
    drawn->pause_most = drawn->in_turn ? 100 * SIM_MS : 5 * SIM_S;
    drawn->command_timeout_ms = drawn->connect_timeout_ms = (uint32_t)sim_between_log(SIM_FAULTS, 100, 400);
    drawn->end = 20 * SIM_S;
}

/* Holds that outlast their leases, and nothing else happens. */
static void be_held(struct sim_plan *drawn)
{
    drawn->is_calm = true;
    drawn->threads = (int)sim_between(SIM_FAULTS, 1, 2);
    drawn->names = (int)sim_between(SIM_FAULTS, 1, 2);
    drawn->lease_ms = (uint32_t)sim_between_log(SIM_FAULTS, 100, 400);
    drawn->hold_least = SIM_MS;
    drawn->hold_most = (int64_t)drawn->lease_ms * 3 * SIM_MS;
    drawn->pause_most = 20 * SIM_MS;
    drawn->fixed = drawn->extends = 0;
    drawn->schedule.point_mean = (double)sim_between_log(SIM_FAULTS, 10, 300);
    drawn->end = 4 * SIM_S;
}

/* The server takes no more clients for a while, and there are waiters that give up. */
static void be_full(struct sim_plan *drawn)
{
    drawn->topology = SIM_ONE;
    drawn->servers = 1;
    drawn->sentinels = 0;
    drawn->min_replicas = 0;
    drawn->is_full = true;
    drawn->procs = 4;
    drawn->threads = 1;
    drawn->lease_ms = (uint32_t)sim_between_log(SIM_FAULTS, 5000, 30000);
    drawn->hold_least = 20 * SIM_MS;
    drawn->hold_most = 2 * SIM_S;
    drawn->pause_most = 5 * SIM_S;
    drawn->odd_leases = drawn->fixed = drawn->extends = drawn->forces = 0;
    drawn->denied = 0;
    drawn->waits = 0.2;
    drawn->command_timeout_ms = drawn->connect_timeout_ms = 1000;
    drawn->end = 8 * SIM_S;
}

/* A server comes back with older data, and clients without dibs come before the holders do. */
static void be_recalled(struct sim_plan *drawn)
{
    drawn->topology = SIM_ONE;
    drawn->is_quiet = true;
    drawn->names = 1;
    drawn->lease_ms = (uint32_t)sim_between_log(SIM_FAULTS, 1000, 10000);
    drawn->hold_least = 20 * SIM_MS;
    drawn->hold_most = SIM_S;
    drawn->pause_most = 500 * SIM_MS;
    drawn->fair = drawn->fixed = drawn->extends = drawn->forces = 0;
    drawn->denied = 0;
    drawn->command_timeout_ms = drawn->connect_timeout_ms = 1000;
    drawn->end = 8 * SIM_S;
}

/* Slots go from node to node, and nothing else happens. */
static void be_moved(struct sim_plan *drawn)
{
    drawn->topology = SIM_CLUSTER;
    drawn->servers = 3;
    drawn->sentinels = 0;
    drawn->min_replicas = 0;
    drawn->is_quiet = drawn->is_moved = true;
    drawn->lease_ms = (uint32_t)sim_between_log(SIM_FAULTS, 4000, 30000);
    drawn->odd_leases = 0;
    drawn->outage_ms = 5000;
    drawn->hold_least = SIM_MS;
    drawn->hold_most = 100 * SIM_MS;
    drawn->pause_most = 100 * SIM_MS;
    drawn->fixed = drawn->extends = drawn->forces = 0;
    drawn->denied = 0;
    drawn->handoff_ms = DIBS_NO_HANDOFF;
    drawn->waits = 0.9;
    drawn->command_timeout_ms = drawn->connect_timeout_ms = 1000;
    drawn->end = 6 * SIM_S;
}

/*
 * Until the last fault each process reaches a bare majority of the masters: in some runs those that may forget, and as
 * few of the others as possible. In some runs the last process reaches all.
 */
static void draw_thin(struct sim_plan *drawn, enum theme theme)
{
    int reach_all = theme == EPISODE || also(drawn, 24);
    int faulty = (drawn->servers - 1) / 2, first = (int)(drawn->seed % (uint64_t)drawn->servers);
    bool is_shared = also(drawn, 20);

    for (int proc = 0; (drawn->servers == 3 || also(drawn, 25)) && proc < drawn->procs - reach_all; proc++)
        for (int i = 0; i < faulty; i++) {
            int other = is_shared ? first + faulty + (proc + 1 + i) % (drawn->servers - faulty) : proc + i;
            drawn->faults[drawn->fault_count++] =
                (struct sim_fault){.time = SIM_S / 2,
                                   .kind = SIM_FAULT_cut_off,
                                   .which = proc + drawn->procs * (other % drawn->servers),
                                   .length = drawn->last_fault};
        }
}

/* A process mostly has a name for itself. */
static void be_kept(struct sim_plan *drawn)
{
    drawn->topology = sim_chance(SIM_FAULTS, 0.7) ? SIM_ONE : SIM_REPLICAS;
    drawn->servers = drawn->topology == SIM_ONE ? 1 : 3;
    drawn->sentinels = drawn->topology == SIM_REPLICAS ? 3 : 0;
    drawn->min_replicas = 0;
    drawn->is_calm = sim_chance(SIM_FAULTS, 0.2);
    drawn->is_quiet = drawn->topology == SIM_ONE && !drawn->is_calm && hash_of(drawn, 11) % 2;
    drawn->procs = (int)sim_between(SIM_FAULTS, 2, 3);
    drawn->threads = (int)sim_between(SIM_FAULTS, 1, 2);
    drawn->keep_ms = (uint32_t)sim_between_log(SIM_FAULTS, 5, 20000);
    drawn->lease_ms = (uint32_t)sim_between_log(SIM_FAULTS, 300, 10000);
    drawn->hold_least = SIM_MS / 100;
    drawn->hold_most = 5 * SIM_MS;
    drawn->pause_most = sim_between_log(SIM_FAULTS, SIM_MS, 300 * SIM_MS);
    if (is_kept_deaf(drawn)) { /* some are in use for as long as a lease, after they were kept for a while */
        drawn->lease_ms = (uint32_t)sim_between(SIM_FAULTS, 1000, 3000);
        drawn->keep_ms = (uint32_t)sim_between(SIM_FAULTS, 50, 120);
        drawn->command_timeout_ms = drawn->connect_timeout_ms = 2000;
        drawn->hold_least = SIM_MS;
        drawn->hold_most = drawn->lease_ms * SIM_MS;
        drawn->pause_most = drawn->keep_ms * SIM_MS;
        drawn->names = 2;
    }
    if (sim_chance(SIM_FAULTS, 0.1)) { /* so often that the fence is raised */
        drawn->keep_ms = 5000;
        drawn->hold_most = drawn->pause_most = SIM_MS / 50;
        drawn->calls_most = 12000;
    }
    drawn->fair = drawn->fixed = drawn->extends = drawn->orphans = 0;
    drawn->handoff_ms = 0;
    drawn->waits = 0.9;
    drawn->denied = 0;
    drawn->end = 6 * SIM_S;
}

/*
 * Kept leases are taken just when the store is to be told that nobody uses them, and some are then in use for longer
 * than a kept lease lasts. Threads are kept from running for a moment now and then, while nothing else goes wrong.
 */
static void be_taken(struct sim_plan *drawn)
{
    be_kept(drawn);
    drawn->is_calm = true;
    drawn->is_quiet = false;
    drawn->schedule.point_mean = 10;
    drawn->schedule.stall_chance = 0.3;
    drawn->schedule.stall_most = SIM_MS / 5;
    drawn->lease_ms = (uint32_t)sim_between(SIM_FAULTS, 1000, 3000);
    drawn->keep_ms = (uint32_t)sim_between(SIM_FAULTS, 5, 50);
    drawn->hold_least = SIM_MS;
    drawn->hold_most = drawn->lease_ms * SIM_MS;
    drawn->pause_most = 10 * SIM_MS;
    drawn->pause_mostly = 5 * SIM_MS;
    drawn->names = 2;
}

/* Short leases, and servers that restart. */
static void be_restarted(struct sim_plan *drawn)
{
    drawn->lease_ms = (uint32_t)sim_between_log(SIM_FAULTS, 100, 1500);
    drawn->hold_most = (int64_t)drawn->lease_ms * 2 * SIM_MS;
    drawn->hold_least = SIM_MS;
    drawn->denied = 0;
}

/* Processes are stopped. */
static void be_stopped(struct sim_plan *drawn)
{
    be_restarted(drawn);
    if (sim_chance(SIM_FAULTS, 0.7)) { /* a stop after an answer that took long */
        drawn->network.slow_chance = 0.2;
        drawn->network.slow_most = drawn->lease_ms * SIM_MS;
        drawn->command_timeout_ms = 1000;
        drawn->names = 1;
    }
}

/* Processes that get no memory now and then, or mostly. */
static void be_scarce(struct sim_plan *drawn)
{
    drawn->scarce = (double)sim_between_log(SIM_FAULTS, 1, 300) / 1000;
    drawn->end = 3 * SIM_S;
}

static void apply_theme(struct sim_plan *drawn, enum theme theme)
{
    static void (*const themes[THEMES])(struct sim_plan *) = {
        [LATE] = be_late,         [IN_TURN] = be_in_turn, [RESTARTS] = be_restarted, [TOLD] = be_told,
        [STOPS] = be_stopped,     [CROWD] = be_crowded,   [VOTES] = be_voting,       [KEPT] = be_kept,
        [FOUNDING] = be_founding, [THIN] = be_thin,       [RECALLED] = be_recalled,  [MOVED] = be_moved,
        [SEVERAL] = be_several,   [EPISODE] = be_episode, [HELD] = be_held,          [FULL] = be_full,
        [SCARCE] = be_scarce,     [ABSENT] = be_absent,   [TAKEN] = be_taken,
    };

    if (theme == ANY)
        return;
    drawn->procs = (int)sim_between(SIM_FAULTS, 2, 4);
    drawn->threads = (int)sim_between(SIM_FAULTS, 1, 3);
    drawn->names = (int)sim_between(SIM_FAULTS, 1, 3);
    drawn->bursts = 0;
    themes[theme](drawn);
}

/* A step that makes no request late; and each second one sets the clock right again. */
static void draw_step(const struct sim_plan *drawn, struct sim_fault *step, int number)
{
    const struct sim_fault *before =
        number % 2 && drawn->fault_count > 0 ? &drawn->faults[drawn->fault_count - 1] : NULL;

    step->length = drawn->command_timeout_ms * sim_between(SIM_FAULTS, SIM_MS / 100, SIM_MS / 10);
    if (!before || before->kind != step->kind)
        return;
    step->length = before->length;
    step->which = before->which - before->which % 2 + 1 - before->which % 2;
    step->time = before->time + sim_between_log(SIM_FAULTS, SIM_MS, SIM_S);
}

/* The number-th fault of its kind comes when it does the most harm. */
static void fit_to_theme(const struct sim_plan *drawn, enum theme theme, struct sim_fault *fault, int number)
{
    if (drawn->is_voting && fault->kind == SIM_FAULT_clock_step && also(drawn, 21))
        draw_step(drawn, fault, number);
    if (theme == VOTES && fault->kind == SIM_FAULT_cut_off) /* an ask of the process lacks that vote meanwhile */
        fault->length = (int64_t)drawn->lease_ms * sim_between(SIM_FAULTS, SIM_MS / 2, 3 * SIM_MS);
    if (theme == STOPS) /* about as long as a lease, so that it ends meanwhile, or just not */
        fault->length = (int64_t)drawn->lease_ms * sim_between(SIM_FAULTS, SIM_MS / 2, 3 * SIM_MS / 2);
    if (theme == FOUNDING && takes_what_it_knows(fault->kind)) {
        fault->time = sim_between_log(SIM_FAULTS, 20 * SIM_MS, 400 * SIM_MS);
        fault->length = sim_between_log(SIM_FAULTS, SIM_MS, 20 * SIM_MS);
    }
    if (theme == RECALLED && fault->kind == SIM_FAULT_foreign &&
        number < drawn->fault_count) /* before holders are back */
        fault->time = drawn->faults[number].time + drawn->faults[number].length / 4 +
                      sim_between_log(SIM_FAULTS, 1000, 20 * SIM_MS);
    if (fault->kind == SIM_FAULT_touched && number < drawn->fault_count) { /* just before another client takes it */
        fault->which = drawn->faults[number].which;
        fault->time = drawn->faults[number].time - sim_between_log(SIM_FAULTS, SIM_MS / 10, 60 * SIM_MS);
    }
    if (theme == KEPT && fault->kind == SIM_FAULT_deaf)
        fault->length = (int64_t)drawn->lease_ms * sim_between(SIM_FAULTS, SIM_MS / 5, 3 * SIM_MS / 2);
    if (theme == FULL)
        fault->length = sim_between_log(SIM_FAULTS, SIM_S, 5 * SIM_S);
    if (theme == MOVED) /* any state in which a slot is in two parts is over soon */
        fault->length = sim_between_log(SIM_FAULTS, SIM_MS, 400 * SIM_MS);
}

/*
 * The clock of a master is set, by so much that each process notices: forward; or back, and by the next step right
 * again. Not forward and right again, which nobody notices whom the master did not tell its time in between. Where
 * processes begin meanwhile, it is set back first, and further than a look may be old: see the table in
 * doc/GUARANTEES.md.
 */
static void draw_noticed_step(const struct sim_plan *drawn, bool begins, struct sim_fault *step)
{
    const struct sim_fault *first = NULL;
    int count = 0;

    for (int i = drawn->fault_count - 1; i >= 0; i--)
        if (drawn->faults[i].kind == SIM_FAULT_clock_step) {
            first = &drawn->faults[i];
            count++;
        }
    step->length = 20 * SIM_MS + drawn->lease_ms * sim_between(SIM_FAULTS, 0, SIM_MS / 5);
    if (first) {
        step->which = begins && count % 2 == 0 ? first->which : first->which | 1;
        step->length = first->length;
    } else if (begins) {
        step->which &= ~1;
        step->length = sim_between(SIM_FAULTS, SIM_S, 3 * SIM_S);
    }
}

/* A snapshot that is brought back was made by the recall before, at the same master. */
static void draw_recall(const struct sim_plan *drawn, struct sim_fault *recall)
{
    recall->which &= ~1;
    for (int i = 0; i < drawn->fault_count; i++)
        if (drawn->faults[i].kind == recall->kind)
            recall->which = drawn->faults[i].which | 1;
}

/*
 * Some faults of the same minority of the masters; in a third of the runs all masters forget, one about a lease after
 * the other. In half of the runs processes begin again meanwhile, in some of the others they stand still.
 */
static void draw_episode(struct sim_plan *drawn)
{
    static const enum sim_fault_kind kinds[] = {SIM_FAULT_server_lose, SIM_FAULT_flushall, SIM_FAULT_server_recall,
                                                SIM_FAULT_clock_step, SIM_FAULT_clock_step};
    int64_t time = sim_between(SIM_FAULTS, SIM_S, 2 * SIM_S), lease = drawn->lease_ms * SIM_MS;
    bool begins = sim_chance(SIM_FAULTS, 0.5), stands = !begins && sim_chance(SIM_FAULTS, 0.6);

    for (int left = (int)sim_between(SIM_FAULTS, 1, 6); left > 0; left--) {
        struct sim_fault fault = {.time = time,
                                  .kind = kinds[sim_between(SIM_FAULTS, 0, drawn->in_turn ? 1 : 4)],
                                  .which = (int)sim_between(SIM_FAULTS, 0, 1000),
                                  .length = sim_between_log(SIM_FAULTS, SIM_MS, 200 * SIM_MS)};
        if (drawn->in_turn)
            fault.which = 2 * left;
        else if (begins && sim_chance(SIM_FAULTS, 0.4))
            fault.kind = SIM_FAULT_proc_kill;
        if (fault.kind == SIM_FAULT_clock_step)
            draw_noticed_step(drawn, begins, &fault);
        if (fault.kind == SIM_FAULT_server_recall)
            draw_recall(drawn, &fault);
        drawn->faults[drawn->fault_count++] = fault;
        if (stands && sim_chance(SIM_FAULTS, 0.5))
            drawn->faults[drawn->fault_count++] =
                (struct sim_fault){.time = time - sim_between_log(SIM_FAULTS, SIM_MS, 500 * SIM_MS),
                                   .kind = SIM_FAULT_proc_stop,
                                   .which = (int)sim_between(SIM_FAULTS, 0, 1000),
                                   .length = lease * sim_between(SIM_FAULTS, 2, 15) / 10};
        time += drawn->in_turn ? SIM_S + lease * sim_between(SIM_FAULTS, 6, 14) / 10
                               : sim_between_log(SIM_FAULTS, SIM_MS, lease);
    }
}

static void add_fault(struct sim_plan *drawn, int64_t time, enum sim_fault_kind kind, int which, int64_t length)
{
    drawn->faults[drawn->fault_count++] =
        (struct sim_fault){.time = time, .kind = kind, .which = which, .length = length};
}

/* The master so many behind the first of those that may forget (server_of) is silent. */
static void add_silence(struct sim_plan *drawn, int64_t time, int behind, int64_t length)
{
    int server = (int)((drawn->seed + (uint64_t)behind) % (uint64_t)drawn->servers);

    add_fault(drawn, time, SIM_FAULT_server_stop, drawn->procs * server, length);
}

/*
 * While one master is silent, another forgets, which waits for about a second and a lease until it may vote again. It
 * does when the first is back, and a little later the third is silent. The process that locks stands still all the
 * time, while one that looks on admits the master. So a lock may be granted by masters of which one forgot the grant
 * before, and the other never knew it.
 */
static void draw_absences(struct sim_plan *drawn)
{
    int64_t time = SIM_S, lease = drawn->lease_ms * SIM_MS;

    for (int turn = 0; turn < 3; turn++) {
        int which = (int)sim_between(SIM_FAULTS, 0, 2), absent = (int)sim_between(SIM_FAULTS, 1, 2);
        int64_t known = sim_between(SIM_FAULTS, 300 * SIM_MS, SIM_S), wait = SIM_S + lease * 11 / 10,
                back = sim_between(SIM_FAULTS, 1500 * SIM_MS, 3 * SIM_S);

        add_silence(drawn, time, which + absent, known + wait);
        add_fault(drawn, time + known - SIM_MS, SIM_FAULT_proc_stop, 0, wait + back);
        add_fault(drawn, time + known, sim_chance(SIM_FAULTS, 0.5) ? SIM_FAULT_server_lose : SIM_FAULT_flushall,
                  2 * which, sim_between_log(SIM_FAULTS, SIM_MS, 200 * SIM_MS));
        time += known + wait + back;
        add_silence(drawn, time - 2 * SIM_MS, which + 3 - absent, SIM_S);
        time += 2 * SIM_S;
    }
}

/*
 * The clock of a master is set back, by more than looks are apart, and right again. One process begins in between, the
 * other stands still all the time. Of the other masters one is silent meanwhile, and the third afterwards.
 */
static void draw_unseen_steps(struct sim_plan *drawn)
{
    int64_t time = 3 * SIM_S;

    for (int turn = 0; turn < 4; turn++) {
        int absent = (int)sim_between(SIM_FAULTS, 1, 2);
        int64_t length = sim_between(SIM_FAULTS, 500 * SIM_MS, 1200 * SIM_MS), back = 250 * SIM_MS + length / 4;

        add_fault(drawn, time, SIM_FAULT_proc_stop, 1, length);
        add_fault(drawn, time + 2 * SIM_MS, SIM_FAULT_clock_step, 0, back);
        add_fault(drawn, time + 3 * SIM_MS, SIM_FAULT_proc_kill, 0, 0);
        add_silence(drawn, time + sim_between(SIM_FAULTS, 20 * SIM_MS, 200 * SIM_MS), absent, length / 2);
        add_fault(drawn, time + length - SIM_MS, SIM_FAULT_clock_step, 1, back);
        add_silence(drawn, time + length - SIM_MS, 3 - absent, SIM_S);
        time += length + drawn->lease_ms * 2 * SIM_MS + 2 * SIM_S;
    }
}

static void draw_faults(struct sim_plan *drawn, enum theme theme)
{
    if (theme == ABSENT) {
        (drawn->in_turn ? draw_absences : draw_unseen_steps)(drawn);
        return;
    }
    if (theme == THIN || theme == EPISODE)
        draw_thin(drawn, theme);
    if (theme == EPISODE) {
        draw_episode(drawn);
        return;
    }
    for (int kind = 0; kind < SIM_FAULT_KINDS; kind++) {
        bool chosen = sim_chance(SIM_FAULTS, is_narrow(drawn) ? 0
                                             : theme == ANY   ? 0.18
                                                              : 0.03) ||
                      (favours(drawn, theme, (enum sim_fault_kind)kind) && sim_chance(SIM_FAULTS, 0.7));
        chosen = chosen || (kind == SIM_FAULT_slot_move && sim_chance(SIM_FAULTS, 0.8));
        int count = (int)sim_between_log(SIM_FAULTS, favours(drawn, theme, (enum sim_fault_kind)kind) ? 4 : 1, 16);
        if (theme == KEPT && is_kept_deaf(drawn))
            count = 1 + count % 4;
        if (sim_harms_a_vote((enum sim_fault_kind)kind) && drawn->is_voting &&
            also(drawn, 27)) /* so few that masters that forgot may vote again */
            count = count > 2 ? 2 : count;
        for (int i = 0; i < count; i++) {
            struct sim_fault fault = {.time = sim_between(SIM_FAULTS, 20 * SIM_MS, drawn->last_fault),
                                      .kind = (enum sim_fault_kind)kind,
                                      .which = (int)sim_between(SIM_FAULTS, 0, 1000),
                                      .length = sim_between_log(SIM_FAULTS, SIM_MS, 5 * SIM_S)};
            fit_to_theme(drawn, theme, &fault, i);
            bool is_early = drawn->topology == SIM_QUORUM && sim_harms_a_vote(fault.kind) &&
                            !takes_what_it_knows(fault.kind) && fault.time < SIM_S;
            if (!chosen || is_early || !fits(drawn, fault.kind) || drawn->fault_count == SIM_FAULTS_MOST)
                continue;
            drawn->faults[drawn->fault_count++] = fault;
            drawn->loses_data = drawn->loses_data || sim_takes_data(drawn, fault.kind);
        }
    }
}

static void draw_work(struct sim_plan *drawn)
{
    drawn->procs = (int)sim_between(SIM_FAULTS, 1, 4);
    drawn->threads = (int)sim_between_log(SIM_FAULTS, 1, 6);
    drawn->names = (int)sim_between_log(SIM_FAULTS, 1, SIM_NAMES);
    drawn->lease_ms = (uint32_t)(sim_chance(SIM_FAULTS, 0.3) ? sim_between_log(SIM_FAULTS, 20, 30000)
                                                             : sim_between_log(SIM_FAULTS, 100, 1500));
    drawn->end = sim_between_log(SIM_FAULTS, 300 * SIM_MS, 8 * SIM_S);
    drawn->calls_most = 3000;
    drawn->odd_leases = 0.1;
    drawn->command_timeout_ms = (uint32_t)sim_between_log(SIM_FAULTS, 50, 1000);
    drawn->connect_timeout_ms = (uint32_t)sim_between_log(SIM_FAULTS, 50, 1000);
    drawn->outage_ms = (uint32_t)sim_between_log(SIM_FAULTS, 100, 5000);
    drawn->handoff_ms = sim_chance(SIM_FAULTS, 0.4) ? DIBS_NO_HANDOFF : sim_chance(SIM_FAULTS, 0.3) ? 200 : 0;
    drawn->spin_us = sim_chance(SIM_FAULTS, 0.1) ? 100 : DIBS_NO_SPIN;
    int64_t cycle = drawn->end * drawn->procs * drawn->threads / sim_between_log(SIM_FAULTS, 60, 1200);
    drawn->hold_least = 1000;
    drawn->hold_most = SIM_MS / 2 + cycle * sim_between(SIM_FAULTS, 1, 9) / 2;
    drawn->pause_most = SIM_MS / 10 + cycle * sim_between(SIM_FAULTS, 0, 6) / 2;
    drawn->server_cost = sim_between_log(SIM_FAULTS, 200, 10000);
    drawn->shuts_down = sim_chance(SIM_FAULTS, 0.1);
    drawn->has_events = sim_chance(SIM_FAULTS, 0.3);
    if (sim_chance(SIM_FAULTS, 0.3))
        drawn->denied = (unsigned)(sim_draw(SIM_FAULTS) & sim_draw(SIM_FAULTS)) % 32;
    drawn->fair = often(0.4, 0.05, 1);
    drawn->fixed = often(0.2, 0.05, 0.5);
    drawn->extends = often(0.3, 0.02, 0.3);
    drawn->nests = often(0.3, 0.02, 0.3);
    drawn->forces = often(0.15, 0.002, 0.05);
    drawn->queries = often(0.3, 0.01, 0.3);
    drawn->orphans = often(0.2, 0.01, 0.2);
    drawn->waits = sim_chance(SIM_FAULTS, 0.5) ? 0.9 : 0.2;
}

static void draw_tasks(struct sim_plan *drawn, enum theme theme)
{
    drawn->tasks = often(0.4, 0.3, 2);
    drawn->begins = often(0.8, 0.1, 1);
    drawn->cancels = drawn->tasks > 0 ? often(0.6, 0.02, 0.3) : 0;
    if (theme != SEVERAL || drawn->procs % 2)
        return;
    drawn->tasks = 1;
    drawn->cancels = 0.1;
}

static const struct sim_plan benchmark = {
    .servers = 1,
    .procs = 4,
    .threads = 4,
    .names = 4,
    .end = 30 * SIM_S,
    .calls_most = 1000000,
    .lease_ms = 1000,
    .command_timeout_ms = 1000,
    .connect_timeout_ms = 1000,
    .outage_ms = 5000,
    .spin_us = DIBS_NO_SPIN,
    .hold_least = 200 * SIM_MS,
    .hold_most = 800 * SIM_MS,
    .pause_most = SIM_MS,
    .waits = 1,
    .is_calm = true,
    .server_rate = 1,
    .network = {.delay = 100000, .jitter = 100000},
    .schedule = {1000, 0, 0},
};

static bool is_named(const char *only, const char *name)
{
    return only && strcmp(only, name) == 0;
}

uint32_t sim_lease_ms(const struct sim_plan *drawn, int proc)
{
    return drawn->is_voting && also(drawn, 23) && proc % 2 ? drawn->lease_ms / 4 + 20 : drawn->lease_ms;
}

uint32_t sim_limit(const struct sim_plan *drawn, int name)
{
    uint32_t limit = (uint32_t)(hash_of(drawn, (uint64_t)name + 7) % 5);

    return drawn->topology == SIM_QUORUM ? limit % 2 : limit;
}

static enum sim_topology draw_topology(const char *only)
{
    int64_t draw = sim_between(SIM_FAULTS, 0, 99);

    return is_named(only, "one")        ? SIM_ONE
           : is_named(only, "quorum")   ? SIM_QUORUM
           : is_named(only, "replicas") ? SIM_REPLICAS
           : is_named(only, "cluster")  ? SIM_CLUSTER
           : draw < 12                  ? SIM_CLUSTER
           : draw < 60                  ? SIM_ONE
           : draw < 80                  ? SIM_QUORUM
                                        : SIM_REPLICAS;
}

static enum theme draw_theme(const struct sim_plan *drawn, const char *only)
{
    enum theme theme = sim_chance(SIM_FAULTS, 0.3) ? ANY : (enum theme)sim_between(SIM_FAULTS, 1, CROWD);

    if (drawn->topology == SIM_QUORUM && sim_chance(SIM_FAULTS, 0.5))
        theme = hash_of(drawn, 38) % 5 == 0 ? ABSENT
                                            : (enum theme[]){FOUNDING, THIN, EPISODE, VOTES}[hash_of(drawn, 8) % 4];
    else if (drawn->topology == SIM_ONE && hash_of(drawn, 8) % 4 == 0)
        theme = hash_of(drawn, 12) % 2 == 0 ? RECALLED : hash_of(drawn, 41) % 5 ? KEPT : TAKEN;
    else if (drawn->topology == SIM_ONE && hash_of(drawn, 14) % 12 == 0)
        theme = SEVERAL;
    else if ((drawn->topology == SIM_ONE || drawn->topology == SIM_QUORUM) && hash_of(drawn, 31) % 16 == 0)
        theme = hash_of(drawn, 32) % 2 || drawn->topology == SIM_QUORUM ? HELD : FULL;
    else if (drawn->topology == SIM_CLUSTER && hash_of(drawn, 8) % 2)
        theme = MOVED;
    else if (theme == ANY && hash_of(drawn, 36) % 8 == 0)
        theme = SCARCE;
    for (int i = 0; i < THEMES; i++)
        theme = is_named(only, theme_names[i]) ? (enum theme)i : theme;
    if (theme == CROWD && !only && sim_chance(SIM_FAULTS, 0.85)) /* it takes long */
        theme = ANY;
    return theme;
}

/* Which kinds of locks there are, beside the plain ones. */
static void draw_kinds(struct sim_plan *drawn, enum theme theme)
{
    bool is_kept = theme == KEPT || theme == TAKEN;

    if (!is_kept && hash_of(drawn, 3) % 8 == 0)
        drawn->keep_ms = (uint32_t)(1 + hash_of(drawn, 4) % 300);
    if (theme != IN_TURN && hash_of(drawn, 5) % (theme == TOLD ? 2 : 8) == 0)
        drawn->several = (double)(1 + hash_of(drawn, 6) % 5) / 10;
    if (theme == SEVERAL)
        drawn->several = 0.7;
    drawn->shared = is_kept || (theme == TOLD && drawn->topology == SIM_QUORUM) || hash_of(drawn, 1) % 3 > 0
                        ? 0
                        : (double)(1 + hash_of(drawn, 2) % 9) / 10;
}

/* A run in which nothing goes wrong, but that threads may be kept from running for a moment. */
static void calm(struct sim_plan *drawn, enum theme theme)
{
    drawn->network = (struct sim_network){.delay = drawn->network.delay,
                                          .jitter = drawn->network.jitter / 2,
                                          .short_chance = drawn->network.short_chance};
    if (theme != TAKEN)
        drawn->schedule.stall_chance = 0;
    drawn->min_replicas = 0;
    drawn->last_fault = 0;
    drawn->forces = 0;
    drawn->denied = 0;
    drawn->command_timeout_ms = drawn->connect_timeout_ms = 1000;
    drawn->lease_ms = drawn->lease_ms < 100 ? 100 : drawn->lease_ms;
}

/* The network of a run in which only certain things go wrong. */
static void narrow(struct sim_plan *drawn, enum theme theme)
{
    bool is_even =
        drawn->is_voting && theme != FOUNDING && (theme == EPISODE || theme == ABSENT || sim_chance(SIM_FAULTS, 0.6));
    bool is_stuck = drawn->is_late || (is_even && also(drawn, 22) && !also(drawn, 16));

    if (!is_narrow(drawn) && !is_even)
        return;
    drawn->network = (struct sim_network){.delay = drawn->network.delay,
                                          .jitter = drawn->network.jitter / 2,
                                          .stuck_chance = is_stuck ? 0.05 : 0,
                                          .stuck_most = is_stuck ? SIM_S : 0};
    drawn->schedule.stall_chance = 0;
}

void sim_plan_draw(struct sim_plan *out, uint64_t seed, const char *only)
{
    *out = (struct sim_plan){.seed = seed, .server_rate = 1};
    if (is_named(only, "benchmark")) {
        *out = benchmark;
        out->seed = seed;
        return;
    }
    out->topology = draw_topology(only);
    out->sentinels = out->topology == SIM_REPLICAS ? 3 : 0;
    out->replication_delay = sim_between_log(SIM_FAULTS, 100000, 100 * SIM_MS);
    out->min_replicas = out->topology == SIM_REPLICAS && sim_chance(SIM_FAULTS, 0.3);
    out->servers = out->topology == SIM_QUORUM ? (sim_chance(SIM_FAULTS, 0.6) ? 3 : 5)
                   : out->topology == SIM_ONE  ? 1
                                               : 3;
    enum theme theme = draw_theme(out, only);
    out->is_calm = theme == ANY && sim_chance(SIM_FAULTS, 0.2);
    draw_work(out);
    draw_network(&out->network);
    draw_schedule(&out->schedule);
    apply_theme(out, theme);
    draw_tasks(out, theme);
    out->has_delifeq = also(out, 30);
    out->schedule.spurious = hash_of(out, 34) % 3 == 0 ? (double)(1 + hash_of(out, 35) % 20) / 100 : 0;
    /* Where a majority forgets its fences, they may fall if the others' clocks are behind: see doc/GUARANTEES.md. */
    if (out->is_voting && (theme == ABSENT || (!out->in_turn && (theme == EPISODE || hash_of(out, 13) % 2))))
        out->skew_most = 20 * SIM_S;
    if (theme == CROWD || theme == RECALLED || out->is_voting) {
        out->servers = !out->is_voting ? 1 : sim_chance(SIM_FAULTS, 0.8) ? 3 : 5;
        if (theme == THIN && also(out, 25) && !also(out, 29))
            out->servers = 5;
        out->sentinels = 0;
        out->min_replicas = 0;
    }
    out->last_fault = out->end * (theme == EPISODE || theme == ABSENT ? 90 : sim_between(SIM_FAULTS, 30, 90)) / 100;
    if (out->topology == SIM_QUORUM)
        out->fair = 0;
    draw_kinds(out, theme);
    narrow(out, theme);
    if (out->is_calm) {
        calm(out, theme);
        return;
    }
    if (!is_narrow(out) && sim_chance(SIM_FAULTS, theme == STOPS || theme == LATE ? 0.7 : 0.3))
        out->server_rate = sim_chance(SIM_FAULTS, 0.5) ? 1.009 : 0.991;
    draw_faults(out, theme);
    out->well_from = out->is_told || theme == MOVED || out->is_late ? 0 : out->last_fault;
    out->loses_data = out->loses_data || out->forces > 0;
}

void sim_plan_cut(struct sim_plan *cut, const struct sim_cut *by)
{
    int kept = 0;

    for (int i = 0; i < cut->fault_count; i++)
        if (!(by->without >> i & 1))
            cut->faults[kept++] = cut->faults[i];
    cut->fault_count = kept;
    if (by->threads)
        cut->threads = by->threads;
    if (by->procs)
        cut->procs = by->procs;
    if (by->names)
        cut->names = by->names;
    if (by->quiet_network)
        cut->network = (struct sim_network){.delay = cut->network.delay, .jitter = cut->network.jitter};
    if (by->quiet_schedule)
        cut->schedule.stall_chance = cut->schedule.spurious = 0;
}

void sim_plan_print(const struct sim_plan *drawn)
{
    static const char *const topologies[] = {"one server", "replicas", "a quorum", "a cluster"};

    printf("seed %llu: %s (%d), %d processes of %d threads, %d names, leases of %u ms, %.1f s; "
           "timeouts %u and %u ms, outage %u ms, spin %u; delay %.2f ms; a change each %.0f points, stalls %.3f up to "
           "%.1f ms, %.2f spurious%s\n",
           (unsigned long long)drawn->seed, topologies[drawn->topology], drawn->servers, drawn->procs, drawn->threads,
           drawn->names, drawn->lease_ms, (double)drawn->end / SIM_S, drawn->connect_timeout_ms,
           drawn->command_timeout_ms, drawn->outage_ms, drawn->spin_us, (double)drawn->network.delay / SIM_MS,
           drawn->schedule.point_mean, drawn->schedule.stall_chance, (double)drawn->schedule.stall_most / SIM_MS,
           drawn->schedule.spurious,
           drawn->is_calm      ? "; calm"
           : drawn->loses_data ? "; data is lost"
                               : "");
    printf("  network: slow %.4f (to %.0f ms), cut %.4f, silent %.4f, refused %.2f, lost %.2f, short %.3f; rate %.3f\n",
           drawn->network.slow_chance, (double)drawn->network.slow_most / SIM_MS, drawn->network.cut_chance,
           drawn->network.silence_chance, drawn->network.refuse_chance, drawn->network.lost_chance,
           drawn->network.short_chance, drawn->server_rate);
    printf(
        "  work: holds %.1f ms, pauses %.1f ms, fair %.2f fixed %.2f extends %.2f nests %.2f forces %.3f queries %.2f "
        "orphans %.2f waits %.1f handoff %u replicas %u denied %x bursts %.3f cost %.3f "
        "tasks %.2f begins %.2f cancels %.2f shared %.1f several %.1f keeps %u ms\n",
        (double)drawn->hold_most / SIM_MS, (double)drawn->pause_most / SIM_MS, drawn->fair, drawn->fixed,
        drawn->extends, drawn->nests, drawn->forces, drawn->queries, drawn->orphans, drawn->waits, drawn->handoff_ms,
        drawn->min_replicas, drawn->denied, drawn->bursts, (double)drawn->server_cost / SIM_MS, drawn->tasks,
        drawn->begins, drawn->cancels, drawn->shared, drawn->several, drawn->keep_ms);
    for (int i = 0; i < drawn->fault_count; i++)
        printf("  fault %d: %.3f s %s %d, %.1f ms\n", i, (double)drawn->faults[i].time / SIM_S,
               sim_fault_name(drawn->faults[i].kind), drawn->faults[i].which, (double)drawn->faults[i].length / SIM_MS);
}
