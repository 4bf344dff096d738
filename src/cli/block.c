#include "cli/block.h"

#include <inttypes.h>
#include <string.h>

#include "cli/text.h"
#include "cli/owner_token.h"

static void print_who(FILE *out, const char *token)
{
    struct cli_who who = {0};
    char shown[CLI_WHO_MAX];

    if (strcmp(token, "dibs:shared") == 0) {
        fputs("those who share it; the list of them is lost", out);
        return;
    }
    cli_who_parse(&who, token);
    if (who.foreign) {
        fputs("a client without dibs", out);
        return;
    }
    fprintf(out, "%s", cli_show_message(shown, sizeof shown, who.label));
    fprintf(out, " on %s, process %s", cli_show_message(shown, sizeof shown, who.host), who.pid);
    if (strcmp(who.thread, who.pid) != 0)
        fprintf(out, ", thread %s", who.thread);
}

static void print_owner(FILE *out, const char *token)
{
    char shown[CLI_WHO_MAX];

    fputs("  owner    ", out);
    print_who(out, token);
    fprintf(out, "\n  token    %s\n", cli_show_message(shown, sizeof shown, token)); /* escaped by the library */
}

/* Prints the waiters in the order of the queue. */
static void print_queue(FILE *out, uint32_t entries, const struct cli_queue *queue)
{
    char length[CLI_TIME_MAX];

    fprintf(out, "  entries  %" PRIu32 "\n", entries);
    for (size_t i = 0; queue && i < queue->count; i++) {
        fprintf(out, "%11zu. ", i + 1);
        print_who(out, queue->waiters[i].token);
        if (queue->waiters[i].asked_ms >= 0)
            fprintf(out, ", asked %s ago", cli_duration(length, queue->waiters[i].asked_ms));
        fputc('\n', out);
    }
    if (queue && queue->count > 0 && queue->count < entries)
        fprintf(out, "             and %zu more\n", entries - queue->count);
}

/* Prints the sharers, the newest first, except for the newest itself: that is the owner, printed above. */
static void print_sharers(FILE *out, const dibs_owner *owner, const struct cli_queue *queue)
{
    char length[CLI_TIME_MAX], shown[CLI_WHO_MAX];

    fprintf(out, "  sharers  %" PRIu32 "%s\n", owner->sharers, queue ? ", of whom this one came last" : "");
    for (size_t i = 1; queue && i < queue->sharer_count; i++) {
        fprintf(out, "%11zu. ", i + 1);
        print_who(out, queue->sharers[i].token);
        fprintf(out, ", left %s, %s\n", cli_duration(length, queue->sharers[i].remaining_ms),
                cli_show_message(shown, sizeof shown, queue->sharers[i].token));
    }
    if (queue && queue->sharer_count > 0 && queue->sharer_count < owner->sharers)
        fprintf(out, "             and %zu more\n", owner->sharers - queue->sharer_count);
}

static void print_times(FILE *out, const dibs_owner *owner)
{
    char when[CLI_TIME_MAX], length[CLI_TIME_MAX];

    if (owner->held_ms >= 0)
        fprintf(out, "  since    %s (%s)\n", cli_time_ago(when, owner->held_ms), cli_duration(length, owner->held_ms));
    else
        fputs("  since    not known\n", out);
    if (owner->remaining_ms >= 0)
        fprintf(out, "  left     %s\n", cli_duration(length, owner->remaining_ms));
    else
        fputs("  left     no end: the key never expires\n", out);
}

void cli_block_print(FILE *out, const char *name, const dibs_owner *owner, const struct cli_queue *queue)
{
    char shown[CLI_SHOWN_MAX];

    fprintf(out, "%s: %s\n", cli_show(shown, sizeof shown, name), owner->held ? "held" : "free");
    if (owner->held) {
        print_owner(out, owner->token);
        print_times(out, owner);
    }
    if (owner->kept)
        fprintf(out, "  kept     by its process, which gives it to whoever asks\n");
    if (owner->sharers)
        print_sharers(out, owner, queue);
    if (owner->fence)
        fprintf(out, "  fence    %" PRIu64 "\n", owner->fence);
    if (owner->held || owner->waiters)
        print_queue(out, owner->waiters, queue);
}
