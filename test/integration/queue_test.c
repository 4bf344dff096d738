/*
 * The queue in Redis, script by script: which asks enter it, which waiters are granted the lock and notified, and which
 * are passed over.
 */
#include "integration/queue_setup.h"
#include "support/queue.h"

/* --------------------------------------------------------------- the scripts */

/* Releases, and asks in the same script. Returns the answer to the ask. */
static answer requeue(server *s, const char *token, const char *next, const char *number, const char *channel,
                      long long *released)
{
    redisReply *reply = server_command(s, "EVAL %s 3 " KEYS " %s %s %s " LEASE " %s 0",
                                       dibs__scripts[DIBS__SCRIPT_requeue].text, token, next, number, channel);

    assert_int_equal(reply->elements, 2);
    *released = field(reply, 0);
    answer result = read_answer(reply->element[1]);
    freeReplyObject(reply);
    return result;
}

/* One try to share the lock. */
static answer ask_to_share(server *s, const char *token)
{
    redisReply *reply = server_command(s, "EVAL %s 3 " KEYS " %s 1 " LEASE " %s 0",
                                       dibs__scripts[DIBS__SCRIPT_acquire_shared].text, token, "");
    answer result = read_answer(reply);

    freeReplyObject(reply);
    return result;
}

/* ---------------------------------------------------------- what is expected */

static void expect_fresh_lease(server *s)
{
    assert_in_range(server_integer(s, "PTTL lock:x"), 500000, 600000);
}

/* ----------------------------------------------------------------- the queue */

TEST_IN_SCENE(an_ask_that_finds_the_lock_taken_enters_the_queue)
{
    long long now = queue_now(c->s);
    queue_entry a = queue_at(c->s, "x", 0);
    queue_entry b = queue_at(c->s, "x", 1);

    assert_string_equal(a.token, "dibs:a");
    assert_string_equal(a.channel, "dibs:1");
    assert_int_equal(a.number, 1);
    assert_int_equal(a.lease_ms, 600000);
    assert_true(a.seen <= now && a.seen > now - 1000LL * LIMIT_MS);
    assert_true(b.order == a.order + 1);
    assert_true(server_integer(c->s, "PTTL dibs:queue:{lock:x}") > 1100000);
    /* A single try leaves no entry. */
    expect_taken(ask(c->s, "dibs:c", "1", ""));
    assert_int_equal(queue_size(c->s, "x"), 2);
    assert_int_equal(server_integer(c->s, "HLEN dibs:queue:{lock:x}"), 5);
}

/* The recorded expiry of the queue is in whole seconds, rounded down: the queue may live longer. */
TEST_IN_SCENE(a_short_lease_takes_no_life_from_the_queue)
{
    server_do(c->s, "HSET dibs:queue:{lock:x} %b %b", "", (size_t)0, "1 2 2 1", (size_t)7);
    server_do(c->s, "EVAL %s 3 " KEYS " dibs:c 1 20 dibs:1 0", dibs__scripts[DIBS__SCRIPT_acquire].text);
    assert_int_equal(queue_size(c->s, "x"), 3);
    assert_true(server_integer(c->s, "PTTL dibs:queue:{lock:x}") > 600000);
}

TEST_IN_SCENE(a_waiter_that_asks_again_keeps_its_place)
{
    queue_entry before = queue_at(c->s, "x", 0);

    expect_taken(ask(c->s, "dibs:a", "2", "dibs:1"));
    queue_entry after = queue_at(c->s, "x", 0);
    assert_string_equal(after.token, "dibs:a");
    assert_true(after.order == before.order);
    assert_int_equal(after.number, 2);
    assert_true(after.seen > before.seen);
    assert_int_equal(queue_size(c->s, "x"), 2);
}

/*
 * The order is that of arrival, whatever the server's clock says: each entry comes behind the last, even where all
 * others have left.
 */
TEST_IN_SCENE(the_queue_is_in_order_of_arrival)
{
    for (int i = 0; i < 20; i++)
        expect_taken(ask(c->s, formatted("dibs:%c", 'z' - i), "1", "dibs:1"));
    for (int i = 2; i < 22; i++) {
        assert_string_equal(queue_at(c->s, "x", i).token, formatted("dibs:%c", 'z' - (i - 2)));
        assert_true(queue_at(c->s, "x", i).order == queue_at(c->s, "x", i - 1).order + 1);
    }
}

TEST_IN_SCENE(an_ask_is_told_the_owner_and_who_listens)
{
    answer a = ask(c->s, "dibs:a", "2", "dibs:1");

    assert_int_equal(a.by_dibs, 0);
    assert_int_equal(a.listeners, 1);
    assert_int_equal(ask(c->s, "dibs:c", "1", "dibs:nobody's").listeners, 0);
    server_do(c->s, "SET lock:x dibs:somebody PX " LEASE);
    assert_int_equal(ask(c->s, "dibs:a", "3", "dibs:1").by_dibs, 1);
}

/* ---------------------------------------------------------------- the grants */

TEST_IN_SCENE(a_release_grants_the_head_and_tells_it)
{
    long long before = fence(c->s);

    expect_taken(ask(c->s, "dibs:a", "17", "dibs:1"));
    expect_release_to(c->s, "holder", "dibs:a");
    expect_fresh_lease(c->s);
    assert_true(fence(c->s) > before);
    expect_told(c->a, "17", fence(c->s), "dibs:a");
    assert_false(wait_event_heard_anything(c->b));
    assert_int_equal(queue_size(c->s, "x"), 1);
    assert_int_equal(server_integer(c->s, "HEXISTS dibs:queue:{lock:x} dibs:a"), 0);
    before = fence(c->s);
    expect_release_to(c->s, "dibs:a", "dibs:b");
    assert_true(fence(c->s) > before);
    expect_told(c->b, "1", fence(c->s), "dibs:b");
    assert_int_equal(release(c->s, "dibs:b"), 1);
    assert_false(server_has(c->s, "lock:x"));
    queue_assert_gone(c->s, "x");
}

/* Also where somebody listens by a pattern that matches the channel. A hint reaches whoever listens at another node. */
TEST_IN_SCENE(a_waiter_that_does_not_listen_is_passed_over)
{
    redisContext *elsewhere = wait_event_open(c->s, "dibs:[13]", true);

    wait_event_close(c->a);
    c->a = wait_event_open(c->s, "dibs:3", false);
    expect_release_to(c->s, "holder", "dibs:b");
    expect_told(c->b, "1", fence(c->s), "dibs:b");
    assert_string_equal(wait_event_hear(elsewhere), "1 0 6 dibs:alock:x");
    assert_false(wait_event_heard_anything(elsewhere));
    assert_int_equal(queue_size(c->s, "x"), 0);
    wait_event_close(elsewhere);
}

/* Its connection may have broken a moment ago. No release grants it the lock now, so nothing is lost if it stays. */
TEST_ON(a_waiter_that_does_not_listen_keeps_its_place_while_others_share_the_lock, fixture *f)
{
    server *s = f->server;

    assert_int_equal(ask_to_share(s, "dibs:r~0").code, 1);
    assert_int_equal(ask(s, "dibs:w", "1", "dibs:1").listeners, 0);
    expect_taken(ask_to_share(s, "dibs:s~0"));
    assert_int_equal(queue_size(s, "x"), 1);
    redisContext *wait_event = wait_event_open(s, "dibs:1", false);
    expect_release_to(s, "dibs:r~0", "dibs:w");
    expect_told(wait_event, "1", fence(s), "dibs:w");
    wait_event_close(wait_event);
    server_do(s, "DEL " KEYS);
}

/* ---------------------------------------------------------- sharded channels */

#define SHARDED "dibs:1:{lock:x}"

/* As wait_event_open, on a sharded channel. */
static redisContext *sharded_wait_event_open(server *s, const char *channel)
{
    redisContext *wait_event = redisConnectUnix(s->socket_path);

    assert_true(wait_event && !wait_event->err);
    redisReply *reply = redisCommand(wait_event, "SSUBSCRIBE %s", channel);
    assert_true(reply && reply->type == REDIS_REPLY_ARRAY);
    freeReplyObject(reply);
    return wait_event;
}

/* A channel that ends in } is one. */
TEST_ON(a_grant_is_told_on_a_sharded_channel, fixture *f)
{
    redisContext *wait_event = sharded_wait_event_open(f->server, SHARDED),
                 *plain = wait_event_open(f->server, "dibs:2", false);

    assert_int_equal(ask(f->server, "holder", "1", "").code, 1);
    assert_int_equal(ask(f->server, "dibs:a", "1", SHARDED).listeners, 1);
    assert_int_equal(ask(f->server, "dibs:b", "1", "dibs:2").listeners, 1);
    assert_int_equal(ask(f->server, "dibs:c", "1", SHARDED).listeners, 1);
    assert_int_equal(release(f->server, "holder"), 1);
    expect_told(wait_event, "1", fence(f->server), "dibs:a");
    assert_int_equal(release(f->server, "dibs:a"), 1);
    expect_told(plain, "1", fence(f->server), "dibs:b");
    assert_int_equal(release(f->server, "dibs:b"), 1);
    expect_told(wait_event, "1", fence(f->server), "dibs:c");
    server_do(f->server, "DEL " KEYS);
    wait_event_close(wait_event);
    wait_event_close(plain);
}

/* A subscriber of one kind of channel does not receive messages of the other. */
TEST_ON(a_waiter_without_a_listener_on_its_sharded_channel_is_passed_over, fixture *f)
{
    redisContext *wait_event = wait_event_open(f->server, "dibs:2", false);

    assert_int_equal(ask(f->server, "holder", "1", "").code, 1);
    assert_int_equal(ask(f->server, "dibs:a", "1", SHARDED).listeners, 0);
    assert_int_equal(ask(f->server, "dibs:b", "1", "dibs:2").listeners, 1);
    expect_release_to(f->server, "holder", "dibs:b");
    expect_told(wait_event, "1", fence(f->server), "dibs:b");
    assert_int_equal(ask(f->server, "dibs:c", "1", SHARDED).listeners, 0);
    assert_int_equal(release(f->server, "dibs:b"), 1);
    assert_false(server_has(f->server, "lock:x"));
    queue_assert_gone(f->server, "x");
    server_do(f->server, "DEL " KEYS);
    wait_event_close(wait_event);
}

/*
 * The waiter may listen at a server that the slot is leaving: a message on the runtime's own channel arrives
 * everywhere.
 */
TEST_ON(a_waiter_that_listens_at_another_node_gets_a_hint, fixture *f)
{
    redisContext *wait_event = wait_event_open(f->server, "dibs:1", false);

    assert_int_equal(ask(f->server, "holder", "1", "").code, 1);
    assert_int_equal(ask(f->server, "dibs:a", "7", SHARDED).listeners, 0);
    assert_int_equal(release(f->server, "holder"), 1);
    assert_string_equal(wait_event_hear(wait_event), "7 0 6 dibs:alock:x");
    assert_false(server_has(f->server, "lock:x"));
    queue_assert_gone(f->server, "x");
    server_do(f->server, "DEL " KEYS);
    wait_event_close(wait_event);
}

/* While the head is served, the listeners of the asker's own channel are counted, whether it is sharded or not. */
TEST_ON(an_ask_that_serves_another_counts_its_own_listeners, fixture *f)
{
    static const char *const channels[] = {SHARDED, "dibs:2", "dibs:3", "dibs:3:{lock:x}"};
    redisContext *wait_event = sharded_wait_event_open(f->server, SHARDED),
                 *plain = wait_event_open(f->server, "dibs:2", false);

    for (int i = 0; i < 2; i++) {
        for (size_t j = 0; j < sizeof channels / sizeof *channels; j++) {
            assert_int_equal(ask(f->server, "holder", "1", "").code, 1);
            expect_taken(ask(f->server, "dibs:a", "1", channels[i]));
            server_do(f->server, "DEL lock:x");
            answer a = ask(f->server, "dibs:b", "1", channels[j]);
            expect_taken(a);
            expect_owner(f->server, "dibs:a");
            assert_int_equal(a.listeners, j < 2);
            server_do(f->server, "DEL " KEYS);
        }
    }
    wait_event_close(wait_event);
    wait_event_close(plain);
}

/* ------------------------------------------- gaps, and a lock whose key is gone */

static void set_seen(server *s, const char *token, const char *channel, long long us_ago)
{
    server_do(s, "HSET dibs:queue:{lock:x} %d %s", strcmp(token, "dibs:a") == 0 ? 1 : 2,
              formatted("1 " LEASE " %lld %zu %s%s", queue_now(s) - us_ago, strlen(channel), channel, token));
}

TEST_IN_SCENE(a_waiter_silent_for_half_its_lease_is_passed_over)
{
    set_seen(c->s, "dibs:a", "dibs:1", 300001000);
    set_seen(c->s, "dibs:b", "dibs:2", 300000000 - 1000LL * LIMIT_MS);
    expect_release_to(c->s, "holder", "dibs:b");
    assert_false(wait_event_heard_anything(c->a));
    assert_int_equal(queue_size(c->s, "x"), 0);
}

TEST_IN_SCENE(a_lock_with_only_dead_waiters_is_free)
{
    set_seen(c->s, "dibs:a", "dibs:1", 300001000);
    set_seen(c->s, "dibs:b", "dibs:nobody's", 0);
    assert_int_equal(release(c->s, "holder"), 1);
    assert_false(server_has(c->s, "lock:x"));
    queue_assert_gone(c->s, "x");
    assert_int_equal(ask(c->s, "dibs:c", "1", "").code, 1);
}

/* Waiters that left the middle of the queue, however many, are passed over. */
TEST_IN_SCENE(gaps_in_the_queue_are_passed)
{
    for (int i = 0; i < 250; i++)
        expect_taken(ask(c->s, formatted("dibs:left%d", i), "1", "dibs:1"));
    expect_taken(ask(c->s, "dibs:c", "1", "dibs:2"));
    for (int i = 0; i < 250; i++)
        assert_int_equal(release(c->s, formatted("dibs:left%d", i)), -1);
    assert_int_equal(queue_size(c->s, "x"), 3);
    assert_string_equal(queue_at(c->s, "x", 2).token, "dibs:c");
    assert_int_equal(release(c->s, "holder"), 1);
    assert_int_equal(release(c->s, "dibs:a"), 1);
    expect_release_to(c->s, "dibs:b", "dibs:c");
    queue_assert_gone(c->s, "x");
}

/* The key is gone, by its expiry or by an operator: the next ask serves the queue first. */
TEST_IN_SCENE(a_newcomer_does_not_pass_the_queue)
{
    server_do(c->s, "DEL lock:x");
    expect_taken(ask(c->s, "dibs:c", "1", ""));
    expect_owner(c->s, "dibs:a");
    expect_told(c->a, "1", fence(c->s), "dibs:a");
    server_do(c->s, "DEL lock:x");
    expect_taken(ask(c->s, "dibs:c", "2", "dibs:1"));
    expect_owner(c->s, "dibs:b");
    expect_told(c->b, "1", fence(c->s), "dibs:b");
    assert_string_equal(queue_at(c->s, "x", 0).token, "dibs:c");
}

TEST_IN_SCENE(the_head_that_asks_is_granted_without_a_push)
{
    answer a;

    server_do(c->s, "DEL lock:x");
    a = ask(c->s, "dibs:a", "2", "dibs:1");
    assert_int_equal(a.code, 1);
    assert_int_equal(a.number, fence(c->s));
    expect_owner(c->s, "dibs:a");
    expect_fresh_lease(c->s);
    assert_int_equal(queue_size(c->s, "x"), 1);
    assert_false(wait_event_heard_anything(c->a));
    /* A waiter returns after a long time: its new ask counts, not the time before. */
    set_seen(c->s, "dibs:b", "dibs:2", 300001000);
    server_do(c->s, "DEL lock:x");
    assert_int_equal(ask(c->s, "dibs:b", "2", "dibs:2").code, 1);
    expect_owner(c->s, "dibs:b");
}

/* Releases that find nothing to release: after the lease ended, by another client, or sent twice. */
TEST_IN_SCENE(any_release_serves_the_queue_where_the_key_is_gone)
{
    server_do(c->s, "DEL lock:x");
    assert_int_equal(release(c->s, "holder"), 0);
    expect_owner(c->s, "dibs:a");
    assert_int_equal(release(c->s, "holder"), -1);
    expect_owner(c->s, "dibs:a");
    assert_int_equal(release(c->s, "dibs:a"), 1);
    assert_int_equal(release(c->s, "dibs:a"), -1);
    expect_owner(c->s, "dibs:b");
}

/* ------------------------------------------------ repeated asks and releases */

TEST_IN_SCENE(the_owner_that_asks_has_a_whole_lease)
{
    long long before = fence(c->s);

    server_do(c->s, "PEXPIRE lock:x 20000");
    assert_int_equal(ask(c->s, "holder", "2", "").code, 1);
    expect_fresh_lease(c->s);
    assert_int_equal(fence(c->s), before);
    assert_int_equal(queue_size(c->s, "x"), 2);
}

/* An owner's entry, after an ask or a push that was lost, would be granted once more. */
TEST_IN_SCENE(a_grant_takes_its_own_entry_out)
{
    server_do(c->s, "SET lock:x dibs:b PX " LEASE);
    assert_int_equal(ask(c->s, "dibs:b", "2", "dibs:2").code, 1);
    assert_int_equal(queue_size(c->s, "x"), 1);
    assert_string_equal(queue_at(c->s, "x", 0).token, "dibs:a");
}

TEST_IN_SCENE(a_release_takes_its_own_entry_out)
{
    assert_int_equal(release(c->s, "dibs:a"), -1);
    expect_owner(c->s, "holder");
    assert_int_equal(queue_size(c->s, "x"), 1);
    assert_int_equal(server_integer(c->s, "HEXISTS dibs:queue:{lock:x} dibs:a"), 0);
    expect_release_to(c->s, "holder", "dibs:b");
    assert_false(wait_event_heard_anything(c->a));
}

/* The owner waited at this master of a quorum when the others granted it the lock, and has been restored here since. */
TEST_IN_SCENE(a_release_takes_the_entry_of_its_owner_out)
{
    server_do(c->s, "SET lock:x dibs:b PX " LEASE);
    expect_release_to(c->s, "dibs:b", "dibs:a");
    assert_false(wait_event_heard_anything(c->b));
    queue_assert_gone(c->s, "x");
}

/* A snapshot brought back the queue in which the owner, whose lease was restored, once waited. */
TEST_IN_SCENE(a_release_does_not_grant_to_its_own_token)
{
    server_do(c->s, "SET lock:x dibs:a PX " LEASE);
    expect_release_to(c->s, "dibs:a", "dibs:b");
    assert_false(wait_event_heard_anything(c->a));
    queue_assert_gone(c->s, "x");
}

TEST_IN_SCENE(an_overtaken_ask_does_nothing)
{
    expect_taken(ask(c->s, "dibs:a", "12", "dibs:1"));
    assert_int_equal(ask(c->s, "dibs:a", "9", "dibs:2").code, -2);
    assert_int_equal(queue_at(c->s, "x", 0).number, 12);
    assert_string_equal(queue_at(c->s, "x", 0).channel, "dibs:1");
    server_do(c->s, "DEL lock:x");
    assert_int_equal(ask(c->s, "dibs:a", "11", "dibs:1").code, -2);
    assert_false(server_has(c->s, "lock:x"));
    assert_int_equal(ask(c->s, "dibs:a", "12", "dibs:1").code, 1);
}

TEST_IN_SCENE(a_late_ask_does_not_enter_the_queue)
{
    const char *past = formatted("%lld", queue_now(c->s) - 1);
    assert_int_equal(ask_late(c->s, "dibs:c", "1", "dibs:1", past).code, -1);
    assert_int_equal(queue_size(c->s, "x"), 2);
    server_do(c->s, "DEL lock:x");
    assert_int_equal(ask_late(c->s, "dibs:c", "2", "dibs:1", past).code, -1);
    assert_false(server_has(c->s, "lock:x"));
    assert_false(wait_event_heard_anything(c->a));
}

TEST_IN_SCENE(a_release_with_an_ask_queues_behind_the_waiters)
{
    long long released;

    for (int i = 0; i < 2; i++) { /* and safe to send again */
        expect_taken(requeue(c->s, "holder", "dibs:next", "1", "dibs:1", &released));
        assert_int_equal(released, i == 0 ? 1 : -1);
        expect_owner(c->s, "dibs:a");
        assert_int_equal(queue_size(c->s, "x"), 2);
        assert_string_equal(queue_at(c->s, "x", 0).token, "dibs:b");
        assert_string_equal(queue_at(c->s, "x", 1).token, "dibs:next");
    }
    expect_told(c->a, "1", fence(c->s), "dibs:a");
    assert_false(wait_event_heard_anything(c->a));
}

TEST_ON(a_release_with_an_ask_gets_a_lock_without_waiters, fixture *f)
{
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

/* As at a master of a quorum, where who waits is not granted the lock, but told to ask. */
TEST_ON(all_who_wait_to_share_are_told_to_ask, fixture *f)
{
    static const char *const tokens[] = {"dibs:a~0", "dibs:b~0"}, *const channels[] = {"dibs:1", "dibs:2"};
    redisContext *listen[2];

    assert_int_equal(ask(f->server, "holder", "1", "").code, 1);
    for (int i = 0; i < 2; i++) {
        listen[i] = wait_event_open(f->server, channels[i], false);
        freeReplyObject(server_command(f->server, "EVAL %s 3 " KEYS " %s 1 " LEASE " %s 0",
                                       dibs__scripts[DIBS__SCRIPT_acquire_member].text, tokens[i], channels[i]));
    }
    assert_int_equal(queue_size(f->server, "x"), 2);
    assert_int_equal(release(f->server, "holder"), 1);
    for (int i = 0; i < 2; i++) {
        expect_told(listen[i], "1", 0, tokens[i]);
        wait_event_close(listen[i]);
    }
    server_do(f->server, "DEL dibs:queue:{lock:x}");
}

/* It was looked at when a and b shared the lock; the process of b left, and shares it again with the same fence (rule
 * 70). */
TEST_ON(a_forced_unlock_of_all_ends_no_sharer_that_came_again, fixture *f)
{
    assert_int_equal(ask(f->server, "dibs:a~0", "1", "").code, 1);
    long long seen = ask(f->server, "dibs:b~0", "1", "").number;
    assert_int_equal(release(f->server, "dibs:a~0"), 4);
    assert_int_equal(release(f->server, "dibs:b~0"), 1);
    server_do(f->server, "SET lock:x dibs:b2~0 NX PX " LEASE);
    assert_int_equal(ask(f->server, "dibs:c~0", "1", "").code, 1);
    assert_int_equal(server_integer(f->server, "EVAL %s 3 " KEYS " 0 dibs:shared %lld dibs:b~0",
                                    dibs__scripts[DIBS__SCRIPT_force].text, seen),
                     0);
    assert_int_equal(server_integer(f->server, "EVAL %s 3 " KEYS " 0 dibs:shared %lld dibs:b2~0",
                                    dibs__scripts[DIBS__SCRIPT_force].text, seen),
                     1);
    assert_int_equal(release(f->server, "dibs:b2~0"), 0);
    assert_int_equal(release(f->server, "dibs:c~0"), 1);
}

/* Plain commands did not take K for the token, which waits by now, and whose answer was lost (rule 70). */
TEST_IN_SCENE(a_waiter_that_is_released_and_asks_keeps_its_place)
{
    long long released;

    expect_taken(requeue(c->s, "dibs:a", "dibs:a", "2", "dibs:1", &released));
    assert_int_equal(released, -1);
    expect_owner(c->s, "holder");
    assert_int_equal(queue_size(c->s, "x"), 2);
    assert_string_equal(queue_at(c->s, "x", 0).token, "dibs:a");
    assert_int_equal(queue_at(c->s, "x", 0).number, 2);
    assert_string_equal(queue_at(c->s, "x", 1).token, "dibs:b");
    expect_release_to(c->s, "holder", "dibs:a");
    expect_release_to(c->s, "dibs:a", "dibs:b");
}

/* Plain commands took K for the token, which another came to share before F was read (rule 70). */
TEST_ON(a_sharer_that_is_released_and_asks_has_a_new_fence, fixture *f)
{
    long long released, before;

    assert_int_equal(ask(f->server, "dibs:a~0", "1", "").code, 1);
    assert_int_equal(ask(f->server, "dibs:b~0", "1", "").code, 1);
    before = fence(f->server);
    answer again = requeue(f->server, "dibs:a~0", "dibs:a~0", "2", "dibs:1", &released);
    assert_int_equal(again.code, 1);
    assert_true(again.number > before);
    assert_int_equal(released, 1);
    assert_int_equal(release(f->server, "dibs:a~0"), 4);
    assert_int_equal(release(f->server, "dibs:b~0"), 1);
    assert_false(server_has(f->server, "lock:x"));
}

/* ----------------------------------------------------------- a forced unlock */

TEST_IN_SCENE(a_forced_unlock_grants_the_head)
{
    long long before = fence(c->s);

    assert_int_equal(force(c->s, "dibs:another"), 0);
    assert_int_equal(force(c->s, "dibs:a"), 0);
    expect_owner(c->s, "holder");
    assert_int_equal(fence(c->s), before);
    assert_int_equal(queue_size(c->s, "x"), 2);
    assert_int_equal(force(c->s, "holder"), 1);
    expect_owner(c->s, "dibs:a");
    assert_true(fence(c->s) > before);
    expect_told(c->a, "1", fence(c->s), "dibs:a");
    assert_int_equal(force(c->s, NULL), 1);
    expect_owner(c->s, "dibs:b");
    before = fence(c->s);
    assert_int_equal(force(c->s, NULL), 1);
    assert_false(server_has(c->s, "lock:x"));
    assert_true(fence(c->s) > before);
    assert_int_equal(force(c->s, NULL), 1);
}

TESTS(fixture_setup, fixture_teardown)
