/*
 * A cache with many readers and one writer at a time: the value lies in a file. Readers share the lock. A reader that
 * finds no value takes the lock exclusively, looks again, because another may have been faster, and makes the value.
 *
 *     cc readers.c -o readers $(pkg-config --cflags --libs dibs)
 *     DIBS_URL=redis://127.0.0.1 ./readers cached-value
 */
#include <dibs.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { WAIT_MS = 10000 };

static const dibs_lock_options to_read = {.flags = DIBS_SHARED};

/* Returns whether there is a value, which is printed. */
static int print_value(const char *path)
{
    char line[128];
    FILE *file = fopen(path, "r");
    int there = file && fgets(line, sizeof line, file);

    if (file)
        fclose(file);
    if (there)
        printf("%s", line);
    return there;
}

/* Takes a while, so others come meanwhile. */
static int make_value(const char *path)
{
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    FILE *file = fopen(path, "w");
    int written = file ? fprintf(file, "made by process %ld\n", (long)getpid()) : -1;

    if (!file || fclose(file) != 0 || written < 0) {
        perror(path);
        return 1;
    }
    fprintf(stderr, "made the value\n");
    return 0;
}

/* A thread that shares the lock can't take it exclusively as well: so the reader unlocks first. */
static int write_value(dibs_runtime *rt, const char *path)
{
    int result = 0;

    if (dibs_timedlock(rt, "cache", WAIT_MS) != DIBS_OK) {
        fprintf(stderr, "no lock to write: %s\n", dibs_last_error());
        return 1;
    }
    if (!print_value(path))
        result = make_value(path) == 0 && print_value(path) ? 0 : 1;
    if (dibs_unlock(rt, "cache") == DIBS_LOST) {
        fprintf(stderr, "another process may have written as well: %s\n", dibs_last_error());
        return 1;
    }
    return result;
}

static int read_value(dibs_runtime *rt, const char *path)
{
    if (dibs_lock_with(rt, "cache", WAIT_MS, &to_read) != DIBS_OK) {
        fprintf(stderr, "no lock to read: %s\n", dibs_last_error());
        return 1;
    }
    int there = print_value(path);
    if (dibs_unlock(rt, "cache") == DIBS_LOST)
        fprintf(stderr, "the value may have changed while it was read: %s\n", dibs_last_error());
    return there ? 0 : write_value(rt, path);
}

int main(int argc, char **argv)
{
    dibs_runtime *rt;

    if (argc != 2) {
        fprintf(stderr, "usage: %s FILE\n", argv[0]);
        return 2;
    }
    if (dibs_open(&rt, NULL) != DIBS_OK) {
        fprintf(stderr, "no store: %s\n", dibs_last_error());
        return 1;
    }
    int result = read_value(rt, argv[1]);
    dibs_close(rt);
    return result;
}
