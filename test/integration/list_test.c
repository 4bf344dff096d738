/* dibs_list, and how long an owner has held its lock (dibs_owner.held_ms). */
#include <unistd.h>

#include "support/child.h"
#include "support/cluster.h"
#include "support/fixture.h"
#include "support/masters.h"
#include "support/process.h"
#include "support/script_server.h"

#define KEPT 64

/* What dibs_list told: the first KEPT names, and how many there were. */
struct listed {
    size_t count, most; /* most: end the list behind so many; 0: never */
    char names[KEPT][DIBS_NAME_MAX + 1];
    dibs_owner owners[KEPT];
};

static bool note(const char *name, const dibs_owner *owner, void *arg)
{
    struct listed *listed = arg;

    assert_true(owner->held);
    if (listed->count < KEPT) {
        snprintf(listed->names[listed->count], sizeof listed->names[0], "%s", name);
        listed->owners[listed->count] = *owner;
    }
    return ++listed->count != listed->most;
}

static struct listed *list_some(dibs_runtime *rt, const char *pattern, size_t most)
{
    static struct listed listed;

    listed.count = 0;
    listed.most = most;
    assert_status(DIBS_OK, dibs_list(rt, pattern, note, &listed));
    return &listed;
}

static struct listed *list(dibs_runtime *rt, const char *pattern)
{
    return list_some(rt, pattern, 0);
}

static const dibs_owner *listed_owner(const struct listed *listed, const char *name)
{
    const dibs_owner *owner = NULL;

    for (size_t i = 0; i < listed->count && i < KEPT; i++)
        if (strcmp(listed->names[i], name) == 0) {
            assert_that(!owner, "%s is there twice", name);
            owner = &listed->owners[i];
        }
    assert_that(owner, "%s is not there", name);
    return owner;
}

/* Sets the keys of many locks, "NAME0"..., by hand and without fences. */
static void set_many(server *s, const char *name, int count)
{
    server_do(s, "EVAL %s 0 %s %d",
              "for i = 0, ARGV[2] - 1 do redis.call('SET', 'lock:' .. ARGV[1] .. i, 'dibs:x', 'PX', 600000) end", name,
              count);
}

/* ------------------------------------------------------------------------ names */

TEST_ON(a_list_shows_the_owners_of_a_query, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    assert_int_equal(list(f->rt, NULL)->count, 0);
    assert_status(DIBS_OK, dibs_lock(f->rt, "a"));
    assert_status(DIBS_OK, dibs_lock(f->rt, "b"));
    const struct listed *listed = list(f->rt, NULL);
    assert_int_equal(listed->count, 2);
    dibs_owner asked = owner_of(f->rt, "a");
    const dibs_owner *told = listed_owner(listed, "a");
    assert_string_equal(told->token, asked.token);
    assert_int_equal(told->fence, asked.fence);
    assert_int_equal(told->fence, fence_of(f->rt, "a"));
    assert_true(told->remaining_ms > 0 && told->remaining_ms <= LONG_LEASE_MS);
    listed_owner(listed, "b");
    assert_status(DIBS_OK, dibs_unlock_all(f->rt));
    assert_int_equal(list(f->rt, NULL)->count, 0);
}

TEST_ON(any_bytes_may_be_in_a_name, fixture *f)
{
    static const char *const names[] = {" a b ",  "a*b?[c]\\", "two\nlines", "\x01\x7f\xff\xc3\xa4",
                                        "{tag}x", "}",         "%s"};
    char longest[DIBS_NAME_MAX + 1];

    memset(longest, 'x', DIBS_NAME_MAX);
    longest[DIBS_NAME_MAX] = '\0';
    fixture_open(f, LONG_LEASE_MS);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_status(DIBS_OK, dibs_lock(f->rt, names[i]));
    assert_status(DIBS_OK, dibs_lock(f->rt, longest));
    const struct listed *listed = list(f->rt, NULL);
    assert_int_equal(listed->count, sizeof names / sizeof names[0] + 1);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        listed_owner(listed, names[i]);
    listed_owner(listed, longest);
    assert_status(DIBS_OK, dibs_unlock_all(f->rt));
}

/* The bytes of a prefix are literal, not a pattern. */
TEST_ON(a_list_pattern_matches_names, fixture *f)
{
    static const struct {
        const char *pattern;
        size_t count;
    } rows[] = {{NULL, 3}, {"*", 3}, {"a*", 2}, {"a?", 1}, {"[ab]", 2}, {"[^a]*", 1}, {"\\*", 0}, {"", 0}, {"pre*", 0}};

    f->config.key_prefix = "p*[re]?\\:";
    fixture_open_holding(f, LONG_LEASE_MS, "a");
    assert_status(DIBS_OK, dibs_lock(f->rt, "a1"));
    assert_status(DIBS_OK, dibs_lock(f->rt, "b"));
    server_do(f->server, "SET pxrx:c dibs:x PX 60000");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(list(f->rt, rows[i].pattern)->count, rows[i].count);
    assert_status(DIBS_OK, dibs_unlock_all(f->rt));
}

TEST_ON(with_an_empty_prefix_the_keys_of_dibs_are_no_locks, fixture *f)
{
    f->config.key_prefix = "";
    fixture_open_holding(f, LONG_LEASE_MS, "a");
    assert_true(server_has(f->server, "dibs:fence:{a}"));
    const struct listed *listed = list(f->rt, NULL);
    assert_int_equal(listed->count, 1);
    listed_owner(listed, "a");
    assert_status(DIBS_OK, dibs_unlock(f->rt, "a"));
}

TEST_ON(locks_of_others_are_listed_and_other_keys_are_not, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    server_do(f->server, "SET lock:foreign something PX 600000");
    server_do(f->server, "SET other:a x PX 600000");
    server_do(f->server, "SET lock: x PX 600000");
    server_do(f->server, "SET %b x PX 600000", "lock:n\0l", (size_t)8);
    server_do(f->server, "RPUSH lock:list x");
    server_do(f->server, "SET lock:%0513d x PX 600000", 0);
    const struct listed *listed = list(f->rt, NULL);
    assert_int_equal(listed->count, 1);
    const dibs_owner *owner = listed_owner(listed, "foreign");
    assert_string_equal(owner->token, "something");
    assert_int_equal(owner->held_ms, -1);
    server_do(f->server, "FLUSHALL");
}

/* A server before Redis 6 knows no TYPE in SCAN; and a key may change its type behind the SCAN. */
TEST_ON(a_list_works_without_the_type_of_scan, fixture *f)
{
    script_server *net = fixture_between(f);
    dibs_runtime *rt = test_runtime(open_url(script_server_url(net), NULL));

    script_server_answer(net, "\r\nTYPE\r\n", "-ERR syntax error\r\n");
    server_do(f->server, "RPUSH lock:list x");
    set_many(f->server, "a", 3000);
    assert_int_equal(list(rt, NULL)->count, 3000);
    assert_int_equal(script_server_fired(net), 1);
    server_do(f->server, "FLUSHALL");
}

/* A cursor means nothing to another server. */
TEST_ON(a_list_starts_over_at_another_server, fixture *f)
{
    static const char another[] =
        "$71\r\nredis_version:7.0.15\r\nrun_id:0123456789012345678901234567890123456789\r\n\r\n";
    script_server *net = fixture_between(f);
    dibs_runtime *rt = test_runtime(open_url(script_server_url(net), NULL));

    set_many(f->server, "a", 5000);
    script_server_add(net, (script_rule){.match = "\r\nSCAN\r\n", .nth = 3, .action = SCRIPT_CLOSE_BEFORE});
    script_server_answer(net, "$4\r\nINFO\r\n$6\r\nserver\r\n", another);
    assert_int_equal(list(rt, NULL)->count, 5000);
    assert_true(server_calls(f->server, "scan") >= 5 + 3);
    script_server_clear(net);
    server_do(f->server, "FLUSHALL");
}

/* -------------------------------------------------------------------- many locks */

TEST_ON(listing_ten_thousand_locks_takes_few_round_trips, fixture *f)
{
    fixture_open_connected(f, LONG_LEASE_MS);
    set_many(f->server, "a", 10000);
    server_do(f->server, "CONFIG RESETSTAT");
    int64_t began = now_ms();
    assert_int_equal(list(f->rt, NULL)->count, 10000);
    assert_true(now_ms() - began < SLACK_MS);
    assert_in_range(server_calls(f->server, "scan"), 10, 20);
    assert_int_equal(server_calls(f->server, "keys"), 0);
    assert_in_range(server_calls(f->server, "evalsha"), 9990, 10100);
    server_do(f->server, "FLUSHALL");
}

TEST_ON(a_list_callback_may_end_the_list, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    set_many(f->server, "a", 300);
    assert_int_equal(list_some(f->rt, NULL, 1)->count, 1);
    assert_int_equal(list_some(f->rt, NULL, 65)->count, 65);
    assert_int_equal(list_some(f->rt, NULL, 300)->count, 300);
    server_do(f->server, "FLUSHALL");
}

/* Locks, unlocks, looks and lists. */
struct busybody {
    dibs_runtime *rt;
    size_t count;
};

static bool count_it(const char *name, const dibs_owner *owner, void *arg)
{
    (*(size_t *)arg)++;
    return true;
}

static bool use_it(const char *name, const dibs_owner *owner, void *arg)
{
    struct busybody *busy = arg;
    size_t count = 0;

    if (busy->count++ > 3 && strcmp(name, "mine") != 0)
        return true;
    const char *other = formatted("by %.40s", name);
    assert_status(DIBS_OK, dibs_lock(busy->rt, other));
    assert_status(DIBS_OK, dibs_query(busy->rt, name, &(dibs_owner){0}));
    assert_status(DIBS_OK, dibs_list(busy->rt, "by *", count_it, &count));
    assert_int_equal(count, 1);
    assert_status(DIBS_OK, dibs_unlock(busy->rt, other));
    return true;
}

TEST_ON(a_list_callback_may_use_the_runtime, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    set_many(f->server, "a", 100);
    assert_status(DIBS_OK, dibs_lock(f->rt, "mine"));
    struct busybody busy = {.rt = f->rt};
    assert_status(DIBS_OK, dibs_list(f->rt, NULL, use_it, &busy));
    assert_int_equal(busy.count, 101);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "mine"));
    server_do(f->server, "FLUSHALL");
}

struct closer {
    dibs_runtime **rt;
    size_t count;
};

static bool close_it(const char *name, const dibs_owner *owner, void *arg)
{
    struct closer *closer = arg;

    if (closer->count++ == 0)
        dibs_close(*closer->rt);
    return true;
}

TEST_ON(a_list_callback_may_close_the_runtime, fixture *f)
{
    struct closer closer = {.rt = &f->rt};

    fixture_open(f, LONG_LEASE_MS);
    set_many(f->server, "a", 200);
    assert_status(DIBS_CLOSED, dibs_list(f->rt, NULL, close_it, &closer));
    assert_in_range(closer.count, 1, 64);
    assert_status(DIBS_CLOSED, dibs_list(f->rt, NULL, close_it, &closer));
    f->rt = NULL;
    server_do(f->server, "FLUSHALL");
}

/* The first callback forks a child, which goes on with the list. */
struct forker {
    pid_t child; /* 0: in the child */
    size_t count;
};

static bool fork_once(const char *name, const dibs_owner *owner, void *arg)
{
    struct forker *forker = arg;

    if (forker->count++ == 0)
        forker->child = fork_child();
    return true;
}

/* Under the sanitizers a child may hang, and is killed (child.c): then another one is tried. */
TEST_ON(a_list_callback_may_fork, fixture *f)
{
    enum { CHILDREN = 4 };
    int status = -1;

    fixture_open(f, LONG_LEASE_MS);
    set_many(f->server, "a", 200);
    for (int i = 0; i < CHILDREN && status == -1; i++) {
        struct forker forker = {.child = -1};
        dibs_status listed = dibs_list(f->rt, NULL, fork_once, &forker);
        if (forker.child == 0)
            _exit(listed == DIBS_OK && forker.count == 200 ? 0 : 1);
        assert_status(DIBS_OK, listed);
        assert_int_equal(forker.count, 200);
        status = child_wait_for(forker.child, LIMIT_MS / 2);
    }
    assert_int_equal(status, 0);
    server_do(f->server, "FLUSHALL");
}

/* At the first callback most of the locks end. */
static bool delete_all(const char *name, const dibs_owner *owner, void *arg)
{
    server_do(arg, "FLUSHALL");
    return true;
}

TEST_ON(locks_that_end_during_a_list_are_left_out, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    set_many(f->server, "a", 1000);
    assert_status(DIBS_OK, dibs_list(f->rt, NULL, delete_all, f->server));
    assert_int_equal(list(f->rt, NULL)->count, 0);
}

/* --------------------------------------------------------------------- failures */

TEST_ON(list_refuses_wrong_arguments, fixture *f)
{
    char pattern[DIBS_PATTERN_MAX + 2];

    memset(pattern, '?', sizeof pattern);
    pattern[DIBS_PATTERN_MAX + 1] = '\0';
    fixture_open(f, LONG_LEASE_MS);
    assert_status(DIBS_INVALID, dibs_list(NULL, NULL, note, NULL));
    assert_status(DIBS_INVALID, dibs_list(f->rt, NULL, NULL, NULL));
    assert_status(DIBS_INVALID, dibs_list(f->rt, pattern, note, NULL));
    assert_string_equal(dibs_last_error(), "pattern is longer than 1024 bytes");
    pattern[DIBS_PATTERN_MAX] = '\0';
    assert_int_equal(list(f->rt, pattern)->count, 0);
}

TEST_ON(list_reports_what_the_server_refuses, fixture *f)
{
    dibs_runtime *rt = test_runtime(open_url(server_account(f->server, "u", "~* &* +@all -scan"), NULL));

    assert_status(DIBS_DENIED, dibs_list(rt, NULL, note, NULL));
    server_do(f->server, "ACL SETUSER u +scan -hlen");
    assert_int_equal(list(rt, NULL)->count, 0);
    set_many(f->server, "a", 2);
    assert_status(DIBS_DENIED, dibs_list(rt, NULL, note, NULL));
    server_do(f->server, "FLUSHALL");
}

TEST_ON(list_reports_an_absent_server, fixture *f)
{
    f->config.command_timeout_ms = f->config.connect_timeout_ms = 200;
    fixture_open(f, LONG_LEASE_MS);
    server_kill(f->server);
    assert_status(DIBS_UNAVAILABLE, dibs_list(f->rt, NULL, note, NULL));
    server_restart(f->server);
    set_many(f->server, "a", 3);
    struct listed found = {.count = 0};
    while (dibs_list(f->rt, NULL, note, &found) == DIBS_UNAVAILABLE) {
        pause_ms(5);
        found.count = 0;
    }
    assert_int_equal(found.count, 3);
    server_do(f->server, "FLUSHALL");
}

/* ---------------------------------------------------------------------- held_ms */

static void await_held(dibs_runtime *rt, int64_t ms)
{
    await_that(owner_of(rt, "a").held_ms >= ms);
}

TEST_ON(held_ms_counts_from_the_grant, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    assert_int_equal(owner_of(f->rt, "a").held_ms, 0);
    int64_t began = now_ms();
    assert_status(DIBS_OK, dibs_lock(f->rt, "a"));
    await_held(f->rt, 50);
    assert_status(DIBS_OK, dibs_extend(f->rt, "a", LONG_LEASE_MS));
    int64_t held = owner_of(f->rt, "a").held_ms;
    assert_true(held >= 50 && held <= now_ms() - began + 1);
    assert_int_equal(listed_owner(list(f->rt, NULL), "a")->held_ms >= held, 1);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "a"));
    began = now_ms();
    assert_status(DIBS_OK, dibs_lock(f->rt, "a"));
    assert_true(owner_of(f->rt, "a").held_ms <= now_ms() - began + 1);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "a"));
}

TEST_ON(renewals_do_not_change_held_ms, fixture *f)
{
    fixture_open_holding(f, SAFE_LEASE_MS, "a");
    await_held(f->rt, SAFE_LEASE_MS + 100);
    assert_true(stats_of(f->rt).renewed > 0);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "a"));
}

TEST_ON(held_ms_is_unknown_where_the_fence_is_no_time, fixture *f)
{
    static const char *const fences[] = {"9007199254740990", "0", "x", "9007199254740993"};

    fixture_open(f, LONG_LEASE_MS);
    server_do(f->server, "SET lock:a dibs:someone PX 600000");
    assert_int_equal(owner_of(f->rt, "a").held_ms, -1);
    for (size_t i = 0; i < sizeof fences / sizeof fences[0]; i++) {
        server_do(f->server, "SET dibs:fence:{lock:a} %s PX 600000", fences[i]);
        assert_int_equal(owner_of(f->rt, "a").held_ms, -1);
    }
    server_do(f->server, "SET lock:a foreign PX 600000");
    server_do(f->server, "SET dibs:fence:{lock:a} 1700000000000000 PX 600000");
    assert_int_equal(owner_of(f->rt, "a").held_ms, -1);
    server_do(f->server, "FLUSHALL");
}

/* The clocks of the masters differ by seconds. */
TEST_WITH(a_quorum_computes_held_ms_by_the_foremost_clock, masters_setup_5_with_clocks, masters_teardown, masters *m)
{
    masters_open_connected(m, LONG_LEASE_MS);
    int64_t began = now_ms();
    masters_lock_at_all(m, "a");
    await_held(m->rt, 50);
    int64_t held = owner_of(m->rt, "a").held_ms;
    assert_that(held <= now_ms() - began + 100, "%lld ms", (long long)held);
    assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
}

/* --------------------------------------------------------------- several servers */

TEST_WITH(a_quorum_lists_what_a_majority_has, masters_setup_3, masters_teardown, masters *m)
{
    masters_open_connected(m, LONG_LEASE_MS);
    masters_lock_at_all(m, "a");
    server_do(m->servers[0], "SET lock:alone x PX 600000");
    server_do(m->servers[1], "SET lock:two x PX 600000");
    server_do(m->servers[2], "SET lock:two x PX 600000");
    server_do(m->servers[1], "SET lock:torn x PX 600000");
    server_do(m->servers[2], "SET lock:torn y PX 600000");
    server_do(m->servers[1], "RPUSH lock:list y");
    for (int i = 0; i < 3; i++)
        set_many(m->servers[i], "many", 300);
    assert_int_equal(list(m->rt, "many*")->count, 300);
    const struct listed *listed = list(m->rt, "[^m]*");
    assert_int_equal(listed->count, 2);
    listed_owner(listed, "a");
    listed_owner(listed, "two");
    server_kill(m->servers[0]);
    listed = list(m->rt, "[^m]*");
    assert_int_equal(listed->count, 2);
    listed_owner(listed, "two");
    assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
    server_kill(m->servers[1]);
    assert_status(DIBS_UNAVAILABLE, dibs_list(m->rt, NULL, note, NULL));
    server_do(m->servers[2], "FLUSHALL");
}

static cluster *nodes;

static int stop_cluster(void **state)
{
    cluster_stop(nodes);
    return 0;
}

static dibs_runtime *open_cluster(void)
{
    if (!nodes)
        nodes = cluster_start(NULL);
    return open_url(nodes->url, &(dibs_config){.lease_ms = LONG_LEASE_MS});
}

TEST_WITH(a_cluster_lists_the_locks_of_all_masters, NULL, NULL, void *none)
{
    dibs_runtime *rt = open_cluster();

    for (int i = 0; i < 50; i++)
        assert_status(DIBS_OK, dibs_lock(rt, formatted("n%d", i)));
    server *at = cluster_owner(nodes, cluster_slot(nodes, "lock:}"));
    server_do(at, "SET lock:} foreign PX 600000");
    const struct listed *listed = list(rt, NULL);
    assert_int_equal(listed->count, 50);
    for (int i = 0; i < 50; i++)
        assert_true(listed_owner(listed, formatted("n%d", i))->held_ms >= 0);
    assert_int_equal(list(rt, "n1?")->count, 10);
    server_do(at, "DEL lock:}");
    assert_status(DIBS_OK, dibs_unlock_all(rt));
    assert_int_equal(list(rt, NULL)->count, 0);
    dibs_close(rt);
    cluster_assert_no_locks(nodes);
}

/* The lock goes to another node between the walk and the look. */
TEST_WITH(a_lock_that_has_moved_is_found, NULL, NULL, void *none)
{
    dibs_runtime *rt = test_runtime(open_cluster());
    unsigned slot = cluster_slot(nodes, "lock:moves");
    server *from = cluster_owner(nodes, slot), *to = nodes->nodes[nodes->nodes[0] == from];

    assert_status(DIBS_OK, dibs_lock(rt, "moves"));
    cluster_move_slot(nodes, slot, to);
    assert_int_equal(list(rt, NULL)->count, 1);
    assert_status(DIBS_OK, dibs_unlock(rt, "moves"));
    cluster_move_slot(nodes, slot, from);
}

TESTS_OF(fixture_setup, fixture_teardown, NULL, stop_cluster)
