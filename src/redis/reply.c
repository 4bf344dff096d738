#include "redis/reply.h"

#include <stdio.h>
#include <string.h>

/*
 * The codes with which an error reply begins. Before Redis 7 an error that
 * came up inside a script stands later in the sentence, so the codes that a
 * script can meet are looked for there as well.
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
    {"ERR ACL failure in script", DIBS_DENIED},         /* and since 7.2 */
    {"The user executing the script", DIBS_DENIED},     /* before, behind the place in the script */
    {"ERR invalid password", DIBS_DENIED},
    {"ERR Client sent AUTH", DIBS_DENIED},
    {"LOADING", DIBS_UNAVAILABLE},
    {"READONLY", DIBS_UNAVAILABLE},
    {"MASTERDOWN", DIBS_UNAVAILABLE},
    {"CLUSTERDOWN", DIBS_UNAVAILABLE},
    {"TRYAGAIN", DIBS_UNAVAILABLE},
    {"BUSY ", DIBS_UNAVAILABLE},
    {"ERR max number of clients", DIBS_UNAVAILABLE},
};

static bool begins_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static bool has_code(const char *text, const char *code)
{
    return begins_with(text, code) || (begins_with(text, "ERR Error running script") && strstr(text, code));
}

dibs_status dibs__reply_status(const char *text)
{
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        if (has_code(text, codes[i].code))
            return codes[i].status;
    return DIBS_STORE_ERROR;
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

dibs_status dibs__reply_error(struct dibs__error *error, const redisReply *reply, const char *shown, const char *doing)
{
    if (reply->type == REDIS_REPLY_ERROR)
        return dibs__error_set(error, dibs__reply_status(reply->str), "%s: %s answered: %s", doing, shown, reply->str);
    return dibs__error_set(error, DIBS_STORE_ERROR, "%s: %s answered something that no Redis server answers", doing,
                           shown);
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
