#include "cli/run_terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

/* Of the front, which its children inherit; read-only after run_terminal_open. */
static int terminal = -1; /* -1: there is none */
static pid_t front;       /* its process group */
static bool leads;        /* it leads that group */

bool run_terminal_open(void)
{
    terminal = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
    front = getpgrp();
    leads = getpid() == front;
    return terminal >= 0;
}

bool run_terminal_has(pid_t group)
{
    return terminal >= 0 && group > 0 && tcgetpgrp(terminal) == group;
}

bool run_terminal_in_front(void)
{
    return run_terminal_has(front);
}

/* The front leads its group only if a shell with job control started it as the first process of a job. */
bool run_terminal_lends_at_once(void)
{
    return run_terminal_in_front() && leads && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

void run_terminal_give(pid_t group)
{
    (void)tcsetpgrp(terminal, group ? group : front);
}

void run_terminal_take_back(pid_t group)
{
    pid_t owner = terminal >= 0 ? tcgetpgrp(terminal) : -1;

    if (owner > 0 && owner != front && (owner == group || (kill(-owner, 0) != 0 && errno == ESRCH)))
        run_terminal_give(front);
}
