/*
 * doc/ACCOUNTS.md, beyond one server: each rule is enough, and each right that it has beyond the rule for one server is
 * used.
 */
#include "support/cluster.h"
#include "support/document.h"
#include "support/fixture.h"
#include "support/sentinels.h"

#define FILE_NAME "doc/ACCOUNTS.md"
#define SETUSER "ACL SETUSER locks on >PASSWORD"

enum { ROWS_MOST = 20, NAMES = 12 };

/* The servers on which the account is, and how to get there. */
struct place {
    server *servers[CLUSTER_NODES_MAX];
    size_t count;
    const char *urls[5];
    size_t url_count;
    const char *user;
    dibs_config config;
};

static void set_account(struct place *p, const char *rule)
{
    for (size_t i = 0; i < p->count; i++) {
        server_do(p->servers[i], formatted("ACL SETUSER %s reset on >pw resetchannels %s", p->user, rule));
        server_do(p->servers[i], "ACL LOG RESET");
    }
}

/* Whether one of the servers has refused that; NULL: anything. */
static bool was_refused(struct place *p, const char *what)
{
    bool found = false;

    for (size_t i = 0; i < p->count; i++) {
        redisReply *log = server_command(p->servers[i], "ACL LOG 100");
        for (size_t j = 0; j < log->elements && !found; j++)
            for (size_t k = 0; k + 1 < log->element[j]->elements && !found; k += 2)
                found = strcmp(log->element[j]->element[k]->str, "object") == 0 &&
                        (!what || strcasecmp(log->element[j]->element[k + 1]->str, what) == 0);
        if (found && !what)
            print_error("%s\n", log->element[0]->element[7]->str);
        freeReplyObject(log);
    }
    return found;
}

/* The status of dibs_open, or where that is DIBS_OK, of locking many names, or of waiting for one; all else is "". */
struct outcome {
    const char *opens, *locks, *waits;
};

static struct outcome try_all(const struct place *p)
{
    struct outcome out = {"", "", ""};
    dibs_config config = p->config;
    dibs_runtime *rt, *other;

    config.urls = p->urls;
    config.url_count = p->url_count;
    config.lease_ms = LONG_LEASE_MS;
    dibs_status status = open_in_time(&rt, &config);
    if (status != DIBS_OK) {
        out.opens = dibs_status_name(status) + 5;
        return out;
    }
    actor *waiter = actor_start();
    assert_status(DIBS_OK, open_in_time(&other, &config));
    for (int i = 0; i < NAMES && status == DIBS_OK; i++) {
        const char *name = formatted("x%d", i);
        status = dibs_trylock(rt, name);
        if (status == DIBS_OK) {
            actor_begin_lock(waiter, other, name, LIMIT_MS / 2);
            pause_ms(i == 0 ? 500 : 50); /* the runtime subscribes meanwhile; then the waiter enters the queue */
            status = dibs_unlock(rt, name);
            dibs_status waited = actor_result(waiter);
            if (waited == DIBS_OK)
                actor_unlock(waiter, other, name);
            else
                out.waits = dibs_status_name(waited) + 5;
        }
    }
    if (status != DIBS_OK)
        out.locks = dibs_status_name(status) + 5;
    else if (!*out.waits && stats_of(other).granted == 0 && p->url_count == 1)
        out.waits = "poll";
    actor_end(waiter);
    dibs_close(other);
    dibs_close(rt);
    return out;
}

static struct outcome try_with(struct place *p, const char *rule)
{
    set_account(p, rule);
    return try_all(p);
}

static void expect_enough(struct place *p, const char *rule)
{
    struct outcome out = try_with(p, rule);

    assert_that(!*out.opens && !*out.locks && !*out.waits, "opens %s, locks %s, waits %s: %s", out.opens, out.locks,
                out.waits, dibs_last_error());
    assert_false(was_refused(p, NULL));
}

static void expect_rows(struct place *p, const char *heading, const char *rule)
{
    static document_row rows[ROWS_MOST];
    size_t count = document_table(FILE_NAME, heading, rows, ROWS_MOST);
    bool good = true;

    for (size_t i = 0; i < count; i++) {
        const char *right = document_right(&rows[i]);
        struct outcome out = try_with(p, document_rule_without(rule, right));
        bool refused = was_refused(p, right + 1);
        bool as_told = strcmp(out.opens, rows[i].cells[1]) == 0 && strcmp(out.locks, rows[i].cells[2]) == 0 &&
                       strcmp(out.waits, rows[i].cells[3]) == 0 && refused;
        if (!as_told)
            print_error("| %s | %s | %s | %s | refused: %d, %s\n", rows[i].cells[0], out.opens, out.locks, out.waits,
                        refused, dibs_last_error());
        good = good && as_told;
    }
    assert_true(good);
}

/* Behind "://". */
static const char *with_account(const char *url, const char *account)
{
    const char *rest = strstr(url, "://") + 3;

    return formatted("%.*s%s%s", (int)(rest - url), url, account, rest);
}

/* -------------------------------------------------------------------------- one server */

TEST_WITH(replicas_and_databases_need_their_rights, fixture_setup, fixture_teardown, fixture *f)
{
    const char *one = document_block(FILE_NAME, "One server", SETUSER);
    struct place p = {.servers = {f->server}, .count = 1, .url_count = 1, .user = "locks"};

    p.urls[0] = formatted("unix://locks:pw@%s?db=3", f->server->socket_path);
    assert_string_equal(try_with(&p, one).opens, "DENIED");
    expect_enough(&p, formatted("%s +select", one));
    p.urls[0] = formatted("unix://locks:pw@%s", f->server->socket_path);
    p.config.min_replicas = 1;
    assert_string_equal(try_with(&p, one).opens, "DENIED");
    assert_string_equal(try_with(&p, formatted("%s +wait", one)).locks, "UNAVAILABLE"); /* there is no replica */
    assert_false(was_refused(&p, NULL));
}

/* ---------------------------------------------------------------------------- Sentinel */

TEST(the_documented_rule_is_enough_for_sentinels)
{
    server *data = test_server(server_start(&(server_options){.tcp = true}));
    server *sentinel = sentinel_start(data);
    struct place p = {.servers = {sentinel}, .count = 1, .url_count = 1, .user = "watch"};

    p.config = (dibs_config){.sentinel_user = "watch", .sentinel_password = "pw", .connect_timeout_ms = 3000};
    struct place data_place = {.servers = {data}, .count = 1, .user = "locks"};
    set_account(&data_place, document_block(FILE_NAME, "One server", SETUSER));
    p.urls[0] = with_account(sentinel->url, "locks:pw@");
    const char *rule = document_block(FILE_NAME, "Sentinel", "ACL SETUSER sentinels on >PASSWORD");
    expect_enough(&p, rule);
    expect_rows(&p, "Sentinel", rule);
    server_stop(sentinel);
}

/* ----------------------------------------------------------------------------- cluster */

TEST(the_documented_rule_is_enough_for_a_cluster)
{
    cluster *c = cluster_start(NULL);
    struct place p = {.count = c->count, .url_count = 1, .user = "locks"};

    for (size_t i = 0; i < c->count; i++)
        p.servers[i] = c->nodes[i];
    p.urls[0] = with_account(c->url, "locks:pw@");
    const char *rule = document_block(FILE_NAME, "Cluster", SETUSER);
    expect_enough(&p, rule);
    expect_rows(&p, "Cluster", rule);
    cluster_stop(c);
}

/* ------------------------------------------------------------------------------ quorum */

TEST(the_rule_of_one_server_is_enough_for_a_quorum)
{
    enum { MASTERS = 3 };
    struct place p = {.count = MASTERS, .url_count = MASTERS, .user = "locks"};

    for (size_t i = 0; i < MASTERS; i++) {
        p.servers[i] = server_start(NULL);
        p.urls[i] = with_account(p.servers[i]->url, "locks:pw@");
    }
    expect_enough(&p, document_block(FILE_NAME, "One server", SETUSER));
    for (size_t i = 0; i < MASTERS; i++)
        server_stop(p.servers[i]);
}

TESTS(NULL, NULL)
