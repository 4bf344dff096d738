/*
 * dibs list: which locks are held.
 */
#include <stdio.h>
#include <unistd.h>

#include "cli/json.h"
#include "cli/locks.h"
#include "cli/look.h"
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
    "one, except with --fair.\n"
    "SHARERS tells how many share the lock, of whom OWNER came last; 0: nobody does.\n"
    "HELD is \"kept\" where OWNER keeps the lock and nobody uses it (keep_ms).\n"
    "\n"
    "Exit status: 0, also if no lock is held; 64 for wrong usage; 69 if the server\n"
    "can't be reached, or refuses; 74 if the list can't be written.\n";
/* clang-format on */

#define MOST_MS INT64_C(1000000000000)

enum { OPTION_OLDER_THAN = CLI_OPTION_MORE };

struct list {
    struct cli_look look;
    const char *pattern;
    int64_t min_held_ms;
    enum cli_column sort;
    bool reverse, names, null;
};

static void print_json(const struct cli_locks *locks)
{
    struct cli_json json = {.out = stdout};

    cli_locks_json_begin(&json);
    for (size_t i = 0; i < locks->count; i++)
        cli_lock_json(&json, locks->items[i].name, &locks->items[i].owner, NULL);
    cli_locks_json_end(&json);
}

static void print_names(const struct cli_locks *locks, bool null)
{
    char shown[CLI_SHOWN_MAX];

    for (size_t i = 0; i < locks->count; i++) {
        const char *name = locks->items[i].name;
        printf("%s%c", null ? name : cli_show(shown, sizeof shown, name), null ? '\0' : '\n');
    }
}

static void print_table(const struct cli_locks *locks)
{
    struct cli_widths widths;
    size_t rows, columns;

    cli_screen_size(&rows, &columns);
    cli_locks_measure(&widths, locks->items, locks->count, isatty(STDOUT_FILENO) ? columns : SIZE_MAX);
    cli_locks_print_head(stdout, &widths);
    putchar('\n');
    for (size_t i = 0; i < locks->count; i++) {
        cli_locks_print_row(stdout, &widths, &locks->items[i]);
        putchar('\n');
    }
}

static int print_list(const struct list *list, dibs_runtime *rt)
{
    struct cli_locks locks = {0};
    dibs_status status = cli_locks_read(&locks, rt, list->pattern, list->min_held_ms);

    if (status == DIBS_OK) {
        cli_locks_sort(&locks, list->sort, list->reverse);
        if (list->look.json)
            print_json(&locks);
        else if (list->names || list->null)
            print_names(&locks, list->null);
        else
            print_table(&locks);
    }
    cli_locks_free(&locks);
    return status == DIBS_OK ? CLI_OK : cli_look_failed(status);
}

/* ------------------------------------------------------------------ options */

static int set_option(struct list *list, int option)
{
    switch (option) {
    case OPTION_OLDER_THAN:
        return cli_time("list", 0, MOST_MS, &list->min_held_ms) ? CLI_GO_ON : CLI_USAGE;
    case 's':
        return cli_column_option("list", &list->sort) ? CLI_GO_ON : CLI_USAGE;
    case 'r':
        list->reverse = true;
        return CLI_GO_ON;
    case 'n':
        list->names = true;
        return CLI_GO_ON;
    case '0':
        list->null = true;
        return CLI_GO_ON;
    default:
        return cli_look_option(&list->look, option);
    }
}

static int set_options(struct list *list, int argc, char **argv)
{
    static const struct option options[] = {{"older-than", required_argument, NULL, OPTION_OLDER_THAN},
                                            {"sort", required_argument, NULL, 's'},
                                            {"reverse", no_argument, NULL, 'r'},
                                            {"names", no_argument, NULL, 'n'},
                                            {"null", no_argument, NULL, '0'},
                                            CLI_JSON_OPTION,
                                            CLI_LONG_OPTIONS};
    int result = CLI_GO_ON, option;

    while (result == CLI_GO_ON && (option = cli_next_option(argc, argv, ":s:rn0" CLI_SHORT_OPTIONS, options)) != -1)
        result = set_option(list, option);
    if (result == CLI_GO_ON && argc - optind > 1)
        result = cli_refuse_argument("list", argv[optind + 1]);
    list->pattern = argv[optind];
    return result;
}

int cli_list(int argc, char **argv)
{
    struct list list = {.look = {.help = help, .argv = argv}};
    int result = set_options(&list, argc, argv);
    dibs_runtime *rt;

    if (result != CLI_GO_ON)
        return cli_end(result);
    result = cli_open(&rt, (dibs_config){0}, list.look.common.url);
    if (result != CLI_OK)
        return result;
    result = print_list(&list, rt);
    dibs_close(rt);
    return cli_end(result);
}
