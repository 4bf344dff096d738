/*
 * Lock discipline: `mutex` guards the list and, with it, every opening and
 * closing, so that at a fork each descriptor of ours that is open is on the
 * list. It is a leaf: nothing else is locked while it is held. fork(2) holds
 * it across the fork, so the child finds the list whole.
 */
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mutex.h"
#include "base/once.h"

DIBS__MUTEX_CLASS(fd_mutex);

static struct dibs__mutex mutex = DIBS__MUTEX_INITIALIZER;
static int *open_fds;               /* guarded by mutex */
static size_t open_count, open_cap; /* guarded by mutex */
static struct dibs__once watching;  /* registers the three functions below */
static atomic_uint generation;      /* written in the child of a fork, before it has a second thread */

static void before_fork(void)
{
    fd_mutex_lock(&mutex);
}

static void after_fork_in_parent(void)
{
    fd_mutex_unlock(&mutex);
}

static void after_fork_in_child(void)
{
    for (size_t i = 0; i < open_count; i++)
        close(open_fds[i]);
    open_count = 0;
    dibs__once_was_done(&watching);
    atomic_fetch_add(&generation, 1);
    fd_mutex_unlock(&mutex);
}

static bool watch_forks(void)
{
    return pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0;
}

/* Requires mutex. Room for `more` on the list, or false with errno set. */
static bool reserve(size_t more)
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

bool dibs__fd_watch_forks(void)
{
    return dibs__once(&watching, watch_forks);
}

/* False, with errno set: a fork would not be noticed, so nothing is opened. */
static bool lock_list(void)
{
    if (!dibs__fd_watch_forks()) {
        errno = ENOMEM;
        return false;
    }
    fd_mutex_lock(&mutex);
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
#else /* a program that another thread starts between the two calls inherits the descriptor: no way around it here */
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

int dibs__fd_socket(int family)
{
    int fd = -1;

    if (!lock_list())
        return -1;
    if (reserve(1))
        fd = open_socket(family);
    if (fd >= 0)
        open_fds[open_count++] = fd;
    fd_mutex_unlock(&mutex);
    return fd;
}

int dibs__fd_pipe(int ends[2])
{
    int result = -1;

    if (!lock_list())
        return -1;
    if (reserve(2))
        result = open_pipe(ends);
    if (result == 0) {
        open_fds[open_count++] = ends[0];
        open_fds[open_count++] = ends[1];
    }
    fd_mutex_unlock(&mutex);
    return result;
}

void dibs__fd_close(int fd)
{
    if (fd < 0)
        return;
    fd_mutex_lock(&mutex);
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
    fd_mutex_unlock(&mutex);
}

unsigned dibs__fork_generation(void)
{
    return atomic_load_explicit(&generation, memory_order_relaxed);
}
