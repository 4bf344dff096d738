/*
 * COMMAND: its start, and what is said of its end.
 */
#ifndef DIBS_CLI_CHILD_H
#define DIBS_CLI_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

struct run_terminal;

/*
 * Starts a program in a process group of its own, with the signals as dibs found them. It is killed when the calling
 * thread ends, where the system can do that. With terminal its group gets the terminal. Returns its id; or -1, and
 * errno says why the program could not be run.
 */
pid_t child_start(char *const *command, const struct run_terminal *terminal);

/*
 * In a process that waits for COMMAND: standard input and output are let go, so that who reads what COMMAND writes, or
 * writes what COMMAND reads, sees at once that COMMAND has closed its own.
 */
void child_close_files(bool keep_output);

/*
 * The exit status for a program that could not be run: as env(1) has it, but CLI_SYSTEM where this host has no process,
 * descriptor or memory left.
 */
int child_refused_status(int error);

/* The exit status for a status of waitpid(2): the program's, or 128 and the signal that ended it. */
int child_exit_status(int wait_status);

/* Says with -v how it ended. */
void child_tell_end(const char *program, int wait_status);

#endif
