#include "plan.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    unsigned traits;
} faults[SIM_FAULT_KINDS] = {
#define SIM_FAULT_ROW(name, traits) {#name, traits},
    SIM_FAULT_MAP(SIM_FAULT_ROW)
#undef SIM_FAULT_ROW
};

const char *sim_fault_name(enum sim_fault_kind kind)
{
    return faults[kind].name;
}

bool sim_fault_is(enum sim_fault_kind kind, enum sim_fault_trait trait)
{
    return faults[kind].traits & trait;
}

/* -------------------------------------------------------------------- settings */

#define SETTING(type, name, field)                                                                                     \
    {name, offsetof(struct sim_plan, field), _Generic((type)0, bool : 'b', double : 'd', int64_t : 't', default : 'i')},

static const struct setting {
    const char *name;
    size_t at;
    char type; /* b: yes or no; d: a fraction; t: ns; i: another number */
} settings[] = {
#define OF_PLAN(type, name) SETTING(type, #name, name)
#define OF_NETWORK(type, name) SETTING(type, #name, network.name)
#define OF_SCHEDULE(type, name) SETTING(type, #name, schedule.name)
    OF_PLAN(int, topology) SIM_SETTING_MAP(OF_PLAN) SIM_NETWORK_MAP(OF_NETWORK) SIM_SCHEDULE_MAP(OF_SCHEDULE)};

static const char *const topologies[] = {"one", "replicas", "quorum", "cluster"};

/* With a unit that set() knows, or a topology. */
static double number(const struct sim_plan *drawn, char **at)
{
    for (int i = 0; i < 4; i++)
        if (strncmp(*at, topologies[i], strlen(topologies[i])) == 0) {
            *at += strlen(topologies[i]);
            return i;
        }
    double value = strtod(*at, at);
    char unit = **at;
    *at += unit == 'm' ? 2 : unit == 's' || unit == 'L' || unit == 'D';
    return unit == 'm'   ? value * SIM_MS
           : unit == 's' ? value * SIM_S
           : unit == 'L' ? floor(value * drawn->lease_ms) * SIM_MS
           : unit == 'D' ? value * (double)drawn->network.delay
                         : value;
}

static double value_of(const struct sim_plan *drawn, char **at)
{
    if (**at == '?') {
        ++*at;
        double chance = number(drawn, at);
        *at = (sim_chance(SIM_FAULTS, chance) ? *at : strchr(*at + 1, ':')) + 1;
        return value_of(drawn, at);
    }
    double low = number(drawn, at);
    char how = **at;
    if (how != '-' && how != '~' && how != '+')
        return low;
    ++*at;
    if (how == '+')
        return low + value_of(drawn, at);
    double high = number(drawn, at), scale = low < 1 ? 1e9 : 1;
    return how == '-' ? (double)sim_between(SIM_FAULTS, (int64_t)low, (int64_t)high)
                      : (double)sim_between_log(SIM_FAULTS, (int64_t)(low * scale), (int64_t)(high * scale)) / scale;
}

static const struct setting *setting_of(const char *name, size_t size)
{
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (strlen(settings[i].name) == size && strncmp(settings[i].name, name, size) == 0)
            return &settings[i];
    fprintf(stderr, "a plan has no %.*s\n", (int)size, name);
    exit(2);
}

/*
 * Settings of a plan, in the order in which they are drawn: names and a value each, such as "names=1-3". A value is a
 * number; one that is drawn between two, each as likely (1-3), or each order of magnitude as likely (1~3); ?0.3:A:B,
 * which is A with that chance and B otherwise; or a sum of them. Of time it is in ns, unless ms or s or L, the lease,
 * or D, the delay of the network, follow.
 */
static void set(struct sim_plan *drawn, const char *text)
{
    while (*(text += strspn(text, " "))) {
        const char *name = text, *equals = strchr(text, '=');
        char *end = (char *)(uintptr_t)equals + 1;
        double value = value_of(drawn, &end);
        for (size_t size; name < equals; name += size + 1) {
            size = strcspn(name, ",=");
            const struct setting *setting = setting_of(name, size);
            void *to = (char *)drawn + setting->at;
            if (setting->type == 'd')
                *(double *)to = value;
            else if (setting->type == 't')
                *(int64_t *)to = (int64_t)value;
            else if (setting->type == 'b')
                *(bool *)to = value != 0;
            else
                *(uint32_t *)to = (uint32_t)(int64_t)value;
        }
        text = end + strcspn(end, " "); /* the other branch is left out */
    }
}

/* ---------------------------------------------------------------------- chance */

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

bool sim_takes_data(const struct sim_plan *drawn, enum sim_fault_kind kind)
{
    return sim_fault_is(kind, SIM_TAKES_DATA) && drawn->topology != SIM_QUORUM; /* there a minority has it */
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

/* Only the faults of its theme happen. */
static bool is_narrow(const struct sim_plan *drawn)
{
    return drawn->is_told || drawn->is_quiet || drawn->is_late || drawn->is_full;
}

/* ---------------------------------------------------------------------- themes */

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

/* A run in which nothing goes wrong but that processes do not hear the server, some of them while they keep leases. */
static bool is_kept_deaf(const struct sim_plan *drawn)
{
    return drawn->is_quiet && hash_of(drawn, 33) % 3 == 0;
}

static void be_late(struct sim_plan *drawn)
{
    int64_t lease = drawn->lease_ms;

    drawn->hold_most = (lease < 1000 ? lease * 3 : 1000) * SIM_MS;
    drawn->network.silence_most = (lease < 1000 ? lease * 2 : 2000) * SIM_MS;
    drawn->network.stuck_most = drawn->command_timeout_ms * 2 * SIM_MS;
    if (sim_chance(SIM_FAULTS, 0.6))
        drawn->denied = SIM_DENIES_KILL;
    drawn->is_late = drawn->topology == SIM_ONE && hash_of(drawn, 17) % 2;
    if (!drawn->is_late)
        return;
    /* Only answers that break off, while the requests still arrive. */
    drawn->lease_ms += 5000;
    drawn->connect_timeout_ms = drawn->command_timeout_ms;
    drawn->denied = SIM_DENIES_KILL;
    set(drawn, "forces,fixed,extends=0 waits=.2");
}

static void be_in_turn(struct sim_plan *drawn)
{
    drawn->is_quiet = !drawn->is_calm;
    drawn->queries = hash_of(drawn, 18) % 2 ? 0.3 : drawn->queries;
    drawn->script_budget = hash_of(drawn, 19) % 3 ? 0 : 2;
}

static void be_told(struct sim_plan *drawn)
{
    drawn->is_told = drawn->topology == SIM_ONE || drawn->topology == SIM_QUORUM;
    if (drawn->topology == SIM_ONE && hash_of(drawn, 10) % 2) /* a change comes while a renewal is under way */
        set(drawn, "delay=1ms jitter=20ms handoff_ms=-1");
    drawn->queries = hash_of(drawn, 18) % 2 ? 0.3 : drawn->queries;
}

static void be_crowded(struct sim_plan *drawn)
{
    drawn->server_cost = drawn->lease_ms * 200;
}

static void be_episode(struct sim_plan *drawn)
{
    if (drawn->in_turn)
        set(drawn, "end=3s+5L");
}

static void be_absent(struct sim_plan *drawn)
{
    if (drawn->in_turn)
        set(drawn, "hold_least=1ms hold_most,pause_most=100ms");
    else
        drawn->lease_ms += 1000;
}

static void be_kept(struct sim_plan *drawn)
{
    drawn->is_quiet = drawn->topology == SIM_ONE && !drawn->is_calm && hash_of(drawn, 11) % 2;
    if (is_kept_deaf(drawn)) { /* some are in use for as long as a lease, after they were kept for a while */
        set(drawn, "lease_ms=1000-3000 keep_ms=50-120 command_timeout_ms,connect_timeout_ms=2000 hold_least=1ms "
                   "hold_most=1L names=2");
        drawn->pause_most = drawn->keep_ms * SIM_MS;
    }
    if (sim_chance(SIM_FAULTS, 0.1)) /* so often that the fence is raised */
        set(drawn, "keep_ms=5000 hold_most,pause_most=20000 calls_most=12000");
}

static void be_stopped(struct sim_plan *drawn)
{
    if (sim_chance(SIM_FAULTS, 0.7)) /* a stop after an answer that took long */
        set(drawn, "slow_chance=.2 slow_most=1L command_timeout_ms=1000 names=1");
}

static void be_scarce(struct sim_plan *drawn)
{
    drawn->scarce = (double)sim_between_log(SIM_FAULTS, 1, 300) / 1000;
}

#define KIND(name) (1u << SIM_FAULT_##name)
#define FORGETFUL (KIND(server_lose) | KIND(server_recall) | KIND(flushall))
#define BY_OTHERS (KIND(del) | KIND(flushall) | KIND(foreign) | KIND(touched))
#define TIMEOUTS "command_timeout_ms,connect_timeout_ms="

static const struct {
    const char *name;
    enum theme base; /* ANY, or one that this changes */
    const char *settings;
    void (*rest)(struct sim_plan *drawn); /* sets what depends on something else */
    unsigned favours;                     /* the faults that are frequent */
} themes[THEMES] = {
    [ANY] = {"any", ANY, "", NULL, 0},
    /* Answers that arrive after the command timeout. */
    [LATE] = {"late", ANY,
              "lease_ms=?.5:150~800:150~15000 hold_least=20ms extends=.3 forces=?.3:.1:0 command_timeout_ms=40-150 "
              "silence_chance=.003 stuck_chance=.04 end=6s",
              be_late, KIND(cut) | KIND(half_open)},
    /* All waits are fair, and little goes wrong. */
    [IN_TURN] = {"turn", ANY,
                 "is_calm=?.5:1:0 lease_ms=300~10000 denied,forces,extends,fixed=0 " TIMEOUTS "1000 fair=1 "
                 "handoff_ms=-1 hold_least=5ms hold_most=300ms pause_most=100ms waits=?.5:.95:.4 end=4s",
                 be_in_turn, KIND(proc_kill) | KIND(no_script)},
    /* Short leases, and servers that restart. */
    [RESTARTS] = {"restarts", ANY, "lease_ms=100~1500 hold_least=1ms hold_most=2L denied=0", NULL,
                  KIND(server_lose) | KIND(server_kill) | KIND(failover)},
    /* Others take and delete locks, and the server tells of it. */
    [TOLD] = {"told", ANY,
              "lease_ms=8000~30000 hold_least=200ms hold_most=6s denied,fixed,extends=0 forces=.05 waits=.9 "
              "end=10s " TIMEOUTS "1000",
              be_told, BY_OTHERS},
    /* Processes are stopped. */
    [STOPS] = {"stops", RESTARTS, "", be_stopped, KIND(proc_stop) | KIND(proc_kill)},
    /* Many locks are released at once. */
    [CROWD] =
        {"crowd", ANY,
         "topology=one is_calm=1 procs=2 threads,names=3 lease_ms=300~800 bursts=.3 fixed,orphans,extends,denied=0 "
         "hold_least=500ms hold_most=2s pause_most=20ms end=3s",
         be_crowded, 0},
    /* A quorum whose masters forget, or whose clocks are set, while others are out of reach of some. */
    [VOTES] = {"votes", ANY,
               "topology=quorum is_voting=1 names=1 procs=2-3 threads=1 lease_ms=600~8000 hold_least=10ms "
               "hold_most=1.5L pause_most=200ms " TIMEOUTS "100-400 fixed=?.3:.5:0 forces,denied=0 end=4s+1L",
               NULL, FORGETFUL | KIND(clock_step) | KIND(fence_evicted) | KIND(cut_off) | KIND(proc_kill)},
    /* A process mostly has a name for itself. */
    [KEPT] = {"kept", ANY,
              "topology=?.7:one:replicas min_replicas=0 is_calm=?.2:1:0 procs=2-3 threads=1-2 keep_ms=5~20000 "
              "lease_ms=300~10000 hold_least=10000 hold_most=5ms pause_most=1ms~300ms "
              "fair,fixed,extends,orphans,denied,handoff_ms=0 waits=.9 end=6s",
              be_kept, KIND(proc_stop) | KIND(proc_kill) | KIND(deaf) | KIND(cut) | KIND(server_kill) | KIND(failover)},
    /* New masters that forget while some processes still take the quorum for new. Whoever leaves its locks behind opens
     * once more, so nobody does. */
    [FOUNDING] = {"founding", VOTES,
                  "procs=3 lease_ms=2000-5000 hold_least=500ms hold_most=2s pause_most=1ms fixed,orphans=0 "
                  "command_timeout_ms=1000 slow_chance=.2 slow_most=100ms end=3s",
                  NULL, FORGETFUL},
    /* Each process has the votes of a bare majority. */
    [THIN] = {"thin", VOTES,
              "procs=3 lease_ms=300~4000 hold_least=20ms hold_most=?.5:1L+2s:1L pause_most=20ms waits=1 odd_leases=.4",
              NULL, FORGETFUL | KIND(clock_step) | KIND(proc_kill)},
    /* A server comes back with older data, and clients without dibs come before the holders do. */
    [RECALLED] = {"recalled", ANY,
                  "topology=one is_quiet=1 names=1 lease_ms=1000~10000 hold_least=20ms hold_most=1s pause_most=500ms "
                  "fair,fixed,extends,forces,denied=0 " TIMEOUTS "1000 end=8s",
                  NULL, KIND(server_recall) | KIND(foreign)},
    /* Slots go from node to node, and nothing else happens. */
    [MOVED] = {"moved", ANY,
               "topology=cluster is_quiet,is_moved=1 lease_ms=4000~30000 outage_ms=5000 hold_least=1ms "
               "hold_most,pause_most=100ms odd_leases,fixed,extends,forces,denied=0 handoff_ms=-1 waits=.9 " TIMEOUTS
               "1000 end=6s",
               NULL, KIND(slot_move)},
    /* Calls that lock several names, by tasks that are cancelled. */
    [SEVERAL] = {"several", TOLD, "names=4 nests=.5 queries,orphans=0", NULL, BY_OTHERS},
    /* All faults of the masters come one soon after the other, to the same few (draw_episode). */
    [EPISODE] = {"episode", THIN,
                 "lease_ms=600~8000 odd_leases,orphans,shuts_down=0 fixed=?.5:.5:0 hold_least=100ms hold_most=2L "
                 "pause_most=?.7:20ms:1L " TIMEOUTS "400~3000 in_turn=?.33:1:0 looks_on=?.3:1:0 end=3s+2L",
                 be_episode, 0},
    /* Holds that outlast their leases, and nothing else happens. */
    [HELD] = {"held", ANY,
              "is_calm=1 threads=1-2 names=1-2 lease_ms=100~400 hold_least=1ms hold_most=3L pause_most=20ms "
              "fixed,extends=0 point_mean=10~300 end=4s",
              NULL, 0},
    /* The server takes no more clients for a while, and there are waiters that give up. */
    [FULL] = {"full", ANY,
              "topology=one is_full=1 procs=4 threads=1 lease_ms=5000~30000 hold_least=20ms hold_most=2s pause_most=5s "
              "odd_leases,fixed,extends,forces,denied=0 waits=.2 " TIMEOUTS "1000 end=8s",
              NULL, KIND(full)},
    /* Processes that get no memory now and then, or mostly. */
    [SCARCE] = {"scarce", ANY, "end=3s", be_scarce, 0},
    /* Masters that forget (draw_absences: `in_turn`), or one whose clock is set (draw_unseen_steps), while others are
     * silent. */
    [ABSENT] = {"absent", THIN,
                "in_turn,looks_on=?.5:1:0 procs=2 lease_ms=300~1500 odd_leases,orphans,fixed,bursts,shuts_down=0 "
                "hold_least=100ms hold_most=1s pause_most=5s " TIMEOUTS "100~400 end=20s",
                be_absent, 0},
    /* Kept leases are taken just when the store is to be told that nobody uses them, and some are then in use for
     * longer than a kept lease lasts. Threads are kept from running for a moment now and then, while nothing else goes
     * wrong. */
    [TAKEN] = {"taken", KEPT,
               "is_calm=1 is_quiet=0 point_mean=10 stall_chance=.3 stall_most=200000 lease_ms=1000-3000 keep_ms=5-50 "
               "hold_least=1ms hold_most=1L pause_most=10ms pause_mostly=5ms names=2",
               NULL, 0},
};

static void apply_theme(struct sim_plan *drawn, enum theme theme)
{
    if (themes[theme].base != ANY)
        apply_theme(drawn, themes[theme].base);
    else
        set(drawn, "procs=2-4 threads=1-3 names=1-3 bursts=0");
    set(drawn, themes[theme].settings);
    if (themes[theme].rest)
        themes[theme].rest(drawn);
}

static bool favours(const struct sim_plan *drawn, enum theme theme, enum sim_fault_kind kind)
{
    unsigned kinds = themes[theme].favours;

    if (theme == KEPT && is_kept_deaf(drawn))
        kinds = KIND(deaf);
    else if (theme == KEPT && drawn->is_quiet)
        kinds = hash_of(drawn, 9) % 2 ? KIND(proc_kill) : KIND(server_lose);
    else if ((theme == TOLD || theme == SEVERAL) && drawn->topology == SIM_QUORUM)
        kinds = 0;
    else if ((theme == VOTES || theme == THIN) && !also(drawn, 15))
        kinds &= ~KIND(proc_kill);
    return !drawn->is_late && kinds >> kind & 1;
}

/* ---------------------------------------------------------------------- faults */

static void add_fault(struct sim_plan *drawn, int64_t time, enum sim_fault_kind kind, int which, int64_t length)
{
    drawn->faults[drawn->fault_count++] =
        (struct sim_fault){.time = time, .kind = kind, .which = which, .length = length};
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
            add_fault(drawn, SIM_S / 2, SIM_FAULT_cut_off, proc + drawn->procs * (other % drawn->servers),
                      drawn->last_fault);
        }
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
    if (theme == FOUNDING && sim_fault_is(fault->kind, SIM_IS_FORGETFUL)) {
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
        if (stands && sim_chance(SIM_FAULTS, 0.5)) {
            int64_t before = sim_between_log(SIM_FAULTS, SIM_MS, 500 * SIM_MS);
            int which = (int)sim_between(SIM_FAULTS, 0, 1000);
            add_fault(drawn, time - before, SIM_FAULT_proc_stop, which, lease * sim_between(SIM_FAULTS, 2, 15) / 10);
        }
        time += drawn->in_turn ? SIM_S + lease * sim_between(SIM_FAULTS, 6, 14) / 10
                               : sim_between_log(SIM_FAULTS, SIM_MS, lease);
    }
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
    for (enum sim_fault_kind kind = 0; kind < SIM_FAULT_KINDS; kind++) {
        bool favoured = favours(drawn, theme, kind);
        bool chosen = sim_chance(SIM_FAULTS, is_narrow(drawn) ? 0
                                             : theme == ANY   ? 0.18
                                                              : 0.03) ||
                      (favoured && sim_chance(SIM_FAULTS, 0.7)) ||
                      (kind == SIM_FAULT_slot_move && sim_chance(SIM_FAULTS, 0.8));
        int count = (int)sim_between_log(SIM_FAULTS, favoured ? 4 : 1, 16);
        if (theme == KEPT && is_kept_deaf(drawn))
            count = 1 + count % 4;
        if (sim_fault_is(kind, SIM_HARMS_A_VOTE) && drawn->is_voting && also(drawn, 27) &&
            count > 2) /* so few that masters that forgot may vote again */
            count = 2;
        for (int i = 0; i < count; i++) {
            struct sim_fault fault = {.time = sim_between(SIM_FAULTS, 20 * SIM_MS, drawn->last_fault),
                                      .kind = kind,
                                      .which = (int)sim_between(SIM_FAULTS, 0, 1000),
                                      .length = sim_between_log(SIM_FAULTS, SIM_MS, 5 * SIM_S)};
            fit_to_theme(drawn, theme, &fault, i);
            bool is_early = drawn->topology == SIM_QUORUM && sim_fault_is(kind, SIM_HARMS_A_VOTE) &&
                            !sim_fault_is(kind, SIM_IS_FORGETFUL) && fault.time < SIM_S;
            if (!chosen || is_early || !fits(drawn, kind) || drawn->fault_count == SIM_FAULTS_MOST)
                continue;
            drawn->faults[drawn->fault_count++] = fault;
            drawn->loses_data = drawn->loses_data || sim_takes_data(drawn, kind);
        }
    }
}

/* --------------------------------------------------------------------- drawing */

static void draw_work(struct sim_plan *drawn)
{
    set(drawn, "procs=1-4 threads=1~6 names=1~12 lease_ms=?.3:20~30000:100~1500 end=300ms~8s calls_most=3000 "
               "odd_leases=.1 command_timeout_ms=50~1000 connect_timeout_ms=50~1000 outage_ms=100~5000 "
               "handoff_ms=?.4:-1:?.3:200:0 spin_us=?.1:100:-1");
    int64_t cycle = drawn->end * drawn->procs * drawn->threads / sim_between_log(SIM_FAULTS, 60, 1200);
    drawn->hold_least = 1000;
    drawn->hold_most = SIM_MS / 2 + cycle * sim_between(SIM_FAULTS, 1, 9) / 2;
    drawn->pause_most = SIM_MS / 10 + cycle * sim_between(SIM_FAULTS, 0, 6) / 2;
    set(drawn, "server_cost=200~10000 shuts_down=?.1:1:0 has_events=?.3:1:0");
    if (sim_chance(SIM_FAULTS, 0.3))
        drawn->denied = (unsigned)(sim_draw(SIM_FAULTS) & sim_draw(SIM_FAULTS)) % 32;
    set(drawn, "fair=?.4:.05~1:0 fixed=?.2:.05~.5:0 extends=?.3:.02~.3:0 nests=?.3:.02~.3:0 forces=?.15:.002~.05:0 "
               "queries=?.3:.01~.3:0 orphans=?.2:.01~.2:0 waits=?.5:.9:.2");
    set(drawn, "delay=10000~2ms jitter=1000~2D slow_most=1ms~3s slow_chance=?.3:.0005~.1:0 "
               "cut_chance=?.3:.0002~.03:0 silence_chance=?.2:.0001~.005:0 silence_most=3s "
               "stuck_chance=?.15:.0005~.02:0 stuck_most=2ms~2s refuse_chance=?.15:.01~.3:0 "
               "lost_chance=?.15:.01~.3:0 short_chance=?.15:.001~.2:0");
    set(drawn, "point_mean=20~20000 stall_chance=?.4:.001~.2:0 stall_most=10000~200ms");
}

static void draw_tasks(struct sim_plan *drawn, enum theme theme)
{
    set(drawn, "tasks=?.4:.3~2:0 begins=?.8:.1~1:0 cancels=0");
    if (drawn->tasks > 0)
        set(drawn, "cancels=?.6:.02~.3:0");
    if (theme == SEVERAL && drawn->procs % 2 == 0)
        set(drawn, "tasks=1 cancels=.1");
}

static const char benchmark[] =
    "servers=1 procs,threads,names=4 end=30s calls_most=1000000 lease_ms=1000 " TIMEOUTS "1000 outage_ms=5000 "
    "spin_us=-1 hold_least=200ms hold_most=800ms pause_most=1ms waits,is_calm=1 delay,jitter=100000 point_mean=1000";

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

    for (enum sim_topology i = SIM_ONE; i <= SIM_CLUSTER; i++)
        if (strcmp(only, topologies[i]) == 0)
            return i;
    return draw < 12 ? SIM_CLUSTER : draw < 60 ? SIM_ONE : draw < 80 ? SIM_QUORUM : SIM_REPLICAS;
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
    for (enum theme i = ANY; i < THEMES; i++)
        theme = strcmp(only, themes[i].name) == 0 ? i : theme;
    if (theme == CROWD && !only[0] && sim_chance(SIM_FAULTS, 0.85)) /* it takes long */
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

/* How many servers there are, and how far apart their clocks. */
static void draw_servers(struct sim_plan *drawn, enum theme theme)
{
    /* Where a majority forgets its fences, they may fall if the others' clocks are behind: see doc/GUARANTEES.md. */
    if (drawn->is_voting && (theme == ABSENT || (!drawn->in_turn && (theme == EPISODE || hash_of(drawn, 13) % 2))))
        drawn->skew_most = 20 * SIM_S;
    if (drawn->is_voting)
        drawn->servers = sim_chance(SIM_FAULTS, 0.8) ? 3 : 5;
    else if (drawn->topology != SIM_QUORUM)
        drawn->servers = drawn->topology == SIM_ONE ? 1 : 3;
    if (theme == THIN && also(drawn, 25) && !also(drawn, 29))
        drawn->servers = 5;
    drawn->sentinels = drawn->topology == SIM_REPLICAS ? 3 : 0;
    if (drawn->topology != SIM_REPLICAS)
        drawn->min_replicas = 0;
}

#define QUIET "slow_chance,cut_chance,silence_chance,stuck_chance,refuse_chance,lost_chance=0"
const char *const sim_quiet[] = {QUIET " short_chance=0", "stall_chance,spurious=0"};

/* The network of a run in which only certain things go wrong. */
static void narrow(struct sim_plan *drawn, enum theme theme)
{
    bool is_even =
        drawn->is_voting && theme != FOUNDING && (theme == EPISODE || theme == ABSENT || sim_chance(SIM_FAULTS, 0.6));

    if (!is_narrow(drawn) && !is_even)
        return;
    set(drawn, QUIET " short_chance,stall_chance=0");
    drawn->network.jitter /= 2;
    if (drawn->is_late || (is_even && also(drawn, 22) && !also(drawn, 16)))
        set(drawn, "stuck_chance=.05 stuck_most=1s");
}

/* A run in which nothing goes wrong, but that threads may be kept from running for a moment. */
static void calm(struct sim_plan *drawn, enum theme theme)
{
    set(drawn, QUIET " min_replicas,last_fault,forces,denied=0 " TIMEOUTS "1000");
    drawn->network.jitter /= 2;
    if (theme != TAKEN)
        drawn->schedule.stall_chance = 0;
    drawn->lease_ms = drawn->lease_ms < 100 ? 100 : drawn->lease_ms;
}

void sim_plan_draw(struct sim_plan *out, uint64_t seed, const char *only)
{
    *out = (struct sim_plan){.seed = seed, .server_rate = 1};
    if (strcmp(only, "benchmark") == 0) {
        set(out, benchmark);
        return;
    }
    out->topology = draw_topology(only);
    out->replication_delay = sim_between_log(SIM_FAULTS, 100000, 100 * SIM_MS);
    out->min_replicas = out->topology == SIM_REPLICAS && sim_chance(SIM_FAULTS, 0.3);
    if (out->topology == SIM_QUORUM)
        set(out, "servers=?.6:3:5");
    enum theme theme = draw_theme(out, only);
    out->is_calm = theme == ANY && sim_chance(SIM_FAULTS, 0.2);
    draw_work(out);
    if (theme != ANY)
        apply_theme(out, theme);
    draw_tasks(out, theme);
    out->has_delifeq = also(out, 30);
    out->schedule.spurious = hash_of(out, 34) % 3 == 0 ? (double)(1 + hash_of(out, 35) % 20) / 100 : 0;
    draw_servers(out, theme);
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
        set(out, "server_rate=?.5:1.009:.991");
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
    set(cut, by->settings);
    for (int i = 0; i < kept; i++)
        cut->kinds |= 1u << cut->faults[i].kind;
}

/* As set() reads them, but for those that are 0. */
void sim_plan_print(const struct sim_plan *drawn)
{
    int column = printf("seed %llu:", (unsigned long long)drawn->seed);

    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const void *from = (const char *)drawn + settings[i].at;
        double value = settings[i].type == 'd'   ? *(const double *)from
                       : settings[i].type == 't' ? (double)*(const int64_t *)from / SIM_MS
                       : settings[i].type == 'b' ? *(const bool *)from
                                                 : *(const int *)from;
        if (column > 100)
            column = printf("\n ") - 1;
        if (settings[i].at == offsetof(struct sim_plan, topology))
            column += printf(" topology=%s", topologies[drawn->topology]);
        else if (value != 0)
            column += printf(" %s=%.6g%s", settings[i].name, value, settings[i].type == 't' ? "ms" : "");
    }
    printf("\n");
    for (int i = 0; i < drawn->fault_count; i++)
        printf("  fault %d: %.3f s %s %d, %.1f ms\n", i, (double)drawn->faults[i].time / SIM_S,
               sim_fault_name(drawn->faults[i].kind), drawn->faults[i].which, (double)drawn->faults[i].length / SIM_MS);
}
