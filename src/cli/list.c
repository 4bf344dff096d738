/*
 * dibs list: which locks are held.
 */
#include <stdio.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/locks.h"
#include "cli/screen.h"
#include "cli/text.h"

/* clang-format off */
static const char help[] =
    "Usage: dibs list [OPTION...] [PATTERN]\n"
    "\n"
    "Lists the locks that are held. PATTERN is a glob, such as 'nightly:*'; without\n"
    "it all locks are listed. The server is asked in small steps (SCAN), so that a\n"
    "list of many locks does not stop others.\n"
    "\n"
    "  --older-than TIME   only the locks that have been held for at least TIME\n"
    "  -s, --sort COLUMN   sorts by name, owner, held, left, waiters or sharers\n"
    "                      (default name)\n"
    "  -r, --reverse       sorts the other way round\n"
    "  -n, --names         prints only the names, one a line\n"
    "  -0, --null          prints only the names, as they are, each ended by a NUL,\n"
    "                      for xargs -0\n"
    CLI_JSON_HELP
    CLI_COMMON_HELP
    "\n"
    "Bytes of a name that do not print are shown as \\xNN, and a backslash as \\\\,\n"
    "except with --null. On a terminal names and owners are cut to its width, and end\n"
    "with a + then. WAITERS counts entries of the queue: the waiters of a process are\n"
    "one, except with --fair or to share the lock.\n"
    "SHARERS tells how many share the lock, of whom OWNER came last; 0: nobody does.\n"
    "HELD is \"kept\" where OWNER keeps the lock and nobody uses it (keep_ms).\n"
    "\n"
    "Exit status: 0, also if no lock is held; 64 for wrong usage; 69 if the server\n"
    "can't be reached, or refuses; 74 if the list can't be written.\n";
/* clang-format on */

#define MOST_MS INT64_C(1000000000000)

/* Set by the options. */
static struct {
    int64_t min_held_ms;
    enum cli_column sort;
    bool reverse, names, null, json;
} given;

static const struct cli_option options[] = {
    {"older-than", .time_ms = &given.min_held_ms, .most = MOST_MS},
    {"sort", 's', .take = cli_take_column, .into = &given.sort},
    {"reverse", 'r', .flag = &given.reverse},
    {"names", 'n', .flag = &given.names},
    {"null", '0', .flag = &given.null},
    {"json", .flag = &given.json},
    {0},
};

static void print_names(const struct cli_locks *locks)
{
    char shown[CLI_SHOWN_MAX];

    for (size_t i = 0; i < locks->count; i++) {
        const char *name = locks->items[i].name;
        printf("%s%c", given.null ? name : cli_show(shown, sizeof shown, name), given.null ? '\0' : '\n');
    }
}

static void print_table(const struct cli_locks *locks)
{
    size_t rows, columns;

    cli_screen_size(&rows, &columns);
    cli_locks_print_table(stdout, locks->items, locks->count, isatty(STDOUT_FILENO) ? columns : SIZE_MAX, "", "");
}

static int list(dibs_runtime *rt, char **words)
{
    struct cli_locks locks = {0};
    dibs_status status = cli_locks_read(&locks, rt, words[0], given.min_held_ms);

    if (status == DIBS_OK) {
        cli_locks_sort(&locks, given.sort, given.reverse);
        if (given.json)
            cli_locks_print_json(locks.items, locks.count);
        else if (given.names || given.null)
            print_names(&locks);
        else
            print_table(&locks);
    }
    cli_locks_free(&locks);
    return status == DIBS_OK ? CLI_OK : cli_failed(status);
}

static int check_and_list(char **words)
{
    if (given.json && (given.names || given.null))
        return cli_usage_error("--json and %s exclude each other", given.names ? "--names" : "--null");
    return cli_look(list, words);
}

const struct cli_command cli_list = {
    .name = "list",
    .summary = "lists the locks that are held",
    .help = help,
    .options = {options},
    .arguments = CLI_ONE_PATTERN,
    .run = check_and_list,
};
