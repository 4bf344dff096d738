/*
 * min_replicas: a first acquire is acknowledged by so many replicas, or retracted; so is a grant by push. And a replica
 * that is promoted.
 */
#include <unistd.h>

#include "integration/replicas_setup.h"
#include "support/queue.h"
#include "support/common/redis_process.h"

TEST_ON(a_first_acquire_waits_for_its_replicas, struct pair *p)
{
    dibs_config config = one_replica;

    dibs_runtime *patient = test_runtime(open_url(p->master->url, &config));
    config.replica_timeout_ms = 200;
    dibs_runtime *hasty = test_runtime(open_url(p->master->url, &config));
    for (int i = 0; i < 5; i++) {
        assert_status(DIBS_OK, dibs_trylock(patient, "x"));
        assert_true(server_has(p->replica, "lock:x")); /* that is what DIBS_OK means */
        lock_and_release(patient, "x", DIBS_WAIT_FOREVER);
        assert_status(DIBS_OK, dibs_unlock(patient, "x"));
    }
    server_pause(p->replica);
    assert_status(DIBS_UNAVAILABLE, dibs_trylock(hasty, "x"));
    assert_that(strcasestr(dibs_last_error(), "replica"), "%s", dibs_last_error());
    assert_status(DIBS_NOT_HELD, dibs_check(hasty, "x"));
    assert_true(server_wait_gone(p->master, "lock:x", LIMIT_MS));
    server_resume(p->replica);
    lock_and_release(patient, "x", LIMIT_MS);
}

struct
try {
    dibs_runtime *rt;
    const char *name;
    dibs_status status;
};

static void try_and_unlock(void *arg)
{
    struct try *try = arg;

    try->status = dibs_trylock(try->rt, try->name);
    if (try->status == DIBS_OK)
        try->status = dibs_unlock(try->rt, try->name);
}

/*
 * Threads that wait for a replica have a connection each, and there are only so many. A thread that finds all
 * connections in use gets the next free one at once, and so asks in time.
 */
TEST_ON(more_threads_than_connections_all_get_their_replicas, struct pair *p)
{
    enum { CONNECTIONS = 8, THREADS = 3 * CONNECTIONS };
    struct try tries[THREADS];
    actor *actors[THREADS];

    dibs_runtime *rt = test_runtime(open_url(p->master->url, &one_replica));
    const char *line = formatted("blocked_clients:%d", CONNECTIONS);
    await_acknowledgement(p->master);
    server_pause(p->replica);
    for (int i = 0; i < THREADS; i++) {
        tries[i] = (struct try){.rt = rt, .name = formatted("x%d", i)};
        actors[i] = actor_start();
        actor_begin(actors[i], try_and_unlock, &tries[i]);
    }
    await_info(p->master, "clients", line);
    for (int i = 0; i < THREADS; i++)
        actor_await_asleep(actors[i]);
    server_resume(p->replica);
    for (int i = 0; i < THREADS; i++) {
        actor_end(actors[i]);
        assert_status(DIBS_OK, tries[i].status);
    }
}

enum { CAREFUL_THREADS = 4, CAREFUL_TRIES = 10 };

struct careful {
    dibs_runtime *rt;
    const char *name;
    unsigned good;
    pthread_t thread;
    char detail[320];
};

static void *try_carefully(void *arg)
{
    struct careful *c = arg;

    for (int i = 0; i < CAREFUL_TRIES; i++) {
        if (dibs_trylock(c->rt, c->name) == DIBS_OK && dibs_unlock(c->rt, c->name) == DIBS_OK)
            c->good++;
        else
            snprintf(c->detail, sizeof c->detail, "%s", dibs_last_error());
    }
    return NULL;
}

/*
 * Each call needs a connection of its own for a while. Where no more can be made, the calls take turns on the open
 * ones.
 */
TEST_ON(calls_share_the_connections_where_no_more_can_be_made, struct pair *p)
{
    struct careful all[CAREFUL_THREADS];
    dibs_runtime *rt = test_runtime(open_url(p->master->url, &one_replica));

    assert_status(DIBS_OK, dibs_lock(rt, "x"));
    while (dibs_extend(rt, "x", LONG_LEASE_MS) != DIBS_OK) /* so the scheduler is connected */
        pause_ms(1);
    assert_status(DIBS_OK, dibs_unlock(rt, "x"));
    server_do(p->master, "CONFIG SET maxclients 1");
    for (unsigned i = 0; i < CAREFUL_THREADS; i++) {
        all[i] = (struct careful){.rt = rt, .name = formatted("careful-%u", i)};
        assert_int_equal(pthread_create(&all[i].thread, NULL, try_carefully, &all[i]), 0);
    }
    for (unsigned i = 0; i < CAREFUL_THREADS; i++) {
        pthread_join(all[i].thread, NULL);
        assert_that(all[i].good == CAREFUL_TRIES, "%u: %s", all[i].good, all[i].detail);
    }
    server_do(p->master, "CONFIG SET maxclients 10000");
}

/* The release of another client made the grant, and that release waits for no replica. */
TEST_ON(a_pushed_grant_waits_for_its_replicas, struct pair *p)
{
    actor *waiter = actor_start();

    dibs_runtime *holder = test_runtime(open_runtime(p->master, LONG_LEASE_MS));
    dibs_runtime *careful = test_runtime(open_url(p->master->url, &one_replica));
    for (int i = 0; i < 3; i++) {
        assert_status(DIBS_OK, dibs_lock(holder, "x"));
        actor_begin_lock(waiter, careful, "x", DIBS_WAIT_FOREVER);
        queue_await(p->master, "x", 1);
        const char *token = formatted("%s", queue_at(p->master, "x", 0).token);
        await_acknowledgement(p->master); /* so that nothing but the grant is waited for */
        server_pause(p->replica);
        assert_status(DIBS_OK, dibs_unlock(holder, "x"));
        await_info(p->master, "clients", "blocked_clients:1"); /* granted, and not acknowledged */
        assert_true(actor_busy(waiter));
        assert_status(DIBS_BUSY, dibs_trylock(holder, "x"));
        server_resume(p->replica);
        assert_status(DIBS_OK, actor_result(waiter));
        assert_string_equal(server_text(p->replica, "GET lock:x"), token);
        assert_status(DIBS_OK, actor_unlock(waiter, careful, "x"));
    }
    queue_assert_gone(p->master, "x");
}

/* No replica acknowledges the grant: it is given back, and the next waiter gets the lock. */
TEST_WITH(a_pushed_grant_without_replicas_is_given_back, fixture_setup, fixture_teardown, fixture *f)
{
    actor *waiter = actor_start();
    dibs_config config = {.lease_ms = LONG_LEASE_MS, .min_replicas = 1, .replica_timeout_ms = 50, .outage_ms = 200};

    fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *careful = test_runtime(open_url(f->server->url, &config));
    for (int i = 0; i < 3; i++) {
        assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
        actor_begin_lock(waiter, careful, "x", DIBS_WAIT_FOREVER);
        queue_await(f->server, "x", 1);
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
        assert_status(DIBS_UNAVAILABLE, actor_result(waiter));
        assert_status(DIBS_NOT_HELD, actor_check(waiter, careful, "x"));
        assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
        queue_await(f->server, "x", 0);
    }
    assert_int_equal(stats_of(careful).granted, 0);
    queue_assert_gone(f->server, "x");
}

/* The word behind the key that a script of the runtime set the lock to, in a line of MONITOR. False: it is another. */
static bool read_owner(const char *line, char token[192])
{
    const char *at = strstr(line, " lua] ");

    return at && sscanf(at, " lua] \"%*[SETset]\" \"lock:x\" \"%191[^\"]\"", token) == 1;
}

/*
 * A grant that too few replicas acknowledged is retracted in the background. The attempt asks on under another token:
 * otherwise the retraction could end a later grant of the same attempt.
 */
TEST_WITH(each_grant_without_replicas_has_a_token_of_its_own, fixture_setup, fixture_teardown, fixture *f)
{
    enum { TOKENS = 64 };
    dibs_config config = {.lease_ms = LONG_LEASE_MS, .min_replicas = 1, .replica_timeout_ms = 20};
    char tokens[TOKENS][192];
    char token[192];
    unsigned waits = 0, count = 0;
    bool end = false;

    dibs_runtime *careful = open_url(f->server->url, &config);
    redisContext *monitor = redisConnectUnix(f->server->socket_path);
    assert_true(monitor && !monitor->err);
    freeReplyObject(redisCommand(monitor, "MONITOR"));
    assert_status(DIBS_UNAVAILABLE, dibs_timedlock(careful, "x", 2000));
    dibs_close(careful);
    server_do(f->server, "ECHO that-is-all");
    while (!end) {
        redisReply *line = NULL;
        assert_int_equal(redisGetReply(monitor, (void **)&line), REDIS_OK);
        end = strstr(line->str, "that-is-all") != NULL;
        waits += strstr(line->str, " \"WAIT\" ") != NULL;
        if (read_owner(line->str, token)) {
            bool known = false;
            for (unsigned i = 0; i < count; i++)
                known = known || strcmp(tokens[i], token) == 0;
            assert_true(count < TOKENS);
            if (!known)
                strcpy(tokens[count++], token);
        }
        freeReplyObject(line);
    }
    redisFree(monitor);
    assert_that(waits > 2, "%u", waits);
    assert_that(count >= waits, "%u tokens, %u waits", count,
                waits); /* one granted too late does not wait for replicas */
}

/* One address, which leads to one server after the other. */
static void lead_to(const char *address, const server *s)
{
    const char *next = formatted("%s.next", address);
    assert_int_equal(symlink(s->socket_path, next), 0);
    assert_int_equal(rename(next, address), 0);
}

/*
 * The replica is promoted, and the address leads to it, but the connections to the old master, which refuses
 * everything, still stand: they are given up. What is held is renewed in the new master, or restored there.
 */
TEST_ON(an_address_that_moves_to_the_new_master_is_followed, struct pair *p)
{
    char folder[64];
    actor *waiter = actor_start();

    assert_true(temporary_folder(folder, sizeof folder));
    const char *address = formatted("%s/address", folder);
    const char *url = formatted("unix://%s", address);
    lead_to(address, p->master);
    dibs_runtime *rt =
        test_runtime(open_url(url, &(dibs_config){.lease_ms = 3 * SAFE_LEASE_MS, .outage_ms = LIMIT_MS}));
    dibs_runtime *second =
        test_runtime(open_url(url, &(dibs_config){.lease_ms = LONG_LEASE_MS, .outage_ms = LIMIT_MS}));
    for (int i = 0; i < 3; i++) {
        assert_status(DIBS_OK, dibs_lock(rt, "x"));
        await_acknowledgement(p->master);
        actor_begin_lock(waiter, second, "x", DIBS_WAIT_FOREVER);
        queue_await(p->master, "x", 1);
        server_do(p->replica, "REPLICAOF NO ONE");
        server_do(p->master, "REPLICAOF 127.0.0.1 %d", p->replica->port);
        lead_to(address, p->replica);
        server_do(p->replica, "PEXPIRE lock:x %d", 3 * SAFE_LEASE_MS / 2);
        await_that(server_integer(p->replica, "PTTL lock:x") > 2 * SAFE_LEASE_MS);
        assert_status(DIBS_OK, dibs_check(rt, "x"));
        lock_and_release(rt, "y", LIMIT_MS);
        assert_status(DIBS_OK, dibs_unlock(rt, "x"));
        actor_gets(waiter, second, "x");
        *p = (struct pair){p->replica, p->master};
        await_info(p->master, "replication", "state=online");
    }
    remove_folder(folder);
}

TESTS(pair_setup, pair_teardown)
