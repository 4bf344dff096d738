/*
 * dibs break: takes a lock away from its owner.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/block.h"
#include "cli/look.h"
#include "cli/text.h"

/* clang-format off */
static const char help[] =
    "Usage: dibs break [OPTION...] NAME\n"
    "\n"
    "Takes the lock away from its owner, and gives it to the next that waits. Shows\n"
    "the owner and asks first. The owner is not stopped: until its next renewal it\n"
    "may still do what the lock protects. If another owner has come in the meantime,\n"
    "that one keeps the lock.\n"
    "\n"
    "  -y, --yes           does not ask\n"
    "  --token TOKEN       only if the owner has this token, as \"dibs status\" shows\n"
    "                      it. Of a shared lock: takes it from the sharer with this\n"
    "                      token; without --token, from the one who came last\n"
    CLI_COMMON_HELP
    "\n"
    "Exit status: 0 if the lock was taken away, or was free; 1 if it was left alone;\n"
    "64 for wrong usage, or without --yes if there is no terminal to ask at; 69 if\n"
    "the server can't be reached, or refuses; 74 if standard output can't be\n"
    "written, whatever was done.\n";
/* clang-format on */

enum { OPTION_TOKEN = CLI_OPTION_MORE };

struct breaking {
    struct cli_look look;
    dibs_runtime *rt;
    const char *name, *token;
    bool yes;
    char shown[CLI_SHOWN_MAX]; /* the name, for messages */
};

static bool agreed(void)
{
    char answer[16];

    printf("Take the lock away from this owner? [y/N] ");
    fflush(stdout);
    if (!fgets(answer, sizeof answer, stdin)) {
        putchar('\n');
        return false;
    }
    return *answer == 'y' || *answer == 'Y';
}

static int say(const struct breaking *breaking, const char *text, int result)
{
    printf("%s: %s\n", breaking->shown, text);
    return result;
}

static int take(const struct breaking *breaking, const dibs_owner *owner)
{
    dibs_status status = dibs_force_unlock(breaking->rt, breaking->name, owner->token);

    if (status == DIBS_OK)
        return say(breaking, owner->sharers > 1 ? "taken away; others still share it" : "taken away", CLI_OK);
    if (status == DIBS_NOT_HELD)
        return say(breaking, "left alone: another owner has it by now", CLI_FAILED);
    return cli_look_failed(status);
}

/* Makes *owner the sharer that has the given token, if there is one. */
static dibs_status find_sharer(const struct breaking *breaking, dibs_owner *owner)
{
    dibs_sharer *sharers = calloc(DIBS_SHARERS_MAX, sizeof *sharers);
    size_t count = 0;

    if (!sharers)
        return DIBS_NO_MEMORY;
    dibs_status status = dibs_query_sharers(breaking->rt, breaking->name, sharers, DIBS_SHARERS_MAX, &count);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(sharers[i].token, breaking->token) != 0)
            continue;
        memcpy(owner->token, sharers[i].token, sizeof owner->token);
        owner->remaining_ms = sharers[i].remaining_ms;
        owner->fence = sharers[i].fence;
        owner->held_ms = sharers[i].held_ms;
    }
    free(sharers);
    return status;
}

static dibs_status ask(const struct breaking *breaking, dibs_owner *owner)
{
    dibs_status status = dibs_query(breaking->rt, breaking->name, owner);

    if (status != DIBS_OK || owner->sharers < 2 || !breaking->token)
        return status;
    return find_sharer(breaking, owner);
}

static int ask_and_take(const struct breaking *breaking)
{
    dibs_owner owner;
    dibs_status status = ask(breaking, &owner);

    if (status != DIBS_OK)
        return cli_look_failed(status);
    if (!owner.held)
        return say(breaking, "free: there is no owner", CLI_OK);
    cli_block_print(stdout, breaking->name, &owner, NULL);
    if (breaking->token && strcmp(breaking->token, owner.token) != 0)
        return say(breaking, "left alone: the owner has another token", CLI_FAILED);
    if (!breaking->yes && !agreed())
        return say(breaking, "left alone", CLI_FAILED);
    return take(breaking, &owner);
}

/* ------------------------------------------------------------------ options */

static int set_option(struct breaking *breaking, int option)
{
    switch (option) {
    case OPTION_TOKEN:
        breaking->token = optarg;
        return CLI_GO_ON;
    case 'y':
        breaking->yes = true;
        return CLI_GO_ON;
    default:
        return cli_look_option(&breaking->look, option);
    }
}

static int set_options(struct breaking *breaking, int argc, char **argv)
{
    static const struct option options[] = {
        {"yes", no_argument, NULL, 'y'}, {"token", required_argument, NULL, OPTION_TOKEN}, CLI_LONG_OPTIONS};
    int result = CLI_GO_ON, option;

    while (result == CLI_GO_ON && (option = cli_next_option(argc, argv, ":y" CLI_SHORT_OPTIONS, options)) != -1)
        result = set_option(breaking, option);
    if (result != CLI_GO_ON)
        return result;
    if (optind == argc)
        return cli_usage_error("break", "NAME is missing");
    if (argc - optind > 1)
        return cli_refuse_argument("break", argv[optind + 1]);
    breaking->name = argv[optind];
    if (!cli_check_name("break", breaking->name))
        return CLI_USAGE;
    cli_show(breaking->shown, sizeof breaking->shown, breaking->name);
    if (!breaking->yes && !(isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)))
        return cli_usage_error("break", "there is no terminal to ask at: say --yes");
    return CLI_GO_ON;
}

int cli_break(int argc, char **argv)
{
    struct breaking breaking = {.look = {.help = help, .argv = argv}};
    int result = set_options(&breaking, argc, argv);

    if (result != CLI_GO_ON)
        return cli_end(result);
    result = cli_open(&breaking.rt, (dibs_config){0}, breaking.look.common.url);
    if (result != CLI_OK)
        return result;
    result = ask_and_take(&breaking);
    dibs_close(breaking.rt);
    return cli_end(result);
}
