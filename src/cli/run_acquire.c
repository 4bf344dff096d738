/*
 * How "dibs run" and "dibs hold" acquire and release the lock. While the main thread opens the store and waits in
 * dibs_lock_with, a second thread, the listener, looks out for what ends the wait.
 */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/run.h"
#include "cli/run_hear.h"
#include "cli/run_inside.h"
#include "cli/run_waiting.h"
#include "cli/text.h"

#define LEAVE_MS 3000 /* how long locks are left one after the other at a store that does not answer */

static struct {
    pthread_mutex_t mutex;
    char why[CLI_SHOWN_MAX + 512]; /* guarded by mutex: the reason, after a colon; "": it is not known yet */
    bool told;                     /* guarded by mutex: run_tell_loss was called */
} loss = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static _Atomic bool waits;      /* atomic: the main thread waits for the lock */
static _Atomic bool wait_ended; /* atomic: something has ended the wait, or the attempt to reach the store */

struct listener {
    struct cli_thread thread;
    int wire; /* -1: there is no front; the listener only, once it runs */
    pthread_mutex_t mutex;
    dibs_runtime *rt; /* guarded by mutex; NULL: the store is not open, so dibs has left nothing there */
    int status;       /* guarded by mutex: the exit status, once the wait was ended; before: RUN_HOLDS */
};

/* --------------------------------------------------------------- the listener */

/* The first status counts. Ends the process during dibs_open, which can't be interrupted but leaves nothing behind. */
static void end_wait(struct listener *listener, int status)
{
    pthread_mutex_lock(&listener->mutex);
    if (!listener->rt) {
        run_wire_send(listener->wire, RUN_STATUS, status, 0, NULL);
        _exit(status);
    }
    if (listener->status == RUN_HOLDS)
        listener->status = status;
    atomic_store(&wait_ended, true);
    dibs_shutdown(listener->rt);
    pthread_mutex_unlock(&listener->mutex);
}

static void hear_signals(struct listener *listener)
{
    for (int signal; (signal = run_signals_next()) != 0;)
        if (run_signals_passed(signal))
            end_wait(listener, 128 + signal);
}

static void hear_front(struct listener *listener)
{
    struct run_message message;
    int got = 0;

    while (listener->wire >= 0 && (got = run_wire_receive(listener->wire, &message)) == 1)
        if (message.word == RUN_SIGNAL && (run_signals_passed(message.number) || message.number == SIGTSTP))
            end_wait(listener, 128 + message.number);
    if (got < 0) {
        end_wait(listener, 128 + SIGKILL);
        listener->wire = -1;
    }
}

/* Returns false if what dibs is tied to has ended. */
static bool look_at_ties(struct listener *listener)
{
    const char *ended = run_tie_ended();

    if (ended) {
        cli_warn("%s: not acquired: %s has ended", run_plan.shown, ended);
        end_wait(listener, run_plan.not_acquired);
    }
    return !ended;
}

static void *listen_for_the_end(void *argument)
{
    struct listener *listener = argument;

    while (look_at_ties(listener)) {
        run_wait(listener->wire, listener->thread.quit[0], -1);
        if (cli_thread_must_end(&listener->thread, 0))
            break;
        hear_signals(listener);
        hear_front(listener);
    }
    return NULL;
}

/* ------------------------------------------------------------------- the lock */

/* Notes the reason, which follows the first colon of the event's detail; of several locks, also which it was. */
static void on_loss(const char *name, const dibs_event *event)
{
    const char *colon = strstr(event->detail, ": "), *which = run_plan.name_count > 1 ? name : "";
    bool told;

    if (!colon)
        return;
    pthread_mutex_lock(&loss.mutex);
    snprintf(loss.why, sizeof loss.why, "%s%s%s", *which ? ": " : "", which, colon);
    told = loss.told;
    pthread_mutex_unlock(&loss.mutex);
    if (told)
        cli_warn("%s: the lease was lost%s", name, colon);
}

void run_tell_loss(void)
{
    char why[sizeof loss.why];

    pthread_mutex_lock(&loss.mutex);
    if (run_inside_remaining_ms() < 0)
        snprintf(loss.why, sizeof loss.why, ": the outer dibs does not hold the lock any more");
    memcpy(why, loss.why, sizeof why);
    loss.told = true;
    pthread_mutex_unlock(&loss.mutex);
    cli_warn("%s: the lease was lost%s", run_plan.shown, why);
}

static void say_event(const char *name, const dibs_event *event)
{
    if (event->kind == DIBS_EVENT_AT_RISK)
        cli_warn("%s: %s", name, event->detail);
    else if (event->kind == DIBS_EVENT_STORE_DOWN && atomic_load(&waits))
        cli_warn("%s: %s; waits for that to pass", run_plan.shown, event->detail);
    else
        cli_note("%s%s%s", name, *name ? ": " : "", event->detail);
}

static void on_event(const dibs_event *event, void *unused)
{
    char name[CLI_SHOWN_MAX];

    (void)unused;
    cli_show(name, sizeof name, event->name ? event->name : "");
    if (event->kind == DIBS_EVENT_LOST)
        on_loss(name, event);
    if (cli_may_say()) /* dibs_close waits for the end of this function, which must not have to wait for a reader */
        say_event(name, event);
    if (event->kind == DIBS_EVENT_LOST)
        run_signals_wake();
}

static uint32_t lease_of(void)
{
    return (uint32_t)(run_plan.lease_ms > run_plan.at_least_ms ? run_plan.lease_ms : run_plan.at_least_ms);
}

/* outage_ms of the configuration: without --outage, the time of the wait. Never 0, which stands for the default. */
static uint32_t outage_of(void)
{
    int64_t outage_ms = run_plan.outage_ms >= 0 ? run_plan.outage_ms : run_plan.wait_ms;

    if (outage_ms < 0 || outage_ms > UINT32_MAX)
        return UINT32_MAX;
    return outage_ms > 0 ? (uint32_t)outage_ms : 1;
}

static int64_t wait_left_ms(void)
{
    int64_t left;

    if (run_plan.wait_ms <= 0)
        return run_plan.wait_ms;
    left = run_plan.wait_until - cli_now_ms();
    return left > 0 ? left : 0;
}

bool run_goes_on(int64_t since)
{
    return !atomic_load(&wait_ended) && wait_left_ms() != 0 && run_plan.outage_ms != 0 &&
           cli_now_ms() - since < outage_of();
}

/* Prints why a call returned that status. Returns the exit status. */
static int failed(dibs_status status)
{
    if (status == DIBS_INVALID)
        return cli_failed(status);
    cli_warn("%s: %s", run_plan.shown, dibs_last_error());
    return cli_exit_of(status);
}

/* dibs_open tries only once, so a store that can't be reached is tried again for as long as dibs waits. */
static int open_store(dibs_runtime **rt)
{
    dibs_config *config = &cli_common.config;
    int64_t since = cli_now_ms();
    dibs_status status;

    config->lease_ms = lease_of();
    config->on_event = on_event;
    config->label = run_plan.label;
    config->outage_ms = outage_of();
    config->min_replicas = (uint32_t)run_plan.min_replicas;
    config->durable = run_plan.durable;
    for (bool told = false;; told = true) {
        status = cli_open(rt);
        if (status != DIBS_UNAVAILABLE || !run_goes_on(since))
            break;
        if (!told)
            cli_warn("%s: %s; waits for that to pass", run_plan.shown, dibs_last_error());
        poll(NULL, 0, RUN_AGAIN_MS);
    }
    return status == DIBS_OK ? CLI_OK : failed(status);
}

/*
 * A waiter asks the store so seldom that it may not have noticed that the store can't be reached any more. If nobody
 * has the lock, and replicas or the disk must confirm it, the end of the wait came before they had.
 */
static int timed_out(const struct run_lock *lock)
{
    bool unconfirmed = run_plan.min_replicas > 0 || run_plan.durable;

    for (size_t i = 0; i < lock->count; i++) {
        dibs_owner owner;
        dibs_status status = dibs_query(lock->rt, lock->names[i], &owner);
        if (status != DIBS_OK)
            return failed(status);
        unconfirmed = unconfirmed && !owner.held;
    }
    if (unconfirmed) {
        cli_warn("%s: %s the lock before the time was over; nobody else holds it", run_plan.shown,
                 run_plan.min_replicas > 0 ? "too few replicas acknowledged" : "the disk did not confirm");
        return CLI_UNAVAILABLE;
    }
    cli_note("%s: not acquired in the time given", run_plan.shown);
    return run_plan.not_acquired;
}

static int refused(const struct run_lock *lock, dibs_status status)
{
    switch (status) {
    case DIBS_BUSY:
        cli_note("%s: %s", run_plan.shown,
                 run_plan.name_count > 1 ? dibs_last_error()
                 : run_plan.slots > 0    ? "no slot is free, or others came before and wait"
                                         : "somebody else holds the lock");
        return run_plan.not_acquired;
    case DIBS_TIMEOUT:
        return timed_out(lock);
    case DIBS_CLOSED: /* a signal came */
        return CLI_FAILED;
    default:
        return failed(status);
    }
}

/* Reads the fence and the token of NAME. False, after a message: the lock was lost since it was acquired. */
static bool look_up(struct run_lock *lock)
{
    dibs_hold hold;

    if (lock->names[0] != run_plan.names[0])
        return true; /* the dibs around this one has NAME */
    if (dibs_hold_of(lock->rt, run_plan.names[0], &hold) != DIBS_OK ||
        dibs_token_of(lock->rt, run_plan.names[0], lock->token) != DIBS_OK) {
        cli_warn("%s: the lease was lost at once", run_plan.shown);
        return false;
    }
    lock->fence = hold.fence;
    return true;
}

/* Whether this dibs may run under the lock of the one around it; if not, says why. */
static bool may_enter(const dibs_owner *owner)
{
    if (run_plan.no_reentry)
        cli_warn("%s: an outer dibs holds the lock", run_plan.shown);
    else if (owner->sharers > 0 && !run_plan.shared)
        cli_warn("%s: an outer dibs shares the lock: this one would wait for ever to have it alone", run_plan.shown);
    else
        return true;
    return false;
}

/*
 * If a dibs around this one holds a lock, this one must not wait for it: it would wait for its own end. The store
 * decides who holds it, since the lock in the environment may have been released. Returns RUN_HOLDS, and the names of
 * the locks that must be acquired are then in *lock; or an exit status, after a message.
 */
static int enter(struct run_lock *lock)
{
    dibs_owner owner;

    for (size_t i = 0; i < run_plan.name_count; i++) {
        dibs_status status = run_inside_enters(lock->rt, run_plan.names[i], &owner);
        if (status == DIBS_UNAVAILABLE)
            return atomic_load(&wait_ended) ? CLI_FAILED : failed(status);
        if (status != DIBS_OK) {
            lock->names[lock->count++] = run_plan.names[i];
            continue;
        }
        if (!may_enter(&owner))
            return run_plan.not_acquired;
        cli_note("%s: an outer dibs holds the lock, and keeps it", run_plan.shown);
        if (i > 0)
            continue;
        lock->fence = owner.fence;
        memcpy(lock->token, owner.token, sizeof lock->token);
    }
    if (run_inside_watch(lock->rt))
        return RUN_HOLDS;
    cli_error("no descriptor or thread to be had");
    return CLI_SYSTEM;
}

static int take_lock(struct run_lock *lock)
{
    const dibs_lock_options options = {.flags = (run_plan.fair ? DIBS_FAIR : 0u) | (run_plan.shared ? DIBS_SHARED : 0u),
                                       .limit = (uint32_t)run_plan.slots};
    int64_t start = cli_now_ms();
    dibs_status answer;

    atomic_store(&waits, run_plan.wait_ms != 0);
    int status = enter(lock);
    if (status != RUN_HOLDS || lock->count == 0) {
        atomic_store(&waits, false);
        return status;
    }
    run_waiting_begin(lock);
    answer = lock->count == 1 ? dibs_lock_with(lock->rt, lock->names[0], wait_left_ms(), &options)
                              : dibs_lock_names(lock->rt, lock->names, lock->count, wait_left_ms(), &options);
    run_waiting_end();
    atomic_store(&waits, false);
    if (answer != DIBS_OK)
        return refused(lock, answer);
    if (!look_up(lock))
        return CLI_LOST;
    int64_t outer_left_ms = run_inside_remaining_ms();
    run_inside_fit();
    if (outer_left_ms <= run_plan.grace_ms + run_plan.margin_ms) {
        run_tell_loss();
        return CLI_LOST;
    }
    cli_note("%s: acquired after %.3f s, fence %llu", run_plan.shown, (double)(cli_now_ms() - start) / 1000,
             (unsigned long long)lock->fence);
    return RUN_HOLDS;
}

int run_acquire(int wire, struct run_lock *lock)
{
    struct listener listener = {.wire = wire, .status = RUN_HOLDS, .mutex = PTHREAD_MUTEX_INITIALIZER};
    int status;

    memset(lock, 0, sizeof *lock);
    if (!cli_thread_start(&listener.thread, listen_for_the_end, &listener)) {
        cli_error("no descriptor or thread to be had");
        return CLI_SYSTEM;
    }
    status = open_store(&lock->rt);
    pthread_mutex_lock(&listener.mutex);
    listener.rt = lock->rt;
    pthread_mutex_unlock(&listener.mutex);
    if (lock->rt)
        status = take_lock(lock);
    cli_thread_end(&listener.thread); /* signals and messages that come later are left for the loop of the holder */
    if (listener.status != RUN_HOLDS)
        status = listener.status;
    if (status != RUN_HOLDS) {
        run_inside_end();
        dibs_close(lock->rt);
        lock->rt = NULL;
    }
    return status;
}

/* -------------------------------------------------------------------- its end */

int64_t run_remaining_ms(const struct run_lock *lock)
{
    int64_t least = run_inside_remaining_ms();
    dibs_hold hold;

    for (size_t i = 0; i < lock->count; i++) {
        if (dibs_hold_of(lock->rt, lock->names[i], &hold) != DIBS_OK)
            return -1;
        least = hold.remaining_ms < least ? hold.remaining_ms : least;
    }
    return least;
}

dibs_status run_extend(const struct run_lock *lock, int64_t lease_ms, int64_t for_ms)
{
    int64_t end = cli_now_ms() + for_ms;
    dibs_status worst = DIBS_OK, status = DIBS_OK;

    for (size_t i = 0; i < lock->count && (status != DIBS_UNAVAILABLE || cli_now_ms() < end); i++) {
        status = dibs_extend(lock->rt, lock->names[i], (uint32_t)lease_ms);
        worst = status != DIBS_OK && worst != DIBS_LOST ? status : worst;
    }
    return worst;
}

/*
 * Leaves the lock in the store for keep_ms. The lease was as long as --at-least from the start, and no renewal made it
 * shorter, so the lock stays long enough even if the store does not answer now.
 */
static bool leave(struct run_lock *lock, int64_t keep_ms)
{
    dibs_status status = run_extend(lock, keep_ms < 20 ? 20 : keep_ms, LEAVE_MS);

    if (status == DIBS_OK)
        cli_note("%s: stays locked for another %.10g s, by --at-least", run_plan.shown, (double)keep_ms / 1000);
    else if (status != DIBS_LOST)
        cli_warn("%s: stays locked for up to %.10g s: %s", run_plan.shown, (double)cli_common.config.lease_ms / 1000,
                 dibs_last_error());
    return status != DIBS_LOST;
}

static bool release(struct run_lock *lock)
{
    dibs_status status = lock->count == 1 ? dibs_unlock(lock->rt, lock->names[0])
                                          : dibs_unlock_names(lock->rt, lock->names, lock->count);

    if (status == DIBS_OK)
        cli_note("%s: released", run_plan.shown);
    else if (status != DIBS_LOST)
        cli_warn("%s: could not be released, and stays locked for up to %.10g s: %s", run_plan.shown,
                 (double)cli_common.config.lease_ms / 1000, dibs_last_error());
    return status != DIBS_LOST;
}

static bool holds_any(const struct run_lock *lock)
{
    for (size_t i = 0; i < lock->count; i++)
        if (dibs_check(lock->rt, lock->names[i]) == DIBS_OK)
            return true;
    return false;
}

bool run_release(struct run_lock *lock, int64_t keep_ms)
{
    bool sure = run_remaining_ms(lock) >= 0, leaves = keep_ms > 0 && holds_any(lock);
    bool kept = lock->count == 0 || (leaves ? leave(lock, keep_ms) : release(lock));

    run_inside_end();
    if (leaves) /* the runtime is not closed: that would release the lock */
        return kept && sure;
    dibs_close(lock->rt);
    lock->rt = NULL;
    return kept && sure;
}
