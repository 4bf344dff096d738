/*
 * The terminal of "dibs run": whose process group has it. The front's group lends the terminal to COMMAND's group, as a
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

/* To be called by the front. */
void run_terminal_open(struct run_terminal *terminal);

/* Whether the front's group has the terminal: the job is in the foreground, and reads what is typed. */
bool run_terminal_in_front(const struct run_terminal *terminal);

/* Whether that group has the terminal. */
bool run_terminal_has(const struct run_terminal *terminal, pid_t group);

/*
 * Whether COMMAND gets the terminal when it starts. That is so where dibs has it to itself. Where other programs of the
 * job want it as well (a pipeline, a script) COMMAND gets the terminal when it first reads from it.
 */
bool run_terminal_lends_at_once(const struct run_terminal *terminal);

void run_terminal_give(const struct run_terminal *terminal, pid_t group);

/* Takes the terminal back from the group, or from one that is no more, after COMMAND ended. */
void run_terminal_take_back(const struct run_terminal *terminal, pid_t group);

#endif
