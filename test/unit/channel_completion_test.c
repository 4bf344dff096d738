/*
 * Completions, which report that a submitted command is finished, run only where the scheduler attends: so a thread
 * that sends, waits or looks may hold pointers to what they change.
 */
#include "unit/channel_setup.h"

/* What the completions of a test have seen. */
struct seen {
    struct rig *r;
    uint64_t serial;
    atomic_uint done, failed;
    unsigned depth, deepest; /* completions that run now, one within the other; the most so far */
    unsigned more;           /* so many of them submit another command */
};

static void on_done(void *arg, const redisReply *reply, const struct dibs__error *error)
{
    struct seen *seen = arg;

    seen->depth++;
    seen->deepest = seen->depth > seen->deepest ? seen->depth : seen->deepest;
    seen->failed += !reply && error->status != DIBS_OK;
    if (seen->more > 0) {
        seen->more--;
        submit_echo(seen->r, seen->serial, "more", on_done, seen);
    }
    seen->depth--;
    seen->done++;
}

static void submit(struct seen *seen)
{
    assert_true(submit_echo(seen->r, seen->serial, "one", on_done, seen));
}

static struct seen begin_to_see(struct rig *r)
{
    return (struct seen){.r = r, .serial = open_now(r)};
}

/* Nothing has been completed so far, and the scheduler must not sleep before it is. */
static void expect_left_to_scheduler(struct rig *r, const struct seen *seen, unsigned count)
{
    assert_int_equal(seen->done, 0);
    assert_true(deadline_of(r, false) <= moved_clock_now(&r->clock));
    dibs__channel_attend(r->channel, false, 0, moved_clock_now(&r->clock));
    assert_int_equal(seen->done, count);
}

TEST_ON(a_thread_that_reads_for_others_completes_nothing, struct rig *r)
{
    struct seen seen = begin_to_see(r);
    unsigned calls = r->unattended;

    submit(&seen);
    assert_true(echoes(r, seen.serial, "its own"));
    assert_true(r->unattended > calls);
    expect_left_to_scheduler(r, &seen, 1);
    assert_int_equal(seen.failed, 0);
}

TEST_ON(a_look_that_finds_the_end_completes_nothing, struct rig *r)
{
    struct seen seen = begin_to_see(r);
    unsigned calls = r->unattended;

    fake_redis_hold(r->fake, true);
    submit(&seen);
    fake_redis_await(r->fake, "ECHO one", 1);
    fake_redis_cut(r->fake);
    REPEAT_UNTIL(!dibs__channel_look(r->channel), (void)0);
    assert_true(r->unattended > calls);
    expect_left_to_scheduler(r, &seen, 1);
    assert_int_equal(seen.failed, 1);
}

/* The socket is closed: the second command finds that out, and the first one fails. */
TEST_ON(a_command_that_finds_the_end_completes_nothing, struct rig *r)
{
    struct seen seen = begin_to_see(r);
    int64_t limit = now_ms() + LIMIT_MS;
    unsigned sent = 1;

    fake_redis_hold(r->fake, true);
    submit(&seen);
    fake_redis_await(r->fake, "ECHO one", 1);
    fake_redis_cut(r->fake);
    for (; stands(r); sent++) {
        submit(&seen);
        assert_true(now_ms() < limit);
    }
    expect_left_to_scheduler(r, &seen, sent);
    assert_int_equal(seen.failed, sent);
}

/* Many replies come at once, and each completion sends something: none of them runs on the stack of another. */
TEST_ON(completions_do_not_nest, struct rig *r)
{
    enum { MANY = 100 };
    struct seen seen = begin_to_see(r);

    seen.more = MANY;
    fake_redis_hold(r->fake, true);
    for (unsigned i = 0; i < MANY; i++)
        submit(&seen);
    fake_redis_await(r->fake, "ECHO one", MANY);
    fake_redis_hold(r->fake, false);
    attend_until(r, false, &seen.done, 2 * MANY);
    assert_int_equal(seen.deepest, 1);
    assert_int_equal(seen.failed, 0);
}

/* A reply that was read before the end of the channel, and not completed, might lead to a use of freed memory. */
TEST_ON(commands_in_flight_at_the_end_fail, struct rig *r)
{
    struct seen seen = begin_to_see(r);

    submit(&seen);
    assert_true(echoes(r, seen.serial, "its own"));
    dibs__channel_free(r->channel);
    r->channel = NULL;
    assert_int_equal(seen.done, 1);
    assert_int_equal(seen.failed, 1);
}

static const struct dibs__command caching_no = {.words = (const char *[]){"CLIENT", "CACHING", "NO", NULL}};

/* Any other command is sent before both or after both. */
TEST_ON(an_untracked_command_goes_right_behind_caching_no, struct rig *r)
{
    struct seen seen = begin_to_see(r);
    struct echo echo;

    submit(&seen);
    echo_of(&echo, "untracked");
    echo.command.before = &caching_no;
    echo.command.before_count = 1;
    assert_true(dibs__channel_submit(r->channel, seen.serial, &echo.command, on_done, &seen));
    submit(&seen);
    attend_until(r, false, &seen.done, 3);
    assert_int_equal(seen.failed, 0);
    assert_int_equal(fake_redis_count(r->fake, "CLIENT CACHING NO"), 1);
    assert_int_equal(fake_redis_place(r->fake, "ECHO untracked", 1),
                     fake_redis_place(r->fake, "CLIENT CACHING NO", 1) + 1);
}

TESTS(setup, teardown)
