#include "cli/locks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/json.h"
#include "cli/text.h"
#include "cli/owner_token.h"

#define GAP ((size_t)2) /* blanks between columns */
#define CELL_MAX CLI_SHOWN_MAX

const char *const cli_column_words[CLI_COLUMNS] = {"name", "owner", "held", "left", "waiters", "sharers"};

static const struct {
    const char *head;
    bool right;   /* flush right */
    size_t least; /* columns that a text keeps in a narrow window */
} columns[CLI_COLUMNS] = {
    [CLI_NAME] = {"NAME", false, 12}, [CLI_OWNER] = {"OWNER", false, 8},    [CLI_HELD] = {"HELD", true, 6},
    [CLI_LEFT] = {"LEFT", true, 6},   [CLI_WAITERS] = {"WAITERS", true, 7}, [CLI_SHARERS] = {"SHARERS", true, 7},
};

int cli_take_column(const char *word, void *column)
{
    for (int i = 0; i < CLI_COLUMNS; i++) {
        if (strcmp(cli_column_words[i], word) == 0) {
            *(enum cli_column *)column = (enum cli_column)i;
            return CLI_OK;
        }
    }
    return cli_usage_error("%s: there is no column \"%s\": say name, owner, held, left, waiters or sharers",
                           cli_option(), word);
}

/* ------------------------------------------------------------------ reading */

static bool grow(struct cli_locks *locks)
{
    size_t room = locks->room ? 2 * locks->room : 64;
    struct cli_lock *items = realloc(locks->items, room * sizeof *items);

    if (items) {
        locks->items = items;
        locks->room = room;
    }
    return items != NULL;
}

static bool keep(const char *name, const dibs_owner *owner, void *arg)
{
    struct cli_locks *locks = arg;

    if (locks->min_held_ms > 0 && owner->held_ms < locks->min_held_ms)
        return true;
    char *copy = locks->count < locks->room || grow(locks) ? strdup(name) : NULL;
    if (copy)
        locks->items[locks->count++] = (struct cli_lock){copy, *owner, NULL};
    else
        locks->failed = true;
    return copy != NULL;
}

dibs_status cli_locks_read(struct cli_locks *out, dibs_runtime *rt, const char *pattern, int64_t min_held_ms)
{
    *out = (struct cli_locks){.min_held_ms = min_held_ms};
    dibs_status status = dibs_list(rt, pattern, keep, out);
    return status == DIBS_OK && out->failed ? DIBS_NO_MEMORY : status;
}

void cli_locks_free(struct cli_locks *locks)
{
    for (size_t i = 0; i < locks->count; i++)
        free(locks->items[i].name);
    free(locks->items);
    memset(locks, 0, sizeof *locks);
}

/* ------------------------------------------------------------------ sorting */

/* Of the cli_locks_sort that is running. */
static enum cli_column sorted_by;
static bool reversed;

static int by_owner(const dibs_owner *a, const dibs_owner *b)
{
    char left[CLI_WHO_MAX], right[CLI_WHO_MAX];

    return strcmp(cli_who_show(left, a->token), cli_who_show(right, b->token));
}

/* The number by which the column sorts, the least first. A key that never expires has the most left. */
static int64_t rank(const dibs_owner *owner)
{
    switch (sorted_by) {
    case CLI_HELD:
        return -owner->held_ms;
    case CLI_LEFT:
        return owner->remaining_ms < 0 ? INT64_MAX : owner->remaining_ms;
    case CLI_WAITERS:
        return -(int64_t)owner->waiters;
    case CLI_SHARERS:
        return -(int64_t)owner->sharers;
    default:
        return 0;
    }
}

static int compare(const void *a, const void *b)
{
    const struct cli_lock *left = a, *right = b;
    int64_t x = rank(&left->owner), y = rank(&right->owner);
    int order = sorted_by == CLI_OWNER ? by_owner(&left->owner, &right->owner) : (x > y) - (x < y);

    order = order ? order : strcmp(left->name, right->name);
    return reversed ? -order : order;
}

void cli_locks_sort(struct cli_locks *locks, enum cli_column column, bool reverse)
{
    sorted_by = column;
    reversed = reverse;
    if (locks->count > 0)
        qsort(locks->items, locks->count, sizeof *locks->items, compare);
}

/* -------------------------------------------------------------------- table */

static void write_cell(char out[CELL_MAX], const struct cli_lock *row, enum cli_column column)
{
    switch (column) {
    case CLI_NAME:
        cli_show(out, CELL_MAX, row->name);
        break;
    case CLI_OWNER:
        cli_who_show(out, row->owner.token);
        break;
    case CLI_HELD:
        if (row->owner.kept)
            snprintf(out, CELL_MAX, "kept");
        else
            cli_duration(out, row->owner.held_ms);
        break;
    case CLI_LEFT:
        cli_duration(out, row->owner.remaining_ms);
        break;
    case CLI_WAITERS:
        snprintf(out, CELL_MAX, "%" PRIu32, row->owner.waiters);
        break;
    default:
        snprintf(out, CELL_MAX, "%" PRIu32, row->owner.sharers);
    }
}

/* Narrows a column of the table by up to excess columns of the terminal, and returns by how many. */
static size_t take(size_t *widths, enum cli_column column, size_t excess)
{
    size_t least = columns[column].least, spare = widths[column] > least ? widths[column] - least : 0;
    size_t taken = spare < excess ? spare : excess;

    widths[column] -= taken;
    return taken;
}

/* Finds the widths of the columns, for these rows. */
static void measure(size_t widths[CLI_COLUMNS], const struct cli_lock *rows, size_t count, size_t most)
{
    char cell[CELL_MAX];
    size_t sum = GAP * (CLI_COLUMNS - 1);

    for (int i = 0; i < CLI_COLUMNS; i++) {
        size_t widest = columns[i].right ? columns[i].least : strlen(columns[i].head);
        for (size_t row = 0; row < count; row++) {
            write_cell(cell, &rows[row], (enum cli_column)i);
            size_t width = cli_width(cell);
            widest = width > widest ? width : widest;
        }
        widths[i] = widest;
        sum += widest;
    }
    if (sum > most)
        sum -= take(widths, CLI_OWNER, sum - most);
    if (sum > most)
        take(widths, CLI_NAME, sum - most);
}

/* row NULL: the head. */
static void print_row(FILE *out, const size_t widths[CLI_COLUMNS], const struct cli_lock *row)
{
    char cell[CELL_MAX];

    for (int i = 0; i < CLI_COLUMNS; i++) {
        if (row)
            write_cell(cell, row, (enum cli_column)i);
        else
            snprintf(cell, sizeof cell, "%s", columns[i].head);
        if (i > 0)
            fprintf(out, "%*s", (int)GAP, "");
        cli_print_cell(out, cell, widths[i], columns[i].right);
    }
}

void cli_locks_print_table(FILE *out, const struct cli_lock *rows, size_t count, size_t most, const char *begin_head,
                           const char *end_head)
{
    size_t widths[CLI_COLUMNS];

    measure(widths, rows, count, most);
    fputs(begin_head, out);
    print_row(out, widths, NULL);
    fprintf(out, "%s\n", end_head);
    for (size_t i = 0; i < count; i++) {
        print_row(out, widths, &rows[i]);
        fputc('\n', out);
    }
}

/* -------------------------------------------------------------------- block */

static void print_who(const char *token)
{
    struct cli_who who = {0};
    char shown[CLI_WHO_MAX];

    if (strcmp(token, "dibs:shared") == 0) {
        fputs("those who share it; the list of them is lost", stdout);
        return;
    }
    cli_who_parse(&who, token);
    if (who.foreign) {
        fputs("a client without dibs", stdout);
        return;
    }
    printf("%s", cli_show_message(shown, sizeof shown, who.label));
    printf(" on %s, process %s", cli_show_message(shown, sizeof shown, who.host), who.pid);
    if (strcmp(who.thread, who.pid) != 0)
        printf(", thread %s", who.thread);
}

static void print_owner(const char *token)
{
    char shown[CLI_WHO_MAX];

    fputs("  owner    ", stdout);
    print_who(token);
    printf("\n  token    %s\n", cli_show_message(shown, sizeof shown, token)); /* escaped by the library */
}

/* Prints the waiters in the order of the queue. */
static void print_queue(uint32_t entries, const struct cli_queue *queue)
{
    char length[CLI_TIME_MAX];

    printf("  entries  %" PRIu32 "\n", entries);
    for (size_t i = 0; queue && i < queue->count; i++) {
        printf("%11zu. ", i + 1);
        print_who(queue->waiters[i].token);
        if (queue->waiters[i].asked_ms >= 0)
            printf(", asked %s ago", cli_duration(length, queue->waiters[i].asked_ms));
        putchar('\n');
    }
    if (queue && queue->count > 0 && queue->count < entries)
        printf("             and %zu more\n", entries - queue->count);
}

/* Prints the sharers, the newest first, except for the newest itself: that is the owner, printed above. */
static void print_sharers(const dibs_owner *owner, const struct cli_queue *queue)
{
    char length[CLI_TIME_MAX], shown[CLI_WHO_MAX];

    printf("  sharers  %" PRIu32 "%s\n", owner->sharers, queue ? ", of whom this one came last" : "");
    for (size_t i = 1; queue && i < queue->sharer_count; i++) {
        printf("%11zu. ", i + 1);
        print_who(queue->sharers[i].token);
        printf(", left %s, %s\n", cli_duration(length, queue->sharers[i].remaining_ms),
               cli_show_message(shown, sizeof shown, queue->sharers[i].token));
    }
    if (queue && queue->sharer_count > 0 && queue->sharer_count < owner->sharers)
        printf("             and %zu more\n", owner->sharers - queue->sharer_count);
}

static void print_times(const dibs_owner *owner)
{
    char when[CLI_TIME_MAX], length[CLI_TIME_MAX];

    if (owner->held_ms >= 0)
        printf("  since    %s (%s)\n", cli_time_ago(when, owner->held_ms), cli_duration(length, owner->held_ms));
    else
        fputs("  since    not known\n", stdout);
    if (owner->remaining_ms >= 0)
        printf("  left     %s\n", cli_duration(length, owner->remaining_ms));
    else
        fputs("  left     no end: the key never expires\n", stdout);
}

void cli_lock_print_block(const struct cli_lock *lock)
{
    const dibs_owner *owner = &lock->owner;
    char shown[CLI_SHOWN_MAX];

    printf("%s: %s\n", cli_show(shown, sizeof shown, lock->name), owner->held ? "held" : "free");
    if (owner->held) {
        print_owner(owner->token);
        print_times(owner);
    }
    if (owner->kept)
        puts("  kept     by its process, which gives it to whoever asks");
    if (owner->sharers)
        print_sharers(owner, lock->queue);
    if (owner->fence)
        printf("  fence    %" PRIu64 "\n", owner->fence);
    if (owner->held || owner->waiters)
        print_queue(owner->waiters, lock->queue);
}

/* --------------------------------------------------------------------- JSON */

/* Writes "token", and the token's owner under key. token NULL: null for both. */
static void who_json(const char *key, const char *token)
{
    struct cli_who who = {0};

    cli_who_parse(&who, token ? token : "");
    cli_json_string("token", token);
    if (who.foreign) {
        cli_json_string(key, NULL);
        return;
    }
    cli_json_open(key, '{');
    cli_json_string("label", who.label);
    cli_json_string("host", who.host);
    cli_json_int("pid", strtoll(who.pid, NULL, 10));
    cli_json_int("thread", strtoll(who.thread, NULL, 10));
    cli_json_string("runtime", who.runtime);
    cli_json_close('}');
}

static void queue_json(const struct cli_queue *queue)
{
    cli_json_open("queue", '[');
    for (size_t i = 0; i < queue->count; i++) {
        const dibs_waiter *waiter = &queue->waiters[i];
        cli_json_open(NULL, '{');
        who_json("waiter", waiter->token);
        cli_json_int("asked_ms", waiter->asked_ms);
        cli_json_close('}');
    }
    cli_json_close(']');
}

static void sharing_json(const struct cli_queue *queue)
{
    cli_json_open("sharing", '[');
    for (size_t i = 0; i < queue->sharer_count; i++) {
        const dibs_sharer *sharer = &queue->sharers[i];
        cli_json_open(NULL, '{');
        who_json("sharer", sharer->token);
        cli_json_int("held_ms", sharer->held_ms);
        cli_json_int("left_ms", sharer->remaining_ms);
        cli_json_fence("fence", sharer->fence);
        cli_json_close('}');
    }
    cli_json_close(']');
}

static void lock_json(const struct cli_lock *lock)
{
    const dibs_owner *owner = &lock->owner;
    int64_t held_ms = owner->held ? owner->held_ms : -1;
    char text[CLI_TIME_MAX];

    cli_json_open(NULL, '{');
    cli_json_name(lock->name);
    cli_json_bool("held", owner->held);
    who_json("owner", owner->held ? owner->token : NULL);
    cli_json_string("since", held_ms >= 0 ? cli_utc_ago(text, held_ms) : NULL);
    cli_json_int("held_ms", held_ms);
    cli_json_int("left_ms", owner->held ? owner->remaining_ms : -1);
    cli_json_fence("fence", owner->fence);
    cli_json_bool("kept", owner->kept);
    cli_json_int("sharers", owner->sharers);
    cli_json_int("waiters", owner->waiters);
    if (lock->queue) {
        sharing_json(lock->queue);
        queue_json(lock->queue);
    }
    cli_json_close('}');
}

void cli_locks_print_json(const struct cli_lock *locks, size_t count)
{
    cli_json_open(NULL, '{');
    cli_json_open("locks", '[');
    for (size_t i = 0; i < count; i++)
        lock_json(&locks[i]);
    cli_json_close(']');
    cli_json_close('}');
}
