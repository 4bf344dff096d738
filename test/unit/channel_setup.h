/* A channel to a server that follows a script, on a clock that the test moves: shared by the channel tests. */
#ifndef DIBS_TEST_CHANNEL_SETUP_H
#define DIBS_TEST_CHANNEL_SETUP_H

#include "redis/channel.h"
#include "support/fake_redis.h"
#include "support/moved_clock.h"
#include "support/test.h"

#define CONNECT_MS 60000
#define COMMAND_MS 30000

/* A channel on a clock that only the test moves: nothing times out because the machine is slow. */
struct rig {
    fake_redis *fake;
    struct moved_clock clock;
    struct dibs__endpoint endpoint;
    atomic_uint_fast64_t commands, errors;
    struct dibs__channel *channel;
    atomic_uint opened, reopened, failed, silent, unattended; /* how often the hooks were called */
};

/* The hooks call the channel: that would never return if a hook were called with the channel's mutex held. */
static inline void ask_back(struct rig *r)
{
    struct dibs__link_view view;

    dibs__channel_load(r->channel);
    dibs__channel_view(r->channel, &view);
}

static inline void on_opened(void *context, uint64_t serial)
{
    struct rig *r = context;

    ask_back(r);
    r->opened++;
    r->reopened += serial > 1;
}

static inline void on_failed(void *context, const struct dibs__error *error, bool silent)
{
    struct rig *r = context;

    ask_back(r);
    r->failed += error->status != DIBS_OK && error->detail[0];
    r->silent += silent;
}

static inline void on_unattended(void *context)
{
    struct rig *r = context;

    ask_back(r);
    r->unattended++;
}

static inline void rig_open(struct rig *r)
{
    const struct dibs__channel_hooks hooks = {r, on_opened, on_failed, on_unattended, NULL};

    memset(r, 0, sizeof *r);
    r->fake = fake_redis_start(false);
    moved_clock_init(&r->clock);
    fake_redis_endpoint(&r->endpoint, fake_redis_url(r->fake), &r->commands, &r->errors);
    r->endpoint.clock = &r->clock.clock;
    r->endpoint.connect_timeout_ms = CONNECT_MS;
    r->endpoint.command_timeout_ms = COMMAND_MS;
    r->channel = dibs__channel_new(&r->endpoint, &hooks);
    assert_non_null(r->channel);
}

static inline void rig_close(struct rig *r)
{
    dibs__channel_free(r->channel);
    dibs__endpoint_free(&r->endpoint);
    moved_clock_destroy(&r->clock);
    fake_redis_stop(r->fake);
}

static inline int setup(void **state)
{
    static struct rig rig;

    rig_open(&rig);
    *state = &rig;
    return 0;
}

static inline int teardown(void **state)
{
    rig_close(*state);
    return 0;
}

static inline int64_t after(struct rig *r, int64_t ms)
{
    return moved_clock_now(&r->clock) + MS(ms);
}

/* Connects, and returns the serial of the connection. */
static inline uint64_t open_now(struct rig *r)
{
    struct dibs__link_view view;
    struct dibs__error error;

    assert_status(DIBS_OK, dibs__channel_open(r->channel, after(r, CONNECT_MS), &view, &error));
    return view.serial;
}

static inline bool stands(struct rig *r)
{
    struct dibs__link_view view;

    return dibs__channel_view(r->channel, &view);
}

struct echo {
    const char *words[3];
    struct dibs__command command;
};

static inline const struct dibs__command *echo_of(struct echo *echo, const char *text)
{
    *echo = (struct echo){{"ECHO", text, NULL}, {.words = echo->words}};
    return &echo->command;
}

static inline struct dibs__request *send_echo(struct rig *r, uint64_t serial, const char *text,
                                              struct dibs__error *error)
{
    struct echo echo;

    return dibs__channel_send(r->channel, serial, echo_of(&echo, text), moved_clock_now(&r->clock), error);
}

/* The same for the test's own thread: it is sent. */
static inline struct dibs__request *sent_echo(struct rig *r, uint64_t serial, const char *text)
{
    struct dibs__error error;
    struct dibs__request *request = send_echo(r, serial, text, &error);

    assert_non_null(request);
    return request;
}

static inline bool submit_echo(struct rig *r, uint64_t serial, const char *text, dibs__reply_fn *done, void *arg)
{
    struct echo echo;

    return dibs__channel_submit(r->channel, serial, echo_of(&echo, text), done, arg);
}

/* A text that the socket does not take, because the server ignores it for now; the server answers "long". */
static inline const char *ignored_text(struct rig *r)
{
    enum { LARGE = 4 << 20 };
    static char text[LARGE + 1];

    memset(text, 'y', LARGE);
    fake_redis_answer(r->fake, "ECHO yyyy", "$4\r\nlong\r\n");
    fake_redis_ignore_peers(r->fake, true);
    return text;
}

/* dibs__channel_wait, with its results as separate arguments. */
static inline dibs_status wait_for(struct dibs__channel *channel, struct dibs__request *request, int64_t deadline,
                                   redisReply **reply, bool *unknown, struct dibs__error *error)
{
    struct dibs__exchange exchange = {.deadline = deadline, .error = error};
    dibs_status status = dibs__channel_wait(channel, request, &exchange);

    *reply = exchange.reply;
    *unknown = exchange.unknown;
    return status;
}

/* Looks, at most until that time, whether the reply has come. True: to wait for it takes no time. From any thread. */
static inline bool await_reply(struct rig *r, struct dibs__request *request, int64_t until)
{
    struct dibs__wait_event wait_event;
    enum dibs__reply_state state;
    struct dibs__wait wait;

    dibs__wait_event_init(&wait_event);
    dibs__wait_init(&wait, &wait_event);
    for (;;) {
        dibs__wait_event_reset(&wait_event);
        state = dibs__channel_progress(r->channel, request, &wait);
        if (state != DIBS__REPLY_AWAITED || moved_clock_now(&r->clock) >= until)
            break;
        dibs__waits_sleep(&wait, 1, &wait_event, &r->clock.clock, until);
    }
    dibs__wait_end(&wait);
    return state != DIBS__REPLY_AWAITED;
}

static inline bool look_for_reply(struct rig *r, struct dibs__request *request)
{
    return dibs__channel_progress(r->channel, request, NULL) != DIBS__REPLY_AWAITED;
}

/* Waits for the reply to the request. True: it is that text. From any thread. */
static inline bool wait_echo_until(struct rig *r, struct dibs__request *request, const char *text, int64_t deadline)
{
    struct dibs__error error;
    redisReply *reply;
    bool unknown;

    if (wait_for(r->channel, request, deadline, &reply, &unknown, &error) != DIBS_OK)
        return false;
    bool right = reply->type == REDIS_REPLY_STRING && strcmp(reply->str, text) == 0;
    freeReplyObject(reply);
    return right;
}

static inline bool wait_echo(struct rig *r, struct dibs__request *request, const char *text)
{
    return wait_echo_until(r, request, text, after(r, COMMAND_MS));
}

/* There is no reply, and whether the command was executed is not known. */
static inline void expect_in_doubt(struct rig *r, struct dibs__request *request, int64_t deadline)
{
    struct dibs__error error = {DIBS_OK, ""};
    redisReply *reply;
    bool unknown = false;

    assert_status(DIBS_UNAVAILABLE, wait_for(r->channel, request, deadline, &reply, &unknown, &error));
    assert_null(reply);
    assert_true(unknown);
    assert_true(error.detail[0]);
}

static inline bool echoes(struct rig *r, uint64_t serial, const char *text)
{
    struct dibs__error error;
    struct dibs__request *request = send_echo(r, serial, text, &error);

    return request && wait_echo(r, request, text);
}

/* A thread that sends an echo and waits for it. */
struct caller {
    struct rig *r;
    const char *text;
    uint64_t serial;
    int64_t deadline;
    pthread_t thread;
    dibs_status status;
    bool unknown, right;
    struct dibs__error error;
};

static inline void *run_caller(void *arg)
{
    struct caller *c = arg;
    struct dibs__request *request = send_echo(c->r, c->serial, c->text, &c->error);
    redisReply *reply = NULL;

    c->status =
        request ? wait_for(c->r->channel, request, c->deadline, &reply, &c->unknown, &c->error) : c->error.status;
    c->right = reply && reply->str && strcmp(reply->str, c->text) == 0;
    if (reply)
        freeReplyObject(reply);
    return NULL;
}

static inline void begin(struct caller *c)
{
    c->unknown = false;
    assert_int_equal(pthread_create(&c->thread, NULL, run_caller, c), 0);
}

/* It reads, and its command has come; the test attends no channel meanwhile. */
static inline void begin_reading(struct caller *c)
{
    char command[32];

    begin(c);
    snprintf(command, sizeof command, "ECHO %s", c->text);
    fake_redis_await(c->r->fake, command, 1);
    moved_clock_settle(&c->r->clock, 1);
}

static inline void expect_right(struct caller *c)
{
    pthread_join(c->thread, NULL);
    assert_status(DIBS_OK, c->status);
    assert_that(c->right, "%s got another's reply", c->text);
}

static inline void expect_unknown(struct caller *c, dibs_status status)
{
    pthread_join(c->thread, NULL);
    assert_status(status, c->status);
    assert_true(c->unknown);
    assert_true(c->error.detail[0]);
}

/* Two threads on one connection, whose server answers neither: the first reads, the second waits for the first. */
static inline void begin_two(struct rig *r, struct caller pair[2], int64_t first_ms, int64_t second_ms)
{
    uint64_t serial = open_now(r);

    fake_redis_hold(r->fake, true);
    pair[0] = (struct caller){.r = r, .text = "first", .serial = serial, .deadline = after(r, first_ms)};
    pair[1] = (struct caller){.r = r, .text = "second", .serial = serial, .deadline = after(r, second_ms)};
    begin_reading(&pair[0]);
    begin(&pair[1]);
    moved_clock_await_waiting(&r->clock, 1);
}

/* Until when the scheduler may sleep. */
static inline int64_t deadline_of(struct rig *r, bool keep_open)
{
    int64_t deadline = DIBS__NEVER;

    dibs__channel_interest(r->channel, keep_open, &deadline);
    return deadline;
}

/* One round of the scheduler. Sleeps a little where there is nothing to do. */
static inline void attend(struct rig *r, bool keep_open)
{
    int64_t deadline = DIBS__NEVER;
    struct pollfd fd = dibs__channel_interest(r->channel, keep_open, &deadline);
    poll(&fd, 1, deadline > moved_clock_now(&r->clock) ? 2 : 0);
    dibs__channel_attend(r->channel, keep_open, fd.fd >= 0 ? fd.revents : 0, moved_clock_now(&r->clock));
}

/* Goes on as the scheduler until the counter has that value. */
static inline void attend_until(struct rig *r, bool keep_open, const atomic_uint *counter, unsigned value)
{
    REPEAT_UNTIL(atomic_load(counter) >= value, attend(r, keep_open));
}

static inline void attend_until_broken(struct rig *r)
{
    int64_t limit = now_ms() + LIMIT_MS;
    struct pollfd fd;
    int64_t deadline;

    while (stands(r)) {
        deadline = DIBS__NEVER;
        fd = dibs__channel_interest(r->channel, true, &deadline);
        poll(&fd, 1, 10);
        dibs__channel_attend(r->channel, true, fd.revents, moved_clock_now(&r->clock));
        assert_true(now_ms() < limit);
    }
}

static inline void count_broken(void *arg, const redisReply *reply, const struct dibs__error *error)
{
    atomic_uint *broken = arg;

    *broken += !reply && error && error->status != DIBS_OK;
}

enum { SUBMITS = 200 }; /* more than are handed out at once */

struct submits {
    struct rig *r;
    atomic_uint done, in_order, broken;
};

struct submitted {
    struct submits *all;
    unsigned number;
    char text[16];
};

static inline void on_submitted(void *arg, const redisReply *reply, const struct dibs__error *error)
{
    struct submitted *s = arg;

    ask_back(s->all->r);
    s->all->in_order += s->number == s->all->done;
    s->all->broken += !reply && error->status != DIBS_OK;
    if (reply && strcmp(reply->str, s->text) != 0)
        s->all->broken += SUBMITS;
    s->all->done++;
}

static inline void submit_all(struct rig *r, uint64_t serial, struct submits *all, struct submitted list[SUBMITS])
{
    *all = (struct submits){.r = r};
    for (unsigned i = 0; i < SUBMITS; i++) {
        list[i] = (struct submitted){.all = all, .number = i};
        snprintf(list[i].text, sizeof list[i].text, "s%u", i);
        assert_true(submit_echo(r, serial, list[i].text, on_submitted, &list[i]));
    }
}

/* Waits until bytes of the server lie in the socket; nobody has read them yet. */
static inline void await_bytes(struct rig *r)
{
    int64_t deadline = DIBS__NEVER;
    struct pollfd fd = dibs__channel_interest(r->channel, true, &deadline);
    assert_true(fd.fd >= 0);
    fd.events = POLLIN;
    assert_int_equal(poll(&fd, 1, LIMIT_MS), 1);
}

#endif
