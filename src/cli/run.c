#include "cli/run.h"

static const char help[] =
    "Usage: dibs run [OPTION...] NAME [--] COMMAND [ARGUMENT...]\n"
    "       dibs run [OPTION...] NAME -c 'SHELL COMMAND'\n"
    "\n"
    "Waits for the lock of NAME, and runs COMMAND while it holds the lock. The lease is renewed as long as COMMAND "
    "runs.\n"
    "\n"
    "  -n, --nonblock      does not wait: fails if somebody else holds the lock\n"
    "  -w, --wait SECONDS  waits so long at most\n"
    "  -t, --lease SECONDS the lock is free again so long after the host of dibs has failed: 30\n"
    "  -E, --conflict-exit-code CODE   the exit status where the lock was not acquired: 1\n"
    "  -c, --command TEXT  runs TEXT by the shell, $SHELL or /bin/sh\n"
    "      --fair          first come, first served\n"
    "      --outage SECONDS     while it waits, rides out a store that can't be\n"
    "                      reached for so long: as long as it waits\n"
    "      --min-replicas N     so many replicas must have the lock: 0\n"
    "      --durable       the server must have the lock on its disk\n"
    "      --grace SECONDS how long COMMAND may take to end after a SIGTERM, before SIGKILL: 5, or a quarter of a\n"
    "                      shorter lease\n"
    "      --at-least SECONDS   NAME stays locked for so long from the start of COMMAND, though COMMAND ends sooner.\n"
    "                      dibs ends with COMMAND all the same; \"dibs break\" unlocks earlier\n"
    "      --on-lost TEXT  runs TEXT by /bin/sh after the lease was lost, and COMMAND was ended\n" CLI_COMMON_HELP "\n"
    "Seconds may have decimals. COMMAND finds DIBS_NAME, DIBS_FENCE and DIBS_TOKEN in its environment.\n"
    "\n"
    "The exit status is COMMAND's, or 128+N if signal N ended COMMAND or the wait; CODE if the lock was not acquired; "
    "69 if\n"
    "the store can't be reached; 76 if the lease was lost; 64 for wrong usage; 126 if COMMAND can't be run; 127 if\n"
    "there is no COMMAND; 71 if this host has no process or memory left.\n"
    "\n"
    "SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 go to COMMAND's process group. If the lease is lost, or "
    "can't be\n"
    "renewed in time, COMMAND and all its descendants get SIGTERM, and SIGKILL after the grace time: before the store "
    "may\n"
    "grant the lock to another. What COMMAND leaves running when it ends is ended likewise.\n";

int cli_run(int argc, char **argv)
{
    struct run_plan plan;
    int status;

    return run_options(argc, argv, help, true, &plan, &status) ? run_front(&plan) : status;
}
