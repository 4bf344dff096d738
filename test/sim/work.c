#include "work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct sim_plan *plan;
static struct sim_proc *procs[SIM_PROCS_MOST];
static int going; /* processes that have not ended */
static int begun;

/* ----------------------------------------------------------------------- calls */

static int draw_name(void)
{
    return (int)sim_between(SIM_WORK, 0, plan->names - 1);
}

static int64_t draw_wait(void)
{
    if (sim_chance(SIM_WORK, 0.15))
        return 0;
    return sim_chance(SIM_WORK, plan->waits) ? DIBS_WAIT_FOREVER : sim_between_log(SIM_WORK, 1, 8000);
}

static int64_t limit_of(int64_t wait_ms)
{
    return wait_ms < 0 ? -1 : wait_ms > 0 ? wait_ms : (int64_t)plan->command_timeout_ms + plan->connect_timeout_ms;
}

/* Where nothing goes wrong, a lease of a quorum lasts long enough for some requests. */
static uint32_t least_lease(void)
{
    bool is_tight = plan->is_calm && plan->topology == SIM_QUORUM;

    return 20 + (is_tight ? (uint32_t)(20 * (plan->network.delay + plan->network.jitter) / SIM_MS) : 0);
}

static bool lock(struct sim_worker *worker, int name, int64_t wait_ms)
{
    dibs_lock_options options = {0};

    if (sim_chance(SIM_WORK, plan->fair))
        options.flags |= DIBS_FAIR;
    if (sim_chance(SIM_WORK, plan->fixed))
        options.flags |= DIBS_FIXED_LEASE;
    if (plan->bursts == 0 && sim_chance(SIM_WORK, 0.1)) /* a short one has no time for a server that is busy */
        options.lease_ms =
            (uint32_t)sim_between_log(SIM_WORK, 20, plan->lease_ms * 2 < 86400000 ? plan->lease_ms * 2 : 86400000);
    if (options.lease_ms && options.lease_ms < least_lease())
        options.lease_ms = least_lease();
    if (sim_chance(SIM_WORK, 0.05))
        options.flags |= DIBS_NO_REENTRY;
    bool again = sim_hold_of(worker, name) != NULL;
    sim_tell("locks '%s', waits %lld ms%s%s, lease %u", sim_name(name), (long long)wait_ms,
             options.flags & DIBS_FAIR ? ", fair" : "", options.flags & DIBS_FIXED_LEASE ? ", fixed" : "",
             options.lease_ms);
    worker->wants = again || wait_ms == 0 ? -1 : name;
    worker->fair = options.flags & DIBS_FAIR;
    sim_judge_call(worker, "dibs_lock_with", limit_of(wait_ms));
    dibs_status status = worker->proc->api->dibs_lock_with(worker->runtime, sim_name(name), wait_ms, &options);
    int64_t took = sim_now - worker->began;
    sim_judge_return(worker, status);
    worker->wants = -1;
    worker->ends = worker->ends || status == DIBS_CLOSED;
    if (again && status == DIBS_OK && (options.flags & DIBS_NO_REENTRY))
        sim_fail("'%s' was entered again, with DIBS_NO_REENTRY", sim_name(name));
    if (took > SIM_MS)
        sim_counts.waited++;
    if (status == DIBS_OK)
        sim_judge_acquired(worker, name, options.flags & DIBS_FIXED_LEASE, again);
    else
        sim_tell("'%s': %s (%s)", sim_name(name), worker->proc->api->dibs_status_name(status),
                 worker->proc->api->dibs_last_error());
    return status == DIBS_OK;
}

static void unlock(struct sim_worker *worker, int name)
{
    sim_judge_call(worker, "dibs_unlock", plan->command_timeout_ms);
    dibs_status status = worker->proc->api->dibs_unlock(worker->runtime, sim_name(name));
    sim_judge_return(worker, status);
    sim_tell("unlocked '%s': %s", sim_name(name), worker->proc->api->dibs_status_name(status));
    sim_judge_released(worker, name, status);
}

static void check(struct sim_worker *worker, int name)
{
    dibs_status status = worker->proc->api->dibs_check(worker->runtime, sim_name(name));

    if (status == DIBS_NOT_HELD)
        sim_fail("dibs_check of '%s', which is held, says DIBS_NOT_HELD", sim_name(name));
    if (status == DIBS_LOST)
        sim_tell("has lost '%s'", sim_name(name));
    if (status == DIBS_LOST)
        sim_judge_lost(worker, name);
    else
        sim_judge_sure(worker, name);
    if (status == DIBS_LOST && plan->is_calm && !sim_hold_of(worker, name)->fixed)
        sim_fail("'%s' was lost, though nothing went wrong", sim_name(name));
}

static void extend(struct sim_worker *worker, int name)
{
    uint32_t least = plan->is_calm && plan->lease_ms / 3 > 20 ? plan->lease_ms / 3 : 20;
    uint32_t ms = (uint32_t)sim_between_log(SIM_WORK, least, plan->lease_ms * 6);

    sim_hold_of(worker, name)->sure_until = 0;
    sim_judge_call(worker, "dibs_extend", 2 * plan->command_timeout_ms);
    dibs_status status = worker->proc->api->dibs_extend(worker->runtime, sim_name(name), ms);
    sim_judge_return(worker, status);
    sim_tell("extended '%s' to %u ms: %s", sim_name(name), ms, worker->proc->api->dibs_status_name(status));
    sim_judge_sure(worker, name);
    if (status == DIBS_NOT_HELD)
        sim_fail("dibs_extend of '%s', which is held, says DIBS_NOT_HELD", sim_name(name));
}

static void force(struct sim_worker *worker, int name)
{
    sim_judge_call(worker, "dibs_force_unlock", plan->command_timeout_ms);
    dibs_status status = worker->proc->api->dibs_force_unlock(worker->runtime, sim_name(name), NULL);
    sim_judge_return(worker, status);
    sim_judge_forced(name);
    sim_tell("forced '%s': %s", sim_name(name), worker->proc->api->dibs_status_name(status));
}

static bool on_listed(const char *name, const dibs_owner *owner, void *arg)
{
    (void)name;
    (void)owner;
    ++*(int *)arg;
    return true;
}

static void query(struct sim_worker *worker, int name)
{
    dibs_owner owner;
    int count = 0;
    bool one = sim_chance(SIM_WORK, 0.7);

    sim_judge_call(worker, one ? "dibs_query" : "dibs_list", one ? (int64_t)plan->command_timeout_ms : -1);
    dibs_status status = one ? worker->proc->api->dibs_query(worker->runtime, sim_name(name), &owner)
                             : worker->proc->api->dibs_list(worker->runtime, NULL, on_listed, &count);
    sim_judge_return(worker, status);
}

/* --------------------------------------------------------------------- threads */

static void hold(struct sim_worker *worker, int name)
{
    int64_t left = sim_between_log(SIM_WORK, plan->hold_least, plan->hold_most);

    while (left > 0) {
        int64_t part = sim_between(SIM_WORK, left / 3, left) + plan->hold_most / 200 + 1;
        sim_pass(part);
        left -= part;
        check(worker, name);
        if (sim_chance(SIM_WORK, plan->extends))
            extend(worker, name);
        if (sim_chance(SIM_WORK, plan->nests) && worker->hold_count < SIM_HOLDS - 1) {
            int other = draw_name();
            if (lock(worker, other, sim_between(SIM_WORK, 0, 20)) && other != name && sim_chance(SIM_WORK, 0.5))
                unlock(worker, other);
        }
    }
}

/* Many locks, of which nobody else wants one, are let go at once, at best by the end of the thread. */
static void burst(struct sim_worker *worker)
{
    const dibs_lock_options options = {.lease_ms = 20000};
    dibs_status status = DIBS_OK;
    int count = 0;

    sim_judge_call(worker, "dibs_lock_with", -1);
    for (int i = 0; i < SIM_CROWD && status == DIBS_OK; i++) {
        char name[24];
        snprintf(name, sizeof name, "p%d-%d-%d", worker->proc->number, worker->thread->number, i);
        status = worker->proc->api->dibs_lock_with(worker->runtime, name, 0, &options);
        count += status == DIBS_OK;
    }
    sim_judge_return(worker, status);
    sim_tell("has %d locks, and lets them go", count);
    if (sim_chance(SIM_WORK, 0.3)) {
        sim_judge_call(worker, "dibs_unlock_all", -1);
        sim_judge_return(worker, worker->proc->api->dibs_unlock_all(worker->runtime));
    } else {
        worker->ends = true;
    }
}

static void release_all(struct sim_worker *worker)
{
    if (worker->hold_count > 1 && sim_chance(SIM_WORK, 0.3)) {
        sim_judge_call(worker, "dibs_unlock_all", (int64_t)plan->command_timeout_ms * worker->hold_count);
        dibs_status status = worker->proc->api->dibs_unlock_all(worker->runtime);
        sim_judge_return(worker, status);
        sim_tell("unlocked all: %s", worker->proc->api->dibs_status_name(status));
        while (worker->hold_count > 0) {
            worker->holds[0].count = 1;
            sim_judge_released(worker, worker->holds[0].name, DIBS_OK);
        }
    }
    while (worker->hold_count > 0)
        unlock(worker, worker->holds[worker->hold_count - 1].name);
}

static bool is_enough(void)
{
    return sim_now >= plan->end || sim_counts.calls >= plan->calls_most;
}

static void *work(void *arg)
{
    struct sim_worker *worker = arg;

    worker->thread = sim_current;
    worker->next = sim_workers;
    worker->wants = -1;
    sim_workers = worker;
    while (!is_enough()) {
        int name = draw_name();
        if (plan->bursts > 0 && sim_chance(SIM_WORK, plan->bursts))
            burst(worker);
        else if (sim_chance(SIM_WORK, plan->forces))
            force(worker, name);
        else if (sim_chance(SIM_WORK, plan->queries))
            query(worker, name);
        else if (lock(worker, name, draw_wait()))
            hold(worker, name);
        if (worker->hold_count > 0 && sim_chance(SIM_WORK, plan->orphans))
            break; /* the thread ends, and holds locks */
        release_all(worker);
        if (worker->ends)
            break;
        sim_pass(sim_between_log(SIM_WORK, 1000, plan->pause_most));
    }
    struct sim_worker **at = &sim_workers;
    while (*at != worker)
        at = &(*at)->next;
    *at = worker->next;
    return NULL;
}

/* -------------------------------------------------------------------- processes */

static void urls(const char **out, char text[SIM_SERVERS][128], size_t *count)
{
    *count = 0;
    if (plan->topology == SIM_REPLICAS) {
        snprintf(text[0], 128, "redis-sentinel://10.0.0.21:6379,10.0.0.22:6379,10.0.0.23:6379/main");
        out[(*count)++] = text[0];
        return;
    }
    for (struct sim_server *server = sim_servers; server; server = server->next) {
        if (plan->topology == SIM_QUORUM || *count == 0)
            snprintf(text[*count], 128, "redis://%s", sim_server_name(server));
        else
            continue;
        out[*count] = text[*count];
        ++*count;
    }
}

static void on_event(const dibs_event *event, void *arg)
{
    (void)arg;
    sim_tell("is told: %s", event->detail);
}

static dibs_runtime *open_runtime(const struct sim_api *api)
{
    const char *list[SIM_SERVERS];
    char text[SIM_SERVERS][128];
    dibs_config config = {.urls = list,
                          .lease_ms = plan->lease_ms,
                          .renew_ms = plan->renew_ms,
                          .command_timeout_ms = plan->command_timeout_ms,
                          .connect_timeout_ms = plan->connect_timeout_ms,
                          .outage_ms = plan->outage_ms,
                          .handoff_ms = plan->handoff_ms,
                          .min_replicas = plan->min_replicas,
                          .replica_timeout_ms = plan->min_replicas ? plan->command_timeout_ms / 2 : 0,
                          .spin_us = plan->spin_us,
                          .on_event = plan->has_events ? on_event : NULL};
    dibs_runtime *runtime;

    urls(list, text, &config.url_count);
    for (;;) {
        dibs_status status = api->dibs_open(&runtime, &config);
        if (status == DIBS_OK)
            return runtime;
        sim_tell("dibs_open: %s", api->dibs_last_error());
        if (plan->is_calm || status == DIBS_INVALID || status == DIBS_NO_MEMORY)
            sim_fail("dibs_open: %s", api->dibs_last_error());
        sim_pass(50 * SIM_MS);
    }
}

/* Where nothing goes wrong, no connection breaks, and no renewal fails. */
static void judge_stats(const struct sim_api *api, dibs_runtime *runtime)
{
    dibs_stats stats;

    api->dibs_stats_get(runtime, &stats);
    if (plan->is_calm && (stats.reconnects > 0 || (stats.renew_failed > 0 && plan->topology != SIM_QUORUM)))
        sim_fail("%llu connections were made anew and %llu renewals failed, though nothing went wrong",
                 (unsigned long long)stats.reconnects, (unsigned long long)stats.renew_failed);
    if (stats.holds > 0 && plan->orphans == 0 && plan->bursts == 0)
        sim_fail("%llu holds are left, of threads that have ended", (unsigned long long)stats.holds);
}

static void *run_process(void *arg)
{
    struct sim_proc *proc = sim_current->proc;
    struct sim_thread *threads[16];
    struct sim_worker *workers = calloc((size_t)plan->threads, sizeof *workers);

    do {
        dibs_runtime *runtime = open_runtime(proc->api);
        sim_tell("has opened a runtime");
        sim_counts.opened++;
        proc->runtimes++;
        for (int i = 0; i < plan->threads; i++) {
            workers[i] = (struct sim_worker){.proc = proc, .runtime = runtime, .wants = -1};
            threads[i] = sim_start(proc, "worker", work, &workers[i]);
        }
        if (plan->shuts_down) {
            sim_pass(sim_between(SIM_WORK, SIM_MS, plan->end));
            proc->api->dibs_shutdown(runtime);
            sim_tell("shuts down");
        }
        for (int i = 0; i < plan->threads; i++)
            while (threads[i]->state != SIM_ENDED)
                sim_sleep(threads[i], NULL, 0, SIM_NEVER);
        judge_stats(proc->api, runtime);
        int64_t began = sim_now;
        proc->api->dibs_close(runtime);
        sim_judge_close(began);
        sim_tell("has closed it");
    } while (!is_enough());
    proc->user = arg;
    return NULL;
}

/* The last thread of a process has ended. */
static void on_look(void *arg, uint64_t number)
{
    struct sim_proc *proc = procs[number];

    if (proc != arg)
        return;
    if (!proc->user) {
        sim_at(sim_now + 10 * SIM_MS, on_look, proc, number);
        return;
    }
    sim_judge_closed(proc, proc->runtimes);
    sim_proc_kill(proc);
    procs[number] = NULL;
    going--;
}

static void start(int number)
{
    struct sim_proc *proc = sim_proc_start(++begun);

    procs[number] = proc;
    sim_start(proc, "main", run_process, proc);
    sim_at(sim_now + 10 * SIM_MS, on_look, proc, (uint64_t)number);
}

void sim_work_begin(const struct sim_plan *drawn)
{
    plan = drawn;
    going = plan->procs;
    for (int i = 0; i < plan->procs; i++)
        start(i);
}

struct sim_proc *sim_work_proc(int proc)
{
    return procs[proc % plan->procs];
}

void sim_work_kill(int number)
{
    struct sim_proc *proc = procs[number % plan->procs];

    if (!proc || proc->user)
        return;
    sim_judge_killed(proc);
    sim_proc_kill(proc);
    start(number % plan->procs);
}

bool sim_work_is_over(void)
{
    return going == 0 || sim_failure[0];
}
