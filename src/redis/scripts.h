/* The Lua scripts, which are built into the library from scripts/NAME.lua, and the ids by which servers know them. */
#ifndef DIBS_REDIS_SCRIPTS_H
#define DIBS_REDIS_SCRIPTS_H

#define DIBS__SCRIPT_MAP(XX)                                                                                           \
    XX(acquire)                                                                                                        \
    XX(release)                                                                                                        \
    XX(requeue)                                                                                                        \
    XX(retract)                                                                                                        \
    XX(renew) XX(renew_short) XX(query) XX(force) XX(forget) XX(vote) XX(raise) XX(acquire_member) XX(acquire_shared)

enum dibs__script {
#define DIBS__SCRIPT_ENUM(name) DIBS__SCRIPT_##name,
    DIBS__SCRIPT_MAP(DIBS__SCRIPT_ENUM)
#undef DIBS__SCRIPT_ENUM
        DIBS__SCRIPT_COUNT
};

#define DIBS__SCRIPTS_AS_TEXT (1u << 31) /* beside such bits: the server lets the account use EVAL, but not EVALSHA */
_Static_assert(DIBS__SCRIPT_COUNT < 31, "each script has a bit of its own");

#define DIBS__SHA 40 /* number of digits in the id of a script */

#define DIBS__SCRIPT_EXTERN(name) extern const char dibs__lua_##name[], dibs__sha_##name[DIBS__SHA + 1];
DIBS__SCRIPT_MAP(DIBS__SCRIPT_EXTERN)
#undef DIBS__SCRIPT_EXTERN

extern const char dibs__lua_single_key[]; /* not a script by itself: see dibs__script_single_key */

struct dibs__script_text {
    const char *text;
    const char *sha; /* the SHA-1 of the text, in hexadecimal digits */
};

extern const struct dibs__script_text dibs__scripts[DIBS__SCRIPT_COUNT];

/*
 * The text of the script for a call that names one key only and has more_keys other keys as its first arguments, which
 * a node of a cluster accepts that is just getting the slot. Must be freed with free(). NULL: no memory.
 */
char *dibs__script_single_key(enum dibs__script script, int more_keys);

#endif
