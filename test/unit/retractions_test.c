/* A token is deleted repeatedly until none of its asks can be under way any more. */
#include "redis/scripts.h"
#include "store/redis/redis_store.h"
#include "support/fake_redis.h"
#include "support/moved_clock.h"
#include "support/test.h"

#define CONNECT_MS 60000
#define COMMAND_MS 30000
#define LEASE_MS 86400000 /* longer than any test takes, by its clock */
#define GONE_AT_500_US "*2\r\n:500\r\n:0\r\n"

/* Channels to one server. The test plays the scheduler, and alone moves the clock. */
struct rig {
    fake_redis *fake;
    struct moved_clock clock;
    atomic_uint_fast64_t commands, errors;
    struct dibs__channel *asks, *background, *other;
    struct dibs__redis_store store; /* as far as retractions need it */
    struct dibs__counters counters;
    atomic_uint wakes;
};

static void on_opened(void *context, uint64_t serial)
{
}

static void on_failed(void *context, const struct dibs__error *error, bool silent)
{
}

static void on_unattended(void *context)
{
}

static void on_changed(void *context, const char *name)
{
}

static void on_wake(void *context)
{
    struct rig *r = context;

    r->wakes++;
}

static void new_retractions(struct rig *r, const struct dibs__node_hooks *node)
{
    r->store.config = (struct dibs__store_config){.key_prefix = "p:",
                                                  .clock = &r->clock.clock,
                                                  .command_timeout_ms = COMMAND_MS,
                                                  .counters = &r->counters,
                                                  .listener = {.context = r, .wake = on_wake, .changed = on_changed},
                                                  .node = node};
    r->store.retractions = dibs__retractions_new(&r->store);
}

static int setup(void **state)
{
    static struct rig rig;
    struct rig *r = &rig;
    const struct dibs__channel_hooks hooks = {r, on_opened, on_failed, on_unattended, NULL};

    memset(r, 0, sizeof *r);
    r->fake = fake_redis_start(false);
    moved_clock_init(&r->clock);
    fake_redis_endpoint(&r->store.endpoint, fake_redis_url(r->fake), &r->commands, &r->errors);
    r->store.endpoint.clock = &r->clock.clock;
    r->store.endpoint.connect_timeout_ms = CONNECT_MS;
    r->store.endpoint.command_timeout_ms = COMMAND_MS;
    r->asks = dibs__channel_new(&r->store.endpoint, &hooks);
    r->background = dibs__channel_new(&r->store.endpoint, &hooks);
    r->other = dibs__channel_new(&r->store.endpoint, &hooks);
    assert_int_equal(dibs__mutex_init(&r->store.mutex), 0);
    r->store.background = r->background;
    new_retractions(r, NULL);
    assert_true(r->asks && r->background && r->other && r->store.retractions);
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;

    dibs__channel_free(r->asks);
    dibs__channel_free(r->background);
    dibs__channel_free(r->other);
    dibs__retractions_free(r->store.retractions);
    dibs__mutex_destroy(&r->store.mutex);
    dibs__endpoint_free(&r->store.endpoint);
    moved_clock_destroy(&r->clock);
    fake_redis_stop(r->fake);
    return 0;
}

/* ----------------------------------------------------------------- helpers */

static struct dibs__link_view open_channel(struct rig *r, struct dibs__channel *channel)
{
    struct dibs__link_view view;
    struct dibs__error error;
    int64_t deadline = moved_clock_now(&r->clock) + MS(CONNECT_MS);

    assert_status(DIBS_OK, dibs__channel_open(channel, deadline, &view, &error));
    return view;
}

/* The route that an ask on the present connection keeps. */
static struct dibs__route route_of_ask(struct rig *r, int64_t not_after)
{
    struct dibs__link_view view = open_channel(r, r->asks);

    return (struct dibs__route){r->asks, view.serial, view.id, not_after};
}

/* Of an ask that was never sent. */
static const struct dibs__route nowhere = {.channel = NULL};

static void attend_channel(struct rig *r, struct dibs__channel *channel)
{
    struct dibs__link_view view;

    if (!dibs__channel_view(channel, &view))
        return;
    int64_t deadline = DIBS__NEVER;
    struct pollfd fd = dibs__channel_interest(channel, true, &deadline);
    poll(&fd, 1, 2);
    dibs__channel_attend(channel, true, fd.fd >= 0 ? fd.revents : 0, moved_clock_now(&r->clock));
}

static void attend_channels(struct rig *r)
{
    attend_channel(r, r->asks);
    attend_channel(r, r->background);
}

/* One round of the scheduler, which opens no channel: the test does that. */
static void attend(struct rig *r)
{
    attend_channels(r);
    dibs__retractions_attend(r->store.retractions, r->background, 0);
}

static size_t unconfirmed(struct rig *r)
{
    return dibs__redis_unconfirmed(&r->store.store);
}

static int64_t next_due(struct rig *r)
{
    return dibs__retractions_deadline(r->store.retractions);
}

/* For an ask that the route says. */
static void retract(struct rig *r, const char *token, const struct dibs__route *route)
{
    dibs__retractions_add(r->store.retractions, "name", token, LEASE_MS, 0, route);
}

static void attend_until_left(struct rig *r, size_t left)
{
    REPEAT_UNTIL(unconfirmed(r) <= left, attend(r));
    assert_int_equal(unconfirmed(r), left);
    assert_int_equal(r->counters.unconfirmed, left);
}

/* One that the server confirms when it comes. */
static void retract_to_the_end(struct rig *r, const struct dibs__route *route)
{
    fake_redis_answer(r->fake, "EVALSHA", GONE_AT_500_US);
    retract(r, "token", route);
    attend_until_left(r, 0);
}

/* All that are left go over that channel alone, whose server took the place of another at `changed_at`. */
static void attend_over(struct rig *r, struct dibs__channel *channel, int64_t changed_at)
{
    for (int64_t limit = now_ms() + LIMIT_MS; unconfirmed(r) > 0;) {
        dibs__retractions_attend(r->store.retractions, channel, changed_at);
        attend_channel(r, channel);
        assert_true(now_ms() < limit);
    }
}

/*
 * Goes on as the scheduler until so many commands have come and their answers are taken: then something is due, or
 * waits for a connection.
 */
static void attend_until_asked(struct rig *r, const char *prefix, unsigned count)
{
    REPEAT_UNTIL(fake_redis_count(r->fake, prefix) >= count && dibs__channel_load(r->asks) == 0 &&
                     dibs__channel_load(r->background) == 0,
                 attend(r));
}

/* Breaks all connections; returns when the channels have seen it. */
static void break_all(struct rig *r)
{
    struct dibs__link_view view;

    fake_redis_cut(r->fake);
    REPEAT_UNTIL(!dibs__channel_view(r->asks, &view) && !dibs__channel_view(r->background, &view), attend_channels(r));
}

/* The route of an ask whose connection has broken; there is that for the background. */
static struct dibs__route route_of_broken_ask(struct rig *r, int64_t not_after)
{
    struct dibs__route route = route_of_ask(r, not_after);

    break_all(r);
    open_channel(r, r->background);
    return route;
}

/* The place, among all commands, of the only retraction of the token `text` of the lock of that name. */
static int place_of_retraction(struct rig *r, const char *name, const char *text)
{
    char command[512];

    snprintf(command, sizeof command, "EVALSHA %s 3 p:%s dibs:fence:{p:%s} dibs:queue:{p:%s} %s",
             dibs__scripts[DIBS__SCRIPT_retract].sha, name, name, name, text);
    assert_that(fake_redis_count(r->fake, command) == 1, "%u times: %s", fake_redis_count(r->fake, command), command);
    return fake_redis_place(r->fake, command, 1);
}

/* Moves the clock to when the next retraction is due. */
static void move_to_deadline(struct rig *r)
{
    int64_t deadline = next_due(r);

    assert_true(deadline != DIBS__NEVER);
    if (deadline > moved_clock_now(&r->clock))
        moved_clock_set(&r->clock, deadline);
}

/* ------------------------------------------------------------------- tests */

TEST_ON(a_retraction_uses_the_asks_connection_while_it_is_open, struct rig *r)
{
    struct dibs__route route = route_of_ask(r, 1000);

    fake_redis_answer(r->fake, "EVALSHA", GONE_AT_500_US);
    assert_int_equal(unconfirmed(r), 0);
    assert_true(next_due(r) == DIBS__NEVER);
    retract(r, "token", &route);
    assert_int_equal(r->wakes, 1);
    assert_int_equal(unconfirmed(r), 1);
    assert_true(next_due(r) <= moved_clock_now(&r->clock));
    attend_until_left(r, 0);
    assert_int_equal(fake_redis_accepted(r->fake), 1);
    assert_int_equal(fake_redis_count(r->fake, "EVALSHA"), 1);
    assert_int_equal(fake_redis_count(r->fake, "CLIENT KILL ID"), 1); /* the greeting's */
    assert_true(next_due(r) == DIBS__NEVER);
    assert_int_equal(r->wakes, 1);
}

TEST_ON(a_retraction_sends_keys_and_token_unchanged, struct rig *r)
{
    struct dibs__route route = route_of_ask(r, 0);

    retract_to_the_end(r, &route);
    place_of_retraction(r, "name", "token");
}

TEST_ON(a_retraction_ends_the_asks_connection_before_using_another, struct rig *r)
{
    struct dibs__route route = route_of_broken_ask(r, 1000);

    retract_to_the_end(r, &route);
    assert_int_equal(fake_redis_count(r->fake, "CLIENT KILL ID 1"), 1);
    assert_int_equal(fake_redis_count(r->fake, "EVALSHA"), 1);
    assert_true(fake_redis_place(r->fake, "CLIENT KILL ID 1", 1) < fake_redis_place(r->fake, "EVALSHA", 1));
}

TEST_ON(a_later_connection_is_not_the_asks, struct rig *r)
{
    struct dibs__route route = route_of_ask(r, 0);

    break_all(r);
    open_channel(r, r->asks); /* the greeting of the second connection ends the first as well */
    open_channel(r, r->background);
    retract_to_the_end(r, &route);
    assert_int_equal(fake_redis_count(r->fake, "CLIENT KILL ID 1"), 2);
    assert_true(fake_redis_place(r->fake, "CLIENT KILL ID 1", 2) < fake_redis_place(r->fake, "EVALSHA", 1));
}

TEST_ON(at_another_server_no_connection_need_be_ended, struct rig *r)
{
    struct dibs__route route = route_of_ask(r, 1000);

    break_all(r);
    fake_redis_answer(r->fake, "INFO", "$47\r\nrun_id:fedcba9876543210fedcba9876543210fedcba98\r\n");
    open_channel(r, r->background);
    retract_to_the_end(r, &route);
    assert_int_equal(fake_redis_count(r->fake, "CLIENT KILL ID 1"), 0);
    assert_int_equal(fake_redis_count(r->fake, "EVALSHA"), 1);
}

TEST_ON(an_ask_never_sent_needs_no_connection_ended, struct rig *r)
{
    open_channel(r, r->background);
    retract_to_the_end(r, &nowhere);
    assert_int_equal(fake_redis_count(r->fake, "CLIENT KILL ID"), 1);
}

TEST_ON(without_the_right_to_kill_only_the_servers_clock_is_final, struct rig *r)
{
    fake_redis_answer(r->fake, "CLIENT KILL", "-NOPERM no right\r\n");
    struct dibs__route route = route_of_ask(r, 400000);
    break_all(r);
    open_channel(r, r->background);
    fake_redis_answer(r->fake, "EVALSHA", "*2\r\n:100000\r\n:1\r\n");
    retract(r, "token", &route);
    attend_until_asked(r, "EVALSHA", 1);
    assert_int_equal(unconfirmed(r), 1);
    assert_true(next_due(r) == moved_clock_now(&r->clock) + MS(301));
    moved_clock_advance(&r->clock, MS(300));
    for (int i = 0; i < 3; i++)
        attend(r);
    assert_int_equal(fake_redis_count(r->fake, "EVALSHA"), 1);
    fake_redis_answer(r->fake, "EVALSHA", "*2\r\n:400000\r\n:0\r\n"); /* not past it */
    move_to_deadline(r);
    attend_until_asked(r, "EVALSHA", 2);
    assert_int_equal(unconfirmed(r), 1);
    fake_redis_answer(r->fake, "EVALSHA", "*2\r\n:400001\r\n:0\r\n");
    move_to_deadline(r);
    attend_until_left(r, 0);
    assert_int_equal(fake_redis_count(r->fake, "EVALSHA"), 3);
    assert_int_equal(fake_redis_count(r->fake, "CLIENT KILL ID 1"), 0);
}

TEST_ON(a_refused_kill_proves_nothing, struct rig *r)
{
    struct dibs__route route = route_of_broken_ask(r, 0);

    fake_redis_answer(r->fake, "CLIENT KILL ID 1", "-ERR not now\r\n");
    fake_redis_answer(r->fake, "EVALSHA", GONE_AT_500_US);
    retract(r, "token", &route);
    attend_until_asked(r, "EVALSHA", 1);
    assert_int_equal(unconfirmed(r), 1);
    assert_true(next_due(r) > moved_clock_now(&r->clock));
    fake_redis_answer(r->fake, "CLIENT KILL ID 1", ":1\r\n");
    move_to_deadline(r);
    attend_until_left(r, 0);
    assert_int_equal(fake_redis_count(r->fake, "CLIENT KILL ID 1"), 2);
    assert_int_equal(fake_redis_count(r->fake, "EVALSHA"), 2);
}

TEST_ON(a_lost_script_is_sent_again_with_its_text, struct rig *r)
{
    struct dibs__route route = route_of_ask(r, 0);

    fake_redis_answer(r->fake, "EVALSHA", "-NOSCRIPT No matching script.\r\n");
    fake_redis_answer(r->fake, "EVAL ", GONE_AT_500_US);
    retract(r, "token", &route);
    attend_until_left(r, 0);
    assert_int_equal(fake_redis_count(r->fake, "EVALSHA"), 1);
    assert_int_equal(fake_redis_count(r->fake, "EVAL "), 2); /* the other is part of the greeting */
    assert_int_equal(fake_redis_accepted(r->fake), 1);
}

TEST_ON(a_refused_retraction_is_sent_again_with_growing_pauses, struct rig *r)
{
    struct dibs__route route = route_of_ask(r, 0);
    int64_t longest = 20;

    fake_redis_answer(r->fake, "EVALSHA", "-NOREPLICAS Not enough good replicas to write.\r\n");
    retract(r, "token", &route);
    for (unsigned i = 1; i <= 10; i++) {
        attend_until_asked(r, "EVALSHA", i);
        int64_t pause = next_due(r) - moved_clock_now(&r->clock);
        assert_that(pause >= MS(longest / 2) && pause <= MS(longest), "%lld ns, time %u", (long long)pause, i);
        longest = longest * 2 < 5000 ? longest * 2 : 5000;
        move_to_deadline(r);
    }
    fake_redis_answer(r->fake, "EVALSHA", GONE_AT_500_US);
    attend_until_left(r, 0);
}

TEST_ON(an_unanswered_retraction_is_sent_again_on_the_next_connection, struct rig *r)
{
    struct dibs__route route = route_of_ask(r, 0);
    int64_t begun = moved_clock_now(&r->clock);

    fake_redis_answer(r->fake, "EVALSHA", GONE_AT_500_US);
    fake_redis_hold(r->fake, true);
    retract(r, "token", &route);
    attend(r);
    fake_redis_await(r->fake, "EVALSHA", 1);
    assert_true(next_due(r) == DIBS__NEVER); /* it is under way */
    break_all(r);
    fake_redis_hold(r->fake, false);
    assert_int_equal(unconfirmed(r), 1);
    move_to_deadline(r);
    attend(r);
    assert_true(next_due(r) > begun + MS(LEASE_MS)); /* there is no connection to send it on */
    open_channel(r, r->background);
    attend_until_left(r, 0);
    assert_int_equal(fake_redis_count(r->fake, "EVALSHA"), 2);
    assert_true(fake_redis_place(r->fake, "CLIENT KILL ID 1", 1) < fake_redis_place(r->fake, "EVALSHA", 2));
}

TEST_ON(an_unanswered_background_retraction_ends_the_connection_again, struct rig *r)
{
    struct dibs__route route = route_of_broken_ask(r, 0);

    fake_redis_answer(r->fake, "EVALSHA", "");
    retract(r, "token", &route);
    while (fake_redis_count(r->fake, "EVALSHA") == 0)
        attend(r);
    break_all(r);
    fake_redis_answer(r->fake, "EVALSHA", GONE_AT_500_US);
    open_channel(r, r->background); /* makes the retraction due at once, even if it was put off */
    attend_until_left(r, 0);
    assert_int_equal(fake_redis_count(r->fake, "CLIENT KILL ID 1"), 2);
}

/* The server confirms the end of several connections at once: each leads to its own retraction only. */
TEST_ON(connections_that_end_at_once_lead_each_to_its_own_retraction, struct rig *r)
{
    enum { ASKS = 3 };
    static const char *const names[ASKS] = {"a", "middle", "longest-name"};
    static const char *const tokens[ASKS] = {"token-one", "two", "third"};
    struct dibs__route routes[ASKS];

    for (unsigned i = 0; i < ASKS; i++) {
        routes[i] = route_of_ask(r, 0);
        break_all(r);
    }
    r->store.tracking.link = open_channel(r, r->background).serial;
    r->store.tracking.state = DIBS__TRACKING_ON;
    unsigned greeted = fake_redis_count(r->fake, "CLIENT KILL ID");
    fake_redis_answer(r->fake, "EVALSHA", GONE_AT_500_US);
    fake_redis_hold(r->fake, true);
    for (unsigned i = 0; i < ASKS; i++)
        dibs__retractions_add(r->store.retractions, names[i], tokens[i], LEASE_MS, 0, &routes[i]);
    attend(r);
    fake_redis_await(r->fake, "CLIENT KILL ID", greeted + ASKS);
    fake_redis_hold(r->fake, false);
    attend_until_left(r, 0);
    for (unsigned i = 0; i < ASKS; i++) /* only what the script reads must not be tracked */
        assert_int_equal(fake_redis_place(r->fake, "CLIENT CACHING NO", i + 1) + 1,
                         place_of_retraction(r, names[i], tokens[i]));
}

TEST_ON(many_retractions_come_to_an_end, struct rig *r)
{
    enum { MANY = 150 }; /* more than are sent at once */
    struct dibs__route own = route_of_ask(r, 0), other;
    char token[16];

    break_all(r);
    other = route_of_ask(r, 0);
    open_channel(r, r->background);
    fake_redis_answer(r->fake, "EVALSHA", GONE_AT_500_US);
    for (unsigned i = 0; i < MANY; i++) {
        snprintf(token, sizeof token, "token-%u", i);
        retract(r, token, i % 2 ? &own : &other);
    }
    assert_int_equal(unconfirmed(r), MANY);
    attend_until_left(r, 0);
    assert_int_equal(fake_redis_count(r->fake, "EVALSHA"), MANY);
}

#define BATCH 64 /* tokens in a command, commands under way: as retractions.c has them */
#define FLIGHTS 4

/* What retract.lua answers to `count` tokens; the one at `odd` (from 0) gets another answer. */
static const char *answer_of(size_t count, size_t odd, const char *other)
{
    static char text[4096];
    int at = snprintf(text, sizeof text, "*%zu\r\n:500\r\n", count + 1);

    for (size_t i = 0; i < count; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%s\r\n", i == odd ? other : ":0");
    return text;
}

static void add_many(struct rig *r, unsigned count, const struct dibs__route *route, uint32_t lease_ms)
{
    char token[24];

    for (unsigned i = 0; i < count; i++) {
        snprintf(token, sizeof token, "token-%u", i);
        dibs__retractions_add(r->store.retractions, "name", token, lease_ms, 0, route);
    }
}

TEST_ON(many_retractions_go_in_few_batches_at_a_time, struct rig *r)
{
    enum { BATCHES = 10 };
    open_channel(r, r->background);
    fake_redis_answer(r->fake, "EVALSHA", answer_of(BATCH, BATCH, ""));
    fake_redis_hold(r->fake, true);
    add_many(r, BATCHES * BATCH, &nowhere, LEASE_MS);
    fake_redis_await(r->fake, "PUBLISH", 1);
    attend(r);
    attend(r);
    fake_redis_await(r->fake, "EVALSHA", FLIGHTS);
    assert_int_equal(dibs__channel_load(r->background), FLIGHTS);
    assert_true(next_due(r) == DIBS__NEVER); /* until one of them is answered */
    fake_redis_hold(r->fake, false);
    attend_until_left(r, 0);
    assert_int_equal(fake_redis_count(r->fake, "EVALSHA"), BATCHES);
}

TEST_ON(a_refused_retraction_delays_no_other, struct rig *r)
{
    open_channel(r, r->background);
    fake_redis_answer(r->fake, "EVALSHA", answer_of(3, 1, "-WRONGTYPE of the queue"));
    add_many(r, 3, &nowhere, LEASE_MS);
    attend_until_left(r, 1);
    assert_int_equal(fake_redis_count(r->fake, "EVALSHA"), 1);
    fake_redis_answer(r->fake, "EVALSHA", GONE_AT_500_US);
    move_to_deadline(r);
    attend_until_left(r, 0);
    assert_int_equal(fake_redis_count(r->fake, "EVALSHA"), 2);
    assert_int_equal(fake_redis_count(r->fake, "CLIENT KILL ID 1"), 0);
}

TEST_ON(a_refused_batch_of_retractions_is_sent_one_by_one, struct rig *r)
{
    char of_three[128], of_one[128];

    open_channel(r, r->background);
    snprintf(of_three, sizeof of_three, "EVALSHA %s 9", dibs__scripts[DIBS__SCRIPT_retract].sha);
    snprintf(of_one, sizeof of_one, "EVALSHA %s 3", dibs__scripts[DIBS__SCRIPT_retract].sha);
    fake_redis_answer(r->fake, "EVALSHA", GONE_AT_500_US);
    fake_redis_answer(r->fake, of_three, "-NOPERM No permissions to access a key\r\n");
    add_many(r, 3, &nowhere, LEASE_MS);
    attend_until_left(r, 0);
    assert_int_equal(fake_redis_count(r->fake, of_three), 1);
    assert_int_equal(fake_redis_count(r->fake, of_one), 3);
}

TEST_ON(a_retraction_refused_for_ever_ends_with_its_lease, struct rig *r)
{
    int64_t begun = moved_clock_now(&r->clock);

    open_channel(r, r->background);
    fake_redis_answer(r->fake, "EVALSHA", "-NOPERM No permissions to access a key\r\n");
    dibs__retractions_add(r->store.retractions, "name", "token", 30000, 0, &nowhere);
    for (unsigned i = 1; unconfirmed(r) > 0; i++) {
        assert_true(moved_clock_now(&r->clock) < begun + MS(COMMAND_MS + 3 * 30000));
        attend_until_asked(r, "EVALSHA", i);
        move_to_deadline(r);
        dibs__retractions_attend(r->store.retractions, r->background, 0);
    }
    assert_true(moved_clock_now(&r->clock) >= begun + MS(2 * 30000));
    assert_true(next_due(r) == DIBS__NEVER);
}

/* Rule 25 applies without a connection as well: a retraction that can't be sent is not kept for ever. */
TEST_ON(a_retraction_without_a_connection_ends_with_its_lease, struct rig *r)
{
    enum { ROUNDS = 200, EACH = 50, EVERY_MS = 1000, SHORT_MS = 10000, LONGER_MS = 30000 };
    struct dibs__route route = route_of_ask(r, 0);
    const size_t most = EACH * (2 * LONGER_MS + COMMAND_MS + 3000) / EVERY_MS;

    break_all(r);
    for (unsigned i = 0; i < ROUNDS; i++) {
        add_many(r, EACH, i % 2 ? &route : &nowhere, i % 3 ? SHORT_MS : LONGER_MS);
        dibs__retractions_attend(r->store.retractions, r->background, 0);
        assert_that(unconfirmed(r) <= most, "%zu in round %u", unconfirmed(r), i);
        moved_clock_advance(&r->clock, MS(EVERY_MS));
    }
    int64_t end = moved_clock_now(&r->clock) + MS(2 * LONGER_MS + COMMAND_MS + 3000);
    while (next_due(r) != DIBS__NEVER) {
        move_to_deadline(r);
        dibs__retractions_attend(r->store.retractions, r->background, 0);
        assert_true(moved_clock_now(&r->clock) <= end);
    }
    assert_int_equal(unconfirmed(r), 0);
    assert_int_equal(fake_redis_count(r->fake, "EVALSHA"), 0);
}

/* Retractions that waited for a missing connection go over another as soon as that is offered. */
TEST_ON(another_connection_takes_waiting_retractions, struct rig *r)
{
    struct dibs__route route = route_of_ask(r, 0);

    break_all(r);
    retract(r, "one", &nowhere);
    retract(r, "two", &route);
    attend(r);
    assert_int_equal(unconfirmed(r), 2);
    open_channel(r, r->asks);
    fake_redis_answer(r->fake, "EVALSHA", GONE_AT_500_US);
    attend_over(r, r->asks, 0);
    assert_int_equal(fake_redis_count(r->fake, "EVALSHA"), 2);
    assert_int_equal(fake_redis_accepted(r->fake), 2);
}

/* Who retracts waits for no further connection where it has gone over to one before the last one failed. */
TEST_ON(a_retraction_whose_connection_fails_goes_over_the_one_in_use_by_then, struct rig *r)
{
    struct dibs__route route = route_of_broken_ask(r, 1000);

    open_channel(r, r->other);
    fake_redis_answer(r->fake, "CLIENT KILL", "");
    retract(r, "token", &route);
    attend(r);
    fake_redis_await(r->fake, "CLIENT KILL ID 1", 1);
    dibs__retractions_attend(r->store.retractions, r->other, 0);
    moved_clock_advance(&r->clock, MS(COMMAND_MS));
    attend_channel(r, r->background);
    fake_redis_answer(r->fake, "CLIENT KILL", ":0\r\n");
    fake_redis_answer(r->fake, "EVALSHA", GONE_AT_500_US);
    attend_over(r, r->other, 0);
    assert_int_equal(fake_redis_count(r->fake, "EVALSHA"), 1);
}

static bool is_named_away(void *context, const char *name)
{
    return strcmp(name, "away") == 0;
}

static void take_none(void *context, void *to, const struct dibs__forwarded_retraction *forwarded)
{
}

/* This happens when a slot of a cluster moves: the scheduler would spin until the request under way is answered. */
TEST_ON(a_retraction_given_away_is_no_longer_due, struct rig *r)
{
    static const struct dibs__node_hooks node = {.forward = take_none, .is_away = is_named_away};
    struct dibs__route route = route_of_ask(r, 0);

    dibs__retractions_free(r->store.retractions);
    new_retractions(r, &node);
    fake_redis_answer(r->fake, "EVALSHA", "-NOREPLICAS Not enough good replicas to write.\r\n");
    dibs__retractions_add(r->store.retractions, "away", "one", LEASE_MS, 0, &route);
    attend_until_asked(r, "EVALSHA", 1);
    int64_t due = next_due(r);
    dibs__redis_give_strays(&r->store.store);
    assert_int_equal(unconfirmed(r), 0);
    fake_redis_hold(r->fake, true);
    retract(r, "two", &route);
    moved_clock_set(&r->clock, due);
    attend(r);
    assert_int_equal(unconfirmed(r), 1);
    assert_true(next_due(r) == DIBS__NEVER);
}

static struct dibs__forwarded_retraction given;

static void take_one(void *context, void *to, const struct dibs__forwarded_retraction *forwarded)
{
    given = *forwarded;
    given.name = "away";
    given.token = "token";
}

/* A retraction was given away, and another was confirmed before, so the connection is known. */
static void setup_given(struct rig *r)
{
    static const struct dibs__node_hooks node = {.forward = take_one, .is_away = is_named_away};

    dibs__retractions_free(r->store.retractions);
    new_retractions(r, &node);
    open_channel(r, r->background);
    fake_redis_answer(r->fake, "EVALSHA", GONE_AT_500_US);
    retract(r, "another", &nowhere);
    attend_over(r, r->background, moved_clock_now(&r->clock) - MS(5));
    dibs__retractions_add(r->store.retractions, "away", "token", LEASE_MS, 777, &nowhere);
    dibs__redis_give_strays(&r->store.store);
}

/* The node took the place of a dead one a moment ago. Without the fence waiters would leave the lock to its owner. */
TEST_ON(a_retraction_that_another_node_continues_raises_the_fence, struct rig *r)
{
    setup_given(r);
    fake_redis_answer(r->fake, "EVALSHA", GONE_AT_500_US);
    dibs__redis_take_forwarded(&r->store.store, &given);
    attend_over(r, r->background, moved_clock_now(&r->clock) - MS(5));
    place_of_retraction(r, "away", "token 777");
}

/* Two nodes that name each other are not asked without a pause. */
TEST_ON(the_pause_before_another_node_grows, struct rig *r)
{
    uint32_t first = 0;

    setup_given(r);
    for (unsigned hops = 10; hops < 20; hops++) {
        given.hops = hops;
        dibs__redis_take_forwarded(&r->store.store, &given);
        assert_true(next_due(r) > moved_clock_now(&r->clock));
        dibs__redis_give_strays(&r->store.store);
        first = first ? first : given.backoff.next_ms;
    }
    assert_true(first > 0 && given.backoff.next_ms > 2 * first);
}

/* ASKING selects what may be done while a slot moves, but it may have moved by then. */
TEST_ON(a_retraction_that_is_refused_at_a_new_node_is_sent_there_as_to_its_own, struct rig *r)
{
    setup_given(r);
    fake_redis_answer(r->fake, "EVALSHA", "*2\r\n:500\r\n-TRYAGAIN the sharers of the lock are at another node\r\n");
    fake_redis_answer(r->fake, "EVAL ", "*2\r\n:500\r\n-TRYAGAIN the sharers of the lock are at another node\r\n");
    given.asking = true;
    dibs__redis_take_forwarded(&r->store.store, &given);
    attend_until_asked(r, "ASKING", 1);
    fake_redis_answer(r->fake, "EVALSHA", GONE_AT_500_US);
    for (int64_t limit = now_ms() + LIMIT_MS; unconfirmed(r) > 0;) {
        attend_channel(r, r->background);
        moved_clock_advance(&r->clock, MS(100));
        dibs__retractions_attend(r->store.retractions, r->background, 0);
        assert_true(now_ms() < limit);
    }
    assert_int_equal(fake_redis_count(r->fake, "ASKING"), 1);
}

TEST_ON(the_end_drops_all_retractions, struct rig *r)
{
    struct dibs__route route = route_of_ask(r, 0);

    fake_redis_hold(r->fake, true);
    retract(r, "one", &route);
    attend(r);
    retract(r, "two", &route);
    assert_int_equal(unconfirmed(r), 2);
}

TESTS(setup, teardown)
