/*
 * What the commands of dibs(1) have in common. The commands use the public header alone.
 */
#ifndef DIBS_CLI_CLI_H
#define DIBS_CLI_CLI_H

#include <dibs.h>

/* Exit statuses, where a command of its own (see run.c) does not decide. 64 and up are those of sysexits(3). */
enum cli_exit {
    CLI_OK = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 64,       /* an option or an argument is wrong */
    CLI_UNAVAILABLE = 69, /* the store can't be reached, or refuses */
    CLI_LOST = 76         /* the lease was lost */
};

/* One command. run gets the arguments from the command's name on, and returns the exit status. */
struct cli_command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary; /* one line for "dibs --help" */
};

/* Prints "dibs: ..." and a line end on standard error. */
void cli_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* As cli_error, followed by where to find help with COMMAND. Returns CLI_USAGE. */
int cli_usage_error(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * Opens a runtime on the URLs of text, which blanks separate; NULL: those of $DIBS_URL. config may be changed: urls and
 * url_count are set. Returns CLI_OK; or else prints why, and returns CLI_USAGE or CLI_UNAVAILABLE.
 */
int cli_open(dibs_runtime **out, dibs_config *config, const char *text);

#endif
