/*
 * "dibs run": the front, which is the process that was started. It starts the guard, which is here as well, and the
 * holder, passes on signals, is stopped and continued together with COMMAND, and ends COMMAND if the holder does not do
 * so in time.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
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

/* clang-format off */
static const char help[] =
    "Usage: dibs run [OPTION...] NAME [--] COMMAND [ARGUMENT...]\n"
    "       dibs run [OPTION...] NAME -c TEXT\n"
    "\n"
    "Waits for the lock of NAME, and runs COMMAND while it holds the lock. The\n"
    "lease is renewed as long as COMMAND runs.\n"
    "\n"
    RUN_COMMON_HELP
    "  -c, --command TEXT  runs TEXT with the shell, $SHELL or /bin/sh\n"
    "      --grace TIME    how long COMMAND may take to end after SIGTERM, before it\n"
    "                      gets SIGKILL (default 5, or a quarter of a shorter lease)\n"
    "      --at-least TIME   keeps NAME locked for TIME from the start of COMMAND,\n"
    "                      even if that ends sooner. dibs still ends with COMMAND;\n"
    "                      \"dibs break\" unlocks earlier\n"
    "      --on-lost TEXT  runs TEXT with /bin/sh after the lease was lost and\n"
    "                      COMMAND was ended\n"
    "      --leave         does not end what COMMAND leaves running when it ends; the\n"
    "                      lock does not protect that\n"
    "      --no-inherit    hides DIBS_URL, DIBS_SENTINEL_USER and\n"
    "                      DIBS_SENTINEL_PASSWORD from COMMAND\n"
    CLI_COMMON_HELP
    "\n"
    RUN_TIMES_HELP
    "COMMAND finds DIBS_NAME, DIBS_FENCE and DIBS_TOKEN in its environment.\n"
    "\n"
    "The exit status is COMMAND's, or 128+N if signal N ended COMMAND or the wait;\n"
    "CODE if the lock was not acquired; 69 if the server can't be reached, refuses,\n"
    "or does not confirm the lock; 76 if the lease was lost; 64 for wrong usage; 126\n"
    "if COMMAND can't be run; 127 if COMMAND was not found; 71 if this host has no\n"
    "process, descriptor or memory left.\n"
    "\n"
    "SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 go to COMMAND's process\n"
    "group. If the lease is lost, or can't be renewed in time, COMMAND and all its\n"
    "descendants get SIGTERM, and SIGKILL after the grace time: before the store may\n"
    "grant the lock to another. What COMMAND leaves running when it ends is ended\n"
    "likewise, unless --leave is given.\n";
/* clang-format on */

static const struct cli_option options[] = {
    {"command", 'c', .text = &run_plan.shell_command},
    {"at-least", .time_ms = &run_plan.at_least_ms, .most = RUN_DAY_MS},
    {"on-lost", .text = &run_plan.on_lost},
    {"leave", .flag = &run_plan.leave},
    {"no-inherit", .flag = &run_plan.no_inherit},
    {0},
};

#define ROUND_MS 10       /* between two rounds of SIGKILL */
#define STATUS_MS 1000    /* how long the guard may take to end after the holder sent its exit status */
#define CLEAN_UP_MS 10000 /* how long the guard may take to end after the holder was killed */

struct front {
    bool has_terminal;         /* the front has a controlling terminal */
    int wire;                  /* -1: there is no holder, and messages to it go nowhere */
    pid_t guard;               /* 0: the guard has ended */
    pid_t process;             /* the front's own */
    bool alone;                /* the front has no children but those that it forked */
    int64_t hung_up_ms;        /* when the front noticed that the holder has ended; 0: it has not */
    int status;                /* exit status that the holder sent; -1: none yet */
    struct run_signals unsent; /* signals for the holder, for which there was no room */

    bool had_terminal; /* COMMAND's group had the terminal when COMMAND ended */
    bool held;         /* the lock was acquired: COMMAND may have been started */
    pid_t group;       /* COMMAND's; 0: COMMAND is not known to have started */
    bool held_back;    /* Ctrl-Z ended the wait for the lock */
    int wait_status;   /* COMMAND's, once ended */
    bool ended;        /* COMMAND has ended */

    int64_t limit_ms; /* by then all processes of COMMAND must be dead, as the holder said last; 0: there is none */
    int64_t beat_ms;  /* when the front sent its last beat */
    bool beat_sent;   /* there was room for it */
    bool answered;    /* the holder has answered that beat */
    bool term_sent;   /* the time has come at which the front itself sends SIGTERM */
    bool term_got;    /* it did so before COMMAND had ended */
    bool taken_over;  /* the front kills COMMAND itself */
    bool lost;        /* the lease was lost */
};

/* --------------------------------------------------------------------- telling */

/* What there is no room for, because the holder was stopped for a while, is sent later. */
static void send_signals(struct front *front)
{
    struct run_signals *unsent = &front->unsent;
    size_t sent = 0;

    while (sent < unsent->count && run_wire_send(front->wire, RUN_SIGNAL, unsent->numbers[sent], 0, NULL))
        sent++;
    unsent->count -= sent;
    memmove(unsent->numbers, unsent->numbers + sent, unsent->count * sizeof unsent->numbers[0]);
}

static void pass_on(struct front *front, int signal)
{
    run_signals_note(&front->unsent, signal);
    send_signals(front);
}

static void beat(struct front *front, int64_t now)
{
    front->beat_ms = now;
    front->answered = false;
    front->beat_sent = run_wire_send(front->wire, RUN_BEAT, 0, 0, NULL);
}

/* -------------------------------------------------------------- being stopped */

/*
 * Stops the front by the signal that stopped COMMAND, so that the shell sees a stopped job, and returns when the job is
 * continued. If COMMAND's group has the terminal, Ctrl-Z has reached no other process of the job. A process that can't
 * be stopped, as in a session without a shell, goes on at once; where COMMAND wanted the terminal, after a moment,
 * because COMMAND will ask for the terminal again.
 */
static void pause_with(struct front *front, int signal)
{
    bool had_terminal = run_terminal_has(front->group);

    if (had_terminal)
        run_terminal_give(0);
    run_wire_send(front->wire, RUN_PAUSED, 0, 0, NULL);
    run_signals_raise(signal, had_terminal && signal == SIGTSTP);

    if (front->group && run_terminal_in_front() && (had_terminal || signal == SIGTTIN || signal == SIGTTOU))
        run_terminal_give(front->group);
    beat(front, cli_now_ms()); /* what the holder said last may be out of date */
    if (signal == SIGTTIN || signal == SIGTTOU)
        poll(NULL, 0, (int)run_plan.margin_ms / 4);
    pass_on(front, SIGCONT);
}

static void on_stopped(struct front *front, int signal)
{
    if (!front->has_terminal)
        return;
    if ((signal != SIGTTIN && signal != SIGTTOU) || !run_terminal_in_front()) {
        pause_with(front, signal);
        return;
    }
    run_terminal_give(front->group); /* COMMAND wants the terminal, and the job has it */
    pass_on(front, SIGCONT);
}

/* -------------------------------------------------------------------- hearing */

static void take_terminal_back(struct front *front)
{
    if (run_terminal_has(front->group))
        front->had_terminal = true;
    run_terminal_take_back(front->group);
}

static void on_message(struct front *front, const struct run_message *message)
{
    switch (message->word) {
    case RUN_HELD:
        front->held = true;
        run_inside_environment((uint64_t)message->value, message->text);
        break;
    case RUN_STARTED:
        front->group = message->number;
        child_close_files(run_plan.on_lost != NULL);
        break;
    case RUN_LIMIT:
        run_fit_times(message->number);
        front->limit_ms = message->value;
        front->answered = true;
        break;
    case RUN_STOPPED:
        on_stopped(front, message->number);
        break;
    case RUN_ENDED:
        front->ended = true;
        front->wait_status = message->number;
        take_terminal_back(front);
        break;
    case RUN_STATUS:
        front->status = message->number;
        front->lost = message->value;
        break;
    default:
        break;
    }
}

static void on_signal(struct front *front, int signal)
{
    if (signal == SIGCHLD)
        return;
    /* The front may have been stopped for long. A beat that waits for its answer counts from when it was sent. */
    if (signal == SIGCONT && front->limit_ms && front->answered)
        beat(front, cli_now_ms());
    if (signal == SIGTSTP && !front->group)
        front->held_back = true;
    pass_on(front, signal);
}

static void hear(struct front *front)
{
    struct run_message message;
    int got = 0;

    while (!front->hung_up_ms && (got = run_wire_receive(front->wire, &message)) == 1)
        on_message(front, &message);
    if (got < 0)
        front->hung_up_ms = cli_now_ms();
    for (int signal; (signal = run_signals_next()) != 0;)
        on_signal(front, signal);
    send_signals(front);
}

/* ---------------------------------------------------------- watching the holder */

/*
 * Kills COMMAND and all its descendants, which descend from the guard. If the guard was killed, they descend from the
 * front, and are killed only if the front has no other children.
 */
static void kill_all(const struct front *front)
{
    if (front->guard || front->alone)
        child_tree_signal(SIGKILL, front->group, front->guard ? front->guard : getpid(), false);
}

/*
 * Signals COMMAND's group, whose number is not used again before the holder has seen the end of COMMAND. False: COMMAND
 * has ended.
 */
static bool signal_command(const struct front *front, int signal)
{
    return !front->ended && kill(-front->group, signal) == 0;
}

/*
 * Ends COMMAND if the holder, which should do so, does not: if it has not answered the last beat when the time has
 * come, it is stopped or can't run. For SIGKILL half of the margin is left.
 */
static void watch(struct front *front, int64_t now)
{
    int64_t budget = run_plan.margin_ms / 4, left = front->limit_ms - now;
    bool silent = !front->answered && now - front->beat_ms >= budget;

    if (!front->limit_ms || front->hung_up_ms)
        return;
    if (silent && front->group && !front->term_sent && left <= run_plan.grace_ms + run_plan.margin_ms - budget) {
        front->term_sent = true;
        run_wire_send(front->wire, RUN_TERM_SENT, 0, 0, NULL);
        front->term_got = signal_command(front, SIGTERM);
        signal_command(front, SIGCONT);
    }
    bool takes_over = silent && left <= 2 * budget && !front->taken_over;
    front->taken_over = front->taken_over || takes_over;
    if (front->taken_over)
        kill_all(front);
    if (takes_over) /* only now, because standard error may take no more, and keep this process */
        cli_warn("%s: the process that holds the lock does not answer: the lease is lost", run_plan.shown);
}

/* The time between two beats, or looks at whether the holder has answered. */
static int64_t pace(const struct front *front, int64_t now)
{
    int64_t lease_ms = run_plan.lease_ms;

    if (!front->answered || (front->limit_ms && front->limit_ms - now <= lease_ms / 2))
        return run_plan.margin_ms / 4;
    return lease_ms / 8 < 5000 ? lease_ms / 8 : 5000;
}

static void keep_beating(struct front *front, int64_t now)
{
    if (!front->limit_ms)
        return;
    if (front->answered && now - front->beat_ms >= pace(front, now))
        beat(front, now);
    else if (!front->answered && !front->beat_sent)
        front->beat_sent = run_wire_send(front->wire, RUN_BEAT, 0, 0, NULL);
}

static int timeout(const struct front *front)
{
    int64_t wait = pace(front, cli_now_ms());

    if (front->taken_over || front->hung_up_ms || front->unsent.count)
        return ROUND_MS;
    if (!front->limit_ms)
        return -1;
    return (int)(wait > 1 ? wait : 1);
}

static void reap(struct front *front)
{
    pid_t process;

    while ((process = waitpid(-1, NULL, WNOHANG)) > 0)
        if (process == front->guard)
            front->guard = 0;
}

/* The holder has ended, so the guard will end by itself, unless it is stopped. */
static void after_hang_up(const struct front *front, int64_t now)
{
    if (front->status < 0)
        kill_all(front);
    if (front->guard && now - front->hung_up_ms >= (front->status < 0 ? CLEAN_UP_MS : STATUS_MS))
        kill(front->guard, SIGKILL);
}

/* Returns when neither the holder nor the guard is left. */
static void supervise(struct front *front)
{
    while (front->guard || !front->hung_up_ms) {
        run_wait(front->hung_up_ms ? -1 : front->wire, -1, timeout(front));
        hear(front);
        reap(front);
        keep_beating(front, cli_now_ms());
        watch(front, cli_now_ms());
        if (front->hung_up_ms)
            after_hang_up(front, cli_now_ms());
    }
}

/* ----------------------------------------------------------- the guard's process */

/*
 * The guard is between the front and the holder. When the holder is killed, its descendants become children of the
 * guard, which kills them. The front could not tell them from other children that it may have, which the shell started
 * before it ran dibs in its place.
 *
 * All signals stay blocked: the holder passes on those that end a job; those that stop one must not stop the guard. Its
 * name in ps(1) does not contain "dibs", so that pkill(1) with that word does not reach it.
 */
static _Noreturn void be_guard(const struct front *front, int wire)
{
    pid_t holder;
    int status = 0;

    setpgid(0, 0);
    child_tree_call_me("lock-guard");
    child_tree_adopt();
    holder = fork();
    if (holder == 0)
        run_holder(wire, front->process);
    if (holder < 0) {
        cli_error("no process to be had: %s", strerror(errno));
        run_wire_send(wire, RUN_STATUS, CLI_SYSTEM, 0, NULL);
        _exit(CLI_SYSTEM);
    }
    close(wire);
    cli_overwrite_arguments("lock-guard");
    child_close_files(false);
    while (waitpid(holder, &status, 0) < 0 && errno == EINTR)
        ;
    if (!WIFEXITED(status))
        child_tree_kill_all();
    _exit(CLI_OK);
}

/* -------------------------------------------------------------- all of them */

static bool start_holder(struct front *front)
{
    int wire[2];

    if (!run_wire_open(wire))
        return false;
    front->status = -1;
    front->hung_up_ms = 0;
    run_signals_block();
    front->guard = fork();
    if (front->guard == 0) {
        close(wire[0]);
        be_guard(front, wire[1]);
    }
    run_signals_unblock();
    close(wire[1]);
    front->wire = wire[0];
    return front->guard > 0;
}

/* The holder was killed, and COMMAND with it. The front tries to kill what the guard has left. */
static int clean_up(struct front *front)
{
    if (!front->held)
        cli_warn("%s: the process that waits for the lock was killed", run_plan.shown);
    else if (!front->taken_over)
        cli_warn("%s: the process that has the lock was killed; the lease ends by itself", run_plan.shown);
    if (front->alone)
        child_tree_kill_all();
    front->lost = front->held;
    return front->lost ? CLI_LOST : CLI_SYSTEM;
}

/* Returns the exit status; -1: Ctrl-Z ended the wait for the lock, which must begin again. */
static int run_once(struct front *front)
{
    int status;

    if (!start_holder(front)) {
        cli_error("no process or descriptor to be had: %s", strerror(errno));
        return CLI_SYSTEM;
    }
    supervise(front);
    close(front->wire);
    front->wire = -1;
    take_terminal_back(front);
    if (front->status >= 0 && front->term_got && !front->taken_over && !front->lost)
        cli_warn("%s: SIGTERM was sent to %s, because the process that holds the lock did not answer in time",
                 run_plan.shown, run_plan.command[0]);
    status = front->status >= 0 ? front->status : clean_up(front);
    return front->held_back && !front->group && status == 128 + SIGTSTP ? -1 : status;
}

/* ------------------------------------------------------------------- the whole */

static void run_on_lost(void)
{
    char shell[] = "/bin/sh", dash_c[] = "-c", *command[] = {shell, dash_c, (char *)run_plan.on_lost, NULL};
    int report, error;
    pid_t child = child_start(command, false, &report);

    if (child < 0)
        error = errno;
    else
        do
            error = child_report(report, -1);
        while (error < 0);
    if (error)
        cli_error("%s: %s", shell, strerror(error));
    else
        cli_note("--on-lost started, process %d", (int)child);
    while (child > 0 && waitpid(child, NULL, WNOHANG) == 0) {
        run_wait(-1, -1, 1000);
        for (int signal; (signal = run_signals_next()) != 0;)
            if (run_signals_passed(signal)) {
                kill(-child, signal);
                kill(-child, SIGCONT); /* it may have been stopped because it wanted the terminal */
            }
    }
}

/*
 * Ends the front by SIGINT if that ended COMMAND: a shell that waits for dibs, and got the same Ctrl-C, ends its loop
 * only then. If COMMAND's group had the terminal, Ctrl-C has reached no other process of the job.
 */
static void die_as_command_did(const struct front *front)
{
    bool by_signal = front->ended && WIFSIGNALED(front->wait_status) && WTERMSIG(front->wait_status) == SIGINT;

    if ((by_signal || !front->group) && run_terminal_in_front()) {
        fflush(NULL);
        run_signals_raise(SIGINT, front->had_terminal);
    }
}

static int run(char **words)
{
    struct front front = {.wire = -1, .process = getpid(), .alone = child_tree_is_alone()};
    int status = run_settle(words, true);

    if (status != CLI_OK)
        return status;
    if (!run_hear_begin(RUN_FRONT)) {
        cli_error("no descriptor to be had: %s", strerror(errno));
        return CLI_SYSTEM;
    }
    front.has_terminal = run_terminal_open();
    if (front.alone)
        child_tree_adopt();
    while ((status = run_once(&front)) < 0) {
        front.held_back = false;
        pause_with(&front, SIGTSTP);
    }
    if (front.lost && run_plan.on_lost)
        run_on_lost();
    if (status == 128 + SIGINT)
        die_as_command_did(&front);
    return status;
}

const struct cli_command cli_run = {
    .name = "run",
    .summary = "runs a program while it holds a lock",
    .help = help,
    .options = {options, run_options},
    .arguments = CLI_NAME_AND_MORE,
    .run = run,
};
