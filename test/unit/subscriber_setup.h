/* A subscriber on a server that follows a script and on a clock that the test moves: shared by the subscriber tests. */
#ifndef DIBS_TEST_SUBSCRIBER_SETUP_H
#define DIBS_TEST_SUBSCRIBER_SETUP_H

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "redis/subscriber.h"
#include "support/fake_redis.h"
#include "support/moved_clock.h"
#include "support/test.h"

#define CONNECT_MS 60000
#define COMMAND_MS 1000
#define SILENCE_MS 5000
#define UNCONFIRMED_LAST_MS 2000
#define MESSAGES_MOST 2048
#define CHANGES_MOST 64
#define NO_KEY SIZE_MAX

#define CONFIRMED "*3\r\n$9\r\nsubscribe\r\n$9\r\ndibs:test\r\n:1\r\n"
#define MESSAGE(size, text) "*3\r\n$7\r\nmessage\r\n$9\r\ndibs:test\r\n$" #size "\r\n" text "\r\n"
#define PONG "*2\r\n$4\r\npong\r\n$0\r\n\r\n"
#define NOPERM "-NOPERM No permissions to access a channel\r\n"

struct message {
    size_t size;
    char bytes[16]; /* its first ones */
};

/* The test plays the scheduler, on a clock that only it moves. */
struct rig {
    fake_redis *fake;
    struct moved_clock clock;
    struct dibs__endpoint endpoint;
    atomic_uint_fast64_t commands, errors;
    struct dibs__subscriber *subscriber;
    atomic_uint woken;
    _Atomic int64_t woken_by;
    unsigned subscribed, distrusted_by_hook;
    void (*on_text)(struct rig *r, const char *bytes, size_t size); /* takes messages in the place of `messages` */
    struct message messages[MESSAGES_MOST];
    size_t message_count;
    struct message changes[CHANGES_MOST]; /* keys; where all may have changed, none: its size is then NO_KEY */
    size_t change_count;
    int server; /* the test's side of a connection that it has taken over; 0: none */
};

/* The hooks call the subscriber: with its mutex held, such a call would never return. */
static inline void ask_back(struct rig *r)
{
    struct dibs__error error;
    uint64_t serial;

    dibs__subscriber_await(r->subscriber, 0, &serial, &error);
}

static inline void on_wake(void *context)
{
    struct rig *r = context;

    ask_back(r);
    r->woken++;
}

static inline void on_wake_by(void *context, int64_t when)
{
    struct rig *r = context;

    ask_back(r);
    r->woken_by = when;
}

static inline void on_subscribed(void *context)
{
    struct rig *r = context;

    r->subscribed++;
    if (r->distrusted_by_hook >= r->subscribed)
        dibs__subscriber_distrust(r->subscriber, dibs__subscriber_serial(r->subscriber));
    ask_back(r);
}

static inline void on_message(void *context, const char *bytes, size_t size)
{
    struct rig *r = context;

    if (r->on_text) {
        r->on_text(r, bytes, size);
        return;
    }
    struct message *message = &r->messages[r->message_count++];
    ask_back(r);
    assert_true(r->message_count < MESSAGES_MOST);
    message->size = size;
    memcpy(message->bytes, bytes, size < sizeof message->bytes ? size : sizeof message->bytes);
}

static inline void on_changed(void *context, const char *key, size_t size)
{
    struct rig *r = context;
    struct message *change = &r->changes[r->change_count++];

    ask_back(r);
    assert_true(r->change_count < CHANGES_MOST);
    change->size = key ? size : NO_KEY;
    if (key)
        memcpy(change->bytes, key, size < sizeof change->bytes ? size : sizeof change->bytes);
}

static inline int setup(void **state)
{
    static struct rig rig;
    struct rig *r = &rig;
    const struct dibs__subscriber_hooks hooks = {r, on_wake, on_wake_by, on_subscribed, r, on_message, on_changed};

    memset(r, 0, sizeof *r);
    r->fake = fake_redis_start(false);
    fake_redis_answer(r->fake, "SUBSCRIBE", CONFIRMED);
    fake_redis_answer(r->fake, "PING", PONG);
    moved_clock_init(&r->clock);
    fake_redis_endpoint(&r->endpoint, fake_redis_url(r->fake), &r->commands, &r->errors);
    r->endpoint.clock = &r->clock.clock;
    r->endpoint.connect_timeout_ms = CONNECT_MS;
    r->endpoint.command_timeout_ms = COMMAND_MS;
    r->subscriber = dibs__subscriber_new(&r->endpoint, &hooks);
    assert_non_null(r->subscriber);
    *state = r;
    return 0;
}

static inline int teardown(void **state)
{
    struct rig *r = *state;

    if (r->server > 0)
        close(r->server);
    dibs__subscriber_free(r->subscriber);
    dibs__endpoint_free(&r->endpoint);
    moved_clock_destroy(&r->clock);
    fake_redis_stop(r->fake);
    return 0;
}

static inline int64_t after(struct rig *r, int64_t ms)
{
    return moved_clock_now(&r->clock) + MS(ms);
}

static inline uint64_t serial_of(struct rig *r)
{
    return dibs__subscriber_serial(r->subscriber);
}

/* One round of the scheduler. Sleeps a little where there is nothing to do. */
static inline void attend(struct rig *r)
{
    int64_t deadline = DIBS__NEVER;
    struct pollfd fd = dibs__subscriber_interest(r->subscriber, &deadline);
    poll(&fd, 1, deadline > moved_clock_now(&r->clock) ? 2 : 0);
    dibs__subscriber_attend(r->subscriber, fd.fd >= 0 ? fd.revents : 0, moved_clock_now(&r->clock));
}

/* Goes on as the scheduler until it is so. */
#define ATTEND_UNTIL(r, condition) TEST_REPEAT(condition, #condition, attend(r))

/* Goes on as the scheduler until there is nothing left to do. */
static inline void attend_all(struct rig *r)
{
    struct pollfd fd;
    int64_t deadline;

    for (;;) {
        deadline = DIBS__NEVER;
        fd = dibs__subscriber_interest(r->subscriber, &deadline);
        if (poll(&fd, 1, 0) == 0 && deadline > moved_clock_now(&r->clock))
            return;
        dibs__subscriber_attend(r->subscriber, fd.fd >= 0 ? fd.revents : 0, moved_clock_now(&r->clock));
    }
}

/* What the scheduler polls for. */
static inline struct pollfd polled(struct rig *r)
{
    int64_t deadline = DIBS__NEVER;

    return dibs__subscriber_interest(r->subscriber, &deadline);
}

static inline int64_t deadline_of(struct rig *r)
{
    int64_t deadline = DIBS__NEVER;
    dibs__subscriber_interest(r->subscriber, &deadline);
    return deadline;
}

static inline bool is_connected(struct rig *r)
{
    return polled(r).fd >= 0;
}

/* Lets the time pass that the scheduler must wait before it tries again, and returns it. */
static inline int64_t pass_pause(struct rig *r)
{
    int64_t deadline = deadline_of(r), now = moved_clock_now(&r->clock);

    assert_false(is_connected(r));
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
static inline uint64_t subscribed(struct rig *r)
{
    ATTEND_UNTIL(r, serial_of(r) != 0);
    return serial_of(r);
}

static inline uint64_t subscribed_again(struct rig *r)
{
    ATTEND_UNTIL(r, !is_connected(r));
    pass_pause(r);
    return subscribed(r);
}

/* The one with that number, from 1. */
static inline void expect_failed_try(struct rig *r, unsigned number)
{
    ATTEND_UNTIL(r, fake_redis_accepted(r->fake) == number);
    ATTEND_UNTIL(r, !is_connected(r));
}

/*
 * Puts the test in the place of the server: the subscriber reads what is written to the returned socket, which the
 * teardown closes.
 */
static inline int take_over(struct rig *r)
{
    struct pollfd fd = polled(r);
    int pair[2];

    assert_true(fd.fd >= 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    assert_int_equal(dup3(pair[0], fd.fd, O_CLOEXEC), fd.fd);
    close(pair[0]);
    return r->server = pair[1];
}

static inline void feed(int server, const char *bytes, size_t size)
{
    assert_int_equal(write(server, bytes, size), (ssize_t)size);
}

static inline void feed_text(int server, const char *bytes)
{
    feed(server, bytes, strlen(bytes));
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

static inline void *run_waiter(void *arg)
{
    struct waiter *w = arg;

    w->status = dibs__subscriber_await(w->r->subscriber, w->deadline, &w->serial, &w->error);
    return NULL;
}

/* It sleeps when this returns. */
static inline void begin(struct waiter *w, struct rig *r, int64_t deadline)
{
    *w = (struct waiter){.r = r, .deadline = deadline, .serial = 77};
    assert_int_equal(pthread_create(&w->thread, NULL, run_waiter, w), 0);
    moved_clock_await_waiting(&r->clock, 1);
}

static inline void expect_subscribed(struct waiter *w, uint64_t serial)
{
    pthread_join(w->thread, NULL);
    assert_status(DIBS_OK, w->status);
    assert_int_equal(w->serial, serial);
}

static inline void expect_failed(struct waiter *w, dibs_status status)
{
    pthread_join(w->thread, NULL);
    assert_status(status, w->status);
    assert_int_equal(w->serial, 0);
    assert_int_equal(w->error.status, status);
    assert_true(w->error.detail[0]);
}

#endif
