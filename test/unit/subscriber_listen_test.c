/* Threads that wait for messages: one reads for all, and passes the reading on. */
#include "redis/channel_parts.h"
#include "redis/subscriber_parts.h"
#include "unit/subscriber_setup.h"

enum { CROWD = 6, ROUNDS = 150, IDLE_MS = 50, UNHEARD_MS = 2 };

/* A thread that listens until it is told. The mutex guards what it is told, as a shard's does. */
struct listener {
    struct rig *r;
    struct dibs__wait_event wait_event;
    int64_t until;
    unsigned rounds, told; /* told: guarded by the mutex */
    atomic_bool done;
    pthread_t thread;
};

static struct listener listeners[CROWD];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void tell(unsigned number)
{
    pthread_mutex_lock(&mutex);
    listeners[number].told++;
    if (!listeners[number].done)
        dibs__wait_event_wake(&listeners[number].wait_event);
    pthread_mutex_unlock(&mutex);
}

/* A message is the number of the listener that it is for. */
static void on_number(struct rig *r, const char *bytes, size_t size)
{
    assert_int_equal(size, 1);
    ask_back(r);
    tell((unsigned)(bytes[0] - '0'));
}

/* Returns with the mutex locked. */
static void listen_once(struct listener *l)
{
    pthread_mutex_lock(&mutex);
    for (;;) {
        dibs__wait_event_reset(&l->wait_event);
        if (l->told > 0 || moved_clock_now(&l->r->clock) >= l->until)
            return;
        pthread_mutex_unlock(&mutex);
        dibs__subscriber_listen(l->r->subscriber, &l->wait_event, l->until);
        pthread_mutex_lock(&mutex);
    }
}

static void *run_listener(void *arg)
{
    struct listener *l = arg;

    for (unsigned i = 1; i <= l->rounds; i++) {
        listen_once(l);
        if (i < l->rounds)
            l->told = 0;
        l->done = i == l->rounds;
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

/* Who has the reading role, or takes it next. */
enum reader {
    SCHEDULER, /* as soon as it is called */
    POLL,      /* the scheduler, once its poll(2) has returned */
    THREAD,    /* one that listens */
    NOBODY,    /* for a while */
};

static enum reader reader_of(struct rig *r)
{
    struct dibs__channel *channel = r->subscriber->channel;
    int64_t now = moved_clock_now(&r->clock), deadline = DIBS__NEVER;

    dibs__subscriber_interest(r->subscriber, &deadline);
    channel_mutex_lock(&channel->mutex);
    bool reading = channel->reading, polled = channel->polled, quiet = channel->link && now < channel->quiet_until;
    channel_mutex_unlock(&channel->mutex);
    return reading ? THREAD : polled ? POLL : quiet ? NOBODY : SCHEDULER;
}

/* The threads that listen without reading. */
static unsigned listed(struct rig *r)
{
    struct dibs__channel *channel = r->subscriber->channel;
    unsigned count = 0;

    channel_mutex_lock(&channel->mutex);
    for (struct dibs__listening *at = channel->listeners; at; at = at->links.next)
        count++;
    count -= channel->reading && count > 0;
    channel_mutex_unlock(&channel->mutex);
    return count;
}

#define AWAIT(condition) TEST_REPEAT(condition, #condition, pause_ms(1))

static void begin_rounds(struct rig *r, unsigned number, int64_t until, unsigned rounds)
{
    struct listener *l = &listeners[number];

    l->r = r;
    l->until = until;
    l->told = 0;
    l->rounds = rounds;
    l->done = false;
    dibs__wait_event_init(&l->wait_event);
    assert_int_equal(pthread_create(&l->thread, NULL, run_listener, l), 0);
}

/* When this returns, the first listener reads, and any other is on the list. */
static void listen_in_thread(struct rig *r, unsigned number, int64_t until)
{
    unsigned before = listed(r);
    bool first = reader_of(r) == POLL || reader_of(r) == NOBODY;

    begin_rounds(r, number, until, 1);
    AWAIT(first ? reader_of(r) == THREAD : listed(r) == before + 1);
}

static void join(unsigned number)
{
    pthread_join(listeners[number].thread, NULL);
}

static void expect_told(unsigned number)
{
    join(number);
    assert_int_equal(listeners[number].told, 1);
}

static void send_to(struct rig *r, unsigned number)
{
    char text[] = MESSAGE(1, "?");

    strchr(text, '?')[0] = (char)('0' + number);
    fake_redis_publish(r->fake, text);
}

static void tell_by_server(struct rig *r, unsigned number)
{
    send_to(r, number);
    expect_told(number);
}

static int setup_listeners(void **state)
{
    int status = setup(state);
    struct rig *r = *state;

    r->on_text = on_number;
    subscribed(r);
    attend_all(r);
    return status;
}

/* ---------------------------------------------------------------- the reading role */

TEST_ON(a_listening_thread_reads_without_the_scheduler, struct rig *r)
{
    unsigned woken = r->woken;

    assert_int_equal(reader_of(r), POLL);
    listen_in_thread(r, 0, DIBS__NEVER);
    AWAIT(r->woken == woken + 1); /* so that the scheduler polls for the link no more */
    assert_false(is_connected(r));
    tell_by_server(r, 0);
    assert_int_equal(r->woken, woken + 1);
}

TEST_ON(a_message_for_another_wakes_that_one_alone, struct rig *r)
{
    for (unsigned i = 0; i < 3; i++)
        listen_in_thread(r, i, DIBS__NEVER);
    tell_by_server(r, 2);
    AWAIT(listed(r) == 1);
    assert_false(listeners[0].done);
    assert_false(listeners[1].done);
    send_to(r, 1);
    send_to(r, 0);
    expect_told(1);
    expect_told(0);
}

TEST_ON(the_reading_role_goes_to_the_longest_waiter, struct rig *r)
{
    for (unsigned i = 0; i < CROWD; i++)
        listen_in_thread(r, i, DIBS__NEVER);
    for (unsigned i = 0; i < CROWD; i++) {
        AWAIT(reader_of(r) == THREAD);
        tell_by_server(r, i);
        AWAIT(listed(r) == (i + 1 < CROWD ? CROWD - i - 2 : 0));
    }
    assert_int_equal(reader_of(r), NOBODY);
}

TEST_ON(a_reader_whose_time_is_over_passes_the_role_on, struct rig *r)
{
    listen_in_thread(r, 0, after(r, 100));
    listen_in_thread(r, 1, DIBS__NEVER);
    moved_clock_advance(&r->clock, MS(100));
    join(0);
    assert_int_equal(listeners[0].told, 0);
    tell_by_server(r, 1);
}

TEST_ON(a_listed_thread_leaves_at_its_deadline, struct rig *r)
{
    for (unsigned i = 0; i < 3; i++)
        listen_in_thread(r, i, i == 1 ? after(r, 100) : DIBS__NEVER);
    moved_clock_advance(&r->clock, MS(100));
    join(1);
    AWAIT(listed(r) == 1);
    tell_by_server(r, 0);
    tell_by_server(r, 2);
}

/* In this way a thread learns that the runtime closes. */
TEST_ON(a_listener_woken_by_another_thread_returns, struct rig *r)
{
    listen_in_thread(r, 0, DIBS__NEVER);
    listen_in_thread(r, 1, DIBS__NEVER);
    tell(1);
    expect_told(1);
    tell(0);
    expect_told(0);
    assert_int_equal(reader_of(r), NOBODY);
}

static void expect_idle_for(struct rig *r, int64_t ms)
{
    assert_int_equal(reader_of(r), NOBODY);
    assert_true(deadline_of(r) == after(r, ms));
    moved_clock_advance(&r->clock, MS(ms) - 1);
    attend(r);
    assert_int_equal(reader_of(r), NOBODY);
    moved_clock_advance(&r->clock, 1);
    attend(r);
    assert_int_equal(reader_of(r), POLL);
}

TEST_ON(the_scheduler_reads_after_nobody_has_for_a_while, struct rig *r)
{
    listen_in_thread(r, 0, DIBS__NEVER);
    tell_by_server(r, 0);
    assert_true(r->woken_by == after(r, IDLE_MS));
    assert_true(deadline_of(r) == after(r, IDLE_MS));
    assert_false(is_connected(r));
    unsigned woken = r->woken;
    listen_in_thread(r, 1, DIBS__NEVER); /* wakes no scheduler */
    assert_int_equal(r->woken, woken);
    tell_by_server(r, 1);
    expect_idle_for(r, IDLE_MS);
    assert_true(is_connected(r));
}

/* A begun acquire waits without a thread: its message must not lie unread until the next thread listens. */
TEST_ON(a_message_for_a_thread_that_does_not_listen_arrives_soon, struct rig *r)
{
    listen_in_thread(r, 0, DIBS__NEVER);
    tell_by_server(r, 0);
    dibs__subscriber_unheard(r->subscriber);
    assert_true(r->woken_by == after(r, UNHEARD_MS));
    expect_idle_for(r, UNHEARD_MS);
    listen_in_thread(r, 1, DIBS__NEVER);
    dibs__subscriber_unheard(r->subscriber);
    tell_by_server(r, 1);
    assert_true(r->woken_by == after(r, UNHEARD_MS));
    expect_idle_for(r, UNHEARD_MS);
}

/* A thread whose time is over has not read, and holds nobody up. */
TEST_ON(a_thread_that_comes_too_late_to_listen_changes_nothing, struct rig *r)
{
    struct dibs__wait_event wait_event;

    r->on_text = NULL;
    dibs__wait_event_init(&wait_event);
    dibs__subscriber_unheard(r->subscriber);
    fake_redis_push(r->fake, MESSAGE(2, "hi"));
    for (int64_t limit = now_ms() + LIMIT_MS; r->message_count == 0 && now_ms() < limit; pause_ms(1)) {
        dibs__subscriber_listen(r->subscriber, &wait_event, moved_clock_now(&r->clock));
        attend(r);
    }
    assert_int_equal(r->message_count, 1);
}

/* ------------------------------------------------------------------- the end of it */

/* Moves the clock to when the scheduler has something to do, if that is not further away. */
static void pass_time(struct rig *r, int64_t most_ms)
{
    int64_t deadline = deadline_of(r);

    if (deadline > moved_clock_now(&r->clock) && deadline <= after(r, most_ms))
        moved_clock_set(&r->clock, deadline);
}

/* Goes on as the scheduler, through all pauses, until there is a later subscription. */
static void await_another(struct rig *r, uint64_t old)
{
    for (int64_t limit = now_ms() + LIMIT_MS; serial_of(r) == 0 || serial_of(r) == old;) {
        assert_true(now_ms() < limit);
        attend(r);
        pass_time(r, UNCONFIRMED_LAST_MS);
    }
    attend_all(r);
}

TEST_ON(a_subscription_may_be_lost_while_a_thread_reads, struct rig *r)
{
    uint64_t serial = serial_of(r);

    listen_in_thread(r, 0, DIBS__NEVER);
    listen_in_thread(r, 1, DIBS__NEVER);
    fake_redis_cut(r->fake);
    await_another(r, serial);
    assert_int_equal(r->subscribed, 2);
    AWAIT(reader_of(r) == THREAD && listed(r) == 1);
    send_to(r, 0);
    send_to(r, 1);
    expect_told(0);
    expect_told(1);
}

TEST_ON(a_subscription_may_be_distrusted_while_a_thread_reads, struct rig *r)
{
    uint64_t serial = serial_of(r);

    listen_in_thread(r, 0, DIBS__NEVER);
    dibs__subscriber_distrust(r->subscriber, serial);
    await_another(r, serial);
    tell_by_server(r, 0);
}

TEST_ON(garbage_read_by_a_listener_ends_the_subscription, struct rig *r)
{
    uint64_t serial = serial_of(r);

    listen_in_thread(r, 0, DIBS__NEVER);
    fake_redis_push(r->fake, "?\r\n");
    await_another(r, serial);
    tell_by_server(r, 0);
}

TEST_ON(a_listeners_reading_answers_a_ping, struct rig *r)
{
    uint64_t serial = serial_of(r);

    listen_in_thread(r, 0, DIBS__NEVER);
    moved_clock_advance(&r->clock, MS(SILENCE_MS));
    attend(r);
    fake_redis_await(r->fake, "PING", 1);
    AWAIT(deadline_of(r) == after(r, SILENCE_MS));
    moved_clock_advance(&r->clock, MS(COMMAND_MS));
    attend(r);
    assert_int_equal(serial_of(r), serial);
    AWAIT(reader_of(r) == THREAD);
    tell_by_server(r, 0);
}

TEST_ON(an_unanswered_ping_ends_the_subscription_of_a_listener, struct rig *r)
{
    uint64_t serial = serial_of(r);

    listen_in_thread(r, 0, DIBS__NEVER);
    fake_redis_answer(r->fake, "PING", "");
    moved_clock_advance(&r->clock, MS(SILENCE_MS));
    attend(r);
    fake_redis_await(r->fake, "PING", 1);
    moved_clock_advance(&r->clock, MS(COMMAND_MS));
    fake_redis_answer(r->fake, "PING", PONG);
    await_another(r, serial);
    tell_by_server(r, 0);
}

/* A thread that listens before there is a subscription reads the next one. */
TEST_ON(a_thread_may_listen_before_there_is_a_subscription, struct rig *r)
{
    fake_redis_cut(r->fake);
    ATTEND_UNTIL(r, serial_of(r) == 0);
    listen_in_thread(r, 0, DIBS__NEVER);
    assert_int_equal(reader_of(r), SCHEDULER);
    pass_pause(r);
    subscribed(r);
    attend_all(r);
    AWAIT(reader_of(r) == THREAD);
    tell_by_server(r, 0);
}

/* --------------------------------------------------------------------------- stress */

static bool all_are_done(void)
{
    bool done = true;

    for (unsigned i = 0; i < CROWD; i++)
        done = done && listeners[i].done;
    return done;
}

/* Each listener is told repeatedly, while the connection breaks, is distrusted, and is silent. */
TEST_ON(a_crowd_of_listeners_survives_every_fault, struct rig *r)
{
    for (unsigned i = 0; i < CROWD; i++)
        begin_rounds(r, i, DIBS__NEVER, ROUNDS);
    for (unsigned i = 0; !all_are_done(); i++) {
        send_to(r, i % CROWD);
        attend(r);
        if (i % 97 == 96)
            fake_redis_cut(r->fake);
        if (i % 89 == 88)
            dibs__subscriber_distrust(r->subscriber, serial_of(r));
        pass_time(r, SILENCE_MS);
        serial_of(r);
    }
    for (unsigned i = 0; i < CROWD; i++)
        join(i);
    AWAIT(listed(r) == 0);
}

TESTS(setup_listeners, teardown)
