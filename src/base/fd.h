/*
 * The descriptors of this library. All are non-blocking, closed by exec, and on
 * a list, so that a forked child can close its copies. The child does so with
 * close(2) and nothing else: on a connection of its parent it must not send.
 */
#ifndef DIBS_BASE_FD_H
#define DIBS_BASE_FD_H

#include <stdbool.h>

/* A stream socket; -1 with errno set. */
int dibs__fd_socket(int family);

/* A pipe: ends[0] is read from, ends[1] is written to. 0; -1 with errno set. */
int dibs__fd_pipe(int ends[2]);

/*
 * Closes a descriptor that is on the list, and ignores any other number: in a
 * forked child that is each descriptor which its parent opened.
 */
void dibs__fd_close(int fd);

/*
 * Registers what a fork needs here, unless that has been done. A module that
 * holds its own mutex across forks, and opens descriptors under that mutex, has
 * to call this before its own pthread_atfork: a fork then takes the module's
 * mutex before the list's. False: no memory; the next call tries again.
 */
bool dibs__fd_watch_forks(void);

/* How many forks lie between this process and the process that loaded the library. */
unsigned dibs__fork_generation(void);

#endif
