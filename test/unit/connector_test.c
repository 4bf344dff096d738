/* A connector: a try ends when its time is over, and each failure makes the pause before the next try longer. */
#include "redis/connector.h"

#include "unit/link_setup.h"

#define LONG_MS 60000 /* the time of a try that must not be given up */

/* A connector for the rig's endpoint whose tries have so much time. */
static struct dibs__connector connector_for(struct rig *r, uint32_t timeout_ms)
{
    struct dibs__connector connector;

    r->endpoint.connect_timeout_ms = timeout_ms;
    dibs__connector_init(&connector, &r->endpoint, DIBS__LINK_COMMANDS);
    return connector;
}

static int64_t now(void)
{
    return dibs__now(&dibs__system_clock);
}

static void begin(struct rig *r, struct dibs__connector *connector)
{
    assert_status(DIBS_OK, dibs__connector_begin(connector, now(), &r->error));
    assert_false(dibs__connector_is_ready(connector));
    assert_null(dibs__connector_take(connector));
}

/* Takes the link, checks it, and frees it. */
static void expect_link(struct dibs__connector *connector)
{
    assert_true(dibs__connector_is_ready(connector));
    struct dibs__link *link = dibs__connector_take(connector);
    assert_true(link && link->state == DIBS__LINK_READY);
    assert_false(dibs__connector_is_ready(connector));
    assert_null(dibs__connector_take(connector));
    dibs__link_free(link);
}

/* Steps, as poll(2) allows, until the try has ended or the link is ready. */
static dibs_status step_to_the_end(struct rig *r, struct dibs__connector *connector)
{
    dibs_status status = DIBS_OK;

    while (status == DIBS_OK && !dibs__connector_is_ready(connector)) {
        struct pollfd fd;
        int64_t deadline;
        deadline = DIBS__NEVER;
        fd = dibs__connector_interest(connector, true, &deadline);
        assert_true(fd.fd >= 0 && deadline <= connector->until);
        assert_int_equal(poll(&fd, 1, LIMIT_MS), 1);
        status = dibs__connector_step(connector, now(), &r->error);
    }
    return status;
}

/* ------------------------------------------------------------------- one try */

TEST_ON(a_stepped_try_makes_a_link, struct rig *r)
{
    struct dibs__connector connector = connector_for(r, LONG_MS);

    for (int i = 0; i < 2; i++) {
        begin(r, &connector);
        assert_status(DIBS_OK, step_to_the_end(r, &connector));
        expect_link(&connector);
    }
    assert_int_equal(fake_redis_accepted(r->fake), 2);
    dibs__connector_free(&connector);
}

/* A caller past its deadline leaves the try as it is; another goes on with it. */
TEST_ON(a_callers_deadline_does_not_end_a_try, struct rig *r)
{
    struct dibs__connector connector = connector_for(r, LONG_MS);

    fake_redis_hold(r->fake, true);
    begin(r, &connector);
    assert_int_equal(dibs__connector_finish(&connector, 0, &r->error), DIBS_TIMEOUT);
    assert_non_null(connector.link);
    fake_redis_hold(r->fake, false);
    assert_status(DIBS_OK, dibs__connector_finish(&connector, DIBS__NEVER, &r->error));
    expect_link(&connector);
    assert_int_equal(fake_redis_accepted(r->fake), 1);
    dibs__connector_free(&connector);
}

static void expect_given_up(struct rig *r, const struct dibs__connector *connector)
{
    assert_int_equal(r->error.status, DIBS_UNAVAILABLE);
    assert_true(r->error.detail[0]);
    assert_null(connector->link);
}

/* The time ends by the clock, whatever poll(2) waits for. */
TEST_ON(a_stepped_try_is_given_up_in_time, struct rig *r)
{
    struct dibs__connector connector = connector_for(r, LONG_MS);

    fake_redis_hold(r->fake, true);
    begin(r, &connector);
    assert_status(DIBS_OK, dibs__connector_step(&connector, connector.until - 1, &r->error));
    assert_non_null(connector.link);
    assert_int_equal(dibs__connector_step(&connector, connector.until, &r->error), DIBS_UNAVAILABLE);
    expect_given_up(r, &connector);
    fake_redis_hold(r->fake, false);
    begin(r, &connector);
    assert_status(DIBS_OK, step_to_the_end(r, &connector));
    expect_link(&connector);
    dibs__connector_free(&connector);
}

TEST_ON(an_awaited_try_is_given_up_in_time, struct rig *r)
{
    struct dibs__connector connector = connector_for(r, 50);

    fake_redis_hold(r->fake, true);
    begin(r, &connector);
    assert_int_equal(dibs__connector_finish(&connector, DIBS__NEVER, &r->error), DIBS_UNAVAILABLE);
    assert_true(now() >= connector.until);
    expect_given_up(r, &connector);
    dibs__connector_free(&connector);
}

/* A ready link is not given up even if its time has passed, as may happen on a slow machine. */
TEST_ON(a_ready_link_is_not_given_up, struct rig *r)
{
    struct dibs__connector connector = connector_for(r, LONG_MS);

    begin(r, &connector);
    assert_status(DIBS_OK, step_to_the_end(r, &connector));
    assert_status(DIBS_OK, dibs__connector_step(&connector, connector.until, &r->error));
    expect_link(&connector);
    dibs__connector_free(&connector);
}

TEST_ON(a_refused_try_has_ended, struct rig *r)
{
    struct dibs__connector connector = connector_for(r, LONG_MS);

    fake_redis_refuse(r->fake, true);
    for (int i = 0; i < 2; i++) { /* stepped, then waited for */
        dibs_status status = dibs__connector_begin(&connector, now(), &r->error);
        if (status == DIBS_OK)
            status =
                i == 0 ? step_to_the_end(r, &connector) : dibs__connector_finish(&connector, DIBS__NEVER, &r->error);
        assert_int_equal(status, DIBS_UNAVAILABLE);
        expect_given_up(r, &connector);
    }
    use_url(r, "unix:///nowhere/redis.sock");
    assert_int_equal(dibs__connector_begin(&connector, now(), &r->error), DIBS_UNAVAILABLE);
    expect_given_up(r, &connector);
    dibs__connector_free(&connector);
}

TEST_ON(a_connector_is_freed_with_its_try, struct rig *r)
{
    struct dibs__connector connector = connector_for(r, LONG_MS);

    begin(r, &connector);
    dibs__connector_free(&connector);
    assert_null(connector.link);
}

/* ---------------------------------------------------------------- the next try */

#define FAILED_AT (1000 * DIBS__NS_PER_MS)
#define MADE_AT (2000 * DIBS__NS_PER_MS)

/* How long after `at` the next try is due, in ms. */
static int64_t pause_of(const struct dibs__connector *connector, int64_t at)
{
    return (connector->next_at - at) / DIBS__NS_PER_MS;
}

/* The scheduler makes a try at that time, which fails; the longest pause is that. */
static void fail_try(struct rig *r, struct dibs__connector *connector, int64_t last_ms)
{
    use_url(r, "unix:///nowhere/redis.sock");
    assert_true(dibs__connector_attend(connector, FAILED_AT, last_ms, &r->error));
    assert_int_equal(r->error.status, DIBS_UNAVAILABLE);
    assert_null(dibs__connector_take(connector));
}

static void make_link(struct rig *r, struct dibs__connector *connector)
{
    use_url(r, fake_redis_url(r->fake));
    while (!dibs__connector_attend(connector, MADE_AT, DIBS__RECONNECT_LAST_MS, &r->error)) {
        struct pollfd fd;
        int64_t deadline;
        deadline = DIBS__NEVER;
        fd = dibs__connector_interest(connector, true, &deadline);
        assert_int_equal(poll(&fd, 1, LIMIT_MS), 1);
    }
    expect_link(connector);
}

TEST_ON(each_failure_puts_the_next_try_off_for_longer, struct rig *r)
{
    struct dibs__connector connector = connector_for(r, LONG_MS);
    static const int64_t most[] = {10, 20, 40, 80, 160, 320, 500, 500};

    assert_int_equal(connector.next_at, 0);
    for (int round = 0; round < 2; round++) { /* a success resets them */
        for (size_t i = 0; i < sizeof most / sizeof most[0]; i++) {
            fail_try(r, &connector, DIBS__RECONNECT_LAST_MS);
            assert_in_range(pause_of(&connector, FAILED_AT), most[i] / 2, most[i]);
        }
        fail_try(r, &connector, 100);
        assert_in_range(pause_of(&connector, FAILED_AT), 50, 100);
        make_link(r, &connector);
        assert_int_equal(pause_of(&connector, MADE_AT), DIBS__RECONNECT_FIRST_MS);
    }
    dibs__connector_free(&connector);
}

/* Then the next try comes 10 ms after the last, however long the pause has grown. */
TEST_ON(a_call_that_needs_the_link_cuts_the_pause_short, struct rig *r)
{
    struct dibs__connector connector = connector_for(r, LONG_MS);
    int64_t soonest = dibs__after_ms(FAILED_AT, DIBS__RECONNECT_FIRST_MS);

    for (int i = 0; i < 6; i++)
        fail_try(r, &connector, DIBS__RECONNECT_LAST_MS);
    assert_false(dibs__connector_is_due(&connector, true, soonest));
    assert_false(dibs__connector_is_due(&connector, false, DIBS__NEVER - 1));
    connector.wanted = connector.needed = true;
    assert_false(dibs__connector_is_due(&connector, false, soonest - 1));
    assert_true(dibs__connector_is_due(&connector, false, soonest));
    dibs__connector_free(&connector);
}

TESTS(setup, teardown)
