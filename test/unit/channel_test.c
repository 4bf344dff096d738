/* One connection shared by many threads: whose reply is whose, who reads, and what becomes of all when it breaks. */
#include <stdio.h>
#include <string.h>

#include "redis/channel.h"
#include "support/fake_redis.h"
#include "support/moved_clock.h"
#include "support/test.h"
#include "support/wait.h"

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

/* The hooks ask the channel something: with its mutex held, that would never return. */
static void ask_back(struct rig *r)
{
    struct dibs__link_view view;

    dibs__channel_load(r->channel);
    dibs__channel_view(r->channel, &view);
}

static void on_opened(void *context, bool again)
{
    struct rig *r = context;

    ask_back(r);
    r->opened++;
    r->reopened += again;
}

static void on_failed(void *context, const struct dibs__error *error, bool silent)
{
    struct rig *r = context;

    ask_back(r);
    r->failed += error->status != DIBS_OK && error->detail[0];
    r->silent += silent;
}

static void on_unattended(void *context)
{
    struct rig *r = context;

    ask_back(r);
    r->unattended++;
}

static int setup(void **state)
{
    static struct rig rig;
    struct rig *r = &rig;
    const struct dibs__channel_hooks hooks = {r, on_opened, on_failed, on_unattended};

    memset(r, 0, sizeof *r);
    r->fake = fake_redis_start(false);
    moved_clock_init(&r->clock);
    fake_redis_endpoint(&r->endpoint, fake_redis_url(r->fake), &r->commands, &r->errors);
    r->channel = dibs__channel_new(&r->endpoint, &r->clock.clock, &hooks, CONNECT_MS, COMMAND_MS);
    assert_non_null(r->channel);
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;

    dibs__channel_free(r->channel);
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

/* Connects; the serial of the connection. */
static uint64_t open_now(struct rig *r)
{
    struct dibs__link_view view;
    struct dibs__error error;

    assert_status(DIBS_OK, dibs__channel_open(r->channel, after(r, CONNECT_MS), &view, &error));
    return view.serial;
}

static bool stands(struct rig *r)
{
    struct dibs__link_view view;

    return dibs__channel_view(r->channel, &view);
}

struct echo {
    const char *words[2];
    size_t sizes[2];
    struct dibs__command command;
};

static const struct dibs__command *echo_of(struct echo *echo, const char *text)
{
    *echo = (struct echo){{"ECHO", text}, {4, strlen(text)}, {2, echo->words, echo->sizes}};
    return &echo->command;
}

static struct dibs__request *send_echo(struct rig *r, uint64_t serial, const char *text, struct dibs__error *error)
{
    struct echo echo;

    return dibs__channel_send(r->channel, serial, echo_of(&echo, text), moved_clock_now(&r->clock), error);
}

/* Takes the reply of a request; true where it is that text. Any thread. */
static bool wait_echo(struct rig *r, struct dibs__request *request, const char *text)
{
    struct dibs__error error;
    redisReply *reply;
    bool unknown;

    if (dibs__channel_wait(r->channel, request, after(r, COMMAND_MS), &reply, &unknown, &error) != DIBS_OK)
        return false;
    bool right = reply->type == REDIS_REPLY_STRING && strcmp(reply->str, text) == 0;
    freeReplyObject(reply);
    return right;
}

static bool echoes(struct rig *r, uint64_t serial, const char *text)
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

static void *run_caller(void *arg)
{
    struct caller *c = arg;
    struct dibs__request *request = send_echo(c->r, c->serial, c->text, &c->error);
    redisReply *reply = NULL;

    c->status = request ? dibs__channel_wait(c->r->channel, request, c->deadline, &reply, &c->unknown, &c->error)
                        : c->error.status;
    c->right = reply && reply->str && strcmp(reply->str, c->text) == 0;
    if (reply)
        freeReplyObject(reply);
    return NULL;
}

static void begin(struct caller *c)
{
    c->unknown = false;
    assert_int_equal(pthread_create(&c->thread, NULL, run_caller, c), 0);
}

static void expect_right(struct caller *c)
{
    pthread_join(c->thread, NULL);
    assert_status(DIBS_OK, c->status);
    assert_that(c->right, "%s got another's reply", c->text);
}

static void expect_unknown(struct caller *c, dibs_status status)
{
    pthread_join(c->thread, NULL);
    assert_status(status, c->status);
    assert_true(c->unknown);
    assert_true(c->error.detail[0]);
}

/* Two threads on one connection that answers neither: the first reads, the second waits for it to. */
static void begin_two(struct rig *r, struct caller pair[2], int64_t first_ms, int64_t second_ms)
{
    uint64_t serial = open_now(r);

    fake_redis_hold(r->fake, true);
    pair[0] = (struct caller){.r = r, .text = "first", .serial = serial, .deadline = after(r, first_ms)};
    pair[1] = (struct caller){.r = r, .text = "second", .serial = serial, .deadline = after(r, second_ms)};
    begin(&pair[0]);
    fake_redis_await(r->fake, "ECHO first", 1);
    moved_clock_settle(&r->clock, 1);
    begin(&pair[1]);
    moved_clock_await_waiting(&r->clock, 1);
}

/* One round of the scheduler. Sleeps a little where there is nothing to do. */
static void attend(struct rig *r, bool keep_open)
{
    struct pollfd fd;
    int64_t deadline;

    dibs__channel_interest(r->channel, keep_open, &fd, &deadline);
    if (deadline > moved_clock_now(&r->clock))
        poll(&fd, 1, 2);
    else
        poll(&fd, 1, 0);
    dibs__channel_attend(r->channel, keep_open, fd.fd >= 0 ? fd.revents : 0, moved_clock_now(&r->clock));
}

/* Goes on as the scheduler until the counter has that value. */
static void attend_until(struct rig *r, bool keep_open, const atomic_uint *counter, unsigned value)
{
    int64_t limit = now_ms() + LIMIT_MS;

    while (atomic_load(counter) < value) {
        attend(r, keep_open);
        assert_that(now_ms() < limit, "%u of %u", atomic_load(counter), value);
    }
}

static void attend_until_broken(struct rig *r)
{
    int64_t limit = now_ms() + LIMIT_MS;
    struct pollfd fd;
    int64_t deadline;

    while (stands(r)) {
        dibs__channel_interest(r->channel, true, &fd, &deadline);
        poll(&fd, 1, 10);
        dibs__channel_attend(r->channel, true, fd.revents, moved_clock_now(&r->clock));
        assert_true(now_ms() < limit);
    }
}

/* Goes on as the scheduler until nothing is in flight. */
static void attend_until_idle(struct rig *r)
{
    int64_t limit = now_ms() + LIMIT_MS;

    while (dibs__channel_load(r->channel) > 0) {
        attend(r, false);
        assert_that(now_ms() < limit, "%u in flight", dibs__channel_load(r->channel));
    }
}

/* --------------------------------------------------------- replies in order */

enum { THREADS = 16, ROUNDS = 200 };

struct crowd {
    struct rig *r;
    uint64_t serial;
    unsigned number, right;
    atomic_uint *at_work; /* how many of all threads still are */
};

static void *run_crowd(void *arg)
{
    struct crowd *c = arg;
    char text[32];

    for (unsigned i = 0; i < ROUNDS; i++) {
        snprintf(text, sizeof text, "%u-%u", c->number, i);
        c->right += echoes(c->r, c->serial, text);
    }
    atomic_fetch_sub(c->at_work, 1);
    return NULL;
}

/* Also where the scheduler is there to read and to write, whenever it sees that nobody does. */
static void let_many_threads_echo(struct rig *r, bool scheduler)
{
    struct crowd crowd[THREADS];
    pthread_t threads[THREADS];
    uint64_t serial = open_now(r);
    atomic_uint at_work = THREADS;

    for (unsigned i = 0; i < THREADS; i++) {
        crowd[i] = (struct crowd){r, serial, i, 0, &at_work};
        assert_int_equal(pthread_create(&threads[i], NULL, run_crowd, &crowd[i]), 0);
    }
    while (scheduler && atomic_load(&at_work) > 0)
        dibs__channel_attend(r->channel, false, POLLIN | POLLOUT, moved_clock_now(&r->clock));
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < THREADS; i++)
        assert_that(crowd[i].right == ROUNDS, "%u of thread %u", crowd[i].right, i);
    assert_int_equal(fake_redis_accepted(r->fake), 1);
    assert_int_equal(dibs__channel_load(r->channel), 0);
    assert_int_equal(r->opened, 1);
    assert_int_equal(r->reopened, 0);
}

static void each_of_many_threads_gets_its_own_replies(void **state)
{
    let_many_threads_echo(*state, false);
}

static void the_scheduler_reads_beside_many_threads(void **state)
{
    let_many_threads_echo(*state, true);
}

static void a_reader_that_leaves_early_passes_the_reading_on(void **state)
{
    struct rig *r = *state;
    struct caller pair[2];

    begin_two(r, pair, 10, 10 * COMMAND_MS);
    assert_int_equal(dibs__channel_load(r->channel), 2);
    moved_clock_advance(&r->clock, MS(10));
    expect_unknown(&pair[0], DIBS_UNAVAILABLE);
    fake_redis_hold(r->fake, false);
    expect_right(&pair[1]);
    assert_true(stands(r));
    assert_int_equal(dibs__channel_load(r->channel), 0);
    assert_int_equal(fake_redis_accepted(r->fake), 1);
}

static void who_does_not_read_may_leave_early_as_well(void **state)
{
    struct rig *r = *state;
    struct caller pair[2];

    begin_two(r, pair, COMMAND_MS, 10);
    moved_clock_advance(&r->clock, MS(10));
    expect_unknown(&pair[1], DIBS_UNAVAILABLE);
    fake_redis_hold(r->fake, false);
    expect_right(&pair[0]);
    assert_true(echoes(r, pair[0].serial, "third"));
    assert_true(stands(r));
}

static void a_late_reply_is_not_given_to_the_next(void **state)
{
    struct rig *r = *state;
    uint64_t serial = open_now(r);
    struct dibs__error error;
    redisReply *reply;
    bool unknown = false;

    fake_redis_hold(r->fake, true);
    struct dibs__request *request = send_echo(r, serial, "late", &error);
    assert_non_null(request);
    fake_redis_await(r->fake, "ECHO late", 1);
    assert_status(DIBS_UNAVAILABLE,
                  dibs__channel_wait(r->channel, request, moved_clock_now(&r->clock), &reply, &unknown, &error));
    assert_true(unknown);
    assert_null(reply);
    assert_true(r->unattended > 0);
    assert_int_equal(dibs__channel_load(r->channel), 1);
    fake_redis_hold(r->fake, false);
    assert_true(echoes(r, serial, "next"));
    assert_int_equal(open_now(r), serial);
    assert_int_equal(fake_redis_accepted(r->fake), 1);
}

static void the_scheduler_reads_what_nobody_waits_for(void **state)
{
    struct rig *r = *state;
    uint64_t serial = open_now(r);
    struct dibs__error error;
    redisReply *reply;
    bool unknown;

    fake_redis_hold(r->fake, true); /* else the reply may be there at the caller's last look */
    struct dibs__request *request = send_echo(r, serial, "left", &error);
    assert_non_null(request);
    assert_status(DIBS_UNAVAILABLE,
                  dibs__channel_wait(r->channel, request, moved_clock_now(&r->clock), &reply, &unknown, &error));
    fake_redis_hold(r->fake, false);
    attend_until_idle(r);
    assert_true(stands(r));
}

/* ---------------------------------------------------------------- breaking */

static void count_broken(void *arg, const redisReply *reply, const struct dibs__error *error)
{
    atomic_uint *broken = arg;

    *broken += !reply && error && error->status != DIBS_OK;
}

static void a_request_that_waited_for_all_of_it_ends_the_connection(void **state)
{
    struct rig *r = *state;
    struct caller pair[2];
    struct echo echo;
    atomic_uint broken = 0;

    begin_two(r, pair, 10 * COMMAND_MS, 10 * COMMAND_MS);
    moved_clock_advance(&r->clock, MS(COMMAND_MS - 1));
    assert_true(dibs__channel_submit(r->channel, pair[0].serial, echo_of(&echo, "third"), count_broken, &broken));
    assert_int_equal(dibs__channel_load(r->channel), 3);
    moved_clock_advance(&r->clock, MS(1));
    expect_unknown(&pair[0], DIBS_UNAVAILABLE);
    expect_unknown(&pair[1], DIBS_UNAVAILABLE);
    assert_int_equal(broken, 1);
    assert_false(stands(r));
    assert_int_equal(dibs__channel_load(r->channel), 0);
    fake_redis_hold(r->fake, false);
    uint64_t serial = open_now(r);
    assert_true(serial > pair[0].serial);
    assert_true(echoes(r, serial, "again"));
    assert_int_equal(r->reopened, 1);
}

static void the_scheduler_ends_a_connection_that_does_not_answer(void **state)
{
    struct rig *r = *state;
    uint64_t serial = open_now(r);
    struct pollfd fd;
    int64_t deadline;
    struct echo echo;
    atomic_uint broken = 0;

    fake_redis_hold(r->fake, true);
    assert_true(dibs__channel_submit(r->channel, serial, echo_of(&echo, "one"), count_broken, &broken));
    dibs__channel_interest(r->channel, false, &fd, &deadline);
    assert_true(fd.fd >= 0 && (fd.events & POLLIN));
    assert_true(deadline == after(r, COMMAND_MS));
    moved_clock_set(&r->clock, deadline - 1);
    dibs__channel_attend(r->channel, false, 0, deadline - 1);
    assert_true(stands(r));
    moved_clock_set(&r->clock, deadline);
    dibs__channel_attend(r->channel, false, 0, deadline);
    assert_false(stands(r));
    assert_int_equal(broken, 1);
}

static void what_was_not_handed_to_the_socket_is_known_not_to_have_run(void **state)
{
    enum { LARGE = 8 << 20 };
    struct rig *r = *state;
    uint64_t serial = open_now(r);
    struct dibs__error first_error, second_error;
    char *large = test_malloc(LARGE + 1);
    redisReply *reply;
    bool unknown;

    memset(large, 'x', LARGE);
    large[LARGE] = 0;
    fake_redis_deafen(r->fake, true);
    struct dibs__request *first = send_echo(r, serial, large, &first_error);
    struct dibs__request *second = send_echo(r, serial, "second", &second_error);
    assert_true(first && second);
    assert_true(r->unattended > 0); /* the rest is to be written by somebody */
    fake_redis_cut(r->fake);
    unknown = true;
    assert_status(DIBS_UNAVAILABLE,
                  dibs__channel_wait(r->channel, second, after(r, 1), &reply, &unknown, &second_error));
    assert_false(unknown);
    assert_status(DIBS_UNAVAILABLE, dibs__channel_wait(r->channel, first, after(r, 1), &reply, &unknown, &first_error));
    assert_true(unknown);
    test_free(large);
}

static bool wants_to_write(struct rig *r)
{
    struct pollfd fd;
    int64_t deadline;

    dibs__channel_interest(r->channel, false, &fd, &deadline);
    return fd.fd >= 0 && (fd.events & POLLOUT);
}

static void what_did_not_fit_into_the_socket_goes_out_when_it_is_read(void **state)
{
    enum { LARGE = 4 << 20 };
    struct rig *r = *state;
    uint64_t serial = open_now(r);
    struct dibs__error error;
    char *large = test_malloc(LARGE + 1);

    memset(large, 'y', LARGE);
    large[LARGE] = 0;
    fake_redis_answer(r->fake, "ECHO yyyy", "$4\r\nlong\r\n");
    fake_redis_deafen(r->fake, true);
    struct dibs__request *first = send_echo(r, serial, large, &error);
    struct dibs__request *second = send_echo(r, serial, "second", &error);
    assert_true(first && second);
    assert_true(wants_to_write(r)); /* the scheduler: it sleeps until the socket has room */
    fake_redis_deafen(r->fake, false);
    int64_t limit = now_ms() + LIMIT_MS;
    while (fake_redis_count(r->fake, "ECHO second") == 0) {
        attend(r, false);
        assert_true(now_ms() < limit);
    }
    assert_true(wait_echo(r, first, "long"));
    assert_false(wants_to_write(r));
    assert_true(wait_echo(r, second, "second"));
    test_free(large);
}

/* A thread that sends, and has time for it. */
struct sender {
    struct rig *r;
    uint64_t serial;
    const char *text;
    struct dibs__error error;
    struct dibs__request *request;
};

static void *run_sender(void *arg)
{
    struct sender *s = arg;
    struct echo echo;

    s->request =
        dibs__channel_send(s->r->channel, s->serial, echo_of(&echo, s->text), after(s->r, COMMAND_MS), &s->error);
    return NULL;
}

/* It sleeps until the socket has room: it is found in poll, with nothing to do. */
static void who_sends_sleeps_while_the_socket_is_full(void **state)
{
    enum { LARGE = 4 << 20 };
    struct rig *r = *state;
    char *large = test_malloc(LARGE + 1);
    pthread_t thread;

    memset(large, 'y', LARGE);
    large[LARGE] = 0;
    struct sender sender = {.r = r, .serial = open_now(r), .text = large};
    fake_redis_answer(r->fake, "ECHO yyyy", "$4\r\nlong\r\n");
    fake_redis_deafen(r->fake, true);
    assert_int_equal(pthread_create(&thread, NULL, run_sender, &sender), 0);
    moved_clock_settle(&r->clock, 1);
    fake_redis_deafen(r->fake, false);
    pthread_join(thread, NULL);
    assert_true(sender.request && wait_echo(r, sender.request, "long"));
    test_free(large);
}

static void nothing_is_sent_on_a_connection_that_is_no_more(void **state)
{
    struct rig *r = *state;
    uint64_t old = open_now(r);
    struct dibs__error error = {DIBS_OK, ""};
    struct echo echo;
    atomic_uint broken = 0;

    fake_redis_cut(r->fake);
    attend_until_broken(r);
    assert_null(send_echo(r, old, "none", &error));
    assert_int_equal(error.status, DIBS_UNAVAILABLE);
    uint64_t serial = open_now(r);
    assert_true(serial > old);
    error.status = DIBS_OK;
    assert_null(send_echo(r, old, "none", &error));
    assert_int_equal(error.status, DIBS_UNAVAILABLE);
    assert_false(dibs__channel_submit(r->channel, old, echo_of(&echo, "none"), count_broken, &broken));
    assert_true(echoes(r, serial, "new"));
    assert_int_equal(fake_redis_count(r->fake, "ECHO none"), 0);
    assert_int_equal(broken, 0);
    assert_int_equal(r->reopened, 1);
}

static void a_reply_that_nobody_asked_for_breaks_it(void **state)
{
    struct rig *r = *state;
    struct dibs__error error;

    open_now(r);
    fake_redis_push(r->fake, ":7\r\n");
    attend_until_broken(r);
    uint64_t serial = open_now(r);
    fake_redis_answer(r->fake, "ECHO two", "$3\r\ntwo\r\n:7\r\n");
    struct dibs__request *request = send_echo(r, serial, "two", &error);
    assert_non_null(request);
    assert_true(wait_echo(r, request, "two"));
    attend_until_broken(r);
}

static void garbage_fails_who_waits_with_a_store_error(void **state)
{
    struct rig *r = *state;
    uint64_t serial = open_now(r);
    struct caller caller = {.r = r, .text = "junk", .serial = serial, .deadline = after(r, COMMAND_MS)};
    fake_redis_answer(r->fake, "ECHO junk", "HTTP/1.1 200 OK\r\n\r\n");
    begin(&caller);
    expect_unknown(&caller, DIBS_STORE_ERROR);
    assert_false(stands(r));
}

static void a_server_that_hangs_up_fails_all_in_flight(void **state)
{
    struct rig *r = *state;
    struct caller pair[2];

    begin_two(r, pair, COMMAND_MS, COMMAND_MS);
    fake_redis_await(r->fake, "ECHO second", 1);
    fake_redis_cut(r->fake);
    expect_unknown(&pair[0], DIBS_UNAVAILABLE);
    expect_unknown(&pair[1], DIBS_UNAVAILABLE);
    assert_false(stands(r));
}

/* ---------------------------------------------------------------- scheduler */

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

static void on_submitted(void *arg, const redisReply *reply, const struct dibs__error *error)
{
    struct submitted *s = arg;

    ask_back(s->all->r);
    s->all->in_order += s->number == s->all->done;
    s->all->broken += !reply && error->status != DIBS_OK;
    if (reply && strcmp(reply->str, s->text) != 0)
        s->all->broken += SUBMITS;
    s->all->done++;
}

static void submit_all(struct rig *r, uint64_t serial, struct submits *all, struct submitted list[SUBMITS])
{
    struct echo echo;

    *all = (struct submits){.r = r};
    for (unsigned i = 0; i < SUBMITS; i++) {
        list[i] = (struct submitted){.all = all, .number = i};
        snprintf(list[i].text, sizeof list[i].text, "s%u", i);
        assert_true(dibs__channel_submit(r->channel, serial, echo_of(&echo, list[i].text), on_submitted, &list[i]));
    }
}

static void what_is_submitted_is_answered_once_and_in_order(void **state)
{
    struct rig *r = *state;
    struct submits all;
    struct submitted list[SUBMITS];

    submit_all(r, open_now(r), &all, list);
    attend_until(r, false, &all.done, SUBMITS);
    assert_int_equal(all.done, SUBMITS);
    assert_int_equal(all.in_order, SUBMITS);
    assert_int_equal(all.broken, 0);
    assert_int_equal(dibs__channel_load(r->channel), 0);
}

static void what_is_submitted_is_told_of_a_break_once_and_in_order(void **state)
{
    struct rig *r = *state;
    struct submits all;
    struct submitted list[SUBMITS];
    uint64_t serial = open_now(r);

    fake_redis_hold(r->fake, true);
    submit_all(r, serial, &all, list);
    fake_redis_cut(r->fake);
    attend_until(r, false, &all.done, SUBMITS);
    assert_false(stands(r));
    assert_int_equal(all.done, SUBMITS);
    assert_int_equal(all.in_order, SUBMITS);
    assert_int_equal(all.broken, SUBMITS);
}

static void the_end_of_the_channel_tells_what_is_in_flight(void **state)
{
    struct rig *r = *state;
    uint64_t serial = open_now(r);
    struct echo echo;
    atomic_uint broken = 0;

    fake_redis_hold(r->fake, true);
    assert_true(dibs__channel_submit(r->channel, serial, echo_of(&echo, "one"), count_broken, &broken));
    dibs__channel_free(r->channel);
    r->channel = NULL;
    assert_int_equal(broken, 1);
}

/* ---------------------------------------------------------- a stopped process */

/* What the server sent lies in the socket, and nobody has taken it yet. */
static void await_bytes(struct rig *r)
{
    struct pollfd fd;
    int64_t deadline;

    dibs__channel_interest(r->channel, true, &fd, &deadline);
    assert_true(fd.fd >= 0);
    fd.events = POLLIN;
    assert_int_equal(poll(&fd, 1, LIMIT_MS), 1);
}

/* The thread was stopped between sending and waiting, for longer than a command may take; the server was not. */
static void a_reply_that_came_in_time_is_taken_late(void **state)
{
    struct rig *r = *state;
    struct dibs__error error;
    uint64_t serial = open_now(r);

    struct dibs__request *request = send_echo(r, serial, "late", &error);
    assert_non_null(request);
    await_bytes(r);
    moved_clock_advance(&r->clock, MS(2 * COMMAND_MS));
    assert_true(wait_echo(r, request, "late"));
    assert_true(stands(r));
    assert_int_equal(dibs__channel_load(r->channel), 0);
}

/* Also where the caller's time was shorter than the command's: its outcome then is known. */
static void a_reply_is_taken_when_only_the_callers_time_is_over(void **state)
{
    struct rig *r = *state;
    struct dibs__error error;
    redisReply *reply;
    bool unknown;
    uint64_t serial = open_now(r);

    struct dibs__request *request = send_echo(r, serial, "short", &error);
    assert_non_null(request);
    await_bytes(r);
    assert_status(DIBS_OK, dibs__channel_wait(r->channel, request, 0, &reply, &unknown, &error));
    assert_string_equal(reply->str, "short");
    freeReplyObject(reply);
}

/* Those in front of it are answered on the way. */
static void all_replies_that_came_in_time_are_taken_late(void **state)
{
    enum { COUNT = 200 };
    struct rig *r = *state;
    struct dibs__error error;
    struct dibs__request *requests[COUNT];
    char text[COUNT][16];
    uint64_t serial = open_now(r);

    for (int i = 0; i < COUNT; i++) {
        snprintf(text[i], sizeof text[i], "late-%d", i);
        requests[i] = send_echo(r, serial, text[i], &error);
        assert_non_null(requests[i]);
    }
    fake_redis_await(r->fake, "ECHO", COUNT);
    await_bytes(r);
    moved_clock_advance(&r->clock, MS(2 * COMMAND_MS));
    for (int i = COUNT - 1; i >= 0; i--)
        assert_that(wait_echo(r, requests[i], text[i]), "%s", text[i]);
    assert_true(stands(r));
}

/* The scheduler's poll began before the stop, and saw nothing. */
static void a_reply_that_nobody_waits_for_is_taken_late_as_well(void **state)
{
    struct rig *r = *state;
    struct submits all;
    struct submitted list[SUBMITS];

    submit_all(r, open_now(r), &all, list);
    fake_redis_await(r->fake, "ECHO", SUBMITS);
    await_bytes(r);
    moved_clock_advance(&r->clock, MS(2 * COMMAND_MS));
    dibs__channel_attend(r->channel, false, 0, moved_clock_now(&r->clock));
    assert_true(stands(r));
    attend_until(r, false, &all.done, SUBMITS);
    assert_int_equal(all.broken, 0);
    assert_int_equal(all.in_order, SUBMITS);
}

/* --------------------------------------------------------- wanted, and looked at */

/* One that is wanted is connected in the background, once; its failures are spaced like those of one kept open. */
static void one_that_is_wanted_is_connected_by_the_scheduler(void **state)
{
    struct rig *r = *state;
    struct pollfd fd;
    int64_t deadline;

    dibs__channel_interest(r->channel, false, &fd, &deadline);
    assert_true(deadline == DIBS__NEVER);
    fake_redis_refuse(r->fake, true);
    dibs__channel_want(r->channel);
    dibs__channel_want(r->channel);
    assert_int_equal(r->unattended, 1);
    attend_until(r, false, &r->failed, 1);
    assert_false(dibs__channel_stands(r->channel));
    dibs__channel_interest(r->channel, false, &fd, &deadline);
    assert_true(deadline == DIBS__NEVER); /* it has to be wanted again */
    dibs__channel_want(r->channel);
    dibs__channel_interest(r->channel, false, &fd, &deadline);
    assert_true(deadline > moved_clock_now(&r->clock) && deadline <= after(r, 10));
    moved_clock_advance(&r->clock, MS(10));
    fake_redis_refuse(r->fake, false);
    attend_until(r, false, &r->opened, 1);
    assert_true(dibs__channel_stands(r->channel));
    unsigned unattended = r->unattended;
    dibs__channel_want(r->channel); /* there is nothing to do */
    assert_int_equal(r->unattended, unattended);
    fake_redis_cut(r->fake);
    attend_until_broken(r);
    assert_false(dibs__channel_stands(r->channel));
    dibs__channel_interest(r->channel, false, &fd, &deadline);
    assert_true(deadline == DIBS__NEVER);
}

static void fail_to_open(struct rig *r)
{
    struct dibs__link_view view;
    struct dibs__error error;

    assert_true(dibs__channel_open(r->channel, after(r, CONNECT_MS), &view, &error) != DIBS_OK);
}

/* A server that turns a connection away is there; one that says nothing may not be. */
static void a_failure_tells_whether_the_server_was_heard(void **state)
{
    struct rig *r = *state;

    fake_redis_answer(r->fake, "CLIENT", "-ERR max number of clients reached\r\n");
    fail_to_open(r);
    assert_int_equal(r->failed, 1);
    assert_int_equal(r->silent, 0);
    fake_redis_refuse(r->fake, true);
    fail_to_open(r);
    assert_int_equal(r->failed, 2);
    assert_int_equal(r->silent, 1);
}

static bool is_found_ended(void *arg)
{
    struct rig *r = arg;

    return !dibs__channel_look(r->channel);
}

/* Nobody uses it, so nobody meets its end, but for who looks. */
static void a_look_finds_the_end_of_an_idle_connection(void **state)
{
    struct rig *r = *state;

    assert_false(dibs__channel_look(r->channel));
    open_now(r);
    assert_true(dibs__channel_look(r->channel));
    fake_redis_cut(r->fake);
    assert_true(dibs__channel_stands(r->channel));
    assert_true(wait_until(is_found_ended, r, LIMIT_MS));
    assert_false(dibs__channel_stands(r->channel));
    assert_true(open_now(r) > 0);
}

/* What is there to be read may be good. */
static void a_look_leaves_replies_alone(void **state)
{
    struct rig *r = *state;
    struct dibs__error error;
    uint64_t serial = open_now(r);

    struct dibs__request *request = send_echo(r, serial, "there", &error);
    await_bytes(r);
    assert_true(dibs__channel_look(r->channel));
    assert_true(wait_echo(r, request, "there"));
}

/* How long the scheduler is to wait now. */
static int64_t pause_before_next(struct rig *r)
{
    struct pollfd fd;
    int64_t deadline;

    dibs__channel_interest(r->channel, true, &fd, &deadline);
    assert_int_equal(fd.fd, -1);
    assert_true(deadline != DIBS__NEVER);
    return deadline - moved_clock_now(&r->clock);
}

static void a_channel_kept_open_connects_again_later_each_time(void **state)
{
    struct rig *r = *state;
    int64_t longest = 10;

    fake_redis_refuse(r->fake, true);
    for (unsigned i = 1; i <= 9; i++) {
        attend_until(r, true, &r->failed, i);
        int64_t pause = pause_before_next(r);
        assert_that(pause >= MS(longest / 2) && pause <= MS(longest), "%lld ns, attempt %u", (long long)pause, i);
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
    /* A server that ends each connection at once is not asked for another at once. */
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

/* Another connection stands: the server answers, so what was put off is to be done now. */
static void a_channel_in_a_hurry_connects_at_once(void **state)
{
    struct rig *r = *state;

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

/* The clock of the system, whose sleepers in poll come back only when the gate is open. */
struct gate {
    struct dibs__clock clock;
    atomic_bool closed;
    atomic_uint held, waiting;
};

static int64_t gated_now(const struct dibs__clock *clock)
{
    (void)clock;
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

static bool is_not_zero(void *arg)
{
    return atomic_load((atomic_uint *)arg) > 0;
}

static void *open_in_time(void *arg)
{
    struct caller *c = arg;
    struct dibs__link_view view;

    c->status = dibs__channel_open(c->r->channel, c->deadline, &view, &c->error);
    return NULL;
}

/* Its reader has not come back yet. Who needs a connection then has one as soon as that one has let go of the old. */
static void who_comes_while_a_broken_connection_is_in_use(void **state)
{
    struct rig *r = *state;
    struct gate gate = {.clock = {gated_now, gated_wait, gated_poll}};
    const struct dibs__channel_hooks hooks = {r, on_opened, on_failed, on_unattended};
    int64_t deadline = dibs__after_ms(dibs__now(&dibs__system_clock), LIMIT_MS);
    struct dibs__link_view view;
    struct dibs__error error;
    struct echo echo;

    dibs__channel_free(r->channel);
    r->channel = dibs__channel_new(&r->endpoint, &gate.clock, &hooks, LIMIT_MS, LIMIT_MS);
    assert_status(DIBS_OK, dibs__channel_open(r->channel, deadline, &view, &error));
    fake_redis_hold(r->fake, true);
    struct caller reader = {.r = r, .text = "held", .serial = view.serial, .deadline = deadline};
    struct caller opener = {.r = r, .deadline = deadline};
    begin(&reader);
    fake_redis_await(r->fake, "ECHO held", 1);
    atomic_store(&gate.closed, true);
    fake_redis_cut(r->fake);
    fake_redis_hold(r->fake, false);
    assert_true(wait_until(is_not_zero, &gate.held, LIMIT_MS));
    struct dibs__request *request =
        dibs__channel_send(r->channel, view.serial, echo_of(&echo, "broken"), deadline, &error);
    assert_false(stands(r));
    atomic_store(&gate.waiting, 0);
    assert_int_equal(pthread_create(&opener.thread, NULL, open_in_time, &opener), 0);
    assert_true(wait_until(is_not_zero, &gate.waiting, LIMIT_MS));
    atomic_store(&gate.closed, false);
    pthread_join(opener.thread, NULL);
    assert_status(DIBS_OK, opener.status);
    pthread_join(reader.thread, NULL);
    assert_status(DIBS_UNAVAILABLE, reader.status);
    if (request) {
        redisReply *reply;
        bool unknown;
        assert_status(DIBS_UNAVAILABLE, dibs__channel_wait(r->channel, request, deadline, &reply, &unknown, &error));
    }
    dibs__channel_free(r->channel);
    r->channel = NULL;
}

static const char *const of_a_replica[] = {
    "-READONLY You can't write against a read only replica.\r\n",
    "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n",
    "-ERR Error running script (call to f_1): @user_script:1: -READONLY You can't write against a read only "
    "replica.\r\n",
    "*2\r\n:1\r\n-READONLY You can't write against a read only replica.\r\n",
};

static bool is_refused(struct rig *r, uint64_t serial)
{
    struct dibs__error error;
    struct dibs__request *request = send_echo(r, serial, "x", &error);

    return request && !wait_echo(r, request, "x");
}

/* The address may lead to another server by now. But a replica is not connected to again and again. */
static void a_server_that_has_become_a_replica_is_left(void **state)
{
    struct rig *r = *state;

    for (size_t i = 0; i < sizeof of_a_replica / sizeof *of_a_replica; i++) {
        uint64_t serial = open_now(r);

        fake_redis_answer(r->fake, "ECHO", of_a_replica[i]);
        moved_clock_advance(&r->clock, MS(500) - 1);
        assert_true(is_refused(r, serial));
        assert_true(stands(r));
        moved_clock_advance(&r->clock, 1);
        assert_true(is_refused(r, serial));
        assert_false(stands(r));
        assert_true(open_now(r) > serial);
        assert_int_equal(r->endpoint.address_count, 1);
        assert_int_equal(r->endpoint.failures, i + 1);
    }
    fake_redis_answer(r->fake, "ECHO", "-OOM command not allowed\r\n");
    moved_clock_advance(&r->clock, MS(500));
    assert_true(is_refused(r, open_now(r)));
    assert_true(stands(r));
}

static void a_channel_not_kept_open_stays_closed(void **state)
{
    struct rig *r = *state;
    struct pollfd fd;
    int64_t deadline;

    dibs__channel_interest(r->channel, false, &fd, &deadline);
    assert_int_equal(fd.fd, -1);
    assert_true(deadline == DIBS__NEVER);
    dibs__channel_attend(r->channel, false, 0, moved_clock_now(&r->clock));
    assert_false(stands(r));
    assert_int_equal(fake_redis_accepted(r->fake), 0);
}

/* ------------------------------------------------------------------ opening */

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

/* Two threads open; the first makes the attempt, which isn't answered, and leaves. */
static void begin_openers(struct rig *r, struct opener pair[2])
{
    fake_redis_hold(r->fake, true);
    pair[0] = (struct opener){.r = r, .deadline = after(r, 10)};
    pair[1] = (struct opener){.r = r, .deadline = after(r, 10 * CONNECT_MS)};
    assert_int_equal(pthread_create(&pair[0].thread, NULL, run_opener, &pair[0]), 0);
    fake_redis_await(r->fake, "EVAL return 1", 1);
    moved_clock_settle(&r->clock, 1);
    assert_int_equal(pthread_create(&pair[1].thread, NULL, run_opener, &pair[1]), 0);
    moved_clock_await_waiting(&r->clock, 1);
    moved_clock_advance(&r->clock, MS(10));
    pthread_join(pair[0].thread, NULL);
    assert_int_equal(pair[0].status, DIBS_UNAVAILABLE);
    assert_int_equal(r->unattended, 1);
    assert_int_equal(r->opened + r->failed, 0);
}

static void an_opener_in_a_hurry_leaves_the_attempt_to_the_scheduler(void **state)
{
    struct rig *r = *state;
    struct opener pair[2];

    begin_openers(r, pair);
    fake_redis_hold(r->fake, false);
    attend_until(r, false, &r->opened, 1);
    pthread_join(pair[1].thread, NULL);
    assert_status(DIBS_OK, pair[1].status);
    assert_int_equal(fake_redis_accepted(r->fake), 1);
    assert_true(echoes(r, 1, "word"));
}

static void the_scheduler_gives_the_attempt_up_after_the_connect_timeout(void **state)
{
    struct rig *r = *state;
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

static void an_attempt_that_fails_is_told_to_all_who_wait_for_it(void **state)
{
    struct rig *r = *state;
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

static void the_clock_of_another_connection_is_not_taken(void **state)
{
    struct rig *r = *state;
    struct dibs__link_view view;
    uint64_t serial = open_now(r);

    dibs__channel_set_clock(r->channel, serial, 77);
    dibs__channel_set_clock(r->channel, serial + 1, 88);
    assert_true(dibs__channel_view(r->channel, &view));
    assert_int_equal(view.server_ahead_us, 77);
    assert_string_equal(view.id.run_id, FAKE_RUN_ID);
    assert_int_equal(view.id.client, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_of_many_threads_gets_its_own_replies),
        TEST(the_scheduler_reads_beside_many_threads),
        TEST(a_reader_that_leaves_early_passes_the_reading_on),
        TEST(who_does_not_read_may_leave_early_as_well),
        TEST(a_late_reply_is_not_given_to_the_next),
        TEST(the_scheduler_reads_what_nobody_waits_for),
        TEST(a_request_that_waited_for_all_of_it_ends_the_connection),
        TEST(the_scheduler_ends_a_connection_that_does_not_answer),
        TEST(what_was_not_handed_to_the_socket_is_known_not_to_have_run),
        TEST(what_did_not_fit_into_the_socket_goes_out_when_it_is_read),
        TEST(who_sends_sleeps_while_the_socket_is_full),
        TEST(nothing_is_sent_on_a_connection_that_is_no_more),
        TEST(a_reply_that_nobody_asked_for_breaks_it),
        TEST(garbage_fails_who_waits_with_a_store_error),
        TEST(a_server_that_hangs_up_fails_all_in_flight),
        TEST(what_is_submitted_is_answered_once_and_in_order),
        TEST(what_is_submitted_is_told_of_a_break_once_and_in_order),
        TEST(the_end_of_the_channel_tells_what_is_in_flight),
        TEST(a_reply_that_came_in_time_is_taken_late),
        TEST(a_reply_is_taken_when_only_the_callers_time_is_over),
        TEST(all_replies_that_came_in_time_are_taken_late),
        TEST(a_reply_that_nobody_waits_for_is_taken_late_as_well),
        TEST(one_that_is_wanted_is_connected_by_the_scheduler),
        TEST(a_failure_tells_whether_the_server_was_heard),
        TEST(a_look_finds_the_end_of_an_idle_connection),
        TEST(a_look_leaves_replies_alone),
        TEST(a_channel_kept_open_connects_again_later_each_time),
        TEST(a_channel_in_a_hurry_connects_at_once),
        TEST(who_comes_while_a_broken_connection_is_in_use),
        TEST(a_server_that_has_become_a_replica_is_left),
        TEST(a_channel_not_kept_open_stays_closed),
        TEST(an_opener_in_a_hurry_leaves_the_attempt_to_the_scheduler),
        TEST(the_scheduler_gives_the_attempt_up_after_the_connect_timeout),
        TEST(an_attempt_that_fails_is_told_to_all_who_wait_for_it),
        TEST(the_clock_of_another_connection_is_not_taken),
    };

    return cmocka_run_group_tests_name("channel", tests, NULL, NULL);
}
