/*
 * What the commands of dibs(1) have in common. The commands use the public header alone.
 */
#ifndef DIBS_CLI_CLI_H
#define DIBS_CLI_CLI_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <dibs.h>

/* Exit statuses, except where COMMAND decides (see run_front.c). From 64 on they are those of sysexits(3). */
enum cli_exit {
    CLI_OK = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 64,       /* an option or an argument is wrong */
    CLI_UNAVAILABLE = 69, /* the server can't be reached, refuses, or does not confirm the lock */
    CLI_SYSTEM = 71,      /* this host has no memory, process or descriptor left */
    CLI_OUTPUT = 74,      /* standard output can't be written */
    CLI_LOST = 76         /* the lease was lost */
};

/* What the options that all commands have say; but for config, read-only after the options were read. */
extern struct cli_common {
    enum cli_verbosity { CLI_QUIET, CLI_NORMAL, CLI_VERBOSE } verbosity;
    const char *command; /* its name */
    char *urls;          /* of the last --url or --url-file, separated by CLI_BLANKS; NULL: none */
    dibs_config config;  /* of the other options that say how to reach the store; a command may add to it */
} cli_common;

#define CLI_BLANKS " \t\r\n"

/* ------------------------------------------------------------------ messages */

/*
 * Prints "dibs: ..." and a newline on standard error, by one write. least: the verbosity that is needed. So cli_error
 * always prints, cli_warn unless -q was given, cli_note only if -v was given.
 */
void cli_say(enum cli_verbosity least, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define cli_error(...) cli_say(CLI_QUIET, __VA_ARGS__)
#define cli_warn(...) cli_say(CLI_NORMAL, __VA_ARGS__)
#define cli_note(...) cli_say(CLI_VERBOSE, __VA_ARGS__)

/* Whether standard error takes a message now, without waiting for a reader. */
bool cli_may_say(void);

/*
 * How many bytes of a word of the command line a message may show. What looks like an option is shown without what
 * follows the =, which may be a secret: messages are kept in logs.
 */
int cli_shown_length(const char *word);

/* As cli_error, followed by a hint at the command's --help. Returns CLI_USAGE. */
int cli_usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints dibs_last_error after a call returned that status, as cli_error or cli_warn. Returns the exit status. */
int cli_failed(dibs_status status);

/* Flushes stdout. Returns result, which is an exit status; CLI_OUTPUT if stdout can't be written. */
int cli_end(int result);

/* ------------------------------------------------------------------- options */

/*
 * An option. The pointer that is not NULL says of what kind it is: a flag, which becomes true, or one that takes an
 * argument, and where that goes.
 */
struct cli_option {
    const char *name; /* after "--"; a table ends with {0} */
    int letter;       /* after "-"; 0: it has no short form */
    bool *flag;
    const char **text;
    int64_t *time_ms; /* seconds, with decimals, or units (1h30m); between 0 and 1 ms counts as 1 ms */
    int *number;
    int64_t least, most; /* of the time or number */
    const char *what;    /* what the number is, with an article, for the message */

    /* An option of another kind: the function puts the argument into it. Returns CLI_OK, or a status after a message.
     */
    int (*take)(const char *argument, void *into);
    void *into;
};

/* What comes after the options. NAMEs are checked, but not that of CLI_NAME_AND_MORE. */
enum cli_arguments {
    CLI_NO_ARGUMENT,
    CLI_ONE_PATTERN, /* one, or none */
    CLI_ONE_NAME,
    CLI_SOME_NAMES,   /* one or more */
    CLI_NAME_AND_MORE /* a NAME, with which the options end, and what the command reads by itself */
};

struct cli_command {
    const char *name;
    const char *summary; /* a line of "dibs --help" */
    const char *help;
    const struct cli_option *options[2]; /* beside those that all commands have; the second may be NULL */
    enum cli_arguments arguments;

    /* One of the two. words: the arguments, and NULL after the last. Returns the exit status. */
    int (*look)(dibs_runtime *rt, char **words); /* for cli_look */
    int (*run)(char **words);
};

extern const struct cli_command cli_run, cli_hold, cli_status, cli_list, cli_watch, cli_break, cli_doctor, cli_bench;

/* These options in the help of the commands. */
/* clang-format off */
#define CLI_COMMON_HELP                                                                                                \
    "  --url URL...        the store; several URLs in one argument, separated by\n"                                    \
    "                      blanks, are a quorum. Without --url: $DIBS_URL, else\n"                                     \
    "                      redis://127.0.0.1:6379. A password belongs in $DIBS_URL\n"                                  \
    "                      or in a file: ps(1) shows that of --url for a moment\n"                                     \
    "  --url-file FILE     reads the URLs from FILE; the last one counts\n"                                           \
    "  --prefix PREFIX     what the keys in the store begin with (default lock:)\n"                                    \
    "  --tls-ca FILE       with rediss://: the authorities to trust instead of the\n"                                  \
    "                      system's\n"                                                                                 \
    "  --tls-cert FILE     with rediss://: the client's certificate\n"                                                 \
    "  --tls-key FILE      the key of that certificate\n"                                                              \
    "  --tls-name NAME     with rediss://: the name that must be in the server's\n"                                    \
    "                      certificate, instead of the host's\n"                                                       \
    "  -q, --quiet         no messages, except on wrong usage and where this host\n"                                  \
    "                      itself fails\n"                                                                              \
    "  -v, --verbose       says on standard error what happens\n"                                                      \
    "  -h, --help          this text\n"
/* clang-format on */

#define CLI_REPLICAS_MOST 1000 /* what dibs_open accepts as min_replicas */
#define CLI_JSON_HELP "  --json              prints one JSON document, for programs\n"

/*
 * Reads the options of a command, whose name is argv[0]; the arguments begin at argv[optind] then. Ends the process
 * after --help. Returns CLI_OK, or an exit status after a message.
 */
int cli_read_options(const struct cli_command *command, int argc, char **argv);

/* The option that is read, as the user wrote it, but not abbreviated: "-w" or "--wait". */
const char *cli_option(void);

/* Whether a lock can have that name. Returns CLI_OK, or CLI_USAGE after a message. */
int cli_check_name(const char *name);

/* Says that the command does not take the argument. Returns CLI_USAGE. */
int cli_refuse_argument(const char *word);

/* Remembers where the words of the command line are, for cli_overwrite_arguments. */
void cli_keep_arguments(int argc, char **argv);

/* Overwrites the passwords of all URLs in a text. stays: it keeps its length, as in the command line. */
void cli_hide_passwords(char *text, bool stays);

/* Replaces the whole command line, which ps(1) shows, by title. The process must not use its words any more. */
void cli_overwrite_arguments(const char *title);

/* ---------------------------------------------------------------- the system */

/* A clock in milliseconds, the same in all processes; it runs through suspend, where the system has such a clock. */
int64_t cli_now_ms(void);

/* A monotonic clock in nanoseconds. */
int64_t cli_now_ns(void);

/* Makes a pipe whose ends never block, and are closed on exec. False: errno says why not. */
bool cli_open_pipe(int ends[2]);

/* Sets the handler of SIGHUP, SIGINT, SIGQUIT and SIGTERM, except for those that are ignored. */
void cli_catch_ends(void (*handler)(int));

/* A thread that blocks all signals, so that the main thread gets them. */
struct cli_thread {
    pthread_t id;
    int quit[2]; /* a pipe, whose first end is readable once the thread must end */
    bool runs;   /* its owner only */
};

/* False: no descriptor or thread can be had. */
bool cli_thread_start(struct cli_thread *thread, void *(*body)(void *), void *arg);

/* Waits for ms, or until the thread must end. Returns whether it must. */
bool cli_thread_must_end(const struct cli_thread *thread, int ms);

/* Has the thread end, and waits for its end. Does nothing if the thread does not run. */
void cli_thread_end(struct cli_thread *thread);

/* ----------------------------------------------------------------- the store */

/* As dibs_open, with what cli_common says, on $DIBS_URL if no option names the store. */
dibs_status cli_open(dibs_runtime **out);

/* Opens a runtime, calls look, and closes it. Returns the exit status of look, or of what failed. */
int cli_look(int (*look)(dibs_runtime *rt, char **words), char **words);

/* As dibs_query; but if several share the lock, and one of them has a wanted token, *out tells of that one. */
dibs_status cli_query(dibs_runtime *rt, const char *name, bool (*is_wanted)(const char *token), dibs_owner *out);

/* The URLs that cli_open uses, in one line, without passwords. The caller must free the text; NULL: no memory. */
char *cli_show_urls(void);

/* The exit status after a call of the library returned that status. */
int cli_exit_of(dibs_status status);

/* Makes the name of a lock that nobody else uses: "dibs-WHAT-" and random digits. */
#define CLI_OWN_NAME_MAX 48
void cli_make_name(char out[CLI_OWN_NAME_MAX], const char *what);

#endif
