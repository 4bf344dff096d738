#include "redis/scripts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct dibs__script_text dibs__scripts[] = {
#define SCRIPT(name) {dibs__lua_##name, dibs__sha_##name},
    DIBS__SCRIPT_MAP(SCRIPT)
#undef SCRIPT
};

char *dibs__script_single_key(enum dibs__script script, int more_keys)
{
    static const char first[] = "local more = %d\n%s%s";
    size_t size = sizeof first + 12 + strlen(dibs__lua_single_key) + strlen(dibs__scripts[script].text);
    char *text = malloc(size);

    if (text)
        snprintf(text, size, first, more_keys, dibs__lua_single_key, dibs__scripts[script].text);
    return text;
}
