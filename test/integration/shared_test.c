/* DIBS_SHARED: readers and writers, and semaphores, over runtimes and threads on one server. */
#include "support/child.h"
#include "support/fixture.h"
#include "support/process.h"
#include "support/queue.h"
#include "support/restart.h"
#include "support/script_server.h"
#include "support/tasks.h"
#include "support/tracking.h"

static const dibs_lock_options shared = {.flags = DIBS_SHARED};

static dibs_status share(dibs_runtime *rt, const char *name, int64_t wait_ms, uint32_t limit)
{
    return dibs_lock_with(rt, name, wait_ms, &(dibs_lock_options){.flags = DIBS_SHARED, .limit = limit});
}

/* ----------------------------------------------------------------- arguments */

TEST_ON(a_limit_needs_dibs_shared, fixture *f)
{
    fixture_open(f, 0);
    assert_status(DIBS_INVALID, dibs_lock_with(f->rt, "x", 0, &(dibs_lock_options){.limit = 1}));
    assert_true(strstr(dibs_last_error(), "limit") != NULL);
    assert_status(DIBS_INVALID, dibs_lock_with(f->rt, "x", 0, &(dibs_lock_options){.flags = DIBS_FAIR, .limit = 3}));
    assert_status(DIBS_OK, share(f->rt, "x", 0, UINT32_MAX));
    assert_true(owner_of(f->rt, "x").token[0] != '\0');
    assert_status(DIBS_OK, dibs_force_unlock(f->rt, "x", owner_of(f->rt, "x").token));
    assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
}

/* ----------------------------------------------------------------- re-entries */

TEST_ON(a_sharer_re_enters_only_shared, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    assert_status(DIBS_OK, share(f->rt, "x", 0, 0));
    assert_true(hold_of(f->rt, "x").shared);
    assert_status(DIBS_OK, share(f->rt, "x", DIBS_WAIT_FOREVER, 0));
    assert_status(DIBS_OK, share(f->rt, "x", 0, 1));
    assert_int_equal(hold_of(f->rt, "x").count, 3);
    assert_status(DIBS_BUSY, dibs_timedlock(f->rt, "x", 300)); /* whatever the wait */
    assert_true(strstr(dibs_last_error(), "shares") != NULL);
    assert_status(DIBS_BUSY, dibs_trylock(f->rt, "x"));
    assert_status(DIBS_BUSY, dibs_lock_with(f->rt, "x", 300, &(dibs_lock_options){.flags = DIBS_FAIR}));
    assert_status(DIBS_BUSY, dibs_lock(f->rt, "x"));
    assert_status(DIBS_BUSY,
                  dibs_lock_with(f->rt, "x", 0, &(dibs_lock_options){.flags = DIBS_SHARED | DIBS_NO_REENTRY}));
    assert_int_equal(hold_of(f->rt, "x").count, 3);
    for (int i = 0; i < 3; i++)
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    lock_and_release(f->rt, "x", DIBS_WAIT_FOREVER);
}

TEST_ON(a_writer_re_enters_either_way_and_stays_alone, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *other = test_runtime(open_runtime(f->server, LONG_LEASE_MS));
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    assert_status(DIBS_OK, share(f->rt, "x", 0, 1));
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    assert_false(hold_of(f->rt, "x").shared);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    actor *a = actor_start();
    assert_status(DIBS_BUSY, actor_lock_with(a, other, "x", 0, &shared));
    assert_int_equal(owner_of(f->rt, "x").sharers, 0);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
}

/* ------------------------------------------------------------ tokens, sharers */

/* By its token the thread finds itself among others. */
TEST_ON(a_holder_knows_its_token, fixture *f)
{
    char token[sizeof((dibs_owner *)0)->token];
    dibs_sharer out[3];
    size_t count;

    fixture_open(f, LONG_LEASE_MS);
    actor *a = actor_start();
    assert_status(DIBS_NOT_HELD, dibs_token_of(f->rt, "x", token));
    assert_string_equal(token, "");
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    assert_status(DIBS_OK, dibs_token_of(f->rt, "x", token));
    assert_string_equal(token, owner_of(f->rt, "x").token);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    assert_status(DIBS_OK, share(f->rt, "x", 0, 2));
    assert_status(DIBS_OK, actor_lock_with(a, f->rt, "x", 0, &shared));
    assert_status(DIBS_OK, dibs_token_of(f->rt, "x", token));
    assert_string_not_equal(token, owner_of(f->rt, "x").token);
    assert_status(DIBS_OK, dibs_query_sharers(f->rt, "x", out, 3, &count));
    assert_int_equal(count, 2);
    assert_string_equal(out[1].token, token);
    dibs_hold hold = hold_of(f->rt, "x");
    assert_int_equal(out[1].fence, hold.fence);
    assert_status(DIBS_OK, actor_unlock(a, f->rt, "x"));
    assert_status(DIBS_OK, dibs_force_unlock(f->rt, "x", token));
    await_lost(f->rt, "x");
    assert_status(DIBS_LOST, dibs_token_of(f->rt, "x", token));
    assert_string_equal(token, out[1].token);
    assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
}

static void close_it(void *rt)
{
    dibs_close(rt);
}

TEST_ON(sharing_refuses_wrong_arguments, fixture *f)
{
    char token[sizeof((dibs_owner *)0)->token];
    dibs_sharer out[1];
    size_t count = 99;

    fixture_open(f, LONG_LEASE_MS);
    assert_status(DIBS_INVALID, dibs_query_sharers(f->rt, "x", out, 1, NULL));
    assert_status(DIBS_INVALID, dibs_query_sharers(f->rt, "x", NULL, 1, &count));
    assert_int_equal(count, 0);
    assert_status(DIBS_INVALID, dibs_query_sharers(f->rt, "x", out, 0, &count));
    assert_status(DIBS_INVALID, dibs_query_sharers(f->rt, "x", out, DIBS_SHARERS_MAX + 1, &count));
    assert_status(DIBS_INVALID, dibs_query_sharers(f->rt, "", out, 1, &count));
    assert_status(DIBS_INVALID, dibs_query_sharers(NULL, "x", out, 1, &count));
    assert_status(DIBS_INVALID, dibs_token_of(f->rt, "", token));
    assert_string_equal(token, "");
    assert_status(DIBS_INVALID, dibs_token_of(NULL, "x", token));
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    dibs_runtime *closed = f->rt;
    actor *a = actor_start();
    actor_begin(a, close_it, f->rt);
    actor_finish(a);
    f->rt = NULL;
    assert_status(DIBS_LOST, dibs_token_of(closed, "x", token));
    assert_string_equal(token, "");
    assert_status(DIBS_LOST, dibs_unlock(closed, "x"));
}

/* ------------------------------------------------------- readers and writers */

enum { READERS = 4 };

/* The readers belong to one process and to two. */
TEST_ON(readers_share_and_a_writer_waits_for_all, fixture *f)
{
    actor *readers[READERS], *writer = actor_start(), *late = actor_start();
    uint64_t fence = 0;
    dibs_hold hold;

    fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *second = test_runtime(open_runtime(f->server, LONG_LEASE_MS));
    for (int i = 0; i < READERS; i++) {
        readers[i] = actor_start();
        assert_status(DIBS_OK, actor_lock_with(readers[i], i % 2 ? f->rt : second, "x", 0, &shared));
        assert_status(DIBS_OK, actor_hold(readers[i], i % 2 ? f->rt : second, "x", &hold));
        assert_true(hold.shared && hold.fence > fence);
        fence = hold.fence;
    }
    dibs_owner owner = owner_of(f->rt, "x");
    assert_int_equal(owner.sharers, READERS);
    assert_true(owner.held && owner.fence == fence);
    actor_begin_lock(writer, f->rt, "x", DIBS_WAIT_FOREVER);
    queue_await(f->server, "x", 1);
    assert_status(DIBS_BUSY, actor_lock_with(late, second, "x", 0, &shared));
    actor_begin_lock_with(late, second, "x", DIBS_WAIT_FOREVER, &shared);
    queue_await(f->server, "x", 2);
    for (int i = 0; i < READERS; i++) {
        assert_true(actor_busy(writer));
        assert_status(DIBS_OK, actor_unlock(readers[i], i % 2 ? f->rt : second, "x"));
    }
    assert_status(DIBS_OK, actor_result(writer));
    assert_true(actor_busy(late));
    assert_status(DIBS_OK, actor_hold(writer, f->rt, "x", &hold));
    assert_true(!hold.shared && hold.fence > fence);
    assert_status(DIBS_OK, actor_unlock(writer, f->rt, "x"));
    actor_gets(late, second, "x");
}

/* One script lets all of them in, and each is told at once: the waits have no limit. */
TEST_ON(all_readers_are_let_in_when_a_writer_leaves, fixture *f)
{
    actor *readers[READERS];

    fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *second = test_runtime(open_runtime(f->server, LONG_LEASE_MS));
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    for (int i = 0; i < READERS; i++) {
        readers[i] = actor_start();
        actor_begin_lock_with(readers[i], i % 2 ? f->rt : second, "x", DIBS_WAIT_FOREVER, &shared);
        queue_await(f->server, "x", i + 1);
    }
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    for (int i = 0; i < READERS; i++)
        assert_status(DIBS_OK, actor_result(readers[i]));
    assert_int_equal(owner_of(f->rt, "x").sharers, READERS);
    for (int i = 0; i < READERS; i++)
        assert_status(DIBS_OK, actor_unlock(readers[i], i % 2 ? f->rt : second, "x"));
}

TEST_ON(a_semaphore_grants_no_more_than_its_permits, fixture *f)
{
    enum { PERMITS = 3 };
    const dibs_lock_options permit = {.flags = DIBS_SHARED | DIBS_FAIR, .limit = PERMITS};
    actor *workers[PERMITS + 1];

    fixture_open(f, LONG_LEASE_MS);
    for (int i = 0; i <= PERMITS; i++)
        workers[i] = actor_start();
    for (int i = 0; i < PERMITS; i++)
        assert_status(DIBS_OK, actor_lock_with(workers[i], f->rt, "x", 0, &permit));
    assert_status(DIBS_BUSY, actor_lock_with(workers[PERMITS], f->rt, "x", 0, &permit));
    actor_begin_lock_with(workers[PERMITS], f->rt, "x", DIBS_WAIT_FOREVER, &permit);
    queue_await(f->server, "x", 1);
    assert_status(DIBS_OK, actor_unlock(workers[1], f->rt, "x"));
    assert_status(DIBS_OK, actor_result(workers[PERMITS]));
    assert_int_equal(owner_of(f->rt, "x").sharers, PERMITS);
    for (int i = 0; i <= PERMITS; i++) {
        if (i != 1)
            assert_status(DIBS_OK, actor_unlock(workers[i], f->rt, "x"));
        actor_end(workers[i]);
    }
}

/* A thread that gives up leaves nothing, and those behind it do not wait for it. */
TEST_ON(a_writer_that_gives_up_lets_readers_in, fixture *f)
{
    actor *writer = actor_start(), *reader = actor_start();

    fixture_open(f, LONG_LEASE_MS);
    assert_status(DIBS_OK, share(f->rt, "x", 0, 0));
    actor_begin_lock(writer, f->rt, "x", LIMIT_MS / 8);
    queue_await(f->server, "x", 1);
    actor_begin_lock_with(reader, f->rt, "x", DIBS_WAIT_FOREVER, &shared);
    queue_await(f->server, "x", 2);
    assert_status(DIBS_OK, actor_result(reader));
    assert_status(DIBS_TIMEOUT, actor_result(writer));
    assert_status(DIBS_OK, actor_unlock(reader, f->rt, "x"));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    queue_assert_gone(f->server, "x");
}

/* ------------------------------------------------------------- foreign clients */

static bool set_nx(server *s)
{
    redisReply *reply = server_command(s, "SET lock:x foreign NX PX 100000");
    bool set = reply->type == REDIS_REPLY_STATUS;

    freeReplyObject(reply);
    return set;
}

TEST_ON(a_foreign_client_finds_the_key_as_long_as_anybody_shares, fixture *f)
{
    actor *a = actor_start();

    fixture_open(f, LONG_LEASE_MS);
    assert_status(DIBS_OK, share(f->rt, "x", 0, 0));
    assert_false(set_nx(f->server));
    assert_status(DIBS_OK, actor_lock_with(a, f->rt, "x", 0,
                                           &(dibs_lock_options){.flags = DIBS_SHARED, .lease_ms = 2 * LONG_LEASE_MS}));
    assert_in_range(server_integer(f->server, "PTTL lock:x"), LONG_LEASE_MS + 1, 2 * LONG_LEASE_MS);
    assert_status(DIBS_OK, actor_unlock(a, f->rt, "x"));
    assert_in_range(server_integer(f->server, "PTTL lock:x"), 1, LONG_LEASE_MS);
    assert_false(set_nx(f->server));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    assert_true(set_nx(f->server));
    assert_status(DIBS_BUSY, share(f->rt, "x", 0, 0));
    assert_string_equal(dibs_last_error(), "somebody else holds \"x\", or came before and waits for it");
    assert_status(DIBS_TIMEOUT, share(f->rt, "x", 500, 0));
    assert_non_null(
        strstr(dibs_last_error(), "somebody else held \"x\", or came before and waited for it, for all of 500 ms"));
    assert_status(DIBS_BUSY, share(f->rt, "x", 0, 3));
    assert_string_equal(dibs_last_error(),
                        "somebody else holds \"x\", or came before and waits for it, or its limit is reached");
    server_do(f->server, "DEL lock:x");
}

/* Sharers whose key was deleted have no part in the lock any more. */
TEST_ON(a_key_that_was_deleted_takes_its_sharers_along, fixture *f)
{
    actor *a = actor_start();

    fixture_open(f, LONG_LEASE_MS);
    assert_status(DIBS_OK, share(f->rt, "x", 0, 2));
    server_do(f->server, "DEL lock:x");
    assert_status(DIBS_OK, actor_lock_with(a, f->rt, "x", 0, &shared));
    assert_int_equal(owner_of(f->rt, "x").sharers, 1);
    assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
    assert_int_equal(owner_of(f->rt, "x").sharers, 1);
    assert_status(DIBS_OK, actor_check(a, f->rt, "x"));
    assert_status(DIBS_OK, actor_unlock(a, f->rt, "x"));
}

/* -------------------------------------------------------- leases and losses */

TEST_ON(each_sharers_lease_is_renewed_and_extended_by_itself, fixture *f)
{
    actor *a = actor_start();
    dibs_hold hold;

    fixture_open(f, SAFE_LEASE_MS);
    assert_status(DIBS_OK, share(f->rt, "x", 0, 0));
    assert_status(DIBS_OK, actor_lock_with(a, f->rt, "x", 0, &shared));
    assert_status(DIBS_OK, actor_extend(a, f->rt, "x", LONG_LEASE_MS));
    assert_status(DIBS_OK, actor_hold(a, f->rt, "x", &hold));
    assert_true(hold.remaining_ms > SAFE_LEASE_MS);
    assert_in_range(hold_of(f->rt, "x").remaining_ms, 1, SAFE_LEASE_MS);
    await_renewed(f->rt, 2);
    assert_in_range(server_integer(f->server, "PTTL lock:x"), SAFE_LEASE_MS + 1, LONG_LEASE_MS);
    assert_status(DIBS_OK, actor_unlock(a, f->rt, "x"));
    assert_in_range(server_integer(f->server, "PTTL lock:x"), 1, SAFE_LEASE_MS);
    assert_status(DIBS_OK, dibs_check(f->rt, "x"));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
}

/* As those of a lock that is held alone do. */
TEST_ON(sharers_leases_are_renewed_and_extended_on_a_full_server, fixture *f)
{
    actor *a = actor_start();

    fixture_open(f, SAFE_LEASE_MS);
    assert_status(DIBS_OK, share(f->rt, "x", 0, 0));
    assert_status(DIBS_OK, actor_lock_with(a, f->rt, "x", 0, &shared));
    server_set_memory_out(f->server, true);
    await_renewed(f->rt, 4);
    assert_status(DIBS_OK, actor_extend(a, f->rt, "x", LONG_LEASE_MS));
    assert_status(DIBS_OK, dibs_check(f->rt, "x"));
    assert_status(DIBS_STORE_ERROR, share(f->rt, "other", 0, 0)); /* the server is full indeed */
    assert_status(DIBS_OK, actor_unlock(a, f->rt, "x"));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    server_set_memory_out(f->server, false);
}

TEST_ON(a_release_on_a_full_server_lets_those_in_who_wait_to_share, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    dibs_task *readers[2] = {task_of_runtime(f->rt), task_of_runtime(f->rt)};
    dibs_queue *q = test_queue(queue_new());
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    for (int i = 0; i < 2; i++) {
        begin_lock(readers[i], "x", DIBS_WAIT_FOREVER, &shared, q);
        queue_await(f->server, "x", i + 1);
    }
    server_set_memory_out(f->server, true);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    for (int i = 0; i < 2; i++)
        assert_status(DIBS_OK, next_done(q).status);
    assert_int_equal(owner_of(f->rt, "x").sharers, 2);
    for (int i = 0; i < 2; i++)
        assert_status(DIBS_OK, task_unlock(readers[i], "x", q));
    server_set_memory_out(f->server, false);
    for (int i = 0; i < 2; i++)
        dibs_task_free(readers[i]);
}

/* The holder counts the lease from before its ask, so it ends a little sooner than in the store. */
TEST_ON(a_sharers_fixed_lease_ends_and_the_others_go_on, fixture *f)
{
    const dibs_lock_options brief = {.flags = DIBS_SHARED | DIBS_FIXED_LEASE, .lease_ms = 200};
    actor *a = actor_start();

    fixture_open(f, LONG_LEASE_MS);
    assert_status(DIBS_OK, actor_lock_with(a, f->rt, "x", 0, &shared));
    /* A grant that takes longer than the lease is given back, and the lock is asked for again. */
    assert_status(DIBS_OK, dibs_lock_with(f->rt, "x", LIMIT_MS, &brief));
    await_lost(f->rt, "x");
    assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
    assert_status(DIBS_OK, actor_check(a, f->rt, "x"));
    await_or_say(owner_of(f->rt, "x").sharers == 1, "the other lease does not end in the store");
    assert_status(DIBS_OK, actor_unlock(a, f->rt, "x"));
}

struct couple {
    fixture *fixture;
    actor *other;
};

/*
 * Each of the two comes while the other holds the lock, so neither is ever the last to leave, nor the one with the
 * longest lease.
 */
static bool have_taken_the_dead_out(const struct couple *couple)
{
    dibs_runtime *rt = couple->fixture->rt;

    assert_status(DIBS_OK, actor_lock_with(couple->other, rt, "x", 0, &shared));
    assert_status(DIBS_OK, dibs_unlock(rt, "x"));
    assert_status(DIBS_OK, share(rt, "x", 0, 0));
    assert_status(DIBS_OK, actor_unlock(couple->other, rt, "x"));
    return server_integer(couple->fixture->server, "ZCOUNT dibs:share:{lock:x} -1 -1") == 0;
}

/* Otherwise the entries of killed sharers would accumulate as long as the lock is shared without a break. */
TEST(newcomers_remove_dead_sharers)
{
    struct couple couple = {*state, actor_start()};

    fixture_open(couple.fixture, LONG_LEASE_MS);
    dibs_runtime *rt = couple.fixture->rt;
    assert_status(DIBS_OK, actor_lock_with(couple.other, rt, "x", 0, &shared));
    assert_status(DIBS_OK, share(rt, "x", 0, 0));
    assert_status(DIBS_OK, actor_unlock(couple.other, rt, "x"));
    server_do(couple.fixture->server, "ZADD dibs:share:{lock:x} -1 +dibs:dead~0 1 -dibs:dead~0");
    await_or_say(have_taken_the_dead_out(&couple), "a dead sharer stays");
    assert_status(DIBS_OK, dibs_unlock(rt, "x"));
}

/* The calling thread shares x, and so do as many whose leases are over. The account has the rights of ACCOUNTS.md. */
static void share_beside_dead(fixture *f, actor *other, int dead)
{
    server_do(f->server, "ACL SETUSER default -zcount");
    fixture_open(f, LONG_LEASE_MS);
    assert_status(DIBS_OK, actor_lock_with(other, f->rt, "x", 0, &shared));
    assert_status(DIBS_OK, share(f->rt, "x", 0, 0));
    assert_status(DIBS_OK, actor_unlock(other, f->rt, "x"));
    for (int i = 0; i < dead; i++)
        server_do(f->server, "ZADD dibs:share:{lock:x} -1 +dibs:%d~0 1 -dibs:%d~0", i, i);
}

/* More than a script takes out at a time. */
TEST_ON(many_dead_sharers_do_not_keep_the_lock, fixture *f)
{
    enum { DEAD = 1700 };
    actor *other = actor_start();

    share_beside_dead(f, other, DEAD);
    unlock_for_good(f, "x");
    lock_and_release(f->rt, "x", 0);
}

/* It was not counted any more, though its entry was still there. */
TEST_ON(a_dead_sharer_that_is_taken_out_takes_no_other_along, fixture *f)
{
    enum { DEAD = 1200 };
    actor *other = actor_start();

    share_beside_dead(f, other, DEAD);
    (void)dibs_force_unlock(f->rt, "x", "dibs:999~0");
    assert_true(server_has(f->server, "lock:x"));
    assert_status(DIBS_BUSY, actor_lock(other, f->rt, "x", 0));
    assert_status(DIBS_OK, dibs_check(f->rt, "x"));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
}

/* ------------------------------------------------------------ a right is missing */

static dibs_runtime *open_without(fixture *f, const char *command)
{
    server_do(f->server, "ACL SETUSER less reset on >pw ~* &* +@all -%s", command);
    return open_url(formatted("unix://less:pw@%s", f->server->socket_path), &(dibs_config){.lease_ms = LONG_LEASE_MS});
}

/* The script of an ask writes before it meets the command that is refused: what it wrote is taken back. */
TEST_ON(a_refused_sharer_leaves_nothing_behind, fixture *f)
{
    static const char *const rights[] = {"pexpire", "pttl"};
    const dibs_lock_options permit = {.flags = DIBS_SHARED, .limit = 3};
    actor *others[] = {actor_start(), actor_start()};

    fixture_open(f, LONG_LEASE_MS);
    for (size_t i = 0; i < sizeof rights / sizeof *rights; i++) {
        dibs_runtime *less = open_without(f, rights[i]);
        assert_status(DIBS_DENIED, dibs_lock_with(less, "x", 0, &permit));
        await_or_say(server_integer(f->server, "EXISTS lock:x dibs:queue:{lock:x} dibs:share:{lock:x}") == 0,
                     "without %s", rights[i]);
        for (int j = 0; j < 2; j++)
            assert_status(DIBS_OK, actor_lock_with(others[j], f->rt, "x", 0, &permit));
        dibs_status without = dibs_lock_with(less, "x", 0, &permit);
        assert_true(without == DIBS_OK || without == DIBS_DENIED);
        for (int j = 0; j < 2; j++)
            assert_status(DIBS_OK, actor_unlock(others[j], f->rt, "x"));
        bool is_released = dibs_unlock(less, "x") == DIBS_OK; /* otherwise it is taken back in the background */
        await_or_say(is_released || !server_has(f->server, "lock:x"), "without %s", rights[i]);
        server_do(f->server, "DEL dibs:share:{lock:x}");
        dibs_close(less);
    }
}

/* The script meets the refused command when the asker is in the queue. */
TEST_ON(a_refused_waiter_for_sharers_leaves_the_queue, fixture *f)
{
    actor *others[] = {actor_start(), actor_start()};

    fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *less = open_without(f, "zrange");
    for (int j = 0; j < 2; j++)
        assert_status(DIBS_OK, actor_lock_with(others[j], f->rt, "x", 0, &shared));
    assert_status(DIBS_DENIED, dibs_timedlock(less, "x", LIMIT_MS));
    await_that(!server_has(f->server, "dibs:queue:{lock:x}"));
    for (int j = 0; j < 2; j++)
        assert_status(DIBS_OK, actor_unlock(others[j], f->rt, "x"));
    dibs_close(less);
}

/*
 * The answer to the ask of the first sharer is lost. Before it asks again, the server loses the fence, and another
 * comes to share the lock.
 */
TEST_ON(a_sharer_that_asks_again_has_a_fence_though_the_server_lost_it, fixture *f)
{
    script_server *net = fixture_between(f);
    dibs_runtime *far = test_runtime(open_url(script_server_url(net), &(dibs_config){.lease_ms = LONG_LEASE_MS}));
    actor *asker = actor_start(), *other = actor_start();
    dibs_hold hold;

    fixture_open(f, LONG_LEASE_MS);
    script_server_add(net, (script_rule){.match = ASK_OR_RELEASE_OF_X, .nth = 1, .action = SCRIPT_STALL_REPLY});
    actor_begin_lock_with(asker, far, "x", LIMIT_MS, &shared);
    await_that(server_has(f->server, "lock:x"));
    server_do(f->server, "DEL dibs:fence:{lock:x}");
    assert_status(DIBS_OK, actor_lock_with(other, f->rt, "x", 0, &shared));
    server_do(f->server, "CLIENT KILL TYPE normal");
    assert_status(DIBS_OK, actor_result(asker));
    assert_status(DIBS_OK, actor_hold(asker, far, "x", &hold));
    assert_true(hold.fence > 0);
    assert_status(DIBS_OK, actor_unlock(asker, far, "x"));
    assert_status(DIBS_OK, actor_unlock(other, f->rt, "x"));
    assert_false(server_has(f->server, "lock:x"));
}

/*
 * Two share the lock; the one with the longer lease leaves after the waiter has asked, and the other is dead by then.
 * The waiter's own lease is so long that it would not ask again before the end of the test.
 */
TEST_ON(a_waiter_comes_again_when_the_first_of_the_leases_is_over, fixture *f)
{
    process *team = process_start((const char *const[]){program_path("team"), NULL});

    fixture_open(f, LONG_LEASE_MS);
    assert_status(DIBS_OK, share(f->rt, "x", 0, 0));
    assert_string_equal(process_ask(team, "open %s %d", f->server->url, LEASE_MS), "DIBS_OK ");
    assert_string_equal(process_ask(team, "lock 0 x 0 %u", DIBS_SHARED), "0 DIBS_OK ");
    actor *waiter = actor_locking(f->rt, "x", 3 * LIMIT_MS);
    queue_await(f->server, "x", 1);
    queue_await_listening(f->server, queue_at(f->server, "x", 0).channel);
    process_kill(team);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    await_that(!actor_busy(waiter));
    actor_gets(waiter, f->rt, "x");
    process_free(team);
}

/* The server may evict the sorted set. Whoever shares the lock still counts on it. */
TEST_ON(nobody_is_let_in_where_it_is_not_known_who_shares, fixture *f)
{
    actor *other = actor_start(), *late = actor_start();

    fixture_open(f, LONG_LEASE_MS);
    assert_status(DIBS_OK, share(f->rt, "x", 0, 0));
    assert_status(DIBS_OK, actor_lock_with(other, f->rt, "x", 0, &shared));
    server_do(f->server, "DEL dibs:share:{lock:x}");
    for (int i = 0; i < 8; i++)
        assert_status(DIBS_BUSY, actor_lock_with(late, f->rt, "x", 0, &shared));
    assert_false(server_has(f->server, "dibs:share:{lock:x}"));
    server_do(f->server, "DEL lock:x");
    assert_status(DIBS_LOST, actor_unlock(other, f->rt, "x"));
    assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
}

/* All who share are told at once that the key is gone. */
TEST_ON(a_deleted_key_is_told_to_all_sharers, fixture *f)
{
    actor *a = actor_start();

    fixture_open_patient(f, 0);
    dibs_runtime *second = test_runtime(open_runtime(f->server, 0));
    assert_status(DIBS_OK, share(f->rt, "x", 0, 0));
    assert_status(DIBS_OK, actor_lock_with(a, second, "x", 0, &shared));
    await_tracked(f->server, f->rt, 2);
    await_tracked(f->server, second, 2);
    int64_t since = now_ms();
    server_do(f->server, "DEL lock:x");
    await_that(dibs_check(f->rt, "x") == DIBS_LOST);
    assert_true(now_ms() - since < SOON_MS);
    while (actor_check(a, second, "x") != DIBS_LOST)
        assert_true(now_ms() - since < SOON_MS);
    assert_status(DIBS_LOST, actor_unlock(a, second, "x"));
    assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
}

/* The sharer that is forced out is told at once, and no other loses its lock. */
TEST_ON(a_forced_unlock_of_one_sharer_is_told_to_it_alone, fixture *f)
{
    actor *a = actor_start();

    fixture_open_patient(f, 0);
    dibs_runtime *second = test_runtime(open_runtime(f->server, 0));
    assert_status(DIBS_OK, share(f->rt, "x", 0, 0));
    dibs_owner first = owner_of(f->rt, "x");
    assert_status(DIBS_OK, actor_lock_with(a, second, "x", 0, &shared));
    await_tracked(f->server, f->rt, 2);
    await_tracked(f->server, second, 2);
    int64_t since = now_ms();
    assert_status(DIBS_OK, dibs_force_unlock(second, "x", first.token));
    await_that(dibs_check(f->rt, "x") == DIBS_LOST);
    assert_true(now_ms() - since < SOON_MS);
    assert_int_equal(owner_of(second, "x").sharers, 1);
    assert_status(DIBS_OK, actor_check(a, second, "x"));
    assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
    assert_status(DIBS_OK, actor_unlock(a, second, "x"));
    assert_int_equal(stats_of(second).lost, 0);
}

/* The retraction of a waiter changes the key, and the server does not tell the connection that did it. */
TEST_ON(a_sharer_that_let_others_in_is_still_told_of_losses, fixture *f)
{
    actor *writer = actor_start(), *reader = actor_start();

    fixture_open_patient(f, 0);
    dibs_runtime *second = test_runtime(open_runtime(f->server, 0));
    assert_status(DIBS_OK, share(f->rt, "x", 0, 0));
    await_tracked(f->server, f->rt, 1);
    actor_begin_lock(writer, f->rt, "x", DIBS_WAIT_FOREVER);
    queue_await(f->server, "x", 1);
    actor_begin_lock_with(reader, second, "x", DIBS_WAIT_FOREVER, &shared);
    queue_await(f->server, "x", 2);
    await_tracked(f->server, f->rt, 1); /* it was told that the reader came, and has looked */
    int64_t since = now_ms();
    dibs_shutdown(f->rt);
    assert_status(DIBS_CLOSED, actor_result(writer));
    assert_status(DIBS_OK, actor_result(reader));
    await_tracked(f->server, f->rt, 2);
    assert_true(now_ms() - since < SOON_MS);
    since = now_ms();
    server_do(f->server, "DEL lock:x");
    await_that(dibs_check(f->rt, "x") == DIBS_LOST);
    assert_true(now_ms() - since < SOON_MS);
    assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
    assert_status(DIBS_LOST, actor_unlock(reader, second, "x"));
}

/* Renewals change the key, and all sharers are told: they look, and change nothing in turn. */
TEST_ON(sharers_do_not_renew_because_of_renewals, fixture *f)
{
    actor *a = actor_start();

    fixture_open_patient(f, 3 * SAFE_LEASE_MS);
    dibs_runtime *second = test_runtime(open_runtime(f->server, 3 * SAFE_LEASE_MS));
    assert_status(DIBS_OK, share(f->rt, "x", 0, 0));
    assert_status(DIBS_OK, actor_lock_with(a, second, "x", 0, &shared));
    await_tracked(f->server, f->rt, 2);
    await_tracked(f->server, second, 2);
    uint64_t before = stats_of(f->rt).renewed + stats_of(second).renewed;
    pause_ms(3 * SAFE_LEASE_MS);
    await_invalidations(second, 1);
    uint64_t renewed = stats_of(f->rt).renewed + stats_of(second).renewed - before;
    print_message("# %llu renewals\n", (unsigned long long)renewed);
    assert_true(renewed < 60); /* some 6; else each has the other renew every few ms */
    assert_status(DIBS_OK, dibs_check(f->rt, "x"));
    assert_status(DIBS_OK, actor_check(a, second, "x"));
    assert_status(DIBS_OK, actor_unlock(a, second, "x"));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
}

/* ----------------------------------------------------------------- restarts */

static bool all_share(dibs_runtime *rt)
{
    dibs_owner owner;

    return dibs_query(rt, "x", &owner) == DIBS_OK && owner.sharers == READERS;
}

/* The server forgets everything, twice; then all is as before. */
TEST_ON(sharers_restore_their_leases, fixture *f)
{
    actor *readers[READERS];

    fixture_open(f, LEASE_MS);
    dibs_runtime *second = test_runtime(open_runtime(f->server, LEASE_MS));
    for (int i = 0; i < READERS; i++) {
        readers[i] = actor_start();
        assert_status(DIBS_OK, actor_lock_with(readers[i], i % 2 ? f->rt : second, "x", 0, &shared));
    }
    uint64_t fence = owner_of(f->rt, "x").fence;
    for (int i = 0; i < 2; i++) {
        restart(f->server);
        await_that(all_share(f->rt));
        assert_int_equal(owner_of(f->rt, "x").fence, fence);
    }
    for (int i = 0; i < READERS; i++) {
        assert_status(DIBS_OK, actor_check(readers[i], i % 2 ? f->rt : second, "x"));
        assert_status(DIBS_OK, actor_unlock(readers[i], i % 2 ? f->rt : second, "x"));
    }
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    assert_true(fence_of(f->rt, "x") > fence);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    assert_int_equal(stats_of(f->rt).lost + stats_of(second).lost, 0);
}

/* A process that shares x, and is stopped while the server loses its data. */
static process *share_and_stop(fixture *f)
{
    process *team = process_start((const char *const[]){program_path("team"), NULL});

    assert_string_equal(process_ask(team, "open %s %d", f->server->url, LEASE_MS), "DIBS_OK ");
    assert_string_equal(process_ask(team, "lock 0 x 0 %u", DIBS_SHARED), "0 DIBS_OK ");
    process_pause(team);
    restart(f->server);
    return team;
}

/* No client held the lock exclusively meanwhile, however many shared it and left. */
TEST_ON(a_sharer_is_restored_beside_new_sharers, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    for (int stay = 0; stay < 2; stay++) {
        process *old = share_and_stop(f);
        for (int i = 0; i < 3; i++) {
            assert_status(DIBS_OK, share(f->rt, "x", LIMIT_MS, 0));
            if (i < 2 || !stay)
                assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
        }
        process_resume(old);
        await_that(owner_of(f->rt, "x").sharers == (stay ? 2 : 1));
        if (stay)
            assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
        assert_status(DIBS_BUSY, dibs_trylock(f->rt, "x"));
        assert_string_equal(process_ask(old, "unlock 0 x"), "0 DIBS_OK ");
        assert_string_equal(process_ask(old, "close"), "DIBS_OK ");
        assert_int_equal(process_wait(old, LIMIT_MS), 0);
        process_free(old);
    }
}

/* This holds although after the writer another client shared the lock, and may still do so. */
TEST_ON(a_sharer_is_not_restored_after_a_writer, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    process *old = share_and_stop(f);
    assert_status(DIBS_OK, share(f->rt, "x", LIMIT_MS, 0));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    lock_and_release(f->rt, "x", LIMIT_MS);
    assert_status(DIBS_OK, share(f->rt, "x", LIMIT_MS, 0));
    process_resume(old);
    await_that(server_calls(f->server, "mget") > 0);
    assert_int_equal(owner_of(f->rt, "x").sharers, 1);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    assert_true(strncmp(process_ask(old, "unlock 0 x"), "0 DIBS_LOST", 11) == 0);
    assert_string_equal(process_ask(old, "close"), "DIBS_OK ");
    assert_int_equal(process_wait(old, LIMIT_MS), 0);
    process_free(old);
}

/* ---------------------------------------------------------------------- tasks */

enum { TASKS = 3 };

/* Each task is an owner of its own, also on one thread. */
TEST_ON(tasks_share_and_a_writer_waits_for_all, fixture *f)
{
    dibs_task *readers[TASKS], *writer, *late;

    fixture_open(f, LONG_LEASE_MS);
    dibs_queue *q = test_queue(queue_new());
    writer = test_task(task_of_runtime(f->rt));
    late = test_task(task_of_runtime(f->rt));
    for (int i = 0; i < TASKS; i++) {
        readers[i] = task_of_runtime(f->rt);
        assert_status(DIBS_OK, task_lock_with(readers[i], "x", 0, &shared, q));
    }
    assert_int_equal(owner_of(f->rt, "x").sharers, TASKS);
    assert_status(DIBS_OK, dibs_task_enter(readers[0]));
    dibs_hold hold = hold_of(f->rt, "x");
    assert_true(hold.shared);
    assert_status(DIBS_BUSY, dibs_lock(f->rt, "x")); /* whatever the wait */
    assert_true(strstr(dibs_last_error(), "this task shares") != NULL);
    assert_status(DIBS_OK, dibs_task_leave(readers[0]));
    assert_status(DIBS_BUSY, task_lock(readers[1], "x", DIBS_WAIT_FOREVER, q));
    assert_status(DIBS_OK, task_lock_with(readers[1], "x", DIBS_WAIT_FOREVER, &shared, q));
    assert_status(DIBS_OK, task_unlock(readers[1], "x", q));
    begin_lock(writer, "x", DIBS_WAIT_FOREVER, NULL, q);
    queue_await(f->server, "x", 1);
    assert_status(DIBS_BUSY, share(f->rt, "x", 0, 0));
    begin_lock(late, "x", DIBS_WAIT_FOREVER, &shared, q);
    queue_await(f->server, "x", 2);
    for (int i = 0; i < TASKS; i++) {
        expect_none(q);
        begin_unlock(readers[i], "x", q);
        if (i < TASKS - 1)
            expect_done(q, DIBS_DONE_UNLOCK, DIBS_OK, readers[i]);
    }
    for (int i = 0; i < 2; i++) { /* the last unlock, and the grant: in any order */
        dibs_completion c = next_done(q);
        assert_status(DIBS_OK, c.status);
        assert_ptr_equal(c.task, c.kind == DIBS_DONE_LOCK ? writer : readers[TASKS - 1]);
    }
    expect_none(q);
    for (int i = 0; i < TASKS; i++)
        dibs_task_free(readers[i]);
    begin_unlock(writer, "x", q);
    for (int i = 0; i < 2; i++) /* and so here */
        assert_status(DIBS_OK, next_done(q).status);
    assert_status(DIBS_OK, task_unlock(late, "x", q));
}

TEST_ON(several_names_are_shared_together, fixture *f)
{
    static const char *const names[] = {"b", "a"};
    actor *a = actor_start();

    fixture_open(f, LONG_LEASE_MS);
    assert_status(DIBS_OK, actor_lock_with(a, f->rt, "a", 0, &shared));
    assert_status(DIBS_OK, dibs_lock_names(f->rt, names, 2, 0, &shared));
    assert_int_equal(owner_of(f->rt, "a").sharers, 2);
    assert_true(hold_of(f->rt, "b").shared);
    assert_status(DIBS_BUSY, dibs_lock_names(f->rt, names, 2, DIBS_WAIT_FOREVER, NULL));
    assert_status(DIBS_OK, dibs_unlock_names(f->rt, names, 2));
    assert_status(DIBS_BUSY, dibs_lock_names(f->rt, names, 2, 0, NULL));
    assert_int_equal(owner_of(f->rt, "b").sharers, 0);
    assert_status(DIBS_OK, actor_unlock(a, f->rt, "a"));
}

/* A place in the queue that is given up lets in who waits behind it. */
TEST_ON(a_task_that_is_cancelled_keeps_no_reader_out, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    dibs_queue *q = test_queue(queue_new());
    dibs_task *writer = task_of_runtime(f->rt), *reader = task_of_runtime(f->rt);
    assert_status(DIBS_OK, share(f->rt, "x", 0, 2));
    begin_lock(writer, "x", DIBS_WAIT_FOREVER, NULL, q);
    queue_await(f->server, "x", 1);
    begin_lock(reader, "x", DIBS_WAIT_FOREVER, &(dibs_lock_options){.flags = DIBS_SHARED, .limit = 2}, q);
    queue_await(f->server, "x", 2);
    dibs_task_cancel(writer);
    for (int i = 0; i < 2; i++) {
        dibs_completion c = next_done(q);
        assert_status(c.task == writer ? DIBS_CANCELLED : DIBS_OK, c.status);
    }
    assert_int_equal(owner_of(f->rt, "x").sharers, 2);
    dibs_task_free(reader); /* gives up what it holds */
    dibs_task_free(writer);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    lock_and_release(f->rt, "x", LIMIT_MS);
}

/* ------------------------------------------------------------- other endings */

TEST_ON(a_thread_that_ends_gives_its_permit_back, fixture *f)
{
    actor *a = actor_start();

    fixture_open(f, LONG_LEASE_MS);
    assert_status(DIBS_OK, actor_lock_with(a, f->rt, "x", 0, &(dibs_lock_options){.flags = DIBS_SHARED, .limit = 1}));
    assert_status(DIBS_BUSY, share(f->rt, "x", 0, 1));
    actor_exit(a);
    assert_status(DIBS_OK, share(f->rt, "x", LIMIT_MS, 1));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    events_await(&f->events, DIBS_EVENT_ORPHANED, "x");
}

TEST_ON(a_runtime_that_closes_gives_its_permits_back, fixture *f)
{
    actor *a = actor_start();

    fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *second = open_runtime(f->server, LONG_LEASE_MS);
    assert_status(DIBS_OK, actor_lock_with(a, second, "x", 0, &shared));
    assert_status(DIBS_OK, share(f->rt, "x", 0, 0));
    dibs_close(second);
    assert_int_equal(owner_of(f->rt, "x").sharers, 1);
    assert_status(DIBS_LOST, actor_check(a, second, "x"));
    assert_status(DIBS_OK, dibs_check(f->rt, "x"));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    lock_and_release(f->rt, "x", 0);
}

static void child_shares_by_itself(dibs_runtime *rt)
{
    const dibs_lock_options one_of_two = {.flags = DIBS_SHARED, .limit = 2};

    CHILD_WANTS(DIBS_NOT_HELD, dibs_check(rt, "x"));
    CHILD_WANTS(DIBS_OK, dibs_lock_with(rt, "x", LIMIT_MS, &one_of_two));
    CHILD_WANTS(DIBS_OK, dibs_unlock(rt, "x"));
    CHILD_WANTS(DIBS_BUSY, dibs_trylock(rt, "x"));
}

TEST_ON(a_forked_child_shares_nothing_of_its_parents, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    assert_status(DIBS_OK, share(f->rt, "x", 0, 2));
    run_child(child_shares_by_itself, f->rt);
    assert_status(DIBS_OK, dibs_check(f->rt, "x"));
    assert_int_equal(owner_of(f->rt, "x").sharers, 1);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
}

TESTS(fixture_setup, fixture_teardown)
