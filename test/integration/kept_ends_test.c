/* Kept leases whose processes do not give them back when recalled, because they have ended or do not get the recall. */
#include <stdatomic.h>
#include <unistd.h>

#include "kept_setup.h"
#include "support/agent.h"
#include "support/process.h"

enum { KEEP = 2000, BOUND = 4 * KEEP + 100, MANY = 200 /* uses, by which the fence was raised */, LONG_US = 200000 };

/* --------------------------------------------------------------------- keepers that ended */

enum { KEEPERS = 10 };

static bool agent_keeps(fixture *f, process *agent, const char *name, const char *key)
{
    assert_string_equal(process_ask(agent, "cycle %s 4", name), "DIBS_OK");
    return server_has(f->server, key);
}

/* False: nobody used it for KEEP, so it was given back before this was seen. The caller uses it once more. */
static bool is_shown_kept(fixture *f, const char *name)
{
    return within(KEEP, owner_of(f->rt, name).kept);
}

static process *start_keeper(fixture *f, const char *name)
{
    process *agent = process_start((const char *const[]){program_path("agent"), NULL});
    int64_t limit = now_ms() + LIMIT_MS;

    const char *key = formatted("lock:%s", name);
    assert_string_equal(process_ask(agent, "keep %s %d", f->server->url, KEEP), "DIBS_OK");
    do
        await_that(agent_keeps(f, agent, name, key));
    while (!is_shown_kept(f, name) && now_ms() < limit);
    assert_true(now_ms() < limit);
    return agent;
}

TEST_ON(a_name_kept_by_a_process_that_ended_is_free_in_time, fixture *f)
{
    process *keepers[KEEPERS];
    const char *name[KEEPERS];

    fixture_open(f, 0);
    for (int i = 0; i < KEEPERS; i++) {
        name[i] = formatted("x%d", i);
        keepers[i] = start_keeper(f, name[i]);
    }
    for (int i = 0; i < KEEPERS; i++) {
        if (i % 2)
            process_kill(keepers[i]);
        else
            process_pause(keepers[i]);
    }
    int64_t since = now_ms();
    for (int i = 0; i < KEEPERS; i++)
        assert_status(DIBS_OK, dibs_timedlock(f->rt, name[i], LIMIT_MS));
    assert_that(now_ms() - since < BOUND + SLACK_MS, "%ld ms", (long)(now_ms() - since));
    for (int i = 0; i < KEEPERS; i++) {
        if (i % 2 == 0) {
            process_resume(keepers[i]);
            assert_status(DIBS_BUSY, agent_lock(keepers[i], name[i], 0));
            agent_stop(keepers[i]);
        } else {
            process_free(keepers[i]);
        }
        assert_status(DIBS_OK, dibs_unlock(f->rt, name[i]));
    }
}

/* ----------------------------------------------------------------- recalls that are swallowed */

struct unheard {
    process *proxy;
    dibs_runtime *rt; /* keeps leases, and gets no recall */
    atomic_bool over;
    atomic_uint uses;
};

static void open_unheard(fixture *f, struct unheard *u)
{
    fixture_open(f, 0);
    u->proxy = process_start(
        (const char *const[]){"python3", source_path("test/fault/proxy.py"), f->server->socket_path, NULL});
    u->rt = open_url(formatted("redis://127.0.0.1:%s", process_read(u->proxy)),
                     &(dibs_config){.keep_ms = KEEP, .lease_ms = 120000});
    process_ask(u->proxy, "{\"do\": \"messages\", \"how\": \"lost\", \"of\": \"recalls\"}");
    keep(u->rt, "x");
}

/* Some recalls were swallowed. */
static void close_unheard(struct unheard *u)
{
    assert_true(strtol(process_ask(u->proxy, "{\"do\": \"messages\", \"how\": null}"), NULL, 10) > 0);
    assert_int_equal(stats_of(u->rt).lost, 0);
    dibs_close(u->rt);
    process_free(u->proxy);
}

static int64_t time_of_lock(fixture *f, dibs_status *status)
{
    int64_t since = now_ms();

    *status = dibs_timedlock(f->rt, "x", LIMIT_MS);
    return now_ms() - since;
}

static void expect_had_in_time(dibs_status status, int64_t took)
{
    assert_status(DIBS_OK, status);
    assert_that(took < BOUND + SLACK_MS, "%ld ms", (long)took);
}

TEST_ON(a_kept_name_is_free_in_time_though_recalls_are_swallowed, fixture *f)
{
    struct unheard u = {.over = false};
    int64_t limit = now_ms() + LIMIT_MS;
    dibs_status status;

    open_unheard(f, &u);
    do
        keep(u.rt, "x");
    while (!is_shown_kept(f, "x") && now_ms() < limit);
    assert_true(now_ms() < limit);
    int64_t took = time_of_lock(f, &status);
    expect_had_in_time(status, took);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    close_unheard(&u);
}

static void use_again_and_again(void *arg)
{
    struct unheard *u = arg;

    while (!atomic_load(&u->over) && dibs_lock(u->rt, "x") == DIBS_OK) {
        if (atomic_fetch_add(&u->uses, 1) > MANY)
            usleep(LONG_US);
        dibs_unlock(u->rt, "x");
    }
}

/* The time between two uses is too short to tell the store that the lease is kept, and the fences are sure. */
TEST_ON(a_name_in_use_is_free_in_time_though_recalls_are_swallowed, fixture *f)
{
    struct unheard u = {.over = false};
    dibs_status status;
    actor *a = actor_start();

    open_unheard(f, &u);
    actor_begin(a, use_again_and_again, &u);
    await_that(atomic_load(&u.uses) > MANY);
    int64_t took = time_of_lock(f, &status);
    atomic_store(&u.over, true);
    if (status == DIBS_OK) /* or the other thread would wait for it */
        dibs_unlock(f->rt, "x");
    actor_finish(a);
    actor_end(a);
    expect_had_in_time(status, took);
    close_unheard(&u);
}

TESTS(fixture_setup, fixture_teardown)
