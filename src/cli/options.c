/*
 * The command line: as ps(1) shows it to everybody on the host; and the options in it. A table says what each option
 * is, and getopt_long(3) finds them.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

#define URL_FILE_MOST 65536 /* bytes */

struct cli_common cli_common = {.verbosity = CLI_NORMAL};

/* ------------------------------------------------------------- in the process list */

static char *words, *words_end; /* the memory of all words; read-only after cli_keep_arguments */

void cli_keep_arguments(int argc, char **argv)
{
    words = words_end = argv[0];
    for (int i = 0; i < argc && argv[i] == words_end; i++)
        words_end += strlen(argv[i]) + 1;
}

/* Overwrites what is between the first : of the account and the last @ of the word: a password may have any bytes. */
static void hide_password(char *word, size_t length, bool stays)
{
    char *account = strstr(word, "://"), *password, *at = NULL;

    if (!account || account + 3 > word + length)
        return;
    for (char *c = account + 3; c < word + length; c++)
        if (*c == '@')
            at = c;
    password = at ? memchr(account + 3, ':', (size_t)(at - account - 3)) : NULL;
    if (!password || password + 1 == at)
        return;
    memset(password + 1, '*', (size_t)(at - password - 1));
    if (!stays)
        memmove(password + 2, at, strlen(at) + 1);
}

void cli_hide_passwords(char *text, bool stays)
{
    for (char *word = text; *word; word += strspn(word, " \t\n")) {
        hide_password(word, strcspn(word, " \t\n"), stays);
        word += strcspn(word, " \t\n");
    }
}

void cli_overwrite_arguments(const char *title)
{
    size_t size = (size_t)(words_end - words);

    if (size == 0)
        return;
    memset(words, 0, size);
    snprintf(words, size, "%s", title);
}

/* ------------------------------------------------------- arguments of options */

static int keep_urls(char *text)
{
    free(cli_common.urls);
    cli_common.urls = text;
    if (text)
        return CLI_OK;
    cli_error("memory is exhausted");
    return CLI_SYSTEM;
}

static int take_url(const char *argument, void *into)
{
    int result = keep_urls(strdup(argument));

    (void)into;
    cli_hide_passwords(optarg, true); /* which is the argument, as it stands in the command line */
    return result;
}

static int take_url_file(const char *path, void *into)
{
    char *text = malloc(URL_FILE_MOST + 1);
    int result = keep_urls(text);

    (void)into;
    if (!text)
        return result;
    FILE *file = fopen(path, "re");
    size_t got = file ? fread(text, 1, URL_FILE_MOST, file) : 0;
    text[got] = '\0';
    if (!file || ferror(file))
        result = cli_usage_error("--url-file: %s: %s", path, strerror(errno));
    else if (got == URL_FILE_MOST)
        result = cli_usage_error("--url-file: %s is too long", path);
    if (file)
        fclose(file);
    return result;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Milliseconds in a unit; 0: there is no such unit. */
static int64_t unit_of(char c)
{
    return c == 's' ? 1000 : c == 'm' ? 60000 : c == 'h' ? 3600000 : c == 'd' ? 86400000 : 0;
}

/* Reads whole numbers with units, such as 1h30m. If their sum is too large, *out_ms is more than most_ms. */
static bool with_units(const char *c, int64_t most_ms, int64_t *out_ms)
{
    int64_t sum = 0, last = INT64_MAX;

    for (; *c; c++) {
        int64_t number = 0;

        if (!is_digit(*c))
            return false;
        for (; is_digit(*c); c++)
            number = number > most_ms ? number : number * 10 + (*c - '0');
        if (!unit_of(*c) || unit_of(*c) >= last) /* the larger unit comes first */
            return false;
        last = unit_of(*c);
        sum = number > most_ms / last || sum > most_ms ? most_ms + 1 : sum + number * last;
    }
    *out_ms = sum;
    return last != INT64_MAX && sum <= most_ms;
}

static bool decimal_seconds(const char *c, int64_t most_ms, int64_t *out_ms)
{
    int64_t ms = 0, weight = 100;
    bool any = is_digit(*c) || (*c == '.' && is_digit(c[1])), more = false;

    for (; is_digit(*c); c++)
        ms = ms > most_ms ? ms : ms * 10 + (int64_t)(*c - '0') * 1000;
    if (*c == '.')
        for (c++; is_digit(*c); c++, weight /= 10) {
            ms += (*c - '0') * weight;
            more = more || (weight == 0 && *c != '0');
        }
    *out_ms = ms == 0 && more ? 1 : ms;
    return any && *c == '\0' && ms <= most_ms;
}

static int take_time(const struct cli_option *option, const char *text)
{
    int64_t least = option->least, most = option->most, ms;

    if ((!with_units(text, most, &ms) && !decimal_seconds(text, most, &ms)) || ms < least)
        return cli_usage_error("%s: \"%s\" is not a time from %.10g to %.10g s: seconds, or units as in 1h30m",
                               cli_option(), text, (double)least / 1000, (double)most / 1000);
    *option->time_ms = ms;
    return CLI_OK;
}

static int take_number(const struct cli_option *option, const char *text)
{
    char *end;
    long number = strtol(text, &end, 10);

    if (!is_digit(*text) || *end || number < option->least || number > option->most)
        return cli_usage_error("%s: \"%s\" is not %s from %" PRId64 " to %" PRId64, cli_option(), text, option->what,
                               option->least, option->most);
    *option->number = (int)number;
    return CLI_OK;
}

/* ------------------------------------------------------------------- options */

static const struct cli_option common_options[] = {
    {"url", .take = take_url},
    {"url-file", .take = take_url_file},
    {"prefix", .text = &cli_common.config.key_prefix},
    {"tls-ca", .text = &cli_common.config.tls_ca_file},
    {"tls-cert", .text = &cli_common.config.tls_cert_file},
    {"tls-key", .text = &cli_common.config.tls_key_file},
    {"tls-name", .text = &cli_common.config.tls_server_name},
    {"help", .letter = 'h'}, /* taken by its letter, as the next two */
    {"quiet", .letter = 'q'},
    {"verbose", .letter = 'v'},
    {0},
};

#define OPTIONS_MOST 40
#define LONG 256 /* getopt_long returns LONG + i for the long form of option i, and the letter for a short one */

/* All options of the command, also in the forms that getopt_long takes; read-only after the options were read. */
static struct {
    const struct cli_option *all[OPTIONS_MOST];
    struct option forms[OPTIONS_MOST + 1];
    char letters[2 * OPTIONS_MOST + 3];
    int count;
} known;

static char written[32]; /* the last option, as the user wrote it */

static void know(const struct cli_option *table)
{
    for (const struct cli_option *option = table; option && option->name && known.count < OPTIONS_MOST; option++) {
        bool has_argument = option->text || option->time_ms || option->number || option->take;
        char letter[] = {(char)option->letter, has_argument ? ':' : '\0', '\0'}; /* "" without a short form */

        strcat(known.letters, letter);
        known.forms[known.count] = (struct option){option->name, has_argument, NULL, LONG + known.count};
        known.all[known.count++] = option;
    }
}

/* The option for which getopt_long returned that value; NULL: it is none. */
static const struct cli_option *find(int value)
{
    if (value >= LONG)
        return known.all[value - LONG];
    for (int i = 0; i < known.count; i++)
        if (value > 0 && known.all[i]->letter == value)
            return known.all[i];
    return NULL;
}

static void write_option(int value)
{
    if (value >= LONG)
        snprintf(written, sizeof written, "--%s", find(value)->name);
    else
        snprintf(written, sizeof written, "-%c", value);
}

const char *cli_option(void)
{
    return written;
}

/* Whether several long options begin with the first bytes of word. */
static bool is_ambiguous(const char *word, int length)
{
    int count = 0;

    for (int i = 0; i < known.count; i++)
        count += strncmp(known.all[i]->name, word + 2, (size_t)length - 2) == 0;
    return count > 1;
}

/*
 * optopt is 0 for a long option that does not exist, which is the last word then; else the option's value, or a letter
 * that does not exist.
 */
static int refuse(bool lacks_argument, const char *word)
{
    int length = cli_shown_length(word);

    write_option(optopt);
    if (lacks_argument)
        return cli_usage_error("%s needs an argument", written);
    if (find(optopt))
        return cli_usage_error("%s takes no argument", written);
    if (optopt)
        return cli_usage_error("there is no option %s", written);
    return cli_usage_error(is_ambiguous(word, length) ? "%.*s is short for several options" : "there is no option %.*s",
                           length, word);
}

static int take(const struct cli_option *option, const char *help)
{
    switch (option->letter) {
    case 'h':
        fputs(help, stdout);
        exit(cli_end(CLI_OK));
    case 'q':
        cli_common.verbosity = CLI_QUIET;
        return CLI_OK;
    case 'v':
        cli_common.verbosity = CLI_VERBOSE;
        return CLI_OK;
    default:
        break;
    }
    if (option->flag)
        *option->flag = true;
    if (option->text)
        *option->text = optarg;
    return option->time_ms  ? take_time(option, optarg)
           : option->number ? take_number(option, optarg)
           : option->take   ? option->take(optarg, option->into)
                            : CLI_OK;
}

int cli_read_options(const struct cli_command *command, int argc, char **argv)
{
    int result = CLI_OK, value;

    cli_common.command = command->name;
    strcpy(known.letters, command->arguments == CLI_NAME_AND_MORE ? "+:" : ":");
    know(command->options[0]);
    know(command->options[1]);
    know(common_options);
    opterr = 0;
    while (result == CLI_OK && (value = getopt_long(argc, argv, known.letters, known.forms, NULL)) != -1) {
        const struct cli_option *option = find(value);

        write_option(value);
        result = option ? take(option, command->help) : refuse(value == ':', argv[optind - 1]);
    }
    if (result != CLI_OK || !cli_common.urls || cli_common.urls[strspn(cli_common.urls, CLI_BLANKS)])
        return result;
    cli_error("--url or --url-file has no URL");
    return CLI_USAGE;
}

int cli_check_name(const char *name)
{
    size_t size = strlen(name);

    if (size == 0)
        return cli_usage_error("NAME is empty");
    if (size > DIBS_NAME_MAX)
        return cli_usage_error("NAME has %zu bytes, more than %d", size, DIBS_NAME_MAX);
    return CLI_OK;
}

int cli_refuse_argument(const char *word)
{
    return cli_usage_error("unexpected argument \"%.*s\"", cli_shown_length(word), word);
}
