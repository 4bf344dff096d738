/*
 * Give the fence to a file: a process that lost the lock without knowing cannot replace a newer state by an old one.
 *
 *     cc fence_file.c -o fence_file $(pkg-config --cflags --libs dibs)
 *     DIBS_URL=redis://127.0.0.1 ./fence_file FOLDER 'the new state'
 *
 * The guard is the file's name: a state is the file FOLDER/FENCE, and the largest name is the state that counts, for
 * every reader. So nothing is compared before something is written, and no file lock is needed, also not over NFS.
 * Readers:  cat "FOLDER/$(ls FOLDER | grep '^[0-9]*$' | tail -n 1)", again if the file was removed meanwhile.
 */
#include <dibs.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DIGITS = 19 }; /* all names are of that length, so that their order is that of the numbers */

static int is_state(const struct dirent *entry)
{
    return strlen(entry->d_name) == DIGITS && strspn(entry->d_name, "0123456789") == DIGITS;
}

/* The whole file appears at once, under its final name. The name before that is ours alone as well. */
static int write_state(const char *name, const char *text)
{
    char hidden[DIGITS + 3];

    snprintf(hidden, sizeof hidden, ".%s", name);
    FILE *file = fopen(hidden, "w");

    if (!file || fputs(text, file) < 0 || fflush(file) != 0 || fsync(fileno(file)) != 0 || fclose(file) != 0)
        return -1;
    return rename(hidden, name);
}

/* Removes the states that no longer count. Returns 1 if the state of that name counts, 0 if a later one does. */
static int is_newest(const char *name)
{
    struct dirent **states;
    int count = scandir(".", &states, is_state, alphasort), newest = 0;

    for (int i = 0; i < count; i++) {
        newest = strcmp(states[i]->d_name, name) == 0;
        if (i < count - 1)
            unlink(states[i]->d_name);
        free(states[i]);
    }
    if (count >= 0)
        free(states);
    return count < 0 ? -1 : newest;
}

int main(int argc, char **argv)
{
    dibs_runtime *rt;
    dibs_hold hold;
    char name[DIGITS + 2];

    if (argc != 3 || chdir(argv[1]) != 0) {
        fprintf(stderr, "usage: %s FOLDER TEXT\n", argv[0]);
        return 2;
    }
    if (dibs_open(&rt, NULL) != DIBS_OK || dibs_lock(rt, "state") != DIBS_OK ||
        dibs_hold_of(rt, "state", &hold) != DIBS_OK) {
        fprintf(stderr, "no lock: %s\n", dibs_last_error());
        return 1;
    }
    sleep(3); /* work; a process that is stopped here for longer than its lease has lost the lock */
    snprintf(name, sizeof name, "%0*" PRIu64, DIGITS, hold.fence); /* below 2^63: 19 digits at the most */
    int newest = write_state(name, argv[2]) == 0 ? is_newest(name) : -1;
    puts(newest < 0 ? "not written" : newest ? "written" : "refused: a later holder of the lock was here");
    dibs_close(rt); /* also unlocks */
    return newest == 1 ? 0 : 1;
}
