/* The queue in Redis, script by script: who is let in, who is granted and told, who is passed over. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "redis/scripts.h"
#include "support/fixture.h"
#include "support/queue.h"
#include "support/test.h"
#include "support/wait.h"

#define LEASE "600000"
#define KEYS "lock:x dibs:fence:{lock:x} dibs:queue:{lock:x} dibs:waiters:{lock:x}"

/* ------------------------------------------------------------- the scripts */

typedef struct answer {
    long long code, number, by_dibs, listeners;
} answer;

static long long field(const redisReply *reply, size_t i)
{
    if (i >= reply->elements)
        return 0;
    assert_int_equal(reply->element[i]->type, REDIS_REPLY_INTEGER);
    return reply->element[i]->integer;
}

static answer read_answer(const redisReply *reply)
{
    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    return (answer){field(reply, 0), field(reply, 1), field(reply, 2), field(reply, 3)};
}

static answer ask_late(server *s, const char *token, const char *number, const char *channel, const char *not_after)
{
    redisReply *reply = server_command(s, "EVAL %s 4 " KEYS " %s %s " LEASE " %s %s",
                                       dibs__script_text(DIBS__SCRIPT_acquire), token, number, channel, not_after);
    answer result = read_answer(reply);

    freeReplyObject(reply);
    return result;
}

static answer ask(server *s, const char *token, const char *number, const char *channel)
{
    return ask_late(s, token, number, channel, "0");
}

/* The first of what release.lua says. */
static long long release(server *s, const char *token)
{
    redisReply *reply = server_command(s, "EVAL %s 4 " KEYS " %s", dibs__script_text(DIBS__SCRIPT_release), token);
    long long code = read_answer(reply).code;

    freeReplyObject(reply);
    return code;
}

/* What of the ask behind it. */
static answer requeue(server *s, const char *token, const char *next, const char *number, const char *channel,
                      long long *released)
{
    redisReply *reply = server_command(s, "EVAL %s 4 " KEYS " %s %s %s " LEASE " %s 0",
                                       dibs__script_text(DIBS__SCRIPT_requeue), token, next, number, channel);
    answer result;

    assert_int_equal(reply->elements, 2);
    *released = field(reply, 0);
    result = read_answer(reply->element[1]);
    freeReplyObject(reply);
    return result;
}

/* token NULL: of whoever holds it. */
static long long force(server *s, const char *token)
{
    char owner[192];

    if (!token && !server_string(s, owner, sizeof owner, "GET lock:x"))
        return server_integer(s, "EVAL %s 4 " KEYS " 0", dibs__script_text(DIBS__SCRIPT_force));
    return server_integer(s, "EVAL %s 4 " KEYS " 0 %s", dibs__script_text(DIBS__SCRIPT_force), token ? token : owner);
}

/* ---------------------------------------------------------- what is expected */

static void expect_owner(server *s, const char *token)
{
    char owner[192];

    server_string(s, owner, sizeof owner, "GET lock:x");
    assert_string_equal(owner, token);
}

static void expect_fresh_lease(server *s)
{
    assert_in_range(server_integer(s, "PTTL lock:x"), 500000, 600000);
}

static long long fence(server *s)
{
    char text[32];

    assert_true(server_string(s, text, sizeof text, "GET dibs:fence:{lock:x}"));
    assert_int_equal(strspn(text, "0123456789"), strlen(text));
    return atoll(text);
}

/* The message of a grant: number of the ask, fence, length of the token, then token and key. */
static void expect_told(redisContext *ear, const char *number, long long granted, const char *token)
{
    char text[256];

    snprintf(text, sizeof text, "%s %lld %zu %slock:x", number, granted, strlen(token), token);
    assert_string_equal(ear_hear(ear), text);
}

static void expect_taken(answer a)
{
    assert_int_equal(a.code, 0);
    assert_in_range(a.number, 1, 600000);
}

/* "holder" has the lock, and "dibs:a", "dibs:b" wait, each listening for itself. */
typedef struct scene {
    server *s;
    redisContext *a, *b;
} scene;

static scene set_scene(void **state)
{
    fixture *f = *state;
    scene c = {f->server, ear_open(f->server, "dibs:1", false), ear_open(f->server, "dibs:2", false)};

    assert_int_equal(ask(c.s, "holder", "1", "").code, 1);
    expect_taken(ask(c.s, "dibs:a", "1", "dibs:1"));
    expect_taken(ask(c.s, "dibs:b", "1", "dibs:2"));
    return c;
}

static void clear_scene(scene *c)
{
    ear_close(c->a);
    ear_close(c->b);
    server_do(c->s, "DEL " KEYS);
}

/* ------------------------------------------------------------------ the queue */

static void the_ask_that_finds_it_taken_enters(void **state)
{
    scene c = set_scene(state);
    long long now = queue_now(c.s);
    queue_entry a = queue_at(c.s, "x", 0);
    queue_entry b = queue_at(c.s, "x", 1);

    assert_string_equal(a.token, "dibs:a");
    assert_string_equal(a.channel, "dibs:1");
    assert_int_equal(a.number, 1);
    assert_int_equal(a.lease_ms, 600000);
    assert_true(a.seen <= now && a.seen > now - 1000LL * LIMIT_MS);
    assert_true(b.order == a.order + 1);
    assert_true(server_integer(c.s, "PTTL dibs:queue:{lock:x}") > 1100000);
    assert_true(server_integer(c.s, "PTTL dibs:waiters:{lock:x}") > 1100000);
    /* Who only tries leaves nothing. */
    expect_taken(ask(c.s, "dibs:c", "1", ""));
    assert_int_equal(queue_size(c.s, "x"), 2);
    assert_int_equal(server_integer(c.s, "HLEN dibs:waiters:{lock:x}"), 2);
    clear_scene(&c);
}

static void who_asks_again_keeps_its_place(void **state)
{
    scene c = set_scene(state);
    queue_entry before = queue_at(c.s, "x", 0);
    queue_entry after;

    expect_taken(ask(c.s, "dibs:a", "2", "dibs:1"));
    after = queue_at(c.s, "x", 0);
    assert_string_equal(after.token, "dibs:a");
    assert_true(after.order == before.order);
    assert_int_equal(after.number, 2);
    assert_true(after.seen > before.seen);
    assert_int_equal(queue_size(c.s, "x"), 2);
    clear_scene(&c);
}

/* By arrival at the server, whatever its clock says: each is one behind the last, also where all have left between. */
static void the_order_is_that_of_arrival(void **state)
{
    scene c = set_scene(state);
    char token[16];

    for (int i = 0; i < 20; i++) {
        snprintf(token, sizeof token, "dibs:%c", 'z' - i);
        expect_taken(ask(c.s, token, "1", "dibs:1"));
    }
    for (int i = 2; i < 22; i++) {
        snprintf(token, sizeof token, "dibs:%c", 'z' - (i - 2));
        assert_string_equal(queue_at(c.s, "x", i).token, token);
        assert_true(queue_at(c.s, "x", i).order == queue_at(c.s, "x", i - 1).order + 1);
    }
    clear_scene(&c);
}

static void it_says_whose_the_lock_is_and_who_listens(void **state)
{
    scene c = set_scene(state);
    answer a = ask(c.s, "dibs:a", "2", "dibs:1");

    assert_int_equal(a.by_dibs, 0);
    assert_int_equal(a.listeners, 1);
    assert_int_equal(ask(c.s, "dibs:c", "1", "dibs:nobody's").listeners, 0);
    server_do(c.s, "SET lock:x dibs:somebody PX " LEASE);
    assert_int_equal(ask(c.s, "dibs:a", "3", "dibs:1").by_dibs, 1);
    clear_scene(&c);
}

/* ----------------------------------------------------------------- the grants */

static void a_release_grants_the_head_and_tells_it(void **state)
{
    scene c = set_scene(state);
    long long before = fence(c.s);

    expect_taken(ask(c.s, "dibs:a", "17", "dibs:1"));
    assert_int_equal(release(c.s, "holder"), 1);
    expect_owner(c.s, "dibs:a");
    expect_fresh_lease(c.s);
    assert_true(fence(c.s) > before);
    expect_told(c.a, "17", fence(c.s), "dibs:a");
    assert_false(ear_heard_anything(c.b));
    assert_int_equal(queue_size(c.s, "x"), 1);
    assert_int_equal(server_integer(c.s, "HEXISTS dibs:waiters:{lock:x} dibs:a"), 0);
    before = fence(c.s);
    assert_int_equal(release(c.s, "dibs:a"), 1);
    expect_owner(c.s, "dibs:b");
    assert_true(fence(c.s) > before);
    expect_told(c.b, "1", fence(c.s), "dibs:b");
    assert_int_equal(release(c.s, "dibs:b"), 1);
    assert_false(server_has(c.s, "lock:x"));
    queue_assert_gone(c.s, "x");
    clear_scene(&c);
}

/* Also where somebody listens by a pattern, whom the same message would reach. */
static void who_does_not_listen_is_passed_over(void **state)
{
    scene c = set_scene(state);
    redisContext *all = ear_open(c.s, "dibs:*", true);

    ear_close(c.a);
    c.a = ear_open(c.s, "dibs:3", false);
    assert_int_equal(release(c.s, "holder"), 1);
    expect_owner(c.s, "dibs:b");
    expect_told(c.b, "1", fence(c.s), "dibs:b");
    expect_told(all, "1", fence(c.s), "dibs:b"); /* and of no other */
    assert_int_equal(queue_size(c.s, "x"), 0);
    ear_close(all);
    clear_scene(&c);
}

static void set_seen(server *s, const char *token, const char *channel, long long us_ago)
{
    char entry[128];

    snprintf(entry, sizeof entry, "1 " LEASE " %lld %s", queue_now(s) - us_ago, channel);
    server_do(s, "HSET dibs:waiters:{lock:x} %s %s", token, entry);
}

static void who_was_not_seen_for_half_its_lease_is_passed_over(void **state)
{
    scene c = set_scene(state);

    set_seen(c.s, "dibs:a", "dibs:1", 300001000);
    set_seen(c.s, "dibs:b", "dibs:2", 300000000 - 1000LL * LIMIT_MS);
    assert_int_equal(release(c.s, "holder"), 1);
    expect_owner(c.s, "dibs:b");
    assert_false(ear_heard_anything(c.a));
    assert_int_equal(queue_size(c.s, "x"), 0);
    clear_scene(&c);
}

static void where_nobody_lives_it_is_free(void **state)
{
    scene c = set_scene(state);

    set_seen(c.s, "dibs:a", "dibs:1", 300001000);
    set_seen(c.s, "dibs:b", "dibs:nobody's", 0);
    assert_int_equal(release(c.s, "holder"), 1);
    assert_false(server_has(c.s, "lock:x"));
    queue_assert_gone(c.s, "x");
    assert_int_equal(ask(c.s, "dibs:c", "1", "").code, 1);
    clear_scene(&c);
}

/* The key is gone, by its end or by an operator: whoever comes next serves the queue first. */
static void a_newcomer_does_not_pass_the_queue(void **state)
{
    scene c = set_scene(state);

    server_do(c.s, "DEL lock:x");
    expect_taken(ask(c.s, "dibs:c", "1", ""));
    expect_owner(c.s, "dibs:a");
    expect_told(c.a, "1", fence(c.s), "dibs:a");
    server_do(c.s, "DEL lock:x");
    expect_taken(ask(c.s, "dibs:c", "2", "dibs:1"));
    expect_owner(c.s, "dibs:b");
    expect_told(c.b, "1", fence(c.s), "dibs:b");
    assert_string_equal(queue_at(c.s, "x", 0).token, "dibs:c");
    clear_scene(&c);
}

static void the_head_that_asks_is_granted_without_a_push(void **state)
{
    scene c = set_scene(state);
    answer a;

    server_do(c.s, "DEL lock:x");
    a = ask(c.s, "dibs:a", "2", "dibs:1");
    assert_int_equal(a.code, 1);
    assert_int_equal(a.number, fence(c.s));
    expect_owner(c.s, "dibs:a");
    expect_fresh_lease(c.s);
    assert_int_equal(queue_size(c.s, "x"), 1);
    assert_false(ear_heard_anything(c.a));
    /* And one that was long away and is back: its ask counts, not the time before. */
    set_seen(c.s, "dibs:b", "dibs:2", 300001000);
    server_do(c.s, "DEL lock:x");
    assert_int_equal(ask(c.s, "dibs:b", "2", "dibs:2").code, 1);
    expect_owner(c.s, "dibs:b");
    clear_scene(&c);
}

/* A release that finds nothing to release: a lease that ended, a stranger's, one sent twice. */
static void any_release_wakes_the_queue_where_the_key_is_gone(void **state)
{
    scene c = set_scene(state);

    server_do(c.s, "DEL lock:x");
    assert_int_equal(release(c.s, "holder"), 0);
    expect_owner(c.s, "dibs:a");
    assert_int_equal(release(c.s, "holder"), -1);
    expect_owner(c.s, "dibs:a");
    assert_int_equal(release(c.s, "dibs:a"), 1);
    assert_int_equal(release(c.s, "dibs:a"), -1);
    expect_owner(c.s, "dibs:b");
    clear_scene(&c);
}

/* ------------------------------------------------ what is asked or done twice */

static void the_owner_that_asks_has_a_whole_lease(void **state)
{
    scene c = set_scene(state);
    long long before = fence(c.s);

    server_do(c.s, "PEXPIRE lock:x 20000");
    assert_int_equal(ask(c.s, "holder", "2", "").code, 1);
    expect_fresh_lease(c.s);
    assert_int_equal(fence(c.s), before);
    assert_int_equal(queue_size(c.s, "x"), 2);
    clear_scene(&c);
}

/* Granted while it waits, by an ask or by a push that was lost: its entry would be granted once more. */
static void a_grant_takes_its_own_entry_out(void **state)
{
    scene c = set_scene(state);

    server_do(c.s, "SET lock:x dibs:b PX " LEASE);
    assert_int_equal(ask(c.s, "dibs:b", "2", "dibs:2").code, 1);
    assert_int_equal(queue_size(c.s, "x"), 1);
    assert_string_equal(queue_at(c.s, "x", 0).token, "dibs:a");
    clear_scene(&c);
}

static void a_release_takes_its_own_entry_out(void **state)
{
    scene c = set_scene(state);

    assert_int_equal(release(c.s, "dibs:a"), -1);
    expect_owner(c.s, "holder");
    assert_int_equal(queue_size(c.s, "x"), 1);
    assert_int_equal(server_integer(c.s, "HEXISTS dibs:waiters:{lock:x} dibs:a"), 0);
    assert_int_equal(release(c.s, "holder"), 1);
    expect_owner(c.s, "dibs:b");
    assert_false(ear_heard_anything(c.a));
    clear_scene(&c);
}

static void an_ask_that_was_overtaken_does_nothing(void **state)
{
    scene c = set_scene(state);

    expect_taken(ask(c.s, "dibs:a", "12", "dibs:1"));
    assert_int_equal(ask(c.s, "dibs:a", "9", "dibs:2").code, -2);
    assert_int_equal(queue_at(c.s, "x", 0).number, 12);
    assert_string_equal(queue_at(c.s, "x", 0).channel, "dibs:1");
    server_do(c.s, "DEL lock:x");
    assert_int_equal(ask(c.s, "dibs:a", "11", "dibs:1").code, -2);
    assert_false(server_has(c.s, "lock:x"));
    assert_int_equal(ask(c.s, "dibs:a", "12", "dibs:1").code, 1);
    clear_scene(&c);
}

static void an_ask_that_comes_too_late_enters_no_queue(void **state)
{
    scene c = set_scene(state);
    char past[32];

    snprintf(past, sizeof past, "%lld", queue_now(c.s) - 1);
    assert_int_equal(ask_late(c.s, "dibs:c", "1", "dibs:1", past).code, -1);
    assert_int_equal(queue_size(c.s, "x"), 2);
    server_do(c.s, "DEL lock:x");
    assert_int_equal(ask_late(c.s, "dibs:c", "2", "dibs:1", past).code, -1);
    assert_false(server_has(c.s, "lock:x"));
    assert_false(ear_heard_anything(c.a));
    clear_scene(&c);
}

static void who_releases_and_asks_is_behind_those_who_wait(void **state)
{
    scene c = set_scene(state);
    long long released;

    for (int i = 0; i < 2; i++) { /* and safe to send again */
        expect_taken(requeue(c.s, "holder", "dibs:next", "1", "dibs:1", &released));
        assert_int_equal(released, i == 0 ? 1 : -1);
        expect_owner(c.s, "dibs:a");
        assert_int_equal(queue_size(c.s, "x"), 2);
        assert_string_equal(queue_at(c.s, "x", 0).token, "dibs:b");
        assert_string_equal(queue_at(c.s, "x", 1).token, "dibs:next");
    }
    expect_told(c.a, "1", fence(c.s), "dibs:a");
    assert_false(ear_heard_anything(c.a));
    clear_scene(&c);
}

static void who_releases_and_asks_alone_has_it_at_once(void **state)
{
    fixture *f = *state;
    long long released;
    long long before;

    assert_int_equal(ask(f->server, "dibs:a", "1", "").code, 1);
    before = fence(f->server);
    assert_int_equal(requeue(f->server, "dibs:a", "dibs:b", "1", "dibs:1", &released).code, 1);
    assert_int_equal(released, 1);
    expect_owner(f->server, "dibs:b");
    assert_true(fence(f->server) > before);
    queue_assert_gone(f->server, "x");
    assert_int_equal(release(f->server, "dibs:b"), 1);
}

/* -------------------------------------------------------------- a forced unlock */

static void a_forced_unlock_grants_the_head(void **state)
{
    scene c = set_scene(state);
    long long before = fence(c.s);

    assert_int_equal(force(c.s, "dibs:another"), 0);
    assert_int_equal(force(c.s, "dibs:a"), 0);
    expect_owner(c.s, "holder");
    assert_int_equal(fence(c.s), before);
    assert_int_equal(queue_size(c.s, "x"), 2);
    assert_int_equal(force(c.s, "holder"), 1);
    expect_owner(c.s, "dibs:a");
    assert_true(fence(c.s) > before);
    expect_told(c.a, "1", fence(c.s), "dibs:a");
    assert_int_equal(force(c.s, NULL), 1);
    expect_owner(c.s, "dibs:b");
    before = fence(c.s);
    assert_int_equal(force(c.s, NULL), 1);
    assert_false(server_has(c.s, "lock:x"));
    assert_true(fence(c.s) > before);
    assert_int_equal(force(c.s, NULL), 1);
    clear_scene(&c);
}

/* --------------------------------------------------- where the server is in need */

static void set_memory_out(server *s, bool out)
{
    server_do(s, "CONFIG SET maxmemory-policy noeviction");
    server_do(s, "CONFIG SET maxmemory %d", out ? 1 : 0);
}

static void a_release_grants_though_memory_is_out(void **state)
{
    scene c = set_scene(state);

    set_memory_out(c.s, true);
    assert_int_equal(release(c.s, "holder"), 1);
    expect_owner(c.s, "dibs:a");
    expect_told(c.a, "1", fence(c.s), "dibs:a");
    assert_int_equal(force(c.s, NULL), 1);
    expect_owner(c.s, "dibs:b");
    expect_told(c.b, "1", fence(c.s), "dibs:b");
    set_memory_out(c.s, false);
    clear_scene(&c);
}

/* No key to delete first, as where a lease ended. */
static void the_queue_is_served_though_memory_is_out(void **state)
{
    scene c = set_scene(state);

    set_memory_out(c.s, true);
    server_do(c.s, "DEL lock:x");
    expect_taken(ask(c.s, "dibs:c", "1", ""));
    expect_owner(c.s, "dibs:a");
    server_do(c.s, "DEL lock:x");
    assert_int_equal(release(c.s, "dibs:c"), 0);
    expect_owner(c.s, "dibs:b");
    set_memory_out(c.s, false);
    clear_scene(&c);
}

/* The server dropped one of the two keys to win memory. Whoever is in the other alone is not granted by mistake. */
static void an_evicted_half_of_the_queue(void **state)
{
    scene c = set_scene(state);

    server_do(c.s, "DEL dibs:waiters:{lock:x}");
    server_do(c.s, "DEL lock:x");
    assert_int_equal(ask(c.s, "dibs:a", "2", "dibs:1").code, 1);
    expect_owner(c.s, "dibs:a");
    server_do(c.s, "DEL " KEYS);
    assert_int_equal(ask(c.s, "holder", "1", "").code, 1);
    expect_taken(ask(c.s, "dibs:b", "1", "dibs:2"));
    server_do(c.s, "DEL dibs:queue:{lock:x}");
    expect_taken(ask(c.s, "dibs:b", "2", "dibs:2"));
    assert_int_equal(release(c.s, "holder"), 1);
    expect_owner(c.s, "dibs:b");
    clear_scene(&c);
}

/* Who has no right to publish can't hand it on: it is free then, and nobody who was not told has it. */
static void a_release_without_the_right_to_publish(void **state)
{
    scene c = set_scene(state);
    redisContext *weak = redisConnectUnix(c.s->socket_path);
    redisReply *reply;

    server_do(c.s, "ACL SETUSER weak on >pw ~* resetchannels +@all");
    freeReplyObject(redisCommand(weak, "AUTH weak pw"));
    reply = redisCommand(weak, "EVAL %s 4 " KEYS " holder", dibs__script_text(DIBS__SCRIPT_release));
    assert_int_equal(read_answer(reply).code, 1);
    freeReplyObject(reply);
    redisFree(weak);
    assert_false(ear_heard_anything(c.a));
    assert_false(server_has(c.s, "lock:x"));
    assert_int_equal(ask(c.s, "dibs:a", "2", "dibs:1").code == 1, queue_size(c.s, "x") == 0);
    clear_scene(&c);
}

/* Nor can an operator who has no such right: whose lock it was has lost it, and nobody has it instead. */
static void a_forced_unlock_without_the_right_to_publish(void **state)
{
    fixture *f = *state;
    char url[160];
    char text[32];

    server_do(f->server, "ACL SETUSER weak on >pw ~* resetchannels &dibs:none +@all");
    snprintf(url, sizeof url, "unix://weak:pw@%s", f->server->socket_path);
    dibs_runtime *weak = open_url(url, NULL);
    for (int i = 0; i < 2; i++) {
        scene c = set_scene(state);
        long long before = fence(c.s);
        assert_status(DIBS_OK, dibs_force_unlock(weak, "x", i == 0 ? NULL : "holder"));
        assert_false(ear_heard_anything(c.a));
        assert_false(ear_heard_anything(c.b));
        assert_false(server_string(c.s, text, sizeof text, "GET lock:x"));
        assert_true(fence(c.s) > before);
        clear_scene(&c);
    }
    dibs_close(weak);
}

/* Who was told by another server that somebody has the lock, which this one may not know: that one is to set it again.
 */
static void who_leaves_it_to_its_owner_only_enters(void **state)
{
    for (int others = 0; others < 2; others++) {
        scene c = set_scene(state);
        if (!others)
            server_do(c.s, "DEL " KEYS);
        server_do(c.s, "DEL lock:x");
        redisReply *reply = server_command(c.s, "EVAL %s 4 " KEYS " dibs:c 1 " LEASE " dibs:2 0 leave",
                                           dibs__script_text(DIBS__SCRIPT_acquire));
        assert_int_equal(read_answer(reply).code, 0);
        freeReplyObject(reply);
        assert_false(server_has(c.s, "lock:x"));
        assert_false(ear_heard_anything(c.a));
        assert_int_equal(queue_size(c.s, "x"), others ? 3 : 1);
        assert_string_equal(queue_at(c.s, "x", others ? 2 : 0).token, "dibs:c");
        clear_scene(&c);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_ask_that_finds_it_taken_enters),
        TEST(who_asks_again_keeps_its_place),
        TEST(the_order_is_that_of_arrival),
        TEST(it_says_whose_the_lock_is_and_who_listens),
        TEST(a_release_grants_the_head_and_tells_it),
        TEST(who_does_not_listen_is_passed_over),
        TEST(who_was_not_seen_for_half_its_lease_is_passed_over),
        TEST(where_nobody_lives_it_is_free),
        TEST(a_newcomer_does_not_pass_the_queue),
        TEST(the_head_that_asks_is_granted_without_a_push),
        TEST(any_release_wakes_the_queue_where_the_key_is_gone),
        TEST(the_owner_that_asks_has_a_whole_lease),
        TEST(a_grant_takes_its_own_entry_out),
        TEST(a_release_takes_its_own_entry_out),
        TEST(an_ask_that_was_overtaken_does_nothing),
        TEST(an_ask_that_comes_too_late_enters_no_queue),
        TEST(who_releases_and_asks_is_behind_those_who_wait),
        TEST(who_releases_and_asks_alone_has_it_at_once),
        TEST(a_forced_unlock_grants_the_head),
        TEST(a_release_grants_though_memory_is_out),
        TEST(the_queue_is_served_though_memory_is_out),
        TEST(an_evicted_half_of_the_queue),
        TEST(a_release_without_the_right_to_publish),
        TEST(a_forced_unlock_without_the_right_to_publish),
        TEST(who_leaves_it_to_its_owner_only_enters),
    };

    return cmocka_run_group_tests_name("queue", tests, NULL, NULL);
}
