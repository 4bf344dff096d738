/*
 * Locks over TLS: they work as over a plain connection, also where records come in pieces, keys change, connections
 * break, processes fork and the server is slow or speaks no TLS. For what the library trusts see tls_trust_test.c.
 *
 * Without TLS in the build, its URLs are refused, and the error says why.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/certificates.h"
#include "support/child.h"
#include "support/fixture.h"
#include "support/queue.h"
#include "support/tls_relay.h"

#ifdef DIBS_WITH_TLS

enum { THREADS = 16, MANY = 150 };

static const char *url_of(int port)
{
    return formatted("rediss://127.0.0.1:%d", port);
}

/* ------------------------------------------------------------ ordinary use */

TEST_ON(locks_work_over_tls, fixture *f)
{
    dibs_runtime *other = test_runtime(open_runtime(f->server, SAFE_LEASE_MS));
    actor *waiter = actor_start();

    assert_int_equal(strncmp(f->server->url, "rediss://", 9), 0);
    fixture_open_holding(f, SAFE_LEASE_MS, "x");
    pause_ms(2 * SAFE_LEASE_MS);
    assert_status(DIBS_OK, dibs_check(f->rt, "x"));
    for (int i = 0; i < 20; i++) {
        actor_begin_lock(waiter, i % 2 ? f->rt : other, "x", DIBS_WAIT_FOREVER);
        queue_await(f->server, "x", 1);
        assert_status(DIBS_OK, dibs_unlock(i % 2 ? other : f->rt, "x"));
        actor_gets(waiter, i % 2 ? f->rt : other, "x");
        assert_status(DIBS_OK, dibs_lock(i % 2 ? f->rt : other, "x"));
    }
    assert_true(stats_of(f->rt).granted + stats_of(other).granted > 0);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
}

struct member {
    pthread_t thread;
    dibs_runtime *rt;
    unsigned seed;
    atomic_uint done; /* how often it had a lock since this was set to 0 */
};

static atomic_int inside[4];
static atomic_bool overlapped, stop_now;

static void *lock_and_unlock(void *arg)
{
    struct member *member = arg;

    while (!atomic_load(&stop_now)) {
        unsigned which = member->seed++ % 4;
        char name[8];

        snprintf(name, sizeof name, "n%u", which);
        if (dibs_timedlock(member->rt, name, LIMIT_MS) != DIBS_OK)
            continue;
        if (atomic_fetch_add(&inside[which], 1) > 0)
            atomic_store(&overlapped, true);
        if (dibs_check(member->rt, name) == DIBS_OK)
            atomic_fetch_add(&member->done, 1);
        atomic_fetch_sub(&inside[which], 1);
        dibs_unlock(member->rt, name);
    }
    return NULL;
}

static void crowd_begin(struct member *members, size_t count, dibs_runtime **rts)
{
    atomic_store(&stop_now, false);
    for (size_t i = 0; i < count; i++) {
        members[i].rt = rts[i % 2];
        members[i].seed = (unsigned)i;
        atomic_init(&members[i].done, 0);
        assert_int_equal(pthread_create(&members[i].thread, NULL, lock_and_unlock, &members[i]), 0);
    }
}

/* Each member has a lock at least twice more: one that it has now does not count. */
static void crowd_goes_on(struct member *members, size_t count)
{
    for (int times = 0; times < 2; times++)
        for (size_t i = 0; i < count; i++) {
            atomic_store(&members[i].done, 0);
            await_or_say(atomic_load(&members[i].done) > 0, "thread %zu does not go on", i);
        }
}

static void crowd_end(struct member *members, size_t count)
{
    crowd_goes_on(members, count);
    atomic_store(&stop_now, true);
    for (size_t i = 0; i < count; i++)
        pthread_join(members[i].thread, NULL);
    assert_false(atomic_load(&overlapped));
}

TEST_ON(many_threads_exclude_each_other_over_tls, fixture *f)
{
    struct member members[THREADS];

    fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *other = test_runtime(open_runtime(f->server, LONG_LEASE_MS));
    crowd_begin(members, THREADS, (dibs_runtime *[]){f->rt, other});
    pause_ms(500);
    crowd_end(members, THREADS);
}

/* A batch of renewals is larger than a record, and than what a socket takes at once. */
TEST_ON(long_requests_are_sent_whole_over_tls, fixture *f)
{
    char name[DIBS_NAME_MAX + 1];

    fixture_open(f, SAFE_LEASE_MS);
    memset(name, 'n', DIBS_NAME_MAX);
    name[DIBS_NAME_MAX] = '\0';
    for (unsigned i = 0; i < MANY; i++) {
        memcpy(name, (char[]){(char)('a' + i / 26), (char)('a' + i % 26)}, 2);
        assert_status(DIBS_OK, dibs_lock(f->rt, name));
    }
    uint64_t renewed = stats_of(f->rt).renewed;
    pause_ms(2 * SAFE_LEASE_MS);
    assert_true(stats_of(f->rt).renewed >= renewed + MANY);
    for (unsigned i = 0; i < MANY; i++) {
        memcpy(name, (char[]){(char)('a' + i / 26), (char)('a' + i % 26)}, 2);
        assert_status(DIBS_OK, dibs_unlock(f->rt, name));
    }
}

TEST_ON(an_account_is_used_over_tls, fixture *f)
{
    server_do(f->server, "ACL SETUSER locker on >p@ss:w/rd ~* &* +@all");
    server_do(f->server, "ACL SETUSER default off");
    dibs_runtime *rt = open_url(formatted("rediss://locker:p%%40ss:w%%2frd@127.0.0.1:%d", f->server->port), NULL);
    lock_and_release(rt, "x", DIBS_WAIT_FOREVER);
    dibs_close(rt);
    expect_not_opened(DIBS_DENIED, formatted("rediss://locker:s3cr3t@127.0.0.1:%d", f->server->port), NULL, NULL);
    assert_null(strstr(dibs_last_error(), "s3cr3t"));
    server_do(f->server, "ACL SETUSER default on");
}

static bool cluster_serves(server *s)
{
    redisReply *reply = server_command(s, "CLUSTER INFO");
    bool serves = strstr(reply->str, "cluster_state:ok") != NULL;

    freeReplyObject(reply);
    return serves;
}

/* Which nodes there are is asked for over TLS, so they are known by their ports with TLS. */
TEST(a_cluster_is_reached_over_tls)
{
    server *s = test_server(server_start(&(server_options){.tcp = true, .config = "databases 1\ncluster-enabled yes"}));

    server_do(s, "CLUSTER ADDSLOTSRANGE 0 16383");
    await_that(cluster_serves(s));
    dibs_runtime *rt = test_runtime(open_url(formatted("rediss-cluster://127.0.0.1:%d", s->port), NULL));
    assert_status(DIBS_OK, dibs_lock(rt, "x"));
    assert_true(server_has(s, "lock:x"));
    assert_status(DIBS_OK, dibs_unlock(rt, "x"));
}

/* ------------------------------------------------------- what breaks and ends */

/*
 * Whom the server granted a lock just before it was killed may not have heard of it, and others leave the lock to it
 * for as long as that lease was to last (GUARANTEES.md): shorter than the test waits. SIGPIPE would end this program.
 */
#define LEFT_MS (LIMIT_MS / 4)

TEST_WITH(broken_tls_connections_are_made_again, fixture_setup, fixture_teardown_expiring, fixture *f)
{
    struct member members[4];
    struct sigaction pipe;

    assert_int_equal(sigaction(SIGPIPE, NULL, &pipe), 0);
    assert_true(pipe.sa_handler == SIG_DFL);
    fixture_open(f, LEFT_MS);
    dibs_runtime *other = test_runtime(open_runtime(f->server, LEFT_MS));
    for (int i = 0; i < 6; i++) {
        crowd_begin(members, 4, (dibs_runtime *[]){f->rt, other});
        pause_ms(20);
        if (i % 2) {
            server_kill(f->server);
            server_restart(f->server);
        } else {
            server_do(f->server, "CLIENT KILL TYPE normal SKIPME yes");
        }
        crowd_goes_on(members, 4);
        if (i % 2) /* the server forgot what they had when it was killed */
            atomic_store(&overlapped, false);
        crowd_end(members, 4);
    }
}

static void child_locks(dibs_runtime *rt)
{
    CHILD_WANTS(DIBS_BUSY, dibs_trylock(rt, "held"));
    CHILD_WANTS(DIBS_OK, dibs_timedlock(rt, "child", LIMIT_MS));
    CHILD_WANTS(DIBS_OK, dibs_unlock(rt, "child"));
}

/* Whatever the other threads have OpenSSL do just then, the child can use it, and says nothing to its parent's server.
 */
TEST_ON(a_fork_over_tls_may_come_at_any_moment, fixture *f)
{
    struct member members[4];

    fixture_open_holding(f, LONG_LEASE_MS, "held");
    crowd_begin(members, 4, (dibs_runtime *[]){f->rt, f->rt});
    for (int i = 0; i < 20; i++) {
        run_child(child_locks, f->rt);
        if (i % 5 == 0)
            server_do(f->server, "CLIENT KILL TYPE normal SKIPME yes");
    }
    crowd_end(members, 4);
    assert_status(DIBS_OK, dibs_check(f->rt, "held"));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "held"));
}

/* exit(3) ends OpenSSL while other threads use it. */
TEST_WITH(a_process_with_tls_may_exit_at_any_moment, fixture_setup, fixture_teardown_expiring, fixture *f)
{
    for (int i = 0; i < 10; i++) {
        struct member members[4];
        int status;
        pid_t child = fork_child();

        if (child == 0) {
            dibs_runtime *rt;
            dibs_config config = {.urls = f->urls, .url_count = 1, .lease_ms = 1000};
            CHILD_WANTS(DIBS_OK, dibs_open(&rt, &config));
            crowd_begin(members, 4, (dibs_runtime *[]){rt, rt});
            usleep((useconds_t)(i * 3000));
            exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    for (unsigned i = 0; i < 4; i++)
        assert_true(server_wait_gone(f->server, formatted("lock:n%u", i), LIMIT_MS));
}

static atomic_bool strikes;

/* In the place of OpenSSL's: a signal comes while the thread is inside. */
int SSL_read_ex(void *ssl, void *bytes, size_t size, size_t *received)
{
    static __typeof__(SSL_read_ex) *real;

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "SSL_read_ex");
    if (atomic_exchange(&strikes, false))
        raise(SIGUSR1);
    return real(ssl, bytes, size, received);
}

static void leave(int number)
{
    exit(0);
}

/* Nothing can be released then, but the process must end. */
TEST_WITH(a_signal_may_end_a_process_inside_of_openssl, fixture_setup, fixture_teardown_expiring, fixture *f)
{
    int status;
    pid_t child = fork_child();

    if (child == 0) {
        dibs_runtime *rt;
        dibs_config config = {.urls = f->urls, .url_count = 1};
        alarm(LIMIT_MS / 1000);
        signal(SIGUSR1, leave);
        CHILD_WANTS(DIBS_OK, dibs_open(&rt, &config));
        atomic_store(&strikes, true);
        CHILD_WANTS(DIBS_OK, dibs_trylock(rt, "x"));
        for (;;) /* the signal may have come to the scheduler's thread, which ends the process */
            pause();
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* ------------------------------------------------------------ odd networks */

TEST_ON(tls_records_may_come_in_pieces, fixture *f)
{
    static const size_t pieces[] = {1, 7, 100};

    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        tls_relay *relay = tls_relay_start(&(tls_relay_options){.backend_port = f->server->port, .piece = pieces[i]});
        dibs_config config = {.connect_timeout_ms = LIMIT_MS, .command_timeout_ms = LIMIT_MS};
        dibs_runtime *rt = open_url(url_of(tls_relay_port(relay)), &config);
        dibs_runtime *other = open_runtime(f->server, LONG_LEASE_MS);
        actor *waiter = actor_start();

        assert_status(DIBS_OK, dibs_lock(other, "x"));
        actor_begin_lock(waiter, rt, "x", DIBS_WAIT_FOREVER);
        queue_await(f->server, "x", 1);
        assert_status(DIBS_OK, dibs_unlock(other, "x"));
        actor_gets(waiter, rt, "x");
        expect_works(f, rt, "y");
        actor_end(waiter);
        dibs_close(other);
        dibs_close(rt);
        tls_relay_stop(relay);
    }
}

/* The server asks for new keys repeatedly: the client must send while it receives. */
TEST_ON(tls_keys_may_change, fixture *f)
{
    tls_relay *relay = tls_relay_start(
        &(tls_relay_options){.backend = f->server->socket_path, .folder = certificates_folder(), .new_keys_every = 3});
    dibs_runtime *rt = open_url(url_of(tls_relay_port(relay)), NULL);

    for (int i = 0; i < 100; i++)
        expect_works(f, rt, "x");
    assert_true(tls_relay_new_keys(relay) > 10);
    dibs_close(rt);
    tls_relay_stop(relay);
}

TEST_ON(a_tls_connection_that_ends_without_a_word_is_noticed, fixture *f)
{
    tls_relay *relay =
        tls_relay_start(&(tls_relay_options){.backend = f->server->socket_path, .folder = certificates_folder()});
    dibs_runtime *rt = open_url(url_of(tls_relay_port(relay)), NULL);

    for (int i = 0; i < 20; i++) {
        expect_works(f, rt, "x");
        tls_relay_cut(relay);
    }
    expect_works(f, rt, "x");
    dibs_close(rt);
    tls_relay_stop(relay);
}

/* ------------------------------------------------------------- other servers */

TEST(a_silent_tls_server_fails_open_in_time)
{
    tls_relay *relay = tls_relay_start(&(tls_relay_options){0});
    int64_t begin = now_ms();

    expect_not_opened(DIBS_UNAVAILABLE, url_of(tls_relay_port(relay)), &(dibs_config){.connect_timeout_ms = 1000},
                      "TLS handshake");
    assert_in_range(now_ms() - begin, 1000, 1000 + SLACK_MS);
    tls_relay_stop(relay);
}

/* What the client says in a handshake may hold an end of line, which such a server answers. Else the server waits. */
TEST(a_server_without_tls_is_refused)
{
    dibs_runtime *rt;

    unsetenv("DIBS_TEST_TLS");
    server *plain = test_server(server_start(&(server_options){.tcp = true}));
    setenv("DIBS_TEST_TLS", "1", 1);
    for (int i = 0; i < 5; i++) {
        dibs_status status = open_status(url_of(plain->port), &(dibs_config){.connect_timeout_ms = 500}, &rt);
        assert_that(status == DIBS_STORE_ERROR || status == DIBS_UNAVAILABLE, "%s: %s", dibs_status_name(status),
                    dibs_last_error());
        assert_that(strstr(dibs_last_error(), "TLS"), "%s", dibs_last_error());
    }
}

TEST_ON(a_server_with_tls_refuses_a_plain_connection, fixture *f)
{
    dibs_runtime *rt;

    dibs_status status =
        open_status(formatted("redis://127.0.0.1:%d", f->server->port), &(dibs_config){.connect_timeout_ms = 500}, &rt);
    assert_that(status == DIBS_STORE_ERROR || status == DIBS_UNAVAILABLE, "%s: %s", dibs_status_name(status),
                dibs_last_error());
}

int main(void)
{
    setenv("DIBS_TEST_TLS", "1", 1); /* the fixtures' servers have TLS */
    return test_run_all(fixture_setup, fixture_teardown, NULL, NULL);
}

#else

TEST(tls_is_refused_where_it_is_not_built_in)
{
    static const char *const urls[] = {"rediss://127.0.0.1", "REDISS://u:s3cr3t@h/3", "rediss-sentinel://h/m"};

    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        expect_not_opened(DIBS_INVALID, urls[i], NULL, "built without TLS");
        assert_non_null(strstr(dibs_last_error(), "hiredis_ssl"));
        assert_null(strstr(dibs_last_error(), "s3cr3t"));
    }
}

TEST(a_quorum_with_one_tls_url_is_refused_without_tls)
{
    static const char *const urls[] = {"mem:a", "mem:b", "rediss://127.0.0.1"};
    dibs_runtime *rt;

    assert_status(DIBS_INVALID, dibs_open(&rt, &(dibs_config){.urls = urls, .url_count = 3}));
    assert_non_null(strstr(dibs_last_error(), "built without TLS"));
}

TESTS(NULL, NULL)

#endif
