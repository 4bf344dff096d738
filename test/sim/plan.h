/*
 * The plan of a run: everything that happens in it, drawn from its seed before the run begins. Each kind of fault is
 * absent from most runs, and frequent in some.
 */
#ifndef SIM_PLAN_H
#define SIM_PLAN_H

#include "server.h"

#define SIM_PROCS_MOST 5
#define SIM_NAMES 12
#define SIM_CROWD 1000 /* names of a burst */
#define SIM_FAULTS_MOST 64

enum sim_topology { SIM_ONE, SIM_REPLICAS, SIM_QUORUM, SIM_CLUSTER };

#define SIM_FAULT_MAP(XX)                                                                                              \
    XX(cut)           /* connections are reset */                                                                      \
    XX(half_open)     /* the server loses connections, and nobody tells the processes */                               \
    XX(server_stop)   /* a server does not answer for a while */                                                       \
    XX(server_kill)   /* killed, and restarted with all data */                                                        \
    XX(server_lose)   /* killed, and restarted without data */                                                         \
    XX(server_recall) /* killed, and restarted with older data */                                                      \
    XX(cut_off)       /* a process and a server do not reach each other */                                             \
    XX(deaf)          /* what a server sends to a process does not arrive */                                           \
    XX(proc_stop)     /* a process is stopped */                                                                       \
    XX(proc_kill)     /* a process is killed, and starts again */                                                      \
    XX(flushall)      /* a client deletes all keys */                                                                  \
    XX(del)           /* a client deletes a lock */                                                                    \
    XX(fence_evicted) /* the server drops a fence */                                                                   \
    XX(no_script)     /* SCRIPT FLUSH */                                                                               \
    XX(oom)           /* no memory for a while */                                                                      \
    XX(no_right)      /* the account lacks a right for a while */                                                      \
    XX(clock_step)    /* a server's clock is set */                                                                    \
    XX(foreign)       /* a client without dibs takes a lock */                                                         \
    XX(failover)      /* a replica becomes the master */                                                               \
    XX(slot_move)     /* the slot of a lock goes to another node, key by key */                                        \
    XX(touched)       /* a client makes a lock last longer, which harms nobody */                                      \
    XX(full)          /* connections are reset, and the server takes no new ones for a while */

enum sim_fault_kind {
#define SIM_FAULT_ENUM(name) SIM_FAULT_##name,
    SIM_FAULT_MAP(SIM_FAULT_ENUM)
#undef SIM_FAULT_ENUM
        SIM_FAULT_KINDS
};
const char *sim_fault_name(enum sim_fault_kind kind);

struct sim_fault {
    int64_t time;
    enum sim_fault_kind kind;
    int which;      /* server, process or name */
    int64_t length; /* ns: for how long, or by how much a clock is set */
};

struct sim_plan {
    uint64_t seed;
    enum sim_topology topology;
    int servers, sentinels, procs, threads, names;
    int64_t end;        /* when threads begin nothing new, */
    long calls_most;    /* as after so many calls */
    int64_t last_fault; /* after that all is well */
    int64_t replication_delay;
    uint32_t lease_ms, renew_ms, command_timeout_ms, connect_timeout_ms, outage_ms, handoff_ms, min_replicas;
    uint32_t spin_us;
    int script_budget; /* how much of a queue a script goes through, instead of what the library says; 0: just that */
    uint32_t keep_ms;  /* 0: no lease is kept */
    int64_t hold_least, hold_most, pause_most; /* ns */
    int64_t pause_mostly;                      /* ns; every other pause is about as long; 0: none is */
    double shared; /* how often a lock is shared; each name has a limit of its own: see sim_limit */
    double fair, fixed, extends, nests, forces, queries, orphans, waits, bursts; /* how often */
    double scarce;                 /* how often a process gets no memory */
    double odd_leases;             /* how often a lock has another lease than lease_ms */
    int64_t skew_most;             /* of a server's clock, all the time */
    double several;                /* how often several names are locked in one call */
    double tasks, begins, cancels; /* how often a task owns, a call is begun, and one cancels another */
    struct sim_network network;
    struct sim_schedule schedule;
    double server_rate;
    int64_t server_cost;
    bool shuts_down, has_events;
    unsigned denied;  /* rights that the account lacks all the time */
    bool has_delifeq; /* the servers are Valkey 9 */
    struct sim_fault faults[SIM_FAULTS_MOST];
    int fault_count;
    bool loses_data;   /* exclusion is not promised */
    bool is_voting;    /* only what the documents say that a quorum tolerates */
    bool is_calm;      /* nothing goes wrong */
    bool is_quiet;     /* only the faults of its theme */
    bool is_moved;     /* only slots that move, quickly */
    bool is_full;      /* only a server that takes no new connections for a while */
    bool is_late;      /* only connections that break, whose requests arrive later */
    bool looks_on;     /* a process only queries and lists */
    bool in_turn;      /* all masters forget, one after the other */
    bool is_told;      /* nothing but changes of keys by others, which the server tells */
    int64_t well_from; /* from then on delays are short */
};

/* How a run is shortened: the faults that are left out, and how much is left of other things. */
struct sim_cut {
    uint64_t without; /* a bit for each fault of the plan */
    int threads, procs, names;
    bool quiet_network, quiet_schedule;
};

/* The leases of that process: in some runs of a quorum each has others. */
uint32_t sim_lease_ms(const struct sim_plan *plan, int proc);

/* How many may share that name at a time; 0: any number. */
uint32_t sim_limit(const struct sim_plan *plan, int name);

void sim_plan_draw(struct sim_plan *plan, uint64_t seed,
                   const char *only); /* only: a topology, or a benchmark's name */
bool sim_takes_data(const struct sim_plan *plan, enum sim_fault_kind kind);

/* A member of a quorum that has one of these faults may not count for a lease. */
bool sim_harms_a_vote(enum sim_fault_kind kind);

void sim_plan_cut(struct sim_plan *plan, const struct sim_cut *cut);
void sim_plan_print(const struct sim_plan *plan);

/* Starts the planned faults that happen by themselves. */
void sim_plan_begin(const struct sim_plan *plan);

#endif
