/*
 * dibs watch: shows the locks that are held until it is ended: on a terminal as a screen, else a line for each change.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/locks.h"
#include "cli/screen.h"
#include "cli/text.h"
#include "cli/owner_token.h"

/* clang-format off */
static const char help[] =
    "Usage: dibs watch [OPTION...] [PATTERN]\n"
    "\n"
    "Shows the locks that are held, and keeps the list up to date. PATTERN is a glob,\n"
    "such as 'nightly:*'; without it all locks are shown. If standard output is not a\n"
    "terminal, one line is printed for each change, with tabs between its fields:\n"
    "time, \"held\", \"kept\" (nobody uses it; keep_ms) or \"free\", name, owner, for how\n"
    "long it is held, lease left, waiters, sharers. A line with \"free\" ends with the\n"
    "name.\n"
    "\n"
    "  -i, --interval TIME   looks every TIME (default 2; at least 0.1). Each look\n"
    "                      goes through all keys of the store\n"
    "  -s, --sort COLUMN   sorts by name, owner, held, left, waiters or sharers\n"
    "                      (default held)\n"
    "  -r, --reverse       sorts the other way round\n"
    "  -c, --count N       ends after N looks\n"
    CLI_COMMON_HELP
    "\n"
    "Keys: q quits. n, o, h, l, w and s sort by name, owner, held, left, waiters and\n"
    "sharers; pressed again, the other way round, as does r. The space bar looks at\n"
    "once. The arrow keys, Page Up, Page Down, Home and End move through a long list.\n"
    "\n"
    "Exit status: 0; 64 for wrong usage; 69 if the server can't be reached, or\n"
    "refuses, at the start; 74 if nothing can be written.\n";
/* clang-format on */

#define REVERSE "\x1b[7m"
#define NORMAL "\x1b[0m"

/* Used by the main thread alone. */
static struct {
    dibs_runtime *rt;
    const char *pattern;
    int64_t interval_ms;
    int rounds; /* how many looks are left; 0: there is no limit */
    enum cli_column sort;
    bool reverse;
    struct cli_locks locks;
    char trouble[512]; /* why the last look failed; "": it succeeded */
    size_t first;      /* number of the lock in the top row */
} watch = {.interval_ms = 2000, .sort = CLI_HELD};

static const struct cli_option options[] = {
    {"interval", 'i', .time_ms = &watch.interval_ms, .least = 100, .most = 86400000},
    {"count", 'c', .number = &watch.rounds, .least = 1, .most = INT32_MAX, .what = "a number"},
    {"sort", 's', .take = cli_take_column, .into = &watch.sort},
    {"reverse", 'r', .flag = &watch.reverse},
    {0},
};

/* -------------------------------------------------------------------- lines */

static void print_change(const char *what, const struct cli_lock *lock, bool all)
{
    char now[CLI_TIME_MAX], name[CLI_SHOWN_MAX], owner[CLI_WHO_MAX], held[CLI_TIME_MAX], left[CLI_TIME_MAX];

    printf("%s\t%s\t%s", cli_time_ago(now, 0), what, cli_show(name, sizeof name, lock->name));
    if (all)
        printf("\t%s\t%s\t%s\t%u\t%u", cli_who_show(owner, lock->owner.token), cli_duration(held, lock->owner.held_ms),
               cli_duration(left, lock->owner.remaining_ms), (unsigned)lock->owner.waiters,
               (unsigned)lock->owner.sharers);
    putchar('\n');
}

/* If the lock is shared, the token is that of the newest sharer. */
static bool has_changed(const dibs_owner *was, const dibs_owner *is)
{
    return strcmp(was->token, is->token) != 0 || was->sharers != is->sharers || was->kept != is->kept;
}

/* Both are sorted by name. */
static void print_changes(const struct cli_locks *before, const struct cli_locks *now)
{
    size_t i = 0, j = 0;

    while (i < before->count || j < now->count) {
        const struct cli_lock *was = i < before->count ? &before->items[i] : NULL;
        const struct cli_lock *is = j < now->count ? &now->items[j] : NULL;
        int order = was && is ? strcmp(was->name, is->name) : was ? -1 : 1;
        if (was && order < 0)
            print_change("free", was, false);
        else if (is && (!was || order > 0 || has_changed(&was->owner, &is->owner)))
            print_change(is->owner.kept ? "kept" : "held", is, true);
        i += order <= 0;
        j += order >= 0;
    }
}

/* -------------------------------------------------------------------- looks */

/* Looks again. Where the look fails, the locks are those of the look before. */
static dibs_status look_again(bool prints_changes)
{
    struct cli_locks locks = {0};
    dibs_status status = cli_locks_read(&locks, watch.rt, watch.pattern, 0);

    if (status != DIBS_OK) {
        snprintf(watch.trouble, sizeof watch.trouble, "%s", locks.failed ? "memory is exhausted" : dibs_last_error());
        cli_locks_free(&locks);
        return status;
    }
    watch.trouble[0] = '\0';
    cli_locks_sort(&locks, watch.sort, watch.reverse);
    if (prints_changes)
        print_changes(&watch.locks, &locks);
    cli_locks_free(&watch.locks);
    watch.locks = locks;
    return DIBS_OK;
}

static int watch_lines(void)
{
    bool troubled = false;

    watch.sort = CLI_NAME;
    watch.reverse = false;
    for (bool is_first = true;; is_first = false) {
        dibs_status status = look_again(true);
        if (status != DIBS_OK && is_first)
            return cli_failed(status);
        if (status != DIBS_OK && !troubled)
            cli_warn("%s", watch.trouble);
        troubled = status != DIBS_OK;
        if (fflush(stdout) != 0 || (watch.rounds > 0 && --watch.rounds == 0))
            return CLI_OK;
        (void)poll(NULL, 0, (int)watch.interval_ms);
    }
}

/* ------------------------------------------------------------------- screen */

static void write_title(FILE *out)
{
    char now[CLI_TIME_MAX], pattern[CLI_SHOWN_MAX];
    unsigned long waiters = 0;

    for (size_t i = 0; i < watch.locks.count; i++)
        waiters += watch.locks.items[i].owner.waiters;
    fprintf(out, "dibs  %s  %zu %s held, %lu waiting", cli_time_ago(now, 0), watch.locks.count,
            watch.locks.count == 1 ? "lock" : "locks", waiters);
    if (watch.pattern)
        fprintf(out, "  %s", cli_show(pattern, sizeof pattern, watch.pattern));
}

static void write_foot(FILE *out, size_t rows)
{
    char trouble[sizeof watch.trouble];

    if (*watch.trouble) {
        fputs(cli_show(trouble, sizeof trouble, watch.trouble), out);
        return;
    }
    fprintf(out, "q quit  n o h l w s sort: %s%s  r reverse", cli_column_words[watch.sort],
            watch.reverse ? " reversed" : "");
    if (watch.locks.count > rows)
        fprintf(out, "  %zu-%zu of %zu", watch.first + 1,
                watch.first + rows < watch.locks.count ? watch.first + rows : watch.locks.count, watch.locks.count);
}

/* How many rows fit between the head and the foot of the window. */
static size_t rows_of(size_t window)
{
    return window > 4 ? window - 3 : 1;
}

static void scroll_within(size_t rows)
{
    size_t most = watch.locks.count > rows ? watch.locks.count - rows : 0;

    if (watch.first > most)
        watch.first = most;
}

/* Lines wider than the window are cut by the terminal. */
static void write_frame(FILE *out, size_t window, size_t columns)
{
    size_t rows = rows_of(window), count = watch.locks.count;

    scroll_within(rows);
    const struct cli_lock *begin = watch.locks.items ? watch.locks.items + watch.first : NULL;
    count = count - watch.first < rows ? count - watch.first : rows;
    write_title(out);
    fputc('\n', out);
    cli_locks_print_table(out, begin, count, columns, REVERSE, NORMAL);
    for (size_t i = count; i < rows; i++)
        fputc('\n', out);
    write_foot(out, rows);
    fputc('\n', out);
}

static bool draw(void)
{
    size_t rows, columns, size;
    char *frame = NULL;
    FILE *out = open_memstream(&frame, &size);

    if (!out)
        return true;
    cli_screen_size(&rows, &columns);
    write_frame(out, rows, columns);
    bool shown = fclose(out) != 0 || cli_screen_show(frame);
    free(frame);
    return shown;
}

static void sort_by(enum cli_column column, bool reverse)
{
    watch.sort = column;
    watch.reverse = reverse;
    watch.first = 0;
    cli_locks_sort(&watch.locks, column, reverse);
}

static void scroll(int key)
{
    size_t rows, columns;

    cli_screen_size(&rows, &columns);
    size_t step = key == CLI_KEY_PAGE_UP || key == CLI_KEY_PAGE_DOWN ? rows_of(rows) : 1;
    if (key == CLI_KEY_UP || key == CLI_KEY_PAGE_UP)
        watch.first -= watch.first < step ? watch.first : step;
    else if (key == CLI_KEY_DOWN || key == CLI_KEY_PAGE_DOWN)
        watch.first += step;
    else
        watch.first = key == CLI_KEY_HOME ? 0 : watch.locks.count;
}

static void obey(int key)
{
    static const char sorts[] = "nohlws"; /* as in enum cli_column */
    const char *sort = key > 0 && key < 128 ? strchr(sorts, key) : NULL;
    enum cli_column column = sort ? (enum cli_column)(sort - sorts) : watch.sort;

    if (sort || key == 'r')
        sort_by(column, watch.sort == column && !watch.reverse);
    else if (key >= CLI_KEY_UP)
        scroll(key);
}

/* Draws and obeys keys until it is time to look again: -1. Otherwise the exit status of the command. */
static int until_next_look(void)
{
    int64_t end = cli_now_ms() + watch.interval_ms;
    int key;

    do {
        if (!draw())
            return CLI_OUTPUT;
        key = cli_screen_wait(end);
        obey(key);
    } while (key != CLI_KEY_NONE && key != ' ' && key != 'q' && key != 'Q');
    return key == 'q' || key == 'Q' ? CLI_OK : -1;
}

static int watch_screen(void)
{
    dibs_status status = look_again(false);
    int result;

    if (status != DIBS_OK)
        return cli_failed(status);
    if (!cli_screen_enter()) {
        cli_error("no screen: %s", strerror(errno));
        return CLI_OUTPUT;
    }
    while ((result = until_next_look()) < 0 && (watch.rounds <= 0 || --watch.rounds > 0))
        look_again(false);
    cli_screen_leave();
    return result < 0 ? CLI_OK : result;
}

static int look(dibs_runtime *rt, char **words)
{
    watch.rt = rt;
    watch.pattern = words[0];
    int result = cli_screen_possible() ? watch_screen() : watch_lines();
    cli_locks_free(&watch.locks);
    return result;
}

const struct cli_command cli_watch = {
    .name = "watch",
    .summary = "shows the locks that are held, and keeps the list up to date",
    .help = help,
    .options = {options},
    .arguments = CLI_ONE_PATTERN,
    .look = look,
};
