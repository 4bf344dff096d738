/* How a quorum is connected: to all of its masters, and no call waits for a master that it does not need. */
#include "support/fixture.h"
#include "support/masters.h"

#define TIMEOUT_MS 4000
#define SILENT_MS 300
#define REST_MS 1500 /* by then a master that fails rests for a second each time */

struct client {
    masters *m;
    dibs_runtime *rt;
};

static bool has_the_lock_at_all(const struct client *client)
{
    assert_status(DIBS_OK, dibs_timedlock(client->rt, "a", LIMIT_MS));
    size_t count = masters_with_key(client->m, "a");
    assert_status(DIBS_OK, dibs_unlock(client->rt, "a"));
    return count == client->m->count;
}

/* A majority is enough to open a quorum. The others are connected as well, although no renewal sets a lock there. */
TEST_ON_THREE_AND_FIVE(open_connects_to_all_masters_of_a_running_quorum, masters *m)
{
    masters_open_connected(m, 10 * LONG_LEASE_MS);
    struct client client = {m, masters_open_another(m, 10 * LONG_LEASE_MS)};
    await_or_say(has_the_lock_at_all(&client), "not all masters are connected");
    dibs_close(client.rt);
}

/* Each master in turn, also the first of the URLs. */
TEST_ON_THREE_AND_FIVE(open_does_not_wait_for_a_silent_master, masters *m)
{
    enum { PATIENCE_MS = LIMIT_MS / 4 }; /* so long that a machine that stands still is no silent master */

    m->config.connect_timeout_ms = m->config.command_timeout_ms = PATIENCE_MS;
    masters_open_connected(m, LONG_LEASE_MS);
    for (size_t i = 0; i < m->count; i++) {
        server_pause(m->servers[i]);
        int64_t began = now_ms();
        dibs_runtime *rt = masters_open_another(m, LONG_LEASE_MS);
        int64_t took = now_ms() - began;
        assert_that(took < PATIENCE_MS / 4, "%lld ms", (long long)took);
        lock_and_release(rt, "a", LIMIT_MS);
        server_resume(m->servers[i]);
        dibs_close(rt);
    }
}

/* A master that was away rests and is not connected yet; it is needed because a connected one falls silent. */
TEST_ON_THREE_AND_FIVE(a_single_try_connects_to_the_master_it_needs, masters *m)
{
    size_t minority = m->count - m->majority;

    m->config.command_timeout_ms = TIMEOUT_MS;
    masters_open_connected(m, LONG_LEASE_MS);
    for (size_t i = 0; i < minority; i++) {
        server_do(m->servers[i], "CONFIG SET maxclients 1");
        server_do(m->servers[i], "CLIENT KILL TYPE normal SKIPME yes");
    }
    for (int64_t end = now_ms() + REST_MS; now_ms() < end;)
        lock_and_release(m->rt, "a", LIMIT_MS);
    masters_do(m, minority, "CONFIG SET maxclients 10000");
    for (size_t i = 0; i < minority; i++)
        server_pause(m->servers[m->count - 1 - i]);
    int64_t began = now_ms();
    assert_status(DIBS_OK, dibs_trylock(m->rt, "a"));
    int64_t took = now_ms() - began;
    assert_that(took < TIMEOUT_MS / 2, "%lld ms", (long long)took);
    assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
}

/* The calling actor waits for the masters, which go on after that. It neither wakes again and again nor keeps looking.
 */
static void expect_sleep(masters *m, actor *a)
{
    long before = actor_sleeps(a);

    pause_ms(SILENT_MS);
    long times = actor_sleeps(a) - before;
    assert_that(times < SILENT_MS / 30, "it slept %ld times", times);
    actor_await_asleep(a);
    masters_each(m, m->count, server_resume);
}

TEST_ON_THREE_AND_FIVE(a_thread_sleeps_until_masters_answer, masters *m)
{
    m->config.command_timeout_ms = m->config.connect_timeout_ms = LIMIT_MS;
    masters_open_connected(m, LONG_LEASE_MS);
    masters_each(m, m->count, server_pause);
    actor *a = actor_locking(m->rt, "a", LIMIT_MS);
    actor_await_asleep(a);
    expect_sleep(m, a);
    actor_gets(a, m->rt, "a");
}

/* The masters take connections, and answer nothing. */
TEST_ON_THREE_AND_FIVE(a_thread_sleeps_until_connections_stand, masters *m)
{
    m->config.command_timeout_ms = m->config.connect_timeout_ms = LIMIT_MS;
    masters_open_connected(m, LONG_LEASE_MS);
    for (size_t i = 0; i < m->count; i++) {
        server_do(m->servers[i], "CONFIG SET maxclients 1");
        server_do(m->servers[i], "CLIENT KILL TYPE normal SKIPME yes");
    }
    events_await(&m->events, DIBS_EVENT_STORE_DOWN, NULL);
    masters_each(m, m->count, server_pause);
    actor *a = actor_locking(m->rt, "a", LIMIT_MS);
    actor_await_asleep(a);
    expect_sleep(m, a);
    masters_do(m, m->count, "CONFIG SET maxclients 10000");
    actor_gets(a, m->rt, "a");
}

/*
 * A master that takes many times as long as the others gives a vote where it is needed, and causes no load where it is
 * not. A round in which the machine made the others slow as well tells nothing, and the master takes longer in the
 * next.
 */
TEST_ON_THREE_AND_FIVE(a_slow_minority_is_asked_rarely, masters *m)
{
    enum { SLOW_FIRST_MS = 60, SLOW_MOST_MS = 480, ROUNDS = 20, PAIRS_LEAST = 20 };
    const size_t slow = m->count - 1;
    long long others = 0, its = 0;
    int rounds = 0, slow_ms = SLOW_FIRST_MS;

    masters_open_connected(m, LONG_LEASE_MS);
    for (int64_t limit = now_ms() + LIMIT_MS; rounds < ROUNDS && now_ms() < limit;) {
        long long before[] = {masters_asks(m, 0), masters_asks(m, slow)};
        int pairs = 0;
        server_do(m->servers[slow], "CLIENT PAUSE %d", slow_ms);
        for (int64_t end = now_ms() + slow_ms; now_ms() < end; pairs++)
            lock_and_release(m->rt, "a", LIMIT_MS);
        if (pairs < PAIRS_LEAST) {
            slow_ms = slow_ms < SLOW_MOST_MS ? 2 * slow_ms : slow_ms;
            continue;
        }
        rounds++;
        others += masters_asks(m, 0) - before[0];
        its += masters_asks(m, slow) - before[1];
    }
    assert_that(rounds > 0 && its < others / 3, "%lld scripts at the slow master, %lld at another, in %d rounds", its,
                others, rounds);
}

TESTS(NULL, NULL)
