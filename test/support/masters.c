#include "support/masters.h"

#include <fcntl.h>
#include <unistd.h>

#include "support/fixture.h"

static int setup(void **state, size_t count)
{
    masters *m = calloc(1, sizeof *m);

    assert_true(m != NULL);
    m->count = count;
    m->majority = count / 2 + 1;
    for (size_t i = 0; i < count; i++) {
        m->servers[i] = server_start(NULL);
        m->urls[i] = m->servers[i]->url;
    }
    events_init(&m->events);
    m->config =
        (dibs_config){.urls = m->urls, .url_count = count, .on_event = events_record, .on_event_arg = &m->events};
    *state = m;
    return 0;
}

int masters_setup_3(void **state)
{
    return setup(state, 3);
}

int masters_setup_5(void **state)
{
    return setup(state, 5);
}

static void set_clock(masters *m, size_t i, int64_t offset_ms)
{
    const int64_t ns = offset_ms * 1000000;

    m->offsets_ms[i] = offset_ms;
    assert_int_equal(pwrite(m->clocks[i], &ns, sizeof ns, 0), sizeof ns);
}

/* The preloaded clock_shim.so reads from a file how far off a server's wall clock is. */
static void start_with_clock(masters *m, size_t i, int64_t offset_ms)
{
    char path[64] = "/tmp/dibs-clock-XXXXXX", shim[512] = "";
    ssize_t length = readlink("/proc/self/exe", shim, sizeof shim - 64);

    assert_true(length > 0);
    shim[length] = '\0';
    *strrchr(shim, '/') = '\0';
    strcat(shim, "/../fault/clock_shim.so");
    assert_that(access(shim, R_OK) == 0, "%s is not built", shim);
    m->clocks[i] = mkostemp(path, O_CLOEXEC);
    set_clock(m, i, offset_ms);
    setenv("LD_PRELOAD", shim, 1);
    setenv("DIBS_CLOCK_FILE", path, 1);
    m->servers[i] = server_start(NULL);
    m->urls[i] = m->servers[i]->url;
    unsetenv("LD_PRELOAD");
    unsetenv("DIBS_CLOCK_FILE");
    unlink(path);
}

void masters_step_clock(masters *m, size_t i, int64_t by_ms)
{
    set_clock(m, i, m->offsets_ms[i] + by_ms);
}

int masters_setup_5_with_clocks(void **state)
{
    static const int64_t offsets_ms[MASTERS_MAX] = {-3000, 2000, 0, 5000, -7000};
    masters *m = NULL;

    setup(state, 5);
    m = *state;
    for (size_t i = 0; i < m->count; i++) {
        server_stop(m->servers[i]);
        start_with_clock(m, i, offsets_ms[i]);
    }
    return 0;
}

static int tear_down(void **state, void (*look)(server *s))
{
    masters *m = *state;

    for (size_t i = 0; i < m->count; i++)
        if (m->servers[i]->paused)
            server_resume(m->servers[i]);
    dibs_close(m->rt);
    for (size_t i = 0; i < m->count; i++) {
        look(m->servers[i]);
        server_stop(m->servers[i]);
        if (m->clocks[i] > 0)
            close(m->clocks[i]);
    }
    events_destroy(&m->events);
    free(m);
    return 0;
}

int masters_teardown(void **state)
{
    return tear_down(state, server_assert_no_locks);
}

int masters_teardown_expiring(void **state)
{
    return tear_down(state, server_assert_clean);
}

/* Where the machine stood still, a lease that is shorter than a safe one may be lost by now. */
static void let_go(masters *m, const char *name)
{
    dibs_status status = dibs_unlock(m->rt, name);
    bool is_short = m->config.lease_ms > 0 && m->config.lease_ms < SAFE_LEASE_MS;

    if (!is_short || status != DIBS_LOST)
        assert_status(DIBS_OK, status);
}

/* True: it is held, and all have it. */
static bool is_had_at_all(masters *m, const char *name, const dibs_lock_options *options)
{
    assert_status(DIBS_OK, dibs_lock_with(m->rt, name, LIMIT_MS, options));
    if (masters_with_key(m, name) == m->count)
        return true;
    let_go(m, name);
    return false;
}

void masters_open(masters *m, uint32_t lease_ms)
{
    m->config.lease_ms = lease_ms;
    assert_status(DIBS_OK, open_in_time(&m->rt, &m->config));
}

void masters_open_connected(masters *m, uint32_t lease_ms)
{
    masters_open(m, lease_ms);
    masters_await_all(m);
}

void masters_open_patient(masters *m, uint32_t lease_ms)
{
    m->config.command_timeout_ms = LIMIT_MS;
    masters_open_connected(m, lease_ms);
}

void masters_await_all(masters *m)
{
    masters_lock_at_all(m, "first");
    let_go(m, "first");
}

void masters_lock_at_all(masters *m, const char *name)
{
    masters_lock_at_all_with(m, name, NULL);
}

void masters_lock_at_all_with(masters *m, const char *name, const dibs_lock_options *options)
{
    await_or_say(is_had_at_all(m, name, options), "not all masters grant %s", name);
}

dibs_runtime *masters_open_another(const masters *m, uint32_t lease_ms)
{
    dibs_config config = m->config;
    dibs_runtime *rt;

    config.lease_ms = lease_ms;
    config.on_event = NULL;
    assert_status(DIBS_OK, open_in_time(&rt, &config));
    return rt;
}

size_t masters_with_value(const masters *m, const char *name, const char *value)
{
    char found[DIBS_NAME_MAX];
    size_t count = 0;

    for (size_t i = 0; i < m->count; i++)
        if (m->servers[i]->pid && !m->servers[i]->paused &&
            server_string(m->servers[i], found, sizeof found, "GET lock:%s", name))
            count += !value || strcmp(found, value) == 0;
    return count;
}

size_t masters_with_key(const masters *m, const char *name)
{
    return masters_with_value(m, name, NULL);
}

void masters_await_keys(masters *m, const char *name, size_t count)
{
    await_or_say(masters_with_key(m, name) == count, "%zu masters have the key, not %zu", masters_with_key(m, name),
                 count);
}

void masters_each(masters *m, size_t count, void (*function)(server *s))
{
    for (size_t i = 0; i < count; i++)
        function(m->servers[i]);
}

void masters_do(masters *m, size_t count, const char *command)
{
    for (size_t i = 0; i < count; i++)
        server_do(m->servers[i], command);
}

long long masters_asks(masters *m, size_t i)
{
    return server_asks(m->servers[i]);
}

bool master_knows(server *master)
{
    char noted[256];

    return server_string(master, noted, sizeof noted, "GET dibs:vote") && strncmp(noted, "new ", 4) != 0;
}
