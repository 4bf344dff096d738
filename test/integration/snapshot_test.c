/*
 * The server is restarted with an older state that shows an owner which has released the lock since. The holder's lease
 * takes that owner's place.
 */
#include "redis/scripts.h"
#include "support/agent.h"
#include "support/fixture.h"
#include "support/queue.h"
#include "support/restart.h"
#include "support/script_server.h"

#define FENCE "dibs:fence:{lock:x}"

/* ----------------------------------------------------------------- helpers */

/*
 * An entry of the owner itself, which the snapshot brought back, may still be in the queue, or may have been removed
 * already.
 */
static bool another_waits(server *s, const char *value)
{
    queue_entry entry;

    for (int place = 0; queue_find(s, "x", place, &entry); place++)
        if (strcmp(entry.token, value) != 0)
            return true;
    return false;
}

/* ---------------------------------------------------------------- a snapshot */

/* The snapshot shows another process as the owner, and the holder, if it waited then, in the queue. */
TEST_ON(an_owner_of_a_snapshot_that_released_since_gives_way, fixture *f)
{
    process *ghost = agent_start(f->server->url, LONG_LEASE_MS), *holder = agent_start(f->server->url, LONG_LEASE_MS);
    process *waiter = agent_start(f->server->url, LONG_LEASE_MS);

    for (int waits = 0; waits <= 1; waits++) {
        assert_status(DIBS_OK, agent_lock(ghost, "x", 0));
        if (waits) {
            agent_begin_lock(holder, "x", DIBS_WAIT_FOREVER);
            queue_await(f->server, "x", 1);
        }
        server_do(f->server, "SAVE");
        assert_status(DIBS_OK, agent_unlock(ghost, "x"));
        assert_status(DIBS_OK, waits ? agent_result(holder) : agent_lock(holder, "x", 0));
        const char *token = server_value(f->server, "lock:x");
        uint64_t fence = agent_fence(holder, "x");
        restart(f->server);
        server_await_value(f->server, "lock:x", token);
        assert_in_range(server_integer(f->server, "PTTL lock:x"), LONG_LEASE_MS / 2, LONG_LEASE_MS);
        assert_status(DIBS_OK, agent_check(holder, "x"));
        agent_begin_lock(waiter, "x", DIBS_WAIT_FOREVER);
        await_or_say(another_waits(f->server, token), "nobody waits");
        assert_status(DIBS_OK, agent_unlock(holder, "x"));
        assert_status(DIBS_OK, agent_result(waiter));
        assert_true(agent_fence(waiter, "x") > fence);
        assert_status(DIBS_OK, agent_unlock(waiter, "x"));
        assert_false(server_has(f->server, "lock:x"));
        queue_assert_gone(f->server, "x");
    }
}

/* The snapshot shows the lock as it was when the holder had it before, with the same fence: it is locked again. */
TEST_ON(an_earlier_hold_of_the_same_process_gives_way, fixture *f)
{
    process *holder = agent_start(f->server->url, LONG_LEASE_MS);
    int64_t limit = now_ms() + LIMIT_MS;
    uint64_t earlier, fence;
    const char *token;

    do {
        assert_true(now_ms() < limit);
        assert_status(DIBS_OK, agent_lock(holder, "x", 0));
        earlier = agent_fence(holder, "x");
        server_do(f->server, "SAVE");
        assert_status(DIBS_OK, agent_unlock(holder, "x"));
        assert_status(DIBS_OK, agent_lock(holder, "x", 0));
        fence = agent_fence(holder, "x");
        assert_true(fence > earlier);
        token = server_value(f->server, "lock:x");
        if (fence / 1024 != earlier / 1024) /* the renewal took too long */
            assert_status(DIBS_OK, agent_unlock(holder, "x"));
    } while (fence / 1024 != earlier / 1024);
    restart(f->server);
    server_await_value(f->server, "lock:x", token);
    assert_status(DIBS_OK, agent_check(holder, "x"));
    assert_status(DIBS_OK, agent_unlock(holder, "x"));
    assert_false(server_has(f->server, "lock:x"));
}

/* The server's clock was behind when it granted the lock again: the smaller fence loses, and its holder is told. */
TEST_ON(an_owner_with_a_smaller_fence_is_told_of_its_loss, fixture *f)
{
    script_server *net = fixture_between(f);
    process *holder = agent_start(script_server_url(net), LONG_LEASE_MS), *later;

    assert_status(DIBS_OK, agent_lock(holder, "x", 0));
    const char *token = server_value(f->server, "lock:x");
    uint64_t fence = agent_fence(holder, "x");
    script_server_set_down(net, true);
    script_server_cut(net);
    restart(f->server);
    later = agent_start(f->server->url, SAFE_LEASE_MS);
    assert_status(DIBS_OK, agent_lock(later, "x", 0));
    server_do(f->server, "SET " FENCE " %llu PX 100000", (unsigned long long)(fence / 1024 - 1));
    script_server_set_down(net, false);
    server_await_value(f->server, "lock:x", token);
    await_that(agent_check(later, "x") == DIBS_LOST);
    assert_status(DIBS_LOST, agent_unlock(later, "x"));
    assert_string_equal(server_value(f->server, "lock:x"), token);
    assert_status(DIBS_OK, agent_check(holder, "x"));
    assert_status(DIBS_OK, agent_unlock(holder, "x"));
}

/* ------------------------------------------------------ the script by itself */

#define OLD "dibs:older"
#define VOTES "0 100000 1 0 0 - 0" /* of a member that may vote: the value of dibs:vote */

/* What the server knows, and what a renewal with the fence 77 says that may restore the lease of "dibs:mine". */
struct fact {
    const char *owner, *fence, *restore_by, *member; /* NULL: there is no such key, or none is named */
    long long result;                                /* negative: any negative number */
};

static long long renew(server *s, const struct fact *fact)
{
    const char *text = dibs__scripts[DIBS__SCRIPT_renew].text;
    redisReply *reply =
        fact->member
            ? server_command(s, "EVAL %s 3 lock:x " FENCE " dibs:vote dibs:mine 100000 77 %s %s - 0", text, "",
                             fact->restore_by)
            : server_command(s, "EVAL %s 2 lock:x " FENCE " dibs:mine 100000 77 %s %s", text, "", fact->restore_by);
    long long result = reply->element[0]->integer;

    freeReplyObject(reply);
    return result;
}

TEST(only_an_older_dibs_owner_gives_way)
{
    static const struct fact facts[] = {
        {OLD, "76", "0", NULL, 2},       {OLD, "1", "0", NULL, 2},
        {OLD, "77", "0", NULL, 0},       {OLD, "78", "0", NULL, 0}, /* a newer grant, or a forced unlock and a grant */
        {OLD, NULL, "0", NULL, 0}, /* when the owner was granted the lock is not known */
        {OLD, "no fence", "0", NULL, 0}, {OLD, "0", "0", NULL, 0},
        {OLD, "-5", "0", NULL, 0},       {OLD, "9007199254740991", "0", NULL, 0},
        {"foreign", "76", "0", NULL, 0}, {"dibs", "76", "0", NULL, 0},
        {OLD, "76", "", NULL, 0},   /* this server confirmed the lease: somebody took the lock away */
        {OLD, "76", "1", NULL, -1}, /* too late */
        {OLD, "78", "1", NULL, 0},  /* asking sooner would not help */
        {OLD, "76", "0", VOTES, 0}, /* at a member of a quorum the owner's key is a vote */
        {OLD, "76", "!0", VOTES, 0},     {NULL, "76", "0", VOTES, 2},
    };
    server *s = ((fixture *)*state)->server;

    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        const struct fact *fact = &facts[i];
        server_do(s, "FLUSHALL");
        if (fact->owner)
            server_do(s, "SET lock:x %s PX 50000", fact->owner);
        if (fact->fence)
            server_do(s, "SET " FENCE " %s PX 50000", fact->fence);
        if (fact->member)
            server_do(s, "SET dibs:vote %s PX 50000", fact->member);
        long long result = renew(s, fact);
        assert_that(result == fact->result || (result < 0 && fact->result < 0), "%zu: %lld", i, result);
        if (result == 2) {
            assert_string_equal(server_value(s, "lock:x"), "dibs:mine");
            assert_string_equal(server_value(s, FENCE), "77");
            assert_in_range(server_integer(s, "PTTL lock:x"), 50001, 100000);
        } else {
            assert_string_equal(server_value(s, "lock:x"), fact->owner);
            assert_in_range(server_integer(s, "PTTL lock:x"), 1, 50000);
        }
    }
    server_do(s, "FLUSHALL");
}

/*
 * Two leases of one lock in one call: the server has forgotten both, or the later one. That one is restored, and the
 * other is told.
 */
TEST(the_larger_fence_wins_whatever_comes_first)
{
    static const struct {
        const char *owner, *first, *second;
        long long results[2];
    } rows[] = {{NULL, OLD " 100000 76", "dibs:mine 100000 77", {0, 2}},
                {NULL, "dibs:mine 100000 77", OLD " 100000 76", {2, 0}},
                {OLD, OLD " 100000 76", "dibs:mine 100000 77", {0, 2}},
                {OLD, "dibs:mine 100000 77", OLD " 100000 76", {2, 0}}};
    server *s = ((fixture *)*state)->server;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        server_do(s, "FLUSHALL");
        if (rows[i].owner)
            server_do(s, "SET lock:x %s PX 50000", rows[i].owner);
        server_do(s, "SET " FENCE " 76 PX 50000");
        const char *format =
            formatted("EVAL %%s 4 lock:x lock:x " FENCE " " FENCE " %s %%s 0 %s %%s 0", rows[i].first, rows[i].second);
        redisReply *reply = server_command(s, format, dibs__scripts[DIBS__SCRIPT_renew].text, "", "");
        for (size_t k = 0; k < 2; k++)
            assert_int_equal(reply->element[k]->integer, rows[i].results[k]);
        freeReplyObject(reply);
        assert_string_equal(server_value(s, "lock:x"), "dibs:mine");
        assert_string_equal(server_value(s, FENCE), "77");
    }
    server_do(s, "FLUSHALL");
}

TESTS(fixture_setup, fixture_teardown)
