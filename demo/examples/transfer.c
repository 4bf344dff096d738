/*
 * Lock two at once: a transfer between two accounts, which are files. A transfer the other way at the same time waits,
 * and the two never wait for each other for ever.
 *
 *     cc transfer.c -o transfer $(pkg-config --cflags --libs dibs)
 *     DIBS_URL=redis://127.0.0.1 ./transfer alice bob 10
 */
#include <dibs.h>
#include <stdio.h>
#include <stdlib.h>

enum { WAIT_MS = 10000 };

/* A file that is not there is an account with nothing. */
static long balance(const char *account)
{
    char line[32] = "0";
    FILE *file = fopen(account, "r");

    if (file) {
        if (!fgets(line, sizeof line, file))
            line[0] = '\0';
        fclose(file);
    }
    return strtol(line, NULL, 10);
}

static int set_balance(const char *account, long amount)
{
    FILE *file = fopen(account, "w");
    int written = file ? fprintf(file, "%ld\n", amount) : -1;

    return file && fclose(file) == 0 && written > 0 ? 0 : -1;
}

static int move_money(const char *from, const char *to, long amount)
{
    long has = balance(from);

    if (has < amount) {
        fprintf(stderr, "%s has %ld, which is too little\n", from, has);
        return 1;
    }
    if (set_balance(from, has - amount) != 0 || set_balance(to, balance(to) + amount) != 0) {
        perror("the transfer was not written");
        return 1;
    }
    return 0;
}

static int transfer(dibs_runtime *rt, const char *from, const char *to, long amount)
{
    char names[2][300];
    const char *const both[] = {names[0], names[1]}; /* in any order; one that comes twice is locked once */

    snprintf(names[0], sizeof names[0], "account:%s", from);
    snprintf(names[1], sizeof names[1], "account:%s", to);
    if (dibs_lock_names(rt, both, 2, WAIT_MS, NULL) != DIBS_OK) {
        fprintf(stderr, "no locks: %s\n", dibs_last_error()); /* neither of them is held */
        return 1;
    }
    int result = move_money(from, to, amount);
    if (dibs_unlock_names(rt, both, 2) == DIBS_LOST) {
        fprintf(stderr, "another process may have been inside: %s\n", dibs_last_error());
        return 1;
    }
    return result;
}

int main(int argc, char **argv)
{
    long amount = argc == 4 ? strtol(argv[3], NULL, 10) : 0;
    dibs_runtime *rt;

    if (amount <= 0) {
        fprintf(stderr, "usage: %s FROM TO AMOUNT\n", argv[0]);
        return 2;
    }
    if (dibs_open(&rt, NULL) != DIBS_OK) {
        fprintf(stderr, "no store: %s\n", dibs_last_error());
        return 1;
    }
    int result = transfer(rt, argv[1], argv[2], amount);
    dibs_close(rt);
    return result;
}
