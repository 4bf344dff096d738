#include "cli/run.h"

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

static int run(char **words)
{
    int result = run_settle(words, true);

    return result == CLI_OK ? run_front() : result;
}

const struct cli_command cli_run = {
    .name = "run",
    .summary = "runs a program while it holds a lock",
    .help = help,
    .options = {options, run_options},
    .arguments = CLI_NAME_AND_MORE,
    .run = run,
};
