/*
 * At most three workers at a time, on all hosts together: the lock is a semaphore of three permits. A permit is a
 * lease, so that of a worker that dies is free again by itself.
 *
 *     cc workers.c -o workers $(pkg-config --cflags --libs dibs)
 *     DIBS_URL=redis://127.0.0.1 ./workers log
 */
#include <dibs.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { WAIT_MS = 30000, PERMITS = 3 };

/* All workers give the same limit. */
static const dibs_lock_options permit = {.flags = DIBS_SHARED, .limit = PERMITS};

static int note(const char *path, const char *what)
{
    FILE *log = fopen(path, "a");
    int written = log ? fprintf(log, "%s\n", what) : -1;

    if (log && fclose(log) == 0 && written > 0)
        return 0;
    perror(path);
    return -1;
}

static int work(const char *log)
{
    if (note(log, "in") != 0)
        return 1;
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    return note(log, "out") == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    dibs_runtime *rt;
    int result = 1;

    if (argc != 2) {
        fprintf(stderr, "usage: %s LOG\n", argv[0]);
        return 2;
    }
    if (dibs_open(&rt, NULL) != DIBS_OK) {
        fprintf(stderr, "no store: %s\n", dibs_last_error());
        return 1;
    }
    if (dibs_lock_with(rt, "workers", WAIT_MS, &permit) == DIBS_OK) {
        result = work(argv[1]);
        if (dibs_unlock(rt, "workers") == DIBS_LOST)
            fprintf(stderr, "more than %d may have worked at a time: %s\n", PERMITS, dibs_last_error());
    } else {
        fprintf(stderr, "no permit: %s\n", dibs_last_error());
    }
    dibs_close(rt);
    return result;
}
