/*
 * dibs break: takes a lock away from its owner.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/locks.h"
#include "cli/text.h"

/* clang-format off */
static const char help[] =
    "Usage: dibs break [OPTION...] NAME\n"
    "\n"
    "Takes the lock away from its owner, and gives it to the next that waits. Shows\n"
    "the owner and asks first. The owner is told, as a rule within milliseconds, and\n"
    "dibs run then ends its COMMAND; until the owner knows, at the latest at its next\n"
    "renewal, it may still do what the lock protects. If another owner has come in\n"
    "the meantime, that one keeps the lock.\n"
    "\n"
    "  -y, --yes           does not ask\n"
    "  --token TOKEN       only if the owner has this token, as \"dibs status\" shows\n"
    "                      it. Of a shared lock: takes it from the sharer with this\n"
    "                      token; without --token, from the one who came last\n"
    "  -a, --all           of a shared lock: takes it from all who share it\n"
    CLI_COMMON_HELP
    "\n"
    "Exit status: 0 if the lock was taken away, or was free; 1 if it was left alone;\n"
    "64 for wrong usage, or without --yes if there is no terminal to ask at; 69 if\n"
    "the server can't be reached, or refuses; 74 if standard output can't be\n"
    "written, whatever was done.\n";
/* clang-format on */

/* Set by the options. */
static bool yes, all;
static const char *token; /* NULL: any */

static const struct cli_option options[] = {
    {"yes", 'y', .flag = &yes}, {"token", .text = &token}, {"all", 'a', .flag = &all}, {0}};

static bool agreed(bool from_all)
{
    char answer[16];

    printf("Take the lock away from %s? [y/N] ", from_all ? "all who share it" : "this owner");
    fflush(stdout);
    if (!fgets(answer, sizeof answer, stdin)) {
        putchar('\n');
        return false;
    }
    return *answer == 'y' || *answer == 'Y';
}

static int say(const char *name, const char *text, int result)
{
    char shown[CLI_SHOWN_MAX];

    printf("%s: %s\n", cli_show(shown, sizeof shown, name), text);
    return result;
}

/* Takes the lock from all who share it, unless somebody who came meanwhile has it alone. */
static dibs_status take_from_all(dibs_runtime *rt, const char *name)
{
    dibs_owner owner;
    dibs_status status = dibs_query(rt, name, &owner);

    if (status != DIBS_OK)
        return status;
    return owner.held && owner.sharers == 0 ? DIBS_NOT_HELD : dibs_force_unlock(rt, name, NULL);
}

static int take(dibs_runtime *rt, const char *name, const dibs_owner *owner, bool from_all)
{
    dibs_status status = from_all ? take_from_all(rt, name) : dibs_force_unlock(rt, name, owner->token);

    if (status == DIBS_OK)
        return say(name, owner->sharers > 1 && !from_all ? "taken away; others still share it" : "taken away", CLI_OK);
    if (status == DIBS_NOT_HELD)
        return say(name, "left alone: another owner has it by now", CLI_FAILED);
    return cli_failed(status);
}

static bool is_meant(const char *owners)
{
    return !token || strcmp(token, owners) == 0;
}

static int ask_and_take(dibs_runtime *rt, char **words)
{
    const char *name = words[0];
    struct cli_lock lock = {.name = words[0]};
    dibs_status status = cli_query(rt, name, is_meant, &lock.owner);

    if (status != DIBS_OK)
        return cli_failed(status);
    if (!lock.owner.held)
        return say(name, "free: there is no owner", CLI_OK);
    cli_lock_print_block(&lock);
    if (!is_meant(lock.owner.token))
        return say(name, "left alone: the owner has another token", CLI_FAILED);
    bool from_all = all && lock.owner.sharers > 0;
    if (!yes && !agreed(from_all))
        return say(name, "left alone", CLI_FAILED);
    return take(rt, name, &lock.owner, from_all);
}

static int run(char **words)
{
    if (all && token)
        return cli_usage_error("--all and --token exclude each other");
    if (!yes && !(isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)))
        return cli_usage_error("there is no terminal to ask at: say --yes");
    return cli_look(ask_and_take, words);
}

const struct cli_command cli_break = {
    .name = "break",
    .summary = "takes a lock away from its owner",
    .help = help,
    .options = {options},
    .arguments = CLI_ONE_NAME,
    .run = run,
};
