/*
 * Guard a section: of all processes on all hosts, one at a time raises the number in a file.
 *
 *     cc guard_section.c -o guard_section $(pkg-config --cflags --libs dibs)
 *     DIBS_URL=redis://127.0.0.1 ./guard_section counter.txt
 */
#include <dibs.h>
#include <stdio.h>
#include <stdlib.h>

/* What must not be done by two at once: between reading and writing, another would read the same number. */
static long raise_number(const char *path)
{
    char line[32] = "0";
    FILE *file = fopen(path, "r");

    if (file) {
        if (!fgets(line, sizeof line, file))
            line[0] = '\0';
        fclose(file);
    }
    long number = strtol(line, NULL, 10) + 1;
    file = fopen(path, "w");
    if (!file || fprintf(file, "%ld\n", number) < 0 || fclose(file) != 0)
        return -1;
    return number;
}

/* The lock is released where this function ends, by whichever return. */
static int raise_alone(dibs_runtime *rt, const char *path)
{
    DIBS_GUARD(rt, "counter", locked); /* waits for the lock; without gcc or clang: dibs_lock and dibs_unlock */
    if (locked != DIBS_OK) {
        fprintf(stderr, "no lock: %s\n", dibs_last_error());
        return 1;
    }
    long number = raise_number(path);
    if (number < 0) {
        perror(path);
        return 1;
    }
    if (DIBS_UNGUARD(locked) == DIBS_LOST) { /* unlocks already here, because that tells of a loss */
        fprintf(stderr, "the lock was lost on the way: another process may have been inside\n");
        return 1;
    }
    printf("raised to %ld\n", number);
    return 0;
}

int main(int argc, char **argv)
{
    dibs_runtime *rt;

    if (argc != 2) {
        fprintf(stderr, "usage: %s FILE\n", argv[0]);
        return 2;
    }
    if (dibs_open(&rt, NULL) != DIBS_OK) { /* NULL: all defaults; the URL comes from $DIBS_URL */
        fprintf(stderr, "no store: %s\n", dibs_last_error());
        return 1;
    }
    int result = raise_alone(rt, argv[1]);
    dibs_close(rt);
    return result;
}
