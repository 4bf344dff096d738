#include "cli/cli.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void say(const char *format, va_list arguments)
{
    fputs("dibs: ", stderr);
    vfprintf(stderr, format, arguments);
}

void cli_error(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    say(format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

int cli_usage_error(const char *command, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    say(format, arguments);
    va_end(arguments);
    fprintf(stderr, " (\"dibs %s --help\" tells more)\n", command);
    return CLI_USAGE;
}

/* Splits text at its blanks, in place. Returns how many words there are; *out belongs to the caller. */
static size_t split(char *text, const char ***out)
{
    size_t count = 0;
    char *rest = text;

    *out = calloc(strlen(text) / 2 + 1, sizeof **out);
    for (char *word; *out && (word = strtok_r(rest, " \t\n", &rest));)
        (*out)[count++] = word;
    return count;
}

static int open_urls(dibs_runtime **out, const dibs_config *config)
{
    dibs_status status = dibs_open(out, config);

    if (status == DIBS_OK)
        return CLI_OK;
    cli_error("%s", dibs_last_error());
    return status == DIBS_INVALID ? CLI_USAGE : CLI_UNAVAILABLE;
}

int cli_open(dibs_runtime **out, dibs_config *config, const char *text)
{
    char *copy;
    int result;

    *out = NULL;
    if (!text)
        return open_urls(out, config);
    copy = strdup(text);
    if (!copy || !(config->url_count = split(copy, (const char ***)&config->urls))) {
        cli_error(copy ? "--url names no store" : "memory is exhausted");
        free(copy);
        return CLI_USAGE;
    }
    result = open_urls(out, config);
    free((void *)config->urls);
    free(copy);
    config->urls = NULL;
    config->url_count = 0;
    return result;
}
