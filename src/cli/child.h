/*
 * COMMAND: how it is started, and how its end is reported.
 */
#ifndef DIBS_CLI_CHILD_H
#define DIBS_CLI_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Starts a program in a process group of its own, with the signals as dibs found them. The program is killed when the
 * calling thread ends, where the system can do that. gets_terminal: its group gets the terminal. Returns the process
 * id; or -1, and errno says why the program could not be run.
 */
pid_t child_start(char *const *command, bool gets_terminal);

/*
 * To be called in a process that waits for COMMAND: closes standard input and, without keep_output, standard output. So
 * a process at the other end of a pipe to or from COMMAND notices at once when COMMAND closes its end.
 */
void child_close_files(bool keep_output);

/*
 * The exit status for a program that could not be run: that of env(1), except for CLI_SYSTEM if this host has no
 * process, descriptor or memory left.
 */
int child_refused_status(int error);

/* The exit status for a status of waitpid(2): the program's, or 128 plus the number of the signal that ended it. */
int child_exit_status(int wait_status);

/* Says, if -v was given, how the program ended. */
void child_tell_end(const char *program, int wait_status);

#endif
