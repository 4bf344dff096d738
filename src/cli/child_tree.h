/*
 * The descendants of a process: COMMAND, what COMMAND started, and so on, also those that have left COMMAND's process
 * group and session, and those whose own parent has ended. On Linux; elsewhere there is only COMMAND's group.
 *
 * Descent from a process that adopts the orphans among its descendants is a mark that no descendant can lose and no
 * other process can have. So each process of "dibs run" signals only what descends from a process that dibs forked.
 */
#ifndef DIBS_CLI_CHILD_TREE_H
#define DIBS_CLI_CHILD_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * Whether this process has no child and can get none that dibs did not fork. A shell may have started others before it
 * ran dibs in its place, and process 1 of a container adopts all orphans there.
 */
bool child_tree_is_alone(void);

/* From now on, descendants whose parent ends become children of this process. */
void child_tree_adopt(void);

/* In a child: the child is killed when the thread that forked it ends. parent is that thread's process. */
void child_tree_die_with(pid_t parent);

/* Gives the calling process a name of its own in ps(1) and top(1). */
void child_tree_call_me(const char *name);

/*
 * Sends the signal to all descendants of root; to those in the group at once, 0 being no group. The set changes
 * meanwhile, so it takes several rounds to end all of them: until waitpid(2) finds no child. Returns how many processes
 * were found.
 */
size_t child_tree_signal(int signal, pid_t group, pid_t root);

/* The same, but spares those in the group. */
void child_tree_signal_outside(int signal, pid_t group, pid_t root);

/* Whether descendants beyond the group can be found: /proc is mounted. */
bool child_tree_is_visible(void);

/* Kills all descendants of this process and waits for their end, for some ten seconds at most. */
void child_tree_kill_all(void);

#endif
