#include "judge.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLE (50 * SIM_MS)
#define KEEPS_PLACE_MS 200 /* with a lease of this length a waiter asks often enough */
#define SIM_HANDED_OVER                                                                                                \
    1024 /* the number of fences of one grant of a server: one for each hold of the lease within a process */

char sim_failure[256];
struct sim_counts sim_counts;
struct sim_worker *sim_workers;

static const struct sim_plan *plan;
static struct {
    uint64_t fence;       /* the largest of those that were held */
    uint64_t alone;       /* and of those that were held alone */
    uint64_t granted;     /* the largest that a single server gave, as the server writes it */
    int64_t forced_at;    /* when the last forced unlock returned */
    int64_t fence_at;     /* when that was */
    int64_t free_since;   /* since then no server has a key of it, at each look; SIM_NEVER: one has */
    int64_t idle_since;   /* since then a thread waits for it, and none holds it; SIM_NEVER: that is not so */
    int64_t nobody_since; /* since then the same token has the key, and no thread holds the lock; SIM_NEVER: one does */
    int64_t grant_at;     /* when the first of the holds that the newest grant brought began */
    int64_t taken_at;     /* when it was last taken away at the server */
    int64_t left_at;      /* when a thread last gave it up, or stopped wanting it */
    int64_t foreign_until; /* up to then a client without dibs has it */
    int64_t gone_by;       /* the process that keeps it was killed: up to then its key may be there; 0: it was not */
    int64_t two_since;     /* since then two threads believe that they hold it; SIM_NEVER: one does at most */
    char keeper[160];      /* its token */
    char token[160];       /* that had the key at the last look */
    char stray[160];       /* that is in the queue though nobody wants the lock by it, */
    int64_t stray_since;   /* since then */
    char brought[160];     /* that had it in the state in which the server came back last */
} names[SIM_NAMES];

static struct keys {
    char *lock, *queue, *fence, *sharers;
} keys[SIM_NAMES]; /* of the names */

/* When threads of a process last wanted a name, or held it. */
static int64_t *wanted_at(int proc, int name)
{
    static int64_t times[64][SIM_NAMES];

    return &times[proc % 64][name];
}

const char *sim_who(const struct sim_worker *worker)
{
    static char texts[2][48];
    static int last;

    snprintf(texts[last ^= 1], sizeof *texts, "process %d, thread %d", worker->proc->number, worker->thread->number);
    return texts[last];
}

void sim_judge_wanted(const struct sim_worker *worker, int name)
{
    *wanted_at(worker->proc->number, name) = names[name].left_at = sim_now;
}

void sim_fail(const char *format, ...)
{
    va_list args;

    if (sim_failure[0])
        return;
    va_start(args, format);
    vsnprintf(sim_failure, sizeof sim_failure, format, args);
    va_end(args);
    sim_tell("FAILURE: %s", sim_failure);
    for (struct sim_server *server = sim_servers; server && sim_telling; server = server->next)
        if (!server->sentinel)
            sim_server_print(server);
}

/* Whether MIGRATE would fail. */
void sim_judge_twice(const char *key)
{
    if (plan && !plan->loses_data)
        sim_fail("two nodes have the key %s", key);
}

const char *sim_name(int name)
{
    static const char *const texts[SIM_NAMES] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"};

    return texts[name];
}

/* --------------------------------------------------------------------- holders */

struct sim_hold *sim_hold_of(struct sim_worker *worker, int name)
{
    for (int i = 0; i < worker->hold_count; i++)
        if (worker->holds[i].name == name)
            return &worker->holds[i];
    return NULL;
}

/* The present result of dibs_check for that thread, or its task. */
static dibs_status ask_for(struct sim_worker *worker, int name)
{
    struct sim_thread *before = sim_current;
    bool enters = worker->task && !worker->entered;
    long budget = sim_budget;

    sim_become(worker->thread);
    sim_budget = 1 << 30;
    dibs_status status = enters ? dibs_task_enter(worker->task) : DIBS_OK;
    if (status == DIBS_OK) {
        status = dibs_check(worker->runtime, sim_name(name));
        if (enters)
            dibs_task_leave(worker->task);
    }
    sim_become(before);
    sim_budget = budget;
    return status;
}

bool sim_has_fault(enum sim_fault_kind kind)
{
    return plan->kinds >> kind & 1;
}

/* A key of the name at the server that decides; of a quorum, where the others agree. */
static const struct sim_object *object_of(int name, const char *key)
{
    struct sim_server *server = plan->topology == SIM_REPLICAS  ? sim_sentinel_master()
                                : plan->topology == SIM_CLUSTER ? sim_cluster_owner(keys[name].lock)
                                                                : sim_servers;

    return server->alive ? sim_server_look(server, key) : NULL;
}

static const char *token_of(int name)
{
    const struct sim_object *object = object_of(name, keys[name].lock);

    return object && !object->is_hash ? object->value : NULL;
}

/* Where several share the lock, the token of who has shared it for longest. */
static const char *first_token_of(int name)
{
    const char *token = token_of(name);
    const struct sim_object *sharers =
        token && strcmp(token, "dibs:shared") == 0 ? object_of(name, keys[name].sharers) : NULL;
    const struct sim_field *first = NULL;

    for (size_t i = 0; sharers && i < sharers->count; i++)
        if (sharers->fields[i].name[0] == '-' &&
            (!first || strtoll(sharers->fields[i].value, NULL, 10) < strtoll(first->value, NULL, 10)))
            first = &sharers->fields[i];
    return first ? first->name + 1 : token;
}

static bool is_forcing(void)
{
    for (const struct sim_worker *worker = sim_workers; worker; worker = worker->next)
        if (worker->inside && strcmp(worker->call, "dibs_force_unlock") == 0)
            return true;
    return false;
}

/* The number of the process whose token that is; 0: it is none's. */
static int number_of(const char *token)
{
    const char *host = token ? strstr(token, "host-") : NULL;

    return host ? (int)sim_number(host + 5) : 0;
}

/* That process, if it is there. */
static const struct sim_proc *proc_of(const char *token)
{
    int number = number_of(token);
    const struct sim_proc *proc = sim_procs;

    while (proc && proc->number != number)
        proc = proc->next;
    return proc;
}

/* Of one server: whether its key is that process's. */
static bool is_its(const struct sim_proc *proc, int name)
{
    return number_of(token_of(name)) == proc->number;
}

/* How long a holder may still believe in a lost lock, once nothing goes wrong any more. */
static int64_t learns_within(void)
{
    if (plan->is_told || plan->is_quiet)
        return (plan->is_told ? 300 : 1500) * SIM_MS + 10 * (plan->network.delay + plan->network.jitter);
    return SIM_MS * (2 * plan->lease_ms / 3 + plan->command_timeout_ms + plan->connect_timeout_ms + 2500);
}

/* The server tells of changes of a lease that is older than 50 ms. */
bool sim_judge_is_gone(struct sim_worker *worker, int name)
{
    int64_t told_from =
        sim_hold_of(worker, name)->held_at + 100 * SIM_MS + 4 * (plan->network.delay + plan->network.jitter);

    return plan->is_told && plan->topology == SIM_ONE && names[name].taken_at > told_from &&
           names[name].taken_at + learns_within() < sim_now && !is_its(worker->proc, name);
}

/* A granted lock has its key, unless a client has just taken it away. */
static void see_to_key(const struct sim_worker *worker, int name, const dibs_hold *hold)
{
    int64_t since = names[name].taken_at;

    if (!plan->is_told && !plan->is_quiet && plan->well_from > since)
        since = plan->well_from;
    if (plan->topology != SIM_ONE || hold->shared || hold->remaining_ms == 0 || sim_has_fault(SIM_FAULT_clock_step) ||
        !sim_servers->alive || is_forcing() || sim_now < since + learns_within() || is_its(worker->proc, name))
        return;
    sim_fail("process %d was granted '%s', which the server does not know", worker->proc->number, sim_name(name));
}

/* A process that reaches no server must not retake a kept lease: the lease may be lost or recalled. */
static void see_to_kept(const struct sim_worker *worker, int name)
{
    struct sim_proc *proc = worker->proc;
    int64_t told = sim_servers->killed_at + 100 * SIM_MS + 4 * (plan->network.delay + plan->network.jitter);
    dibs_stats stats;

    if (plan->keep_ms == 0 || plan->topology != SIM_ONE || !plan->is_quiet)
        return;
    dibs_stats_get(worker->runtime, &stats);
    if (stats.retaken > proc->retaken && !sim_servers->alive && told < sim_now)
        sim_fail("process %d has taken again '%s', which it kept, though no server is there", proc->number,
                 sim_name(name));
    proc->retaken = stats.retaken;
}

/* A lease is handed over within a process for so long, counted from its grant. */
static void see_to_handover(const struct sim_worker *worker, int name, const dibs_hold *hold)
{
    int64_t most = plan->handoff_ms == DIBS_NO_HANDOFF ? 0 : plan->handoff_ms ? plan->handoff_ms : 10;

    if (hold->fence / SIM_HANDED_OVER > names[name].fence / SIM_HANDED_OVER)
        names[name].grant_at = sim_now;
    else if (!hold->shared && !(worker->several >> name & 1) && (plan->is_calm || plan->is_quiet) &&
             plan->keep_ms == 0 && sim_now - names[name].grant_at > (most + 50) * SIM_MS)
        sim_fail("%s has '%s' by a grant that is %.3f s old", sim_who(worker), sim_name(name),
                 (double)(sim_now - names[name].grant_at) / SIM_S);
}

/* A lease that is lost at its grant was lost before, unless threads are kept from running. */
static void see_to_grant(const struct sim_worker *worker, int name)
{
    bool is_known =
        plan->is_told && names[name].taken_at > worker->began && names[name].taken_at + learns_within() < sim_now;

    if (plan->topology == SIM_ONE && (!plan->loses_data || is_known) && plan->schedule.stall_chance == 0 &&
        !sim_has_fault(SIM_FAULT_proc_stop))
        sim_fail("%s was granted '%s', and had lost it before", sim_who(worker), sim_name(name));
}

/* Two masters have two clocks. And where a server that forgot its fences has its clock set back, it counts them up from
 * what is told of a token that has ended: in the same steps again, if it forgets twice. */
static bool may_repeat(uint64_t fence)
{
    return plan->topology == SIM_REPLICAS ||
           (plan->topology == SIM_ONE && (uint64_t)sim_server_us(sim_servers) < fence / SIM_HANDED_OVER);
}

static void see_to_exclusion(struct sim_worker *worker, int name)
{
    uint32_t sharers = 1, limit = sim_limit(plan, name);

    for (struct sim_worker *other = sim_workers; other; other = other->next) {
        struct sim_hold *hold = sim_hold_of(other, name);
        if (other == worker || !hold || other->inside || ask_for(other, name) != DIBS_OK ||
            ask_for(worker, name) != DIBS_OK)
            continue;
        struct sim_hold *own = sim_hold_of(worker, name);
        if (own->shared && hold->shared) {
            if (++sharers > limit && limit > 0 && !plan->loses_data)
                sim_fail("%u share '%s', whose limit is %u", sharers, sim_name(name), limit);
            continue;
        }
        if (!plan->loses_data)
            sim_fail("two holders of '%s': %s (fence %llu) and %s (fence %llu)", sim_name(name), sim_who(other),
                     (unsigned long long)hold->fence, sim_who(worker), (unsigned long long)own->fence);
        else if (own->fence == hold->fence && !may_repeat(own->fence))
            sim_fail("two holders of '%s' have the same fence", sim_name(name));
    }
}

/* Where data is lost, a hold may begin late, with an older fence; but not if it was asked for after the newer one
 * began. */
static bool must_rise(const struct sim_worker *worker, int name)
{
    if (!plan->loses_data)
        return true;
    return worker->began > names[name].fence_at && (worker->fair || plan->threads == 1) && plan->topology == SIM_ONE &&
           plan->handoff_ms == DIBS_NO_HANDOFF && !sim_has_fault(SIM_FAULT_clock_step);
}

/*
 * With DIBS_FAIR the first to ask is the first to get the lock, if nothing goes wrong, and no lease is handed over
 * within a process. Sharers are let in together, and may be told in any order. A waiter keeps its place if it asks
 * within half of its lease, and asks a third of it after the last answer: a sixth is left for the way to the server,
 * there and back, and for a script that must be sent again.
 */
static void see_to_order(const struct sim_worker *worker, int name)
{
    if (!(plan->is_calm || plan->is_quiet) || plan->topology != SIM_ONE || plan->handoff_ms != DIBS_NO_HANDOFF ||
        !worker->fair)
        return;
    for (const struct sim_worker *other = sim_workers; other; other = other->next)
        if (other != worker && other->inside && other->wants == name && other->fair &&
            other->lease_ms >= KEEPS_PLACE_MS && !(other->shares && worker->shares) &&
            other->began + 60 * SIM_MS < worker->began && other->limit > sim_now + 20 * SIM_MS)
            sim_fail("%s was granted '%s', for which %s has waited since %.3f s", sim_who(worker), sim_name(name),
                     sim_who(other), (double)other->began / SIM_S);
}

void sim_judge_acquired(struct sim_worker *worker, int name, const dibs_lock_options *options, bool again)
{
    dibs_hold hold;
    struct sim_hold *own = sim_hold_of(worker, name);

    if (again != (own != NULL))
        sim_fail("a first acquire of '%s' counts as %s", sim_name(name), again ? "another" : "the first");
    if (own) {
        own->count++;
        return;
    }
    sim_counts.grants++;
    sim_counts.shared += (options->flags & DIBS_SHARED) != 0;
    dibs_status status = dibs_hold_of(worker->runtime, sim_name(name), &hold);
    if (status == DIBS_NOT_HELD)
        sim_fail("'%s' was acquired, and is not held", sim_name(name));
    worker->holds[worker->hold_count++] = (struct sim_hold){.name = name,
                                                            .fence = hold.fence,
                                                            .count = 1,
                                                            .since = worker->began,
                                                            .held_at = sim_now,
                                                            .fixed = options->flags & DIBS_FIXED_LEASE,
                                                            .shared = options->flags & DIBS_SHARED,
                                                            .sure_until = sim_now + hold.remaining_ms * SIM_MS};
    sim_tell("has '%s', fence %llu%s", sim_name(name), (unsigned long long)hold.fence,
             status == DIBS_LOST ? ", and has lost it" : "");
    if (status != DIBS_OK) {
        see_to_grant(worker, name);
        return;
    }
    see_to_kept(worker, name);
    see_to_handover(worker, name, &hold);
    see_to_key(worker, name, &hold);
    uint64_t before = hold.shared ? names[name].alone : names[name].fence;
    if (hold.shared != ((options->flags & DIBS_SHARED) != 0))
        sim_fail("'%s' is not held as it was asked for", sim_name(name));
    if (hold.fence <= before && must_rise(worker, name))
        sim_fail("the fence of '%s' is %llu, after %llu", sim_name(name), (unsigned long long)hold.fence,
                 (unsigned long long)before);
    if (!hold.shared && hold.fence > before)
        names[name].alone = hold.fence;
    if (hold.fence > names[name].fence) {
        names[name].fence = hold.fence;
        names[name].fence_at = sim_now;
    }
    see_to_exclusion(worker, name);
    see_to_order(worker, name);
}

static bool only_servers_fail(void)
{
    const unsigned servers = 1u << SIM_FAULT_server_lose | 1u << SIM_FAULT_server_kill | 1u << SIM_FAULT_cut |
                             1u << SIM_FAULT_no_script | 1u << SIM_FAULT_server_recall;

    return (plan->kinds & ~servers) == 0 && plan->forces == 0 && plan->topology == SIM_ONE && plan->denied == 0;
}

/* Notes for how long the holder is sure of the lock (dibs_hold_of). */
void sim_judge_sure(struct sim_worker *worker, int name)
{
    struct sim_hold *own = sim_hold_of(worker, name);
    dibs_hold hold;

    if (dibs_hold_of(worker->runtime, sim_name(name), &hold) == DIBS_OK)
        own->sure_until = sim_now + hold.remaining_ms * SIM_MS;
}

/* Seed 104783: a holder gives its lock up though the third member, which was free for a moment, could have had its key.
 */
static bool a_member_forgets(void)
{
    return plan->topology == SIM_QUORUM && (sim_has_fault(SIM_FAULT_server_lose) || sim_has_fault(SIM_FAULT_flushall) ||
                                            sim_has_fault(SIM_FAULT_clock_step));
}

/* A forced unlock may end the hold that it was meant for, until its call has returned, and no later one. */
void sim_judge_forced(int name)
{
    names[name].forced_at = sim_now;
    sim_judge_took(name);
}

void sim_judge_took(int name)
{
    for (int i = 0; i < SIM_NAMES; i++)
        if (name < 0 || i == name) {
            names[i].taken_at = sim_now;
            names[i].foreign_until = 0;
        }
}

void sim_judge_came_back(void)
{
    sim_judge_took(-1);
    for (int name = 0; name < plan->names; name++)
        snprintf(names[name].brought, sizeof names[name].brought, "%s", token_of(name) ? token_of(name) : "");
}

void sim_judge_foreign(int name, int64_t until)
{
    names[name].foreign_until = until;
}

/* Nothing else can have taken a lock, and nobody forces one just now. */
static bool only_forces(void)
{
    for (enum sim_fault_kind kind = 0; kind < SIM_FAULT_KINDS; kind++)
        if (sim_has_fault(kind) && sim_takes_data(plan, kind))
            return false;
    return !is_forcing() && plan->forces > 0 && plan->topology == SIM_ONE && !sim_has_fault(SIM_FAULT_proc_kill);
}

/*
 * Notes the last grant of the first server, whether or not a client was told. Called also before that server forgets.
 */
void sim_judge_grants(void)
{
    for (int name = 0; name < plan->names; name++) {
        const struct sim_object *fence = sim_server_look(sim_servers, keys[name].fence);
        uint64_t granted = fence ? strtoull(fence->value, NULL, 10) : 0;
        names[name].granted = granted > names[name].granted ? granted : names[name].granted;
    }
}

static bool others_had_it(const struct sim_hold *hold)
{
    sim_judge_grants();
    return names[hold->name].granted > hold->fence / SIM_HANDED_OVER || names[hold->name].fence != hold->fence;
}

/*
 * No lock is lost before its lease is over; a lock that a restart forgot is restored, unless another client has had it
 * since. A lease that was handed over within a process may have been forced out before.
 */
void sim_judge_lost(struct sim_worker *worker, int name)
{
    struct sim_hold *own = sim_hold_of(worker, name);

    if (own->sure_until < sim_now || own->told)
        return;
    own->told = true;
    if ((!plan->loses_data && !a_member_forgets()) ||
        (only_forces() && names[name].forced_at < own->since && own->fence % SIM_HANDED_OVER == 0) ||
        (only_servers_fail() && !others_had_it(own)))
        sim_fail("'%s', fence %llu, is said to be lost %.3f s before its end", sim_name(name),
                 (unsigned long long)own->fence, (double)(own->sure_until - sim_now) / SIM_S);
}

/* Whether a fixed lease has ended by itself. */
static bool has_fixed(const struct sim_worker *worker)
{
    for (int i = 0; i < worker->hold_count; i++)
        if (worker->holds[i].fixed)
            return true;
    return false;
}

void sim_judge_released(struct sim_worker *worker, int name, dibs_status status)
{
    struct sim_hold *hold = sim_hold_of(worker, name);

    if (status == DIBS_NOT_HELD) {
        sim_fail("an unlock of '%s', which was held, says DIBS_NOT_HELD", sim_name(name));
        return;
    }
    if (status == DIBS_LOST) {
        sim_counts.losses++;
        if (!plan->loses_data && plan->topology == SIM_ONE) /* else see "Known limits" in doc/ARCHITECTURE.md */
            sim_judge_lost(worker, name);
    }
    if (--hold->count > 0)
        return;
    sim_judge_wanted(worker, name);
    *hold = worker->holds[--worker->hold_count];
}

/* One for each hold that is lost. The hold may have ended while the completion lay in the queue. */
void sim_judge_told(struct sim_worker *worker, const dibs_completion *loss)
{
    for (int i = 0; i < worker->hold_count; i++) {
        struct sim_hold *hold = &worker->holds[i];
        if (hold->fence != loss->fence || loss->task != worker->task || strcmp(sim_name(hold->name), loss->name) != 0)
            continue;
        if (hold->lost_told || !hold->begun)
            sim_fail("the loss of '%s' was told %s", loss->name, hold->begun ? "twice" : "though it was not begun");
        hold->lost_told = true;
    }
    if (plan->is_calm && (worker->hold_count == 0 || !has_fixed(worker)))
        sim_fail("the loss of '%s' is told, though nothing went wrong", loss->name ? loss->name : "a lock");
}

/* Once dibs_check says that a hold is lost, the completion comes soon. */
static void look_for_untold(const struct sim_worker *worker)
{
    int64_t most =
        (plan->command_timeout_ms + plan->connect_timeout_ms + 1000) * SIM_MS + 4 * plan->schedule.stall_most;

    for (int i = 0; i < worker->hold_count; i++) {
        const struct sim_hold *hold = &worker->holds[i];
        if (hold->begun && hold->lost_since && !hold->lost_told && !sim_has_fault(SIM_FAULT_proc_stop) &&
            sim_now - hold->lost_since > most && !worker->inside)
            sim_fail("the loss of '%s', since %.3f s, is told by no completion", sim_name(hold->name),
                     (double)hold->lost_since / SIM_S);
    }
}

/* ----------------------------------------------------------------------- calls */

void sim_judge_call(struct sim_worker *worker, const char *call, int name, int64_t most_ms)
{
    worker->on = name;
    worker->inside = true;
    worker->call = call;
    worker->began = sim_now;
    worker->limit = most_ms < 0 ? SIM_NEVER : sim_now + most_ms * SIM_MS;
    sim_counts.calls++;
    sim_clock_reads -= SIM_READS_OF_A_CALL;
}

/* Whether nothing goes wrong, except that slots may move. */
static bool is_well(void)
{
    return plan->is_calm || plan->is_moved;
}

/* A node named another one, and the call did not go there, though it had time, or was a try, which goes there, too. */
static bool is_led_elsewhere(const struct sim_worker *worker)
{
    bool is_over = worker->limit > worker->began && worker->limit <= sim_now;

    return !is_over && strstr(dibs_last_error(), "answered: MOVED");
}

static bool fits(const struct sim_worker *worker, dibs_status status)
{
    switch (status) {
    case DIBS_OK:
    case DIBS_BUSY:
    case DIBS_TIMEOUT:
    case DIBS_NOT_HELD:
    case DIBS_CLOSED:
        return true;
    case DIBS_LOST:
        return !is_well() || worker->freed || has_fixed(worker);
    case DIBS_CANCELLED:
        return worker->cancel_begun || worker->freed;
    case DIBS_UNAVAILABLE: /* a short call may find a slot in two parts all the time */
        return !is_well() || (!plan->is_calm && (worker->wants < 0 || worker->limit - worker->began < SIM_S) &&
                              !is_led_elsewhere(worker));
    case DIBS_DENIED:
    case DIBS_STORE_ERROR:
        if (plan->denied)
            return true;
        return sim_has_fault(SIM_FAULT_no_right) || sim_has_fault(SIM_FAULT_oom);
    case DIBS_NO_MEMORY:
        return plan->scarce > 0;
    default:
        return false;
    }
}

void sim_judge_return(struct sim_worker *worker, dibs_status status)
{
    worker->inside = false;
    bool fitting = fits(worker, status);
    worker->limit = SIM_NEVER;
    for (int name = 0; name < SIM_NAMES; name++)
        if (worker->wants == name || worker->several >> name & 1)
            sim_judge_wanted(worker, name);
    sim_mix((uint64_t)status + 77);
    sim_tell("%s%s%s: %s (%s)", worker->call, worker->on >= 0 ? " of " : "",
             worker->on >= 0 ? sim_name(worker->on) : "", dibs_status_name(status),
             status == DIBS_OK ? "" : dibs_last_error());
    if (!fitting)
        sim_fail("%s returned %s: %s", worker->call, dibs_status_name(status), dibs_last_error());
}

/* A lease that only a dead process keeps ends soon. In the first 20 ms it may still have its full length. */
static void look_for_kept(struct sim_proc *proc)
{
    int64_t under_way = 20 * SIM_MS + 4 * (plan->network.delay + plan->network.jitter);
    int64_t most = (4 * plan->keep_ms > 200 ? 4 * plan->keep_ms : 200) * SIM_MS;

    for (int name = 0; name < plan->names; name++) {
        bool kept = plan->keep_ms > 0 && plan->is_quiet && plan->topology == SIM_ONE && is_its(proc, name) &&
                    sim_now - names[name].left_at > under_way;
        for (struct sim_worker *worker = sim_workers; worker; worker = worker->next)
            kept = kept && (worker->proc != proc ||
                            (worker->asks != name && !(worker->several >> name & 1) && !sim_hold_of(worker, name)));
        if (kept)
            names[name].gone_by = sim_now + most + under_way;
        if (kept)
            snprintf(names[name].keeper, sizeof names[name].keeper, "%s", token_of(name));
    }
}

void sim_judge_killed(struct sim_proc *proc)
{
    look_for_kept(proc);
    for (struct sim_worker **at = &sim_workers; *at;)
        if ((*at)->proc == proc)
            *at = (*at)->next;
        else
            at = &(*at)->next;
}

void sim_judge_closed(const struct sim_proc *proc)
{
    if (proc->descriptors > 0)
        sim_fail("process %d has %d descriptors left", proc->number, proc->descriptors);
    if (proc->blocks > 20 + 2 * (size_t)proc->runtimes) /* handles stay, and so does what a process allocates once */
        sim_fail("process %d has %zu blocks of memory left", proc->number, proc->blocks);
}

/* ------------------------------------------------------------------ the sleepers */

/* For how long that has been so, at each look; 0: it is not. */
static int64_t lasts(int64_t *since, bool is_so)
{
    *since = !is_so ? SIM_NEVER : *since == SIM_NEVER ? sim_now : *since;
    return is_so ? sim_now - *since : 0;
}

static bool is_free(int name)
{
    for (struct sim_server *server = sim_servers; server; server = server->next)
        if (!server->sentinel && (!server->alive || sim_server_look(server, keys[name].lock)))
            return false;
    return true;
}

/* How long a waiter may sleep although the lock is free, once nothing goes wrong any more. */
static int64_t patience(void)
{
    int64_t ms = plan->bursts > 0 ? 1500 : plan->is_moved ? 2000 : 400;

    if (!plan->is_calm && !plan->is_moved)
        ms = 3000 + plan->lease_ms + 2 * (plan->command_timeout_ms + plan->connect_timeout_ms);
    if (sim_has_fault(SIM_FAULT_clock_step)) /* what was written before one lives longer */
        ms += 600000;
    return ms * SIM_MS + 4 * plan->schedule.stall_most;
}

static void look_at_sleepers(int64_t well_since)
{
    for (struct sim_worker *worker = sim_workers; worker; worker = worker->next) {
        if (worker->proc->stopped_until > sim_now || !worker->inside)
            continue;
        if (worker->wants >= 0) {
            int64_t since = names[worker->wants].free_since;
            since = worker->began > since && since != SIM_NEVER ? worker->began : since;
            since = well_since > since ? well_since : since;
            if (since != SIM_NEVER && sim_now - since > patience())
                sim_fail("%s has waited for '%s' for %.3f s, which is free since %.3f", sim_who(worker),
                         sim_name(worker->wants), (double)(sim_now - worker->began) / SIM_S,
                         (double)names[worker->wants].free_since / SIM_S);
        }
        int64_t limit = worker->limit > well_since ? worker->limit : well_since;
        if (worker->limit != SIM_NEVER && sim_now > limit + patience())
            sim_fail("%s: %s does not return, since %.3f s", sim_who(worker), worker->call,
                     (double)worker->began / SIM_S);
    }
}

static void count_holders(int name, int *known, int *sure)
{
    bool shared = false;

    *known = *sure = 0;
    for (struct sim_worker *worker = sim_workers; worker; worker = worker->next) {
        const struct sim_hold *hold = sim_hold_of(worker, name);
        *known += hold != NULL;
    }
    for (struct sim_worker *worker = *known > 1 ? sim_workers : NULL; worker; worker = worker->next) {
        const struct sim_hold *hold = sim_hold_of(worker, name);
        bool is_sure = hold && !hold->fixed && !worker->inside && worker->proc->stopped_until <= sim_now &&
                       ask_for(worker, name) == DIBS_OK;
        shared = shared || (is_sure && hold->shared);
        *sure += is_sure && !hold->shared;
    }
    *sure += shared; /* sharers count as one */
}

/*
 * Whether the runtime of that token may still exist, and restore the lock. The requests of a closed one may not have
 * reached the server.
 */
static bool is_open(const char *token)
{
    const struct sim_proc *proc = proc_of(token);

    return proc && proc->runtimes == 1;
}

/* Late requests are ignored: no process is granted a lock that none of its threads has wanted for so long. */
static void look_for_late(int name, const char *token)
{
    int64_t most = (plan->command_timeout_ms + 200) * SIM_MS + 4 * (plan->network.delay + plan->network.jitter);
    int proc = number_of(token);

    for (struct sim_worker *worker = sim_workers; worker; worker = worker->next)
        if (worker->proc->number == proc && (worker->inside || sim_hold_of(worker, name)))
            return;
    if (plan->is_late && is_open(token) && sim_now - *wanted_at(proc, name) > most)
        sim_fail("'%s' is granted to who has not wanted it since %.3f s: %s", sim_name(name),
                 (double)*wanted_at(proc, name) / SIM_S, token);
}

static bool may_be_had(int name)
{
    for (const struct sim_worker *worker = sim_workers; worker; worker = worker->next)
        if (worker->several >> name & 1)
            return true;
    return false;
}

static bool is_wanted(int name)
{
    for (const struct sim_worker *worker = sim_workers; worker; worker = worker->next)
        if (worker->inside && worker->wants == name)
            return true;
    return false;
}

/*
 * An abandoned lock would keep all others out. Of a shared lock the first sharer counts: others may come and go beside
 * it. A kept lease is given back when another client wants it. A lock that an older state of a server brings back ends
 * with its lease.
 */
static void look_for_nobodys(int name, int known)
{
    const char *token = first_token_of(name);
    int64_t most = plan->is_calm || plan->is_moved ? patience() : patience() - (int64_t)plan->lease_ms * SIM_MS;
    bool is_same = token && strncmp(token, names[name].token, 159) == 0;
    int64_t lasted = lasts(&names[name].nobody_since, is_same && known == 0 && !may_be_had(name) &&
                                                          (plan->keep_ms == 0 || is_wanted(name)) &&
                                                          strncmp(token, "dibs:", 5) == 0);
    int64_t well = sim_now - plan->well_from;

    if (token && !is_same)
        look_for_late(name, token);
    snprintf(names[name].token, sizeof names[name].token, "%s", token ? token : "");
    if (plan->is_late)
        most = (int64_t)(1500 + 4 * plan->command_timeout_ms) * SIM_MS;
    else if (plan->is_quiet && !sim_has_fault(SIM_FAULT_deaf) && plan->topology == SIM_ONE && is_open(token) &&
             !strchr(token, '~') && strcmp(token, names[name].brought) != 0)
        most = 1500 * SIM_MS + 10 * (plan->network.delay + plan->network.jitter);
    else if (plan->is_calm || plan->is_told)
        most += 300 * SIM_MS;
    else if ((plan->loses_data || plan->scarce > 0 || !is_open(token)) &&
             most < (int64_t)(6 * plan->lease_ms + 1000) * SIM_MS)
        most = (int64_t)(6 * plan->lease_ms + 1000) * SIM_MS;
    if (lasted > 0 && (lasted < well ? lasted : well) > most)
        sim_fail("'%s' is left to nobody, since %.3f s: %s", sim_name(name), (double)names[name].nobody_since / SIM_S,
                 token);
}

/* The process is there, and could send what takes the token out of the queue; and no thread wants the lock, or has it.
 */
static bool is_stray(const char *token, int name)
{
    const struct sim_proc *proc = proc_of(token);

    if (!proc || proc->runtimes != 1 || proc->stopped_until > sim_now || !sim_net_can_send(proc, sim_servers))
        return false;
    for (struct sim_worker *worker = sim_workers; worker; worker = worker->next)
        if (worker->proc == proc && (sim_hold_of(worker, name) || worker->several ||
                                     (worker->inside && (worker->wants == name || worker->wants < 0))))
            return false;
    return true;
}

/* Of a wait that has ended nothing stays in the queue, as soon as the server can be told. */
static void look_for_strays(int name)
{
    int64_t most = 500 * SIM_MS + 10 * (plan->network.delay + plan->network.jitter);
    const char *stray = "";

    if (plan->topology != SIM_ONE || !(plan->is_calm || plan->is_full))
        return;
    const struct sim_object *queue = object_of(name, keys[name].queue);
    for (size_t i = 0; queue && i < queue->count && stray != names[name].stray; i++)
        if (strncmp(queue->fields[i].name, "dibs:", 5) == 0 && is_stray(queue->fields[i].name, name))
            stray = strcmp(queue->fields[i].name, names[name].stray) == 0 ? names[name].stray : queue->fields[i].name;
    if (stray != names[name].stray) {
        snprintf(names[name].stray, sizeof names[name].stray, "%s", stray);
        names[name].stray_since = sim_now;
    }
    if (stray[0] && sim_now - names[name].stray_since > most)
        sim_fail("nobody waits for '%s' by what is in its queue since %.3f s: %s", sim_name(name),
                 (double)names[name].stray_since / SIM_S, stray);
}

/* Where nothing goes wrong, no lock is left idle for long while a thread waits for it, whatever the servers have of it.
 */
static void look_for_idle(int name, int known)
{
    bool is_idle = plan->is_calm && known == 0 && !may_be_had(name) && is_wanted(name);

    if (lasts(&names[name].idle_since, is_idle) > 2 * patience())
        sim_fail("nobody holds '%s' since %.3f s, though it is waited for", sim_name(name),
                 (double)names[name].idle_since / SIM_S);
}

static void look_for_dead_keeper(int name)
{
    const char *token = names[name].gone_by ? token_of(name) : NULL;

    if (!token || strncmp(token, names[name].keeper, 159) != 0)
        names[name].gone_by = 0;
    else if (sim_now > names[name].gone_by)
        sim_fail("'%s' is kept by a process that was killed: %s", sim_name(name), token);
}

/* A client without dibs keeps its lock. */
static void look_for_foreign(int name)
{
    if (plan->topology != SIM_ONE || sim_now + 2 * SAMPLE >= names[name].foreign_until || !sim_servers->alive ||
        is_forcing() || sim_has_fault(SIM_FAULT_clock_step))
        return;
    const char *token = token_of(name);
    if (!token || strcmp(token, "somebody") != 0)
        sim_fail("'%s' was taken from a client without dibs", sim_name(name));
}

/* A holder that has lost its lock is told within a third of the lease, counted from when the server answers again. */
static void look_for_two(int name, int sure)
{
    int64_t lasted = lasts(&names[name].two_since, sure > 1);
    int64_t well = sim_now - plan->well_from;

    if ((lasted < well ? lasted : well) > learns_within())
        sim_fail("two threads believe since %.3f s that they hold '%s'", (double)names[name].two_since / SIM_S,
                 sim_name(name));
}

/* A thread reads the clock repeatedly, instead of sleeping, and so makes time pass. */
void sim_judge_spins(void)
{
    if (plan->spin_us != DIBS_NO_SPIN || sim_failure[0])
        return;
    sim_fail("process %d, %s looks at the clock again and again", sim_current->proc->number, sim_current->name);
    abort(); /* which shows where */
}

static void on_sample(void *arg, uint64_t number)
{
    sim_clock_reads = 0;
    for (int name = 0; name < plan->names; name++)
        lasts(&names[name].free_since, is_free(name));
    for (int name = 0; name < plan->names; name++) {
        look_for_dead_keeper(name);
        look_for_strays(name);
        look_for_foreign(name);
    }
    for (int name = 0; name < plan->names && sim_now > plan->well_from; name++) {
        int known, sure;
        count_holders(name, &known, &sure);
        look_for_nobodys(name, known);
        look_for_two(name, sure);
        look_for_idle(name, known);
    }
    if (sim_now > plan->well_from)
        look_at_sleepers(plan->well_from);
    for (const struct sim_worker *worker = sim_workers; worker; worker = worker->next)
        look_for_untold(worker);
    if (!sim_work_is_over())
        sim_at(sim_now + SAMPLE, on_sample, NULL, 0);
}

static char *key(const char *before, int name, const char *behind)
{
    char text[40];

    snprintf(text, sizeof text, "%slock:%s%s", before, sim_name(name), behind);
    return strdup(text);
}

void sim_judge_begin(const struct sim_plan *drawn)
{
    plan = drawn;
    for (int name = 0; name < SIM_NAMES; name++)
        keys[name] = (struct keys){key("", name, ""), key("dibs:queue:{", name, "}"), key("dibs:fence:{", name, "}"),
                                   key("dibs:share:{", name, "}")};
    for (int name = 0; name < SIM_NAMES; name++)
        names[name].free_since = names[name].idle_since = names[name].nobody_since = names[name].two_since = SIM_NEVER;
    sim_at(SAMPLE, on_sample, NULL, 0);
}

/* As long as the documents say, if all is well, plus the stops of the process and of its threads. */
void sim_judge_close(int64_t began)
{
    int64_t most = plan->connect_timeout_ms + plan->command_timeout_ms + (plan->is_calm ? 50 : 200);

    if (sim_now - began > most * SIM_MS && began >= plan->last_fault)
        sim_fail("dibs_close took %.3f s", (double)(sim_now - began) / SIM_S);
}

void sim_judge_end(void)
{
    for (struct sim_server *server = sim_servers; server; server = server->next)
        if (sim_server_eternal(server))
            sim_fail("server %d has the key %s, which never expires", server->number, sim_server_eternal(server));
    for (struct sim_server *server = sim_servers; server; server = server->next)
        if (server->alive && !server->sentinel && !sim_has_fault(SIM_FAULT_clock_step) && /* it lengthens expiries */
            (sim_server_keys(server, "lock:") || sim_server_keys(server, "dibs:queue")))
            sim_fail("server %d has %zu keys of locks and %zu queues left", server->number,
                     sim_server_keys(server, "lock:"), sim_server_keys(server, "dibs:queue"));
}
