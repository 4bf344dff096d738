#include "cli/block.h"

#include <inttypes.h>
#include <string.h>

#include "cli/text.h"
#include "cli/who.h"

static void print_who(FILE *out, const char *token)
{
    struct cli_who who = {0};
    char shown[CLI_WHO_MAX];

    cli_who_parse(&who, token);
    if (who.foreign) {
        fputs("  owner    a client without dibs\n", out);
    } else {
        fprintf(out, "  owner    %s", cli_show(shown, sizeof shown, who.label));
        fprintf(out, " on %s, process %s", cli_show(shown, sizeof shown, who.host), who.pid);
        if (strcmp(who.thread, who.pid) != 0)
            fprintf(out, ", thread %s", who.thread);
        fputc('\n', out);
    }
    fprintf(out, "  token    %s\n", cli_show(shown, sizeof shown, token));
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

void cli_block_print(FILE *out, const char *name, const dibs_owner *owner)
{
    char shown[CLI_SHOWN_MAX];

    fprintf(out, "%s: %s\n", cli_show(shown, sizeof shown, name), owner->held ? "held" : "free");
    if (owner->held) {
        print_who(out, owner->token);
        print_times(out, owner);
    }
    if (owner->fence)
        fprintf(out, "  fence    %" PRIu64 "\n", owner->fence);
    if (owner->held || owner->waiters)
        fprintf(out, "  waiters  %" PRIu32 "\n", owner->waiters);
}
