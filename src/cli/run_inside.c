#include "cli/run_inside.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INNERMOST "DIBS_TOKEN"
#define OTHERS "DIBS_OUTER_TOKENS" /* separated by blanks */

static const char *value_of(const char *variable)
{
    const char *value = getenv(variable);

    return value ? value : "";
}

static bool has(const char *token)
{
    size_t size = strlen(token);
    const char *rest = value_of(OTHERS);

    if (strcmp(value_of(INNERMOST), token) == 0)
        return true;
    for (size_t length; *rest; rest += length, rest += strspn(rest, " ")) {
        length = strcspn(rest, " ");
        if (length == size && memcmp(rest, token, size) == 0)
            return true;
    }
    return false;
}

void run_inside_set(const char *token)
{
    const char *inner = value_of(INNERMOST), *others = value_of(OTHERS);
    size_t size = strlen(inner) + strlen(others) + 2;
    char *text = *inner && strcmp(inner, token) != 0 ? malloc(size) : NULL;

    if (text) {
        snprintf(text, size, "%s%s%s", others, *others ? " " : "", inner);
        setenv(OTHERS, text, 1);
    }
    free(text);
    setenv(INNERMOST, token, 1);
}

bool run_inside_holds(const struct run_plan *plan, dibs_runtime *rt, const char *name, dibs_owner *owner)
{
    int64_t since = cli_now_ms();
    dibs_status status;

    if (!*value_of(INNERMOST) && !*value_of(OTHERS))
        return false;
    while ((status = cli_query(rt, name, has, owner)) == DIBS_UNAVAILABLE && run_goes_on(plan, since))
        poll(NULL, 0, RUN_AGAIN_MS);
    return status == DIBS_OK && owner->held && has(owner->token);
}
