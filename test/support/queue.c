/* Reads the queue of a lock from Redis. */
#include "support/queue.h"

#include <poll.h>

#include "support/test.h"

long long queue_size(server *s, const char *name)
{
    return server_integer(s, "HLEN dibs:queue:{lock:%s}", name) / 2; /* two fields for each, and one for all */
}

void queue_await(server *s, const char *name, long long count)
{
    await_or_say(queue_size(s, name) == count, "%lld in the queue, not %lld", queue_size(s, name), count);
}

enum { PLACES_MAX = 100000 };

/* The summary of the queue: false where nobody waits. */
static bool read_summary(server *s, const char *name, long long *first, long long *last)
{
    char text[128];

    if (!server_string(s, text, sizeof text, "HGET dibs:queue:{lock:%s} %b", name, "", (size_t)0))
        return false;
    assert_that(sscanf(text, "%lld %lld ", first, last) == 2 && *last - *first < PLACES_MAX, "the summary says: %s",
                text);
    return true;
}

static bool read_entry(server *s, const char *name, long long order, queue_entry *out)
{
    char text[512];
    int size, at = 0;

    if (!server_string(s, text, sizeof text, "HGET dibs:queue:{lock:%s} %lld", name, order))
        return false;
    int fields = sscanf(text, "%llu %lld %lld %d%*[ ?!]%n", &out->number, &out->lease_ms, &out->seen, &size, &at);
    assert_that(fields == 4 && at > 0 && (size_t)(at + size) <= strlen(text), "the entry says: %s", text);
    snprintf(out->channel, sizeof out->channel, "%.*s", size, text + at);
    snprintf(out->token, sizeof out->token, "%s", text + at + size);
    out->order = order;
    return true;
}

bool queue_find(server *s, const char *name, int place, queue_entry *out)
{
    long long order, last;

    memset(out, 0, sizeof *out);
    if (!read_summary(s, name, &order, &last))
        return false;
    for (; order <= last; order++)
        if (read_entry(s, name, order, out) && place-- == 0)
            return true;
    return false;
}

queue_entry queue_at(server *s, const char *name, int place)
{
    queue_entry entry;

    assert_that(queue_find(s, name, place, &entry), "nobody at place %d of the queue of %s", place, name);
    return entry;
}

static bool head_asked(server *s, const char *name, unsigned long long number)
{
    queue_entry entry;

    return queue_find(s, name, 0, &entry) && entry.number > number;
}

queue_entry queue_await_ask(server *s, const char *name, unsigned long long number)
{
    await_or_say(head_asked(s, name, number), "no ask after number %llu", number);
    return queue_at(s, name, 0);
}

void queue_assert_gone(server *s, const char *name)
{
    assert_int_equal(server_integer(s, "EXISTS dibs:queue:{lock:%s}", name), 0);
}

const char *queue_channel_of(const char *token)
{
    const char *end = strrchr(token, ':');
    const char *begin = end;

    assert_non_null(end);
    while (begin > token && begin[-1] != ':')
        begin--;
    return formatted("dibs:%.*s", (int)(end - begin), begin);
}

bool queue_has_listener(server *s, const char *channel)
{
    redisReply *reply = server_command(s, "PUBSUB NUMSUB %s", channel);
    bool some = reply->element[1]->integer > 0;

    freeReplyObject(reply);
    return some;
}

void queue_await_no_listener(server *s, const char *channel)
{
    await_or_say(!queue_has_listener(s, channel), "%s is listened to", channel);
}

void queue_await_listening(server *s, const char *channel)
{
    await_or_say(queue_has_listener(s, channel), "nobody listens to %s", channel);
}

long long queue_now(server *s)
{
    redisReply *reply = server_command(s, "TIME");
    long long us = strtoll(reply->element[0]->str, NULL, 10) * 1000000 + strtoll(reply->element[1]->str, NULL, 10);

    freeReplyObject(reply);
    return us;
}

/* --------------------------------------------------------------------- wait events */

redisContext *wait_event_open(server *s, const char *channel, bool pattern)
{
    redisContext *wait_event = redisConnectUnix(s->socket_path);

    assert_true(wait_event && !wait_event->err);
    redisReply *reply = redisCommand(wait_event, "%s %s", pattern ? "PSUBSCRIBE" : "SUBSCRIBE", channel);
    assert_true(reply && reply->type == REDIS_REPLY_ARRAY);
    freeReplyObject(reply);
    return wait_event;
}

void wait_event_close(redisContext *wait_event)
{
    redisFree(wait_event);
}

static bool wait_readable(redisContext *wait_event, int limit_ms)
{
    return poll(&(struct pollfd){.fd = wait_event->fd, .events = POLLIN}, 1, limit_ms) == 1;
}

const char *wait_event_hear(redisContext *wait_event)
{
    static char text[1024];
    redisReply *reply = NULL;

    assert_that(wait_readable(wait_event, LIMIT_MS), "nothing is published");
    assert_int_equal(redisGetReply(wait_event, (void **)&reply), REDIS_OK);
    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    snprintf(text, sizeof text, "%s", reply->element[reply->elements - 1]->str);
    freeReplyObject(reply);
    return text;
}

bool wait_event_heard_anything(redisContext *wait_event)
{
    return wait_readable(wait_event, 0);
}
