/* The scripts of the queue in Redis, called by hand: shared by the queue tests. */
#ifndef DIBS_TEST_QUEUE_SETUP_H
#define DIBS_TEST_QUEUE_SETUP_H

#include "redis/scripts.h"
#include "support/fixture.h"
#include "support/queue.h"

#define LEASE "600000"
#define KEYS "lock:x dibs:fence:{lock:x} dibs:queue:{lock:x}"

typedef struct answer {
    long long code, number, by_dibs, listeners;
} answer;

static inline long long field(const redisReply *reply, size_t i)
{
    if (i >= reply->elements)
        return 0;
    assert_int_equal(reply->element[i]->type, REDIS_REPLY_INTEGER);
    return reply->element[i]->integer;
}

/* The answer to an ask; where it was granted, with the fence. */
static inline answer read_answer(const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_INTEGER)
        return (answer){1, reply->integer, 0, 0};
    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    return (answer){field(reply, 0), field(reply, 1), field(reply, 2), field(reply, 3)};
}

static inline answer ask_late(server *s, const char *token, const char *number, const char *channel,
                              const char *not_after)
{
    redisReply *reply = server_command(s, "EVAL %s 3 " KEYS " %s %s " LEASE " %s %s",
                                       dibs__scripts[DIBS__SCRIPT_acquire].text, token, number, channel, not_after);
    answer result = read_answer(reply);

    freeReplyObject(reply);
    return result;
}

static inline answer ask(server *s, const char *token, const char *number, const char *channel)
{
    return ask_late(s, token, number, channel, "0");
}

static inline long long release(server *s, const char *token)
{
    return server_integer(s, "EVAL %s 3 " KEYS " %s", dibs__scripts[DIBS__SCRIPT_release].text, token);
}

/* token NULL: ends any holder. */
static inline long long force(server *s, const char *token)
{
    char owner[192];

    if (!token && !server_string(s, owner, sizeof owner, "GET lock:x"))
        return server_integer(s, "EVAL %s 3 " KEYS " 0", dibs__scripts[DIBS__SCRIPT_force].text);
    return server_integer(s, "EVAL %s 3 " KEYS " 0 %s", dibs__scripts[DIBS__SCRIPT_force].text, token ? token : owner);
}

static inline void expect_owner(server *s, const char *token)
{
    assert_string_equal(server_value(s, "lock:x"), token);
}

/* The token is released, which serves the other: the lock is that one's then. */
static inline void expect_release_to(server *s, const char *token, const char *other)
{
    assert_int_equal(release(s, token), 1);
    expect_owner(s, other);
}

static inline long long fence(server *s)
{
    const char *text = server_text(s, "GET dibs:fence:{lock:x}");
    assert_int_equal(strspn(text, "0123456789"), strlen(text));
    return atoll(text);
}

/* The message of a grant: number of the ask, fence, length of the token, then token and key. */
static inline void expect_told(redisContext *wait_event, const char *number, long long granted, const char *token)
{
    assert_string_equal(wait_event_hear(wait_event),
                        formatted("%s %lld %zu %slock:x", number, granted, strlen(token), token));
}

static inline void expect_taken(answer a)
{
    assert_int_equal(a.code, 0);
    assert_in_range(a.number, 1, 600000);
}

/* "holder" has the lock; "dibs:a" and "dibs:b" wait for it, each listening to a channel of its own. */
typedef struct scene {
    fixture *f;
    server *s;
    redisContext *a, *b;
} scene;

static inline scene set_scene(fixture *f)
{
    scene c = {f, f->server, wait_event_open(f->server, "dibs:1", false), wait_event_open(f->server, "dibs:2", false)};

    assert_int_equal(ask(c.s, "holder", "1", "").code, 1);
    expect_taken(ask(c.s, "dibs:a", "1", "dibs:1"));
    expect_taken(ask(c.s, "dibs:b", "1", "dibs:2"));
    return c;
}

static inline void clear_scene(scene *c)
{
    wait_event_close(c->a);
    wait_event_close(c->b);
    server_do(c->s, "DEL " KEYS);
}

static inline int scene_setup(void **state)
{
    static scene c;
    int status = fixture_setup(state);

    c = set_scene(*state);
    *state = &c;
    return status;
}

static inline int scene_teardown(void **state)
{
    scene *c = *state;

    clear_scene(c);
    *state = c->f;
    return fixture_teardown(state);
}

/* A test of the scene, which its parameter `c` is. */
#define TEST_IN_SCENE(name) TEST_WITH(name, scene_setup, scene_teardown, scene *c)

#endif
