/*
 * COMMAND: how it is started. And the descendants of a process: COMMAND, what COMMAND started, and so on, including
 * those that have left COMMAND's process group and session, and those whose parent has ended. They are found on Linux;
 * elsewhere only COMMAND's group is known.
 *
 * A descendant of a process that adopts its orphans can't stop being one, and no other process can become one. So each
 * process of "dibs run" signals only what descends from a process that dibs forked.
 */
#ifndef DIBS_CLI_CHILD_H
#define DIBS_CLI_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * Starts a process that becomes a program, in a process group of its own, with the signals as dibs found them. It is
 * killed when the calling thread ends, where the system can do that. gets_terminal: its group gets the terminal.
 * *report: a descriptor for child_report. Returns the process id; or -1, and errno says why there is no process and no
 * descriptor.
 */
pid_t child_start(char *const *command, bool gets_terminal, int *report);

/*
 * Looks for at most ms (-1: for ever) whether the program could be run. 0: it was, or its process was ended before.
 * More than 0: it could not, errno says why, and its process ends. In both cases the descriptor is closed. -1: that is
 * not known yet.
 */
int child_report(int report, int ms);

/*
 * To be called in a process that waits for COMMAND: closes standard input and, without keep_output, standard output. So
 * a process at the other end of a pipe to or from COMMAND notices at once when COMMAND closes its end.
 */
void child_close_files(bool keep_output);

/*
 * Whether this process has no child, and can get none that dibs did not fork. A shell may have started other children
 * before it ran dibs in its place, and process 1 of a container adopts all orphans of the container.
 */
bool child_tree_is_alone(void);

/* From now on, descendants whose parent ends become children of this process. */
void child_tree_adopt(void);

/* Gives the calling process a name of its own in ps(1) and top(1). */
void child_tree_call_me(const char *name);

/*
 * Sends the signal to all descendants of root: to those in the group by one kill(2), to the others one by one. group 0:
 * there is no group. spares_group: those in the group get no signal. To end all descendants, this must be called until
 * waitpid(2) finds no child, because new ones may start meanwhile. Returns how many processes were found.
 */
size_t child_tree_signal(int signal, pid_t group, pid_t root, bool spares_group);

/* Whether descendants outside the group can be found, because /proc is mounted and shows this process's namespace. */
bool child_tree_is_visible(void);

/*
 * Keeps the descriptors that the functions above need to find descendants, for a process that may have none left later.
 * False: they can't be had.
 */
bool child_tree_reserve(void);

/* Kills all descendants of this process and waits for their end, for some ten seconds at most. */
void child_tree_kill_all(void);

#endif
