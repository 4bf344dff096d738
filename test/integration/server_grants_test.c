/*
 * Grants that the server makes by itself and publishes: what they cost, how long they last, and which messages are not
 * believed.
 */
#include <inttypes.h>

#include "support/agent.h"
#include "support/fixture.h"
#include "support/queue.h"
#include "support/script_server.h"

/* Starts an agent that waits for "x" behind those that wait already. */
static process *agent_in_queue(fixture *f, uint32_t lease_ms, long long place)
{
    process *agent = agent_start(f->server->url, lease_ms);

    agent_begin_lock(agent, "x", DIBS_WAIT_FOREVER);
    queue_await(f->server, "x", place + 1);
    return agent;
}

/* Waits until the agent has the lock, and ends it. */
static void agent_has_it(fixture *f, process *agent)
{
    assert_status(DIBS_OK, agent_result(agent));
    assert_status(DIBS_BUSY, dibs_trylock(f->rt, "x"));
    assert_status(DIBS_OK, agent_unlock(agent, "x"));
    agent_stop(agent);
}

/*
 * Makes the runtime subscribe, by a first wait: from the second on there is a subscription, and a waiter does not ask
 * once more because of it.
 */
static void subscribe(fixture *f, dibs_runtime *rt, dibs_runtime *holder)
{
    assert_status(DIBS_OK, dibs_lock(holder, "first"));
    actor *waiter = actor_locking(rt, "first", DIBS_WAIT_FOREVER);
    queue_await(f->server, "first", 1);
    assert_status(DIBS_OK, dibs_unlock(holder, "first"));
    actor_gets(waiter, rt, "first");
    await_scheduler(rt);
}

/* ------------------------------------------------------------ what it costs */

/*
 * The waiter sends one ask, the holder one release, and nothing follows the push. On a slow machine a lock may be held
 * long enough to be watched: a waiter that was told of a change of the lock asked once more.
 */
TEST_ON(a_contended_lock_costs_one_ask_and_one_release, fixture *f)
{
    actor *waiter = actor_start();

    fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *second = test_runtime(open_runtime(f->server, LONG_LEASE_MS));
    unsigned untold = 0;
    subscribe(f, second, f->rt);
    for (unsigned i = 1; i <= 10; i++) {
        uint64_t told = stats_of(second).invalidations, granted = stats_of(second).granted;
        assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
        long long scripts = server_calls(f->server, "evalsha");
        actor_begin_lock(waiter, second, "x", DIBS_WAIT_FOREVER);
        queue_await(f->server, "x", 1);
        unsigned long long number = queue_at(f->server, "x", 0).number;
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
        assert_status(DIBS_OK, actor_result(waiter));
        long long calls = server_calls(f->server, "evalsha") - scripts;
        if (stats_of(second).invalidations == told) {
            assert_int_equal(number, 1);
            assert_in_range(calls, 0, 2); /* a text is sent by EVAL at first */
            assert_int_equal(stats_of(second).granted, granted + 1);
            untold++;
        }
        assert_status(DIBS_OK, actor_unlock(waiter, second, "x"));
    }
    assert_true(untold > 0);
    queue_assert_gone(f->server, "x");
}

/* ------------------------------------------------------ how long it lasts */

/* The lease counts from the ask that the push names, not from the push. */
TEST_ON(a_grant_counts_from_its_ask, fixture *f)
{
    enum { WAIT_MS = 1500 };
    unsigned long long number;

    fixture_open_holding(f, LONG_LEASE_MS, "x");
    process *agent = agent_in_queue(f, LONG_LEASE_MS, 0);
    server_await_rest(f->server); /* it may ask once more because of its subscription */
    int64_t asked = now_ms();
    number = queue_at(f->server, "x", 0).number;
    pause_ms(WAIT_MS);
    assert_int_equal(queue_at(f->server, "x", 0).number, number); /* it is the one that counts */
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    assert_status(DIBS_OK, agent_result(agent));
    int64_t left = agent_remaining(agent, "x");
    assert_that(left <= LONG_LEASE_MS - LONG_LEASE_MS / 100 - 2 - WAIT_MS, "%" PRId64 " ms left", left);
    assert_true(left >= LONG_LEASE_MS - LONG_LEASE_MS / 100 - 2 - (now_ms() - asked) - SLACK_MS);
    assert_true(left <= server_integer(f->server, "PTTL lock:x"));
    assert_status(DIBS_OK, agent_unlock(agent, "x"));
}

/* A lease never counts for longer than the store keeps it, whenever between two asks the push comes. */
TEST_ON(a_pushed_lease_never_outlasts_the_stores, fixture *f)
{
    process *agent = agent_start(f->server->url, SAFE_LEASE_MS);

    fixture_open(f, LONG_LEASE_MS);
    for (int i = 0; i < 12; i++) {
        int64_t believed;
        int64_t stored;

        assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
        agent_begin_lock(agent, "x", DIBS_WAIT_FOREVER);
        queue_await(f->server, "x", 1);
        pause_ms(i * SAFE_LEASE_MS / 12);
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
        assert_status(DIBS_OK, agent_result(agent));
        believed = now_ms(); /* until when, at the least */
        believed += agent_remaining(agent, "x");
        stored = server_integer(f->server, "PTTL lock:x");
        stored += now_ms(); /* until when, at the most */
        assert_that(believed <= stored, "by %" PRId64 " ms", believed - stored);
        assert_status(DIBS_OK, agent_unlock(agent, "x"));
    }
}

/*
 * The waiter is granted the lock while it is stopped. When it goes on, its lease is over and another holds the lock: it
 * reads the push, and waits on.
 */
TEST_ON(a_push_read_after_its_lease_grants_nothing, fixture *f)
{
    fixture_open_holding(f, LONG_LEASE_MS, "x");
    process *agent = agent_in_queue(f, SAFE_LEASE_MS, 0);
    for (int i = 0; i < 3; i++) {
        process_pause(agent);
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
        assert_int_equal(queue_size(f->server, "x"), 0); /* it was granted */
        assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
        process_resume(agent);
        queue_await(f->server, "x", 1);
        assert_false(process_try_read(agent));
    }
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    agent_has_it(f, agent);
}

/* ----------------------------------------------- messages that are not believed */

static void publish_grant(server *s, const queue_entry *to, unsigned long long number)
{
    assert_int_equal(server_integer(s, "PUBLISH %s %s", to->channel,
                                    formatted("%llu 99 %zu %slock:x", number, strlen(to->token), to->token)),
                     1);
}

/*
 * The push grants a lease that the waiter knows to be over, because it has asked since and was told that another client
 * holds the lock.
 */
TEST_ON(a_push_for_an_older_ask_grants_nothing, fixture *f)
{
    queue_entry entry;

    fixture_open_holding(f, LONG_LEASE_MS, "x");
    process *agent = agent_in_queue(f, SAFE_LEASE_MS, 0);
    for (int i = 0; i < 5; i++) {
        entry = queue_await_ask(f->server, "x", 1);
        publish_grant(f->server, &entry, entry.number - 1);
        queue_await_ask(f->server, "x", entry.number);
        assert_false(process_try_read(agent));
    }
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    agent_has_it(f, agent);
}

/*
 * A wait that ends soon, of an agent that has its place by now. Where the machine was so slow that the wait had ended
 * before that was seen, the agent waits once more.
 */
static queue_entry agent_waits_shortly(fixture *f, process *agent)
{
    queue_entry entry;

    for (int64_t limit = now_ms() + LIMIT_MS;;) {
        agent_begin_lock(agent, "x", 300);
        for (bool ended = false; !ended; pause_ms(2)) {
            if (queue_find(f->server, "x", 0, &entry))
                return entry;
            ended = process_try_read(agent);
        }
        assert_that(strstr(agent->line, "DIBS_TIMEOUT"), "%s", agent->line);
        queue_await(f->server, "x", 0);
        assert_true(now_ms() < limit);
    }
}

/* A grant whose waiter has left is given back, whether a push announced it or not. */
TEST_ON(a_push_for_a_concluded_attempt_is_given_back, fixture *f)
{
    queue_entry entry;

    fixture_open(f, LONG_LEASE_MS);
    process *agent = agent_start(f->server->url, LONG_LEASE_MS);
    for (int i = 0; i < 5; i++) {
        assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
        entry = agent_waits_shortly(f, agent);
        const char *finished = formatted("%s", entry.token);
        assert_status(DIBS_TIMEOUT, agent_result(agent));
        queue_await(f->server, "x", 0);
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
        server_do(f->server, "SET lock:x %s PX %d", finished, LONG_LEASE_MS);
        publish_grant(f->server, &entry, entry.number);
        assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
    }
}

TEST_ON(nonsense_on_the_channel_changes_nothing, fixture *f)
{
    static const char *const texts[] = {"",
                                        " ",
                                        "1",
                                        "1 2",
                                        "1 2 3",
                                        "1 2 3 ",
                                        "1 2 3 abc",
                                        "1 2 3 abclock:",
                                        "1 2 3 abclock:x",
                                        "1 0 3 abclock:x",
                                        "-1 2 3 abclock:x",
                                        "1 2 -3 abclock:x",
                                        "1 2 99999999999999999999 abclock:x",
                                        "1 2 0 lock:x",
                                        "1 2 5 lock:x",
                                        "99999999999999999999 99999999999999999999 3 abclock:x",
                                        "1 2 3 abother:x",
                                        "granted x"};
    static char large[1000000];

    fixture_open_holding(f, LONG_LEASE_MS, "x");
    process *agent = agent_in_queue(f, LONG_LEASE_MS, 0);
    const char *channel = queue_channel_of(queue_at(f->server, "x", 0).token);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_int_equal(server_integer(f->server, "PUBLISH %s %s", channel, texts[i]), 1);
    memset(large, '7', sizeof large);
    assert_int_equal(server_integer(f->server, "PUBLISH %s %b", channel, large, sizeof large), 1);
    memset(large, 0, sizeof large);
    assert_int_equal(server_integer(f->server, "PUBLISH %s %b", channel, large, sizeof large), 1);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    agent_has_it(f, agent);
}

/* -------------------------------------------- waiters that are passed over */

TEST_ON(a_killed_waiter_is_passed_over, fixture *f)
{
    process *agents[3];

    fixture_open_holding(f, LONG_LEASE_MS, "x");
    for (int i = 0; i < 3; i++)
        agents[i] = agent_in_queue(f, LONG_LEASE_MS, i);
    for (int i = 0; i < 2; i++) {
        process_kill(agents[i]);
        queue_await_no_listener(f->server, queue_at(f->server, "x", i).channel);
    }
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    agent_has_it(f, agents[2]);
    queue_assert_gone(f->server, "x");
    process_free(agents[0]);
    process_free(agents[1]);
}

/*
 * The waiter's host is gone or stopped, but its connections are open. Half of its lease after its last ask, the waiter
 * is passed over.
 */
TEST_ON(a_stopped_waiter_is_passed_over, fixture *f)
{
    fixture_open_holding(f, LONG_LEASE_MS, "x");
    process *still = agent_in_queue(f, SAFE_LEASE_MS, 0);
    process *next = agent_in_queue(f, LONG_LEASE_MS, 1);
    process_pause(still);
    queue_entry entry = queue_at(f->server, "x", 0);
    pause_ms(SAFE_LEASE_MS / 2 + 10);
    assert_true(queue_at(f->server, "x", 0).seen == entry.seen);
    queue_await_listening(f->server, entry.channel);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    assert_status(DIBS_OK, agent_result(next));
    assert_int_equal(queue_size(f->server, "x"), 0);
    process_resume(still);
    queue_await(f->server, "x", 1);
    assert_false(process_try_read(still));
    assert_status(DIBS_OK, agent_unlock(next, "x"));
    agent_has_it(f, still);
}

/* The waiters wait for the dead holder's lease, not less and not much more; not for a third of their own. */
TEST_ON(waiters_wait_for_the_lease_of_a_killed_holder, fixture *f)
{
    process *agents[2];

    fixture_open(f, LONG_LEASE_MS);
    process *holder = agent_start(f->server->url, SAFE_LEASE_MS);
    assert_status(DIBS_OK, agent_lock(holder, "x", 0));
    for (int i = 0; i < 2; i++)
        agents[i] = agent_in_queue(f, LONG_LEASE_MS, i);
    process_kill(holder);
    int64_t begin = now_ms();
    int64_t left = server_integer(f->server, "PTTL lock:x");
    assert_true(left > 0);
    assert_status(DIBS_OK, agent_result(agents[0]));
    assert_true(now_ms() - begin >= left - 5);
    assert_true(now_ms() - begin <= left + SLACK_MS);
    print_message("# held %" PRId64 " ms after the end of the lease\n", now_ms() - begin - left);
    assert_status(DIBS_OK, agent_unlock(agents[0], "x"));
    agent_has_it(f, agents[1]);
    process_free(holder);
}

/* ----------------------------------------------- requests that were sent twice */

/* The release was executed, but its connection was cut before the answer: another has the lock by then. */
TEST_ON(a_release_sent_twice_takes_nothing_from_the_next, fixture *f)
{
    script_server *net = fixture_between(f);
    dibs_runtime *holder = test_runtime(open_url(script_server_url(net), &(dibs_config){.lease_ms = LONG_LEASE_MS}));
    process *agent;

    fixture_open(f, LONG_LEASE_MS);
    for (int i = 0; i < 5; i++) {
        assert_status(DIBS_OK, dibs_lock(holder, "x"));
        agent = agent_in_queue(f, LONG_LEASE_MS, 0);
        script_server_add(net, (script_rule){.match = ASK_OR_RELEASE_OF_X, .nth = 1, .action = SCRIPT_CLOSE_AFTER});
        assert_status(DIBS_OK, dibs_unlock(holder, "x"));
        script_server_clear(net);
        agent_has_it(f, agent);
        queue_assert_gone(f->server, "x");
    }
    assert_int_equal(stats_of(holder).lost, 0);
}

/* The ask of a waiter, through a connection that is cut when it has been executed. */
struct cut_waiter {
    script_server *net;
    dibs_runtime *rt;
    actor *actor;
};

static struct cut_waiter cut_waiter(fixture *f, const char *user)
{
    struct cut_waiter c = {.net = script_server_start(&(script_options){.backend = f->server->socket_path}),
                           .actor = actor_start()};

    c.rt = open_url(formatted("unix://%s%s", user, script_server_url(c.net) + strlen("unix://")),
                    &(dibs_config){.lease_ms = LONG_LEASE_MS, .command_timeout_ms = 500});
    subscribe(f, c.rt, f->rt);
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    actor_begin_lock(c.actor, c.rt, "x", DIBS_WAIT_FOREVER);
    queue_await(f->server, "x", 1);
    return c;
}

static void end_cut_waiter(fixture *f, struct cut_waiter *c)
{
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    assert_status(DIBS_OK, actor_result(c->actor));
    assert_status(DIBS_BUSY, dibs_trylock(f->rt, "x"));
    assert_status(DIBS_OK, actor_unlock(c->actor, c->rt, "x"));
    actor_end(c->actor);
    dibs_close(c->rt);
    queue_assert_gone(f->server, "x");
    script_server_stop(c->net);
}

/* Makes the waiter ask once more, and cuts its connection in place of an answer. */
static void cut_next_ask(fixture *f, struct cut_waiter *c, const queue_entry *entry)
{
    unsigned fired = script_server_fired(c->net);

    script_server_add(c->net, (script_rule){.match = ASK_OR_RELEASE_OF_X, .nth = 1, .action = SCRIPT_CLOSE_AFTER});
    publish_grant(f->server, entry, 0);
    script_server_await_fired(c->net, fired);
}

TEST_ON(a_waiter_whose_ask_was_cut_keeps_its_place, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    struct cut_waiter c = cut_waiter(f, "");
    queue_entry before = queue_at(f->server, "x", 0);
    cut_next_ask(f, &c, &before);
    queue_entry after = queue_await_ask(f->server, "x", before.number + 1); /* one that was cut, one behind it */
    assert_string_equal(after.token, before.token);
    assert_true(after.order == before.order);
    assert_int_equal(queue_size(f->server, "x"), 1);
    end_cut_waiter(f, &c);
}

static bool has_another_token(server *s, const char *old)
{
    queue_entry head;

    return queue_size(s, "x") == 1 && queue_find(s, "x", 0, &head) && strcmp(head.token, old) != 0;
}

/* What the waiter has sent may still arrive: so its token is retired, and the entry is removed. */
TEST_ON(a_cut_waiter_without_the_right_to_kill_gets_a_new_token, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    server_do(f->server, "ACL SETUSER u on >pw ~* &* +@all -client +client|id +client|setname");
    struct cut_waiter c = cut_waiter(f, "u:pw@");
    queue_entry before = queue_at(f->server, "x", 0);
    cut_next_ask(f, &c, &before);
    await_that(has_another_token(f->server, before.token));
    end_cut_waiter(f, &c);
}

TEST_ON(a_full_server_still_grants, fixture *f)
{
    process *agents[2];

    fixture_open_holding(f, LONG_LEASE_MS, "x");
    for (int i = 0; i < 2; i++)
        agents[i] = agent_in_queue(f, LONG_LEASE_MS, i);
    server_do(f->server, "CONFIG SET maxmemory-policy noeviction");
    server_do(f->server, "CONFIG SET maxmemory 1");
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    assert_status(DIBS_OK, agent_result(agents[0]));
    assert_status(DIBS_OK, agent_unlock(agents[0], "x"));
    assert_status(DIBS_OK, agent_result(agents[1]));
    assert_status(DIBS_OK, agent_unlock(agents[1], "x"));
    queue_assert_gone(f->server, "x");
    server_do(f->server, "CONFIG SET maxmemory 0");
}

/* ------------------------------------------------------------------- bounds */

/*
 * A distant store: the wait ends in time, and nothing stays in the queue. The link is slow, too: a greeting takes
 * seconds, and so does replacing a connection that broke under the load.
 */
TEST_ON(a_wait_ends_in_time_though_the_store_is_slow, fixture *f)
{
    script_server *net = fixture_between(f);
    dibs_runtime *far =
        open_url(script_server_url(net), &(dibs_config){.lease_ms = LONG_LEASE_MS, .connect_timeout_ms = LIMIT_MS});
    int64_t worst = 0;

    fixture_open_holding(f, LONG_LEASE_MS, "x");
    assert_status(DIBS_TIMEOUT, dibs_timedlock(far, "x", 100));
    script_server_delay(net, 300);
    for (int wait_ms = 20; wait_ms <= 1000; wait_ms += 70) {
        int64_t begin = now_ms();
        int64_t late;

        dibs_status status = dibs_timedlock(far, "x", wait_ms);
        late = now_ms() - begin - wait_ms;
        if (status != DIBS_UNAVAILABLE) /* where it had to connect, it may have had no reply at all */
            assert_status(DIBS_TIMEOUT, status);
        assert_in_range(late + 1, 0, SLACK_MS);
        worst = late > worst ? late : worst;
    }
    print_message("# at most %" PRId64 " ms late\n", worst);
    queue_await(f->server, "x", 0);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    script_server_delay(net, 0);
    dibs_close(far);
    queue_assert_gone(f->server, "x");
}

TEST_ON(query_counts_the_waiters, fixture *f)
{
    process *agents[4];

    fixture_open_holding(f, LONG_LEASE_MS, "x");
    for (int i = 0; i < 4; i++) {
        dibs_owner owner = owner_of(f->rt, "x");
        assert_int_equal(owner.waiters, i);
        agents[i] = agent_in_queue(f, LONG_LEASE_MS, i);
    }
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    for (int i = 0; i < 4; i++) { /* who came first is first */
        assert_status(DIBS_OK, agent_result(agents[i]));
        dibs_owner owner = owner_of(f->rt, "x");
        assert_int_equal(owner.waiters, 3 - i);
        assert_status(DIBS_OK, agent_unlock(agents[i], "x"));
        agent_stop(agents[i]);
    }
    queue_assert_gone(f->server, "x");
}

/* All keys of a queue expire, at whatever point all its clients die. */
TEST_ON(an_abandoned_queue_expires, fixture *f)
{
    process *agents[4];

    f->rt = NULL;
    agents[0] = agent_start(f->server->url, SAFE_LEASE_MS);
    assert_status(DIBS_OK, agent_lock(agents[0], "x", 0));
    for (int i = 1; i < 4; i++)
        agents[i] = agent_in_queue(f, SAFE_LEASE_MS, i - 1);
    for (int i = 0; i < 4; i++)
        process_kill(agents[i]);
    server_assert_clean(f->server);
    assert_true(server_wait_gone(f->server, "lock:x", SAFE_LEASE_MS + SLACK_MS));
    assert_true(server_wait_gone(f->server, "dibs:queue:{lock:x}", 2 * SAFE_LEASE_MS + SLACK_MS));
    for (int i = 0; i < 4; i++)
        process_free(agents[i]);
}

TESTS(fixture_setup, fixture_teardown)
