#include "cli/run_terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

void run_terminal_open(struct run_terminal *terminal)
{
    terminal->fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
    terminal->front = getpgrp();
    terminal->leads = getpid() == terminal->front;
}

bool run_terminal_has(const struct run_terminal *terminal, pid_t group)
{
    return terminal->fd >= 0 && group > 0 && tcgetpgrp(terminal->fd) == group;
}

bool run_terminal_in_front(const struct run_terminal *terminal)
{
    return run_terminal_has(terminal, terminal->front);
}

/* The front leads its group only if a shell with job control started it as the first process of a job. */
bool run_terminal_lends_at_once(const struct run_terminal *terminal)
{
    return run_terminal_in_front(terminal) && terminal->leads && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

/* The caller must ignore SIGTTOU, which would stop a process in a background group here. */
void run_terminal_give(const struct run_terminal *terminal, pid_t group)
{
    (void)tcsetpgrp(terminal->fd, group);
}

void run_terminal_take_back(const struct run_terminal *terminal, pid_t group)
{
    pid_t owner = terminal->fd >= 0 ? tcgetpgrp(terminal->fd) : -1;

    if (owner > 0 && owner != terminal->front && (owner == group || (kill(-owner, 0) != 0 && errno == ESRCH)))
        run_terminal_give(terminal, terminal->front);
}
