#include "redis/scripts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *text, *sha;
} scripts[] = {
#define SCRIPT(name) {dibs__lua_##name, dibs__sha_##name},
    DIBS__SCRIPT_MAP(SCRIPT)
#undef SCRIPT
};

const char *dibs__script_text(enum dibs__script script)
{
    return scripts[script].text;
}

const char *dibs__script_sha(enum dibs__script script)
{
    return scripts[script].sha;
}

char *dibs__script_single_key(enum dibs__script script, int more_keys)
{
    static const char first[] = "local more = %d\n%s%s";
    size_t size = sizeof first + 12 + strlen(dibs__lua_single_key) + strlen(dibs__script_text(script));
    char *text = malloc(size);

    if (text)
        snprintf(text, size, first, more_keys, dibs__lua_single_key, dibs__script_text(script));
    return text;
}
