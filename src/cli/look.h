/*
 * What the commands that look at the store have in common, beside cli.h: options, and how they end.
 */
#ifndef DIBS_CLI_LOOK_H
#define DIBS_CLI_LOOK_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/cli.h"

#define CLI_GO_ON (-1) /* no exit status yet */

/* Options without a short form. A command's own options are CLI_OPTION_MORE and up. */
enum { CLI_OPTION_JSON = CLI_OPTION_OWN, CLI_OPTION_MORE };

/* clang-format off */
#define CLI_JSON_OPTION {"json", no_argument, NULL, CLI_OPTION_JSON}
/* clang-format on */
#define CLI_JSON_HELP "  --json              prints one JSON document, for programs\n"

struct cli_look {
    const char *help;
    char **argv;
    struct cli_common common;
    bool json, quiet;
};

/* Handles an option that cli_next_option returned. Returns CLI_GO_ON, or the exit status. */
int cli_look_option(struct cli_look *look, int option);

/* Prints dibs_last_error on standard error, after a call returned that status. Returns the exit status. */
int cli_look_failed(dibs_status status);

/* A random number for a name that nobody else uses. */
uint64_t cli_random(void);

int cli_status(int argc, char **argv);
int cli_list(int argc, char **argv);
int cli_watch(int argc, char **argv);
int cli_break(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_bench(int argc, char **argv);

#endif
