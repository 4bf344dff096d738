/* How a channel connects: by callers, by the scheduler, later after each failure, or at once. */
#include "unit/channel_setup.h"

/* ----------------------------------------------------- wanted, and looked at */

/*
 * A channel that is wanted is connected once, in the background. After a failure, the next try waits as long as for a
 * channel that is kept open.
 */
TEST_ON(the_scheduler_connects_a_wanted_channel, struct rig *r)
{
    assert_true(deadline_of(r, false) == DIBS__NEVER);
    fake_redis_refuse(r->fake, true);
    dibs__channel_want(r->channel);
    dibs__channel_want(r->channel);
    assert_int_equal(r->unattended, 1);
    attend_until(r, false, &r->failed, 1);
    assert_false(dibs__channel_is_connected(r->channel));
    assert_true(deadline_of(r, false) == DIBS__NEVER); /* the channel has to be wanted again */
    dibs__channel_want(r->channel);
    int64_t deadline = deadline_of(r, false);
    assert_true(deadline > moved_clock_now(&r->clock) && deadline <= after(r, 10));
    moved_clock_advance(&r->clock, MS(10));
    fake_redis_refuse(r->fake, false);
    attend_until(r, false, &r->opened, 1);
    assert_true(dibs__channel_is_connected(r->channel));
    unsigned unattended = r->unattended;
    dibs__channel_want(r->channel); /* there is nothing to do */
    assert_int_equal(r->unattended, unattended);
    fake_redis_cut(r->fake);
    attend_until_broken(r);
    assert_false(dibs__channel_is_connected(r->channel));
    assert_true(deadline_of(r, false) == DIBS__NEVER);
}

/*
 * The thread that began the try may never come back: a thread that needs the channel leaves the try to the scheduler.
 */
TEST_ON(the_scheduler_finishes_a_begun_connection_that_is_needed, struct rig *r)
{
    struct dibs__error error;

    assert_int_equal(dibs__channel_open_begin(r->channel, &error), DIBS_OK);
    unsigned unattended = r->unattended, tries = dibs__channel_need(r->channel);
    assert_true(r->unattended > unattended);
    assert_int_equal(tries, 0);
    assert_false(dibs__channel_opening(r->channel, tries, NULL) == DIBS__OPENING_FAILED);
    attend_until(r, false, &r->opened, 1);
    assert_true(dibs__channel_is_connected(r->channel));
    assert_false(dibs__channel_opening(r->channel, tries, NULL) == DIBS__OPENING_FAILED);
}

/* For a waiting call the pause is that after a first failure, even after several failures. */
TEST_ON(a_needed_channel_is_tried_again_soon, struct rig *r)
{
    fake_redis_refuse(r->fake, true);
    for (unsigned i = 1; i <= 6; i++) {
        unsigned tries = dibs__channel_need(r->channel);
        assert_true(deadline_of(r, false) <= after(r, 10));
        moved_clock_advance(&r->clock, MS(10));
        attend_until(r, false, &r->failed, i);
        assert_true(dibs__channel_opening(r->channel, tries, NULL) == DIBS__OPENING_FAILED);
    }
    dibs__channel_want(r->channel);
    assert_true(deadline_of(r, false) > after(r, 100));
}

static void fail_to_open(struct rig *r)
{
    struct dibs__link_view view;
    struct dibs__error error;

    assert_true(dibs__channel_open(r->channel, after(r, CONNECT_MS), &view, &error) != DIBS_OK);
}

/* A server that refuses a connection is there; one that says nothing may not be. */
TEST_ON(a_failure_tells_whether_the_server_answered, struct rig *r)
{
    fake_redis_answer(r->fake, "CLIENT", "-ERR max number of clients reached\r\n");
    fail_to_open(r);
    assert_int_equal(r->failed, 1);
    assert_int_equal(r->silent, 0);
    fake_redis_refuse(r->fake, true);
    fail_to_open(r);
    assert_int_equal(r->failed, 2);
    assert_int_equal(r->silent, 1);
}

/* How long the scheduler must wait before the next try. */
static int64_t pause_before_next(struct rig *r)
{
    int64_t deadline = DIBS__NEVER;
    struct pollfd fd = dibs__channel_interest(r->channel, true, &deadline);
    assert_int_equal(fd.fd, -1);
    assert_true(deadline != DIBS__NEVER);
    return deadline - moved_clock_now(&r->clock);
}

TEST_ON(a_channel_kept_open_connects_again_later_each_time, struct rig *r)
{
    int64_t longest = 10;

    fake_redis_refuse(r->fake, true);
    for (unsigned i = 1; i <= 9; i++) {
        attend_until(r, true, &r->failed, i);
        int64_t pause = pause_before_next(r);
        assert_that(pause >= MS(longest / 2) && pause <= MS(longest), "%lld ns, try %u", (long long)pause, i);
        unsigned accepted = fake_redis_accepted(r->fake);
        moved_clock_advance(&r->clock, pause - 1);
        dibs__channel_attend(r->channel, true, 0, moved_clock_now(&r->clock));
        assert_int_equal(pause_before_next(r), 1);
        assert_int_equal(fake_redis_accepted(r->fake), accepted);
        moved_clock_advance(&r->clock, 1);
        longest = longest * 2 < 500 ? longest * 2 : 500;
    }
    fake_redis_refuse(r->fake, false);
    attend_until(r, true, &r->opened, 1);
    assert_true(stands(r));
    assert_int_equal(r->reopened, 0);
    /* A server that ends each connection at once is not connected to again at once. */
    fake_redis_cut(r->fake);
    attend_until_broken(r);
    assert_int_equal(pause_before_next(r), MS(10));
    moved_clock_advance(&r->clock, MS(10));
    attend_until(r, true, &r->reopened, 1);
    assert_true(stands(r));
    moved_clock_advance(&r->clock, MS(10));
    fake_redis_cut(r->fake);
    attend_until(r, true, &r->reopened, 2);
    assert_true(stands(r));
}

/* Another connection is open, so the server answers: the try that was put off is made now. */
TEST_ON(a_channel_in_a_hurry_connects_at_once, struct rig *r)
{
    fake_redis_refuse(r->fake, true);
    for (unsigned i = 1; i <= 6; i++) {
        attend_until(r, true, &r->failed, i);
        moved_clock_advance(&r->clock, MS(500));
    }
    attend_until(r, true, &r->failed, 7);
    assert_true(pause_before_next(r) > MS(100));
    fake_redis_refuse(r->fake, false);
    dibs__channel_hurry(r->channel);
    assert_true(pause_before_next(r) <= 0);
    attend_until(r, true, &r->opened, 1);
    assert_true(stands(r));
}

/* The system's clock, but a thread that sleeps in poll comes back only while the gate is open. */
struct gate {
    struct dibs__clock clock;
    atomic_bool closed;
    atomic_uint held, waiting;
};

static int64_t gated_now(const struct dibs__clock *clock)
{
    return dibs__now(&dibs__system_clock);
}

static void gated_wait(const struct dibs__clock *clock, pthread_cond_t *cond, struct dibs__mutex *mutex,
                       int64_t deadline)
{
    atomic_fetch_add(&((struct gate *)(uintptr_t)clock)->waiting, 1);
    dibs__system_clock.wait(&dibs__system_clock, cond, mutex, deadline);
}

static int gated_poll(const struct dibs__clock *clock, struct pollfd *fds, nfds_t count, int64_t deadline)
{
    struct gate *gate = (struct gate *)(uintptr_t)clock;
    int ready = dibs__system_clock.poll(&dibs__system_clock, fds, count, deadline);

    if (atomic_load(&gate->closed))
        atomic_fetch_add(&gate->held, 1);
    while (atomic_load(&gate->closed))
        pause_ms(1);
    return ready;
}

/* A thread that opens the channel. */
struct opener {
    struct rig *r;
    int64_t deadline;
    pthread_t thread;
    dibs_status status;
    struct dibs__error error;
};

static void *run_opener(void *arg)
{
    struct opener *o = arg;
    struct dibs__link_view view;

    o->status = dibs__channel_open(o->r->channel, o->deadline, &view, &o->error);
    return NULL;
}

static void begin_opening(struct opener *o)
{
    assert_int_equal(pthread_create(&o->thread, NULL, run_opener, o), 0);
}

/*
 * The thread that reads the broken connection has not come back yet. A thread that needs a connection gets a new one as
 * soon as the reader has released the old one.
 */
TEST_ON(a_call_waits_while_a_broken_connection_is_in_use, struct rig *r)
{
    struct gate gate = {.clock = {gated_now, gated_wait, gated_poll}};
    const struct dibs__channel_hooks hooks = {r, on_opened, on_failed, on_unattended, NULL};
    int64_t deadline = dibs__after_ms(dibs__now(&dibs__system_clock), LIMIT_MS);
    struct dibs__link_view view;
    struct dibs__error error;
    struct echo echo;

    dibs__channel_free(r->channel);
    r->endpoint.clock = &gate.clock;
    r->endpoint.connect_timeout_ms = LIMIT_MS;
    r->endpoint.command_timeout_ms = LIMIT_MS;
    r->channel = dibs__channel_new(&r->endpoint, &hooks);
    assert_status(DIBS_OK, dibs__channel_open(r->channel, deadline, &view, &error));
    fake_redis_hold(r->fake, true);
    struct caller reader = {.r = r, .text = "held", .serial = view.serial, .deadline = deadline};
    struct opener opener = {.r = r, .deadline = deadline};
    begin(&reader);
    fake_redis_await(r->fake, "ECHO held", 1);
    atomic_store(&gate.closed, true);
    fake_redis_cut(r->fake);
    fake_redis_hold(r->fake, false);
    await_that(atomic_load(&gate.held) > 0);
    struct dibs__request *request =
        dibs__channel_send(r->channel, view.serial, echo_of(&echo, "broken"), deadline, &error);
    assert_false(stands(r));
    atomic_store(&gate.waiting, 0);
    begin_opening(&opener);
    await_that(atomic_load(&gate.waiting) > 0);
    atomic_store(&gate.closed, false);
    pthread_join(opener.thread, NULL);
    assert_status(DIBS_OK, opener.status);
    pthread_join(reader.thread, NULL);
    assert_status(DIBS_UNAVAILABLE, reader.status);
    if (request) {
        redisReply *reply;
        bool unknown;
        assert_status(DIBS_UNAVAILABLE, wait_for(r->channel, request, deadline, &reply, &unknown, &error));
    }
    dibs__channel_free(r->channel);
    r->channel = NULL;
}

/*
 * A thread that polls by itself has not left the broken connection yet when another one needs the next. Nobody but the
 * scheduler makes that, so it is told when the connection is left.
 */
TEST_ON(the_scheduler_replaces_a_broken_connection_once_it_is_left, struct rig *r)
{
    struct dibs__wait_event wait_event;
    struct dibs__wait wait;
    uint64_t serial = open_now(r);

    fake_redis_hold(r->fake, true);
    struct dibs__request *request = sent_echo(r, serial, "held");
    dibs__wait_event_init(&wait_event);
    dibs__wait_init(&wait, &wait_event);
    assert_true(dibs__channel_progress(r->channel, request, &wait) == DIBS__REPLY_AWAITED);
    assert_true(wait.fd.fd >= 0);
    moved_clock_advance(&r->clock, MS(COMMAND_MS));
    attend(r, false);
    assert_false(stands(r));
    dibs__channel_need(r->channel);
    int64_t deadline = DIBS__NEVER;
    struct pollfd fd =
        dibs__channel_interest(r->channel, false, &deadline); /* the scheduler, told of that, goes to sleep */
    assert_int_equal(fd.fd, -1);
    assert_true(deadline > moved_clock_now(&r->clock));
    unsigned unattended = r->unattended;
    dibs__wait_end(&wait);
    assert_true(r->unattended > unattended);
    fake_redis_hold(r->fake, false);
    moved_clock_advance(&r->clock, MS(10));
    attend_until(r, false, &r->opened, 2);
    assert_false(wait_echo(r, request, "held"));
}

TEST_ON(a_channel_not_kept_open_stays_closed, struct rig *r)
{
    int64_t deadline = DIBS__NEVER;
    struct pollfd fd = dibs__channel_interest(r->channel, false, &deadline);
    assert_int_equal(fd.fd, -1);
    assert_true(deadline == DIBS__NEVER);
    dibs__channel_attend(r->channel, false, 0, moved_clock_now(&r->clock));
    assert_false(stands(r));
    assert_int_equal(fake_redis_accepted(r->fake), 0);
}

/* ------------------------------------------------------------------- opening */

/* Two threads open the channel; the first makes the try, gets no answer, and leaves. */
static void begin_openers(struct rig *r, struct opener pair[2])
{
    fake_redis_hold(r->fake, true);
    pair[0] = (struct opener){.r = r, .deadline = after(r, 10)};
    pair[1] = (struct opener){.r = r, .deadline = after(r, 10 * CONNECT_MS)};
    begin_opening(&pair[0]);
    fake_redis_await(r->fake, "EVAL return 1", 1);
    moved_clock_settle(&r->clock, 1);
    begin_opening(&pair[1]);
    moved_clock_await_waiting(&r->clock, 1);
    moved_clock_advance(&r->clock, MS(10));
    pthread_join(pair[0].thread, NULL);
    assert_int_equal(pair[0].status, DIBS_UNAVAILABLE);
    assert_int_equal(r->unattended, 1);
    assert_int_equal(r->opened + r->failed, 0);
}

TEST_ON(an_opener_in_a_hurry_leaves_the_try_to_the_scheduler, struct rig *r)
{
    struct opener pair[2];

    begin_openers(r, pair);
    fake_redis_hold(r->fake, false);
    attend_until(r, false, &r->opened, 1);
    pthread_join(pair[1].thread, NULL);
    assert_status(DIBS_OK, pair[1].status);
    assert_int_equal(fake_redis_accepted(r->fake), 1);
    assert_true(echoes(r, 1, "word"));
}

TEST_ON(the_scheduler_gives_the_try_up_after_the_connect_timeout, struct rig *r)
{
    struct opener pair[2];

    begin_openers(r, pair);
    moved_clock_advance(&r->clock, MS(CONNECT_MS - 11));
    for (int i = 0; i < 3; i++)
        attend(r, false);
    assert_int_equal(r->failed, 0);
    moved_clock_advance(&r->clock, MS(1));
    attend_until(r, false, &r->failed, 1);
    pthread_join(pair[1].thread, NULL);
    assert_int_equal(pair[1].status, DIBS_UNAVAILABLE);
    assert_true(pair[1].error.detail[0]);
    assert_int_equal(r->opened, 0);
}

TEST_ON(a_try_that_fails_is_told_to_all_who_wait_for_it, struct rig *r)
{
    struct dibs__link_view view;
    struct dibs__error error = {DIBS_OK, ""};

    fake_redis_refuse(r->fake, true);
    assert_int_equal(dibs__channel_open(r->channel, after(r, CONNECT_MS), &view, &error), DIBS_UNAVAILABLE);
    assert_int_equal(error.status, DIBS_UNAVAILABLE);
    assert_int_equal(r->failed, 1);
    fake_redis_refuse(r->fake, false);
    assert_true(echoes(r, open_now(r), "word"));
    assert_int_equal(r->reopened, 0);
}

TESTS(setup, teardown)
