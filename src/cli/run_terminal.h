/*
 * The terminal of "dibs run": which process group has it. The front's group lends the terminal to COMMAND's group, as a
 * shell does with its jobs. Where there is no terminal, no group has it.
 */
#ifndef DIBS_CLI_RUN_TERMINAL_H
#define DIBS_CLI_RUN_TERMINAL_H

#include <stdbool.h>
#include <sys/types.h>

/* Must be called by the front, before the others are called by any process. Returns whether there is a terminal. */
bool run_terminal_open(void);

/* Whether the front's group has the terminal: the job is in the foreground, and reads what is typed. */
bool run_terminal_in_front(void);

/* Whether that group has the terminal. */
bool run_terminal_has(pid_t group);

/*
 * Whether COMMAND gets the terminal when it starts, because dibs is the only program of its job. If there may be others
 * (in a pipeline or script), COMMAND gets the terminal when it first reads from it.
 */
bool run_terminal_lends_at_once(void);

/* group 0: the front's. The caller must ignore SIGTTOU, which would stop a process in a background group here. */
void run_terminal_give(pid_t group);

/* After COMMAND has ended: takes the terminal back from the group, or from a group that does not exist any more. */
void run_terminal_take_back(pid_t group);

#endif
