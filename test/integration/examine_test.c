/* dibs_examine on one server: each verdict of each subject. */
#include <unistd.h>

#include "support/document.h"
#include "support/findings.h"
#include "support/fixture.h"
#include "support/script_server.h"

#define OK DIBS_VERDICT_OK
#define WARN DIBS_VERDICT_WARN
#define BAD DIBS_VERDICT_BAD

enum { ROWS_MOST = 60 };

static void expect(dibs_runtime *rt, const char *subject, dibs_verdict verdict, const char *words)
{
    findings_expect(findings_of(rt), subject, verdict, words);
}

/* -------------------------------------------------------------------- the order */

TEST_ON(examine_reports_subjects_in_order, fixture *f)
{
    static const char *const subjects[] = {"connection", "version", "role",     "eviction", "persistence", "replicas",
                                           "clock",      "rights",  "commands", "tracking", "round trip"};

    fixture_open(f, LONG_LEASE_MS);
    const findings *found = findings_of(f->rt);
    assert_int_equal(found->count, sizeof subjects / sizeof subjects[0]);
    for (size_t i = 0; i < found->count; i++) {
        assert_string_equal(found->all[i].subject, subjects[i]);
        assert_string_equal(found->all[i].server, f->server->socket_path);
    }
    findings_expect(found, "connection", OK, "answers");
    findings_expect(found, "role", OK, "is a master");
    findings_expect(found, "clock", OK, "that of this host");
    findings_expect(found, "rights", OK, "all that dibs makes use of");
    findings_expect(found, "commands", OK, "all that dibs makes use of");
    findings_expect(found, "round trip", OK, " ms");
    assert_int_equal(server_integer(f->server, "DBSIZE"), 0);
    expect_works(f, f->rt, "a");
}

TEST_ON(examine_refuses_wrong_arguments, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    assert_status(DIBS_INVALID, dibs_examine(f->rt, NULL, NULL));
    assert_status(DIBS_INVALID, dibs_examine(NULL, NULL, NULL));
    assert_string_equal(dibs_last_error(), "the runtime is NULL");
}

struct user {
    dibs_runtime *rt;
    size_t count;
};

static void use_it(const dibs_finding *finding, void *arg)
{
    struct user *user = arg;

    lock_and_release(user->rt, "a", DIBS_WAIT_FOREVER);
    if (++user->count == 3)
        dibs_shutdown(user->rt);
    if (user->count == 3)
        assert_status(DIBS_CLOSED, dibs_examine(user->rt, use_it, user));
}

static void stop_using_it(const dibs_finding *finding, void *arg)
{
    struct user *user = arg;

    if (user->count < 3)
        use_it(finding, arg);
}

TEST_ON(an_examine_callback_may_use_the_runtime, fixture *f)
{
    struct user user = {.count = 0};

    fixture_open(f, LONG_LEASE_MS);
    user.rt = f->rt;
    assert_status(DIBS_OK, dibs_examine(f->rt, stop_using_it, &user));
    assert_int_equal(user.count, 3);
}

TEST_WITH(a_store_in_memory_is_examined_too, NULL, NULL, void *none)
{
    dibs_runtime *rt = test_runtime(open_url("mem:", NULL));

    assert_string_equal(findings_expect(findings_of(rt), "connection", OK, "inside this process")->server, "mem:");
}

/* --------------------------------------------------------------- the connection */

TEST_ON(examine_reports_an_absent_server, fixture *f)
{
    f->config.connect_timeout_ms = f->config.command_timeout_ms = LIMIT_MS; /* what is killed refuses at once */
    fixture_open(f, LONG_LEASE_MS);
    server_kill(f->server);
    const findings *found = findings_of(f->rt);
    assert_int_equal(found->count, 1);
    findings_expect(found, "connection", BAD, "No new connection can be made");
    server_restart(f->server);
    expect(f->rt, "connection", OK, "answers");
}

TEST_ON(examine_reports_a_connection_that_breaks, fixture *f)
{
    script_server *net = fixture_between(f);
    dibs_runtime *rt = test_runtime(open_url(script_server_url(net), NULL));

    script_server_add(net, (script_rule){.match = "*1\r\n$4\r\nINFO\r\n", .action = SCRIPT_CLOSE_BEFORE});
    expect(rt, "connection", BAD, "broke during the examination");
}

TEST_ON(examine_reports_a_silent_server, fixture *f)
{
    script_server *net = fixture_between(f);
    dibs_runtime *rt = test_runtime(
        open_url(script_server_url(net), &(dibs_config){.connect_timeout_ms = 300, .command_timeout_ms = 200}));

    script_server_add(net, (script_rule){.match = "*1\r\n$4\r\nINFO\r\n", .action = SCRIPT_STALL_REPLY});
    /* Where the machine stalls, no connection may have been made in time. */
    await_that(findings_find(findings_of(rt), "connection", BAD, "did not answer in time") != NULL);
    server_pause(f->server);
    expect(rt, "connection", BAD, "does not answer");
    server_resume(f->server);
    script_server_clear(net);
    script_server_release(net);
}

/* -------------------------------------------------------------------- from INFO */

/* What a server says that answers INFO so. */
static void expect_of_info(fixture *f, const char *info, const char *subject, dibs_verdict verdict, const char *words)
{
    script_server *net = script_server_start(&(script_options){.backend = f->server->socket_path});
    dibs_runtime *rt = open_url(script_server_url(net), NULL);

    const char *reply = formatted("$%zu\r\n%s\r\n", strlen(info), info);
    script_server_answer(net, "*1\r\n$4\r\nINFO\r\n", reply);
    expect(rt, subject, verdict, words);
    dibs_close(rt);
    script_server_stop(net);
}

TEST_ON(examine_judges_server_versions, fixture *f)
{
    static const struct {
        const char *info;
        dibs_verdict verdict;
        const char *words;
    } rows[] = {
        {"redis_version:4.0.14\r\n", BAD, "Redis 4.0.14 is too old"},
        {"redis_version:5.0.0\r\n", WARN, "can't tell of locks that change"},
        {"redis_version:7.0.4\r\n", WARN, "can't tell of locks that change"},
        {"redis_version:7.0.5\r\n", OK, "Redis 7.0.5. It has no durable"},
        {"redis_version:7.0.100\r\n", OK, "Redis 7.0.100. It has no durable"},
        {"redis_version:7.2.0\r\n", OK, "Redis 7.2.0."},
        {"redis_version:7.4.0\r\n", WARN, "too early that something is on its disk"},
        {"redis_version:7.4.2\r\n", WARN, "too early"},
        {"redis_version:7.4.3\r\n", OK, "Redis 7.4.3."},
        {"redis_version:8.0.2\r\n", OK, "Redis 8.0.2."},
        {"redis_version:255.255.255\r\n", OK, "Redis 255.255.255."}, /* that of a development branch */
        {"redis_version:7.2.4\r\nvalkey_version:8.1.1\r\n", OK, "Valkey 8.1.1. It tells too early"},
        {"redis_version:7.2.4\r\nvalkey_version:7.2.5\r\n", OK, "Valkey 7.2.5."},
        {"", WARN, "version is not known: INFO does not say so"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect_of_info(f, rows[i].info, "version", rows[i].verdict, rows[i].words);
}

TEST_ON(examine_reports_a_failing_disk, fixture *f)
{
    expect_of_info(f, "aof_enabled:1\r\naof_last_write_status:err\r\n", "persistence", BAD, "append-only file failed");
    expect_of_info(f, "aof_enabled:0\r\nrdb_last_bgsave_status:err\r\n", "persistence", WARN, "no append-only file");
    server_do(f->server, "CONFIG SET save %s", "60 1");
    expect_of_info(f, "aof_enabled:0\r\nrdb_last_bgsave_status:err\r\n", "persistence", BAD, "last snapshot failed");
}

TEST_ON(examine_reports_a_replica, fixture *f)
{
    server *master = test_server(server_start(&(server_options){.tcp = true}));

    fixture_open(f, LONG_LEASE_MS);
    server_do(f->server, "REPLICAOF 127.0.0.1 %d", master->port);
    const char *words = formatted("127.0.0.1:%d", master->port);
    const struct finding *found = findings_expect(findings_of(f->rt), "role", BAD, "is a replica");
    assert_non_null(strstr(found->remedy, words));
    server_do(f->server, "REPLICAOF NO ONE");
    expect(f->rt, "role", OK, "is a master");
}

TEST_ON(examine_reports_eviction, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    expect(f->rt, "eviction", OK, "evicts nothing");
    server_do(f->server, "CONFIG SET maxmemory-policy volatile-lru");
    expect(f->rt, "eviction", WARN, "as long as maxmemory is 0");
    server_do(f->server, "CONFIG SET maxmemory 1gb");
    expect(f->rt, "eviction", BAD, "volatile-lru");
    server_do(f->server, "CONFIG SET maxmemory-policy allkeys-random");
    expect(f->rt, "eviction", BAD, "allkeys-random");
    server_do(f->server, "CONFIG SET maxmemory-policy noeviction");
    expect(f->rt, "eviction", OK, "evicts nothing");
    redisReply *info = server_command(f->server, "INFO memory");
    const char *text = formatted("%lld", strtoll(strstr(info->str, "used_memory:") + 12, NULL, 10) * 106 / 100);
    freeReplyObject(info);
    server_do(f->server, "CONFIG SET maxmemory %s", text);
    expect(f->rt, "eviction", WARN, "bytes are in use");
    server_do(f->server, "CONFIG SET maxmemory 1000");
    expect(f->rt, "eviction", BAD, "bytes are in use");
}

/* A server that is about to end would write its files first. */
static void keep_nothing(server *s)
{
    server_do(s, "CONFIG SET appendonly no");
    server_do(s, "CONFIG SET save %s", "");
}

TEST_ON(examine_reports_what_a_restart_forgets, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    expect(f->rt, "persistence", WARN, "no append-only file and no snapshot");
    server_do(f->server, "CONFIG SET save %s", "60 1");
    expect(f->rt, "persistence", WARN, "only snapshots");
    server_do(f->server, "CONFIG SET appendonly yes");
    server_do(f->server, "CONFIG SET appendfsync everysec");
    expect(f->rt, "persistence", WARN, "once a second");
    server_do(f->server, "CONFIG SET appendfsync no");
    expect(f->rt, "persistence", WARN, "when the system likes");
    server_do(f->server, "CONFIG SET appendfsync always");
    expect(f->rt, "persistence", OK, "before each answer");
    server_do(f->server, "CONFIG SET no-appendfsync-on-rewrite yes");
    expect(f->rt, "persistence", WARN, "but not while the server rewrites it");
    keep_nothing(f->server);
}

/* Waits for the replica to be in step. */
static bool has_replica(server *master)
{
    redisReply *reply = server_command(master, "INFO replication");
    bool online = strstr(reply->str, "state=online") != NULL;

    freeReplyObject(reply);
    return online;
}

TEST_WITH(examine_compares_replicas_with_min_replicas, NULL, NULL, void *none)
{
    server *master = test_server(server_start(&(server_options){.tcp = true, .config = "repl-diskless-sync-delay 0"}));
    server *replica = test_server(server_start(NULL));
    dibs_runtime *alone = test_runtime(open_url(master->url, NULL)),
                 *careful = test_runtime(open_url(master->url, &(dibs_config){.min_replicas = 1}));

    expect(alone, "replicas", OK, "no replicas");
    expect(careful, "replicas", BAD, "so no lock is granted");
    server_do(replica, "REPLICAOF 127.0.0.1 %d", master->port);
    await_that(has_replica(master));
    expect(alone, "replicas", WARN, "a failover forgets");
    expect(careful, "replicas", OK, "A grant counts once min_replicas (1)");
}

/* Without CONFIG GET, INFO still tells that one replica at least is wanted. */
TEST_WITH(examine_reports_a_server_that_lacks_the_replicas_it_wants, NULL, NULL, void *none)
{
    server *master = test_server(server_start(&(server_options){.tcp = true, .config = "repl-diskless-sync-delay 0"}));
    server *replica = test_server(server_start(NULL));
    dibs_runtime *rt = test_runtime(open_url(master->url, NULL));

    server_do(master, "CONFIG SET min-replicas-to-write 1");
    expect(rt, "replicas", BAD, "in step: 0. The server wants more (min-replicas-to-write), so it refuses locks");
    server_do(master, "ACL SETUSER default -config|get");
    expect(rt, "replicas", BAD, "in step: 0. The server wants more");
    server_do(master, "ACL SETUSER default +@all");
    server_do(replica, "REPLICAOF 127.0.0.1 %d", master->port);
    await_that(has_replica(master));
    expect(rt, "replicas", WARN, "a failover forgets");
    server_do(replica, "CONFIG SET min-replicas-to-write 1"); /* which concerns a master alone */
    expect(test_runtime(open_url(replica->url, NULL)), "replicas", OK, "no replicas");
    server_do(master, "CONFIG SET min-replicas-to-write 2");
    expect(rt, "replicas", BAD, "in step: 1. The server wants more");
    assert_status(DIBS_STORE_ERROR, dibs_trylock(rt, "a"));
}

/* ----------------------------------------------------------- clock, round trip, told */

TEST_ON(examine_reports_a_clock_that_differs, fixture *f)
{
    script_server *net = fixture_between(f);
    dibs_runtime *rt = test_runtime(open_url(script_server_url(net), NULL));

    script_server_answer(net, "$4\r\nTIME\r\n", "*2\r\n$10\r\n1000000000\r\n$1\r\n0\r\n");
    expect(rt, "clock", WARN, "s behind this host's");
    script_server_clear(net);
    script_server_answer(net, "$4\r\nTIME\r\n", "*2\r\n$10\r\n9000000000\r\n$1\r\n0\r\n");
    expect(rt, "clock", WARN, "s ahead of this host's");
    script_server_clear(net);
    script_server_answer(net, "$4\r\nTIME\r\n", "-ERR no\r\n");
    expect(rt, "clock", WARN, "does not tell its time");
}

/* The machine may stand still for a second: that is no distance. */
static dibs_runtime *open_by(const script_server *net, uint32_t lease_ms)
{
    return open_url(
        script_server_url(net),
        &(dibs_config){.lease_ms = lease_ms, .connect_timeout_ms = LIMIT_MS / 4, .command_timeout_ms = LIMIT_MS / 4});
}

TEST_ON(examine_reports_a_distant_server, fixture *f)
{
    script_server *net = fixture_between(f);
    dibs_runtime *hasty = test_runtime(open_by(net, 25)), *brisk = test_runtime(open_by(net, 120)),
                 *patient = test_runtime(open_by(net, LONG_LEASE_MS));

    script_server_delay(net, 5);
    expect(hasty, "round trip", BAD, "a lease may end");
    /* From 20 ms on, which a busy machine may take, the verdict is worse. */
    await_that(findings_find(findings_of(brisk), "round trip", WARN, "a lease may end") != NULL);
    expect(patient, "round trip", OK, " ms");
}

TEST_ON(examine_reports_whether_changes_are_told, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    expect(f->rt, "tracking", OK, "can tell at once");
    assert_status(DIBS_OK, dibs_lock(f->rt, "a"));
    assert_true(comes_to(f->rt, STAT(tracking), 1));
    expect(f->rt, "tracking", OK, "tells at once");
    assert_status(DIBS_OK, dibs_unlock(f->rt, "a"));
}

TEST_ON(examine_notices_a_proxy_that_swallows_changes, fixture *f)
{
    script_server *net = fixture_between(f);
    dibs_runtime *rt = test_runtime(open_url(script_server_url(net), &(dibs_config){.lease_ms = LONG_LEASE_MS}));

    script_server_drop_changes(net, true);
    assert_status(DIBS_OK, dibs_lock(rt, "a"));
    while (!findings_find(findings_of(rt), "tracking", WARN, "has not shown yet that it does"))
        pause_ms(5);
    assert_status(DIBS_OK, dibs_unlock(rt, "a"));
}

/* --------------------------------------------------------------- rights, commands */

static void set_account(server *s, const char *rule)
{
    server_do(s, formatted("ACL SETUSER locks reset on >pw resetchannels %s +scan +config|get", rule));
}

/* A missing right is a bad finding if dibs can't take, release or keep locks without it. */
static bool is_told(server *s, const char *right, bool opens)
{
    dibs_runtime *rt;

    const char *url = formatted("unix://locks:pw@%s", s->socket_path);
    const char *words = formatted("ACL SETUSER locks %s", right);
    dibs_status status = open_status(url, NULL, &rt);
    if (status != DIBS_OK)
        return !opens;
    const findings *found = findings_of(rt);
    size_t told = 0;
    for (size_t i = 0; i < found->count; i++)
        told += strcmp(found->all[i].subject, "rights") == 0 && strcmp(found->all[i].remedy, words) == 0;
    if (told != 1 || findings_bad(found, "rights") != 1)
        print_error("%s: told %zu times, of %zu\n", right, told, findings_bad(found, "rights"));
    bool good = told == 1 && findings_bad(found, "rights") == 1;
    dibs_close(rt);
    return good;
}

/* doc/ACCOUNTS.md: the rule is enough, and each missing right is reported with its remedy. */
TEST_ON(examine_reports_each_missing_right, fixture *f)
{
    static document_row rows[ROWS_MOST];
    const char *rule = document_block("doc/ACCOUNTS.md", "One server", "ACL SETUSER locks on >PASSWORD");
    size_t count = document_table("doc/ACCOUNTS.md", "One server", rows, ROWS_MOST);
    bool good = true;

    for (size_t i = 0; i < count; i++) {
        const char *right = document_right(&rows[i]);
        set_account(f->server, document_rule_without(rule, right));
        good = is_told(f->server, right, !*rows[i].cells[1]) && good;
    }
    assert_true(good);
}

TEST_ON(a_server_that_runs_no_script_is_bad, fixture *f)
{
    static const struct {
        const char *lacks;
        bool none;
    } cases[] = {{"-eval", false}, {"-evalsha", false}, {"-eval -evalsha", true}};

    const char *url = formatted("unix://locks:pw@%s", f->server->socket_path);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        server_do(f->server, formatted("ACL SETUSER locks reset on >pw ~* &* +@all %s", cases[i].lacks));
        dibs_runtime *rt = open_url(url, NULL);
        const struct finding *found = findings_find(findings_of(rt), "commands", BAD, "no lock can be taken");
        assert_int_equal(found != NULL, cases[i].none);
        dibs_close(rt);
    }
}

/* The pattern of ACL SETUSER is a glob, and the key_prefix is none. */
TEST_ON(what_a_finding_advises_gives_the_right_to_any_prefix, fixture *f)
{
    dibs_config config = {.key_prefix = "app[1]*?\\:"};

    set_account(f->server, "+@all ~dibs:* &*");
    dibs_runtime *rt = test_runtime(open_url(formatted("unix://locks:pw@%s", f->server->socket_path), &config));
    server_do(f->server, findings_expect(findings_of(rt), "rights", BAD, "may not use")->remedy);
    expect(rt, "rights", OK, "may use all");
    assert_status(DIBS_OK, dibs_trylock(rt, "a"));
    assert_status(DIBS_OK, dibs_unlock(rt, "a"));
}

/* A key_prefix and the path of a socket may have any bytes: what a finding shows of them can't drive a terminal. */
TEST_ON(findings_are_lines_whatever_they_name, fixture *f)
{
    set_account(f->server, "+@all ~lock:* ~dibs:* &*");
    const char *path = formatted("%s\n\x1b[2J", f->server->socket_path);
    assert_int_equal(symlink(f->server->socket_path, path), 0);
    dibs_runtime *rt = open_url(formatted("unix://locks:pw@%s%%0A%%1B[2J", f->server->socket_path),
                                &(dibs_config){.key_prefix = "p\n\x1b[2J\xc2\x9b\xff:"});
    const struct finding *found = findings_expect(findings_of(rt), "rights", BAD, "may not use");
    assert_string_equal(found->remedy, "ACL SETUSER locks ~p??\\[2J???:*");
    assert_that(strstr(found->server, ".sock??[2J"), "%s", found->server);
    dibs_close(rt);
    unlink(path);
}

TEST_ON(examine_works_with_the_smallest_account, fixture *f)
{
    const char *rule = document_block("doc/ACCOUNTS.md", "One server", "ACL SETUSER locks on >PASSWORD");

    server_do(f->server, formatted("ACL SETUSER locks reset on >pw resetchannels %s", rule));
    dibs_runtime *rt = test_runtime(open_url(formatted("unix://locks:pw@%s", f->server->socket_path), NULL));
    const findings *found = findings_of(rt);
    findings_expect(found, "rights", WARN, "may not use SCAN, so dibs_list is refused");
    assert_int_equal(findings_bad(found, "rights"), 1);
    server_do(f->server, "CONFIG SET appendonly yes");
    expect(rt, "persistence", WARN, "does not answer CONFIG GET");
    rule = document_block("doc/ACCOUNTS.md", "Listing and examining", "ACL SETUSER locks");
    server_do(f->server, formatted("ACL SETUSER locks %s", rule));
    found = findings_of(rt);
    findings_expect(found, "rights", OK, "all that dibs makes use of");
    findings_expect(found, "persistence", WARN, "once a second");
    server_do(f->server, "ACL SETUSER locks -info");
    found = findings_of(rt);
    findings_expect(found, "version", WARN, "the account may not use INFO");
    findings_expect(found, "role", WARN, "not known");
    findings_expect(found, "eviction", WARN, "not known");
    findings_expect(found, "persistence", WARN, "not known");
    findings_expect(found, "replicas", WARN, "not known");
    findings_expect(found, "tracking", WARN, "as far as its version is known");
    server_do(f->server, "ACL SETUSER locks +info -subscribe");
    expect(rt, "tracking", WARN, "does not tell this account");
    keep_nothing(f->server);
}

TEST_WITH(examine_reports_each_missing_command, NULL, NULL, void *none)
{
    static const struct {
        const char *command;
        dibs_verdict verdict;
    } rows[] = {{"MGET", BAD}, {"PUBLISH", WARN}, {"HKEYS", WARN}, {"SCAN", WARN}, {"SUBSCRIBE", WARN}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *config = formatted("rename-command %s \"\"", rows[i].command);
        const char *words = formatted("does not know %s", rows[i].command);
        server *s = server_start(&(server_options){.config = config});
        dibs_runtime *rt = open_url(s->url, NULL);
        const findings *found = findings_of(rt);
        findings_expect(found, "commands", rows[i].verdict, words);
        assert_int_equal(findings_bad(found, "commands"), 1);
        findings_expect(found, "rights", OK, "all that");
        dibs_close(rt);
        server_stop(s);
    }
}

TESTS(fixture_setup, fixture_teardown)
