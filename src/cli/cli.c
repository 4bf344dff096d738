#include "cli/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/arguments.h"
#include "cli/text.h"

static enum { QUIET, NORMAL, VERBOSE } verbosity = NORMAL; /* read-only after the options were read */

#define URL_FILE_MOST 65536 /* bytes */
#define BLANKS " \t\r\n"

/* Arguments of the options from --prefix on, which concern the store; read-only after the options were read. */
static const char *store[CLI_OPTION_OWN - CLI_OPTION_PREFIX];

static const char *letters_known;          /* the command's short options, in the form of getopt(3) */
static const struct option *options_known; /* the command's long options */
static char option_written[32];            /* the last option, as the user wrote it */

static char *urls_kept; /* URLs of the last --url or --url-file; kept until the process ends */

/* ------------------------------------------------------------------ messages */

/*
 * Prints a message by one write, because several processes may share standard error. Nothing in it, such as a path or
 * the name of a program, can drive the terminal, and passwords of URLs are hidden.
 */
static void say(const char *end, const char *format, va_list arguments)
{
    char line[2048], shown[2 * sizeof line];

    if (vsnprintf(line, sizeof line, format, arguments) < 0)
        line[0] = '\0';
    arguments_hide_passwords(line);
    fprintf(stderr, "dibs: %s%s\n", cli_show_message(shown, sizeof shown, line), end);
}

void cli_error(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    say("", format, arguments);
    va_end(arguments);
}

void cli_warn(const char *format, ...)
{
    va_list arguments;

    if (verbosity < NORMAL)
        return;
    va_start(arguments, format);
    say("", format, arguments);
    va_end(arguments);
}

void cli_note(const char *format, ...)
{
    va_list arguments;

    if (verbosity < VERBOSE)
        return;
    va_start(arguments, format);
    say("", format, arguments);
    va_end(arguments);
}

bool cli_is_verbose(void)
{
    return verbosity == VERBOSE;
}

int cli_shown_length(const char *word)
{
    return (int)(*word == '-' ? strcspn(word, "=") : strlen(word));
}

int cli_usage_error(const char *command, const char *format, ...)
{
    char end[128];
    va_list arguments;

    snprintf(end, sizeof end, " (\"dibs %s --help\" tells more)", command);
    va_start(arguments, format);
    say(end, format, arguments);
    va_end(arguments);
    return CLI_USAGE;
}

int cli_end(int result)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return result;
    cli_error("standard output: %s", strerror(errno));
    return CLI_OUTPUT;
}

/* ------------------------------------------------------------------- options */

int cli_next_option(int argc, char **argv, const char *letters, const struct option *options)
{
    int number = -1;

    opterr = 0;
    letters_known = letters;
    options_known = options;
    int option = getopt_long(argc, argv, letters, options, &number);
    if (number >= 0)
        snprintf(option_written, sizeof option_written, "--%s", options[number].name);
    else
        snprintf(option_written, sizeof option_written, "-%c", option);
    return option;
}

const char *cli_option(void)
{
    return option_written;
}

/* Whether several long options begin with the first bytes of word. */
static bool is_ambiguous(const char *word, int length)
{
    int count = 0;

    for (const struct option *option = options_known; option->name; option++)
        count += strncmp(option->name, word + 2, (size_t)length - 2) == 0;
    return count > 1;
}

/*
 * optopt is the letter of a short option, 0 for a long option that does not exist, and the value in the table for one
 * that exists. If other letters follow an unknown letter in its word, argv[optind - 1] is the word before that one.
 */
static int refuse(int option, char **argv)
{
    const char *word = argv[optind - 1];
    int length = cli_shown_length(word);
    bool is_known = optopt >= CLI_OPTION_URL || (optopt > 0 && optopt != ':' && strchr(letters_known, optopt));

    if (option == ':' && strncmp(word, "--", 2) != 0)
        return cli_usage_error(argv[0], "-%c needs an argument", optopt);
    if (option == ':')
        return cli_usage_error(argv[0], "%.*s needs an argument", length, word);
    if (is_known)
        return cli_usage_error(argv[0], "%.*s takes no argument", length, word);
    if (optopt)
        return cli_usage_error(argv[0], "there is no option -%c", optopt);
    return cli_usage_error(argv[0],
                           is_ambiguous(word, length) ? "%.*s is short for several options" : "there is no option %.*s",
                           length, word);
}

static bool keep_urls(struct cli_common *common, char *text)
{
    free(urls_kept);
    common->url = urls_kept = text;
    if (!text) {
        cli_error("memory is exhausted");
        common->status = CLI_SYSTEM;
    }
    return text != NULL;
}

static bool read_url_file(struct cli_common *common, const char *command)
{
    char *text = malloc(URL_FILE_MOST + 1);

    if (!keep_urls(common, text))
        return false;
    FILE *file = fopen(optarg, "re");
    size_t got = file ? fread(text, 1, URL_FILE_MOST, file) : 0;
    text[got] = '\0';
    if (!file || ferror(file))
        common->status = cli_usage_error(command, "--url-file: %s: %s", optarg, strerror(errno));
    else if (got == URL_FILE_MOST)
        common->status = cli_usage_error(command, "--url-file: %s is too long", optarg);
    bool good = file && !ferror(file) && got < URL_FILE_MOST;
    if (file)
        fclose(file);
    return good;
}

bool cli_common_option(int option, char **argv, const char *help, struct cli_common *common)
{
    switch (option) {
    case CLI_OPTION_URL:
        return keep_urls(common, arguments_take_url(optarg));
    case CLI_OPTION_URL_FILE:
        return read_url_file(common, argv[0]);
    case 'q':
        verbosity = QUIET;
        return true;
    case 'v':
        verbosity = VERBOSE;
        return true;
    case 'h':
        fputs(help, stdout);
        common->status = cli_end(CLI_OK);
        return false;
    default:
        if (option < CLI_OPTION_PREFIX || option >= CLI_OPTION_OWN) {
            common->status = refuse(option, argv);
            return false;
        }
        store[option - CLI_OPTION_PREFIX] = optarg;
        return true;
    }
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

bool cli_time(const char *command, int64_t least_ms, int64_t most_ms, int64_t *out_ms)
{
    if ((with_units(optarg, most_ms, out_ms) || decimal_seconds(optarg, most_ms, out_ms)) && *out_ms >= least_ms)
        return true;
    cli_usage_error(command, "%s: \"%s\" is not a time from %.10g to %.10g s: seconds, or units as in 1h30m",
                    cli_option(), optarg, (double)least_ms / 1000, (double)most_ms / 1000);
    return false;
}

bool cli_number(const char *command, const char *what, int least, int most, int *out)
{
    char *end;
    long number = strtol(optarg, &end, 10);
    bool good = is_digit(*optarg) && *end == '\0' && number >= least && number <= most;

    *out = good ? (int)number : least;
    if (good)
        return true;
    cli_usage_error(command, "%s: \"%s\" is not %s from %d to %d", cli_option(), optarg, what, least, most);
    return false;
}

bool cli_check_name(const char *command, const char *name)
{
    size_t size = strlen(name);

    if (size == 0)
        cli_usage_error(command, "NAME is empty");
    else if (size > DIBS_NAME_MAX)
        cli_usage_error(command, "NAME has %zu bytes, more than %d", size, DIBS_NAME_MAX);
    return size > 0 && size <= DIBS_NAME_MAX;
}

int cli_refuse_argument(const char *command, const char *word)
{
    return cli_usage_error(command, "unexpected argument \"%.*s\"", cli_shown_length(word), word);
}

#ifdef CLOCK_BOOTTIME
#define CLOCK CLOCK_BOOTTIME
#else
#define CLOCK CLOCK_MONOTONIC
#endif

int64_t cli_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ----------------------------------------------------------------- the store */

/* Splits text at blanks, in place, and returns the number of words. The caller must free *out; NULL: no memory. */
static size_t split(char *text, const char ***out)
{
    size_t count = 0;
    char *rest = text;

    *out = calloc(strlen(text) / 2 + 1, sizeof **out);
    for (char *word; *out && (word = strtok_r(rest, BLANKS, &rest));)
        (*out)[count++] = word;
    return count;
}

int cli_exit_of(dibs_status status)
{
    switch (status) {
    case DIBS_OK:
        return CLI_OK;
    case DIBS_INVALID:
        return CLI_USAGE;
    case DIBS_NO_MEMORY: /* or descriptor, or thread */
        return CLI_SYSTEM;
    case DIBS_LOST: /* of several locks, one was lost while another was waited for */
        return CLI_LOST;
    default:
        return CLI_UNAVAILABLE;
    }
}

/* The option or variable that sets the field of dibs_config with that name of size bytes. NULL: no such field. */
static const char *known_as(const char *word, size_t size)
{
    static const char *const names[][2] = {
        {"urls", "--url or --url-file"},
        {"key_prefix", "--prefix"},
        {"tls_ca_file", "--tls-ca"},
        {"tls_cert_file", "--tls-cert"},
        {"tls_key_file", "--tls-key"},
        {"tls_server_name", "--tls-name"},
        {"sentinel_user", "$DIBS_SENTINEL_USER"},
        {"sentinel_password", "$DIBS_SENTINEL_PASSWORD"},
    };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i][0]) == size && memcmp(word, names[i][0], size) == 0)
            return names[i][1];
    return NULL;
}

/* Prints text, with the names of fields of dibs_config replaced by what the user knows. */
static void say_invalid(const char *text)
{
    char line[1024] = "";

    for (size_t used = 0; *text && used < sizeof line - 1; used = strlen(line)) {
        size_t size = strcspn(text, " :,"), whole = size + strspn(text + size, " :,");
        const char *known = known_as(text, size);
        snprintf(line + used, sizeof line - used, "%s%.*s", known ? known : "", (int)(known ? whole - size : whole),
                 known ? text + size : text);
        text += whole;
    }
    cli_error("%s", line);
}

static dibs_status open_urls(dibs_runtime **out, const dibs_config *config)
{
    dibs_status status = dibs_open(out, config);

    if (status == DIBS_INVALID)
        say_invalid(dibs_last_error());
    return status;
}

/* The sentinels' password comes from the environment, because everybody can see a command line. */
static void fill(dibs_config *config, const char *text)
{
    const char *urls = text ? text : getenv("DIBS_URL");

    config->key_prefix = store[0];
    config->tls_ca_file = store[CLI_OPTION_TLS_CA - CLI_OPTION_PREFIX];
    config->tls_cert_file = store[CLI_OPTION_TLS_CERT - CLI_OPTION_PREFIX];
    config->tls_key_file = store[CLI_OPTION_TLS_KEY - CLI_OPTION_PREFIX];
    config->tls_server_name = store[CLI_OPTION_TLS_NAME - CLI_OPTION_PREFIX];
    if (urls && strstr(urls, "-sentinel://")) {
        config->sentinel_user = getenv("DIBS_SENTINEL_USER");
        config->sentinel_password = getenv("DIBS_SENTINEL_PASSWORD");
    }
}

dibs_status cli_try_open(dibs_runtime **out, dibs_config config, const char *text)
{
    dibs_status status = DIBS_INVALID;
    char *copy;

    *out = NULL;
    fill(&config, text);
    if (!text)
        return open_urls(out, &config);
    copy = strdup(text);
    config.url_count = copy ? split(copy, (const char ***)&config.urls) : 0;
    if (config.url_count)
        status = open_urls(out, &config);
    else if (config.urls)
        cli_error("--url or --url-file has no URL");
    else
        status = DIBS_NO_MEMORY;
    free((void *)config.urls);
    free(copy);
    return status;
}

int cli_open(dibs_runtime **out, dibs_config config, const char *text)
{
    dibs_status status = cli_try_open(out, config, text);

    if (status != DIBS_OK && status != DIBS_INVALID)
        cli_warn("%s", *dibs_last_error() ? dibs_last_error() : dibs_status_text(status));
    return cli_exit_of(status);
}

char *cli_show_urls(const char *text)
{
    const char *urls = text ? text : getenv("DIBS_URL");
    char *shown = strdup(urls && urls[strspn(urls, BLANKS)] ? urls + strspn(urls, BLANKS) : "redis://127.0.0.1:6379");
    size_t size = shown ? strlen(shown) : 0;

    if (!shown)
        return NULL;
    for (size_t i = 0; i < size; i++)
        if (strchr(BLANKS, shown[i]))
            shown[i] = ' ';
    while (shown[size - 1] == ' ')
        shown[--size] = '\0';
    arguments_hide_passwords(shown);
    return shown;
}
