/* Runs the real scripts by liblua 5.1, in the same way as Redis. */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server.h"
#include "redis/scripts.h"

#define SCRIPTS 64 /* different texts in a run: a server has a bit for each that it knows */

static lua_State *lua;

static struct {
    const char *text;
    const char *sha; /* of the library's; nobody runs others by their names */
    int function;    /* a reference */
} scripts[SCRIPTS];
static int script_count;

static struct sim_call *running; /* the call of the script that runs */

/* ----------------------------------------------------- replies, to Lua's values */

static const char *push_reply(const char *at, const char *end)
{
    const char *line = memchr(at, '\r', (size_t)(end - at));
    int64_t number = at[0] == '+' || at[0] == '-' ? 0 : sim_number(at + 1);
    const char *rest = line + 2;

    if (number < 0 && at[0] != ':') { /* there is none */
        lua_pushboolean(lua, 0);
        return rest;
    }
    switch (at[0]) {
    case ':':
        lua_pushnumber(lua, (lua_Number)number);
        return rest;
    case '+':
    case '-':
        lua_createtable(lua, 0, 1);
        lua_pushlstring(lua, at + 1, (size_t)(line - at - 1));
        lua_setfield(lua, -2, at[0] == '+' ? "ok" : "err");
        return rest;
    case '$':
        lua_pushlstring(lua, rest, (size_t)number);
        return rest + number + 2;
    default:
        lua_createtable(lua, (int)number, 0);
        for (int i = 1; i <= number; i++) {
            rest = push_reply(rest, end);
            lua_rawseti(lua, -2, i);
        }
        return rest;
    }
}

/* --------------------------------------------------------------------- calling */

/* "%.17g"; most numbers are whole. */
static void push_number(lua_State *state, double number)
{
    char text[40];

    if (number >= 0 && number < 1e15 && number == (double)(int64_t)number) {
        lua_pushstring(state, sim_digits(text, (int64_t)number));
    } else {
        snprintf(text, sizeof text, "%.17g", number);
        lua_pushstring(state, text);
    }
}

static int call_redis(lua_State *state, bool raises)
{
    static struct bytes out;
    static const char *words[8192]; /* unpack(3) has no more */
    int count = lua_gettop(state);

    out.length = 0;
    luaL_checkstack(state, 8, "too many values");
    for (int i = 0; i < count; i++) {
        if (lua_type(state, i + 1) == LUA_TNUMBER) { /* as Redis writes it */
            push_number(state, lua_tonumber(state, i + 1));
            lua_replace(state, i + 1);
        }
        words[i] = lua_tostring(state, i + 1);
    }
    struct sim_call call = {.server = running->server,
                            .client = running->client,
                            .words = words,
                            .count = count,
                            .out = &out,
                            .script = running};
    sim_server_call(&call);
    push_reply(out.data, out.data + out.length);
    if (raises && out.data[0] == '-')
        return lua_error(state);
    return 1;
}

static int redis_call(lua_State *state)
{
    return call_redis(state, true);
}

static int redis_pcall(lua_State *state)
{
    return call_redis(state, false);
}

static int redis_error_reply(lua_State *state)
{
    lua_createtable(state, 0, 1);
    lua_pushvalue(state, 1);
    lua_setfield(state, -2, "err");
    return 1;
}

/* --------------------------------------------------------------------- replies */

static void put_value(struct bytes *out)
{
    switch (lua_type(lua, -1)) {
    case LUA_TNUMBER:
        sim_put_head(out, ':', (long long)lua_tonumber(lua, -1));
        return;
    case LUA_TSTRING:
        sim_put_bulk(out, lua_tostring(lua, -1));
        return;
    case LUA_TTABLE:
        break;
    default:
        sim_put_line(out, lua_toboolean(lua, -1) ? ":1" : "$-1");
        return;
    }
    for (int i = 0; i < 2; i++) {
        lua_getfield(lua, -1, i == 0 ? "err" : "ok");
        const char *text = lua_tostring(lua, -1);
        lua_pop(lua, 1); /* the table still has it */
        if (text) {
            sim_put_line(out, "%c%s", i == 0 ? '-' : '+', text + (i == 0 && text[0] == '-'));
            return;
        }
    }
    int count = 0;
    for (;; count++) {
        lua_rawgeti(lua, -1, count + 1);
        bool ends = lua_isnil(lua, -1);
        lua_pop(lua, 1);
        if (ends)
            break;
    }
    sim_put_head(out, '*', count);
    for (int i = 1; i <= count; i++) {
        lua_rawgeti(lua, -1, i);
        put_value(out);
        lua_pop(lua, 1);
    }
}

static void set_array(const char *name, const char *const *words, int count)
{
    lua_createtable(lua, count, 0);
    for (int i = 0; i < count; i++) {
        lua_pushstring(lua, words[i]);
        lua_rawseti(lua, -2, i + 1);
    }
    lua_setglobal(lua, name);
}

static void run(struct sim_call *call, int script)
{
    int keys = atoi(call->words[2]);

    running = call;
    set_array("KEYS", call->words + 3, keys);
    set_array("ARGV", call->words + 3 + keys, call->count - 3 - keys);
    lua_rawgeti(lua, LUA_REGISTRYINDEX, scripts[script].function);
    if (lua_pcall(lua, 0, 1, 0) == 0) {
        put_value(call->out);
    } else if (lua_istable(lua, -1)) {
        lua_getfield(lua, -1, "err");
        sim_put_line(call->out, "-%s script: %s", lua_tostring(lua, -1), scripts[script].sha);
        lua_pop(lua, 1);
    } else {
        sim_put_line(call->out, "-ERR %s script: %s", lua_tostring(lua, -1), scripts[script].sha);
    }
    lua_pop(lua, 1);
    running = NULL;
}

/* ------------------------------------------------------------------- the texts */

/* The script itself, except that in some runs it looks at less of a queue: long queues are not drawn. */
static int compile(const char *text)
{
    static const char usual[] = "KEYS[3], 256\n", drawn[] = "KEYS[3], LEN\n";
    char *own = strdup(text), *at = strstr(own, usual);

    if (at)
        memcpy(at, drawn, strlen(drawn));
    int status = luaL_loadbuffer(lua, own, strlen(own), "@user_script");
    free(own);
    return status;
}

void sim_script_look_at(int entries)
{
    lua_pushnumber(lua, entries);
    lua_setglobal(lua, "LEN");
}

/* Its number; -1: it can't be compiled. */
static int learn(const char *text)
{
    for (int i = 0; i < script_count; i++)
        if (strcmp(scripts[i].text, text) == 0)
            return i;
    if (script_count == SCRIPTS || compile(text) != 0)
        return -1;
    scripts[script_count].function = luaL_ref(lua, LUA_REGISTRYINDEX);
    scripts[script_count].text = strdup(text);
    scripts[script_count].sha = script_count < DIBS__SCRIPT_COUNT ? dibs__scripts[script_count].sha : "";
    return script_count++;
}

void sim_script_init(void)
{
    static const luaL_Reg library[] = {
        {"call", redis_call}, {"pcall", redis_pcall}, {"error_reply", redis_error_reply}, {NULL, NULL}};

    lua = luaL_newstate();
    lua_gc(lua, LUA_GCSETPAUSE, 400); /* a collection writes to each page that fork(2) has shared */
    luaL_openlibs(lua);
    luaL_register(lua, "redis", library);
    lua_pop(lua, 1);
    sim_script_look_at(256);
    for (int i = 0; i < DIBS__SCRIPT_COUNT; i++) {
        if (learn(dibs__scripts[i].text) != i)
            abort();
    }
}

/* The number of the script of that name, if the server has it; -1: it has not. */
static int known(const struct sim_server *server, const char *sha)
{
    for (int i = 0; i < script_count; i++)
        if ((server->scripts >> i & 1) && sim_is(sha, scripts[i].sha))
            return i;
    return -1;
}

void sim_script_eval(struct sim_call *call)
{
    bool by_sha = sim_is(call->words[0], "EVALSHA");
    int script = by_sha ? known(call->server, call->words[1]) : -1;

    if (by_sha && script < 0) {
        sim_put_line(call->out, "-NOSCRIPT No matching script. Please use EVAL.");
        return;
    }
    if (!by_sha)
        script = learn(call->words[1]);
    if (script < 0) {
        sim_put_line(call->out, "-ERR Error compiling script: %s", lua_tostring(lua, -1));
        lua_pop(lua, 1);
        return;
    }
    call->server->scripts |= UINT64_C(1) << script;
    run(call, script);
}

void sim_script_exist(struct sim_call *call)
{
    sim_put_line(call->out, "*%d", call->count - 2);
    for (int k = 2; k < call->count; k++)
        sim_put_head(call->out, ':', known(call->server, call->words[k]) >= 0);
}

void sim_script_flush(struct sim_call *call)
{
    call->server->scripts = 0;
    sim_put_line(call->out, "+OK");
}
