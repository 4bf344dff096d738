/*
 * The terminal of "dibs run": which process group has it. The front's group lends the terminal to COMMAND's group, as a
 * shell does with its jobs.
 */
#ifndef DIBS_CLI_RUN_TERMINAL_H
#define DIBS_CLI_RUN_TERMINAL_H

#include <stdbool.h>
#include <sys/types.h>

struct run_terminal {
    int fd;      /* -1: the process has no terminal */
    pid_t front; /* the front's process group */
    bool leads;  /* the front leads that group */
};

/* Must be called by the front. */
void run_terminal_open(struct run_terminal *terminal);

/* Whether the front's group has the terminal: the job is in the foreground, and reads what is typed. */
bool run_terminal_in_front(const struct run_terminal *terminal);

/* Whether that group has the terminal. */
bool run_terminal_has(const struct run_terminal *terminal, pid_t group);

/*
 * Whether COMMAND gets the terminal when it starts, because dibs is the only program of its job. If there may be others
 * (in a pipeline or script), COMMAND gets the terminal when it first reads from it.
 */
bool run_terminal_lends_at_once(const struct run_terminal *terminal);

void run_terminal_give(const struct run_terminal *terminal, pid_t group);

/* After COMMAND has ended: takes the terminal back from the group, or from a group that does not exist any more. */
void run_terminal_take_back(const struct run_terminal *terminal, pid_t group);

#endif
