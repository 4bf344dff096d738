/*
 * The descriptors of this library: non-blocking, close-on-exec, and known, so
 * that a forked child closes its copies of them. The child must do so with
 * plain close(2): nothing may be sent on a connection that is its parent's.
 */
#ifndef DIBS_BASE_FD_H
#define DIBS_BASE_FD_H

#include <stdbool.h>

/* Each returns a descriptor, or -1 with errno set. dibs__fd_pipe fills both ends: [0] reads, [1] writes. */
int dibs__fd_socket(int family);
int dibs__fd_pipe(int ends[2]);

/* Closes one of those; a number that is none of them, as all the parent's are in a forked child, is left alone. */
void dibs__fd_close(int fd);

/*
 * Registers what a fork needs here, if nobody did yet. Whoever holds a mutex of
 * its own across forks, and opens descriptors under it, calls this before its
 * own pthread_atfork: that makes the fork take its mutex before this list's.
 * False: no memory; to be called again.
 */
bool dibs__fd_watch_forks(void);

/* How many forks lie between this process and the one that loaded the library. */
unsigned dibs__fork_generation(void);

#endif
