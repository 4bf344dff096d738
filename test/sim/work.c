/* The workload: random sequences of calls of dibs.h, made by the threads of the simulated processes. */
#include "judge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct sim_plan *plan;
static struct sim_proc *procs[SIM_PROCS_MOST];
static int going; /* processes that have not ended */
static int started;

/* --------------------------------------------------------------- tasks and queues */

static void enter(struct sim_worker *worker)
{
    if (!worker->task || worker->entered)
        return;
    if (dibs_task_enter(worker->task) != DIBS_OK)
        sim_fail("a task cannot be entered: %s", dibs_last_error());
    worker->entered = true;
}

static void leave(struct sim_worker *worker)
{
    if (!worker->entered)
        return;
    worker->entered = false;
    if (dibs_task_leave(worker->task) != DIBS_OK)
        sim_fail("a task cannot be left: %s", dibs_last_error());
}

/* The thread does not hold what its task does. */
static void leave_and_check(struct sim_worker *worker, int name)
{
    leave(worker);
    if (worker->task && dibs_check(worker->runtime, sim_name(name)) != DIBS_NOT_HELD)
        sim_fail("a thread holds '%s', which its task has acquired", sim_name(name));
}

/* The task is freed, with what it holds. */
static void free_task(struct sim_worker *worker)
{
    while (worker->users > 0)
        sim_pass(SIM_MS / 10);
    worker->hold_count = 0; /* it gives up what it holds */
    worker->freed = true;
    worker->entered = false;
    dibs_task_free(worker->task);
    sim_tell("has freed its task");
}

/* False: no more locks can be acquired. */
static bool new_task(struct sim_worker *worker)
{
    worker->freed = worker->cancel_begun = false;
    worker->cancelled_at = SIM_NEVER;
    return dibs_task_new(worker->runtime, &worker->task) == DIBS_OK;
}

/* Cancels a task, at best one that waits. Its call returns soon. */
static void cancel_somebody(const struct sim_worker *self)
{
    struct sim_worker *chosen = NULL;

    for (struct sim_worker *worker = sim_workers; worker; worker = worker->next)
        if (worker != self && worker->runtime == self->runtime && worker->task && !worker->freed &&
            (!chosen || (worker->inside && sim_chance(SIM_WORK, 0.6))))
            chosen = worker;
    if (!chosen)
        return;
    sim_tell("cancels what thread %d waits for", chosen->thread->number);
    chosen->users++;
    chosen->cancel_begun = true;
    dibs_task_cancel(chosen->task);
    chosen->cancelled_at = chosen->cancelled_at < sim_now ? chosen->cancelled_at : sim_now;
    if (chosen->inside && chosen->wants >= 0 && chosen->limit > sim_now)
        chosen->limit = sim_now;
    chosen->users--;
    sim_counts.cancelled++;
}

/* Any thread may use the task of a completed call at once. */
static void take_one(const dibs_completion *done)
{
    struct sim_worker *worker = done->arg;

    if (done->kind == DIBS_DONE_LOST) {
        sim_tell("thread %d is told of a loss", worker->thread->number);
        sim_judge_told(worker, done);
        return;
    }
    if (!worker->pending)
        sim_fail("a completion came for a call that is complete");
    if ((done->status == DIBS_OK) != (done->detail[0] == '\0'))
        sim_fail("the detail of a completion with %s is '%s'", dibs_status_name(done->status), done->detail);
    worker->done = *done;
    if (!worker->freed && sim_chance(SIM_WORK, 0.2)) {
        worker->users++;
        enter(worker);
        leave(worker);
        worker->users--;
    }
    worker->pending = false;
    sim_wake(worker->proc, &worker->pending, true);
}

/* The threads that take from a process's queue, until each has taken a completion that belongs to no call. */
struct takers {
    dibs_queue *queue;
    int going;
};

static size_t take_some(dibs_queue *queue, bool polls, dibs_completion *out, size_t most)
{
    struct pollfd fd = {.fd = polls ? dibs_queue_fd(queue) : -1, .events = POLLIN};

    if (polls && fd.fd < 0 && sim_scarce == 0)
        sim_fail("a queue has no descriptor");
    polls = polls && fd.fd >= 0;
    if (polls)
        sim_poll(&fd, 1, -1);
    return dibs_queue_take(queue, out, most,
                           polls                       ? 0
                           : sim_chance(SIM_WORK, 0.5) ? DIBS_WAIT_FOREVER
                                                       : sim_between(SIM_WORK, 1, 50));
}

static void *take(void *arg)
{
    struct takers *takers = arg;
    bool polls = sim_chance(SIM_WORK, 0.3), ends = false;
    dibs_completion done[4];

    while (!ends) {
        size_t count = take_some(takers->queue, polls, done, (size_t)sim_between(SIM_WORK, 1, 4));
        for (size_t i = 0; i < count; i++)
            if (done[i].arg)
                take_one(&done[i]);
            else
                ends = true;
        if (sim_chance(SIM_WORK, 0.3))
            sim_pass(sim_between_log(SIM_WORK, 1000, 5 * SIM_MS));
    }
    takers->going--;
    return NULL;
}

/* The call was begun. Meanwhile the task may be freed: the completion still comes. */
static dibs_status await_done(struct sim_worker *worker, dibs_done_kind kind)
{
    if (sim_chance(SIM_WORK, plan->cancels / 4)) {
        sim_pass(sim_between_log(SIM_WORK, 1000, 20 * SIM_MS));
        free_task(worker);
    }
    while (worker->pending)
        sim_sleep(&worker->pending, NULL, 0, SIM_NEVER);
    if (worker->done.kind != kind || worker->done.task != worker->task)
        sim_fail("a completion came that was not for this call");
    return worker->done.status;
}

static dibs_status not_begun(struct sim_worker *worker, dibs_status status)
{
    worker->pending = false;
    if (status == DIBS_BUSY)
        sim_fail("a call could not be begun: %s", dibs_last_error());
    return status;
}

static bool begins(struct sim_worker *worker)
{
    if (!worker->task || !sim_chance(SIM_WORK, plan->begins)) {
        enter(worker);
        return false;
    }
    leave(worker);
    worker->pending = true;
    sim_counts.begun++;
    return true;
}

/* ----------------------------------------------------------------------- calls */

/* Begins the call, if it does not make it. count: of several names; 0: it is one, and no call for several. */
static dibs_status call_lock(struct sim_worker *worker, const char *const *names, size_t count, int64_t wait_ms,
                             const dibs_lock_options *options, bool *begun)
{
    *begun = begins(worker);
    if (!*begun)
        return count ? dibs_lock_names(worker->runtime, names, count, wait_ms, options)
                     : dibs_lock_with(worker->runtime, names[0], wait_ms, options);
    dibs_status status =
        count ? dibs_lock_names_begin(worker->task, names, count, wait_ms, options, worker->queue, worker)
              : dibs_lock_begin(worker->task, names[0], wait_ms, options, worker->queue, worker);
    return status == DIBS_OK ? await_done(worker, DIBS_DONE_LOCK) : not_begun(worker, status);
}

static dibs_status call_unlock(struct sim_worker *worker, const char *name)
{
    if (!begins(worker))
        return dibs_unlock(worker->runtime, name);
    dibs_status status = dibs_unlock_begin(worker->task, name, worker->queue, worker);
    if (status == DIBS_OK)
        return await_done(worker, DIBS_DONE_UNLOCK);
    not_begun(worker, status);
    if (status != DIBS_NO_MEMORY)
        return status;
    enter(worker); /* it has the lock still */
    return dibs_unlock(worker->runtime, name);
}

/* Where leases are kept, mostly a name of the process's own. */
static int draw_name(const struct sim_worker *worker)
{
    if (plan->keep_ms > 0 && sim_chance(SIM_WORK, 0.85))
        return worker->proc->number % plan->names;
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

    if (plan->shared > 0 &&
        (plan->is_calm || plan->is_quiet)) /* a queue that is served often passes over a waiter that asks too rarely */
        return 200;
    return 20 + (is_tight ? (uint32_t)(20 * (plan->network.delay + plan->network.jitter) / SIM_MS) : 0);
}

static void see_to_end(struct sim_worker *worker, bool cancelled, dibs_status status)
{
    worker->ends = worker->ends || status == DIBS_CLOSED;
    if (cancelled && status != DIBS_CANCELLED && status != DIBS_CLOSED && status != DIBS_NO_MEMORY)
        sim_fail("a lock for a cancelled task returned %s", dibs_status_name(status));
}

static bool lock(struct sim_worker *worker, int name, int64_t wait_ms)
{
    dibs_lock_options options = {0};

    if (sim_chance(SIM_WORK, plan->fair))
        options.flags |= DIBS_FAIR;
    if (sim_chance(SIM_WORK, plan->fixed))
        options.flags |= DIBS_FIXED_LEASE;
    if (plan->bursts == 0 &&
        sim_chance(SIM_WORK, plan->odd_leases)) /* a short one has no time for a server that is busy */
        options.lease_ms =
            (uint32_t)sim_between_log(SIM_WORK, 20, plan->lease_ms * 2 < 86400000 ? plan->lease_ms * 2 : 86400000);
    if (options.lease_ms && options.lease_ms < least_lease())
        options.lease_ms = least_lease();
    if (sim_chance(SIM_WORK, 0.05))
        options.flags |= DIBS_NO_REENTRY;
    if (plan->shared > 0 && sim_chance(SIM_WORK, plan->shared)) {
        options.flags |= DIBS_SHARED;
        options.limit = sim_limit(plan, name);
    }
    bool again = sim_hold_of(worker, name) != NULL;
    bool upgrades = again && sim_hold_of(worker, name)->shared && !(options.flags & DIBS_SHARED);
    sim_tell("locks '%s'%s, waits %lld ms%s%s, lease %u", sim_name(name), options.flags & DIBS_SHARED ? " shared" : "",
             (long long)wait_ms, options.flags & DIBS_FAIR ? ", fair" : "",
             options.flags & DIBS_FIXED_LEASE ? ", fixed" : "", options.lease_ms);
    worker->wants = again || wait_ms == 0 ? -1 : name;
    worker->asks = again ? -1 : name;
    worker->fair = options.flags & DIBS_FAIR;
    worker->lease_ms = options.lease_ms ? options.lease_ms : sim_lease_ms(plan, worker->proc->number);
    worker->shares = options.flags & DIBS_SHARED;
    sim_judge_call(worker, "dibs_lock_with", name, limit_of(wait_ms));
    bool begun, cancelled = worker->task && worker->cancelled_at <= sim_now && !again;
    dibs_status status = call_lock(worker, (const char *const[]){sim_name(name)}, 0, wait_ms, &options, &begun);
    sim_judge_return(worker, status);
    sim_judge_wanted(worker, name);
    worker->wants = worker->asks = -1;
    see_to_end(worker, cancelled, status);
    if (worker->freed)
        return false;
    enter(worker);
    if (again && status == DIBS_OK && (options.flags & DIBS_NO_REENTRY))
        sim_fail("'%s' was entered again, with DIBS_NO_REENTRY", sim_name(name));
    if (upgrades && status == DIBS_OK)
        sim_fail("'%s', which the thread shares, was entered alone", sim_name(name));
    if (status == DIBS_OK) {
        sim_judge_acquired(worker, name, &options, again);
        struct sim_hold *own = sim_hold_of(worker, name);
        own->begun = again ? own->begun : begun;
        if (begun && worker->done.fence != own->fence)
            sim_fail("the fence of a completion is not that of the hold of '%s'", sim_name(name));
    }
    return status == DIBS_OK;
}

static void unlock(struct sim_worker *worker, int name)
{
    sim_judge_call(worker, "dibs_unlock", name, plan->command_timeout_ms);
    dibs_status status = call_unlock(worker, sim_name(name));
    sim_judge_return(worker, status);
    if (!worker->freed)
        sim_judge_released(worker, name, status);
}

static void check(struct sim_worker *worker, int name)
{
    enter(worker);
    dibs_status status = dibs_check(worker->runtime, sim_name(name));

    if (status == DIBS_NOT_HELD)
        sim_fail("dibs_check of '%s', which is held, says DIBS_NOT_HELD", sim_name(name));
    struct sim_hold *own = sim_hold_of(worker, name);
    if (status == DIBS_LOST) {
        sim_tell("has lost '%s'", sim_name(name));
        own->lost_since = own->lost_since ? own->lost_since : sim_now;
        sim_judge_lost(worker, name);
    }
    if (status == DIBS_OK)
        sim_judge_sure(worker, name);
    if (status == DIBS_OK && sim_judge_is_gone(worker, name))
        sim_fail("%s does not know that '%s' was taken from it", sim_who(worker), sim_name(name));
    if (status == DIBS_LOST && plan->is_calm && !own->fixed)
        sim_fail("'%s' was lost, though nothing went wrong", sim_name(name));
}

static void extend(struct sim_worker *worker, int name)
{
    uint32_t least = plan->is_calm && plan->lease_ms / 3 > 20 ? plan->lease_ms / 3 : 20;
    uint32_t ms = (uint32_t)sim_between_log(SIM_WORK, least, plan->lease_ms * 6);

    sim_hold_of(worker, name)->sure_until = 0;
    enter(worker);
    sim_tell("extends '%s' to %u ms", sim_name(name), ms);
    sim_judge_call(worker, "dibs_extend", name, 2 * plan->command_timeout_ms);
    dibs_status status = dibs_extend(worker->runtime, sim_name(name), ms);
    sim_judge_return(worker, status);
    sim_judge_sure(worker, name);
    if (status == DIBS_NOT_HELD)
        sim_fail("dibs_extend of '%s', which is held, says DIBS_NOT_HELD", sim_name(name));
}

static void force(struct sim_worker *worker, int name)
{
    dibs_owner owner;

    bool by_token = plan->topology == SIM_QUORUM && sim_chance(SIM_WORK, 0.5);
    if (by_token && (dibs_query(worker->runtime, sim_name(name), &owner) != DIBS_OK || !owner.token[0]))
        return;
    sim_judge_call(worker, "dibs_force_unlock", name, plan->command_timeout_ms);
    dibs_status status = dibs_force_unlock(worker->runtime, sim_name(name), by_token ? owner.token : NULL);
    sim_judge_return(worker, status);
    sim_judge_forced(name);
}

static bool on_listed(const char *name, const dibs_owner *owner, void *arg)
{
    ++*(int *)arg;
    return true;
}

/* A thread that has been waiting fairly for a while, with a place of its own in the queue. */
static int count_waiters(int name, int64_t since)
{
    int count = 0;

    for (const struct sim_worker *worker = sim_workers; worker; worker = worker->next)
        count += worker->inside && worker->wants == name && worker->fair && worker->began < since &&
                 worker->cancelled_at == SIM_NEVER && worker->proc->stopped_until <= sim_now;
    return count;
}

/* The queue contains all waiters, and a lock with a waiter is not forgotten. */
static void look_at_queue(struct sim_worker *worker, int name)
{
    static dibs_waiter waiters[64];
    int64_t since = sim_now - 200 * SIM_MS - 4 * (plan->network.delay + plan->network.jitter);
    bool forgets = sim_chance(SIM_WORK, 0.3) && plan->topology != SIM_QUORUM; /* whose clocks may differ */
    size_t count = 0;

    sim_judge_call(worker, forgets ? "dibs_forget" : "dibs_query_waiters", name, plan->command_timeout_ms);
    dibs_status status = forgets ? dibs_forget(worker->runtime, sim_name(name))
                                 : dibs_query_waiters(worker->runtime, sim_name(name), waiters, 64, &count);
    sim_judge_return(worker, status);
    int wait = count_waiters(name, since);
    bool is_sure = plan->topology == SIM_ONE && (plan->is_calm || plan->is_quiet || plan->is_told) &&
                   !sim_has_fault(SIM_FAULT_flushall) && !sim_has_fault(SIM_FAULT_server_lose);
    if (is_sure && status == DIBS_OK &&
        wait > (forgets ? 0 : (int)count + 1)) /* one waiter may have the lock, and not know it yet */
        sim_fail("%s of '%s' knows of %zu who wait, of %d", worker->call, sim_name(name), count, wait);
}

static void query(struct sim_worker *worker, int name)
{
    if (sim_chance(SIM_WORK, 0.4)) {
        look_at_queue(worker, name);
        return;
    }
    dibs_owner owner;
    int count = 0;
    bool one = sim_chance(SIM_WORK, 0.7);

    sim_judge_call(worker, one ? "dibs_query" : "dibs_list", name, one ? (int64_t)plan->command_timeout_ms : -1);
    dibs_status status =
        one ? dibs_query(worker->runtime, sim_name(name), &owner) : dibs_list(worker->runtime, NULL, on_listed, &count);
    sim_judge_return(worker, status);
}

/* -------------------------------------------------------------- several names */

#define SEVERAL 4 /* names of a call, at most */

/*
 * The names follow each other in a ring of all names, so that every pair occurs in both orders; or they are held
 * already.
 */
static size_t draw_names(const struct sim_worker *worker, int *out, const char **texts)
{
    if (worker->hold_count > 0 && sim_chance(SIM_WORK, 0.3)) {
        out[0] = worker->holds[0].name;
        texts[0] = sim_name(out[0]);
        return 1;
    }
    size_t count = (size_t)sim_between(SIM_WORK, 1, plan->names < SEVERAL ? plan->names : SEVERAL);
    int first = draw_name(worker);
    bool down = sim_chance(SIM_WORK, 0.5);

    for (size_t i = 0; i < count; i++) {
        out[i] = (first + (int)(down ? count - 1 - i : i)) % plan->names;
        texts[i] = sim_name(out[i]);
    }
    return count;
}

/* What each name is after a call for all of them, which had the worker's holds before. */
static void judge_several(struct sim_worker *worker, const int *wanted, size_t count, dibs_status status, bool begun)
{
    const dibs_lock_options options = {0};

    for (size_t i = 0; i < count; i++) {
        bool again = sim_hold_of(worker, wanted[i]) != NULL;
        if (status == DIBS_OK) {
            sim_judge_acquired(worker, wanted[i], &options, again);
            if (!again)
                sim_hold_of(worker, wanted[i])->begun = begun;
        } else if (again && status == DIBS_TIMEOUT && sim_judge_is_gone(worker, wanted[i])) {
            sim_fail("the call for several names does not say that '%s' was lost", sim_name(wanted[i]));
        } else if (!again && dibs_check(worker->runtime, sim_name(wanted[i])) != DIBS_NOT_HELD) {
            sim_fail("'%s' is held, though the call for several names failed", sim_name(wanted[i]));
        }
    }
}

static bool holds_all(struct sim_worker *worker, const int *wanted, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!sim_hold_of(worker, wanted[i]))
            return false;
    return true;
}

/*
 * Locks all names, or none. A thread that holds others waits for a limited time: otherwise two could wait for each
 * other.
 */
static bool lock_several(struct sim_worker *worker)
{
    int wanted[SEVERAL];
    const char *texts[SEVERAL];
    size_t count = draw_names(worker, wanted, texts);
    dibs_lock_options options = {.flags = sim_chance(SIM_WORK, plan->fair) ? DIBS_FAIR : 0};
    int64_t wait_ms = worker->hold_count > 0 ? sim_between_log(SIM_WORK, 1, 4000) : draw_wait();
    bool all = holds_all(worker, wanted, count), begun;
    bool cancelled = worker->task && worker->cancelled_at <= sim_now && worker->hold_count == 0;

    sim_tell("locks %zu names from '%s' on, waits %lld ms", count, texts[0], (long long)wait_ms);
    worker->wants = -1;
    worker->fair = worker->shares = false;
    /* Names that were granted to a failed call are given back before it returns. */
    sim_judge_call(worker, "dibs_lock_names", -1, wait_ms < 0 ? -1 : limit_of(wait_ms) + plan->command_timeout_ms);
    for (size_t i = 0; i < count; i++)
        worker->several |= 1u << wanted[i];
    dibs_status status = call_lock(worker, texts, count, wait_ms, &options, &begun);
    sim_judge_return(worker, status);
    see_to_end(worker, cancelled, status);
    if (worker->freed) {
        worker->several = 0;
        return false;
    }
    if (all && status == DIBS_CANCELLED)
        sim_fail("a cancelled task cannot enter again what it holds");
    enter(worker);
    judge_several(worker, wanted, count, status, begun);
    worker->several = 0;
    return status == DIBS_OK;
}

/* A name may be given twice, and counts once. And one may be among them that is not held. */
static void unlock_several(struct sim_worker *worker)
{
    const char *texts[2 * SIM_HOLDS + 2];
    size_t count = 0, different;
    int stranger = draw_name(worker);

    for (int i = 0; i < worker->hold_count; i++)
        if (worker->holds[i].count == 1)
            texts[count++] = sim_name(worker->holds[i].name);
    bool errs = !sim_hold_of(worker, stranger) && sim_chance(SIM_WORK, 0.3);
    if (errs)
        texts[count++] = sim_name(stranger);
    for (different = count; count < 2 * different && sim_chance(SIM_WORK, 0.3); count++)
        texts[count] = texts[count - different];
    worker->proc->not_held += errs;
    enter(worker);
    sim_judge_call(worker, "dibs_unlock_names", -1, plan->command_timeout_ms);
    dibs_status status = dibs_unlock_names(worker->runtime, texts, count);
    sim_judge_return(worker, status);
    if (errs ? status == DIBS_OK : status == DIBS_NOT_HELD)
        sim_fail("dibs_unlock_names returned %s", dibs_status_name(status));
    for (int i = worker->hold_count - 1; i >= 0; i--)
        if (worker->holds[i].count == 1)
            sim_judge_released(worker, worker->holds[i].name, DIBS_OK);
}

static void hold(struct sim_worker *worker, int name)
{
    int64_t left = sim_between_log(SIM_WORK, plan->hold_least, plan->hold_most);

    while (left > 0 && !worker->freed) {
        if (sim_chance(SIM_WORK, 0.5))
            leave_and_check(worker, name);
        int64_t part = sim_between(SIM_WORK, left / 3, left) + plan->hold_most / 200 + 1;
        sim_pass(part);
        left -= part;
        check(worker, name);
        if (sim_chance(SIM_WORK, plan->extends))
            extend(worker, name);
        if (sim_chance(SIM_WORK, plan->nests) && worker->hold_count < SIM_HOLDS - 1) {
            int other = draw_name(worker);
            if (plan->several > 0 && worker->hold_count < SIM_HOLDS - SEVERAL && sim_chance(SIM_WORK, 0.6))
                lock_several(worker);
            else if (lock(worker, other, sim_between(SIM_WORK, 0, 20)) && other != name && sim_chance(SIM_WORK, 0.5))
                unlock(worker, other);
        }
        if (sim_chance(SIM_WORK, plan->cancels))
            cancel_somebody(worker);
    }
}

/*
 * Two crowds at once would keep the server busy for longer than a lease, so each goes when the server may have done
 * with the last one. A release takes up to eight commands.
 */
static void wait_for_turn(void)
{
    static int64_t next_at;
    int64_t now = sim_now;

    int64_t from = next_at > now ? next_at : now;
    next_at = from + 8 * SIM_CROWD * plan->server_cost;
    if (from > now)
        sim_pass(from - now);
}

/* Many locks that nobody else wants are released at once, at best by the end of the thread. */
static void burst(struct sim_worker *worker)
{
    const dibs_lock_options options = {.lease_ms = 20000};
    dibs_status status = DIBS_OK;
    int count = 0;

    enter(worker);
    sim_judge_call(worker, "dibs_lock_with", -1, -1);
    for (int i = 0; i < SIM_CROWD && status == DIBS_OK; i++) {
        char name[24];
        snprintf(name, sizeof name, "p%d-%d-%d", worker->proc->number, worker->thread->number, i);
        status = dibs_lock_with(worker->runtime, name, 0, &options);
        count += status == DIBS_OK;
    }
    sim_judge_return(worker, status);
    wait_for_turn();
    sim_tell("has %d locks, and lets them go", count);
    if (sim_chance(SIM_WORK, 0.3)) {
        sim_judge_call(worker, "dibs_unlock_all", -1, -1);
        sim_judge_return(worker, dibs_unlock_all(worker->runtime));
    } else {
        worker->ends = true;
    }
}

static void release_all(struct sim_worker *worker)
{
    if (worker->hold_count > 1 && sim_chance(SIM_WORK, 0.3)) {
        enter(worker);
        sim_judge_call(worker, "dibs_unlock_all", -1, (int64_t)plan->command_timeout_ms * worker->hold_count);
        dibs_status status = dibs_unlock_all(worker->runtime);
        sim_judge_return(worker, status);
        while (worker->hold_count > 0) {
            worker->holds[0].count = 1;
            sim_judge_released(worker, worker->holds[0].name, DIBS_OK);
        }
    }
    if (plan->several > 0 && worker->hold_count > 0 && sim_chance(SIM_WORK, 0.6))
        unlock_several(worker);
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
    bool looks_on = plan->looks_on && worker->proc->number % plan->procs == 0;
    bool has_task = worker->queue && sim_chance(SIM_WORK, plan->tasks) && new_task(worker);
    while (!is_enough()) {
        int name = draw_name(worker);
        if (plan->bursts > 0 && sim_chance(SIM_WORK, plan->bursts))
            burst(worker);
        else if (sim_chance(SIM_WORK, plan->forces))
            force(worker, name);
        else if (looks_on || sim_chance(SIM_WORK, plan->queries))
            query(worker, name);
        else if (plan->several > 0 && sim_chance(SIM_WORK, plan->several)) {
            if (lock_several(worker))
                hold(worker, worker->holds[0].name);
        } else if (lock(worker, name, draw_wait()))
            hold(worker, name);
        if (worker->hold_count > 0 && sim_chance(SIM_WORK, plan->orphans))
            break; /* the thread ends, and holds locks */
        release_all(worker);
        if (worker->ends)
            break;
        if (sim_chance(SIM_WORK, plan->cancels))
            cancel_somebody(worker);
        if (has_task && (worker->freed || worker->cancel_begun)) {
            if (!worker->freed)
                free_task(worker);
            has_task = new_task(worker);
        }
        sim_pass(plan->pause_mostly > 0 && sim_chance(SIM_WORK, 0.5)
                     ? plan->pause_mostly + sim_between(SIM_WORK, -SIM_MS / 10, 0)
                     : sim_between_log(SIM_WORK, looks_on ? 10 * SIM_MS : 1000, plan->pause_most));
    }
    if (has_task && !worker->freed)
        free_task(worker);
    struct sim_worker **at = &sim_workers;
    while (*at != worker)
        at = &(*at)->next;
    *at = worker->next;
    return NULL;
}

/* -------------------------------------------------------------------- processes */

static size_t urls(const char **out)
{
    static char text[SIM_SERVERS][128];
    size_t count = plan->topology == SIM_QUORUM ? (size_t)plan->servers : 1;

    for (size_t i = 0; i < count; i++) {
        snprintf(text[i], sizeof text[i], "redis://10.0.0.%zu", i + 1);
        out[i] = text[i];
    }
    if (plan->topology == SIM_REPLICAS)
        out[0] = "redis-sentinel://10.0.0.21:6379,10.0.0.22:6379,10.0.0.23:6379/main";
    if (plan->topology == SIM_CLUSTER)
        out[0] = "redis-cluster://10.0.0.1,10.0.0.2,10.0.0.3";
    return count;
}

static void on_event(const dibs_event *event, void *arg)
{
    sim_tell("is told: %s", event->detail);
}

static dibs_runtime *open_runtime(void)
{
    const char *list[SIM_SERVERS];
    dibs_config config = {.urls = list,
                          .url_count = urls(list),
                          .lease_ms = sim_lease_ms(plan, sim_current->proc->number),
                          .command_timeout_ms = plan->command_timeout_ms,
                          .connect_timeout_ms = plan->connect_timeout_ms,
                          .outage_ms = plan->outage_ms,
                          .handoff_ms = plan->handoff_ms,
                          .min_replicas = plan->min_replicas,
                          .replica_timeout_ms = plan->min_replicas ? plan->command_timeout_ms / 2 : 0,
                          .spin_us = plan->spin_us,
                          .keep_ms = plan->keep_ms,
                          .on_event = plan->has_events ? on_event : NULL};
    dibs_runtime *runtime;

    for (;;) {
        dibs_status status = dibs_open(&runtime, &config);
        if (status == DIBS_OK)
            return runtime;
        sim_tell("dibs_open: %s", dibs_last_error());
        if (plan->is_calm || status == DIBS_INVALID || (status == DIBS_NO_MEMORY && plan->scarce == 0))
            sim_fail("dibs_open: %s", dibs_last_error());
        sim_pass(50 * SIM_MS);
    }
}

/* In a run where nothing goes wrong, no connection breaks, and no renewal fails. */
static void judge_stats(const struct sim_worker *last)
{
    dibs_stats stats;
    bool none_is_left = plan->orphans == 0 && plan->bursts == 0;

    dibs_stats_get(last->runtime, &stats);
    /* A task that was freed during an unlock gives up the rest when that is complete. */
    for (int tries = 0; none_is_left && stats.holds > 0 && tries < 100; tries++) {
        sim_pass(SIM_MS);
        dibs_stats_get(last->runtime, &stats);
    }
    sim_counts.retaken += (long)stats.retaken;
    if (plan->is_calm && (stats.reconnects > 0 || (stats.renew_failed > 0 && plan->topology != SIM_QUORUM)))
        sim_fail("%llu connections were replaced and %llu renewals failed, though nothing went wrong",
                 (unsigned long long)stats.reconnects, (unsigned long long)stats.renew_failed);
    if (stats.not_held != last->proc->not_held && !plan->shuts_down) /* a closed runtime counts nothing */
        sim_fail("%llu unlocks of what was not held are counted, of %llu", (unsigned long long)stats.not_held,
                 (unsigned long long)last->proc->not_held);
    if (stats.holds > 0 && none_is_left)
        sim_fail("%llu holds are left, of threads that have ended", (unsigned long long)stats.holds);
}

static void begin_takers(struct takers *takers, struct sim_worker *last)
{
    if (plan->tasks == 0)
        return;
    while (dibs_queue_new(&takers->queue) != DIBS_OK || !new_task(last)) {
        if (plan->scarce == 0)
            sim_fail("there is no queue: %s", dibs_last_error());
        if (takers->queue)
            dibs_queue_free(takers->queue);
        takers->queue = NULL;
        sim_pass(SIM_MS);
    }
    last->queue = takers->queue;
    last->thread = sim_current;
    takers->going = (int)sim_between(SIM_WORK, 1, 2);
    for (int i = 0; i < takers->going; i++)
        sim_start(last->proc, "taker", take, takers);
}

/* The runtime is closed. */
static void end_takers(struct takers *takers, struct sim_worker *last)
{
    if (!takers->queue)
        return;
    for (int left = takers->going; left > 0; left--) {
        while (dibs_unlock_begin(last->task, sim_name(0), takers->queue, NULL) != DIBS_OK)
            if (sim_scarce == 0)
                sim_fail("an unlock cannot be begun: %s", dibs_last_error());
        while (takers->going == left)
            sim_pass(SIM_MS);
    }
    bool queue_first = sim_chance(SIM_WORK, 0.5);
    if (queue_first)
        dibs_queue_free(takers->queue);
    dibs_task_free(last->task);
    if (!queue_first)
        dibs_queue_free(takers->queue);
    takers->queue = NULL;
}

/* An acquire may be under way when the runtime is closed: it is complete when dibs_close returns. */
static void close_runtime(struct sim_worker *last)
{
    sim_judge_wanted(last, 0);
    if (last->queue && !plan->shuts_down && sim_chance(SIM_WORK, 0.5)) {
        last->pending = true;
        while (dibs_lock_begin(last->task, sim_name(0), DIBS_WAIT_FOREVER, NULL, last->queue, last) != DIBS_OK)
            if (sim_scarce == 0)
                sim_fail("a lock cannot be begun: %s", dibs_last_error());
        if (sim_chance(SIM_WORK, 0.5))
            sim_pass(sim_between_log(SIM_WORK, 1000, 5 * SIM_MS));
    }
    sim_judge_wanted(last, 0);
    int64_t began = sim_now;
    dibs_close(last->runtime);
    sim_judge_close(began);
    sim_tell("has closed it");
    for (int ms = 0; last->pending; ms++) {
        sim_pass(SIM_MS);
        if (ms * SIM_MS > 400 * SIM_MS + 4 * plan->schedule.stall_most)
            sim_fail("a begun call is not complete, though dibs_close has returned");
    }
}

static void *run_process(void *arg)
{
    struct sim_proc *proc = sim_current->proc;
    struct sim_thread *threads[16];
    struct sim_worker *workers = calloc((size_t)plan->threads, sizeof *workers), last;
    struct takers takers = {NULL, 0};

    do {
        dibs_runtime *runtime = open_runtime();
        sim_tell("has opened a runtime");
        proc->runtimes++;
        proc->retaken = proc->not_held = 0;
        last = (struct sim_worker){.proc = proc, .runtime = runtime};
        begin_takers(&takers, &last);
        for (int i = 0; i < plan->threads; i++) {
            workers[i] =
                (struct sim_worker){.proc = proc, .runtime = runtime, .queue = last.queue, .wants = -1, .asks = -1};
            threads[i] = sim_start(proc, "worker", work, &workers[i]);
        }
        if (plan->shuts_down) {
            sim_pass(sim_between(SIM_WORK, SIM_MS, plan->end));
            dibs_shutdown(runtime);
            sim_tell("shuts down");
        }
        for (int i = 0; i < plan->threads; i++)
            while (threads[i]->state != SIM_ENDED)
                sim_sleep(threads[i], NULL, 0, SIM_NEVER);
        judge_stats(&last);
        close_runtime(&last);
        end_takers(&takers, &last);
    } while (!is_enough());
    proc->ended = true;
    return NULL;
}

/* The last thread of a process has ended. */
static void on_look(void *arg, uint64_t number)
{
    struct sim_proc *proc = procs[number];

    if (proc != arg)
        return;
    if (!proc->ended) {
        sim_at(sim_now + 10 * SIM_MS, on_look, proc, number);
        return;
    }
    sim_judge_closed(proc);
    sim_proc_kill(proc);
    procs[number] = NULL;
    going--;
}

static void start(int number)
{
    struct sim_proc *proc = sim_proc_start(++started);

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

    if (!proc || proc->ended)
        return;
    sim_judge_killed(proc);
    sim_proc_kill(proc);
    start(number % plan->procs);
}

bool sim_work_is_over(void)
{
    return going == 0 || sim_failure[0];
}
