/*
 * The signals of a process of "dibs run" or "dibs hold": they become numbers that a loop over poll(2) reads. What the
 * process found when it was started (which signals are ignored, which are blocked) is what COMMAND finds.
 */
#ifndef DIBS_CLI_RUN_SIGNALS_H
#define DIBS_CLI_RUN_SIGNALS_H

#include <stdbool.h>

#define RUN_WOKEN 1000 /* no signal: run_signals_wake was called */

enum run_role {
    RUN_FRONT,  /* takes those of job control as well */
    RUN_HOLDER, /* ignores those of job control */
    RUN_ALONE   /* "dibs hold": leaves those of job control to the system */
};

/*
 * Takes the signals: those that are passed on, SIGCHLD, and what the role says. Returns a descriptor that is readable
 * while run_signals_next has one; -1: no descriptor. To be called again in a forked child, before run_signals_unblock.
 */
int run_signals_open(enum run_role role);

/* That descriptor, once more. */
int run_signals_fd(void);

/* The next signal, RUN_WOKEN, or 0. */
int run_signals_next(void);

/* From any thread: run_signals_next will return RUN_WOKEN. */
void run_signals_wake(void);

/* Around a fork(2): all signals wait. */
void run_signals_block(void);
void run_signals_unblock(void);

/* In a forked child: the signals are what they were when the process started. */
void run_signals_restore(void);

/* Whether the signal goes to COMMAND, and ends a wait for the lock. */
bool run_signals_passed(int signal);

/* Has the signal do what it does by default, and raises it, to the whole process group or to this process. */
void run_signals_raise(int signal, bool whole_group);

#endif
