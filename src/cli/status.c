/*
 * dibs status: who holds these locks.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/json.h"
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

/* What was found out about one lock. */
struct found {
    dibs_owner owner;
    struct cli_queue queue;
};

static void print_json(char **names, const struct found *found)
{
    struct cli_json out = {.out = stdout};

    cli_locks_json_begin(&out);
    for (; *names; names++, found++)
        cli_lock_json(&out, *names, &found->owner, &found->queue);
    cli_locks_json_end(&out);
}

static void print_blocks(char **names, const struct found *found)
{
    for (size_t i = 0; names[i]; i++) {
        if (i > 0)
            putchar('\n');
        cli_block_print(stdout, names[i], &found[i].owner, &found[i].queue);
    }
}

/* The queue and the sharers are read a moment after the owner, and may have changed meanwhile. */
static dibs_status ask_for_one(dibs_runtime *rt, const char *name, struct found *found)
{
    struct cli_queue *queue = &found->queue;
    dibs_status status = dibs_query(rt, name, &found->owner);

    if (status == DIBS_OK && found->owner.sharers > 1)
        status = dibs_query_sharers(rt, name, queue->sharers, CLI_QUEUE_MOST, &queue->sharer_count);
    if (status == DIBS_OK && found->owner.waiters > 0)
        status = dibs_query_waiters(rt, name, queue->waiters, CLI_QUEUE_MOST, &queue->count);
    return status;
}

/* Asks about all locks before anything is printed, so that what is printed is whole. */
static int ask(dibs_runtime *rt, char **names, struct found *found)
{
    int result = CLI_OK;

    for (size_t i = 0; names[i]; i++) {
        dibs_status status = ask_for_one(rt, names[i], &found[i]);
        if (status != DIBS_OK)
            return cli_failed(status);
        if (!found[i].owner.held)
            result = CLI_FAILED;
    }
    return result;
}

static int tell(dibs_runtime *rt, char **names)
{
    size_t count = 0;

    while (names[count])
        count++;
    struct found *found = calloc(count + 1, sizeof *found);
    int result = found ? ask(rt, names, found) : CLI_SYSTEM;

    if (!found)
        cli_error("memory is exhausted");
    if (result <= CLI_FAILED && cli_common.verbosity != CLI_QUIET) {
        if (json)
            print_json(names, found);
        else
            print_blocks(names, found);
    }
    free(found);
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
