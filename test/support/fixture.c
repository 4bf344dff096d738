/* Gives a test a server and a runtime. */
#include "support/fixture.h"

int fixture_setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);

    assert_true(f != NULL);
    f->server = server_start(NULL);
    events_init(&f->events);
    f->urls[0] = f->server->url;
    f->config = (dibs_config){.urls = f->urls, .url_count = 1, .on_event = events_record, .on_event_arg = &f->events};
    *state = f;
    return 0;
}

static int tear_down(void **state, void (*look)(server *s))
{
    fixture *f = *state;

    if (f->server->paused)
        server_resume(f->server);
    dibs_close(f->rt);
    script_server_stop(f->net);
    look(f->server);
    server_stop(f->server);
    events_destroy(&f->events);
    free(f);
    return 0;
}

int fixture_teardown(void **state)
{
    return tear_down(state, server_assert_no_locks);
}

int fixture_teardown_expiring(void **state)
{
    return tear_down(state, server_assert_clean);
}

dibs_status open_in_time(dibs_runtime **rt, const dibs_config *config)
{
    int64_t limit = now_ms() + LIMIT_MS;
    dibs_status status;

    while ((status = dibs_open(rt, config)) == DIBS_UNAVAILABLE && now_ms() < limit)
        print_message("dibs_open again: %s\n", dibs_last_error());
    return status;
}

script_server *fixture_between(fixture *f)
{
    assert_null(f->net);
    f->net = script_server_start(&(script_options){.backend = f->server->socket_path});
    return f->net;
}

void fixture_open(fixture *f, uint32_t lease_ms)
{
    f->config.lease_ms = lease_ms;
    assert_status(DIBS_OK, open_in_time(&f->rt, &f->config));
}

void fixture_open_holding(fixture *f, uint32_t lease_ms, const char *name)
{
    fixture_open(f, lease_ms);
    assert_status(DIBS_OK, dibs_lock(f->rt, name));
}

void fixture_open_patient(fixture *f, uint32_t lease_ms)
{
    f->config.command_timeout_ms = LIMIT_MS;
    fixture_open(f, lease_ms);
}

/* Where command_timeout_ms is short, a busy machine may need more than one try. */
static bool does_its_work(dibs_runtime *rt)
{
    static const dibs_lock_options outlasting = {.lease_ms = LONG_LEASE_MS};

    assert_status(DIBS_OK, dibs_lock_with(rt, "first", LIMIT_MS, &outlasting));
    /* The scheduler sends the extension, over its own connection, and takes the answer. */
    await_that(dibs_extend(rt, "first", LONG_LEASE_MS) == DIBS_OK);
    return dibs_unlock(rt, "first") == DIBS_OK;
}

void await_scheduler(dibs_runtime *rt)
{
    await_that(does_its_work(rt));
}

void fixture_open_connected(fixture *f, uint32_t lease_ms)
{
    fixture_open(f, lease_ms);
    await_scheduler(f->rt);
}

dibs_runtime *open_url(const char *url, const dibs_config *config)
{
    dibs_config all = {0};
    dibs_runtime *rt = NULL;

    if (config)
        all = *config;
    all.urls = &url;
    all.url_count = 1;
    assert_status(DIBS_OK, open_in_time(&rt, &all));
    assert_true(rt != NULL);
    return rt;
}

dibs_runtime *open_runtime(const server *s, uint32_t lease_ms)
{
    return open_url(s->url, &(dibs_config){.lease_ms = lease_ms});
}

void close_runtime(dibs_runtime **rt)
{
    dibs_close(*rt);
    *rt = NULL;
}

dibs_status open_status(const char *url, const dibs_config *config, dibs_runtime **rt)
{
    dibs_config all = {.connect_timeout_ms = 1000, .command_timeout_ms = 1000};

    if (config)
        all = *config;
    all.urls = &url;
    all.url_count = 1;
    *rt = NULL;
    return dibs_open(rt, &all);
}

void expect_not_opened(dibs_status status, const char *url, const dibs_config *config, const char *words)
{
    dibs_runtime *rt;

    assert_status(status, open_status(url, config, &rt));
    assert_null(rt);
    assert_that(!words || strstr(dibs_last_error(), words), "no \"%s\" in: %s", words, dibs_last_error());
}

void unlock_for_good(fixture *f, const char *name)
{
    assert_status(DIBS_OK, dibs_unlock(f->rt, name));
    assert_false(server_has(f->server, formatted("lock:%s", name)));
}

void expect_works(fixture *f, dibs_runtime *rt, const char *name)
{
    assert_status(DIBS_OK, dibs_timedlock(rt, name, LIMIT_MS));
    assert_int_equal(server_integer(f->server, "EXISTS lock:%s", name), 1);
    assert_status(DIBS_OK, dibs_unlock(rt, name));
    assert_int_equal(server_integer(f->server, "EXISTS lock:%s", name), 0);
}

void lock_and_release(dibs_runtime *rt, const char *name, int64_t wait_ms)
{
    assert_status(DIBS_OK, dibs_timedlock(rt, name, wait_ms));
    assert_status(DIBS_OK, dibs_unlock(rt, name));
}

/* Where the thread was stopped for all of the wait, nothing is known of the store: that is DIBS_TIMEOUT. */
void expect_unavailable(dibs_runtime *rt, const char *name, int64_t wait_ms)
{
    int64_t limit = now_ms() + LIMIT_MS;
    dibs_status status;

    do
        status = dibs_timedlock(rt, name, wait_ms);
    while (status == DIBS_TIMEOUT && now_ms() < limit);
    assert_status(DIBS_UNAVAILABLE, status);
}

dibs_hold hold_of(dibs_runtime *rt, const char *name)
{
    dibs_hold hold;

    memset(&hold, 0, sizeof hold);
    assert_status(DIBS_OK, dibs_hold_of(rt, name, &hold));
    return hold;
}

uint64_t fence_of(dibs_runtime *rt, const char *name)
{
    return hold_of(rt, name).fence;
}

dibs_owner owner_of(dibs_runtime *rt, const char *name)
{
    dibs_owner owner;

    assert_status(DIBS_OK, dibs_query(rt, name, &owner));
    return owner;
}

dibs_stats stats_of(dibs_runtime *rt)
{
    dibs_stats stats;

    memset(&stats, 0, sizeof stats);
    dibs_stats_get(rt, &stats);
    return stats;
}

static bool has_come(dibs_runtime *rt, size_t stat, uint64_t count)
{
    dibs_stats stats = stats_of(rt);

    return *(const uint64_t *)(const void *)((const char *)&stats + stat) >= count;
}

bool comes_to(dibs_runtime *rt, size_t stat, uint64_t least)
{
    return within(LIMIT_MS, has_come(rt, stat, least));
}

static bool has_nothing(dibs_runtime *rt)
{
    dibs_stats stats = stats_of(rt);

    return stats.holds == 0 && stats.leases == 0;
}

bool comes_to_nothing(dibs_runtime *rt)
{
    return within(LIMIT_MS, has_nothing(rt));
}

static bool so_many_wait(dibs_runtime *rt, uint64_t count, const char *name)
{
    dibs_owner owner;

    return dibs_query(rt, name, &owner) == DIBS_OK && owner.waiters == count;
}

void await_waiters(dibs_runtime *rt, const char *name, uint64_t count)
{
    await_or_say(so_many_wait(rt, count, name), "%s has not %llu waiters", name, (unsigned long long)count);
}

static bool nobody_is_there(dibs_runtime *rt, const char *name)
{
    dibs_owner owner;

    return dibs_query(rt, name, &owner) == DIBS_OK && !owner.held && owner.waiters == 0;
}

void await_nobody(dibs_runtime *rt, const char *name)
{
    await_or_say(nobody_is_there(rt, name), "%s is held, or has waiters", name);
}

void await_lost(dibs_runtime *rt, const char *name)
{
    await_or_say(dibs_check(rt, name) == DIBS_LOST, "%s is never lost: %s", name,
                 dibs_status_name(dibs_check(rt, name)));
}
