/*
 * The statistics of a runtime, as a struct and as text for Prometheus. In the text, numbers are integers and decimal
 * digits: printf's %g would use the decimal point of the locale.
 */
#include "dibs_metrics.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "api/check.h"
#include "base/utf8.h"
#include "core/stats_read.h"

/* The fields of dibs_stats that only grow, and what each counts. */
#define COUNTERS(XX)                                                                                                   \
    XX(acquired, "First acquires that were granted.")                                                                  \
    XX(reentered, "Acquires by a thread or task that already held the lock.")                                          \
    XX(released, "Final unlocks.")                                                                                     \
    XX(busy, "Single tries that found the lock taken.")                                                                \
    XX(timed_out, "Waits that ended without the lock.")                                                                \
    XX(contended, "Acquires that had to wait, whatever their outcome.")                                                \
    XX(granted, "Acquires that got the lock by a push from the store.")                                                \
    XX(handed_off, "Acquires that got the lock from a thread or task of this process.")                                \
    XX(renewed, "Leases renewed.")                                                                                     \
    XX(renew_failed, "Renewals without an answer, or answered by an error.")                                           \
    XX(lost, "Leases that ended under their holder.")                                                                  \
    XX(orphaned, "Locks released because their thread ended.")                                                         \
    XX(store_commands, "Commands sent to the store.")                                                                  \
    XX(store_errors, "Error replies of the store.")                                                                    \
    XX(reconnects, "Connections made in place of broken ones.")                                                        \
    XX(events_dropped, "Events that did not fit in the queue.")                                                        \
    XX(invalidations, "Times that the store told of changed locks.")                                                   \
    XX(not_held, "Unlocks by threads or tasks that did not hold the lock.")                                            \
    XX(begun, "Calls that were begun, without blocking.")                                                              \
    XX(cancelled, "Acquires that ended because their task was cancelled.")                                             \
    XX(retaken, "First acquires that took a kept lease.")

#define GAUGES(XX)                                                                                                     \
    XX(holds, "Locks held by threads and tasks now, each counted once.")                                               \
    XX(leases, "Leases that are kept alive now.")                                                                      \
    XX(kept, "Leases that are kept now, and that nobody here uses.")                                                   \
    XX(tracking, "1: the store tells at once of locks that change.")                                                   \
    XX(untaken, "Completions of begun calls that nobody has taken yet.")

static void write_head(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP dibs_%s %s\n# TYPE dibs_%s %s\n", name, help, name, type);
}

static void write_stats(FILE *out, const dibs_stats *stats)
{
#define WRITE_COUNTER(field, help)                                                                                     \
    write_head(out, #field "_total", "counter", help);                                                                 \
    fprintf(out, "dibs_" #field "_total %" PRIu64 "\n", stats->field);
#define WRITE_GAUGE(field, help)                                                                                       \
    write_head(out, #field, "gauge", help);                                                                            \
    fprintf(out, "dibs_" #field " %" PRIu64 "\n", stats->field);
    COUNTERS(WRITE_COUNTER)
    GAUGES(WRITE_GAUGE)
#undef WRITE_COUNTER
#undef WRITE_GAUGE
}

/* ------------------------------------------------------------------- labels */

#define REST "(others)"

static void write_as_hex(FILE *out, char byte)
{
    fprintf(out, "\\\\x%02X", (unsigned char)byte);
}

/* Writes the characters of a text in UTF-8, quoted as the value of a label must be. */
static void write_quoted(FILE *out, const char *at)
{
    for (size_t size; *at; at += size > 0 ? size : 1) {
        size = dibs__utf8_size(at);
        if (size == 0 || (at[0] == '\\' && at[1] == 'x'))
            write_as_hex(out, *at);
        else if (*at == '\n')
            fputs("\\n", out);
        else if (*at == '"' || *at == '\\')
            fprintf(out, "\\%c", *at);
        else
            fwrite(at, 1, size, out);
    }
}

/*
 * The value of a label is UTF-8: a byte that is not part of a character is written as \xHH. No two groups may get the
 * same value, or else a scraper would refuse the whole page. So a backslash before an x is written in that way, too,
 * and so is the first byte of a group whose name is that of the rest.
 */
static void write_group_name(FILE *out, const struct dibs__metrics_view *group)
{
    bool like_rest = !group->is_rest && strcmp(group->name, REST) == 0;

    if (like_rest)
        write_as_hex(out, group->name[0]);
    write_quoted(out, group->is_rest ? REST : &group->name[like_rest]);
}

/* Writes {group="sku",le="0.001"}, or a part of it. group NULL: all groups; le NULL: no bound. */
static void write_labels(FILE *out, const struct dibs__metrics_view *group, const char *le)
{
    if (!group && !le)
        return;
    fputc('{', out);
    if (group) {
        fputs("group=\"", out);
        write_group_name(out, group);
        fputs(le ? "\"," : "\"", out);
    }
    if (le)
        fprintf(out, "le=\"%s\"", le);
    fputc('}', out);
}

/* --------------------------------------------------------------- histograms */

#define SECONDS_MAX 32

static const char *seconds(char *text, uint64_t ns)
{
    int size = snprintf(text, SECONDS_MAX, "%" PRIu64 ".%09" PRIu64, ns / 1000000000, ns % 1000000000);

    while (text[size - 1] == '0')
        text[--size] = '\0';
    if (text[size - 1] == '.')
        text[--size] = '\0';
    return text;
}

static const struct dibs__metrics_family {
    const char *all, *grouped, *help;
} families[DIBS__METRICS_KINDS] = {
    [DIBS__METRICS_WAIT] = {"wait_seconds", "group_wait_seconds", "The time of first acquires that succeeded."},
    [DIBS__METRICS_HOLD] = {"hold_seconds", "group_hold_seconds", "From a first acquire to the last unlock."},
};

static void write_histogram(FILE *out, const char *name, const struct dibs__metrics_view *labelled,
                            const struct dibs__histogram *histogram)
{
    uint64_t up_to = 0;
    char text[SECONDS_MAX];

    for (unsigned i = 0; i <= DIBS__METRICS_BOUNDS; i++) {
        up_to += histogram->counts[i];
        fprintf(out, "dibs_%s_bucket", name);
        write_labels(out, labelled,
                     i < DIBS__METRICS_BOUNDS ? seconds(text, (uint64_t)dibs__metrics_bound(i)) : "+Inf");
        fprintf(out, " %" PRIu64 "\n", up_to);
    }
    fprintf(out, "dibs_%s_sum", name);
    write_labels(out, labelled, NULL);
    fprintf(out, " %s\ndibs_%s_count", seconds(text, histogram->sum_ns), name);
    write_labels(out, labelled, NULL);
    fprintf(out, " %" PRIu64 "\n", histogram->count);
}

/* ------------------------------------------------------------------- groups */

static void write_all_groups_together(dibs_runtime *rt, FILE *out)
{
    struct dibs__metrics_view sum = {0}, group;

    for (unsigned cursor = 0; dibs__stats_next_group(rt, &cursor, &group);)
        dibs__metrics_add(&sum, &group);
    write_head(out, "waiting", "gauge", "Threads and tasks that wait for a lock now.");
    fprintf(out, "dibs_waiting %" PRId64 "\n", sum.waiting);
    for (unsigned kind = 0; kind < DIBS__METRICS_KINDS; kind++) {
        write_head(out, families[kind].all, "histogram", families[kind].help);
        write_histogram(out, families[kind].all, NULL, &sum.histograms[kind]);
    }
}

/* All lines of a metric must be together, so the groups are read once for each metric. */
static void write_each_group(dibs_runtime *rt, FILE *out)
{
    struct dibs__metrics_view group;

    write_head(out, "group_waiting", "gauge", "Threads and tasks that wait now for a lock of the group.");
    for (unsigned cursor = 0; dibs__stats_next_group(rt, &cursor, &group);) {
        fputs("dibs_group_waiting", out);
        write_labels(out, &group, NULL);
        fprintf(out, " %" PRId64 "\n", group.waiting);
    }
    for (unsigned kind = 0; kind < DIBS__METRICS_KINDS; kind++) {
        write_head(out, families[kind].grouped, "histogram", families[kind].help);
        for (unsigned cursor = 0; dibs__stats_next_group(rt, &cursor, &group);)
            write_histogram(out, families[kind].grouped, &group, &group.histograms[kind]);
    }
}

void dibs_stats_get(dibs_runtime *rt, dibs_stats *out)
{
    struct dibs__error error;

    if (rt && out)
        dibs__stats_get(rt, out, &error);
    else if (out)
        memset(out, 0, sizeof *out);
}

dibs_status dibs_stats_write_prometheus(dibs_runtime *rt, FILE *out)
{
    struct dibs__error error;
    dibs_stats stats;
    int cancel_state;

    if (!rt || !out)
        return dibs__fail(DIBS_INVALID, rt ? "out is NULL" : "the runtime is NULL");
    if (dibs__stats_get(rt, &stats, &error) != DIBS_OK)
        return dibs__return(error.status, &error);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    write_stats(out, &stats);
    write_all_groups_together(rt, out);
    write_each_group(rt, out);
    pthread_setcancelstate(cancel_state, &cancel_state);
    return DIBS_OK;
}
