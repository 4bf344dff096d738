/*
 * The descendants of this process: COMMAND, what COMMAND started, and so on, also those that have left COMMAND's
 * process group and session, and those whose own parent has ended. On Linux; elsewhere there is only COMMAND's group.
 */
#ifndef DIBS_CLI_CHILD_TREE_H
#define DIBS_CLI_CHILD_TREE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* From now on, descendants whose parent ends become children of this process. */
void child_tree_adopt(void);

/* In a child: the child is killed when the thread that forked it ends. parent is that thread's process. */
void child_tree_die_with(pid_t parent);

/* Gives the calling process a name of its own in ps(1) and top(1). */
void child_tree_call_me(const char *name);

/* When a process was started, in ticks since the system was; 0: not known. */
uint64_t child_tree_age(pid_t process);

/*
 * Sends the signal to the group, and to all descendants of this process that are not in it. since: only to those that
 * were started no earlier; 0: all. The set changes meanwhile, so it takes several rounds to end all of them: until
 * waitpid(2) finds no child. Returns how many processes were found.
 */
size_t child_tree_signal(int signal, pid_t group, uint64_t since);

#endif
