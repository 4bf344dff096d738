/*
 * How the store on Redis gets messages of changes, against a fake server, on a clock that the test moves. The test
 * plays the scheduler.
 */
#include "redis/channel_parts.h"
#include "redis/subscriber_parts.h"
#include "store/redis/redis_store.h"
#include "support/failing_malloc.h"
#include "support/fake_redis.h"
#include "support/moved_clock.h"

#define COMMAND_MS 1000
#define PROBE_LIMIT_MS 5000
#define AGAIN_MS 5000
#define CHANNEL "$20\r\n__redis__:invalidate\r\n"
#define CONFIRMED "*3\r\n$9\r\nsubscribe\r\n$9\r\ndibs:test\r\n:1\r\n"
#define HEARD "*3\r\n$9\r\nsubscribe\r\n" CHANNEL ":2\r\n"
#define CHANGE(keys) "*3\r\n$7\r\nmessage\r\n" CHANNEL keys
#define PROBE "dibs:probe:{lock:a}"
#define PROBE_TOLD CHANGE("*1\r\n$19\r\n" PROBE "\r\n")
#define INFO_OF(version) "$70\r\nredis_version:" version "\r\nrun_id:" FAKE_RUN_ID "\r\n\r\n"
#define NOPERM "-NOPERM no right\r\n"

enum { CHANGES_MOST = 64, FDS_MOST = 64 };

struct scene {
    fake_redis *fake;
    struct moved_clock clock;
    struct dibs__counters counters;
    struct dibs__store *base;
    struct dibs__redis_store *store;
    char changes[CHANGES_MOST][32]; /* names; "*" for all */
    unsigned change_count;
    unsigned turned_on, turned_off, ask_agains;
    atomic_uint woken;
};

/* ------------------------------------------------------------- the listener */

static void on_wake(void *context)
{
    struct scene *scene = context;

    scene->woken++;
}

static void on_wake_by(void *context, int64_t when)
{
    on_wake(context);
}

static bool on_granted(void *context, const struct dibs__grant *grant)
{
    return true;
}

static void on_ask_again(void *context)
{
    struct scene *scene = context;

    scene->ask_agains++;
}

static void on_server_changed(void *context)
{
}

static void on_reachable(void *context, bool up, const char *detail)
{
}

static void on_changed(void *context, const char *name)
{
    struct scene *scene = context;

    assert_true(scene->change_count < CHANGES_MOST);
    snprintf(scene->changes[scene->change_count++], sizeof scene->changes[0], "%.31s", name ? name : "*");
}

static void on_watching(void *context, bool on)
{
    struct scene *scene = context;

    *(on ? &scene->turned_on : &scene->turned_off) += 1;
    assert_int_equal(atomic_load(&scene->counters.tracking), on);
}

/* -------------------------------------------------------------------- setup */

static int setup(void **state)
{
    static struct scene scene;
    struct scene *s = &scene;
    struct dibs__error error;

    memset(s, 0, sizeof *s);
    s->fake = fake_redis_start(false);
    fake_redis_answer(s->fake, "INFO server", INFO_OF("7.2.4"));
    fake_redis_answer(s->fake, "SUBSCRIBE", CONFIRMED);
    fake_redis_answer(s->fake, "SUBSCRIBE __redis__:invalidate", HEARD);
    moved_clock_init(&s->clock);
    const struct dibs__store_config config = {
        .url = fake_redis_url(s->fake),
        .key_prefix = "lock:",
        .client_name = "test",
        .runtime_id = "test",
        .connect_timeout_ms = LIMIT_MS,
        .command_timeout_ms = COMMAND_MS,
        .clock = &s->clock.clock,
        .listener = {.context = s,
                     .wake = on_wake,
                     .wake_by = on_wake_by,
                     .ask_again = on_ask_again,
                     .changed = on_changed,
                     .source = s,
                     .granted = on_granted,
                     .server_changed = on_server_changed,
                     .reachable = on_reachable,
                     .watching = on_watching},
        .counters = &s->counters,
    };
    assert_status(DIBS_OK, dibs__store_open(&s->base, &config, &error));
    s->store = dibs__redis_of(s->base);
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    struct scene *s = *state;

    s->base->ops->close(s->base);
    moved_clock_destroy(&s->clock);
    fake_redis_stop(s->fake);
    return 0;
}

/* One round of the scheduler. Sleeps a little where there is nothing to do. */
static void attend(struct scene *s)
{
    struct pollfd fds[FDS_MOST];
    int64_t until;
    size_t count = s->base->ops->interest(s->base, fds, &until);

    assert_true(count <= FDS_MOST);
    poll(fds, (nfds_t)count, until > moved_clock_now(&s->clock) ? 2 : 0);
    s->base->ops->attend(s->base, fds, count);
}

/* Goes on as the scheduler until it is so. */
#define ATTEND_UNTIL(s, condition) TEST_REPEAT(condition, #condition, attend(s))

/* Attends for a while, to see that something does not happen. */
static void attend_a_while(struct scene *s)
{
    for (int64_t end = now_ms() + 30; now_ms() < end;)
        attend(s);
}

static unsigned asked(struct scene *s, const char *prefix)
{
    return fake_redis_count(s->fake, prefix);
}

/* ------------------------------------------------------------------ looking */

static struct dibs__batch batch;
static unsigned done_count;
static dibs_status done_status;

static void on_done(struct dibs__batch *done, const struct dibs__error *error)
{
    assert_ptr_equal(done, &batch);
    done_count++;
    done_status = error->status;
}

/* Looks at the locks "a", "b" and so on, whose tokens are "ta", "tb" and so on. */
static void begin_look(struct scene *s, size_t count)
{
    static const char names[][2] = {"a", "b", "c", "d"}, tokens[][3] = {"ta", "tb", "tc", "td"};

    memset(&batch, 0, sizeof batch);
    batch.watch = true;
    batch.count = count;
    batch.done = on_done;
    done_count = 0;
    for (size_t i = 0; i < count; i++)
        batch.items[i] = (struct dibs__renewal){.name = names[i], .token = tokens[i], .result = DIBS__RENEWED};
    s->base->ops->renew(s->base, &batch);
}

static void look(struct scene *s, size_t count)
{
    begin_look(s, count);
    ATTEND_UNTIL(s, done_count > 0);
    assert_int_equal(done_count, 1);
    assert_status(DIBS_OK, done_status);
}

static void expect_found(enum dibs__renewed a, enum dibs__renewed b, enum dibs__renewed c)
{
    assert_int_equal(batch.items[0].result, a);
    assert_int_equal(batch.items[1].result, b);
    assert_int_equal(batch.items[2].result, c);
}

/* ------------------------------------------------------------------ turning on */

/* The server has answered all of the probe's commands, and has told nothing yet. */
static void probing(struct scene *s)
{
    look(s, 1);
    assert_int_equal(batch.items[0].result, DIBS__UNANSWERED);
    ATTEND_UNTIL(s, s->store->tracking.state == DIBS__TRACKING_PROBING && s->store->tracking.unanswered == 0);
}

/* The server tells of the probe: tracking is on, for that time. */
static void tell_of_probe(struct scene *s, unsigned time)
{
    fake_redis_publish(s->fake, PROBE_TOLD);
    ATTEND_UNTIL(s, s->turned_on == time);
}

static void turn_on(struct scene *s)
{
    probing(s);
    tell_of_probe(s, 1);
}

static void expect_refused(struct scene *s)
{
    ATTEND_UNTIL(s, s->store->tracking.state == DIBS__TRACKING_REFUSED && s->store->tracking.unanswered == 0);
    assert_int_equal(s->turned_on, 0);
    assert_int_equal(s->turned_off, 0);
    assert_int_equal(atomic_load(&s->counters.tracking), 0);
    unsigned before = asked(s, "CLIENT TRACKING ON");
    fake_redis_publish(s->fake, PROBE_TOLD);
    attend_a_while(s);
    look(s, 2);
    assert_int_equal(batch.items[0].result, DIBS__UNANSWERED);
    assert_int_equal(batch.items[1].result, DIBS__UNANSWERED);
    assert_true(s->base->ops->tell_when_free(s->base, "a", 0) == 0);
    attend_a_while(s);
    assert_int_equal(s->turned_on, 0);
    assert_int_equal(asked(s, "CLIENT TRACKING ON"), before); /* it is not tried again with that pair */
    assert_int_equal(asked(s, "MGET"), 0);
    assert_int_equal(asked(s, "GET"), 0);
}

/* The process stood still for longer than that takes; then all is there. */
TEST_ON(what_the_server_told_in_time_counts_though_it_is_read_late, struct scene *s)
{
    probing(s);
    fake_redis_publish(s->fake, PROBE_TOLD);
    pause_ms(50); /* until it is in the socket */
    moved_clock_advance(&s->clock, MS(6000));
    ATTEND_UNTIL(s, s->turned_on == 1);
}

TEST_ON(nothing_is_tracked_before_it_is_wanted, struct scene *s)
{
    ATTEND_UNTIL(s, asked(s, "INFO cluster") > 0);
    attend_a_while(s);
    assert_int_equal(asked(s, "CLIENT TRACKING"), 0);
    assert_int_equal(asked(s, "SUBSCRIBE"), 0);
    assert_int_equal(s->turned_on, 0);
}

TEST_ON(a_probe_is_written_and_must_be_told_of, struct scene *s)
{
    char begin[64], end[80];

    probing(s);
    attend_a_while(s);
    assert_int_equal(s->turned_on, 0);
    assert_true(s->store->tracking.state == DIBS__TRACKING_PROBING);
    snprintf(begin, sizeof begin, "CLIENT TRACKING ON REDIRECT %u", fake_redis_accepted(s->fake));
    snprintf(end, sizeof end, "%s OPTOUT NOLOOP", begin);
    int first = fake_redis_place(s->fake, begin, 1);
    assert_true(first >= 0);
    assert_int_equal(asked(s, end), 1);
    assert_int_equal(fake_redis_place(s->fake, "EXISTS " PROBE, 1), first + 1);
    assert_int_equal(fake_redis_place(s->fake, "SET " PROBE " 1 PX 100", 1), first + 2);
    assert_int_equal(fake_redis_place(s->fake, end, 1), first + 3);
    assert_int_equal(asked(s, begin), 2);
    tell_of_probe(s, 1);
    assert_int_equal(s->turned_off, 0);
    assert_int_equal(s->change_count, 0); /* the probe is no lock */
    assert_int_equal(atomic_load(&s->counters.invalidations), 0);
    fake_redis_publish(s->fake, PROBE_TOLD);
    attend_a_while(s);
    assert_int_equal(s->turned_on, 1);
    assert_int_equal(s->change_count, 0);
}

TEST_ON(a_probe_may_be_told_of_before_it_is_answered, struct scene *s)
{
    fake_redis_answer(s->fake, "SUBSCRIBE __redis__:invalidate", ""); /* the test confirms, once replies are held */
    look(s, 1);
    ATTEND_UNTIL(s, asked(s, "SUBSCRIBE __redis__:invalidate") == 1);
    fake_redis_hold(s->fake, true);
    fake_redis_publish(s->fake, HEARD);
    ATTEND_UNTIL(s, asked(s, "SET " PROBE) == 1);
    fake_redis_publish(s->fake, PROBE_TOLD);
    ATTEND_UNTIL(s, atomic_load(&s->store->tracking.heard));
    attend_a_while(s);
    assert_int_equal(s->turned_on, 0);
    fake_redis_hold(s->fake, false);
    ATTEND_UNTIL(s, s->turned_on == 1);
}

/* Messages of another key, or of all keys. */
TEST_ON(a_message_of_another_key_does_not_confirm_the_probe, struct scene *s)
{
    probing(s);
    fake_redis_publish(s->fake, CHANGE("*1\r\n$6\r\nlock:a\r\n") CHANGE("*-1\r\n")
                                    CHANGE("*1\r\n$18\r\ndibs:probe:{lock:a\r\n"));
    ATTEND_UNTIL(s, s->change_count == 2);
    attend_a_while(s);
    assert_int_equal(s->turned_on, 0);
    assert_true(s->store->tracking.state == DIBS__TRACKING_PROBING);
}

/* Where all keys are deleted before the server has told of the probe's, it tells of all in its place. */
TEST_ON(a_probe_that_was_flushed_is_written_again, struct scene *s)
{
    probing(s);
    fake_redis_publish(s->fake, CHANGE("*-1\r\n"));
    ATTEND_UNTIL(s, asked(s, "SET " PROBE) == 2 && s->store->tracking.unanswered == 0);
    assert_int_equal(s->turned_on, 0);
    tell_of_probe(s, 1);
    fake_redis_publish(s->fake, CHANGE("*-1\r\n"));
    ATTEND_UNTIL(s, s->change_count == 2);
    attend_a_while(s);
    assert_int_equal(asked(s, "SET " PROBE), 2);
    assert_int_equal(s->turned_off, 0);
}

/* A proxy may swallow the messages. */
TEST_ON(without_a_message_in_time_tracking_is_not_relied_on, struct scene *s)
{
    struct pollfd fds[FDS_MOST];
    int64_t until;

    probing(s);
    s->base->ops->interest(s->base, fds, &until);
    assert_true(until <= moved_clock_now(&s->clock) + MS(PROBE_LIMIT_MS));
    moved_clock_advance(&s->clock, MS(PROBE_LIMIT_MS) - 1);
    attend_a_while(s);
    assert_true(s->store->tracking.state == DIBS__TRACKING_PROBING);
    moved_clock_advance(&s->clock, 1);
    expect_refused(s);
    fake_redis_await(s->fake, "CLIENT TRACKING OFF", 1);
    assert_int_equal(asked(s, "CLIENT TRACKING OFF"), 1);
}

TEST(each_command_of_the_probe_may_be_refused)
{
    static const char *const commands[] = {"CLIENT TRACKING ON REDIRECT 77", "EXISTS " PROBE, "SET " PROBE,
                                           "CLIENT TRACKING ON REDIRECT 77 OPTOUT NOLOOP"};

    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (i > 0)
            setup(state);
        struct scene *s = *state;
        fake_redis_answer(s->fake, "CLIENT ID", ":77\r\n");
        fake_redis_answer(s->fake, commands[i], NOPERM);
        look(s, 1);
        expect_refused(s);
        if (i + 1 < sizeof commands / sizeof *commands)
            teardown(state);
    }
}

TEST_ON(an_old_server_is_not_asked_to_track, struct scene *s)
{
    fake_redis_answer(s->fake, "INFO server", INFO_OF("7.0.4"));
    look(s, 1);
    expect_refused(s);
    assert_int_equal(asked(s, "CLIENT TRACKING"), 0);
}

TEST_ON(without_the_right_to_hear_nothing_is_tracked, struct scene *s)
{
    fake_redis_answer(s->fake, "SUBSCRIBE __redis__:invalidate", NOPERM);
    look(s, 1);
    ATTEND_UNTIL(s, asked(s, "SUBSCRIBE __redis__:invalidate") == 1);
    attend_a_while(s);
    assert_int_equal(asked(s, "CLIENT TRACKING"), 0);
    assert_int_equal(s->turned_on, 0);
    look(s, 1);
    assert_int_equal(batch.items[0].result, DIBS__UNANSWERED);
    assert_true(s->base->ops->tell_when_free(s->base, "a", 0) == 0);
}

/* ------------------------------------------------------------------- looks */

TEST_ON(a_look_tells_which_locks_are_still_held, struct scene *s)
{
    turn_on(s);
    fake_redis_answer(s->fake, "MGET", "*3\r\n$2\r\nta\r\n$-1\r\n$2\r\nxx\r\n");
    look(s, 3);
    expect_found(DIBS__WATCHED, DIBS__GONE, DIBS__GONE);
    assert_int_equal(asked(s, "MGET lock:a lock:b lock:c"), 1);
    assert_int_equal(asked(s, "MGET"), 1);
}

TEST_ON(a_malformed_reply_to_a_look_tells_nothing, struct scene *s)
{
    static const char *const replies[] = {"*2\r\n$2\r\nta\r\n$2\r\ntb\r\n",
                                          "*4\r\n$2\r\nta\r\n$2\r\ntb\r\n$2\r\ntc\r\n$2\r\ntd\r\n",
                                          "*0\r\n",
                                          "*-1\r\n",
                                          ":3\r\n",
                                          "$2\r\nta\r\n"};

    turn_on(s);
    for (size_t i = 0; i < sizeof replies / sizeof *replies; i++) {
        fake_redis_answer(s->fake, "MGET", replies[i]);
        look(s, 3);
        expect_found(DIBS__UNANSWERED, DIBS__UNANSWERED, DIBS__UNANSWERED);
    }
    fake_redis_answer(s->fake, "MGET", "*3\r\n:1\r\n*1\r\n$2\r\ntb\r\n$2\r\ntc\r\n");
    look(s, 3);
    expect_found(DIBS__GONE, DIBS__GONE, DIBS__WATCHED);
    assert_int_equal(s->turned_off, 0);
}

TEST_ON(locks_of_a_refused_look_are_looked_at_one_by_one, struct scene *s)
{
    turn_on(s);
    fake_redis_answer(s->fake, "MGET lock:a", "*1\r\n$2\r\nta\r\n");
    fake_redis_answer(s->fake, "MGET lock:a lock:b", "-CROSSSLOT apart\r\n");
    fake_redis_answer(s->fake, "MGET lock:b", "*1\r\n$-1\r\n");
    fake_redis_answer(s->fake, "MGET lock:c", NOPERM);
    look(s, 3);
    expect_found(DIBS__WATCHED, DIBS__GONE, DIBS__UNANSWERED);
    assert_int_equal(asked(s, "MGET"), 4);
}

TEST_ON(a_look_whose_link_breaks_is_not_answered, struct scene *s)
{
    turn_on(s);
    fake_redis_hold(s->fake, true);
    begin_look(s, 3);
    ATTEND_UNTIL(s, asked(s, "MGET") == 1);
    assert_int_equal(done_count, 0);
    fake_redis_cut(s->fake);
    ATTEND_UNTIL(s, done_count == 1);
    expect_found(DIBS__UNANSWERED, DIBS__UNANSWERED, DIBS__UNANSWERED);
    ATTEND_UNTIL(s, s->turned_off == 1);
}

/* A key read for an older subscription will bring no message. */
TEST_ON(a_look_for_an_older_subscription_counts_for_nothing, struct scene *s)
{
    turn_on(s);
    fake_redis_answer(s->fake, "MGET", "*3\r\n$2\r\nta\r\n$-1\r\n$2\r\nxx\r\n");
    fake_redis_hold(s->fake, true);
    begin_look(s, 3);
    ATTEND_UNTIL(s, asked(s, "MGET") == 1);
    fake_redis_publish(s->fake, "-ERR no more\r\n");
    ATTEND_UNTIL(s, s->turned_off == 1);
    assert_int_equal(done_count, 0);
    fake_redis_hold(s->fake, false);
    ATTEND_UNTIL(s, done_count == 1);
    expect_found(DIBS__UNANSWERED, DIBS__UNANSWERED, DIBS__UNANSWERED);
}

/* --------------------------------------------------------------- a new pair */

/*
 * Moves the clock only to the end of a pause between two tries: a server that does not run for a while must not seem
 * silent for longer than a command may take.
 */
static void await_second_probe(struct scene *s)
{
    struct pollfd fds[FDS_MOST];
    int64_t until;

    for (int64_t limit = now_ms() + LIMIT_MS; asked(s, "SET " PROBE) < 2; attend(s)) {
        assert_true(now_ms() < limit);
        s->base->ops->interest(s->base, fds, &until);
        if (until > moved_clock_now(&s->clock) && until <= moved_clock_now(&s->clock) + MS(COMMAND_MS / 2))
            moved_clock_set(&s->clock, until);
    }
}

TEST_ON(a_new_connection_is_probed_again, struct scene *s)
{
    turn_on(s);
    uint64_t on = s->base->ops->tell_when_free(s->base, "a", 0);
    assert_true(on > 0);
    unsigned again = s->ask_agains;
    fake_redis_cut(s->fake);
    ATTEND_UNTIL(s, s->turned_off == 1);
    assert_true(s->ask_agains > again);
    assert_true(s->base->ops->tell_when_free(s->base, "a", on) == 0);
    assert_int_equal(atomic_load(&s->counters.tracking), 0);
    await_second_probe(s);
    attend_a_while(s);
    assert_int_equal(s->turned_on, 1); /* the message of the first probe counts for nothing */
    tell_of_probe(s, 2);
    assert_true(s->base->ops->tell_when_free(s->base, "a", on) > on);
}

TEST_ON(a_refused_probe_concerns_its_connection_alone, struct scene *s)
{
    fake_redis_answer(s->fake, "CLIENT TRACKING", NOPERM);
    look(s, 1);
    expect_refused(s);
    fake_redis_answer(s->fake, "CLIENT TRACKING", "+OK\r\n");
    fake_redis_cut(s->fake);
    await_second_probe(s);
    tell_of_probe(s, 1);
    assert_int_equal(s->turned_off, 0);
}

/* A recall may come when no thread listens. */
TEST_ON(a_lease_that_may_be_kept_is_heard_by_the_scheduler, struct scene *s)
{
    assert_false(atomic_load(&s->store->subscriber->channel->unheard));
    assert_false(s->base->ops->can_keep(s->base, "a"));
    assert_true(atomic_load(&s->store->subscriber->channel->unheard));
    ATTEND_UNTIL(s, asked(s, "SET " PROBE) == 1);
    assert_false(s->base->ops->can_keep(s->base, "a"));
    tell_of_probe(s, 1);
    assert_true(s->base->ops->can_keep(s->base, "a"));
}

/* Also if a waiter wanted to be told of changes before. */
TEST_ON(a_lease_that_may_be_kept_is_heard_though_changes_are_told_already, struct scene *s)
{
    assert_true(s->base->ops->tell_when_free(s->base, "a", 0) == 0);
    ATTEND_UNTIL(s, asked(s, "SET " PROBE) == 1);
    tell_of_probe(s, 1);
    assert_false(atomic_load(&s->store->subscriber->channel->unheard));
    assert_true(s->base->ops->can_keep(s->base, "a"));
    assert_true(atomic_load(&s->store->subscriber->channel->unheard));
}

TEST_ON(a_refusal_that_may_pass_is_tried_again_later, struct scene *s)
{
    fake_redis_answer(s->fake, "SET " PROBE, "-OOM no room\r\n");
    look(s, 1);
    ATTEND_UNTIL(s, s->store->tracking.state == DIBS__TRACKING_REFUSED && s->store->tracking.unanswered == 0);
    assert_true(s->store->tracking.until == moved_clock_now(&s->clock) + MS(AGAIN_MS));
    fake_redis_answer(s->fake, "SET " PROBE, "+OK\r\n");
    attend_a_while(s);
    assert_int_equal(asked(s, "SET " PROBE), 1);
    s->store->tracking.until = moved_clock_now(&s->clock); /* so that no command seems to take so long */
    ATTEND_UNTIL(s, asked(s, "SET " PROBE) == 2);
    tell_of_probe(s, 1);
}

static void *on_redirected(void *context, bool ask, unsigned slot, const char *host, unsigned port)
{
    return NULL;
}

/* Of a node of a cluster: another name, which is there, gives the next probe its key. */
TEST_ON(a_probe_whose_slot_has_moved_is_given_up_for_another, struct scene *s)
{
    static const struct dibs__node_hooks hooks = {.redirected = on_redirected};

    s->store->config.node = &hooks;
    fake_redis_answer(s->fake, "EXISTS " PROBE, "-MOVED 1 127.0.0.1:7000\r\n");
    look(s, 1);
    ATTEND_UNTIL(s, asked(s, "CLIENT TRACKING OFF") == 1);
    ATTEND_UNTIL(s, s->store->tracking.state == DIBS__TRACKING_IDLE && s->store->tracking.unanswered == 0);
    attend_a_while(s);
    assert_int_equal(asked(s, "EXISTS"), 1);
    assert_true(dibs__tracking_watch(s->store, "b") == 0);
    ATTEND_UNTIL(s, asked(s, "SET dibs:probe:{lock:b}") == 1);
    fake_redis_publish(s->fake, PROBE_TOLD); /* which is the probe no more */
    attend_a_while(s);
    assert_int_equal(s->turned_on, 0);
    fake_redis_publish(s->fake, CHANGE("*1\r\n$19\r\ndibs:probe:{lock:b}\r\n"));
    ATTEND_UNTIL(s, s->turned_on == 1);
    s->store->config.node = NULL;
}

/* ----------------------------------------------------------- foreign locks */

TEST_ON(a_foreign_lock_is_read_once_and_told_when_free, struct scene *s)
{
    assert_true(s->base->ops->tell_when_free(s->base, "a", 0) == 0); /* nothing is tracked yet */
    ATTEND_UNTIL(s, asked(s, "SET " PROBE) == 1);
    fake_redis_answer(s->fake, "GET lock:a", "$7\r\nforeign\r\n");
    tell_of_probe(s, 1);
    ATTEND_UNTIL(s, asked(s, "GET lock:a") == 1);
    uint64_t on = s->base->ops->tell_when_free(s->base, "a", 0);
    assert_true(on > 0);
    ATTEND_UNTIL(s, asked(s, "GET lock:a") == 2);
    assert_true(s->base->ops->tell_when_free(s->base, "a", on) == on);
    attend_a_while(s);
    assert_int_equal(asked(s, "GET"), 2);
    assert_int_equal(s->change_count, 0);
    fake_redis_publish(s->fake, CHANGE("*1\r\n$6\r\nlock:a\r\n"));
    ATTEND_UNTIL(s, s->change_count == 1);
    assert_string_equal(s->changes[0], "a");
}

/* The lock may have been released before it was read: then no message comes. */
TEST_ON(a_foreign_lock_that_is_read_and_free_is_told_at_once, struct scene *s)
{
    turn_on(s);
    fake_redis_answer(s->fake, "GET lock:b", "$-1\r\n");
    assert_true(s->base->ops->tell_when_free(s->base, "b", 0) > 0);
    ATTEND_UNTIL(s, s->change_count == 1);
    assert_string_equal(s->changes[0], "b");
    assert_int_equal(atomic_load(&s->counters.invalidations), 0);
}

TEST_ON(a_foreign_lock_may_be_read_when_the_link_breaks, struct scene *s)
{
    turn_on(s);
    fake_redis_hold(s->fake, true);
    assert_true(s->base->ops->tell_when_free(s->base, "b", 0) > 0);
    ATTEND_UNTIL(s, asked(s, "GET lock:b") == 1);
    unsigned again = s->ask_agains;
    assert_true(s->base->ops->tell_when_free(s->base, "c", 0) > 0); /* not read yet */
    fake_redis_cut(s->fake);
    ATTEND_UNTIL(s, s->turned_off == 1);
    assert_true(s->ask_agains > again);
    assert_int_equal(s->change_count, 0);
}

/* ---------------------------------------------------------------- messages */

TEST_ON(changes_of_lock_names_are_told_and_of_other_keys_are_not, struct scene *s)
{
    static const char with_nul[] = "lock:a\0b";
    char longest[5 + DIBS_NAME_MAX + 2] = "lock:";

    turn_on(s);
    fake_redis_publish(s->fake, CHANGE("*4\r\n$6\r\nlock:x\r\n$7\r\nother:x\r\n$5\r\nlock:\r\n$4\r\nlock\r\n"));
    ATTEND_UNTIL(s, s->change_count == 1);
    assert_string_equal(s->changes[0], "x");
    fake_redis_publish(s->fake, CHANGE("*-1\r\n"));
    ATTEND_UNTIL(s, s->change_count == 2);
    assert_string_equal(s->changes[1], "*");
    assert_int_equal(atomic_load(&s->counters.invalidations), 2);
    dibs__tracking_changed(s->store, with_nul, sizeof with_nul - 1);
    dibs__tracking_changed(s->store, "", 0);
    memset(longest + 5, 'n', DIBS_NAME_MAX + 1);
    dibs__tracking_changed(s->store, longest, 5 + DIBS_NAME_MAX + 1);
    assert_int_equal(s->change_count, 2);
    dibs__tracking_changed(s->store, longest, 5 + DIBS_NAME_MAX);
    assert_int_equal(s->change_count, 3);
    assert_int_equal(atomic_load(&s->counters.invalidations), 3);
}

/* ------------------------------------------------------------------ memory */

/* The nth allocation of a look fails: the look still ends, and no lock counts as watched. */
TEST_ON(without_memory_a_look_ends_without_an_answer, struct scene *s)
{
    unsigned failed = 0;

    turn_on(s);
    fake_redis_answer(s->fake, "MGET", "*3\r\n$2\r\nta\r\n$-1\r\n$2\r\ntc\r\n");
    for (long nth = 1; CAN_FAIL && nth <= 3; nth++) {
        fail_here(nth);
        begin_look(s, 3);
        assert_true(fail_no_more());
        ATTEND_UNTIL(s, done_count > 0);
        assert_int_equal(done_count, 1);
        failed += done_status == DIBS_NO_MEMORY;
        expect_found(DIBS__UNANSWERED, DIBS__UNANSWERED, DIBS__UNANSWERED);
    }
    assert_int_equal(failed, CAN_FAIL);
    look(s, 3);
    expect_found(DIBS__WATCHED, DIBS__GONE, DIBS__WATCHED);
}

TEST_ON(without_memory_nobody_is_told_of_a_foreign_lock, struct scene *s)
{
    turn_on(s);
    fail_here(CAN_FAIL);
    assert_true((s->base->ops->tell_when_free(s->base, "a", 0) == 0) == CAN_FAIL);
    fail_no_more();
    assert_true(s->base->ops->tell_when_free(s->base, "a", 0) > 0);
}

TESTS(setup, teardown)
