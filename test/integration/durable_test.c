/*
 * durable: a first acquire, or a grant by push, is on the server's disk or is given back. What happens at a server that
 * can't confirm this, as before Redis 7.2.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/child.h"
#include "support/findings.h"
#include "support/fixture.h"
#include "support/process.h"
#include "support/queue.h"
#include "support/script_server.h"

#define SAYS_YES "*2\r\n:1\r\n:0\r\n"
#define SAYS_NO "*2\r\n:0\r\n:1\r\n"
#define TOO_OLD "can't be asked what is on its disk"
#define APPEND_ONLY "appendonly yes\nappendfsync everysec"

static const dibs_config durable = {.lease_ms = LONG_LEASE_MS,
                                    .durable = 1,
                                    .command_timeout_ms = LIMIT_MS / 4,
                                    .replica_timeout_ms = LIMIT_MS / 4,
                                    .outage_ms = 500};

/* Whether it is a Redis of a version that can be asked what is on its disk, as src/redis/greeting.c has them. */
static bool tells_of_disk(server *s)
{
    redisReply *reply = server_command(s, "INFO server");
    const char *at = strstr(reply->str, "redis_version:");
    int major = 0, minor = 0, patch = 0;

    assert_true(at && sscanf(at, "redis_version:%d.%d.%d", &major, &minor, &patch) == 3);
    bool tells = major * 100 + minor >= 702 && !strstr(reply->str, "valkey_version:8") &&
                 !(major == 7 && minor == 4 && patch < 3);
    freeReplyObject(reply);
    return tells;
}

/* ----------------------------------------- what is asked for, and what is done with the answer */

/*
 * In front of the fixture's server, which need not know WAITAOF: that command is answered here, and the version of the
 * server is one that knows it.
 */
#define INFO "# Server\r\nredis_version:7.2.0\r\nrun_id:0000000000000000000000000000000000000007\r\n"
_Static_assert(sizeof INFO - 1 == 80, "as the answer says");

static void answer_from_now_on(script_server *net, const char *answer)
{
    const script_rule rules[] = {
        {.match = "\r\nserver\r\n", .action = SCRIPT_REPLACE, .bytes = "$80\r\n" INFO "\r\n", .uncounted = true},
        {.match = "WAITAOF\r\n", .action = SCRIPT_REPLACE, .bytes = answer},
    };

    script_server_set(net, rules, answer ? 2 : 1);
}

static script_server *start_answering(fixture *f, const char *answer)
{
    script_server *net = fixture_between(f);

    answer_from_now_on(net, answer);
    return net;
}

TEST(each_first_acquire_waits_for_the_disk)
{
    script_server *net = start_answering(*state, SAYS_YES);
    dibs_runtime *rt = test_runtime(open_url(script_server_url(net), &durable));
    unsigned fired = script_server_fired(net);

    for (unsigned i = 1; i <= 5; i++) {
        assert_status(DIBS_OK, dibs_trylock(rt, "x"));
        assert_int_equal(script_server_fired(net), fired + i);
        assert_status(DIBS_OK, dibs_lock(rt, "x"));
        assert_status(DIBS_OK, dibs_extend(rt, "x", LONG_LEASE_MS));
        assert_status(DIBS_OK, dibs_unlock(rt, "x"));
        assert_status(DIBS_OK, dibs_unlock(rt, "x"));
    }
    assert_int_equal(script_server_fired(net), fired + 5);
}

/* With appendfsync no the server never tells that a grant is on its disk: no lock is granted, and the doctor says so.
 */
TEST_ON(durable_needs_a_server_that_writes_to_its_disk, fixture *f)
{
    script_server *net = start_answering(f, SAYS_YES);
    dibs_runtime *rt = test_runtime(open_url(script_server_url(net), &durable));

    server_do(f->server, "CONFIG SET appendonly yes");
    server_do(f->server, "CONFIG SET appendfsync no");
    findings_expect(findings_of(rt), "persistence", DIBS_VERDICT_BAD, "No lock is granted");
    server_do(f->server, "CONFIG SET appendfsync everysec");
    findings_expect(findings_of(rt), "persistence", DIBS_VERDICT_OK, "once it is on the disk");
    server_do(f->server, "CONFIG SET appendonly no");
}

/* The reply is held back: the server has granted the lock, and the call has not returned. */
TEST_ON(a_lock_is_not_held_before_it_is_on_the_disk, fixture *f)
{
    script_server *net = start_answering(f, SAYS_YES);
    dibs_runtime *rt = test_runtime(open_url(script_server_url(net), &durable));

    answer_from_now_on(net, NULL);
    script_server_add(net, (script_rule){.match = "WAITAOF\r\n", .nth = 1, .action = SCRIPT_STALL_REQUEST});
    unsigned fired = script_server_fired(net);
    actor *thread = actor_locking(rt, "x", 0);
    script_server_await_fired(net, fired);
    assert_true(server_has(f->server, "lock:x"));
    assert_true(actor_busy(thread));
    script_server_release(net); /* for a server that refuses the command, or has not written the lock to disk yet */
    if (actor_result(thread) == DIBS_OK)
        assert_status(DIBS_OK, actor_unlock(thread, rt, "x"));
}

static void expect_given_back(fixture *f, dibs_runtime *rt, dibs_status status, const char *words)
{
    assert_status(status, dibs_trylock(rt, "x"));
    assert_that(strstr(dibs_last_error(), words), "%s", dibs_last_error());
    assert_status(DIBS_NOT_HELD, dibs_check(rt, "x"));
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
}

TEST_ON(a_grant_that_does_not_reach_the_disk_is_given_back, fixture *f)
{
    script_server *net = start_answering(f, SAYS_YES);
    dibs_runtime *rt = test_runtime(open_url(script_server_url(net), &durable));

    for (int i = 0; i < 3; i++) {
        answer_from_now_on(net, SAYS_NO);
        expect_given_back(f, rt, DIBS_UNAVAILABLE, "disk");
        assert_status(DIBS_UNAVAILABLE, dibs_lock(rt, "x")); /* after outage_ms */
        assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
        answer_from_now_on(net, "-ERR unknown command 'WAITAOF', with args beginning with: '1'\r\n");
        expect_given_back(f, rt, DIBS_STORE_ERROR, "refused WAITAOF");
        answer_from_now_on(net, "-NOPERM this user has no permissions to run the 'waitaof' command\r\n");
        expect_given_back(f, rt, DIBS_DENIED, "permission");
        assert_status(DIBS_DENIED, dibs_lock(rt, "x")); /* waiting would not help */
        assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
        answer_from_now_on(net, "-UNBLOCKED force unblock from blocking operation, instance state changed\r\n");
        expect_given_back(f, rt, DIBS_UNAVAILABLE, "replica");
        answer_from_now_on(net, NULL);
        script_server_add(net, (script_rule){.match = "WAITAOF\r\n", .action = SCRIPT_CLOSE_BEFORE});
        expect_given_back(f, rt, DIBS_UNAVAILABLE, "");
        answer_from_now_on(net, SAYS_YES);
        lock_and_release(rt, "x", LIMIT_MS);
    }
}

/* The release of another client made the grant, and that release waits for nothing. */
static void expect_pushed_grant_on_disk(fixture *f, uint32_t flags)
{
    script_server *net = start_answering(f, SAYS_YES);
    dibs_runtime *holder = open_runtime(f->server, LONG_LEASE_MS);
    dibs_runtime *careful = open_url(script_server_url(net), &durable);
    dibs_lock_options options = {.flags = flags};
    actor *waiter = actor_start();

    for (int i = 0; i < 3; i++) {
        assert_status(DIBS_OK, dibs_lock(holder, "x"));
        actor_begin_lock_with(waiter, careful, "x", DIBS_WAIT_FOREVER, &options);
        queue_await(f->server, "x", 1);
        unsigned fired = script_server_fired(net);
        assert_status(DIBS_OK, dibs_unlock(holder, "x"));
        assert_status(DIBS_OK, actor_result(waiter));
        assert_int_equal(script_server_fired(net), fired + 1);
        assert_status(DIBS_OK, actor_unlock(waiter, careful, "x"));
    }
    assert_int_equal(stats_of(careful).granted, 0); /* a push was not enough */
    for (int i = 0; i < 3; i++) {
        answer_from_now_on(net, SAYS_NO);
        assert_status(DIBS_OK, dibs_timedlock(holder, "x", LIMIT_MS));
        actor_begin_lock_with(waiter, careful, "x", DIBS_WAIT_FOREVER, &options);
        queue_await(f->server, "x", 1);
        assert_status(DIBS_OK, dibs_unlock(holder, "x"));
        assert_status(DIBS_UNAVAILABLE, actor_result(waiter));
        assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
    }
    actor_end(waiter);
    dibs_close(careful);
    dibs_close(holder);
}

TEST(a_pushed_grant_waits_for_the_disk)
{
    expect_pushed_grant_on_disk(*state, 0);
}

TEST(a_fair_grant_waits_for_the_disk)
{
    expect_pushed_grant_on_disk(*state, DIBS_FAIR);
}

/* The fixture's server has no replica. */
TEST_ON(an_acquire_waits_for_replicas_and_the_disk, fixture *f)
{
    script_server *net = start_answering(f, SAYS_YES);
    dibs_config config = durable;

    config.min_replicas = 1;
    dibs_runtime *rt = test_runtime(open_url(script_server_url(net), &config));
    unsigned fired = script_server_fired(net);
    script_server_answer(net, "WAIT\r\n", ":1\r\n");
    assert_status(DIBS_OK, dibs_trylock(rt, "x"));
    assert_int_equal(script_server_fired(net), fired + 2);
    assert_status(DIBS_OK, dibs_unlock(rt, "x"));
    answer_from_now_on(net, SAYS_YES);
    script_server_answer(net, "WAIT\r\n", ":0\r\n");
    expect_given_back(f, rt, DIBS_UNAVAILABLE, "replica");
}

/* ---------------------------------------------------------------------- a quorum */

#define MEMBERS 3
#define INFO_OF(n)                                                                                                     \
    "$80\r\n# Server\r\nredis_version:7.2.0\r\nrun_id:000000000000000000000000000000000000000" #n "\r\n\r\n"

/* Each process has a number of its own. */
static void answer_as_member(script_server *net, size_t i, const char *answer)
{
    static const char *const infos[MEMBERS] = {INFO_OF(1), INFO_OF(2), INFO_OF(3)};

    const script_rule rules[] = {
        {.match = "\r\nserver\r\n", .action = SCRIPT_REPLACE, .bytes = infos[i], .uncounted = true},
        {.match = "WAITAOF\r\n", .action = SCRIPT_REPLACE, .bytes = answer},
    };

    script_server_set(net, rules, 2);
}

struct quorum {
    server *servers[MEMBERS];
    script_server *nets[MEMBERS];
    const char *urls[MEMBERS];
};

static dibs_runtime *open_quorum(struct quorum *q, uint32_t lease_ms)
{
    dibs_config config = durable;
    dibs_runtime *rt;

    for (size_t i = 0; i < MEMBERS; i++) {
        q->servers[i] = server_start(NULL);
        q->nets[i] = script_server_start(&(script_options){.backend = q->servers[i]->socket_path});
        answer_as_member(q->nets[i], i, SAYS_YES);
        q->urls[i] = script_server_url(q->nets[i]);
    }
    config.urls = q->urls;
    config.url_count = MEMBERS;
    config.lease_ms = lease_ms;
    assert_status(DIBS_OK, dibs_open(&rt, &config));
    return rt;
}

static void close_quorum(struct quorum *q, dibs_runtime *rt)
{
    dibs_close(rt);
    for (size_t i = 0; i < MEMBERS; i++) {
        assert_true(server_wait_gone(q->servers[i], "lock:x", LIMIT_MS) &&
                    server_wait_gone(q->servers[i], "lock:y", LIMIT_MS));
        script_server_stop(q->nets[i]);
        server_stop(q->servers[i]);
    }
}

/*
 * A master whose disk does not keep up costs only its vote, though the key stays there as long as the others hold the
 * lock; two of three are too many.
 */
TEST_WITH(a_member_votes_only_for_what_is_on_its_disk, NULL, NULL, void *none)
{
    struct quorum q;
    dibs_runtime *rt = open_quorum(&q, 0);

    answer_as_member(q.nets[0], 0, SAYS_NO);
    assert_status(DIBS_OK, dibs_timedlock(rt, "x", LIMIT_MS));
    assert_true(server_has(q.servers[1], "lock:x") && server_has(q.servers[2], "lock:x"));
    assert_status(DIBS_OK, dibs_unlock(rt, "x"));
    answer_as_member(q.nets[1], 1, SAYS_NO);
    /* Another name: the first master may be giving "x" back only now, because it was not asked in time. */
    assert_status(DIBS_UNAVAILABLE, dibs_trylock(rt, "y"));
    assert_that(strstr(dibs_last_error(), "disk"), "%s", dibs_last_error());
    close_quorum(&q, rt);
}

/* Its grant is not confirmed by then, but it is one more master that has the lock: renewals see to that. */
TEST_WITH(a_master_that_grants_late_bears_the_loss_of_another, NULL, NULL, void *none)
{
    struct quorum q;
    dibs_runtime *rt = open_quorum(&q, SAFE_LEASE_MS);

    for (int i = 0; i < 3; i++) /* then it is connected, and answers as soon as the others */
        lock_and_release(rt, "y", LIMIT_MS);
    script_server_delay(q.nets[2], 100);
    assert_status(DIBS_OK, dibs_timedlock(rt, "x", LIMIT_MS));
    script_server_delay(q.nets[2], 0);
    await_that(server_has(q.servers[2], "lock:x"));
    server_pause(q.servers[0]);
    pause_ms(2 * SAFE_LEASE_MS);
    assert_status(DIBS_OK, dibs_check(rt, "x"));
    server_resume(q.servers[0]);
    assert_status(DIBS_OK, dibs_unlock(rt, "x"));
    close_quorum(&q, rt);
}

/* ---------------------------------------------------------------- who refuses it, and when */

/* A server without an append-only file, or one that is too old, which is reported in other words. */
TEST_ON(durable_is_refused_by_a_server_without_an_append_only_file, fixture *f)
{
    expect_not_opened(DIBS_STORE_ERROR, f->server->url, &durable,
                      tells_of_disk(f->server) ? "it has no append-only file" : TOO_OLD);
}

TEST_ON(durable_needs_the_right_to_waitaof, fixture *f)
{
    const char *url = server_account(f->server, "u", "~* &* +@all -info");

    expect_not_opened(DIBS_STORE_ERROR, url, &durable, "the right to INFO");
    if (tells_of_disk(f->server)) {
        server_do(f->server, "ACL SETUSER u +info -waitaof");
        expect_not_opened(DIBS_DENIED, url, &durable, "refused WAITAOF");
    }
}

/* Existing holds are kept; new ones are not granted. */
TEST_ON(durable_ends_when_the_append_only_file_is_switched_off, fixture *f)
{
    server *s = test_server(server_start(&(server_options){.config = APPEND_ONLY}));
    dibs_runtime *rt;

    if (!tells_of_disk(s)) {
        expect_not_opened(DIBS_STORE_ERROR, s->url, &durable, TOO_OLD);
    } else {
        server *own = f->server;
        rt = open_url(s->url, &durable);
        assert_status(DIBS_OK, dibs_lock(rt, "held"));
        server_do(s, "CONFIG SET appendonly no");
        f->server = s;
        expect_given_back(f, rt, DIBS_STORE_ERROR, "it has no append-only file");
        f->server = own;
        assert_status(DIBS_OK, dibs_extend(rt, "held", LONG_LEASE_MS));
        server_do(s, "CONFIG SET appendonly yes");
        assert_status(DIBS_OK, dibs_timedlock(rt, "x", LIMIT_MS));
        assert_status(DIBS_OK, dibs_unlock_all(rt));
        dibs_close(rt);
    }
    server_assert_no_locks(s);
}

/* ------------------------------------------------------------------- a machine that fails */

enum { FAILURES = 25, THREADS = 4 };

struct taker {
    dibs_runtime *rt;
    const char *name;
    dibs_status status;
};

static void *take(void *arg)
{
    struct taker *taker = arg;

    taker->status = dibs_trylock(taker->rt, taker->name);
    return NULL;
}

/* In a process of its own: takes as many locks as there are threads, at once, for they share the writing to the disk.
 */
static bool lock_all(const void *url)
{
    struct taker takers[THREADS];
    pthread_t threads[THREADS];
    dibs_runtime *rt;
    bool good = open_status(url, &durable, &rt) == DIBS_OK;

    for (int i = 0; i < THREADS && good; i++) {
        takers[i] = (struct taker){.rt = rt, .name = formatted("x%d", i)};
        good = pthread_create(&threads[i], NULL, take, &takers[i]) == 0;
    }
    for (int i = 0; i < THREADS && good; i++)
        good = pthread_join(threads[i], NULL) == 0 && takers[i].status == DIBS_OK;
    return good;
}

/*
 * The server's machine fails as soon as the locks are granted, and takes their process with it: everything that is not
 * on the disk by then is gone.
 */
static void grant_and_fail(server *s)
{
    pid_t child = child_that_stays(lock_all, s->url);

    server_kill(s);
    child_kill(child);
}

TEST_WITH(a_durable_grant_outlives_its_machine, NULL, NULL, void *none)
{
    const char *shim = program_path("disk.so");
    server *s = server_start(&(server_options){.config = APPEND_ONLY, .preload = shim});
    if (!tells_of_disk(s)) {
        expect_not_opened(DIBS_STORE_ERROR, s->url, &durable, TOO_OLD);
        server_stop(s);
        return;
    }
    for (int round = 0; round < FAILURES; round++) {
        grant_and_fail(s);
        server_restart(s);
        assert_int_equal(server_integer(s, "EXISTS lock:x0 lock:x1 lock:x2 lock:x3"), THREADS);
        server_do(s, "FLUSHALL");
    }
    server_stop(s);
}

TESTS(fixture_setup, fixture_teardown)
