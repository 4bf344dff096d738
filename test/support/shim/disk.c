/*
 * For LD_PRELOAD under a redis-server: a machine that fails. What the server writes to its append-only file is kept
 * back until the server has it written to the disk (fsync), and is gone where the server is killed before.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FILES 1024 /* descriptors from there on are left alone */

static struct kept {
    char *bytes;
    size_t size;
} kept[FILES];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* Whether the descriptor is that of a file to which commands are appended. */
static bool is_log(int fd)
{
    char link[64], path[512];

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = fd >= 0 && fd < FILES ? readlink(link, path, sizeof path - 1) : -1;
    if (size < 0)
        return false;
    path[size] = '\0';
    return strstr(path, ".incr.aof") != NULL;
}

ssize_t write(int fd, const void *bytes, size_t size)
{
    if (!is_log(fd))
        return syscall(SYS_write, fd, bytes, size);
    pthread_mutex_lock(&mutex);
    struct kept *file = &kept[fd];
    char *grown = realloc(file->bytes, file->size + size);
    if (grown) {
        memcpy(grown + file->size, bytes, size);
        *file = (struct kept){grown, file->size + size};
    }
    pthread_mutex_unlock(&mutex);
    errno = ENOSPC;
    return grown ? (ssize_t)size : -1;
}

static bool write_kept(int fd)
{
    struct kept *file = &kept[fd];
    size_t done = 0;

    while (done < file->size) {
        long written = syscall(SYS_write, fd, file->bytes + done, file->size - done);
        if (written < 0)
            return false;
        done += (size_t)written;
    }
    free(file->bytes);
    *file = (struct kept){NULL, 0};
    return true;
}

static int synchronize(long call, int fd)
{
    if (is_log(fd)) {
        pthread_mutex_lock(&mutex);
        bool written = write_kept(fd);
        pthread_mutex_unlock(&mutex);
        if (!written)
            return -1;
    }
    return (int)syscall(call, fd);
}

int fsync(int fd)
{
    return synchronize(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    return synchronize(SYS_fdatasync, fd);
}
