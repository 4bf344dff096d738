#include "redis/scripts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *dibs__script_text(enum dibs__script script)
{
    static const char *const texts[] = {
#define SCRIPT_TEXT(name) dibs__lua_##name,
        DIBS__SCRIPT_MAP(SCRIPT_TEXT)
#undef SCRIPT_TEXT
    };

    return texts[script];
}

const char *dibs__script_sha(enum dibs__script script)
{
    static const char *const shas[] = {
#define SCRIPT_SHA(name) dibs__sha_##name,
        DIBS__SCRIPT_MAP(SCRIPT_SHA)
#undef SCRIPT_SHA
    };

    return shas[script];
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
