/* A master with replicas and sentinels of a test's own. */
#include "support/sentinels.h"

#include "support/common/redis_connect.h"
#include "support/common/redis_process.h"
#include "support/test.h"

#define DOWN_AFTER_MS 600000 /* a slow machine must not cause a failover */
#define HASTY_DOWN_AFTER_MS 600

/*
 * A sentinel whose timer is 2 s late, as on a machine that is busy, begins and follows nothing for 30 s (its TILT
 * mode).
 */
#define TILT_LIMIT_MS (2 * LIMIT_MS)

/* ------------------------------------------------------------ the processes */

/* Servers with TLS also speak to each other so. */
static const char *tls_config(const char *tls)
{
    return tls || getenv("DIBS_TEST_TLS") ? "tls-replication yes\n" : "";
}

static server *start_data(const sentinels_options *options, const server *master)
{
    const char *config =
        formatted("repl-diskless-sync-delay 0\nrepl-ping-replica-period 1\n%s", tls_config(options->tls));

    if (options->password)
        config = formatted("%smasterauth %s\n", config, options->password);
    if (master)
        config = formatted("%sreplicaof 127.0.0.1 %d\n", config, master->port);
    return server_start(
        &(server_options){.tcp = true, .config = config, .password = options->password, .tls = options->tls});
}

/*
 * How often a sentinel looks, in ms: by default that is seconds. For four times the period of publishing, a sentinel
 * that did not promote a replica leaves it a master; the one that did looks once in a second.
 */
static void hurry(server *sentinel)
{
    server_do(sentinel, "SENTINEL DEBUG INFO-PERIOD 200 PING-PERIOD 200 ASK-PERIOD 100 PUBLISH-PERIOD 500");
}

static server *start_sentinel(const sentinels_options *options, const server *master)
{
    const char *config = formatted("sentinel monitor " SENTINEL_MASTER " 127.0.0.1 %d 2\n"
                                   "sentinel down-after-milliseconds " SENTINEL_MASTER " %d\n"
                                   "sentinel failover-timeout " SENTINEL_MASTER " 3000\n",
                                   master->port, options->hasty ? HASTY_DOWN_AFTER_MS : DOWN_AFTER_MS);

    if (options->password)
        config = formatted("%ssentinel auth-pass " SENTINEL_MASTER " %s\n", config, options->password);
    if (options->sentinel_password)
        config = formatted("%ssentinel sentinel-pass %s\n", config, options->sentinel_password);
    config = formatted("%s%s%s\n", config, tls_config(options->tls),
                       options->sentinel_config ? options->sentinel_config : "");
    server *sentinel = server_start(&(server_options){
        .tcp = true, .sentinel = true, .config = config, .password = options->sentinel_password, .tls = options->tls});
    hurry(sentinel);
    return sentinel;
}

/* A field of what a sentinel tells of a server; "": it has none of that name. */
static const char *field_of(const redisReply *told, const char *name)
{
    for (size_t i = 0; i + 1 < told->elements; i += 2)
        if (strcmp(told->element[i]->str, name) == 0)
            return told->element[i + 1]->str;
    return "";
}

/* The field of SENTINEL MASTER; 0 where it is not there. */
static int count_of(server *sentinel, const char *field)
{
    redisReply *reply = server_command(sentinel, "SENTINEL MASTER " SENTINEL_MASTER);
    int value = atoi(field_of(reply, field));

    freeReplyObject(reply);
    return value;
}

static bool know_all(sentinels *s)
{
    for (size_t i = 0; i < SENTINELS; i++)
        if (count_of(s->sentinels[i], "num-slaves") != SENTINEL_DATA - 1 ||
            count_of(s->sentinels[i], "num-other-sentinels") != SENTINELS - 1)
            return false;
    return true;
}

const char *sentinels_url(const sentinels *s, const char *order)
{
    const char *url = formatted("redis%s-sentinel://", s->sentinels[0]->options.tls ? "s" : "");

    for (const char *c = order; *c; c++)
        url = formatted("%s%s127.0.0.1:%d", url, c == order ? "" : ",", s->sentinels[*c - '0']->port);
    return formatted("%s/" SENTINEL_MASTER, url);
}

sentinels *sentinels_start(const sentinels_options *options)
{
    static const sentinels_options none;
    sentinels *s = calloc(1, sizeof *s);

    assert_true(s != NULL);
    options = options ? options : &none;
    for (size_t i = 0; i < SENTINEL_DATA; i++)
        s->data[i] = start_data(options, s->data[0]);
    sentinels_await_replicas(s, SENTINEL_DATA - 1);
    for (size_t i = 0; i < SENTINELS; i++)
        s->sentinels[i] = start_sentinel(options, s->data[0]);
    await_or_say(know_all(s), "the sentinels do not find each other");
    s->url = sentinels_url(s, "012");
    return s;
}

void sentinels_stop(sentinels *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < SENTINELS; i++)
        server_stop(s->sentinels[i]);
    for (size_t i = SENTINEL_DATA; i > 0; i--)
        server_stop(s->data[i - 1]);
    free(s);
}

server *sentinel_start(const server *master)
{
    const char *config =
        formatted("%ssentinel monitor " SENTINEL_MASTER " 127.0.0.1 %d 1\n", tls_config(NULL), master->port);
    server *sentinel = server_start(&(server_options){.tcp = true, .sentinel = true, .config = config});

    sentinel->url =
        formatted("redis%s-sentinel://127.0.0.1:%d/" SENTINEL_MASTER, sentinel->options.tls ? "s" : "", sentinel->port);
    return sentinel;
}

/* ------------------------------------------------------------- who is master */

static bool runs(const server *s)
{
    return s->pid != 0 && !s->paused;
}

server *sentinels_named_by(sentinels *s, size_t sentinel)
{
    redisReply *reply = server_command(s->sentinels[sentinel], "SENTINEL GET-MASTER-ADDR-BY-NAME " SENTINEL_MASTER);
    server *named = NULL;

    for (size_t i = 0; i < SENTINEL_DATA; i++)
        if (reply->elements == 2 && atoi(reply->element[1]->str) == s->data[i]->port)
            named = s->data[i];
    freeReplyObject(reply);
    assert_non_null(named);
    return named;
}

/*
 * On a connection of its own, which may be closed: a sentinel closes all connections of a server whose role it changes.
 */
static bool has_role(const server *s, const char *role)
{
    redisContext *context = redisConnectUnixWithTimeout(s->socket_path, (struct timeval){.tv_sec = LIMIT_MS / 1000});
    redisReply *reply = NULL;

    assert_non_null(context);
    if (s->options.password && (reply = redis_try(context, "AUTH %s", s->options.password)))
        freeReplyObject(reply);
    reply = context->err ? NULL : redis_try(context, "ROLE");
    bool has = reply && reply->elements > 0 && strcmp(reply->element[0]->str, role) == 0;
    if (reply)
        freeReplyObject(reply);
    redisFree(context);
    return has;
}

struct change {
    sentinels *s;
    const server *old;
    server *new_one;
};

static bool has_changed(struct change *change)
{
    change->new_one = NULL;
    for (size_t i = 0; i < SENTINELS; i++) {
        if (!runs(change->s->sentinels[i]))
            continue;
        server *named = sentinels_named_by(change->s, i);
        if (named == change->old || (change->new_one && named != change->new_one))
            return false;
        change->new_one = named;
    }
    return change->new_one && runs(change->new_one) && has_role(change->new_one, "master");
}

server *sentinels_await_other(sentinels *s, const server *old)
{
    struct change change = {s, old, NULL};

    if (within(TILT_LIMIT_MS, has_changed(&change)))
        return change.new_one;
    for (size_t i = 0; i < SENTINELS; i++)
        redis_show_log(s->sentinels[i]->folder);
    fail_msg("%s", "there is no other master");
    return change.new_one;
}

/* A sentinel may say that none of the replicas is good yet, or that it is at one already. */
static bool begins(server *sentinel)
{
    redisReply *reply = server_try(sentinel, "SENTINEL FAILOVER " SENTINEL_MASTER);
    bool ok = reply->type == REDIS_REPLY_STATUS;

    freeReplyObject(reply);
    return ok;
}

/* Whether the sentinel has heard from each replica that it reaches, and saw it as a replica last. */
static bool sees_replicas(server *sentinel)
{
    redisReply *reply = server_try(sentinel, "SENTINEL SLAVES " SENTINEL_MASTER);
    bool all = reply->type == REDIS_REPLY_ARRAY;

    for (size_t i = 0; all && i < reply->elements; i++) {
        const redisReply *one = reply->element[i];
        bool is_away = strstr(field_of(one, "flags"), "down") || strstr(field_of(one, "flags"), "disconnected");
        bool is_heard = strcmp(field_of(one, "info-refresh"), "0") != 0;
        all = is_away || (is_heard && strcmp(field_of(one, "role-reported"), "slave") == 0);
    }
    freeReplyObject(reply);
    return all;
}

/*
 * A sentinel that last saw an old master as a master, up to ten seconds ago, is about to make it a replica. Where the
 * next failover has promoted that server meanwhile, all are replicas then, for a minute or for good.
 */
static bool all_see_replicas(const sentinels *s)
{
    for (size_t i = 0; i < SENTINELS; i++)
        if (runs(s->sentinels[i]) && !sees_replicas(s->sentinels[i]))
            return false;
    return true;
}

struct failover {
    struct change change;
    bool begun;
    int64_t again_at;
};

/*
 * A sentinel gives a failover up where the replica that it chose does not become the master in time, and begins none by
 * itself while the old master lives. failover-timeout is 3 s: after 10 s either no failover goes on, or another one is
 * refused.
 */
static bool has_failed_over(struct failover *f)
{
    sentinels *s = f->change.s;

    if (has_changed(&f->change))
        return true;
    if (now_ms() >= f->again_at && sentinels_named_by(s, 0) == f->change.old && all_see_replicas(s)) {
        f->begun = begins(s->sentinels[0]) || f->begun;
        f->again_at = now_ms() + (f->begun ? 10000 : 0);
    }
    return false;
}

server *sentinels_failover(sentinels *s)
{
    struct failover f = {.change = {s, sentinels_named_by(s, 0), NULL}};

    if (!within(TILT_LIMIT_MS, has_failed_over(&f)))
        f.change.new_one = sentinels_await_other(s, f.change.old); /* shows the logs */
    await_or_say(has_role((server *)f.change.old, "slave"), "the old master does not become a replica");
    sentinels_await_replicas(s, SENTINEL_DATA - 1);
    return f.change.new_one;
}

static int replicas_in_step(server *master)
{
    redisReply *reply = server_command(master, "INFO replication");
    int count = 0;

    for (const char *at = reply->str; (at = strstr(at, "state=online")); at++)
        count++;
    freeReplyObject(reply);
    return count;
}

void sentinels_await_replicas(sentinels *s, int count)
{
    server *master = s->sentinels[0] ? sentinels_named_by(s, 0) : s->data[0];

    assert_that(within(TILT_LIMIT_MS, replicas_in_step(master) >= count), "there are not %d replicas", count);
}

long long sentinels_connections(sentinels *s)
{
    static const char field[] = "total_connections_received:";
    long long count = 0;

    for (size_t i = 0; i < SENTINELS; i++) {
        if (!runs(s->sentinels[i]))
            continue;
        redisReply *reply = server_command(s->sentinels[i], "INFO stats");
        const char *at = strstr(reply->str, field);
        assert_non_null(at);
        count += atoll(at + strlen(field));
        freeReplyObject(reply);
    }
    return count;
}
