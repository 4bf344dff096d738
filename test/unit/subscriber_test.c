/* The connection that is told of grants: when it is made, what it passes on, and how it notices that it is deaf. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "redis/subscriber.h"
#include "support/fake_redis.h"
#include "support/moved_clock.h"
#include "support/test.h"
#include "support/wait.h"

#define CONNECT_MS 60000
#define COMMAND_MS 1000
#define SILENCE_MS 5000
#define DEAF_LAST_MS 2000
#define MESSAGES_MOST 2048

#define CONFIRMED "*3\r\n$9\r\nsubscribe\r\n$9\r\ndibs:test\r\n:1\r\n"
#define MESSAGE(size, text) "*3\r\n$7\r\nmessage\r\n$9\r\ndibs:test\r\n$" #size "\r\n" text "\r\n"
#define PONG "*2\r\n$4\r\npong\r\n$0\r\n\r\n"
#define NOPERM "-NOPERM No permissions to access a channel\r\n"

struct message {
    size_t size;
    char bytes[16]; /* its first ones */
};

/* The test is the scheduler, on a clock that only it moves. */
struct rig {
    fake_redis *fake;
    struct moved_clock clock;
    struct dibs__endpoint endpoint;
    atomic_uint_fast64_t commands, errors;
    struct dibs__subscriber *subscriber;
    atomic_uint woken;
    unsigned subscribed, distrusted_by_hook;
    struct message messages[MESSAGES_MOST];
    size_t message_count;
};

/* The hooks ask the subscriber something: with its mutex held, that would never return where none stands. */
static void ask_back(struct rig *r)
{
    struct dibs__error error;
    uint64_t serial;

    dibs__subscriber_await(r->subscriber, 0, &serial, &error);
}

static void on_wake(void *context)
{
    struct rig *r = context;

    ask_back(r);
    r->woken++;
}

static void on_subscribed(void *context)
{
    struct rig *r = context;

    r->subscribed++;
    if (r->distrusted_by_hook >= r->subscribed)
        dibs__subscriber_distrust(r->subscriber, dibs__subscriber_serial(r->subscriber));
    ask_back(r);
}

static void on_message(void *context, const char *bytes, size_t size)
{
    struct rig *r = context;
    struct message *message = &r->messages[r->message_count++];

    ask_back(r);
    assert_true(r->message_count < MESSAGES_MOST);
    message->size = size;
    memcpy(message->bytes, bytes, size < sizeof message->bytes ? size : sizeof message->bytes);
}

static int setup(void **state)
{
    static struct rig rig;
    struct rig *r = &rig;
    const struct dibs__subscriber_hooks hooks = {r, on_wake, on_subscribed, on_message};

    memset(r, 0, sizeof *r);
    r->fake = fake_redis_start(false);
    fake_redis_answer(r->fake, "SUBSCRIBE", CONFIRMED);
    fake_redis_answer(r->fake, "PING", PONG);
    moved_clock_init(&r->clock);
    fake_redis_endpoint(&r->endpoint, fake_redis_url(r->fake), &r->commands, &r->errors);
    r->subscriber = dibs__subscriber_new(&r->endpoint, &r->clock.clock, &hooks, CONNECT_MS, COMMAND_MS);
    assert_non_null(r->subscriber);
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;

    dibs__subscriber_free(r->subscriber);
    dibs__endpoint_free(&r->endpoint);
    moved_clock_destroy(&r->clock);
    fake_redis_stop(r->fake);
    return 0;
}

/* ----------------------------------------------------------------- helpers */

static int64_t after(struct rig *r, int64_t ms)
{
    return moved_clock_now(&r->clock) + MS(ms);
}

static uint64_t serial_of(struct rig *r)
{
    return dibs__subscriber_serial(r->subscriber);
}

/* One round of the scheduler. Sleeps a little where there is nothing to do. */
static void attend(struct rig *r)
{
    struct pollfd fd;
    int64_t deadline;

    dibs__subscriber_interest(r->subscriber, &fd, &deadline);
    poll(&fd, 1, deadline > moved_clock_now(&r->clock) ? 2 : 0);
    dibs__subscriber_attend(r->subscriber, fd.fd >= 0 ? fd.revents : 0, moved_clock_now(&r->clock));
}

/* Goes on as the scheduler until it is so. */
#define ATTEND_UNTIL(r, condition)                                                                                     \
    for (int64_t limit = now_ms() + LIMIT_MS; !(condition); attend(r))                                                 \
    assert_that(now_ms() < limit, "never: %s", #condition)

/* Goes on as the scheduler until there is nothing left to do. */
static void attend_all(struct rig *r)
{
    struct pollfd fd;
    int64_t deadline;

    for (;;) {
        dibs__subscriber_interest(r->subscriber, &fd, &deadline);
        if (poll(&fd, 1, 0) == 0 && deadline > moved_clock_now(&r->clock))
            return;
        dibs__subscriber_attend(r->subscriber, fd.fd >= 0 ? fd.revents : 0, moved_clock_now(&r->clock));
    }
}

static int64_t deadline_of(struct rig *r)
{
    struct pollfd fd;
    int64_t deadline;

    dibs__subscriber_interest(r->subscriber, &fd, &deadline);
    return deadline;
}

/* How long the scheduler is to wait until it begins again, and does; then that time has passed. */
static int64_t pass_pause(struct rig *r)
{
    struct pollfd fd;
    int64_t deadline, now = moved_clock_now(&r->clock);

    dibs__subscriber_interest(r->subscriber, &fd, &deadline);
    assert_int_equal(fd.fd, -1);
    assert_true(deadline != DIBS__NEVER);
    if (deadline <= now)
        return 0;
    moved_clock_set(&r->clock, deadline - 1);
    attend(r);
    assert_true(deadline_of(r) == deadline);
    moved_clock_set(&r->clock, deadline);
    return deadline - now;
}

/* The serial of the subscription, which is made if need be. */
static uint64_t subscribed(struct rig *r)
{
    ATTEND_UNTIL(r, serial_of(r) != 0);
    return serial_of(r);
}

static bool is_connected(struct rig *r)
{
    struct pollfd fd;
    int64_t deadline;

    dibs__subscriber_interest(r->subscriber, &fd, &deadline);
    return fd.fd >= 0;
}

static uint64_t subscribed_again(struct rig *r)
{
    ATTEND_UNTIL(r, !is_connected(r));
    pass_pause(r);
    return subscribed(r);
}

/* The one with that number, from 1. */
static void expect_failed_attempt(struct rig *r, unsigned number)
{
    ATTEND_UNTIL(r, fake_redis_accepted(r->fake) == number);
    ATTEND_UNTIL(r, !is_connected(r));
}

static void expect_messages(struct rig *r, const char *const *texts, size_t count)
{
    assert_int_equal(r->message_count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(r->messages[i].size, strlen(texts[i]));
        assert_memory_equal(r->messages[i].bytes, texts[i], strlen(texts[i]));
    }
}

/* Puts the test in the place of the server: what is written to the socket that is returned, the subscriber reads. */
static int take_over(struct rig *r)
{
    struct pollfd fd;
    int64_t deadline;
    int pair[2];

    dibs__subscriber_interest(r->subscriber, &fd, &deadline);
    assert_true(fd.fd >= 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    assert_int_equal(dup3(pair[0], fd.fd, O_CLOEXEC), fd.fd);
    close(pair[0]);
    return pair[1];
}

static void feed(int server, const char *bytes, size_t size)
{
    assert_int_equal(write(server, bytes, size), (ssize_t)size);
}

/* A thread that waits for a subscription. */
struct waiter {
    struct rig *r;
    int64_t deadline;
    pthread_t thread;
    dibs_status status;
    uint64_t serial;
    struct dibs__error error;
};

static void *run_waiter(void *arg)
{
    struct waiter *w = arg;

    w->status = dibs__subscriber_await(w->r->subscriber, w->deadline, &w->serial, &w->error);
    return NULL;
}

/* It sleeps when this returns. */
static void begin(struct waiter *w, struct rig *r, int64_t deadline)
{
    *w = (struct waiter){.r = r, .deadline = deadline, .serial = 77};
    assert_int_equal(pthread_create(&w->thread, NULL, run_waiter, w), 0);
    moved_clock_await_waiting(&r->clock, 1);
}

static void expect_failed(struct waiter *w, dibs_status status)
{
    pthread_join(w->thread, NULL);
    assert_status(status, w->status);
    assert_int_equal(w->serial, 0);
    assert_int_equal(w->error.status, status);
    assert_true(w->error.detail[0]);
}

/* ------------------------------------------------------------- subscribing */

static void it_subscribes_when_wanted_and_not_before(void **state)
{
    static const char *const order[] = {"CLIENT SETNAME tester", "CLIENT ID", "INFO server",
                                        "CLIENT KILL ID 9223372036854775807", "SUBSCRIBE dibs:test"};
    struct rig *r = *state;

    assert_true(deadline_of(r) == DIBS__NEVER);
    for (int i = 0; i < 10; i++)
        attend(r);
    assert_int_equal(fake_redis_accepted(r->fake), 0);
    assert_int_equal(r->woken, 0);
    assert_int_equal(serial_of(r), 0);
    assert_int_equal(r->woken, 1);
    assert_int_equal(serial_of(r), 0);
    assert_int_equal(r->woken, 1);
    assert_true(deadline_of(r) <= moved_clock_now(&r->clock));
    attend(r);
    assert_true(deadline_of(r) <= moved_clock_now(&r->clock)); /* the link is to settle its address */
    assert_true(subscribed(r) > 0);
    assert_int_equal(r->subscribed, 1);
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        assert_int_equal(fake_redis_place(r->fake, order[i], 1), i);
    assert_int_equal(fake_redis_count(r->fake, ""), 5);
    assert_int_equal(r->commands, 5);
}

static void it_stands_only_when_that_is_confirmed(void **state)
{
    struct rig *r = *state;

    fake_redis_answer(r->fake, "SUBSCRIBE", "+OK\r\n*3\r\n$9\r\nsubscribe\r\n$5\r\nother\r\n:1\r\n");
    serial_of(r);
    ATTEND_UNTIL(r, fake_redis_count(r->fake, "SUBSCRIBE") == 1);
    for (int i = 0; i < 20; i++)
        attend(r);
    assert_int_equal(serial_of(r), 0);
    assert_int_equal(r->subscribed, 0);
    fake_redis_push(r->fake, CONFIRMED);
    subscribed(r);
    assert_int_equal(fake_redis_count(r->fake, "SUBSCRIBE"), 1);
}

static void a_confirmation_in_the_last_moment_is_in_time(void **state)
{
    struct rig *r = *state;

    fake_redis_answer(r->fake, "SUBSCRIBE", "");
    serial_of(r);
    ATTEND_UNTIL(r, fake_redis_count(r->fake, "SUBSCRIBE") == 1);
    attend_all(r);
    int server = take_over(r);
    feed(server, CONFIRMED, strlen(CONFIRMED));
    moved_clock_advance(&r->clock, MS(CONNECT_MS));
    attend(r);
    assert_true(serial_of(r) != 0);
    close(server);
}

static void it_subscribes_again_when_the_connection_breaks(void **state)
{
    struct rig *r = *state;
    uint64_t first = subscribed(r);

    fake_redis_cut(r->fake);
    uint64_t second = subscribed_again(r);
    assert_true(second > first);
    assert_int_equal(r->subscribed, 2);
    assert_int_equal(fake_redis_accepted(r->fake), 2);
    fake_redis_push(r->fake, MESSAGE(5, "after"));
    ATTEND_UNTIL(r, r->message_count == 1);
}

/* A server that ends each at once is not overrun. */
static void it_is_not_made_anew_too_soon(void **state)
{
    struct rig *r = *state;

    subscribed(r);
    fake_redis_cut(r->fake);
    ATTEND_UNTIL(r, serial_of(r) == 0);
    assert_int_equal(pass_pause(r), MS(10));
    subscribed(r);
    moved_clock_advance(&r->clock, MS(1000));
    fake_redis_cut(r->fake);
    ATTEND_UNTIL(r, serial_of(r) == 0);
    assert_int_equal(pass_pause(r), 0);
}

static void it_ends_its_predecessor_before_it_subscribes(void **state)
{
    struct rig *r = *state;

    subscribed(r);
    fake_redis_cut(r->fake);
    subscribed_again(r);
    assert_int_equal(fake_redis_count(r->fake, "CLIENT KILL ID 1"), 1);
    assert_true(fake_redis_place(r->fake, "CLIENT KILL ID 1", 1) > fake_redis_place(r->fake, "CLIENT ID", 2));
    assert_true(fake_redis_place(r->fake, "CLIENT KILL ID 1", 1) < fake_redis_place(r->fake, "SUBSCRIBE", 2));
}

/* Attempts between that came to nothing do not hide it. */
static void the_predecessor_of_a_failed_attempt_is_ended_too(void **state)
{
    struct rig *r = *state;

    subscribed(r);
    fake_redis_answer(r->fake, "INFO", "-LOADING not yet\r\n");
    fake_redis_cut(r->fake);
    ATTEND_UNTIL(r, serial_of(r) == 0);
    pass_pause(r);
    expect_failed_attempt(r, 2);
    fake_redis_answer(r->fake, "INFO", "$49\r\nrun_id:" FAKE_RUN_ID "\r\n\r\n");
    pass_pause(r);
    subscribed(r);
    assert_int_equal(fake_redis_count(r->fake, "CLIENT KILL ID 1"), 1);
}

/* The server may have subscribed it all the same. */
static void one_that_was_never_confirmed_is_ended_too(void **state)
{
    struct rig *r = *state;

    fake_redis_answer(r->fake, "SUBSCRIBE", "");
    serial_of(r);
    ATTEND_UNTIL(r, fake_redis_count(r->fake, "SUBSCRIBE") == 1);
    attend_all(r);
    moved_clock_set(&r->clock, deadline_of(r));
    attend(r);
    fake_redis_answer(r->fake, "SUBSCRIBE", CONFIRMED);
    pass_pause(r);
    subscribed(r);
    assert_int_equal(fake_redis_count(r->fake, "CLIENT KILL ID 1"), 1);
}

/* ---------------------------------------------------------------- messages */

static void messages_arrive_in_order(void **state)
{
    static const char *const texts[] = {"first", "2", "third"};
    struct rig *r = *state;

    fake_redis_answer(r->fake, "SUBSCRIBE", CONFIRMED MESSAGE(5, "first"));
    subscribed(r);
    int server = take_over(r);
    feed(server, MESSAGE(1, "2") MESSAGE(5, "third"), strlen(MESSAGE(1, "2") MESSAGE(5, "third")));
    attend(r);
    expect_messages(r, texts, 3);
    close(server);
}

static void a_message_may_come_in_pieces(void **state)
{
    static const char *const texts[] = {"whole"};
    static const char bytes[] = MESSAGE(5, "whole");
    struct rig *r = *state;

    subscribed(r);
    int server = take_over(r);
    for (size_t i = 0; i < strlen(bytes); i++) {
        assert_int_equal(r->message_count, 0);
        feed(server, &bytes[i], 1);
        attend(r);
    }
    expect_messages(r, texts, 1);
    close(server);
}

static void a_message_may_hold_any_bytes(void **state)
{
    static const char bytes[] = MESSAGE(8, "\0\r\n*3\r\n\xff") MESSAGE(0, "");
    struct rig *r = *state;

    subscribed(r);
    int server = take_over(r);
    feed(server, bytes, sizeof bytes - 1);
    attend(r);
    assert_int_equal(r->message_count, 2);
    assert_int_equal(r->messages[0].size, 8);
    assert_memory_equal(r->messages[0].bytes, "\0\r\n*3\r\n\xff", 8);
    assert_int_equal(r->messages[1].size, 0);
    close(server);
}

static void more_than_is_read_at_once_arrives_whole(void **state)
{
    enum { COUNT = 1500 };
    struct rig *r = *state;
    char bytes[COUNT * sizeof MESSAGE(6, "n-0000")];
    size_t used = 0;

    subscribed(r);
    int server = take_over(r);
    for (int i = 0; i < COUNT; i++)
        used += (size_t)snprintf(bytes + used, sizeof bytes - used, MESSAGE(6, "n-%04d"), i);
    feed(server, bytes, used);
    attend(r);
    assert_true(r->message_count > 0 && r->message_count < COUNT);
    attend_all(r);
    assert_int_equal(r->message_count, COUNT);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(strtol(r->messages[i].bytes + 2, NULL, 10), i);
    close(server);
}

static void what_is_no_message_is_not_passed_on(void **state)
{
    static const char *const others[] = {
        PONG,
        CONFIRMED,
        ":7\r\n",
        "+OK\r\n",
        "$-1\r\n",
        "*-1\r\n",
        "*0\r\n",
        "$7\r\nmessage\r\n",
        "*1\r\n$7\r\nmessage\r\n",
        "*2\r\n$7\r\nmessage\r\n$9\r\ndibs:test\r\n",
        "*3\r\n$7\r\nmessage\r\n$9\r\ndibs:test\r\n$-1\r\n",
        "*3\r\n$7\r\nmessage\r\n$9\r\ndibs:test\r\n:5\r\n",
        "*3\r\n$7\r\nmessage\r\n$9\r\ndibs:test\r\n*1\r\n$1\r\na\r\n",
        "*3\r\n$7\r\nmessage\r\n$-1\r\n$1\r\na\r\n",
        "*3\r\n$-1\r\n$9\r\ndibs:test\r\n$1\r\na\r\n",
        "*3\r\n:1\r\n:2\r\n:3\r\n",
        "*3\r\n+message\r\n+dibs:test\r\n$1\r\na\r\n",
        "*3\r\n$7\r\nmessage\r\n$9\r\ndibs:text\r\n$1\r\na\r\n",
        "*3\r\n$8\r\nmessages\r\n$9\r\ndibs:test\r\n$1\r\na\r\n",
        "*4\r\n$7\r\nmessage\r\n$9\r\ndibs:test\r\n$1\r\na\r\n$1\r\nb\r\n",
        "*4\r\n$8\r\npmessage\r\n$1\r\n*\r\n$9\r\ndibs:test\r\n$1\r\na\r\n",
        "*1\r\n*1\r\n*1\r\n$7\r\nmessage\r\n",
        "*3\r\n$11\r\nunsubscribe\r\n$5\r\nother\r\n:1\r\n",
    };
    static const char *const texts[] = {"good"};
    struct rig *r = *state;
    uint64_t serial = subscribed(r);
    int server = take_over(r);

    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        feed(server, others[i], strlen(others[i]));
        attend(r);
        assert_that(r->message_count == 0 && serial_of(r) == serial, "%s", others[i]);
    }
    feed(server, MESSAGE(4, "good"), strlen(MESSAGE(4, "good")));
    attend(r);
    expect_messages(r, texts, 1);
    assert_int_equal(r->subscribed, 1);
    close(server);
}

/* What came before it in the same packet is good. */
static void what_tells_that_it_is_broken_ends_it(void **state)
{
    static const char *const ends[] = {
        MESSAGE(1, "a") "-ERR what is that\r\n",
        MESSAGE(1, "a") "HTTP/1.1 400 Bad Request\r\n",
        MESSAGE(1, "a") "*1000000000\r\n",
        MESSAGE(1, "a") "*3\r\n$11\r\nunsubscribe\r\n$9\r\ndibs:test\r\n:0\r\n",
    };
    struct rig *r = *state;
    uint64_t last = subscribed(r);

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        fake_redis_push(r->fake, ends[i]);
        uint64_t serial = subscribed_again(r);
        assert_that(serial > last && r->message_count == i + 1, "%s", ends[i]);
        last = serial;
    }
    assert_int_equal(r->errors, 1);
}

/* In the packet that confirms it: then there was a subscription, and it is lost. */
static void one_that_breaks_at_once_stood_all_the_same(void **state)
{
    struct rig *r = *state;
    struct dibs__error error;
    uint64_t serial;

    fake_redis_answer(r->fake, "SUBSCRIBE", CONFIRMED MESSAGE(5, "first") "-ERR no more\r\n");
    serial_of(r);
    ATTEND_UNTIL(r, r->subscribed == 1);
    assert_int_equal(serial_of(r), 0);
    assert_int_equal(r->message_count, 1);
    /* why it broke is not why there is none: that was no failed attempt */
    assert_status(DIBS_UNAVAILABLE, dibs__subscriber_await(r->subscriber, 0, &serial, &error));
    fake_redis_answer(r->fake, "SUBSCRIBE", CONFIRMED);
    assert_int_equal(pass_pause(r), MS(10));
    assert_int_equal(subscribed(r), 2);
}

/* ---------------------------------------------------------------- failures */

static void who_may_not_use_the_channel_is_told_so(void **state)
{
    struct rig *r = *state;
    struct waiter w;

    fake_redis_answer(r->fake, "SUBSCRIBE", NOPERM);
    begin(&w, r, DIBS__NEVER);
    ATTEND_UNTIL(r, r->errors == 1);
    expect_failed(&w, DIBS_DENIED);
    assert_non_null(strstr(w.error.detail, "NOPERM"));
    assert_int_equal(serial_of(r), 0);
    fake_redis_answer(r->fake, "SUBSCRIBE", CONFIRMED);
    int64_t pause = pass_pause(r);
    assert_true(pause >= MS(3000) && pause <= MS(6000));
    assert_int_equal(fake_redis_accepted(r->fake), 1);
    subscribed(r);
    assert_int_equal(fake_redis_accepted(r->fake), 2);
    assert_int_equal(r->subscribed, 1);
}

static void each_attempt_that_fails_makes_the_next_wait_longer(void **state)
{
    static const int64_t longest[] = {10, 20, 40, 80, 160, 320, 500, 500};
    struct rig *r = *state;

    fake_redis_refuse(r->fake, true);
    serial_of(r);
    for (unsigned i = 0; i < sizeof longest / sizeof *longest; i++) {
        expect_failed_attempt(r, i + 1);
        int64_t pause = pass_pause(r);
        assert_that(pause >= MS(longest[i]) / 2 && pause <= MS(longest[i]), "%u: %lld", i, (long long)pause);
    }
    fake_redis_refuse(r->fake, false);
    subscribed(r);
    fake_redis_refuse(r->fake, true);
    fake_redis_cut(r->fake);
    ATTEND_UNTIL(r, serial_of(r) == 0);
    pass_pause(r);
    expect_failed_attempt(r, 10);
    assert_true(pass_pause(r) <= MS(10));
}

/* Who relies on it is told at the first, and then when it stands again; before it ever stood, nobody does. */
static void who_relies_on_it_is_told_when_it_can_not_be_made_anew(void **state)
{
    struct rig *r = *state;

    fake_redis_refuse(r->fake, true);
    serial_of(r);
    expect_failed_attempt(r, 1);
    assert_int_equal(r->subscribed, 0);
    pass_pause(r);
    fake_redis_refuse(r->fake, false);
    subscribed(r);
    assert_int_equal(r->subscribed, 1);
    fake_redis_refuse(r->fake, true);
    fake_redis_cut(r->fake);
    ATTEND_UNTIL(r, serial_of(r) == 0);
    assert_int_equal(r->subscribed, 1);
    for (unsigned i = 0; i < 3; i++) {
        pass_pause(r);
        expect_failed_attempt(r, i + 3);
        assert_int_equal(r->subscribed, 2);
    }
    pass_pause(r);
    fake_redis_refuse(r->fake, false);
    subscribed(r);
    assert_int_equal(r->subscribed, 3);
}

/* The server is silent from there on. */
static void expect_given_up_in_time(struct rig *r, const char *prefix)
{
    struct waiter w;
    int64_t until = after(r, CONNECT_MS);

    fake_redis_hold(r->fake, true);
    begin(&w, r, DIBS__NEVER);
    ATTEND_UNTIL(r, fake_redis_count(r->fake, prefix) == 1);
    attend_all(r);
    assert_true(deadline_of(r) == until);
    moved_clock_set(&r->clock, until - 1);
    attend(r);
    moved_clock_await_waiting(&r->clock, 1);
    moved_clock_set(&r->clock, until);
    attend(r);
    expect_failed(&w, DIBS_UNAVAILABLE);
    fake_redis_hold(r->fake, false);
    assert_true(pass_pause(r) <= MS(10));
    subscribed(r);
}

static void an_attempt_is_given_up_after_the_connect_timeout(void **state)
{
    expect_given_up_in_time(*state, "CLIENT KILL ID 9223372036854775807");
}

static void an_attempt_that_is_not_confirmed_is_given_up_as_well(void **state)
{
    struct rig *r = *state;
    struct waiter w;

    fake_redis_answer(r->fake, "SUBSCRIBE", "");
    begin(&w, r, DIBS__NEVER);
    ATTEND_UNTIL(r, fake_redis_count(r->fake, "SUBSCRIBE") == 1);
    attend_all(r);
    moved_clock_advance(&r->clock, MS(CONNECT_MS) - 1);
    attend(r);
    assert_int_equal(fake_redis_accepted(r->fake), 1);
    moved_clock_await_waiting(&r->clock, 1);
    moved_clock_advance(&r->clock, 1);
    attend(r);
    expect_failed(&w, DIBS_UNAVAILABLE);
}

/* ---------------------------------------------------------------- distrust */

static void one_that_is_distrusted_is_made_anew(void **state)
{
    struct rig *r = *state;
    uint64_t first = subscribed(r);
    unsigned woken = r->woken;

    moved_clock_advance(&r->clock, MS(100));
    dibs__subscriber_distrust(r->subscriber, first);
    assert_int_equal(r->woken, woken + 1);
    assert_int_equal(serial_of(r), 0);
    assert_true(deadline_of(r) <= moved_clock_now(&r->clock));
    dibs__subscriber_distrust(r->subscriber, first);
    assert_int_equal(r->woken, woken + 1);
    attend(r);
    assert_int_equal(pass_pause(r), 0);
    assert_true(subscribed(r) > first);
    assert_int_equal(r->subscribed, 2);
    assert_int_equal(fake_redis_count(r->fake, "CLIENT KILL ID 1"), 1);
}

static void distrust_of_another_one_does_nothing(void **state)
{
    struct rig *r = *state;
    uint64_t first = subscribed(r);

    dibs__subscriber_distrust(r->subscriber, first);
    uint64_t second = subscribed_again(r);
    unsigned woken = r->woken;
    dibs__subscriber_distrust(r->subscriber, first);
    dibs__subscriber_distrust(r->subscriber, 0);
    dibs__subscriber_distrust(r->subscriber, second + 1);
    assert_int_equal(serial_of(r), second);
    attend_all(r);
    assert_int_equal(serial_of(r), second);
    fake_redis_cut(r->fake);
    ATTEND_UNTIL(r, serial_of(r) == 0);
    dibs__subscriber_distrust(r->subscriber, 0);
    assert_int_equal(r->woken, woken);
    assert_int_equal(fake_redis_accepted(r->fake), 2);
}

static void it_may_be_distrusted_as_soon_as_it_stands(void **state)
{
    struct rig *r = *state;

    r->distrusted_by_hook = 1;
    serial_of(r);
    ATTEND_UNTIL(r, r->subscribed == 1);
    assert_int_equal(serial_of(r), 0);
    assert_int_equal(subscribed_again(r), 2);
}

/* It is distrusted as soon as it stands. How long the next one is put off, and how many hints that gave. */
static int64_t distrust_at_once(struct rig *r, unsigned *hints)
{
    unsigned before = r->subscribed;

    dibs__subscriber_distrust(r->subscriber, subscribed(r));
    ATTEND_UNTIL(r, !is_connected(r));
    *hints = r->subscribed - before;
    return pass_pause(r);
}

/* Nothing ever says that somebody listens: to subscribe anew has not helped, and is done ever more seldom. */
static void one_that_is_deaf_like_the_one_before_is_put_off(void **state)
{
    static const int64_t longest[] = {10, 10, 20, 40, 80, 160, 320, 640, 1280, 2000, 2000};
    struct rig *r = *state;
    unsigned hints;

    serial_of(r);
    for (unsigned i = 0; i < sizeof longest / sizeof *longest; i++) {
        int64_t pause = distrust_at_once(r, &hints);
        assert_that(pause >= MS(longest[i]) / 2 && pause <= MS(longest[i]), "%u: %lld", i, (long long)pause);
        assert_that(hints == (i < 2), "%u: %u hints", i, hints); /* nobody relied on it who would have to be told */
    }
}

/* Lost, it is made anew at once; so is the next, and both are told of: all begins from the start. */
static void expect_trusted_again(struct rig *r, uint64_t serial)
{
    unsigned hints;

    moved_clock_advance(&r->clock, MS(100));
    dibs__subscriber_distrust(r->subscriber, serial);
    ATTEND_UNTIL(r, !is_connected(r));
    assert_int_equal(pass_pause(r), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(distrust_at_once(r, &hints), MS(10));
        assert_int_equal(hints, 1);
    }
    assert_true(distrust_at_once(r, &hints) >= MS(10));
    assert_int_equal(hints, 0);
}

static void deafen(struct rig *r)
{
    unsigned hints;

    serial_of(r);
    for (int i = 0; i < 8; i++)
        distrust_at_once(r, &hints);
}

static void one_that_is_confirmed_is_trusted_again(void **state)
{
    struct rig *r = *state;

    deafen(r);
    uint64_t serial = subscribed(r);
    assert_true(dibs__subscriber_confirm(r->subscriber, serial));
    assert_true(dibs__subscriber_confirm(r->subscriber, serial));
    expect_trusted_again(r, serial);
}

static void a_message_confirms_it_too(void **state)
{
    struct rig *r = *state;

    deafen(r);
    uint64_t serial = subscribed(r);
    fake_redis_push(r->fake, MESSAGE(2, "hi"));
    ATTEND_UNTIL(r, r->message_count == 1);
    expect_trusted_again(r, serial);
}

/* What is known of one says nothing of the next. */
static void to_confirm_another_one_does_nothing(void **state)
{
    struct rig *r = *state;
    unsigned hints;

    deafen(r);
    uint64_t serial = subscribed(r);
    assert_false(dibs__subscriber_confirm(r->subscriber, serial - 1));
    assert_true(distrust_at_once(r, &hints) >= MS(500));
    assert_int_equal(hints, 0);
    assert_false(dibs__subscriber_confirm(r->subscriber, serial)); /* too late: it stands no more */
}

/* Each had been good for something. */
static void one_that_breaks_is_made_anew_and_told(void **state)
{
    struct rig *r = *state;

    for (unsigned i = 1; i <= 8; i++) {
        assert_true(dibs__subscriber_confirm(r->subscriber, subscribed(r)));
        assert_int_equal(r->subscribed, i);
        fake_redis_cut(r->fake);
        ATTEND_UNTIL(r, !is_connected(r));
        assert_true(pass_pause(r) <= MS(10));
    }
}

/* A server that takes each SUBSCRIBE and hangs up. */
static void one_that_breaks_again_and_again_is_put_off_too(void **state)
{
    struct rig *r = *state;
    int64_t pause = 0;

    for (unsigned i = 1; i <= 12; i++) {
        subscribed(r);
        fake_redis_cut(r->fake);
        ATTEND_UNTIL(r, !is_connected(r));
        pause = pass_pause(r);
    }
    assert_true(pause >= MS(DEAF_LAST_MS) / 2);
    assert_int_equal(r->subscribed, 2);
}

/* A thread that needs one to go on has it sooner. */
static void one_that_is_awaited_is_not_put_off_for_long(void **state)
{
    struct rig *r = *state;
    struct waiter w;

    deafen(r);
    uint64_t serial = subscribed(r);
    dibs__subscriber_distrust(r->subscriber, serial);
    ATTEND_UNTIL(r, !is_connected(r));
    int64_t put_off = deadline_of(r);
    assert_true(put_off > after(r, COMMAND_MS / 2));
    unsigned woken = r->woken;
    begin(&w, r, DIBS__NEVER);
    assert_int_equal(r->woken, woken + 1);
    assert_true(deadline_of(r) <= after(r, COMMAND_MS / 2));
    assert_true(pass_pause(r) > 0);
    uint64_t next = subscribed(r);
    pthread_join(w.thread, NULL);
    assert_status(DIBS_OK, w.status);
    assert_int_equal(w.serial, next);
}

/* It may be right, and the server wrong. */
static void one_that_is_distrusted_still_tells(void **state)
{
    struct rig *r = *state;
    uint64_t serial = subscribed(r);
    int server = take_over(r);

    feed(server, MESSAGE(4, "last"), strlen(MESSAGE(4, "last")));
    dibs__subscriber_distrust(r->subscriber, serial);
    attend(r);
    assert_int_equal(r->message_count, 1);
    close(server);
}

/* -------------------------------------------------------------------- PING */

static void silence_is_broken_by_a_ping(void **state)
{
    struct rig *r = *state;
    uint64_t serial = subscribed(r);
    int64_t start = moved_clock_now(&r->clock);

    attend_all(r);
    assert_true(deadline_of(r) == start + MS(SILENCE_MS));
    moved_clock_set(&r->clock, start + MS(SILENCE_MS) - 1);
    attend(r);
    assert_int_equal(r->commands, 5);
    for (unsigned i = 1; i <= 3; i++) {
        moved_clock_set(&r->clock, start + i * MS(SILENCE_MS));
        attend(r);
        fake_redis_await(r->fake, "PING", i);
        ATTEND_UNTIL(r, deadline_of(r) == start + (i + 1) * MS(SILENCE_MS));
        assert_int_equal(fake_redis_count(r->fake, "PING"), i);
    }
    assert_int_equal(r->commands, 5 + 3);
    assert_int_equal(serial_of(r), serial);
    assert_int_equal(r->message_count, 0);
}

static void who_talks_is_not_pinged(void **state)
{
    struct rig *r = *state;

    subscribed(r);
    for (unsigned i = 1; i <= 3; i++) {
        moved_clock_advance(&r->clock, MS(SILENCE_MS) - 1);
        fake_redis_push(r->fake, MESSAGE(2, "hi"));
        ATTEND_UNTIL(r, r->message_count == i);
    }
    assert_int_equal(r->commands, 5);
}

/* Sends a PING that the server does not answer. */
static uint64_t ping_in_vain(struct rig *r)
{
    uint64_t serial = subscribed(r);

    fake_redis_answer(r->fake, "PING", "");
    attend_all(r);
    moved_clock_advance(&r->clock, MS(SILENCE_MS));
    attend(r);
    fake_redis_await(r->fake, "PING", 1);
    assert_true(deadline_of(r) == after(r, COMMAND_MS));
    moved_clock_advance(&r->clock, MS(COMMAND_MS) - 1);
    attend_all(r);
    assert_int_equal(serial_of(r), serial);
    return serial;
}

static void no_answer_to_a_ping_ends_it(void **state)
{
    struct rig *r = *state;
    uint64_t serial = ping_in_vain(r);

    moved_clock_advance(&r->clock, 1);
    attend(r);
    assert_int_equal(serial_of(r), 0);
    assert_int_equal(pass_pause(r), 0);
    assert_true(subscribed(r) > serial);
    assert_int_equal(fake_redis_count(r->fake, "PING"), 1);
    assert_int_equal(fake_redis_count(r->fake, "CLIENT KILL ID 1"), 1);
}

/* Also one that is noticed in the last moment: the scheduler's poll had not seen it. */
static void anything_answers_a_ping(void **state)
{
    struct rig *r = *state;
    uint64_t serial = ping_in_vain(r);

    int server = take_over(r);
    feed(server, ":7\r\n", 4);
    moved_clock_advance(&r->clock, 1);
    dibs__subscriber_attend(r->subscriber, 0, moved_clock_now(&r->clock));
    assert_int_equal(serial_of(r), serial);
    assert_true(deadline_of(r) == after(r, SILENCE_MS));
    close(server);
}

static void who_has_no_right_to_ping_is_answered_too(void **state)
{
    struct rig *r = *state;
    uint64_t serial = subscribed(r);

    fake_redis_answer(r->fake, "PING", "-NOPERM this user has no permissions to run the 'ping' command\r\n");
    moved_clock_advance(&r->clock, MS(SILENCE_MS));
    ATTEND_UNTIL(r, r->errors == 1);
    assert_true(deadline_of(r) == after(r, SILENCE_MS));
    assert_int_equal(serial_of(r), serial);
}

/* A socket that takes no more keeps what did not fit; it comes as soon as there is room. */
static void a_ping_waits_for_room_in_the_socket(void **state)
{
    struct rig *r = *state;
    struct pollfd fd;
    int64_t deadline;
    char bytes[4096] = "";

    subscribed(r);
    int server = take_over(r);
    dibs__subscriber_interest(r->subscriber, &fd, &deadline);
    while (write(fd.fd, bytes, sizeof bytes) > 0)
        ;
    moved_clock_advance(&r->clock, MS(SILENCE_MS));
    attend(r);
    dibs__subscriber_interest(r->subscriber, &fd, &deadline);
    assert_int_equal(fd.events, POLLIN | POLLOUT);
    while (read(server, bytes, sizeof bytes) > 0)
        ;
    attend(r);
    dibs__subscriber_interest(r->subscriber, &fd, &deadline);
    assert_int_equal(fd.events, POLLIN);
    assert_int_equal(read(server, bytes, sizeof bytes), strlen("*1\r\n$4\r\nPING\r\n"));
    assert_memory_equal(bytes, "*1\r\n$4\r\nPING\r\n", strlen("*1\r\n$4\r\nPING\r\n"));
    close(server);
}

/* ----------------------------------------------------------------- waiting */

static void who_waits_is_woken_when_it_stands(void **state)
{
    struct rig *r = *state;
    struct dibs__error error;
    struct waiter w;
    uint64_t again = 0;

    begin(&w, r, DIBS__NEVER); /* which makes it wanted */
    assert_int_equal(r->woken, 1);
    uint64_t serial = subscribed(r);
    pthread_join(w.thread, NULL);
    assert_status(DIBS_OK, w.status);
    assert_int_equal(w.serial, serial);
    assert_status(DIBS_OK, dibs__subscriber_await(r->subscriber, 0, &again, &error));
    assert_int_equal(again, serial);
}

static void who_waits_for_the_next_gets_the_next(void **state)
{
    struct rig *r = *state;
    struct waiter w;
    uint64_t first = subscribed(r);

    dibs__subscriber_distrust(r->subscriber, first);
    begin(&w, r, DIBS__NEVER);
    uint64_t second = subscribed_again(r);
    pthread_join(w.thread, NULL);
    assert_status(DIBS_OK, w.status);
    assert_int_equal(w.serial, second);
}

static void who_waits_leaves_at_the_deadline(void **state)
{
    struct rig *r = *state;
    struct waiter w;

    begin(&w, r, after(r, 50));
    moved_clock_advance(&r->clock, MS(50) - 1);
    moved_clock_await_waiting(&r->clock, 1);
    moved_clock_advance(&r->clock, 1);
    expect_failed(&w, DIBS_UNAVAILABLE);
}

static void who_waits_is_told_when_an_attempt_fails(void **state)
{
    struct rig *r = *state;
    struct waiter w;

    fake_redis_refuse(r->fake, true);
    begin(&w, r, DIBS__NEVER);
    expect_failed_attempt(r, 1);
    expect_failed(&w, DIBS_UNAVAILABLE);
}

/* What failed before the call says nothing of now: the next attempt does, or the deadline. */
static void a_failure_before_the_call_is_told_at_the_deadline_only(void **state)
{
    struct rig *r = *state;
    struct waiter w;

    fake_redis_answer(r->fake, "SUBSCRIBE", "-ERR not now\r\n");
    serial_of(r);
    ATTEND_UNTIL(r, r->errors == 1);
    begin(&w, r, after(r, 50));
    moved_clock_advance(&r->clock, MS(50));
    expect_failed(&w, DIBS_STORE_ERROR);
    begin(&w, r, DIBS__NEVER);
    fake_redis_answer(r->fake, "SUBSCRIBE", CONFIRMED);
    pass_pause(r);
    uint64_t serial = subscribed(r);
    pthread_join(w.thread, NULL);
    assert_status(DIBS_OK, w.status);
    dibs__subscriber_distrust(r->subscriber, serial);
    assert_status(DIBS_UNAVAILABLE, dibs__subscriber_await(r->subscriber, 0, &serial, &w.error));
}

/* The next attempt is seconds away: nobody waits for it. */
static void a_right_that_was_denied_is_told_at_once(void **state)
{
    struct rig *r = *state;
    struct dibs__error error;
    uint64_t serial;

    fake_redis_answer(r->fake, "SUBSCRIBE", NOPERM);
    serial_of(r);
    ATTEND_UNTIL(r, r->errors == 1);
    assert_status(DIBS_DENIED, dibs__subscriber_await(r->subscriber, DIBS__NEVER, &serial, &error));
    fake_redis_answer(r->fake, "SUBSCRIBE", CONFIRMED);
    pass_pause(r);
    subscribed(r);
    assert_status(DIBS_OK, dibs__subscriber_await(r->subscriber, DIBS__NEVER, &serial, &error));
}

enum { THREADS = 8, ROUNDS = 25 };

struct crowd {
    struct rig *r;
    atomic_uint right, left;
};

static void *run_crowd(void *arg)
{
    struct crowd *c = arg;
    struct dibs__error error;
    uint64_t serial, last = 0;

    for (unsigned i = 0; i < ROUNDS; i++) {
        if (dibs__subscriber_await(c->r->subscriber, DIBS__NEVER, &serial, &error) == DIBS_OK)
            c->right += serial > last;
        last = serial;
        dibs__subscriber_distrust(c->r->subscriber, serial);
    }
    c->left--;
    return NULL;
}

static void many_threads_may_wait_and_distrust(void **state)
{
    struct rig *r = *state;
    struct crowd crowd = {.r = r, .left = THREADS};
    pthread_t threads[THREADS];

    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_crowd, &crowd), 0);
    for (int64_t limit = now_ms() + LIMIT_MS; crowd.left > 0;) {
        assert_true(now_ms() < limit);
        attend(r);
        if (deadline_of(r) > moved_clock_now(&r->clock) && deadline_of(r) <= after(r, DEAF_LAST_MS))
            moved_clock_set(&r->clock, deadline_of(r));
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(crowd.right, THREADS * ROUNDS);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(it_subscribes_when_wanted_and_not_before),
        TEST(it_stands_only_when_that_is_confirmed),
        TEST(a_confirmation_in_the_last_moment_is_in_time),
        TEST(it_subscribes_again_when_the_connection_breaks),
        TEST(it_is_not_made_anew_too_soon),
        TEST(it_ends_its_predecessor_before_it_subscribes),
        TEST(the_predecessor_of_a_failed_attempt_is_ended_too),
        TEST(one_that_was_never_confirmed_is_ended_too),
        TEST(messages_arrive_in_order),
        TEST(a_message_may_come_in_pieces),
        TEST(a_message_may_hold_any_bytes),
        TEST(more_than_is_read_at_once_arrives_whole),
        TEST(what_is_no_message_is_not_passed_on),
        TEST(what_tells_that_it_is_broken_ends_it),
        TEST(one_that_breaks_at_once_stood_all_the_same),
        TEST(who_may_not_use_the_channel_is_told_so),
        TEST(each_attempt_that_fails_makes_the_next_wait_longer),
        TEST(who_relies_on_it_is_told_when_it_can_not_be_made_anew),
        TEST(an_attempt_is_given_up_after_the_connect_timeout),
        TEST(an_attempt_that_is_not_confirmed_is_given_up_as_well),
        TEST(one_that_is_distrusted_is_made_anew),
        TEST(distrust_of_another_one_does_nothing),
        TEST(it_may_be_distrusted_as_soon_as_it_stands),
        TEST(one_that_is_deaf_like_the_one_before_is_put_off),
        TEST(one_that_is_confirmed_is_trusted_again),
        TEST(a_message_confirms_it_too),
        TEST(to_confirm_another_one_does_nothing),
        TEST(one_that_breaks_is_made_anew_and_told),
        TEST(one_that_breaks_again_and_again_is_put_off_too),
        TEST(one_that_is_awaited_is_not_put_off_for_long),
        TEST(one_that_is_distrusted_still_tells),
        TEST(silence_is_broken_by_a_ping),
        TEST(who_talks_is_not_pinged),
        TEST(no_answer_to_a_ping_ends_it),
        TEST(anything_answers_a_ping),
        TEST(who_has_no_right_to_ping_is_answered_too),
        TEST(a_ping_waits_for_room_in_the_socket),
        TEST(who_waits_is_woken_when_it_stands),
        TEST(who_waits_for_the_next_gets_the_next),
        TEST(who_waits_leaves_at_the_deadline),
        TEST(who_waits_is_told_when_an_attempt_fails),
        TEST(a_failure_before_the_call_is_told_at_the_deadline_only),
        TEST(a_right_that_was_denied_is_told_at_once),
        TEST(many_threads_may_wait_and_distrust),
    };

    return cmocka_run_group_tests_name("subscriber", tests, NULL, NULL);
}
