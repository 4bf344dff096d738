/*
 * "dibs hold": has a lock until a signal arrives.
 */
#include <poll.h>
#include <stdio.h>

#include "cli/notify.h"
#include "cli/run.h"
#include "cli/run_signals.h"

static const char help[] =
    "Usage: dibs hold [OPTION...] NAME\n"
    "\n"
    "Waits for the lock of NAME, says so in one line on standard output, and holds the lock until a signal arrives.\n"
    "As a service of systemd (Type=notify) it is ready once it holds the lock.\n"
    "\n"
    "  -n, --nonblock      does not wait: fails if somebody else holds the lock\n"
    "  -w, --wait SECONDS  waits so long at most\n"
    "  -t, --lease SECONDS the lock is free again so long after the host of dibs has failed: 30\n"
    "  -E, --conflict-exit-code CODE   the exit status where the lock was not acquired: 1\n"
    "      --fair          first come, first served\n"
    "      --outage SECONDS     while it waits, rides out a store that can't be\n"
    "                      reached for so long: as long as it waits\n"
    "      --min-replicas N     so many replicas must have the lock: 0\n"
    "      --durable       the server must have the lock on its disk\n"
    "      --grace SECONDS where the lease can't be renewed, dibs ends so long before the lease does: 5, or a quarter\n"
    "                      of a shorter lease\n" CLI_COMMON_HELP "\n"
    "Seconds may have decimals.\n"
    "\n"
    "The exit status is 0 if SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 or SIGUSR2 arrived while the lock was held, "
    "and\n"
    "128+N if signal N arrived before; CODE if the lock was not acquired; 69 if the store can't be reached; 76 if the\n"
    "lease was lost, or can't be renewed in time; 64 for wrong usage; 71 if this host has no memory left.\n";

/* Whether a signal has arrived that ends it. */
static bool told_to_end(void)
{
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
    struct pollfd fd = {.fd = run_signals_fd(), .events = POLLIN};

    while (!told_to_end()) {
        int64_t left = run_remaining_ms(plan, lock) - plan->grace_ms - plan->margin_ms;

        if (left <= 0)
            return false;
        (void)poll(&fd, 1, left > 60000 ? 60000 : (int)left);
    }
    return true;
}

static void say_held(const struct run_plan *plan, const struct run_lock *lock)
{
    printf("%s held, fence %llu\n", plan->name, (unsigned long long)lock->fence);
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
        cli_warn("%s: the lease was lost, or could not be renewed", plan.name);
    kept = run_release(&plan, &lock, 0) && kept;
    return kept ? CLI_OK : CLI_LOST;
}
