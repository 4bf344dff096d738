/* redis-sentinel://: how the master is found, and what is reported where it is not. */
#include "support/child.h"
#include "support/fake_sentinel.h"
#include "support/fixture.h"
#include "support/sentinels.h"

static sentinels *shared; /* no test here has a failover */

static int start_shared(void **state)
{
    shared = sentinels_start(NULL);
    return 0;
}

static int stop_shared(void **state)
{
    server_assert_no_locks(shared->data[0]);
    sentinels_stop(shared);
    return 0;
}

static void expect_lock_at(dibs_runtime *rt, server *master)
{
    assert_status(DIBS_OK, dibs_timedlock(rt, "x", LIMIT_MS));
    assert_true(server_has(master, "lock:x"));
    assert_status(DIBS_OK, dibs_unlock(rt, "x"));
}

/* On a busy machine sentinels may take longer to answer than the configuration gives them. */
static void expect_failure(dibs_status status, const char *url, const dibs_config *config, const char *part)
{
    int64_t limit = now_ms() + LIMIT_MS;
    dibs_status opened;
    dibs_runtime *rt;

    do
        opened = open_status(url, config, &rt);
    while (opened != DIBS_OK && !strstr(dibs_last_error(), part) && now_ms() < limit);
    assert_status(status, opened);
    assert_that(strstr(dibs_last_error(), part), "no \"%s\" in: %s", part, dibs_last_error());
    assert_null(strstr(dibs_last_error(), "s3cr3t"));
}

/* ------------------------------------------------------------ the sentinels */

TEST(sentinels_lead_to_the_master)
{
    dibs_runtime *rt = test_runtime(open_url(shared->url, NULL));

    expect_lock_at(rt, shared->data[0]);
}

TEST(sentinels_that_are_down_or_hang_are_passed_over)
{
    server_kill(shared->sentinels[0]);
    server_pause(shared->sentinels[1]);
    dibs_runtime *rt = open_url(shared->url, &(dibs_config){.connect_timeout_ms = 4000});
    expect_lock_at(rt, shared->data[0]);
    dibs_close(rt);
    const char *faults = formatted("127.0.0.1:%d can't be reached, 127.0.0.1:%d does not answer",
                                   shared->sentinels[0]->port, shared->sentinels[1]->port);
    int64_t before = now_ms();
    expect_failure(DIBS_UNAVAILABLE, sentinels_url(shared, "01"), NULL, faults); /* within a second */
    assert_in_range(now_ms() - before, 0, 1000 + SLACK_MS);
    server_resume(shared->sentinels[1]);
    server_restart(shared->sentinels[0]);
}

TEST(open_fails_where_no_sentinel_knows_the_master)
{
    const char *url = formatted("redis-sentinel://127.0.0.1:%d/other", shared->sentinels[0]->port);
    expect_failure(DIBS_UNAVAILABLE, url, NULL, "no sentinel names the master other");
    expect_failure(DIBS_UNAVAILABLE, url, NULL, "does not know that name");
}

TEST(a_server_that_is_no_sentinel_is_passed_over)
{
    int port = shared->data[0]->port;

    expect_failure(DIBS_UNAVAILABLE, formatted("redis-sentinel://127.0.0.1:%d/mymaster", port), NULL,
                   "does not answer as a sentinel does");
    dibs_runtime *rt = test_runtime(open_url(
        formatted("redis-sentinel://127.0.0.1:%d,127.0.0.1:%d/mymaster", port, shared->sentinels[2]->port), NULL));
    expect_lock_at(rt, shared->data[0]);
}

TEST(sentinels_have_passwords_of_their_own)
{
    sentinels *s = sentinels_start(&(sentinels_options){.password = "0ther",
                                                        .sentinel_password = "s3cr3t",
                                                        .sentinel_config = "user app on >s3cr3tapp allchannels +@all"});

    const char *url = formatted("redis-sentinel://:0ther@%s", strstr(s->url, "//") + 2);
    dibs_runtime *rt = open_url(url, &(dibs_config){.sentinel_password = "s3cr3t"});
    expect_lock_at(rt, s->data[0]);
    dibs_close(rt);
    rt = open_url(url, &(dibs_config){.sentinel_user = "app", .sentinel_password = "s3cr3tapp"});
    expect_lock_at(rt, s->data[0]);
    dibs_close(rt);
    expect_failure(DIBS_DENIED, url, &(dibs_config){.sentinel_password = "s3cr3tX"}, "refused the credentials");
    expect_failure(DIBS_DENIED, url, &(dibs_config){.sentinel_user = "nobody", .sentinel_password = "s3cr3t"},
                   "refused the credentials");
    expect_failure(DIBS_DENIED, url, NULL,
                   "refused a client without credentials for the sentinels (sentinel_password)");
    expect_failure(DIBS_DENIED, s->url, &(dibs_config){.sentinel_password = "s3cr3t"}, "it wants a password");
    server_assert_no_locks(s->data[0]);
    sentinels_stop(s);
}

/* ------------------------------------------------------------ their answers */

static const char *url_of_both(const fake_sentinel *first, int second)
{
    return formatted("redis-sentinel://127.0.0.1:%d,127.0.0.1:%d/mymaster", fake_redis_port(first->redis), second);
}

TEST(a_replica_that_is_named_is_never_used)
{
    server *replica = shared->data[1];
    fake_sentinel stale;

    fake_sentinel_start(&stale);
    fake_sentinel_name(&stale, replica->port);
    long long asks = server_asks(replica);
    expect_failure(DIBS_UNAVAILABLE, stale.url, NULL, "is not a master");
    dibs_runtime *rt =
        open_url(url_of_both(&stale, shared->sentinels[0]->port), &(dibs_config){.connect_timeout_ms = LIMIT_MS / 4});
    for (int i = 0; i < 5; i++)
        expect_lock_at(rt, shared->data[0]);
    dibs_close(rt);
    /* A greeting tries whether EVAL may be used; that alone was run. */
    assert_true(server_calls(replica, "evalsha") == 0 && server_asks(replica) - asks < 20);
    fake_sentinel_stop(&stale);
}

TEST(an_answer_that_is_malformed_is_not_used)
{
    static const char *const answers[] = {
        "+OK\r\n",
        ":1\r\n",
        "*1\r\n$9\r\n127.0.0.1\r\n",
        "*2\r\n$9\r\n127.0.0.1\r\n:6379\r\n",
        "*2\r\n$9\r\n127.0.0.1\r\n$1\r\n0\r\n",
        "*2\r\n$9\r\n127.0.0.1\r\n$5\r\n65536\r\n",
        "*2\r\n$9\r\n127.0.0.1\r\n$2\r\n-1\r\n",
        "*2\r\n$0\r\n\r\n$4\r\n6379\r\n",
        "*2\r\n$9\r\n127.0 0.1\r\n$4\r\n6379\r\n",
        "*3\r\n$9\r\n127.0.0.1\r\n$4\r\n6379\r\n$1\r\nx\r\n",
        "*2\r\n*1\r\n:1\r\n$4\r\n6379\r\n",
    };
    fake_sentinel odd;

    fake_sentinel_start(&odd);
    const char *url = url_of_both(&odd, shared->sentinels[0]->port);
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        fake_redis_answer(odd.redis, "SENTINEL GET-MASTER-ADDR-BY-NAME", answers[i]);
        expect_failure(DIBS_UNAVAILABLE, odd.url, NULL, "does not answer as a sentinel does");
        dibs_runtime *rt = open_url(url, NULL);
        expect_lock_at(rt, shared->data[0]);
        dibs_close(rt);
    }
    fake_sentinel_stop(&odd);
}

/* The first sentinel of the URL was left behind with the old master, which still claims to be a master. */
TEST(a_stale_sentinel_that_comes_first_is_outvoted)
{
    server *old = test_server(server_start(&(server_options){.tcp = true})),
           *new_one = test_server(server_start(&(server_options){.tcp = true}));
    fake_sentinel s[3];

    for (int i = 0; i < 3; i++) {
        fake_sentinel_start(&s[i]);
        fake_sentinel_name(&s[i], i == 0 ? old->port : new_one->port);
    }
    dibs_runtime *rt =
        open_url(formatted("redis-sentinel://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d/mymaster",
                           fake_redis_port(s[0].redis), fake_redis_port(s[1].redis), fake_redis_port(s[2].redis)),
                 NULL);
    expect_lock_at(rt, new_one);
    fake_sentinel_tell(&s[0], "mymaster");
    fake_sentinel_await_asked(&s[0], 2);
    expect_lock_at(rt, new_one);
    dibs_close(rt);
    assert_true(server_calls(old, "evalsha") == 0);
    for (int i = 0; i < 3; i++)
        fake_sentinel_stop(&s[i]);
}

static bool has_no_client(server *s)
{
    redisReply *reply = server_command(s, "CLIENT LIST");
    bool none = strstr(reply->str, "name=dibs:") == NULL;

    freeReplyObject(reply);
    return none;
}

/* Like a master that was partitioned away: it does not know that it is replaced. */
TEST(a_master_that_was_replaced_is_left_though_it_answers)
{
    server *old = test_server(server_start(&(server_options){.tcp = true})),
           *new_one = test_server(server_start(&(server_options){.tcp = true}));
    fake_sentinel s;

    fake_sentinel_start(&s);
    fake_sentinel_name(&s, old->port);
    dibs_runtime *rt = open_url(s.url, &(dibs_config){.lease_ms = LONG_LEASE_MS});
    assert_status(DIBS_OK, dibs_lock(rt, "held"));
    expect_lock_at(rt, old);
    fake_sentinel_name(&s, new_one->port);
    fake_sentinel_tell(&s, "another");
    expect_lock_at(rt, old);
    fake_sentinel_tell(&s, "mymaster");
    await_or_say(has_no_client(old), "a connection to the old master stands");
    expect_lock_at(rt, new_one);
    await_that(server_has(new_one, "lock:held"));
    assert_status(DIBS_OK, dibs_check(rt, "held"));
    assert_status(DIBS_OK, dibs_unlock(rt, "held"));
    dibs_close(rt);
    server_assert_no_locks(new_one);
    fake_sentinel_stop(&s);
}

TEST(a_sentinel_is_asked_every_second_without_the_right_to_subscribe)
{
    server *old = test_server(server_start(&(server_options){.tcp = true})),
           *new_one = test_server(server_start(&(server_options){.tcp = true}));
    fake_sentinel s;

    fake_sentinel_start(&s);
    fake_redis_answer(s.redis, "SUBSCRIBE", "-NOPERM this user has no permissions to access one of the channels\r\n");
    fake_sentinel_name(&s, old->port);
    dibs_runtime *rt = open_url(s.url, NULL);
    expect_lock_at(rt, old);
    fake_sentinel_name(&s, new_one->port);
    await_or_say(has_no_client(old), "a connection to the old master stands");
    expect_lock_at(rt, new_one);
    assert_int_equal(fake_redis_count(s.redis, "UNSUBSCRIBE"), 0);
    dibs_close(rt);
    fake_sentinel_stop(&s);
}

/* --------------------------------------------------------------- processes */

static void lock_in_child(dibs_runtime *rt)
{
    CHILD_WANTS(DIBS_OK, dibs_lock(rt, "x"));
    CHILD_WANTS(DIBS_OK, dibs_unlock(rt, "x"));
}

TEST(a_child_asks_the_sentinels_by_itself)
{
    dibs_runtime *rt = test_runtime(open_url(shared->url, NULL));

    expect_lock_at(rt, shared->data[0]);
    run_child(lock_in_child, rt);
    expect_lock_at(rt, shared->data[0]);
}

TESTS_OF(NULL, NULL, start_shared, stop_shared)
