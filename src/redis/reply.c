#include "redis/reply.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/*
 * What error replies mean; the first row that fits counts, and the rows are sorted by their status. If an error arose
 * inside a script, servers before Redis 7 put its code later in the sentence, so the code of an error of a script is
 * looked for anywhere.
 */
static const struct {
    const char *start; /* start of the server's sentence; its first word is a code, which may be shown */
    dibs_status status;
    const char *meaning; /* a refusal in our own words: the server's words are never shown; NULL: none of its own */
    bool of_connection;  /* the connection is refused, not the command */
} errors[] = {
    {"NOAUTH", DIBS_DENIED, "it wants a password", false},
    {"WRONGPASS", DIBS_DENIED, "the user or the password is wrong", false},
    {"NOPERM", DIBS_DENIED, "the account has no permission for that", false},
    {"DENIED", DIBS_DENIED, "it is in protected mode, and serves its own host alone", true},
    {"ERR AUTH ", DIBS_DENIED, "no password is set there", false},
    {"ERR The user executing the script", DIBS_DENIED, NULL, false}, /* a script lacks a right: Redis 7.0 */
    {"ERR ACL failure in script", DIBS_DENIED, NULL, false},         /* a script lacks a right: since Redis 7.2 */
    {"The user executing the script", DIBS_DENIED, NULL, false},     /* a script lacks a right: before Redis 7.0 */
    {"ERR invalid password", DIBS_DENIED, "the password is wrong", false},
    {"ERR Client sent AUTH", DIBS_DENIED, "no password is set there", false},
    {"NOSCRIPT", DIBS_DENIED, "it has not taken the script from this account", false}, /* which was sent to it before */
    {"LOADING", DIBS_UNAVAILABLE, "it still loads its data", false},
    {"READONLY", DIBS_UNAVAILABLE, "it is a replica", false},
    {"MASTERDOWN", DIBS_UNAVAILABLE, "it is a replica, and its master is away", false},
    {"CLUSTERDOWN", DIBS_UNAVAILABLE, "the cluster is down", false},
    {"TRYAGAIN", DIBS_UNAVAILABLE, "it wants to be asked again", false},
    {"ERR Script attempted to access a non local key", DIBS_UNAVAILABLE, NULL, false}, /* while the key's slot moves */
    {"BUSY ", DIBS_UNAVAILABLE, "it is busy with a script", false},
    {"UNBLOCKED", DIBS_UNAVAILABLE, "it has become a replica", false},
    {"ERR WAIT cannot be used with replica", DIBS_UNAVAILABLE, "it is a replica", false},
    {"ERR WAITAOF cannot be used with replica", DIBS_UNAVAILABLE, "it is a replica", false},
    {"ERR max number of clients", DIBS_UNAVAILABLE, "it has as many clients as it takes", true},
    {"ERR unknown command", DIBS_STORE_ERROR, "to it that is an unknown command", false},
    {"ERR unknown subcommand", DIBS_STORE_ERROR, "to it that is an unknown command", false},
    {"ERR wrong number of arguments", DIBS_STORE_ERROR, "it takes that command with other arguments", false},
    {"ERR DB index is out of range", DIBS_STORE_ERROR, "it has no database of that number", false},
    {"ERR invalid DB index", DIBS_STORE_ERROR, "it has no database of that number", false},
    {"ERR This instance has cluster support disabled", DIBS_STORE_ERROR, "it is not part of a cluster", false},
    {"ERR SELECT is not allowed in cluster mode", DIBS_STORE_ERROR, "a cluster has no database but 0", false},
    {"MISCONF", DIBS_STORE_ERROR, "it can't save its data, and so takes no writes", false},
    {"NOREPLICAS", DIBS_STORE_ERROR, "it has too few replicas to take writes", false},
    {"OOM ", DIBS_STORE_ERROR, "it is out of memory", false},
    {"ERR WAITAOF cannot be used when numlocal", DIBS_STORE_ERROR, "it has no append-only file (appendonly no)", false},
    {"ERR WAIT", DIBS_STORE_ERROR, "it is a replica", false},
    {"ERR ", DIBS_STORE_ERROR, "it says why, which is not shown here because it may repeat a password", false},
};
#define ERRORS (sizeof errors / sizeof errors[0])

static bool begins_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static bool has_code(const char *text, const char *code)
{
    bool of_script = begins_with(text, "ERR Error running script") || begins_with(text, "@user_script");

    return begins_with(text, code) || (of_script && strstr(text, code));
}

dibs_status dibs__reply_status(const char *text)
{
    for (size_t i = 0; i < ERRORS; i++)
        if (has_code(text, errors[i].start))
            return errors[i].status;
    return DIBS_STORE_ERROR;
}

bool dibs__reply_is_final_error(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ERROR && dibs__reply_status(reply->str) != DIBS_UNAVAILABLE;
}

static bool is_refusal_of_a_replica(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ERROR && (has_code(reply->str, "READONLY") || has_code(reply->str, "MASTERDOWN"));
}

bool dibs__reply_tells_of_a_replica(const redisReply *reply)
{
    bool tells = is_refusal_of_a_replica(reply);

    if (reply->type == REDIS_REPLY_ARRAY)
        for (size_t i = 0; i < reply->elements && !tells; i++)
            tells = is_refusal_of_a_replica(reply->element[i]);
    return tells;
}

bool dibs__reply_is_of_script(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ERROR && strstr(reply->str, "script");
}

bool dibs__reply_is_error(const redisReply *reply, const char *code)
{
    return reply->type == REDIS_REPLY_ERROR && begins_with(reply->str, code);
}

bool dibs__reply_forbids(const redisReply *reply, const char *command)
{
    if (!dibs__reply_is_error(reply, "NOPERM") && !dibs__reply_is_error(reply, "ERR unknown command"))
        return false;
    size_t size = strlen(command);
    /* The name of a user, which may come before the command, may have a quote as well. */
    for (const char *quoted = reply->str; (quoted = strpbrk(quoted, "'`")); quoted++)
        if (strncasecmp(quoted + 1, command, size) == 0 && quoted[size + 1] && strchr("'`", quoted[size + 1]))
            return true;
    return false;
}

static bool is_text(const redisReply *reply, const char *text)
{
    size_t size = strlen(text);

    return reply->type == REDIS_REPLY_STRING && (size_t)reply->len == size && memcmp(reply->str, text, size) == 0;
}

bool dibs__reply_is_event(const redisReply *reply, const char *event, const char *channel, int type)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 && is_text(reply->element[0], event) &&
           is_text(reply->element[1], channel) && reply->element[2]->type == type;
}

dibs_status dibs__reply_error(struct dibs__error *error, const redisReply *reply, const char *shown, const char *doing)
{
    if (dibs__reply_is_error(reply, "NOSCRIPT"))
        return dibs__error_set(error, DIBS_DENIED,
                               "%s: %s does not have the script, and refuses SCRIPT LOAD; the account had no right to "
                               "EVAL when it connected",
                               doing, shown);
    if (reply->type == REDIS_REPLY_ERROR)
        return dibs__error_set(error, dibs__reply_status(reply->str), "%s: %s answered: %s", doing, shown, reply->str);
    return dibs__error_set(error, DIBS_STORE_ERROR, "%s: %s answered something that no Redis server answers", doing,
                           shown);
}

dibs_status dibs__reply_refusal(struct dibs__error *error, const redisReply *reply, const char *shown,
                                const char *command)
{
    if (reply->type != REDIS_REPLY_ERROR)
        return dibs__error_set(error, DIBS_STORE_ERROR, "%s answered %s as no Redis server does", shown, command);
    dibs_status status = dibs__reply_status(reply->str);
    for (size_t i = 0; i < ERRORS; i++)
        if (errors[i].meaning && begins_with(reply->str, errors[i].start))
            return dibs__error_set(error, status, "%s refused %s: %s (%.*s)", shown,
                                   errors[i].of_connection ? "the connection" : command, errors[i].meaning,
                                   (int)strcspn(errors[i].start, " "), errors[i].start);
    return dibs__error_set(
        error, status, "%s refused %s, in words that are not shown because they may repeat a password", shown, command);
}

bool dibs__reply_integer(const redisReply *reply, size_t i, int64_t *out)
{
    if (reply->type != REDIS_REPLY_ARRAY || i >= reply->elements || reply->element[i]->type != REDIS_REPLY_INTEGER)
        return false;
    int64_t value = reply->element[i]->integer;
    if (value > DIBS__REPLY_MOST)
        value = DIBS__REPLY_MOST;
    *out = value < -DIBS__REPLY_MOST ? -DIBS__REPLY_MOST : value;
    return true;
}
