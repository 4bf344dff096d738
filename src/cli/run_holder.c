/*
 * The holder of "dibs run": holds the lock, and is COMMAND's parent. One loop over poll(2) reads the messages of the
 * front and the signals, waits for the end of processes, and looks at the lease.
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/child.h"
#include "cli/run.h"
#include "cli/run_hear.h"
#include "cli/run_inside.h"
#include "cli/run_terminal.h"

#define PATIENCE_MS 1000 /* how long what COMMAND leaves behind may take to end by itself */
#define ROUND_MS 10      /* between two rounds of SIGKILL, in the first second */
#define SLOW_ROUND_MS 300
#define GIVE_UP_MS 10000         /* how long SIGKILL is repeated once the lease is lost */
#define LOOK_MS 5                /* between two looks at who has the lock now */
#define SHORTEN_MS INT64_C(1000) /* how long it makes leases shorter; twice that at a silent store */
#define RENEWED_MS 100           /* a lease that ends later by this than was known was renewed */
#define HEAR_MOST 64             /* at most this many messages, and signals, are read in one round of the loop */

struct holder {
    pid_t front;
    struct run_lock lock;
    int64_t start_ms; /* when the lock was acquired */

    int wire;          /* -1: the front is gone */
    bool front_paused; /* the front is about to be stopped, on purpose */
    int64_t front_ms;  /* when the front sent its last message, or was told of a shorter lease */

    pid_t child;     /* COMMAND, and its process group */
    int report;      /* of child_start; -1: there is none, or it was read */
    int start_error; /* errno that says why COMMAND could not be run; 0: that is not known */
    bool ended;      /* COMMAND has ended */
    bool signalled;  /* a signal was passed on */
    int wait_status; /* COMMAND's, once ended */

    enum { RUNS, LINGERS, TERM_SENT, KILL_SENT } phase;
    int64_t phase_until_ms; /* when LINGERS or TERM_SENT ends */
    int64_t killed_ms;      /* when KILL_SENT began */
    bool group_has_term;    /* the front sent SIGTERM to COMMAND's group */
    bool stuck_told;        /* a message has said that a process can't be killed */
    bool given_up;          /* COMMAND must end: the lease is lost, or about to end, or the front is gone or stopped */
    bool lost;              /* the lease is lost, or COMMAND had to end as if it were */
    int64_t sure_until_ms;  /* until then the lease was sure to last, when it was looked at last */
    bool shortened;         /* the lease was shortened after --at-least */
    int64_t not_shortened_ms; /* when the lease was to end after the last attempt at that, which failed */

    struct cli_thread looker;
    _Atomic bool taken; /* atomic: somebody else has the lost lock, or that is not known */
};

/* --------------------------------------------------------------- after a loss */

/* Whether the lock's owner in the store keeps this process from having it again. */
static bool is_taken(const dibs_owner *owner)
{
    bool sharable =
        run_plan.shared && owner->sharers > 0 && (run_plan.slots == 0 || owner->sharers < (uint32_t)run_plan.slots);

    return owner->held && !sharable;
}

/*
 * Looks whether the lost lock is still free: as long as it is, COMMAND has its grace time. The store grants the lock to
 * the next waiter when that waiter asks again, which it does now and then.
 */
static void *look(void *argument)
{
    struct holder *holder = argument;
    dibs_owner owner;

    while (dibs_query(holder->lock.rt, run_plan.names[0], &owner) == DIBS_OK && !is_taken(&owner))
        if (cli_thread_must_end(&holder->looker, LOOK_MS))
            return NULL;
    atomic_store(&holder->taken, true);
    run_signals_wake();
    return NULL;
}

/* With several locks COMMAND has no grace time: those that were not lost are held, so that looking shows nothing. */
static void start_to_look(struct holder *holder)
{
    if (run_plan.name_count > 1 || !cli_thread_start(&holder->looker, look, holder))
        atomic_store(&holder->taken, true);
}

/* ------------------------------------------------------------- ending COMMAND */

static void signal_all(const struct holder *holder, int signal)
{
    child_tree_signal(signal, holder->child, getpid(), false);
}

/*
 * Sends SIGTERM, and SIGCONT, because a stopped process can't end. COMMAND's group gets only one SIGTERM, even if the
 * front has sent one: many programs take a second SIGTERM as an order to hurry.
 */
static void send_term(struct holder *holder, int64_t until_ms)
{
    holder->phase = TERM_SENT;
    holder->phase_until_ms = until_ms;
    child_tree_signal(SIGTERM, holder->child, getpid(), holder->group_has_term);
    signal_all(holder, SIGCONT);
}

static void send_kill(struct holder *holder)
{
    if (holder->phase != KILL_SENT)
        holder->killed_ms = cli_now_ms();
    holder->phase = KILL_SENT;
    signal_all(holder, SIGKILL);
}

/* Ends COMMAND, with SIGKILL at kill_ms. why NULL: the lease was lost, and the event says why. */
static void give_up(struct holder *holder, int64_t kill_ms, const char *why)
{
    if (holder->given_up)
        return;
    holder->given_up = true;
    if (holder->phase < TERM_SENT)
        send_term(holder, kill_ms);
    else if (holder->phase == TERM_SENT && holder->phase_until_ms > kill_ms)
        holder->phase_until_ms = kill_ms;
    if (why) /* only now, because standard error may take no more, and keep this process */
        cli_warn("%s: %s", run_plan.shown, why);
    else
        run_tell_loss();
}

static void on_lost(struct holder *holder, int64_t now)
{
    if (holder->lost)
        return;
    holder->lost = true;
    give_up(holder, now + run_plan.grace_ms, NULL);
    if (now < holder->sure_until_ms)
        start_to_look(holder);
    else
        atomic_store(&holder->taken, true); /* the lease has ended, because the holder was stopped */
}

/* Whether the front, which beats more often, must have been stopped: then nobody passes on signals. */
static bool front_is_silent(const struct holder *holder, int64_t now)
{
    return holder->wire >= 0 && !holder->front_paused &&
           now - holder->front_ms >= run_plan.lease_ms - run_plan.grace_ms - run_plan.margin_ms;
}

/* Tells the front by when all processes of COMMAND must be dead, and how long the lease is. */
static void tell_limit(const struct holder *holder, int64_t now)
{
    int64_t remaining = run_remaining_ms(&holder->lock);
    int64_t limit = now + (remaining >= 0 ? remaining : run_plan.grace_ms + 2 * run_plan.margin_ms);

    run_wire_send(holder->wire, RUN_LIMIT, (int)run_plan.lease_ms, limit, NULL);
}

static const char about_to_end[] = "the lease can't be renewed, and is about to end";

static void check_lease(struct holder *holder, int64_t now)
{
    int64_t remaining = run_remaining_ms(&holder->lock);

    if (run_inside_fit()) {
        tell_limit(holder, now);
        holder->front_ms = now; /* until then the front was to beat as often as a longer lease needs */
    }
    if (remaining >= 0)
        holder->sure_until_ms = now + remaining;
    if (remaining < 0)
        on_lost(holder, now);
    else if (remaining <= run_plan.grace_ms + run_plan.margin_ms)
        give_up(holder, now + remaining - run_plan.margin_ms, about_to_end);
    else if (front_is_silent(holder, now))
        give_up(holder, now + run_plan.grace_ms, "dibs was stopped for too long");
}

static void end_what_is_left(struct holder *holder, int64_t kill_ms)
{
    size_t count = child_tree_signal(0, holder->child, getpid(), false);

    if (count && !holder->signalled)
        cli_warn("%s: ends %zu %s that %s left running", run_plan.shown, count, count == 1 ? "process" : "processes",
                 run_plan.command[0]);
    send_term(holder, kill_ms);
}

/* Ends what COMMAND has left running, once COMMAND has ended; and goes on to SIGKILL when it is time. */
static void advance(struct holder *holder, int64_t now)
{
    if (holder->ended && holder->phase == RUNS) {
        holder->phase = LINGERS;
        holder->phase_until_ms = now + (PATIENCE_MS < run_plan.grace_ms ? PATIENCE_MS : run_plan.grace_ms);
    }
    if (holder->phase == LINGERS && (holder->signalled || now >= holder->phase_until_ms))
        end_what_is_left(holder, now + run_plan.grace_ms);
    if (holder->phase == KILL_SENT || (holder->phase == TERM_SENT && now >= holder->phase_until_ms) ||
        atomic_load(&holder->taken))
        send_kill(holder);
}

/* -------------------------------------------------------------------- hearing */

static void pass_to_all(const struct holder *holder, int signal)
{
    if (holder->ended)
        signal_all(holder, signal);
    else
        kill(-holder->child, signal);
}

/* A stopped process can't react to a signal, so SIGCONT is sent as well, as shells do. */
static void pass_on(struct holder *holder, int signal)
{
    if (signal != SIGCONT && signal != SIGWINCH && signal != SIGTSTP)
        holder->signalled = true;
    pass_to_all(holder, signal);
    if (signal == SIGTERM || signal == SIGHUP || signal == SIGINT || signal == SIGQUIT)
        pass_to_all(holder, SIGCONT);
}

static void hear_front(struct holder *holder, const struct run_message *message, int64_t now,
                       struct run_signals *signals)
{
    holder->front_ms = now;
    holder->front_paused = message->word == RUN_PAUSED;
    if (message->word == RUN_SIGNAL)
        run_signals_note(signals, message->number);
    holder->group_has_term = holder->group_has_term || message->word == RUN_TERM_SENT;
    if (message->word == RUN_BEAT)
        tell_limit(holder, now);
}

/* Reads at most HEAR_MOST at once: each signal may take a walk through /proc, during which more may come, for ever. */
static void hear(struct holder *holder, int64_t now)
{
    struct run_signals signals = {.count = 0};
    struct run_message message;
    int got = 0;

    for (int i = 0; i < HEAR_MOST && holder->wire >= 0 && (got = run_wire_receive(holder->wire, &message)) == 1; i++)
        hear_front(holder, &message, now, &signals);
    if (got < 0) {
        holder->wire = -1;
        holder->given_up = true;
        send_kill(holder); /* the front was killed */
    }
    for (int i = 0, signal; i < HEAR_MOST && (signal = run_signals_next()) != 0; i++)
        if (run_signals_passed(signal))
            run_signals_note(&signals, signal);
    for (size_t i = 0; i < signals.count; i++)
        pass_on(holder, signals.numbers[i]);
}

static void tell_end(const char *program, int wait_status)
{
    if (WIFSIGNALED(wait_status))
        cli_note("%s was ended by signal %d (%s)", program, WTERMSIG(wait_status), strsignal(WTERMSIG(wait_status)));
    else
        cli_note("%s ended with status %d", program, WEXITSTATUS(wait_status));
}

/* Looks whether COMMAND could be run. */
static void look_at_start(struct holder *holder)
{
    int error = holder->report < 0 ? -1 : child_report(holder->report, 0);

    if (error < 0)
        return;
    holder->report = -1;
    holder->start_error = error;
    if (!error)
        cli_note("%s started, process %d", run_plan.command[0], (int)holder->child);
}

static void on_child(struct holder *holder, int status)
{
    if (WIFSTOPPED(status))
        run_wire_send(holder->wire, RUN_STOPPED, WSTOPSIG(status), 0, NULL);
    else if (WIFCONTINUED(status) && holder->front_paused && holder->wire >= 0)
        kill(holder->front, SIGCONT); /* another process has continued COMMAND */
    else if (WIFEXITED(status) || WIFSIGNALED(status)) {
        look_at_start(holder); /* the end of COMMAND's process closes the other end of the report */
        holder->ended = true;
        holder->wait_status = status;
        if (!holder->start_error)
            tell_end(run_plan.command[0], status);
        run_wire_send(holder->wire, RUN_ENDED, status, 0, NULL);
    }
}

/* Returns whether no process of COMMAND is left. */
static bool reap(struct holder *holder)
{
    int status;
    pid_t process;

    while ((process = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0)
        if (process == holder->child && !holder->ended)
            on_child(holder, status);
    return process < 0 && errno == ECHILD;
}

/* ------------------------------------------------------------------- the loop */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int timeout(const struct holder *holder, int64_t now)
{
    int64_t remaining = run_remaining_ms(&holder->lock), wait = 60000;

    if (!holder->given_up) {
        wait = least(wait, remaining - run_plan.grace_ms - run_plan.margin_ms);
        wait = least(wait, holder->front_paused ? wait : run_plan.lease_ms / 8);
    }
    if (holder->phase == LINGERS || holder->phase == TERM_SENT)
        wait = least(wait, holder->phase_until_ms - now);
    if (holder->phase == KILL_SENT)
        wait = now - holder->killed_ms < 1000 ? ROUND_MS : SLOW_ROUND_MS;
    return wait < 1 ? 1 : (int)wait;
}

static void leave_the_rest(const struct holder *holder)
{
    size_t count = child_tree_signal(0, holder->child, getpid(), false);

    if (count)
        cli_warn("%s: leaves %zu %s of %s running, which the lock does not protect any more", run_plan.shown, count,
                 count == 1 ? "process" : "processes", run_plan.command[0]);
}

/* While the lease is not lost, the lock goes on protecting the processes that are left. */
static void tell_what_can_not_be_killed(struct holder *holder)
{
    if (!holder->stuck_told)
        cli_warn("%s: a process that %s left running can't be killed; the lock is held until it ends", run_plan.shown,
                 run_plan.command[0]);
    holder->stuck_told = true;
}

static bool is_over(struct holder *holder, int64_t now)
{
    int64_t killed_for = holder->phase == KILL_SENT ? now - holder->killed_ms : 0;

    if (killed_for >= PATIENCE_MS && !child_tree_is_visible()) {
        cli_warn("%s: what %s left running can't be found without /proc: it runs on, and the lock does not protect it",
                 run_plan.shown, run_plan.command[0]);
        return true;
    }
    if (run_plan.leave && holder->ended && !holder->given_up) {
        leave_the_rest(holder);
        return true;
    }
    if (killed_for >= GIVE_UP_MS && !holder->given_up)
        tell_what_can_not_be_killed(holder);
    if (killed_for < GIVE_UP_MS || !holder->given_up)
        return false;
    cli_error("%s: a process of %s can't be killed", run_plan.shown, run_plan.command[0]);
    return true;
}

/*
 * Shortens the lease once the time of --at-least is over, so that the lock is free soon after a crash. Where that
 * fails, it is tried again after a renewal, which shows that the store answers.
 */
static void shorten(struct holder *holder, int64_t now)
{
    if (holder->shortened || holder->lock.count == 0 || run_plan.at_least_ms <= run_plan.lease_ms ||
        now - holder->start_ms < run_plan.at_least_ms)
        return;
    int64_t remaining = run_remaining_ms(&holder->lock);
    if (holder->given_up || remaining <= run_plan.grace_ms + run_plan.margin_ms + 2 * SHORTEN_MS ||
        now + remaining < holder->not_shortened_ms + RENEWED_MS)
        return;
    int64_t limit_ms = now + least(remaining, run_plan.lease_ms);
    /* The front must have heard of it before: once the store has the shorter lease, this process may be stopped. */
    if (!run_wire_send(holder->wire, RUN_LIMIT, (int)run_plan.lease_ms, limit_ms, NULL))
        return;
    holder->shortened = run_extend(&holder->lock, run_plan.lease_ms, SHORTEN_MS) == DIBS_OK;
    if (holder->shortened)
        cli_common.config.lease_ms = (uint32_t)run_plan.lease_ms;
    else
        holder->not_shortened_ms = cli_now_ms() + run_remaining_ms(&holder->lock);
}

/* The exit status for a status of waitpid(2): the program's, or 128 plus the number of the signal that ended it. */
static int exit_status_of(int wait_status)
{
    return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

/*
 * COMMAND has ended. If SIGTERM ended it, which the front has sent because this process did not answer when the lease
 * was about to end, that counts as if this process had.
 */
static void see_who_ended_it(struct holder *holder)
{
    int64_t remaining = run_remaining_ms(&holder->lock);
    struct run_message message;

    while (holder->wire >= 0 && run_wire_receive(holder->wire, &message) == 1) /* it says so before it sends SIGTERM */
        holder->group_has_term = holder->group_has_term || message.word == RUN_TERM_SENT;
    if (!holder->group_has_term || holder->given_up || exit_status_of(holder->wait_status) != 128 + SIGTERM ||
        remaining > run_plan.grace_ms + run_plan.margin_ms)
        return;
    holder->given_up = true;
    if (remaining < 0)
        run_tell_loss();
    else
        cli_warn("%s: %s", run_plan.shown, about_to_end);
}

static void supervise(struct holder *holder)
{
    for (;;) {
        int64_t now = cli_now_ms();

        hear(holder, now);
        look_at_start(holder);
        if (reap(holder) || is_over(holder, now)) {
            see_who_ended_it(holder);
            break;
        }
        check_lease(holder, now);
        advance(holder, now);
        shorten(holder, now);
        run_wait(holder->wire, holder->report, timeout(holder, cli_now_ms()));
    }
}

/* ------------------------------------------------------------ start and end */

/*
 * Starts COMMAND's process, which may take longer than a lease until it has run COMMAND. The front is told of the limit
 * before: from then on it watches this process. False: there is no process.
 */
static bool start_command(struct holder *holder)
{
    run_wire_send(holder->wire, RUN_HELD, 0, (int64_t)holder->lock.fence, holder->lock.token);
    run_inside_environment_of(&holder->lock);
    holder->front_ms = cli_now_ms();
    tell_limit(holder, holder->front_ms);
    holder->child = child_start(run_plan.command, run_terminal_lends_at_once(), &holder->report);
    if (holder->child < 0) {
        holder->start_error = errno;
        return false;
    }
    run_wire_send(holder->wire, RUN_STARTED, holder->child, 0, NULL);
    child_close_files(false);
    return true;
}

/*
 * The exit status for a program that could not be run: that of env(1), except for CLI_SYSTEM if this host has no
 * process, descriptor or memory left.
 */
static int refused_status(int error)
{
    bool none_left = error == EAGAIN || error == ENOMEM || error == EMFILE || error == ENFILE;

    return error == ENOENT ? 127 : none_left ? CLI_SYSTEM : 126;
}

/* Releases the lock, after all processes of COMMAND are gone. Returns the exit status. */
static int finish(struct holder *holder)
{
    bool keeps = run_plan.at_least_ms && !holder->start_error;
    int64_t keep_ms = run_plan.at_least_ms - (cli_now_ms() - holder->start_ms);

    run_wire_send(holder->wire, RUN_LIMIT, (int)run_plan.lease_ms, 0, NULL);
    cli_thread_end(&holder->looker);
    bool kept = run_release(&holder->lock, keeps ? keep_ms : 0);
    if (holder->start_error) { /* said only now, because standard error may take no more, and keep this process */
        cli_error("%s: %s", run_plan.command[0], strerror(holder->start_error));
        if (!holder->given_up)
            return refused_status(holder->start_error);
    }
    if (kept && !holder->given_up)
        return exit_status_of(holder->wait_status);
    if (!holder->given_up)
        run_tell_loss();
    holder->lost = true;
    return CLI_LOST;
}

/* Returns the exit status. */
static int hold_and_run(struct holder *holder)
{
    int status;

    setpgid(0, 0);
    child_tree_call_me("dibs-holder");
    child_tree_adopt();
    if (!child_tree_reserve()) {
        cli_error("no descriptor to be had: %s", strerror(errno));
        return CLI_SYSTEM;
    }
    status = run_acquire(holder->wire, &holder->lock);
    if (status != RUN_HOLDS)
        return status;
    holder->start_ms = cli_now_ms();
    if (start_command(holder))
        supervise(holder);
    return finish(holder);
}

_Noreturn void run_holder(int wire, pid_t front)
{
    struct holder holder = {.wire = wire, .front = front, .report = -1};
    int status = run_hear_begin(RUN_HOLDER) ? hold_and_run(&holder) : CLI_SYSTEM;

    run_wire_send(wire, RUN_STATUS, status, holder.lost, NULL);
    fflush(NULL);
    _exit(status);
}
