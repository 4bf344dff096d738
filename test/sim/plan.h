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

/* What a kind of fault is. */
enum sim_fault_trait {
    SIM_PLAIN = 0,
    SIM_AT_ANY = 1,       /* it befalls sentinels as well */
    SIM_AT_KEY = 2,       /* and this one the server that has the key */
    SIM_TAKES_DATA = 4,   /* exclusion is not promised, except by a quorum of which a minority has it */
    SIM_HARMS_A_VOTE = 8, /* a member of a quorum that has it may not count for a lease, */
    SIM_IS_FORGETFUL = 16 /* and has lost what it knows */
};

#define SIM_LOSES (SIM_TAKES_DATA | SIM_HARMS_A_VOTE | SIM_IS_FORGETFUL)

#define SIM_FAULT_MAP(XX)                                                                                              \
    XX(cut, SIM_AT_ANY)                  /* connections are reset */                                                   \
    XX(half_open, SIM_AT_ANY)            /* the server loses connections, and nobody tells the processes */            \
    XX(server_stop, SIM_AT_ANY)          /* a server does not answer for a while */                                    \
    XX(server_kill, SIM_AT_ANY)          /* killed, and restarted with all data */                                     \
    XX(server_lose, SIM_LOSES)           /* killed, and restarted without data */                                      \
    XX(server_recall, SIM_LOSES)         /* killed, and restarted with older data */                                   \
    XX(cut_off, SIM_AT_ANY)              /* a process and a server do not reach each other */                          \
    XX(deaf, SIM_AT_ANY)                 /* what a server sends to a process does not arrive */                        \
    XX(proc_stop, SIM_PLAIN)             /* a process is stopped */                                                    \
    XX(proc_kill, SIM_PLAIN)             /* a process is killed, and starts again */                                   \
    XX(flushall, SIM_LOSES)              /* a client deletes all keys */                                               \
    XX(del, SIM_AT_KEY | SIM_TAKES_DATA) /* a client deletes a lock */                                                 \
    XX(fence_evicted, SIM_AT_KEY | SIM_TAKES_DATA | SIM_HARMS_A_VOTE) /* the server drops a fence */                   \
    XX(no_script, SIM_PLAIN)                                          /* SCRIPT FLUSH */                               \
    XX(oom, SIM_PLAIN)                                                /* no memory for a while */                      \
    XX(no_right, SIM_PLAIN)                                           /* the account lacks a right for a while */      \
    XX(clock_step, SIM_TAKES_DATA | SIM_HARMS_A_VOTE)                 /* a server's clock is set */                    \
    XX(foreign, SIM_AT_KEY | SIM_TAKES_DATA)                          /* a client without dibs takes a lock */         \
    XX(failover, SIM_TAKES_DATA)                                      /* a replica becomes the master */               \
    XX(slot_move, SIM_PLAIN) /* the slot of a lock goes to another node, key by key */                                 \
    XX(touched, SIM_AT_KEY)  /* a client makes a lock last longer, which harms nobody */                               \
    XX(full, SIM_PLAIN)      /* connections are reset, and the server takes no new ones for a while */

enum sim_fault_kind {
#define SIM_FAULT_ENUM(name, traits) SIM_FAULT_##name,
    SIM_FAULT_MAP(SIM_FAULT_ENUM)
#undef SIM_FAULT_ENUM
        SIM_FAULT_KINDS
};
const char *sim_fault_name(enum sim_fault_kind kind);
bool sim_fault_is(enum sim_fault_kind kind, enum sim_fault_trait trait);

struct sim_fault {
    int64_t time;
    enum sim_fault_kind kind;
    int which;      /* server, process or name */
    int64_t length; /* ns: for how long, or by how much a clock is set */
};

/*
 * The numbers of a plan, each with its type: times are int64_t, in ns, and what is how often is a double. What is 0
 * does not happen. The network and the schedule have others (net.h, sched.h).
 */
/* clang-format off */
#define SIM_SETTING_MAP(XX)                                                                                            \
    XX(int, servers) XX(int, sentinels) XX(int, procs) XX(int, threads) XX(int, names)                                 \
    XX(int64_t, end)            /* when threads begin nothing new, */                                                  \
    XX(int, calls_most)         /* as after so many calls */                                                           \
    XX(int64_t, last_fault) XX(int64_t, well_from) /* after that all is well; from then on delays are short */         \
    XX(uint32_t, lease_ms) XX(uint32_t, command_timeout_ms) XX(uint32_t, connect_timeout_ms) XX(uint32_t, outage_ms)   \
    XX(uint32_t, handoff_ms) XX(uint32_t, min_replicas) XX(uint32_t, spin_us) XX(uint32_t, keep_ms)                    \
    XX(int, script_budget)      /* how much of a queue a script goes through, if not what the library says */          \
    XX(int64_t, hold_least) XX(int64_t, hold_most) XX(int64_t, pause_most)                                             \
    XX(int64_t, pause_mostly)   /* every other pause is about as long */                                               \
    XX(double, shared)          /* each name has a limit of its own: see sim_limit */                                  \
    XX(double, fair) XX(double, fixed) XX(double, extends) XX(double, nests) XX(double, forces)                        \
    XX(double, queries) XX(double, orphans) XX(double, waits) XX(double, bursts)                                       \
    XX(double, scarce)          /* a process gets no memory */                                                         \
    XX(double, odd_leases)      /* a lock has another lease than lease_ms */                                           \
    XX(double, several)         /* several names are locked in one call */                                             \
    XX(double, tasks) XX(double, begins) XX(double, cancels)                                                           \
    XX(double, server_rate)     /* of the servers' clocks, */                                                          \
    XX(int64_t, skew_most)      /* and how far they are apart all the time */                                          \
    XX(int64_t, server_cost) XX(int64_t, replication_delay)                                                            \
    XX(unsigned, denied)        /* rights that the account lacks all the time */                                       \
    XX(bool, shuts_down) XX(bool, has_events)                                                                          \
    XX(bool, has_delifeq)       /* the servers are Valkey 9 */                                                         \
    XX(bool, loses_data)        /* exclusion is not promised */                                                        \
    XX(bool, is_voting)         /* only what the documents say that a quorum tolerates */                              \
    XX(bool, is_calm)           /* nothing goes wrong */                                                               \
    XX(bool, is_quiet)          /* only the faults of its theme */                                                     \
    XX(bool, is_moved)          /* only slots that move, quickly */                                                    \
    XX(bool, is_full)           /* only a server that takes no new connections for a while */                          \
    XX(bool, is_late)           /* only connections that break, whose requests arrive later */                         \
    XX(bool, is_told)           /* nothing but changes of keys by others, which the server tells */                    \
    XX(bool, looks_on)          /* a process only queries and lists */                                                 \
    XX(bool, in_turn)           /* all masters forget, one after the other */
/* clang-format on */

struct sim_plan {
    uint64_t seed;
    int topology; /* SIM_ONE and so on */
#define SIM_FIELD(type, name) type name;
    SIM_SETTING_MAP(SIM_FIELD)
    struct sim_network network;
    struct sim_schedule schedule;
    struct sim_fault faults[SIM_FAULTS_MOST];
    int fault_count;
    unsigned kinds; /* of them, a bit for each */
};

/* How a run is shortened: the faults that are left out, and settings of its plan that replace others (set() in plan.c).
 */
struct sim_cut {
    uint64_t without; /* a bit for each fault of the plan */
    char settings[256];
};
extern const char *const sim_quiet[2]; /* settings for a network, and a schedule, in which nothing goes wrong */

/* The leases of that process: in some runs of a quorum each has others. */
uint32_t sim_lease_ms(const struct sim_plan *plan, int proc);

/* How many may share that name at a time; 0: any number. */
uint32_t sim_limit(const struct sim_plan *plan, int name);

/* only: a topology, a theme or "benchmark"; "": any. */
void sim_plan_draw(struct sim_plan *plan, uint64_t seed, const char *only);
bool sim_takes_data(const struct sim_plan *plan, enum sim_fault_kind kind);
void sim_plan_cut(struct sim_plan *plan, const struct sim_cut *cut);
void sim_plan_print(const struct sim_plan *plan);

/* Starts the planned faults that happen by themselves. */
void sim_plan_begin(const struct sim_plan *plan);

#endif
