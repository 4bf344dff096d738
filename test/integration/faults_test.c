/* Every wrong answer that a store may give: each call returns the right status in time, and leaves nothing behind. */
#include "support/fixture.h"
#include "support/queue.h"
#include "support/script_server.h"

/*
 * Expects that dibs_open fails with that status in bounded time, and that the detail contains `word`, unless that is
 * NULL.
 */
static void expect_no_open(dibs_status expected, const char *url, const char *word)
{
    int64_t begin = now_ms();

    expect_not_opened(expected, url, NULL, NULL);
    assert_true(now_ms() - begin < 2000 + SLACK_MS);
    assert_true(dibs_last_error()[0] != '\0');
    assert_that(!word || strcasestr(dibs_last_error(), word), "%s", dibs_last_error());
    assert_null(strchr(dibs_last_error(), '\n'));
    assert_null(strchr(dibs_last_error(), '\r'));
}

/* ------------------------------------------------------ no server answers */

TEST_WITH(open_fails_where_no_server_listens, NULL, NULL, void *none)
{
    expect_no_open(DIBS_UNAVAILABLE, "unix:///nonexistent/redis.sock", "/nonexistent/redis.sock");
    expect_no_open(DIBS_UNAVAILABLE, "redis://127.0.0.1:1", "127.0.0.1");
    expect_no_open(DIBS_UNAVAILABLE, "redis://nobody.invalid:1", "nobody.invalid");
}

TEST_WITH(open_fails_in_time_at_a_silent_server, NULL, NULL, void *none)
{
    script_server *mute = script_server_start(&(script_options){.tcp = true});
    int64_t begin = now_ms();

    expect_not_opened(DIBS_UNAVAILABLE, script_server_url(mute),
                      &(dibs_config){.connect_timeout_ms = 300, .command_timeout_ms = 300}, NULL);
    assert_true(now_ms() - begin < 600 + SLACK_MS);
    script_server_stop(mute);
}

static const struct stranger {
    const char *what;
    script_options options;
    dibs_status status;
    dibs_status or_status; /* another status that is allowed, too */
    const char *word;
} strangers[] = {
    {"HTTP",
     {.answer = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", .hang_up = true},
     DIBS_STORE_ERROR,
     DIBS_STORE_ERROR,
     NULL},
    {"SSH", {.greeting = "SSH-2.0-OpenSSH_9.2\r\n"}, DIBS_STORE_ERROR, DIBS_STORE_ERROR, NULL},
    {"zeros", {.answer = "\x01\x02\x03\xff\xfe\r\n"}, DIBS_STORE_ERROR, DIBS_STORE_ERROR, NULL},
    {"a number to everything", {.answer = ":1\r\n"}, DIBS_STORE_ERROR, DIBS_STORE_ERROR, NULL},
    {"null to everything", {.answer = "$-1\r\n"}, DIBS_STORE_ERROR, DIBS_STORE_ERROR, NULL},
    {"an endless bulk", {.answer = "$2147483647\r\nx"}, DIBS_STORE_ERROR, DIBS_UNAVAILABLE, NULL},
    {"a negative bulk", {.answer = "$-7\r\n"}, DIBS_STORE_ERROR, DIBS_STORE_ERROR, NULL},
    {"a huge array", {.answer = "*10000000\r\n"}, DIBS_STORE_ERROR, DIBS_UNAVAILABLE, NULL},
    {"unknown commands", {.answer = "-ERR unknown command\r\n"}, DIBS_STORE_ERROR, DIBS_STORE_ERROR, "unknown command"},
    {"too many clients",
     {.greeting = "-ERR max number of clients reached\r\n", .hang_up = true},
     DIBS_UNAVAILABLE,
     DIBS_STORE_ERROR,
     NULL},
    {"closes at once", {.greeting = "", .hang_up = true}, DIBS_UNAVAILABLE, DIBS_UNAVAILABLE, NULL},
    {"closes after the first answer", {.answer = "", .hang_up = true}, DIBS_UNAVAILABLE, DIBS_UNAVAILABLE, NULL},
    {"loading",
     {.answer = "-LOADING Redis is loading the dataset in memory\r\n"},
     DIBS_UNAVAILABLE,
     DIBS_UNAVAILABLE,
     "LOADING"},
    {"protected mode",
     {.greeting = "-DENIED Redis is running in protected mode\r\n", .hang_up = true},
     DIBS_DENIED,
     DIBS_STORE_ERROR,
     NULL},
};

TEST_WITH(open_fails_at_what_is_no_redis_server, NULL, NULL, void *none)
{
    for (size_t i = 0; i < sizeof strangers / sizeof *strangers; i++) {
        const struct stranger *s = &strangers[i];
        script_server *stranger = script_server_start(&s->options);
        int64_t begin = now_ms();
        dibs_status status;
        dibs_runtime *rt;

        print_message("# %s\n", s->what);
        status = open_status(script_server_url(stranger), NULL, &rt);
        if (status != s->or_status)
            assert_status(s->status, status);
        assert_null(rt);
        assert_true(now_ms() - begin < 2000 + SLACK_MS);
        assert_that(!s->word || strstr(dibs_last_error(), s->word), "%s", dibs_last_error());
        assert_null(strchr(dibs_last_error(), '\n'));
        script_server_stop(stranger);
    }
}

/* ---------------------------------------------------------------- refusals */

TEST_WITH(open_refuses_wrong_credentials, NULL, NULL, void *none)
{
    server *s = test_server(server_start(&(server_options){
        .tcp = true, .password = "right", .config = "user limited on >limited ~lock:* ~dibs:* &dibs:* +@all"}));

    expect_no_open(DIBS_DENIED, s->url, "NOAUTH");
    expect_no_open(DIBS_DENIED, formatted("redis://:s3cr3t@127.0.0.1:%d", s->port), "WRONGPASS");
    assert_null(strstr(dibs_last_error(), "s3cr3t"));
    expect_no_open(DIBS_DENIED, formatted("redis://nobody:s3cr3t@127.0.0.1:%d", s->port), "WRONGPASS");
    expect_no_open(DIBS_DENIED, formatted("redis://limited:s3cr3t@127.0.0.1:%d", s->port), "WRONGPASS");
    assert_null(strstr(dibs_last_error(), "s3cr3t"));
    dibs_runtime *rt = open_url(formatted("redis://limited:limited@127.0.0.1:%d", s->port), NULL);
    dibs_close(rt);
    server_assert_clean(s);
}

/* A password for a server that has none, or a database that the server does not have. */
TEST_ON(open_refuses_a_password_or_database_the_server_lacks, fixture *f)
{
    expect_no_open(DIBS_DENIED, formatted("unix://:s3cr3t@%s", f->server->socket_path), NULL);
    assert_null(strstr(dibs_last_error(), "s3cr3t"));
    expect_no_open(DIBS_STORE_ERROR, formatted("unix://%s?db=16", f->server->socket_path), NULL);
}

/* Users that lack a right that the scripts need; the error names the right. */
static const struct user {
    const char *what;
    const char *rights;
    bool may_open; /* the lack may show only when a lock is asked for */
} users[] = {
    {"no key", "resetkeys &dibs:* +@all", true},
    {"no lock key", "~dibs:* &dibs:* +@all", true},
    {"no sidecar", "~lock:* &dibs:* +@all", true},
    {"no evalsha", "~* &* +@all -evalsha -eval", true},
    {"no script", "~* &* +@all -@scripting", true},
    {"no set", "~* &* +@all -set", true},
    {"nothing", "~* &* -@all", false},
};

TEST_WITH(an_error_names_the_missing_right, NULL, NULL, void *none)
{
    server *s = test_server(server_start(NULL));

    for (size_t i = 0; i < sizeof users / sizeof *users; i++) {
        dibs_runtime *rt;

        print_message("# %s\n", users[i].what);
        dibs_status status = open_status(server_account(s, "u", users[i].rights), NULL, &rt);
        if (status == DIBS_OK) {
            assert_true(users[i].may_open);
            status = dibs_trylock(rt, "x");
            assert_status(DIBS_DENIED, status);
            assert_status(DIBS_DENIED, dibs_lock(rt, "x")); /* waiting would not help */
        }
        assert_status(DIBS_DENIED, status);
        /* Redis says "no permissions", or of a command inside a script "can't run this command". */
        assert_that(strcasestr(dibs_last_error(), "permission") || strstr(dibs_last_error(), "can't run"), "%s",
                    dibs_last_error());
        dibs_close(rt);
        server_assert_no_locks(s);
    }
}

/* The rights that the contract names are enough. */
TEST_WITH(the_documented_rights_suffice, NULL, NULL, void *none)
{
    server *s = test_server(server_start(NULL));
    actor *waiter = actor_start();
    long long asks;

    const char *url = server_account(s, "worker", "resetchannels ~lock:* ~dibs:* &dibs:* +@all -@dangerous -@admin");
    dibs_runtime *rt = open_url(url, NULL);
    dibs_runtime *second = open_url(url, NULL);
    for (int i = 0; i < 5; i++) {
        assert_status(DIBS_OK, dibs_lock(rt, "x"));
        asks = server_asks(s);
        actor_begin_lock(waiter, second, "x", DIBS_WAIT_FOREVER);
        server_await_ask(s, asks);
        assert_status(DIBS_OK, dibs_unlock(rt, "x"));
        actor_gets(waiter, second, "x");
    }
    actor_end(waiter);
    dibs_close(rt);
    dibs_close(second);
    server_assert_no_locks(s);
}

TEST_ON(revoked_rights_are_reported, fixture *f)
{
    dibs_runtime *rt = test_runtime(open_url(server_account(f->server, "w", "~* &* +@all"), NULL));

    assert_status(DIBS_OK, dibs_lock(rt, "x"));
    server_do(f->server, "ACL SETUSER w -@scripting -@write");
    assert_status(DIBS_DENIED, dibs_lock(rt, "y"));
    assert_status(DIBS_DENIED, dibs_unlock(rt, "x"));
    assert_status(DIBS_NOT_HELD, dibs_check(rt, "x"));
    server_do(f->server, "ACL SETUSER w +@all");
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
    expect_works(f, rt, "y");
}

TEST_ON(an_acquire_on_a_full_server_fails_at_once, fixture *f)
{
    fixture_open_holding(f, SAFE_LEASE_MS, "held");
    server_do(f->server, "CONFIG SET maxmemory 1");
    int64_t begin = now_ms();
    assert_status(DIBS_STORE_ERROR, dibs_trylock(f->rt, "x"));
    assert_that(strstr(dibs_last_error(), "OOM"), "%s", dibs_last_error());
    assert_status(DIBS_STORE_ERROR, dibs_lock(f->rt, "x"));
    assert_status(DIBS_STORE_ERROR, dibs_timedlock(f->rt, "x", 2 * LIMIT_MS));
    assert_true(now_ms() - begin < SLACK_MS);
    assert_status(DIBS_NOT_HELD, dibs_check(f->rt, "x"));
    assert_false(server_has(f->server, "lock:x"));
    /* A held lock is renewed, and can be released. */
    pause_ms(2 * SAFE_LEASE_MS);
    assert_status(DIBS_OK, dibs_check(f->rt, "held"));
    unlock_for_good(f, "held");
    server_do(f->server, "CONFIG SET maxmemory 0");
    expect_works(f, f->rt, "x");
}

/* Else the lock would be granted to who has given up. */
TEST_ON(a_waiter_behind_a_sharer_leaves_the_queue_of_a_full_server, fixture *f)
{
    const dibs_lock_options shared = {.flags = DIBS_SHARED};

    fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *other = test_runtime(open_runtime(f->server, LONG_LEASE_MS));
    assert_status(DIBS_OK, dibs_lock_with(f->rt, "x", 0, &shared));
    actor *a = actor_locking(other, "x", 1000);
    queue_await(f->server, "x", 1);
    server_do(f->server, "CONFIG SET maxmemory 1");
    assert_status(DIBS_TIMEOUT, actor_result(a));
    assert_true(server_wait_gone(f->server, "dibs:queue:{lock:x}", LIMIT_MS));
    unlock_for_good(f, "x");
    server_do(f->server, "CONFIG SET maxmemory 0");
}

/*
 * The first answer is lost with its connection, and the second says that the server takes no writes any more. The
 * possible effect of the first must not be forgotten.
 */
static void refuse_behind_a_lost_answer(script_server *net)
{
    script_server_add(net, (script_rule){.match = "lock:x", .nth = 1, .action = SCRIPT_CLOSE_AFTER});
    script_server_answer(net, "lock:x", "-NOREPLICAS Not enough good replicas to write.\r\n");
}

TEST_ON(an_ask_refused_when_sent_again_is_retracted, fixture *f)
{
    script_server *net = fixture_between(f);
    dibs_runtime *rt = test_runtime(open_url(script_server_url(net), &(dibs_config){.lease_ms = LONG_LEASE_MS}));

    for (int i = 0; i < 4; i++) {
        unsigned fired = script_server_fired(net);

        refuse_behind_a_lost_answer(net);
        assert_status(DIBS_STORE_ERROR, i % 2 ? dibs_trylock(rt, "x") : dibs_timedlock(rt, "x", LIMIT_MS));
        assert_true(script_server_fired(net) >= fired + 2);
        script_server_clear(net);
        assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
    }
}

/* As above, for the ask behind a release, on behalf of a thread of this process. */
TEST_ON(a_release_and_ask_refused_when_sent_again_are_retracted, fixture *f)
{
    script_server *net = fixture_between(f);
    dibs_runtime *rt = test_runtime(
        open_url(script_server_url(net), &(dibs_config){.lease_ms = LONG_LEASE_MS, .handoff_ms = DIBS_NO_HANDOFF}));
    actor *waiter = actor_start();

    for (int i = 0; i < 3; i++) {
        assert_status(DIBS_OK, dibs_timedlock(rt, "x", LIMIT_MS));
        actor_begin_lock(waiter, rt, "x", DIBS_WAIT_FOREVER);
        actor_await_asleep(waiter);
        refuse_behind_a_lost_answer(net);
        assert_status(DIBS_STORE_ERROR, dibs_unlock(rt, "x"));
        assert_status(DIBS_STORE_ERROR, actor_result(waiter));
        script_server_clear(net);
        assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
    }
}

/* ------------------------------------------------------ temporary refusals */

/* Lets the server refuse writes as a replica does, without saying where its master is. */
static void demote(server *s)
{
    server_do(s, "REPLICAOF 127.0.0.1 1");
}

static void demote_stale(server *s)
{
    server_do(s, "CONFIG SET replica-serve-stale-data no");
    server_do(s, "REPLICAOF 127.0.0.1 1");
}

static void promote(server *s)
{
    server_do(s, "REPLICAOF NO ONE");
}

TEST_ON(a_replica_counts_as_unreachable, fixture *f)
{
    static void (*const ways[])(server * s) = {demote, demote_stale}; /* READONLY, MASTERDOWN */
    actor *waiter = actor_start();

    f->config.outage_ms = LIMIT_MS;
    fixture_open(f, LONG_LEASE_MS);
    for (size_t i = 0; i < 2; i++) {
        ways[i](f->server);
        assert_status(DIBS_UNAVAILABLE, dibs_trylock(f->rt, "x"));
        expect_unavailable(f->rt, "x", 300);
        actor_begin_lock(waiter, f->rt, "x", DIBS_WAIT_FOREVER);
        pause_ms(300); /* time for the waiter to be refused; whenever the promotion comes, it must get the lock */
        assert_true(actor_busy(waiter));
        promote(f->server);
        assert_status(DIBS_OK, actor_result(waiter));
        assert_true(server_has(f->server, "lock:x"));
        assert_status(DIBS_OK, actor_unlock(waiter, f->rt, "x"));
    }
}

static const char *const passing_refusals[] = {
    "-LOADING Redis is loading the dataset in memory\r\n",
    "-READONLY You can't write against a read only replica.\r\n",
    "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n",
    "-CLUSTERDOWN The cluster is down\r\n",
    "-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
};

TEST_ON(temporary_refusals_are_ridden_out, fixture *f)
{
    script_server *net = fixture_between(f);
    dibs_runtime *rt = test_runtime(open_url(script_server_url(net), &(dibs_config){.outage_ms = LIMIT_MS}));
    actor *waiter = actor_start();

    for (size_t i = 0; i < sizeof passing_refusals / sizeof *passing_refusals; i++) {
        print_message("# %s", passing_refusals[i]);
        script_server_answer(net, "lock:x", passing_refusals[i]);
        assert_status(DIBS_UNAVAILABLE, dibs_trylock(rt, "x"));
        actor_begin_lock(waiter, rt, "x", DIBS_WAIT_FOREVER);
        pause_ms(200);
        assert_true(actor_busy(waiter));
        script_server_clear(net);
        actor_gets(waiter, rt, "x");
        assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
    }
}

/* The refusal is an answer: the release goes on in the background, and the caller is told at once. */
TEST_ON(a_release_that_is_refused_is_not_sent_again, fixture *f)
{
    script_server *net = fixture_between(f);
    dibs_runtime *rt = test_runtime(open_url(script_server_url(net), &(dibs_config){.lease_ms = LONG_LEASE_MS}));

    /* A fair one, which is always released by a script (rule 71). */
    assert_status(DIBS_OK, dibs_lock_with(rt, "x", LIMIT_MS, &(dibs_lock_options){.flags = DIBS_FAIR}));
    script_server_add(
        net,
        (script_rule){.match = ASK_OR_RELEASE_OF_X, .nth = 1, .action = SCRIPT_REPLACE, .bytes = passing_refusals[0]});
    assert_status(DIBS_UNAVAILABLE, dibs_unlock(rt, "x"));
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
}

TEST_ON(permanent_refusals_are_reported_at_once, fixture *f)
{
    static const struct {
        const char *reply;
        dibs_status status;
    } cases[] = {{"-OOM command not allowed when used memory > 'maxmemory'.\r\n", DIBS_STORE_ERROR},
                 {"-MISCONF Redis is configured to save RDB snapshots\r\n", DIBS_STORE_ERROR},
                 {"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n", DIBS_STORE_ERROR},
                 {"-ERR something else\r\n", DIBS_STORE_ERROR},
                 {"-NOPERM this user has no permissions to run the 'evalsha' command\r\n", DIBS_DENIED},
                 {"-NOAUTH Authentication required.\r\n", DIBS_DENIED},
                 {"+OK\r\n", DIBS_STORE_ERROR},
                 {"$-1\r\n", DIBS_STORE_ERROR},
                 {"*0\r\n", DIBS_STORE_ERROR},
                 {"*1\r\n$7\r\nsurpris\r\n", DIBS_STORE_ERROR}};
    script_server *net = fixture_between(f);
    dibs_runtime *rt = test_runtime(open_url(script_server_url(net), NULL));
    int64_t begin = now_ms();

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        print_message("# %s", cases[i].reply);
        script_server_answer(net, "lock:x", cases[i].reply);
        assert_status(cases[i].status, dibs_trylock(rt, "x"));
        assert_status(cases[i].status, dibs_lock(rt, "x"));
        assert_true(stats_of(rt).store_errors > 0);
        script_server_clear(net);
        expect_works(f, rt, "x");
    }
    assert_true(now_ms() - begin < LIMIT_MS);
}

TESTS(fixture_setup, fixture_teardown)
