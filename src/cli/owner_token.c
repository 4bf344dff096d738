#include "cli/owner_token.h"

#include <stdio.h>
#include <string.h>

#include "cli/text.h"

#define OURS "dibs:"

static bool consists_of(const char *text, const char *bytes)
{
    return *text && text[strspn(text, bytes)] == '\0';
}

/* Cuts off the last field and returns it; NULL: there is none. */
static const char *cut_field(char *text)
{
    char *colon = strrchr(text, ':');

    if (!colon)
        return NULL;
    *colon = '\0';
    return colon + 1;
}

/* Cuts off the limit, which follows the sequence in the token of a sharer, and returns it; NULL: there is none. */
static const char *cut_limit(char *text)
{
    char *mark = strrchr(text, '~');

    if (!mark || !consists_of(mark + 1, "0123456789"))
        return NULL;
    *mark = '\0';
    return mark + 1;
}

/* Cuts off the mark that ends a token whose lease its process may keep. */
static void cut_mark(char *text)
{
    size_t size = strlen(text);

    if (size > 0 && text[size - 1] == '!')
        text[size - 1] = '\0';
}

static bool parse(struct cli_who *who)
{
    cut_mark(who->text);
    who->limit = cut_limit(who->text);
    const char *sequence = cut_field(who->text);

    who->runtime = cut_field(who->text);
    who->thread = cut_field(who->text);
    who->pid = cut_field(who->text);
    who->host = cut_field(who->text);
    who->label = who->text + strlen(OURS);
    if (!who->host || strncmp(who->text, OURS, strlen(OURS)) != 0)
        return false;
    return consists_of(sequence, "0123456789abcdef") && consists_of(who->runtime, "0123456789abcdef") &&
           consists_of(who->thread, "0123456789") && consists_of(who->pid, "0123456789") && *who->host;
}

void cli_who_parse(struct cli_who *out, const char *token)
{
    snprintf(out->text, sizeof out->text, "%s", token);
    out->foreign = !parse(out);
    if (!out->foreign)
        return;
    out->limit = NULL;
    out->label = out->host = out->pid = out->thread = out->runtime = "";
}

const char *cli_who_show(char out[CLI_WHO_MAX], const char *token)
{
    struct cli_who who = {0};
    char shown[CLI_WHO_MAX - 3];

    cli_who_parse(&who, token);
    if (who.foreign) {
        snprintf(out, CLI_WHO_MAX, "\"%s\"", cli_show_message(shown, sizeof shown, token));
    } else {
        bool first = strcmp(who.thread, who.pid) == 0;
        snprintf(shown, sizeof shown, "%s@%s:%s%s%s", who.label, who.host, who.pid, first ? "" : "/",
                 first ? "" : who.thread);
        cli_show_message(out, CLI_WHO_MAX, shown);
    }
    return out;
}
