/*
 * Locks: read from the store, sorted, and shown as a table, as blocks of lines, or as JSON.
 */
#ifndef DIBS_CLI_LOCKS_H
#define DIBS_CLI_LOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <dibs.h>

#define CLI_QUEUE_MOST 100

/* The first waiters in a lock's queue, and the newest of its sharers. */
struct cli_queue {
    dibs_waiter waiters[CLI_QUEUE_MOST];
    size_t count;
    dibs_sharer sharers[CLI_QUEUE_MOST];
    size_t sharer_count;
};

struct cli_lock {
    char *name;
    dibs_owner owner;
    struct cli_queue *queue; /* NULL: it is known how many wait and share, but not who they are */
};

struct cli_locks {
    struct cli_lock *items;
    size_t count, room;
    int64_t min_held_ms; /* only locks held for that time are read */
    bool failed;         /* memory was exhausted */
};

/* Sorted by a number or time, the largest comes first, but by "left" the lease that ends first; by a text, A. */
enum cli_column { CLI_NAME, CLI_OWNER, CLI_HELD, CLI_LEFT, CLI_WAITERS, CLI_SHARERS, CLI_COLUMNS };

extern const char *const cli_column_words[CLI_COLUMNS];

/* Takes the word of --sort, as in struct cli_option. column: an enum cli_column. */
int cli_take_column(const char *word, void *column);

/*
 * Reads the locks whose names match pattern (NULL: all) and which have been held for at least min_held_ms (0: all). The
 * caller must free *out by cli_locks_free, whatever the status.
 */
dibs_status cli_locks_read(struct cli_locks *out, dibs_runtime *rt, const char *pattern, int64_t min_held_ms);
void cli_locks_free(struct cli_locks *locks);

void cli_locks_sort(struct cli_locks *locks, enum cli_column column, bool reverse);

/*
 * Prints a table, whose first line is between begin_head and end_head. Names and owners are narrowed, within limits,
 * until the table has at most `most` columns of the terminal; SIZE_MAX: there is no limit.
 */
void cli_locks_print_table(FILE *out, const struct cli_lock *rows, size_t count, size_t most, const char *begin_head,
                           const char *end_head);

/* Prints a lock and its owner as a block of lines, on standard output. */
void cli_lock_print_block(const struct cli_lock *lock);

/* Prints a document, on standard output. Without a queue a lock has no members that tell who shares it and who waits.
 */
void cli_locks_print_json(const struct cli_lock *locks, size_t count);

#endif
