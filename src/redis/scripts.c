#include "redis/scripts.h"

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
