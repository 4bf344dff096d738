/* The queue in Redis where the server is out of memory, or the account lacks a right. */
#include "integration/queue_setup.h"
#include "support/queue.h"

#define LONGER_LEASE "6000000" /* so much longer that the queue has to live longer, too */

TEST_IN_SCENE(a_release_grants_on_a_full_server)
{
    server_set_memory_out(c->s, true);
    expect_release_to(c->s, "holder", "dibs:a");
    expect_told(c->a, "1", fence(c->s), "dibs:a");
    assert_int_equal(force(c->s, NULL), 1);
    expect_owner(c->s, "dibs:b");
    expect_told(c->b, "1", fence(c->s), "dibs:b");
    server_set_memory_out(c->s, false);
}

/* There is no key to delete first, as where a lease has ended. */
TEST_IN_SCENE(a_full_server_serves_the_queue)
{
    server_set_memory_out(c->s, true);
    server_do(c->s, "DEL lock:x");
    expect_taken(ask(c->s, "dibs:c", "1", ""));
    expect_owner(c->s, "dibs:a");
    server_do(c->s, "DEL lock:x");
    assert_int_equal(release(c->s, "dibs:c"), 0);
    expect_owner(c->s, "dibs:b");
    server_set_memory_out(c->s, false);
}

/* The server evicted the queue, or lost its entries: a waiter that asks again enters it again. */
TEST_IN_SCENE(an_evicted_queue_takes_its_waiters_again)
{
    server_do(c->s, "HDEL dibs:queue:{lock:x} 1 2");
    server_do(c->s, "DEL lock:x");
    assert_int_equal(ask(c->s, "dibs:a", "2", "dibs:1").code, 1);
    expect_owner(c->s, "dibs:a");
    queue_assert_gone(c->s, "x");
    server_do(c->s, "DEL " KEYS);
    assert_int_equal(ask(c->s, "holder", "1", "").code, 1);
    expect_taken(ask(c->s, "dibs:b", "1", "dibs:2"));
    server_do(c->s, "DEL dibs:queue:{lock:x}");
    expect_taken(ask(c->s, "dibs:b", "2", "dibs:2"));
    expect_release_to(c->s, "holder", "dibs:b");
}

/*
 * A release without the right to publish cannot notify the next waiter: then the lock is free, and no waiter owns it
 * without knowing.
 */
TEST_IN_SCENE(a_release_without_the_right_to_publish_grants_to_nobody)
{
    redisContext *weak = redisConnectUnix(c->s->socket_path);

    server_do(c->s, "ACL SETUSER weak on >pw ~* resetchannels +@all");
    freeReplyObject(redisCommand(weak, "AUTH weak pw"));
    redisReply *reply = redisCommand(weak, "EVAL %s 3 " KEYS " holder", dibs__scripts[DIBS__SCRIPT_release].text);
    assert_int_equal(reply->integer, 1);
    freeReplyObject(reply);
    redisFree(weak);
    assert_false(wait_event_heard_anything(c->a));
    assert_false(server_has(c->s, "lock:x"));
    assert_int_equal(ask(c->s, "dibs:a", "2", "dibs:1").code == 1, queue_size(c->s, "x") == 0);
}

/*
 * A forced unlock without that right cannot notify the next waiter either: the holder has lost the lock, and no waiter
 * owns it.
 */
TEST(a_forced_unlock_without_the_right_to_publish_grants_to_nobody)
{
    fixture *f = *state;
    char text[32];

    const char *url = server_account(f->server, "weak", "~* resetchannels &dibs:none +@all");
    dibs_runtime *weak = test_runtime(open_url(url, NULL));
    for (int i = 0; i < 2; i++) {
        scene c = set_scene(f);
        long long before = fence(c.s);
        assert_status(DIBS_OK, dibs_force_unlock(weak, "x", i == 0 ? NULL : "holder"));
        assert_false(wait_event_heard_anything(c.a));
        assert_false(wait_event_heard_anything(c.b));
        assert_false(server_string(c.s, text, sizeof text, "GET lock:x"));
        assert_true(fence(c.s) > before);
        clear_scene(&c);
    }
}

/* Asks as that account, which is refused PEXPIRE behind the entry in the queue. */
static void ask_without_pexpire(server *s, const char *token)
{
    redisContext *weak = redisConnectUnix(s->socket_path);

    server_do(s, "ACL SETUSER weak on >pw ~* &* +@all -pexpire");
    freeReplyObject(redisCommand(weak, "AUTH weak pw"));
    redisReply *reply = redisCommand(weak, "EVAL %s 3 " KEYS " %s 1 " LONGER_LEASE " dibs:3 0",
                                     dibs__scripts[DIBS__SCRIPT_acquire].text, token);
    assert_int_equal(reply->type, REDIS_REPLY_ERROR);
    assert_that(strstr(reply->str, "permission") || strstr(reply->str, "can't run"), "%s", reply->str);
    freeReplyObject(reply);
    redisFree(weak);
}

/* Otherwise a release would grant the lock to the refused client, and the queue would never expire. */
TEST_IN_SCENE(an_ask_without_the_right_to_pexpire_does_not_enter_the_queue)
{
    queue_entry last = queue_at(c->s, "x", 1);

    ask_without_pexpire(c->s, "dibs:c");
    assert_int_equal(queue_size(c->s, "x"), 2);
    assert_string_equal(queue_at(c->s, "x", 1).token, last.token);
    assert_int_equal(server_integer(c->s, "HEXISTS dibs:queue:{lock:x} dibs:c"), 0);
    expect_release_to(c->s, "holder", "dibs:a");
    expect_release_to(c->s, "dibs:a", "dibs:b");
    queue_assert_gone(c->s, "x");
    ask_without_pexpire(c->s, "dibs:c");
    queue_assert_gone(c->s, "x");
}

/* A waiter keeps its place, but the recorded expiry of the queue does not grow. */
TEST_IN_SCENE(a_waiter_that_loses_the_right_to_pexpire_keeps_its_place)
{
    const char *before = server_text(c->s, "HGET dibs:queue:{lock:x} %s", "");

    ask_without_pexpire(c->s, "dibs:a");
    assert_string_equal(server_text(c->s, "HGET dibs:queue:{lock:x} %s", ""), before);
    assert_int_equal(queue_size(c->s, "x"), 2);
    assert_string_equal(queue_at(c->s, "x", 0).token, "dibs:a");
}

/* Asks as a waiter that saw at another server who has the lock: if it is free, it is left to that owner. */
static answer ask_and_leave(server *s, const char *token, const char *channel)
{
    redisReply *reply = server_command(s, "EVAL %s 3 " KEYS " %s 1 " LEASE " %s 0 9007199254740000",
                                       dibs__scripts[DIBS__SCRIPT_acquire].text, token, channel);
    answer result = read_answer(reply);

    freeReplyObject(reply);
    assert_int_equal(result.code, 0);
    return result;
}

/*
 * The asker knows from another server that the lock is held, and this server may not know: the holder must have time to
 * restore the lock.
 */
TEST(an_ask_that_leaves_the_lock_to_its_owner_only_enters)
{
    for (int others = 0; others < 2; others++) {
        scene c = set_scene(*state);
        if (!others)
            server_do(c.s, "DEL " KEYS);
        server_do(c.s, "DEL lock:x");
        ask_and_leave(c.s, "dibs:c", "dibs:2");
        assert_false(server_has(c.s, "lock:x"));
        assert_false(wait_event_heard_anything(c.a));
        assert_int_equal(queue_size(c.s, "x"), others ? 3 : 1);
        assert_string_equal(queue_at(c.s, "x", others ? 2 : 0).token, "dibs:c");
        clear_scene(&c);
    }
}

/* Nor is it granted the lock by a retraction, which gives it a hint. What the owner restored and released, it is. */
TEST_IN_SCENE(a_waiter_that_leaves_the_lock_to_its_owner_is_not_granted_it_by_a_retraction)
{
    server_do(c->s, "DEL " KEYS);
    assert_int_equal(ask_and_leave(c->s, "dibs:a", "dibs:1").number, -2);
    assert_int_equal(release(c->s, "dibs:c"), 0);
    expect_told(c->a, "1", 0, "dibs:a");
    assert_int_equal(queue_size(c->s, "x"), 1);
    assert_false(server_has(c->s, "lock:x"));
    server_do(c->s, "SET lock:x dibs:owner");
    expect_release_to(c->s, "dibs:owner", "dibs:a");
    expect_told(c->a, "1", fence(c->s), "dibs:a");
    queue_assert_gone(c->s, "x");
}

/* The asker would have the lock otherwise; or it is the owner itself, and nobody would ever come. */
TEST_IN_SCENE(an_ask_serves_who_leaves_the_lock_to_its_owner)
{
    server_do(c->s, "DEL " KEYS);
    ask_and_leave(c->s, "dibs:a", "dibs:1");
    expect_taken(ask(c->s, "dibs:b", "2", "dibs:2"));
    expect_owner(c->s, "dibs:a");
    expect_told(c->a, "1", fence(c->s), "dibs:a");
}

/* It knows the owner from this server then, and is served as others are when that one does not renew its lease. */
TEST_IN_SCENE(a_waiter_that_finds_the_owner_leaves_the_lock_to_nobody)
{
    server_do(c->s, "DEL " KEYS);
    server_do(c->s, "SET lock:x dibs:owner PX " LEASE);
    assert_in_range(ask_and_leave(c->s, "dibs:a", "dibs:1").number, 1, 600000);
    server_do(c->s, "DEL lock:x");
    assert_int_equal(release(c->s, "dibs:c"), 0);
    expect_owner(c->s, "dibs:a");
    expect_told(c->a, "1", fence(c->s), "dibs:a");
}

/* A forced unlock is for somebody who knows. */
TEST_IN_SCENE(a_forced_unlock_grants_a_lock_that_is_left_to_its_owner)
{
    server_do(c->s, "DEL " KEYS);
    ask_and_leave(c->s, "dibs:a", "dibs:1");
    assert_int_equal(force(c->s, NULL), 1);
    expect_owner(c->s, "dibs:a");
}

TESTS(fixture_setup, fixture_teardown)
