/* Begun acquires that wait beside threads that block: an acquire without a thread is told of its grant as well. */
#include <poll.h>

#include "support/fixture.h"
#include "support/queue.h"
#include "support/tasks.h"

/*
 * A thread that blocked has just stopped reading the messages of the server, and leaves them to the next thread that
 * blocks within 50 ms, unless an acquire waits without a thread. A grant that arrives sooner was read by another
 * thread. A busy machine is slow by itself, so that some rounds are enough.
 */
enum { EARLY_MS = 35, ROUNDS = 100, EARLY_ROUNDS = 5 };

static bool is_grant_early_after_a_blocked_call(fixture *f, dibs_runtime *holder, dibs_task *task, dibs_queue *queue)
{
    struct pollfd fd = {.fd = dibs_queue_fd(queue), .events = POLLIN};

    assert_status(DIBS_OK, dibs_lock(holder, "a"));
    assert_status(DIBS_TIMEOUT, dibs_timedlock(f->rt, "b", 5));
    int64_t blocked = now_ms();
    begin_lock(task, "a", DIBS_WAIT_FOREVER, NULL, queue);
    queue_await(f->server, "a", 1);
    assert_status(DIBS_OK, dibs_unlock(holder, "a"));
    assert_int_equal(poll(&fd, 1, LIMIT_MS), 1);
    bool early = now_ms() - blocked < EARLY_MS;
    expect_done(queue, DIBS_DONE_LOCK, DIBS_OK, task);
    assert_status(DIBS_OK, task_unlock(task, "a", queue));
    return early;
}

TEST_ON(a_grant_is_heard_soon_after_a_thread_blocked, fixture *f)
{
    int early = 0;

    fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *holder = test_runtime(open_runtime(f->server, LONG_LEASE_MS));
    dibs_task *task = test_task(task_of_runtime(f->rt));
    dibs_queue *queue = test_queue(queue_new());

    assert_status(DIBS_OK, dibs_lock(holder, "b"));
    for (int i = 0; i < ROUNDS && early < EARLY_ROUNDS; i++)
        early += is_grant_early_after_a_blocked_call(f, holder, task, queue);
    assert_that(early == EARLY_ROUNDS, "%d of %d grants arrived within %d ms", early, ROUNDS, EARLY_MS);
}

TESTS(fixture_setup, fixture_teardown)
