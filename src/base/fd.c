#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/process.h"

/* The mutex is also held while a descriptor is opened or closed, so that at a fork the list names every open one. */
static int *open_fds DIBS__GUARDED_BY(dibs__process_mutex);
static size_t open_count DIBS__GUARDED_BY(dibs__process_mutex);
static size_t open_cap DIBS__GUARDED_BY(dibs__process_mutex); /* capacity of open_fds */

static void close_all(void) DIBS__REQUIRES(dibs__process_mutex)
{
    for (size_t i = 0; i < open_count; i++)
        close(open_fds[i]);
    open_count = 0;
}

/* False, with errno set: no memory. */
static bool watch_forks(void)
{
    bool watched = dibs__process_at_fork(close_all);

    if (!watched)
        errno = ENOMEM;
    return watched;
}

/* Makes room for `more` descriptors on the list. False, with errno set: no memory. */
static bool reserve(size_t more) DIBS__REQUIRES(dibs__process_mutex)
{
    if (open_count + more <= open_cap)
        return true;
    size_t cap = open_cap ? open_cap * 2 : 16;
    int *grown = realloc(open_fds, cap * sizeof *grown);
    if (!grown) {
        errno = ENOMEM;
        return false;
    }
    open_fds = grown;
    open_cap = cap;
    return true;
}

#ifdef __linux__
static int open_socket(int family)
{
    return socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

static int open_pipe(int ends[2])
{
    return pipe2(ends, O_CLOEXEC | O_NONBLOCK);
}
#else
/* A program that another thread starts between these calls inherits the descriptor. Nothing here can prevent that. */
static bool set_flags(int fd)
{
    return fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 && fcntl(fd, F_SETFL, O_NONBLOCK) == 0;
}

static int open_socket(int family)
{
    int fd = socket(family, SOCK_STREAM, 0);

    if (fd >= 0 && !set_flags(fd)) {
        close(fd);
        return -1;
    }
    return fd;
}

static int open_pipe(int ends[2])
{
    if (pipe(ends) != 0)
        return -1;
    if (set_flags(ends[0]) && set_flags(ends[1]))
        return 0;
    close(ends[0]);
    close(ends[1]);
    return -1;
}
#endif

/*
 * The same file as a descriptor behind the three standard ones, in place of `fd`. Otherwise what a program that closed
 * those prints would be sent to a server. Closes `fd` and returns -1, with errno set, if that fails.
 */
static int behind_standard_files(int fd)
{
    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), why = errno;
    close(fd);
    errno = why;
    return moved;
}

static int move_pipe(int ends[2])
{
    ends[0] = behind_standard_files(ends[0]);
    ends[1] = behind_standard_files(ends[1]);
    if (ends[0] >= 0 && ends[1] >= 0)
        return 0;
    int why = errno;
    if (ends[0] >= 0)
        close(ends[0]);
    if (ends[1] >= 0)
        close(ends[1]);
    errno = why;
    return -1;
}

int dibs__fd_socket(int family)
{
    int fd = -1;

    if (!watch_forks())
        return -1;
    dibs__process_lock();
    if (reserve(1))
        fd = behind_standard_files(open_socket(family));
    if (fd >= 0)
        open_fds[open_count++] = fd;
    dibs__process_unlock();
    return fd;
}

int dibs__fd_pipe(int ends[2])
{
    int result = -1;

    if (!watch_forks())
        return -1;
    dibs__process_lock();
    if (reserve(2) && open_pipe(ends) == 0)
        result = move_pipe(ends);
    if (result == 0) {
        open_fds[open_count++] = ends[0];
        open_fds[open_count++] = ends[1];
    }
    dibs__process_unlock();
    return result;
}

void dibs__fd_close(int fd)
{
    if (fd < 0)
        return;
    dibs__process_lock();
    for (size_t i = 0; i < open_count; i++) {
        if (open_fds[i] == fd) {
            open_fds[i] = open_fds[--open_count];
            close(fd);
            break;
        }
    }
    if (open_count == 0) {
        free(open_fds);
        open_fds = NULL;
        open_cap = 0;
    }
    dibs__process_unlock();
}
