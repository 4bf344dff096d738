/* A call for several names whose server is far away, or falls silent while names are given back. */
#include "kept_setup.h"
#include "support/queue.h"
#include "support/script_server.h"
#include "support/tasks.h"

#define TIMEOUT_MS 8000

static const char *const names[] = {"a", "b"};

/* f->rt reaches its server through `net`, another runtime without it. */
static script_server *open_through(fixture *f, uint32_t command_timeout_ms)
{
    script_server *net = fixture_between(f);

    f->urls[0] = script_server_url(net);
    f->config.command_timeout_ms = command_timeout_ms;
    fixture_open_connected(f, LONG_LEASE_MS);
    return net;
}

/* The server is silent from the release of b on: a is taken. */
TEST_ON(a_call_keeps_its_time_when_the_server_falls_silent, fixture *f)
{
    enum { WAIT_MS = 200 };
    dibs_runtime *other = test_runtime(open_runtime(f->server, LONG_LEASE_MS));
    script_server *net = open_through(f, TIMEOUT_MS);

    assert_status(DIBS_OK, dibs_lock(other, "a"));
    script_server_add(net, (script_rule){.match = "lock:b", .nth = 2, .action = SCRIPT_STALL_REQUEST});
    int64_t since = now_ms();
    assert_status(DIBS_TIMEOUT, dibs_lock_names(f->rt, names, 2, WAIT_MS, NULL));
    int64_t took = now_ms() - since;
    assert_that(took < TIMEOUT_MS / 2, "%d ms", (int)took);
    assert_true(server_wait_gone(f->server, "lock:b", LIMIT_MS)); /* over another connection */
    assert_status(DIBS_OK, dibs_unlock(other, "a"));
}

/*
 * Another process keeps three of the names, and is not far from the server. Of a call in which two round trips take
 * 90 ms each keeper has its whole time.
 */
static dibs_status try_what_is_kept(dibs_runtime *far, script_server *net, dibs_runtime *keeper, int round)
{
    enum { NAMES = 4, FREE = 1, DELAY_MS = 45 };
    const char *all[NAMES];

    for (int i = 0; i < NAMES; i++) {
        all[i] = formatted("x%d:%d", round, i);
        if (i != FREE)
            keep(keeper, all[i]);
    }
    script_server_delay(net, DELAY_MS);
    dibs_status status = dibs_lock_names(far, all, NAMES, 0, NULL);
    script_server_delay(net, 0);
    if (status == DIBS_OK)
        assert_status(DIBS_OK, dibs_unlock_names(far, all, NAMES));
    return status;
}

TEST_ON(one_try_from_far_away_gets_names_that_are_kept, fixture *f)
{
    int64_t limit = now_ms() + LIMIT_MS; /* a keeper on a busy machine may be late, but not each time */
    script_server *net = fixture_between(f);
    dibs_runtime *far =
        test_runtime(open_url(script_server_url(net), &(dibs_config){.command_timeout_ms = TIMEOUT_MS}));
    dibs_status status = DIBS_BUSY;

    open_keeping(f, KEEP_LONG_MS);
    lock_and_release(far, "first", DIBS_WAIT_FOREVER); /* the server knows the scripts, and a connection stands */
    for (int i = 0; status == DIBS_BUSY && now_ms() < limit; i++)
        status = try_what_is_kept(far, net, f->rt, i);
    assert_status(DIBS_OK, status);
}

/*
 * Each call for both names tries them first, and the others wait for its answer: all of that takes longer than
 * outage_ms, which is no outage.
 */
TEST_ON(fair_calls_from_far_away_keep_their_order, fixture *f)
{
    enum { TASKS = 45, DELAY_MS = 25, OUTAGE_MS = 200, COMMAND_MS = 800 };
    static const dibs_lock_options fair = {.flags = DIBS_FAIR};
    dibs_runtime *other = test_runtime(open_runtime(f->server, LONG_LEASE_MS));
    dibs_task *tasks[TASKS];

    f->config.outage_ms = OUTAGE_MS;
    script_server *net = open_through(f, COMMAND_MS);
    dibs_queue *q = test_queue(queue_new());
    lock_and_release(f->rt, "first", DIBS_WAIT_FOREVER);
    assert_status(DIBS_OK, dibs_lock(other, "a"));
    script_server_delay(net, DELAY_MS);
    int64_t since = now_ms();
    for (int i = 0; i < TASKS; i++) {
        tasks[i] = task_of_runtime(f->rt);
        assert_status(DIBS_OK,
                      dibs_lock_names_begin(tasks[i], names, i % 3 ? 2 : 1, DIBS_WAIT_FOREVER, &fair, q, NULL));
    }
    queue_await(f->server, "a", TASKS);
    int64_t took = now_ms() - since;
    assert_that(took > COMMAND_MS, "the line took only %ld ms", (long)took);
    script_server_delay(net, 0);
    assert_status(DIBS_OK, dibs_unlock(other, "a"));
    for (int i = 0; i < TASKS; i++) {
        dibs_completion done = next_done(q);
        assert_status(DIBS_OK, done.status);
        assert_ptr_equal(done.task, tasks[i]);
        dibs_task_free(tasks[i]); /* and what it holds */
    }
}

TESTS(fixture_setup, fixture_teardown)
