#include "support/common/redis_connect.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TIMEOUT_S = 5 };

struct parts {
    char user[128], password[256], where[256];
    int port; /* 0: where is the path of a Unix socket */
    int db;
};

/* Copies what is before `end`, without the percent-encoding; false where it does not fit. */
static bool decode(char *out, size_t size, const char *text, const char *end)
{
    size_t n = 0;

    for (; text < end; text++) {
        char hex[3] = {0};

        if (n + 1 >= size)
            return false;
        if (*text == '%' && end - text > 2 && isxdigit((unsigned char)text[1]) && isxdigit((unsigned char)text[2])) {
            memcpy(hex, text + 1, 2);
            text += 2;
            out[n++] = (char)strtol(hex, NULL, 16);
        } else {
            out[n++] = *text;
        }
    }
    out[n] = '\0';
    return true;
}

/* Takes user[:password]@ off the front of text. */
static const char *take_credentials(struct parts *parts, const char *text, const char *end)
{
    const char *at = memchr(text, '@', (size_t)(end - text));
    const char *colon = at ? memchr(text, ':', (size_t)(at - text)) : NULL;
    const char *user_end = colon ? colon : at;

    if (!at)
        return text;
    if (!decode(parts->user, sizeof parts->user, text, user_end) ||
        (colon && !decode(parts->password, sizeof parts->password, colon + 1, at)))
        return NULL;
    return at + 1;
}

static bool parse_unix(struct parts *parts, const char *text)
{
    const char *end = text + strcspn(text, "?");

    if (strncmp(end, "?db=", 4) == 0)
        parts->db = (int)strtol(end + 4, NULL, 10);
    text = take_credentials(parts, text, end);
    return text && decode(parts->where, sizeof parts->where, text, end) && parts->where[0] == '/';
}

static bool parse_tcp(struct parts *parts, const char *text)
{
    const char *end = text + strcspn(text, "/"), *colon, *host_end;

    if (*end == '/')
        parts->db = (int)strtol(end + 1, NULL, 10);
    text = take_credentials(parts, text, end);
    if (!text)
        return false;
    host_end = *text == '[' ? memchr(text, ']', (size_t)(end - text)) : text;
    if (!host_end)
        return false;
    colon = memchr(host_end, ':', (size_t)(end - host_end));
    host_end = *text == '[' ? host_end : colon ? colon : end;
    text += *text == '[';
    parts->port = colon ? (int)strtol(colon + 1, NULL, 10) : 6379;
    return decode(parts->where, sizeof parts->where, text, host_end) && parts->where[0] && parts->port > 0;
}

static bool parse(struct parts *parts, const char *url)
{
    memset(parts, 0, sizeof *parts);
    if (strpbrk(url, " \t\n"))
        return false;
    if (strncmp(url, "unix://", 7) == 0)
        return parse_unix(parts, url + 7);
    return strncmp(url, "redis://", 8) == 0 && parse_tcp(parts, url + 8);
}

static bool succeeded(redisContext *context, redisReply *reply, const char *what)
{
    bool ok = reply && reply->type != REDIS_REPLY_ERROR;

    if (!ok)
        fprintf(stderr, "Redis: %s: %s\n", what, reply ? reply->str : context->errstr);
    if (reply)
        freeReplyObject(reply);
    return ok;
}

static bool log_in(redisContext *context, const struct parts *parts)
{
    if (parts->password[0] && parts->user[0] &&
        !succeeded(context, redisCommand(context, "AUTH %s %s", parts->user, parts->password), "AUTH"))
        return false;
    if (parts->password[0] && !parts->user[0] &&
        !succeeded(context, redisCommand(context, "AUTH %s", parts->password), "AUTH"))
        return false;
    return parts->db == 0 || succeeded(context, redisCommand(context, "SELECT %d", parts->db), "SELECT");
}

redisContext *redis_connect(const char *url)
{
    struct timeval limit = {.tv_sec = TIMEOUT_S};
    struct parts parts;

    if (!parse(&parts, url)) {
        fprintf(stderr, "not the URL of one Redis server (redis://host:port or unix:///path)\n");
        return NULL;
    }
    redisContext *context = parts.port ? redisConnectWithTimeout(parts.where, parts.port, limit)
                                       : redisConnectUnixWithTimeout(parts.where, limit);
    if (!context || context->err) {
        fprintf(stderr, "Redis: %s\n", context ? context->errstr : "out of memory");
    } else if (redisSetTimeout(context, limit) == REDIS_OK && log_in(context, &parts)) {
        return context;
    }
    if (context)
        redisFree(context);
    return NULL;
}

redisReply *redis_vtry(redisContext *redis, const char *format, va_list arguments)
{
    sigset_t pipe, before, pending;
    int signal_number;

    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    redisReply *reply = redisvCommand(redis, format, arguments);
    int error = errno;
    if (!reply && sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE))
        sigwait(&pipe, &signal_number);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return reply;
}

redisReply *redis_try(redisContext *redis, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    redisReply *reply = redis_vtry(redis, format, arguments);
    va_end(arguments);
    return reply;
}
