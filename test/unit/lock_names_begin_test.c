/* dibs_lock_names_begin: one completion for all names, and one for each that is lost. */
#include "support/events.h"
#include "support/fixture.h"

#define FOREVER DIBS_WAIT_FOREVER

enum { NAMES = 3 };
static const char *const names[NAMES] = {"c", "a", "b"};

struct scene {
    dibs_runtime *rt, *other;
    dibs_task *task;
    dibs_queue *queue;
    int arg;
};

static int setup(void **state)
{
    static struct scene scene;
    const dibs_config config = {.lease_ms = LONG_LEASE_MS};

    memset(&scene, 0, sizeof scene);
    scene.rt = open_url("mem:names", &config);
    scene.other = open_url("mem:names", &config);
    assert_status(DIBS_OK, dibs_task_new(scene.rt, &scene.task));
    assert_status(DIBS_OK, dibs_queue_new(&scene.queue));
    *state = &scene;
    return 0;
}

static int teardown(void **state)
{
    struct scene *s = *state;

    dibs_task_free(s->task);
    dibs_queue_free(s->queue);
    dibs_close(s->rt);
    dibs_close(s->other);
    return 0;
}

static dibs_status begin(struct scene *s, int64_t wait_ms, const dibs_lock_options *options)
{
    return dibs_lock_names_begin(s->task, names, NAMES, wait_ms, options, s->queue, &s->arg);
}

static dibs_completion take(struct scene *s)
{
    dibs_completion done;

    assert_int_equal(dibs_queue_take(s->queue, &done, 1, LIMIT_MS), 1);
    assert_ptr_equal(done.arg, &s->arg);
    assert_ptr_equal(done.task, s->task);
    return done;
}

static void expect_end(struct scene *s, dibs_status status)
{
    const dibs_completion done = take(s);

    assert_that(done.status == status, "%s, not %s: %s", dibs_status_name(done.status), dibs_status_name(status),
                done.detail);
    assert_int_equal(done.kind, DIBS_DONE_LOCK);
    assert_int_equal(done.fence, 0);
    assert_null(done.name);
    assert_int_equal(done.detail[0] == '\0', status == DIBS_OK);
}

static void expect_no_more(struct scene *s)
{
    dibs_completion done;

    assert_int_equal(dibs_queue_take(s->queue, &done, 1, 0), 0);
}

static void await_free(struct scene *s, const char *name)
{
    await_that(dibs_trylock(s->other, name) == DIBS_OK && dibs_unlock(s->other, name) == DIBS_OK);
}

static void unlock_all(struct scene *s)
{
    assert_status(DIBS_OK, dibs_task_enter(s->task));
    assert_status(DIBS_OK, dibs_unlock_names(s->rt, names, NAMES));
    assert_status(DIBS_OK, dibs_task_leave(s->task));
}

TEST_ON(several_names_have_one_completion, struct scene *s)
{
    assert_status(DIBS_OK, begin(s, 0, NULL));
    expect_end(s, DIBS_OK);
    expect_no_more(s);
    assert_status(DIBS_OK, dibs_task_enter(s->task));
    for (size_t i = 0; i < NAMES; i++) {
        assert_int_equal(hold_of(s->rt, names[i]).count, 1);
        assert_status(DIBS_BUSY, dibs_trylock(s->other, names[i]));
    }
    assert_status(DIBS_OK, dibs_task_leave(s->task));
    assert_status(DIBS_OK, begin(s, 0, NULL)); /* held already */
    expect_end(s, DIBS_OK);
    unlock_all(s);
    assert_status(DIBS_OK, dibs_unlock_begin(s->task, "a", s->queue, &s->arg));
    assert_int_equal(take(s).status, DIBS_OK);
    assert_status(DIBS_OK, dibs_task_enter(s->task));
    assert_status(DIBS_OK, dibs_unlock_all(s->rt));
    assert_status(DIBS_OK, dibs_task_leave(s->task));
    assert_int_equal(stats_of(s->rt).acquired, NAMES);
    assert_int_equal(stats_of(s->rt).holds, 0);
    assert_int_equal(stats_of(s->rt).leases, 0);
}

TEST_ON(beginning_several_names_checks_its_arguments, struct scene *s)
{
    static const char *const null[] = {NULL};

    assert_status(DIBS_INVALID, dibs_lock_names_begin(NULL, names, NAMES, 0, NULL, s->queue, NULL));
    assert_status(DIBS_INVALID, dibs_lock_names_begin(s->task, names, NAMES, 0, NULL, NULL, NULL));
    assert_status(DIBS_INVALID, dibs_lock_names_begin(s->task, null, 1, 0, NULL, s->queue, NULL));
    assert_status(DIBS_INVALID, dibs_lock_names_begin(s->task, names, NAMES, -2, NULL, s->queue, NULL));
    assert_status(DIBS_OK, dibs_lock_names_begin(s->task, NULL, 0, 0, NULL, s->queue, &s->arg));
    expect_end(s, DIBS_OK);
    assert_status(DIBS_OK, dibs_task_enter(s->task));
    assert_status(DIBS_BUSY, begin(s, 0, NULL));
    assert_status(DIBS_OK, dibs_task_leave(s->task));
    expect_no_more(s);
}

TEST_ON(a_taken_name_leaves_none_of_several_held, struct scene *s)
{
    assert_status(DIBS_OK, dibs_lock(s->other, "b"));
    assert_status(DIBS_OK, begin(s, 0, NULL));
    dibs_completion done = take(s);
    assert_int_equal(done.status, DIBS_BUSY);
    assert_that(strstr(done.detail, "\"b\""), "%s", done.detail);
    await_free(s, "a");
    assert_status(DIBS_OK, begin(s, 20, NULL));
    expect_end(s, DIBS_TIMEOUT);
    lock_and_release(s->other, "a", 0);
    assert_status(DIBS_OK, begin(s, FOREVER, NULL));
    await_waiters(s->other, "b", 1);
    assert_status(DIBS_BUSY, begin(s, 0, NULL));
    assert_status(DIBS_BUSY, dibs_trylock(s->other, "a"));
    assert_status(DIBS_OK, dibs_trylock(s->other, "c"));
    assert_status(DIBS_OK, dibs_unlock(s->other, "b"));
    await_waiters(s->other, "c", 1);
    assert_status(DIBS_OK, dibs_unlock(s->other, "c"));
    expect_end(s, DIBS_OK);
    unlock_all(s);
    assert_int_equal(stats_of(s->rt).leases, 0);
}

TEST_ON(a_cancel_completes_several_names_at_once, struct scene *s)
{
    assert_status(DIBS_OK, dibs_lock(s->other, "b"));
    assert_status(DIBS_OK, begin(s, FOREVER, NULL));
    await_waiters(s->other, "b", 1);
    dibs_task_cancel(s->task);
    dibs_completion done = take(s);
    assert_int_equal(done.status, DIBS_CANCELLED);
    assert_string_equal(done.detail, "the task that wanted \"b\" was cancelled");
    await_free(s, "a");
    await_waiters(s->other, "b", 0);
    assert_status(DIBS_OK, begin(s, FOREVER, NULL));
    expect_end(s, DIBS_CANCELLED);
    expect_no_more(s);
    assert_status(DIBS_OK, dibs_unlock(s->other, "b"));
}

/* A name that the task holds already is not the reason. */
TEST_ON(a_cancelled_call_names_a_lock_that_it_wanted, struct scene *s)
{
    assert_status(DIBS_OK, dibs_lock_begin(s->task, "a", 0, NULL, s->queue, &s->arg));
    assert_int_equal(take(s).status, DIBS_OK);
    dibs_task_cancel(s->task);
    assert_status(DIBS_OK, begin(s, FOREVER, NULL));
    dibs_completion done = take(s);
    assert_int_equal(done.status, DIBS_CANCELLED);
    assert_string_equal(done.detail, "the task that wanted \"b\" was cancelled");
}

TEST_ON(freeing_a_task_completes_its_call_for_several_names, struct scene *s)
{
    dibs_task *task;

    assert_status(DIBS_OK, dibs_lock(s->other, "b"));
    assert_status(DIBS_OK, dibs_task_new(s->rt, &task));
    assert_status(DIBS_OK, dibs_lock_begin(task, "a", 0, NULL, s->queue, &s->arg));
    dibs_completion done;
    assert_int_equal(dibs_queue_take(s->queue, &done, 1, LIMIT_MS), 1);
    assert_int_equal(done.status, DIBS_OK);
    assert_status(DIBS_OK, dibs_lock_names_begin(task, names, NAMES, FOREVER, NULL, s->queue, &s->arg));
    await_waiters(s->other, "b", 1);
    dibs_task_free(task);
    assert_int_equal(dibs_queue_take(s->queue, &done, 1, LIMIT_MS), 1);
    assert_int_equal(done.status, DIBS_CANCELLED);
    await_free(s, "a");
    await_waiters(s->other, "b", 0);
    assert_status(DIBS_OK, dibs_unlock(s->other, "b"));
}

TEST_ON(close_completes_a_call_for_several_names, struct scene *s)
{
    assert_status(DIBS_OK, dibs_lock(s->other, "b"));
    assert_status(DIBS_OK, begin(s, FOREVER, NULL));
    await_waiters(s->other, "b", 1);
    dibs_close(s->rt);
    expect_end(s, DIBS_CLOSED);
    await_free(s, "a");
    assert_status(DIBS_CLOSED, begin(s, FOREVER, NULL));
    assert_status(DIBS_OK, dibs_unlock(s->other, "b"));
}

static int digit(const dibs_completion *done)
{
    return done->name[0] - 'a';
}

/*
 * Each name has its loss told, and one that was released has none. The leases become short only when the test has seen
 * what it holds: whether dibs_extend still finds them does not matter.
 */
TEST_ON(the_loss_of_each_of_several_names_is_told, struct scene *s)
{
    const dibs_lock_options fixed = {.flags = DIBS_FIXED_LEASE};
    uint64_t fences[NAMES];
    unsigned seen = 0;

    assert_status(DIBS_OK, begin(s, 0, &fixed));
    expect_end(s, DIBS_OK);
    assert_status(DIBS_OK, dibs_task_enter(s->task));
    for (size_t i = 0; i < NAMES; i++)
        fences[names[i][0] - 'a'] = fence_of(s->rt, names[i]);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "b"));
    (void)dibs_extend(s->rt, "a", 20);
    (void)dibs_extend(s->rt, "c", 20);
    assert_status(DIBS_OK, dibs_task_leave(s->task));
    for (int i = 0; i < NAMES - 1; i++) {
        const dibs_completion done = take(s);
        assert_int_equal(done.kind, DIBS_DONE_LOST);
        assert_int_equal(done.status, DIBS_LOST);
        assert_int_equal(done.fence, fences[digit(&done)]);
        seen |= 1u << digit(&done);
    }
    assert_int_equal(seen, 5);
    expect_no_more(s);
    assert_status(DIBS_OK, dibs_task_enter(s->task));
    assert_status(DIBS_LOST, dibs_unlock_all(s->rt));
    assert_status(DIBS_OK, dibs_task_leave(s->task));
}

/*
 * Fair calls that one thread begins have their places in that order, whether they are for one name or for several: also
 * those whose first name is free, and those that give a free name back before they wait.
 */
TEST_ON(fair_calls_are_granted_in_the_order_of_their_begins, struct scene *s)
{
    static const char *const calls[][2] = {{"b", "c"}, {"b", NULL}, {"b", "c"}, {"a", "b"}, {"b", NULL}, {"b", "d"}};
    enum { CALLS = sizeof calls / sizeof *calls };
    const dibs_lock_options fair = {.flags = DIBS_FAIR};
    dibs_task *tasks[CALLS];
    dibs_completion done;

    assert_status(DIBS_OK, dibs_lock(s->other, "b"));
    for (int i = 0; i < CALLS; i++) {
        assert_status(DIBS_OK, dibs_task_new(s->rt, &tasks[i]));
        assert_status(DIBS_OK,
                      dibs_lock_names_begin(tasks[i], calls[i], calls[i][1] ? 2 : 1, FOREVER, &fair, s->queue, NULL));
    }
    await_waiters(s->other, "b", CALLS);
    assert_status(DIBS_OK, dibs_unlock(s->other, "b"));
    for (int i = 0; i < CALLS; i++) {
        assert_int_equal(dibs_queue_take(s->queue, &done, 1, LIMIT_MS), 1);
        assert_status(DIBS_OK, done.status);
        for (int j = 0; j < CALLS; j++)
            assert_that(i == j || done.task != tasks[j], "call %d came in the place of %d", j, i);
        dibs_task_free(tasks[i]);
    }
}

TESTS(setup, teardown)
