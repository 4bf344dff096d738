/*
 * "dibs hold": has a lock until a signal arrives.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/notify.h"
#include "cli/run.h"
#include "cli/run_signals.h"

/* clang-format off */
static const char help[] =
    "Usage: dibs hold [OPTION...] NAME\n"
    "\n"
    "Waits for the lock of NAME, says so in one line on standard output, and holds\n"
    "the lock until a signal arrives. As a service of systemd (Type=notify) it is\n"
    "ready once it holds the lock.\n"
    "\n"
    RUN_COMMON_HELP
    "      --grace TIME    where the lease can't be renewed, dibs ends so long before\n"
    "                      the lease does: 5, or a quarter of a shorter lease\n"
    "      --while-pid PID holds the lock until the process PID ends as well\n"
    "      --while-stdin   holds the lock until standard input ends as well\n"
    CLI_COMMON_HELP
    "\n"
    RUN_TIMES_HELP
    "\n"
    "The exit status is 0 if SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 or SIGUSR2\n"
    "arrived while the lock was held, and 128+N if signal N arrived before; CODE if\n"
    "the lock was not acquired; 69 if the store can't be reached; 76 if the lease was\n"
    "lost, or can't be renewed in time; 64 for wrong usage; 71 if this host has no\n"
    "memory or descriptor left.\n";
/* clang-format on */

#define PID_MS 500 /* between two looks at the process of --while-pid */

/* As a service manager would: what the script does not read is not read by anybody else. */
static bool stdin_has_ended(void)
{
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    char unread[4096];
    ssize_t size;

    if (poll(&in, 1, 0) <= 0)
        return false;
    size = read(STDIN_FILENO, unread, sizeof unread);
    return size == 0 || (size < 0 && errno != EINTR && errno != EAGAIN);
}

/* Whether a signal has arrived that ends it, or what it was tied to has ended. */
static bool told_to_end(const struct run_plan *plan)
{
    if (plan->while_pid && kill(plan->while_pid, 0) != 0 && errno == ESRCH) {
        cli_note("process %d has ended", (int)plan->while_pid);
        return true;
    }
    if (plan->while_stdin && stdin_has_ended()) {
        cli_note("standard input has ended");
        return true;
    }
    for (int signal; (signal = run_signals_next()) != 0;)
        if (run_signals_passed(signal)) {
            cli_note("signal %d", signal);
            return true;
        }
    return false;
}

/* Returns false if the lease was lost, or is about to end. */
static bool hold(const struct run_plan *plan, const struct run_lock *lock)
{
    struct pollfd fds[] = {{.fd = run_signals_fd(), .events = POLLIN},
                           {.fd = plan->while_stdin ? STDIN_FILENO : -1, .events = POLLIN}};
    int64_t most = plan->while_pid ? PID_MS : 60000;

    while (!told_to_end(plan)) {
        int64_t left = run_remaining_ms(lock) - plan->grace_ms - plan->margin_ms;

        if (left <= 0)
            return false;
        (void)poll(fds, 2, (int)(left > most ? most : left));
    }
    return true;
}

static void say_held(const struct run_plan *plan, const struct run_lock *lock)
{
    printf("%s held, fence %llu\n", plan->shown, (unsigned long long)lock->fence);
    fflush(stdout);
    notify("READY=1\nSTATUS=holds the lock");
}

int cli_hold(int argc, char **argv)
{
    struct run_plan plan;
    struct run_lock lock;
    bool kept;
    int status;

    if (!run_options(argc, argv, help, false, &plan, &status))
        return status;
    if (run_signals_open(RUN_ALONE) < 0) {
        cli_error("no descriptor to be had");
        return CLI_SYSTEM;
    }
    notify("STATUS=waits for the lock");
    if (!run_acquire(&plan, -1, &lock, &status))
        return status;
    say_held(&plan, &lock);
    kept = hold(&plan, &lock);
    notify("STOPPING=1");
    if (!kept)
        cli_warn("%s: the lease was lost, or could not be renewed", plan.shown);
    kept = run_release(&plan, &lock, 0) && kept;
    return kept ? CLI_OK : CLI_LOST;
}
