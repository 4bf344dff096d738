/*
 * The signals of a process of "dibs run" or "dibs hold", which become numbers that a loop over poll(2) reads. COMMAND
 * starts with the same signals ignored and blocked as dibs itself.
 */
#ifndef DIBS_CLI_RUN_SIGNALS_H
#define DIBS_CLI_RUN_SIGNALS_H

#include <stdbool.h>

enum run_role {
    RUN_FRONT,  /* handles those of job control as well */
    RUN_HOLDER, /* ignores those of job control */
    RUN_ALONE   /* "dibs hold": leaves those of job control to the system */
};

/*
 * Handles the signals that are passed on, SIGCHLD, and those of the role. Returns a descriptor that is readable while
 * run_signals_next has a signal; -1: there is no descriptor left. Must be called again in a forked child.
 */
int run_signals_open(enum run_role role);

/* The same descriptor. */
int run_signals_fd(void);

/* The next signal; 0: there is none now. */
int run_signals_next(void);

/* Makes run_signals_next return SIGCHLD, so that the loop looks at everything again. May be called by any thread. */
void run_signals_wake(void);

/* Block all signals, and unblock them, around a fork(2). */
void run_signals_block(void);
void run_signals_unblock(void);

/* To be called in a forked child: restores the signals as dibs found them when it started. */
void run_signals_restore(void);

/* Whether the signal is passed on to COMMAND, and ends a wait for the lock. */
bool run_signals_passed(int signal);

/* Sends the signal to the whole process group or to this process, where it has its default effect. */
void run_signals_raise(int signal, bool whole_group);

#endif
