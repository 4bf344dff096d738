/*
 * The descriptors of this library. All are non-blocking, closed by exec, none of the three standard ones, even if those
 * are closed, and on a list, so that a forked child can close its copies. The child calls close(2) on them and nothing
 * else: it must not send on a connection of its parent.
 */
#ifndef DIBS_BASE_FD_H
#define DIBS_BASE_FD_H

/* Opens a stream socket. Returns -1 with errno set on failure. */
int dibs__fd_socket(int family);

/* Opens a pipe: ends[0] is for reading, ends[1] for writing. Returns 0, or -1 with errno set. */
int dibs__fd_pipe(int ends[2]);

/*
 * Closes a descriptor that is on the list. Ignores any other number, such as that of a descriptor which the parent of a
 * forked child opened.
 */
void dibs__fd_close(int fd);

#endif
