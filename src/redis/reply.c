#include "redis/reply.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/*
 * The codes with which an error reply begins, and the status that each means. If an error arose inside a script,
 * servers before Redis 7 put its code later in the sentence, so in the error of a script the code is looked for
 * anywhere.
 */
static const struct {
    const char *code;
    dibs_status status;
} codes[] = {
    {"NOAUTH", DIBS_DENIED},
    {"WRONGPASS", DIBS_DENIED},
    {"NOPERM", DIBS_DENIED},
    {"DENIED", DIBS_DENIED},
    {"ERR AUTH ", DIBS_DENIED},
    {"ERR The user executing the script", DIBS_DENIED}, /* a script lacks a right: Redis 7.0 */
    {"ERR ACL failure in script", DIBS_DENIED},         /* a script lacks a right: since Redis 7.2 */
    {"The user executing the script", DIBS_DENIED},     /* a script lacks a right: before Redis 7.0 */
    {"ERR invalid password", DIBS_DENIED},
    {"ERR Client sent AUTH", DIBS_DENIED},
    {"LOADING", DIBS_UNAVAILABLE},
    {"READONLY", DIBS_UNAVAILABLE},
    {"MASTERDOWN", DIBS_UNAVAILABLE},
    {"CLUSTERDOWN", DIBS_UNAVAILABLE},
    {"TRYAGAIN", DIBS_UNAVAILABLE},
    {"ERR Script attempted to access a non local key", DIBS_UNAVAILABLE}, /* while the key's slot moves */
    {"BUSY ", DIBS_UNAVAILABLE},
    {"UNBLOCKED", DIBS_UNAVAILABLE}, /* the server became a replica meanwhile */
    {"ERR WAIT cannot be used with replica", DIBS_UNAVAILABLE},
    {"ERR WAITAOF cannot be used with replica", DIBS_UNAVAILABLE},
    {"ERR max number of clients", DIBS_UNAVAILABLE},
};

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
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        if (has_code(text, codes[i].code))
            return codes[i].status;
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

bool dibs__reply_is_error(const redisReply *reply, const char *code)
{
    return reply->type == REDIS_REPLY_ERROR && begins_with(reply->str, code);
}

bool dibs__reply_forbids(const redisReply *reply, const char *command)
{
    if (!dibs__reply_is_error(reply, "NOPERM") && !dibs__reply_is_error(reply, "ERR unknown command"))
        return false;
    const char *quoted = strpbrk(reply->str, "'`");
    size_t size = strlen(command);

    return quoted && strncasecmp(quoted + 1, command, size) == 0 && quoted[size + 1] && strchr("'`", quoted[size + 1]);
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
    if (reply->type == REDIS_REPLY_ERROR)
        return dibs__error_set(error, dibs__reply_status(reply->str), "%s: %s answered: %s", doing, shown, reply->str);
    return dibs__error_set(error, DIBS_STORE_ERROR, "%s: %s answered something that no Redis server answers", doing,
                           shown);
}

/*
 * What a refusal means, in our own words; the first entry that fits counts. The server's words are only compared, and
 * never shown.
 */
static const struct {
    const char *start;   /* start of the server's sentence */
    const char *code;    /* the code, which may be shown */
    const char *meaning; /* our words */
    bool of_connection;  /* the connection is refused, not the command */
} refusals[] = {
    {"NOAUTH", "NOAUTH", "it wants a password", false},
    {"WRONGPASS", "WRONGPASS", "the user or the password is wrong", false},
    {"ERR invalid password", "ERR", "the password is wrong", false},
    {"ERR AUTH ", "ERR", "no password is set there", false},
    {"ERR Client sent AUTH", "ERR", "no password is set there", false},
    {"NOPERM", "NOPERM", "the account has no permission for that", false},
    {"DENIED", "DENIED", "it is in protected mode, and serves its own host alone", true},
    {"ERR max number of clients", "ERR", "it has as many clients as it takes", true},
    {"ERR unknown command", "ERR", "to it that is an unknown command", false},
    {"ERR unknown subcommand", "ERR", "to it that is an unknown command", false},
    {"ERR wrong number of arguments", "ERR", "it takes that command with other arguments", false},
    {"ERR DB index is out of range", "ERR", "it has no database of that number", false},
    {"ERR invalid DB index", "ERR", "it has no database of that number", false},
    {"ERR This instance has cluster support disabled", "ERR", "it is not part of a cluster", false},
    {"ERR SELECT is not allowed in cluster mode", "ERR", "a cluster has no database but 0", false},
    {"LOADING", "LOADING", "it still loads its data", false},
    {"READONLY", "READONLY", "it is a replica", false},
    {"MASTERDOWN", "MASTERDOWN", "it is a replica, and its master is away", false},
    {"CLUSTERDOWN", "CLUSTERDOWN", "the cluster is down", false},
    {"TRYAGAIN", "TRYAGAIN", "it wants to be asked again", false},
    {"BUSY ", "BUSY", "it is busy with a script", false},
    {"MISCONF", "MISCONF", "it can't save its data, and so takes no writes", false},
    {"NOREPLICAS", "NOREPLICAS", "it has too few replicas to take writes", false},
    {"OOM ", "OOM", "it is out of memory", false},
    {"NOSCRIPT", "NOSCRIPT", "it does not know the script", false},
    {"ERR WAITAOF cannot be used when numlocal", "ERR", "it has no append-only file (appendonly no)", false},
    {"ERR WAIT", "ERR", "it is a replica", false},
    {"UNBLOCKED", "UNBLOCKED", "it has become a replica", false},
    {"ERR ", "ERR", "it says why, which is not shown here because it may repeat a password", false},
};

dibs_status dibs__reply_refusal(struct dibs__error *error, const redisReply *reply, const char *shown,
                                const char *command)
{
    if (reply->type != REDIS_REPLY_ERROR)
        return dibs__error_set(error, DIBS_STORE_ERROR, "%s answered %s as no Redis server does", shown, command);
    dibs_status status = dibs__reply_status(reply->str);
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++)
        if (begins_with(reply->str, refusals[i].start))
            return dibs__error_set(error, status, "%s refused %s: %s (%s)", shown,
                                   refusals[i].of_connection ? "the connection" : command, refusals[i].meaning,
                                   refusals[i].code);
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
