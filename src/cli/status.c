/*
 * dibs status: who holds these locks.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/locks.h"

/* clang-format off */
static const char help[] =
    "Usage: dibs status [OPTION...] NAME...\n"
    "\n"
    "Tells of each lock who holds it, since when, for how long the lease lasts\n"
    "without a renewal, the fence of the newest grant, and who waits: the first 100\n"
    "entries of the queue. The waiters of a process are one entry, unless they\n"
    "wait with --fair or to share the lock. Of a shared lock it lists the newest 100\n"
    "sharers, with their tokens.\n"
    "With -q it prints nothing, even with --json: only the exit status tells.\n"
    "\n"
    CLI_JSON_HELP
    CLI_COMMON_HELP
    "\n"
    "Exit status: 0 if all these locks are held; 1 if one is free; 64 for wrong\n"
    "usage; 69 if the server can't be reached, or refuses; 74 if the answer can't be\n"
    "written.\n";
/* clang-format on */

static bool json; /* set by the option */

static const struct cli_option options[] = {{"json", .flag = &json}, {0}};

/* The queue and the sharers are read a moment after the owner, and may have changed meanwhile. */
static dibs_status ask_for_one(dibs_runtime *rt, struct cli_lock *lock)
{
    struct cli_queue *queue = lock->queue;
    dibs_status status = dibs_query(rt, lock->name, &lock->owner);

    if (status == DIBS_OK && lock->owner.sharers > 0)
        status = dibs_query_sharers(rt, lock->name, queue->sharers, CLI_QUEUE_MOST, &queue->sharer_count);
    if (status == DIBS_OK && lock->owner.waiters > 0)
        status = dibs_query_waiters(rt, lock->name, queue->waiters, CLI_QUEUE_MOST, &queue->count);
    return status;
}

/* Asks about all locks before anything is printed, so that what is printed is whole. */
static int ask(dibs_runtime *rt, struct cli_lock *locks, size_t count)
{
    int result = CLI_OK;

    for (size_t i = 0; i < count; i++) {
        dibs_status status = ask_for_one(rt, &locks[i]);
        if (status != DIBS_OK)
            return cli_failed(status);
        if (!locks[i].owner.held)
            result = CLI_FAILED;
    }
    return result;
}

static void print_blocks(const struct cli_lock *locks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            putchar('\n');
        cli_lock_print_block(&locks[i]);
    }
}

static int tell(dibs_runtime *rt, char **names)
{
    size_t count = 0;
    int result = CLI_SYSTEM;

    while (names[count])
        count++;
    struct cli_lock *locks = calloc(count + 1, sizeof *locks);
    struct cli_queue *queues = calloc(count + 1, sizeof *queues);

    if (locks && queues) {
        for (size_t i = 0; i < count; i++)
            locks[i] = (struct cli_lock){.name = names[i], .queue = &queues[i]};
        result = ask(rt, locks, count);
    } else {
        cli_error("memory is exhausted");
    }
    if (result <= CLI_FAILED && cli_common.verbosity != CLI_QUIET) {
        if (json)
            cli_locks_print_json(locks, count);
        else
            print_blocks(locks, count);
    }
    free(queues);
    free(locks);
    return result;
}

const struct cli_command cli_status = {
    .name = "status",
    .summary = "tells who holds locks",
    .help = help,
    .options = {options},
    .arguments = CLI_SOME_NAMES,
    .look = tell,
};
