/* Requests that reach a member of a quorum late: top-ups and votes. */
#include "redis/scripts.h"
#include "support/masters.h"
#include "support/script_server.h"
#include "support/seat.h"
#include "support/server.h"

#define LEASE_MS LONG_LEASE_MS
#define TIMEOUT_MS 1500 /* what is sent is too late after this time */
#define TOKEN "dibs:held"
#define ASK_AT_MEMBER_OF_X "\r\n$1\r\n4\r\n$6\r\nlock:x\r\n" /* beside the keys of the lock it has that of the vote */
#define TOP_UP_OF_X "\r\n$1\r\n3\r\n$6\r\nlock:x\r\n"        /* a renewal is about the lock, its fence, and the vote */

/* A server, and a member on it behind a network. */
struct play {
    server *server;
    script_server *net;
    struct seat seat;
};

static int setup(void **state)
{
    struct play *p = calloc(1, sizeof *p);

    assert_non_null(p);
    p->server = server_start(NULL);
    p->net = script_server_start(&(script_options){.backend = p->server->socket_path});
    seat_open(&p->seat, &(struct dibs__store_config){.url = script_server_url(p->net),
                                                     .is_member = true,
                                                     .connect_timeout_ms = LIMIT_MS,
                                                     .command_timeout_ms = TIMEOUT_MS});
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    struct play *p = *state;

    seat_close(&p->seat);
    script_server_stop(p->net);
    server_assert_clean(p->server);
    server_stop(p->server);
    free(p);
    return 0;
}

static struct dibs__vote vote(struct play *p, bool admit)
{
    struct dibs__vote vote = {
        .longest_ms = LEASE_MS, .what = admit ? DIBS__VOTE_ADMITS : DIBS__VOTE_LOOKS, .floor = admit};
    struct dibs__op op = {.kind = DIBS__OP_VOTE, .deadline = seat_deadline(), .vote = &vote};
    struct dibs__error error = {DIBS_OK, ""};
    dibs_status status = p->seat.store->ops->finish(p->seat.store, &op, &error);

    assert_that(status == DIBS_OK, "a vote: %s", error.detail);
    return vote;
}

static struct dibs__renewal top_up_of(const char *name)
{
    return (struct dibs__renewal){.name = name, .token = TOKEN, .lease_ms = LEASE_MS, .fence = 5, .top_up = true};
}

static void settle(struct play *p)
{
    seat_await_confirmed(&p->seat);
    assert_false(server_has(p->server, "lock:x"));
}

/* The connections made from now on can't end earlier ones. */
static void refuse_kill(struct play *p)
{
    script_server_answer(p->net, "\r\nKILL\r\n", "-NOPERM no right\r\n");
    script_server_cut(p->net);
}

/* The retraction follows the top-up on its connection. */
TEST_ON(a_top_up_that_is_stuck_is_retracted, struct play *p)
{
    struct dibs__renewal first = top_up_of("first"), renewal = top_up_of("x");

    vote(p, true);
    seat_renew(&p->seat, &first); /* the connection is open, and the server knows the script */
    script_server_add(p->net, (script_rule){.match = TOP_UP_OF_X, .nth = 1, .action = SCRIPT_STALL_REQUEST});
    seat_begin_renewal(&p->seat, &renewal);
    script_server_await_fired(p->net, 0);
    p->seat.store->ops->retract(p->seat.store, "x", TOKEN, LEASE_MS, 0);
    script_server_release(p->net);
    seat_end_renewal(&p->seat, &renewal);
    settle(p);
}

/*
 * The connection breaks, and nothing proves its end: the top-up may arrive later than the first retraction, and until
 * its time has passed the retraction goes on.
 */
TEST_ON(a_top_up_on_a_connection_that_broke_is_retracted, struct play *p)
{
    struct dibs__renewal first = top_up_of("first"), renewal = top_up_of("x");

    vote(p, true);
    refuse_kill(p);
    seat_renew(&p->seat, &first);
    script_server_add(p->net, (script_rule){.match = TOP_UP_OF_X, .nth = 1, .action = SCRIPT_STALL_REQUEST});
    unsigned fired = script_server_fired(p->net);
    seat_begin_renewal(&p->seat, &renewal);
    script_server_await_fired(p->net, fired);
    script_server_cut(p->net);
    assert_int_equal(seat_end_renewal(&p->seat, &renewal), DIBS__UNANSWERED);
    server_do(p->server, "SET lock:retracted %s PX %d", TOKEN, LEASE_MS);
    p->seat.store->ops->retract(p->seat.store, "x", TOKEN, LEASE_MS, 0);
    p->seat.store->ops->retract(p->seat.store, "retracted", TOKEN, LEASE_MS, 0);
    await_that(!server_has(p->server, "lock:retracted"));
    script_server_release(p->net);
    settle(p);
}

/* The script's answer about one lock that is free. */
static long long restore(server *s, const char *by)
{
    redisReply *reply = server_command(s, "EVAL %s 2 lock:x dibs:fence:{lock:x} " TOKEN " 30000 77 %s %s",
                                       dibs__scripts[DIBS__SCRIPT_renew].text, "", by);

    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    long long result = reply->element[0]->integer;
    freeReplyObject(reply);
    return result;
}

TEST_ON(a_late_top_up_is_ignored, struct play *p)
{
    assert_true(restore(p->server, "!1") < 0);
    assert_false(server_has(p->server, "lock:x"));
    assert_false(server_has(p->server, "dibs:fence:{lock:x}"));
    assert_int_equal(restore(p->server, "!9007199254740991"), 2);
    assert_true(server_has(p->server, "lock:x"));
    server_do(p->server, "DEL lock:x");
    server_do(p->server, "SET dibs:fence:{lock:x} 78 PX 100000");
    assert_int_equal(restore(p->server, "9007199254740991"), 0); /* another was granted it since */
    assert_int_equal(restore(p->server, "!9007199254740991"), 2);
    assert_int_equal(server_integer(p->server, "INCRBY dibs:fence:{lock:x} 0"), 78);
    server_do(p->server, "DEL lock:x");
}

/* Otherwise a client that looked at a master before the master lost its data could admit it at once. */
TEST_ON(a_late_admission_is_ignored, struct play *p)
{
    refuse_kill(p);
    script_server_add(p->net, (script_rule){.match = "dibs:vote", .nth = 1, .action = SCRIPT_STALL_REQUEST});
    assert_true(vote(p, true).known); /* by the second sending */
    server_do(p->server, "FLUSHALL");
    pause_ms(TIMEOUT_MS);
    long long asks = server_asks(p->server);
    script_server_release(p->net);
    server_await_ask(p->server, asks);
    assert_false(vote(p, false).known);
    assert_false(master_knows(p->server));
}

/* The master already votes, so its time is not looked at any more. */
TEST_ON(a_voting_member_goes_on_voting, struct play *p)
{
    assert_int_equal(vote(p, true).votes_in_ms, 0);
    assert_memory_equal(server_text(p->server, "GET dibs:vote"), "0 600000 ", 9);
    server_do(p->server, "SET dibs:vote %s PX 1000", "1700000000000000 700000 0 0 1 - 0");
    assert_int_equal(vote(p, false).votes_in_ms, 0);
    assert_memory_equal(server_text(p->server, "GET dibs:vote"), "0 700000 ", 9);
    assert_true(server_integer(p->server, "PTTL dibs:vote") > 86400000);
    server_do(p->server, "PEXPIRE dibs:vote 1000");
    vote(p, false);
    assert_true(server_integer(p->server, "PTTL dibs:vote") > 86400000);
}

/* The connection believes that it is 1970: now is later than the ask may be executed. */
TEST_ON(an_ask_that_finds_the_clock_set_forward_gets_no_vote, struct play *p)
{
    struct dibs__attempt attempt = {.name = "x", .token = TOKEN, .lease_ms = LEASE_MS};
    struct dibs__answer answer = {0};
    struct dibs__error error;

    vote(p, true);
    script_server_answer(p->net, "TIME\r\n", "*2\r\n$1\r\n1\r\n$1\r\n0\r\n");
    script_server_cut(p->net);
    assert_status(DIBS_UNAVAILABLE, store_ask(p->seat.store, &attempt, seat_deadline(), &answer, &error));
    assert_int_equal(answer.why, DIBS__WHY_STEPPED);
    assert_false(attempt.in_store || answer.retired);
    assert_false(server_has(p->server, "lock:x"));
    script_server_clear(p->net); /* where the next answer is slow, it is over a new connection, with the right time */
    answer = (struct dibs__answer){0};
    assert_status(DIBS_OK, store_ask(p->seat.store, &attempt, seat_deadline(), &answer, &error)); /* by the new time */
    assert_int_equal(answer.why, DIBS__WHY_UNTOLD);
    p->seat.store->ops->conclude(p->seat.store, &attempt, false);
    settle(p);
}

/*
 * Its connection breaks, and the others grant the lock. By then an extension has set the lock at that member, over
 * another connection.
 */
TEST_WITH(an_ask_that_comes_behind_the_release_leaves_nothing, masters_setup_3, masters_teardown, masters *m)
{
    script_server *net = script_server_start(&(script_options){.backend = m->servers[2]->socket_path});

    m->urls[2] = script_server_url(net);
    masters_open_patient(m, LONG_LEASE_MS);
    script_server_delay(net, 5); /* so that the other connection for asks is made, too */
    while (script_server_accepted(net) < 4) {
        assert_status(DIBS_OK, dibs_lock(m->rt, "w"));
        assert_status(DIBS_OK, dibs_unlock(m->rt, "w"));
    }
    script_server_delay(net, 0);
    masters_await_all(m);
    script_server_add(net, (script_rule){.match = ASK_AT_MEMBER_OF_X, .nth = 1, .action = SCRIPT_STALL_REQUEST});
    assert_status(DIBS_OK, dibs_lock(m->rt, "x"));
    for (unsigned tries = 1; !within(200, script_server_fired(net) > 0); tries++) {
        assert_in_range(tries, 1, 99); /* a member that was slow before may not be asked */
        assert_status(DIBS_OK, dibs_unlock(m->rt, "x"));
        assert_status(DIBS_OK, dibs_lock(m->rt, "x"));
    }
    script_server_cut(net);
    await_that(dibs_extend(m->rt, "x", LONG_LEASE_MS) == DIBS_OK && server_has(m->servers[2], "lock:x"));
    assert_status(DIBS_OK, dibs_unlock(m->rt, "x"));
    await_that(!server_has(m->servers[2], "lock:x"));
    script_server_release(net);
    await_that(script_server_has_answered(net));
    await_that(!server_has(m->servers[2], "lock:x"));
    dibs_close(m->rt);
    m->rt = NULL;
    script_server_stop(net);
}

TESTS(setup, teardown)
