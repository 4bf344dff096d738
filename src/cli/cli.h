/*
 * What the commands of dibs(1) have in common. The commands use the public header alone.
 */
#ifndef DIBS_CLI_CLI_H
#define DIBS_CLI_CLI_H

#include <getopt.h>

#include <dibs.h>

/* Exit statuses, except where COMMAND decides (see run.c). From 64 on they are those of sysexits(3). */
enum cli_exit {
    CLI_OK = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 64,       /* an option or an argument is wrong */
    CLI_UNAVAILABLE = 69, /* the server can't be reached, refuses, or does not confirm the lock */
    CLI_SYSTEM = 71,      /* this host has no memory, process or descriptor left */
    CLI_OUTPUT = 74,      /* standard output can't be written */
    CLI_LOST = 76         /* the lease was lost */
};

int cli_run(int argc, char **argv);
int cli_hold(int argc, char **argv);

/* ------------------------------------------------------------------ messages */

/*
 * Print "dibs: ..." and a newline on standard error, by one write: cli_error always, cli_warn unless -q was given,
 * cli_note only if -v was given.
 */
void cli_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void cli_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
void cli_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Whether -v was given. */
bool cli_is_verbose(void);

/*
 * How many bytes of a word of the command line a message may show. What looks like an option is shown without what
 * follows the =, which may be a secret: messages are kept in logs.
 */
int cli_shown_length(const char *word);

/* As cli_error, followed by a hint at the command's --help. Returns CLI_USAGE. */
int cli_usage_error(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Flushes stdout. Returns result, which is an exit status; CLI_OUTPUT if stdout can't be written. */
int cli_end(int result);

/* ------------------------------------------------------------------- options */

/*
 * Options that all commands have. A command puts CLI_SHORT_OPTIONS after its own short options, CLI_LONG_OPTIONS at
 * the end of its table for getopt_long, and passes each option that is not its own to cli_common_option:
 *
 *     static const struct option options[] = {{"json", no_argument, NULL, 'j'}, CLI_LONG_OPTIONS};
 *
 *     while ((option = cli_next_option(argc, argv, "+:j" CLI_SHORT_OPTIONS, options)) != -1)
 *         if (option == 'j')
 *             ...
 *         else if (!cli_common_option(option, argv, help, &common))
 *             return common.status;
 *
 * The short options begin with "+:", so that they end at the first argument, or with ":".
 */
struct cli_common {
    const char *url; /* URLs of --url or --url-file, or NULL; for cli_open */
    int status;      /* exit status, if cli_common_option returned false */
};

/* A command's own long options are CLI_OPTION_OWN and up. */
enum {
    CLI_OPTION_URL = 256,
    CLI_OPTION_URL_FILE,
    CLI_OPTION_PREFIX,
    CLI_OPTION_TLS_CA,
    CLI_OPTION_TLS_CERT,
    CLI_OPTION_TLS_KEY,
    CLI_OPTION_TLS_NAME,
    CLI_OPTION_OWN
};

#define CLI_SHORT_OPTIONS "hqv"
/* clang-format off */
#define CLI_LONG_OPTIONS                                                                                               \
    {"url", required_argument, NULL, CLI_OPTION_URL},                                                                  \
    {"url-file", required_argument, NULL, CLI_OPTION_URL_FILE},                                                        \
    {"prefix", required_argument, NULL, CLI_OPTION_PREFIX},                                                            \
    {"tls-ca", required_argument, NULL, CLI_OPTION_TLS_CA},                                                            \
    {"tls-cert", required_argument, NULL, CLI_OPTION_TLS_CERT},                                                        \
    {"tls-key", required_argument, NULL, CLI_OPTION_TLS_KEY},                                                          \
    {"tls-name", required_argument, NULL, CLI_OPTION_TLS_NAME},                                                        \
    {"help", no_argument, NULL, 'h'},                                                                                  \
    {"quiet", no_argument, NULL, 'q'},                                                                                 \
    {"verbose", no_argument, NULL, 'v'},                                                                               \
    {NULL, 0, NULL, 0}
/* clang-format on */

/* These options in the help of the commands. */
/* clang-format off */
#define CLI_COMMON_HELP                                                                                                \
    "  --url URL...        the store; several URLs in one argument, separated by\n"                                    \
    "                      blanks, are a quorum. Without --url: $DIBS_URL, else\n"                                     \
    "                      redis://127.0.0.1:6379. A password belongs in $DIBS_URL\n"                                  \
    "                      or in a file: ps(1) shows that of --url for a moment\n"                                     \
    "  --url-file FILE     reads the URLs from FILE\n"                                                                 \
    "  --prefix PREFIX     what the keys in the store begin with (default lock:)\n"                                    \
    "  --tls-ca FILE       with rediss://: the authorities to trust instead of the\n"                                  \
    "                      system's\n"                                                                                 \
    "  --tls-cert FILE     with rediss://: the client's certificate\n"                                                 \
    "  --tls-key FILE      the key of that certificate\n"                                                              \
    "  --tls-name NAME     with rediss://: the name that must be in the server's\n"                                    \
    "                      certificate, instead of the host's\n"                                                       \
    "  -q, --quiet         no messages, except for wrong usage\n"                                                      \
    "  -v, --verbose       says on standard error what happens\n"                                                      \
    "  -h, --help          this text\n"
/* clang-format on */

/* As getopt_long, but prints nothing. */
int cli_next_option(int argc, char **argv, const char *letters, const struct option *options);

/* The option that cli_next_option returned last, as the user wrote it: "-w" or "--wait". */
const char *cli_option(void);

/*
 * Handles an option that all commands have. Returns false if the command must end with common->status: after --help,
 * for which the text is printed; after an option that does not exist, or whose argument is missing or wrong; and if
 * memory is exhausted.
 */
bool cli_common_option(int option, char **argv, const char *help, struct cli_common *common);

/*
 * cli_time and cli_number read the argument of the option that cli_next_option returned last. If it is wrong, they say
 * so as cli_usage_error does, and return false.
 */

/* A time in seconds, which may have decimals, or with units (1h30m). A time between 0 and 1 ms counts as 1 ms. */
bool cli_time(const char *command, int64_t least_ms, int64_t most_ms, int64_t *out_ms);

/* A whole number. what: what the number is, with an article, for the message. */
bool cli_number(const char *command, const char *what, int least, int most, int *out);

/* Whether a lock can have that name; if not, says so as cli_usage_error does. */
bool cli_check_name(const char *command, const char *name);

/* Says that the command does not take the argument. Returns CLI_USAGE. */
int cli_refuse_argument(const char *command, const char *word);

/* A clock in milliseconds, the same in all processes; it runs through suspend, where the system has such a clock. */
int64_t cli_now_ms(void);

/* ----------------------------------------------------------------- the store */

/*
 * Opens a runtime on the URLs of text, which are separated by blanks; NULL: those of $DIBS_URL. The fields of config
 * that say how to reach the store are set by the common options. Returns CLI_OK; or prints why the store can't be
 * opened, and returns CLI_USAGE, CLI_UNAVAILABLE or CLI_SYSTEM.
 */
int cli_open(dibs_runtime **out, dibs_config config, const char *text);

/* As cli_open, but prints only why a call is DIBS_INVALID; for the other statuses dibs_last_error says why. */
dibs_status cli_try_open(dibs_runtime **out, dibs_config config, const char *text);

/* The URLs that cli_open uses, in one line, without passwords. The caller must free the text; NULL: no memory. */
char *cli_show_urls(const char *text);

/* The exit status after a call of the library returned that status. */
int cli_exit_of(dibs_status status);

#endif
