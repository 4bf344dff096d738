/*
 * The store is restarted: a lock that was deleted in the old server or the new one, or released meanwhile, is not
 * restored.
 */
#include "support/fixture.h"
#include "support/restart.h"
#include "support/script_server.h"

/* --------------------------------------------------------------- deleted */

static void delete (server *s)
{
    server_do(s, "DEL lock:x");
}

static void flush(server *s)
{
    server_do(s, "FLUSHALL");
}

static void delete_and_disconnect(server *s)
{
    server_do(s, "DEL lock:x");
    server_do(s, "CLIENT KILL TYPE normal");
}

static void flush_and_disconnect(server *s)
{
    server_do(s, "FLUSHALL");
    server_do(s, "CLIENT KILL TYPE normal");
}

/* The next renewal, at the same server, finds the lock gone, whether or not the server was restarted before. */
TEST_ON(a_deleted_lock_is_not_restored, fixture *f)
{
    static void (*const accidents[])(server * s) = {delete, flush, delete_and_disconnect, flush_and_disconnect};

    fixture_open(f, LEASE_MS);
    for (size_t i = 0; i < 2 * sizeof accidents / sizeof *accidents; i++) {
        assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
        if (i % 2 == 1) {
            restart(f->server);
            await_locks(f->server, 1);
            await_connected(f->rt);
        }
        int64_t end = now_ms() + LEASE_MS;
        accidents[i / 2](f->server);
        while (dibs_check(f->rt, "x") != DIBS_LOST && now_ms() < end + SLACK_MS) {
            assert_false(server_has(f->server, "lock:x"));
            pause_ms(10);
        }
        assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
        assert_false(server_has(f->server, "lock:x"));
    }
}

/* ------------------------------------------------------------------ released */

TEST_ON(a_lock_unlocked_during_a_restart_is_not_restored, fixture *f)
{
    enum { LONGER_MS = 3 * SAFE_LEASE_MS }; /* it lasts until the server is gone */

    fixture_open_holding(f, LONGER_MS, "x");
    server_kill(f->server);
    assert_status(DIBS_UNAVAILABLE, dibs_unlock(f->rt, "x"));
    server_restart(f->server);
    await_connected(f->rt);
    int64_t end = now_ms() + LONGER_MS;
    while (now_ms() < end) {
        assert_false(server_has(f->server, "lock:x"));
        pause_ms(10);
    }
}

/* Nothing is left, whenever the unlock comes and whatever it returns. */
TEST_ON(an_unlock_during_a_restoration_leaves_nothing, fixture *f)
{
    enum { ROUNDS = 20, NAMES = 20 };

    for (int round = 0; round < ROUNDS; round++) {
        fixture_open(f, LONG_LEASE_MS);
        for (int i = 0; i < NAMES; i++)
            assert_status(DIBS_OK, dibs_lock(f->rt, formatted("%d", i)));
        restart(f->server);
        pause_ms(rand() % 30);
        for (int i = 0; i < NAMES; i++) {
            dibs_status status = dibs_unlock(f->rt, formatted("%d", i));
            assert_that(status == DIBS_OK || status == DIBS_LOST || status == DIBS_UNAVAILABLE, "%s",
                        dibs_status_name(status));
        }
        close_runtime(&f->rt);
        server_assert_no_locks(f->server);
    }
}

/* The restoring renewal is stuck on its way and arrives after the release: the retraction arrives even later. */
TEST_ON(a_restoration_after_the_unlock_is_undone, fixture *f)
{
    script_server *net = fixture_between(f);
    dibs_runtime *rt =
        open_url(script_server_url(net), &(dibs_config){.lease_ms = LONG_LEASE_MS, .command_timeout_ms = LIMIT_MS / 4});

    assert_status(DIBS_OK, dibs_lock(rt, "x"));
    script_server_add(net, (script_rule){.match = FULL_RENEWAL_OF_X, .nth = 1, .action = SCRIPT_STALL_REQUEST});
    restart(f->server);
    int64_t end = now_ms() + LIMIT_MS;
    while (script_server_fired(net) == 0 && now_ms() < end)
        pause_ms(5);
    assert_int_equal(script_server_fired(net), 1);
    assert_status(DIBS_LOST, dibs_unlock(rt, "x")); /* nobody has it there */
    script_server_release(net);
    dibs_close(rt);
    assert_false(server_has(f->server, "lock:x"));
}

/* A reply to TIME that is some while ahead, so that nothing seems to come too late meanwhile. */
static const char *time_to_come(server *s)
{
    redisReply *reply = server_command(s, "TIME");
    const char *bytes = formatted("*2\r\n$10\r\n%010lld\r\n$1\r\n0\r\n", atoll(reply->element[0]->str) + 10);
    freeReplyObject(reply);
    return bytes;
}

/*
 * Where no connection may be ended, a renewal may even arrive over one that the runtime has left, after the next
 * renewal was answered. The release has raised the fence, so it restores nothing; it carries its own time limit, and
 * the retraction comes after that.
 */
TEST_ON(a_restoration_over_an_old_connection_is_undone, fixture *f)
{
    script_server *net = fixture_between(f);
    dibs_config config = {.lease_ms = LONG_LEASE_MS, .command_timeout_ms = SAFE_LEASE_MS};

    script_server_answer(net, "\r\nKILL\r\n", "-NOPERM this user has no permissions\r\n");
    dibs_runtime *rt = test_runtime(open_url(script_server_url(net), &config));
    assert_status(DIBS_OK, dibs_lock(rt, "x"));
    script_server_answer(net, "TIME\r\n", time_to_come(f->server));
    script_server_add(net, (script_rule){.match = FULL_RENEWAL_OF_X, .nth = 1, .action = SCRIPT_STALL_REQUEST});
    restart(f->server);
    await_locks(f->server, 1); /* over the next connection */
    assert_status(DIBS_OK, dibs_unlock(rt, "x"));
    assert_false(server_has(f->server, "lock:x"));
    long long looks = server_calls(f->server, "exists");
    script_server_release(net);
    /* Only a renewal that may restore a lease looks whether its key exists, which may be gone at once. */
    await_or_say(server_calls(f->server, "exists") > looks, "what was stuck does not arrive");
    assert_that(server_wait_gone(f->server, "lock:x", LIMIT_MS), "the lock stays");
}

TESTS(fixture_setup, fixture_teardown)
