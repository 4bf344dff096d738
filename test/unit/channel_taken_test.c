/* A thread that reads loses the processor before it takes replies off the socket, or before it hands them out. */
#include <sys/socket.h>

#include "redis/socket.h"
#include "unit/channel_setup.h"

static struct dibs__transport_ops holding;   /* of a plain socket, but for receive */
static atomic_bool holds, has_taken, may_go; /* whether to hold receive up, where it is, and when it goes on */
static atomic_bool has_begun;                /* a thread reads */

static struct dibs__transport *open_holding(struct dibs__endpoint *endpoint, struct dibs__error *error)
{
    struct dibs__transport *transport = dibs__socket_transport.open(endpoint, error);

    if (transport)
        transport->ops = &holding;
    return transport;
}

/* Both replies are in the socket, so one thread takes both. */
static bool has_both(struct dibs__transport *transport)
{
    char bytes[64];
    ssize_t there = recv(((const struct dibs__socket *)(const void *)transport)->fd, bytes, sizeof bytes - 1,
                         MSG_PEEK | MSG_DONTWAIT);

    bytes[there > 0 ? there : 0] = 0;
    return strstr(bytes, "first") && strstr(bytes, "second");
}

static long receive_and_hold(struct dibs__transport *transport, char *bytes, size_t size, struct dibs__error *error)
{
    if (!atomic_load(&holds))
        return dibs__socket_transport.receive(transport, bytes, size, error);
    atomic_store(&has_begun, true);
    if (!has_both(transport))
        return 0;
    long received = dibs__socket_transport.receive(transport, bytes, size, error);
    atomic_store(&has_taken, true);
    for (int64_t limit = now_ms() + 2 * LIMIT_MS; !atomic_load(&may_go); pause_ms(1))
        assert_true(now_ms() < limit);
    return received;
}

/*
 * Two threads on one connection. The first reads, and has taken both replies; the second waits for the first, its time
 * as given. The first polls for replies, as on a machine where that pays, and by this clock for ever.
 */
static void begin_held(struct rig *r, struct caller pair[2], int64_t second_ms)
{
    holding = dibs__socket_transport;
    holding.open = open_holding;
    holding.receive = receive_and_hold;
    r->endpoint.transport = &holding;
    dibs__spin_init(&r->endpoint.spin, &dibs__system_clock, 1000);
    uint64_t serial = open_now(r);
    pair[0] = (struct caller){.r = r, .text = "first", .serial = serial, .deadline = after(r, 10 * COMMAND_MS)};
    pair[1] = (struct caller){.r = r, .text = "second", .serial = serial, .deadline = after(r, second_ms)};
    atomic_store(&has_begun, false);
    atomic_store(&has_taken, false);
    atomic_store(&may_go, false);
    atomic_store(&holds, true);
    fake_redis_hold(r->fake, true);
    begin(&pair[0]);
    fake_redis_await(r->fake, "ECHO first", 1);
    await_that(atomic_load(&has_begun)); /* otherwise the second may come before it */
    begin(&pair[1]);
    fake_redis_await(r->fake, "ECHO second", 1);
    moved_clock_await_waiting(&r->clock, 1);
    fake_redis_hold(r->fake, false);
    await_that(atomic_load(&has_taken));
}

static void expect_both(struct rig *r, struct caller pair[2])
{
    atomic_store(&may_go, true);
    for (int i = 0; i < 2; i++)
        expect_right(&pair[i]);
    assert_true(stands(r));
    atomic_store(&holds, false);
}

/* The second is past its deadline, and looks repeatedly what has become of the bytes. */
static void second_waits_for_the_first(struct rig *r, int64_t second_ms)
{
    moved_clock_advance(&r->clock, MS(second_ms));
    for (int looks = 0; looks < 10; looks++) {
        moved_clock_await_waiting(&r->clock, 1);
        moved_clock_advance(&r->clock, MS(6));
    }
    moved_clock_await_waiting(&r->clock, 1);
}

static void expect_scheduler_to_wait(struct rig *r)
{
    dibs__channel_attend(r->channel, true, 0, moved_clock_now(&r->clock));
    assert_true(stands(r));
    int64_t deadline = deadline_of(r, true);
    assert_true(deadline > moved_clock_now(&r->clock));
    assert_true(deadline <= after(r, 100));
}

TEST_ON(a_reply_being_processed_is_waited_for, struct rig *r)
{
    struct caller pair[2];

    begin_held(r, pair, 10 * COMMAND_MS);
    second_waits_for_the_first(r, COMMAND_MS);
    expect_both(r, pair);
}

TEST_ON(a_caller_out_of_time_waits_for_a_reply_being_processed, struct rig *r)
{
    struct caller pair[2];

    begin_held(r, pair, 10);
    second_waits_for_the_first(r, 10);
    expect_both(r, pair);
}

/* The scheduler neither gives the connection up nor keeps the processor busy. */
TEST_ON(the_scheduler_waits_for_a_reply_being_processed, struct rig *r)
{
    struct caller pair[2];

    begin_held(r, pair, 10 * COMMAND_MS);
    second_waits_for_the_first(r, COMMAND_MS);
    expect_scheduler_to_wait(r);
    expect_both(r, pair);
}

/* The rig's clock, but a thread that poll has woken goes on only when it may. */
static const struct dibs__clock *rig_clock;

static int64_t now_of_rig(const struct dibs__clock *clock)
{
    return dibs__now(rig_clock);
}

static int poll_and_hold(const struct dibs__clock *clock, struct pollfd *fds, nfds_t count, int64_t deadline)
{
    int ready = rig_clock->poll(rig_clock, fds, count, deadline);

    if (!atomic_load(&holds))
        return ready;
    atomic_store(&has_begun, true);
    for (int64_t limit = now_ms() + 2 * LIMIT_MS; !atomic_load(&may_go); pause_ms(1))
        assert_true(now_ms() < limit);
    return ready;
}

/* Poll has woken the reader, which has taken nothing yet. The scheduler does not keep the processor busy meanwhile. */
TEST_ON(the_scheduler_pauses_while_a_reader_has_lost_the_processor, struct rig *r)
{
    const struct dibs__clock held = {.now = now_of_rig, .poll = poll_and_hold};
    const struct dibs__channel_hooks hooks = {r, on_opened, on_failed, on_unattended, NULL};

    rig_clock = &r->clock.clock;
    dibs__channel_free(r->channel);
    r->endpoint.clock = &held;
    r->endpoint.connect_timeout_ms = CONNECT_MS;
    r->endpoint.command_timeout_ms = COMMAND_MS;
    r->channel = dibs__channel_new(&r->endpoint, &hooks);
    struct caller c = {.r = r, .text = "held", .serial = open_now(r), .deadline = after(r, 10 * COMMAND_MS)};
    atomic_store(&has_begun, false);
    atomic_store(&may_go, false);
    atomic_store(&holds, true);
    begin(&c);
    await_that(atomic_load(&has_begun));
    moved_clock_advance(&r->clock, MS(COMMAND_MS));
    expect_scheduler_to_wait(r);
    atomic_store(&may_go, true);
    expect_right(&c);
    assert_true(stands(r));
    atomic_store(&holds, false);
    dibs__channel_free(r->channel);
    r->channel = NULL;
}

/* The wait for a thread that does not go on has an end. */
TEST_ON(the_wait_for_a_reply_being_processed_has_an_end, struct rig *r)
{
    struct caller pair[2];

    begin_held(r, pair, 10 * COMMAND_MS);
    second_waits_for_the_first(r, COMMAND_MS);
    moved_clock_advance(&r->clock, MS(COMMAND_MS));
    expect_unknown(&pair[1], DIBS_UNAVAILABLE);
    assert_false(stands(r));
    atomic_store(&may_go, true);
    expect_unknown(&pair[0], DIBS_UNAVAILABLE);
    atomic_store(&holds, false);
}

TESTS(setup, teardown)
