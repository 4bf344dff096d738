/*
 * Connections that are cut while others wait: in the reply to an ask that is queued, in the reply to a release for
 * which somebody waits, in a message that tells of a grant. No lock is granted twice or stranded, no unlock is lost,
 * and no entry stays in a queue.
 */
#include "support/delays.h"
#include "support/fixture.h"
#include "support/queue.h"
#include "support/script_server.h"

#define ASK_OR_RELEASE "\r\n$1\r\n3\r\n$8\r\nlock:cut\r\n" /* as ASK_OR_RELEASE_OF_X */

#define FOREVER DIBS_WAIT_FOREVER
#define PROMISED_MS 100

/* f->rt has good connections; those of rt are cut. */
typedef struct scene {
    fixture *f;
    script_server *net;
    dibs_runtime *rt;
    dibs_runtime *third; /* finds out whether the lock is really taken */
    actor *first, *second;
    uint64_t fence;  /* of the last hold */
    delays disorder; /* how long it took from the reconnect until all was in order */
} scene;

static int open_scene(void **state, uint32_t handoff_ms)
{
    static scene s;
    int status = fixture_setup(state);
    fixture *f = *state;
    dibs_config config = {.lease_ms = SCRIPT_LEASE_MS, .command_timeout_ms = 5000, .handoff_ms = handoff_ms};

    s = (scene){.f = f, .first = actor_start(), .second = actor_start()};
    s.net = script_server_start(&(script_options){.backend = f->server->socket_path});
    s.rt = open_url(script_server_url(s.net), &config);
    fixture_open(f, LONG_LEASE_MS);
    s.third = open_runtime(f->server, LONG_LEASE_MS);
    *state = &s;
    return status;
}

static int setup(void **state)
{
    return open_scene(state, 0);
}

static int setup_without_handoff(void **state)
{
    return open_scene(state, DIBS_NO_HANDOFF);
}

static int teardown(void **state)
{
    scene *s = *state;

    actor_end(s->first);
    actor_end(s->second);
    assert_int_equal(stats_of(s->rt).lost + stats_of(s->rt).orphaned, 0);
    assert_int_equal(stats_of(s->f->rt).lost, 0);
    dibs_close(s->rt);
    dibs_close(s->third);
    script_server_stop(s->net);
    *state = s->f;
    return fixture_teardown(state);
}

/* Notes that everything is in order now; it cannot have been before `since`. */
static void note_time(scene *s, int64_t since)
{
    int64_t back = script_server_back_at(s->net);

    if (back != 0) /* otherwise no new connection has been needed so far */
        delays_note(&s->disorder, now_ms() - (back > since ? back : since), PROMISED_MS);
}

static void await_firing(scene *s, unsigned before)
{
    script_server_await_fired(s->net, before);
    script_server_clear(s->net);
}

static void expect_nothing_left(scene *s)
{
    await_nobody(s->f->rt, "cut");
    queue_assert_gone(s->f->server, "cut");
}

/* Expects that the actor has the lock exclusively and with a larger fence than all before; then releases it. */
static void expect_held_by(scene *s, actor *a, dibs_runtime *rt)
{
    dibs_hold hold;

    assert_status(DIBS_OK, actor_result(a));
    assert_status(DIBS_OK, actor_hold(a, rt, "cut", &hold));
    assert_true(hold.fence > s->fence);
    s->fence = hold.fence;
    assert_true(server_has(s->f->server, "lock:cut"));
    assert_status(DIBS_BUSY, dibs_trylock(s->third, "cut"));
    assert_status(DIBS_OK, actor_unlock(a, rt, "cut"));
}

typedef void cut_function(scene *s, script_rule rule);

/* Cuts at every byte of the reply, up to the whole of it, and also before and after the command is done. */
static void cut_everywhere(scene *s, cut_function *cut)
{
    size_t count = 0;

    do {
        cut(s, (script_rule){.match = ASK_OR_RELEASE, .nth = 1, .action = SCRIPT_TRUNCATE, .count = count});
        await_that(script_server_cut_length(s->net) > 0); /* who gives up does not wait for the reply */
    } while (count++ < script_server_cut_length(s->net));
    assert_true(count > 3);
    cut(s, (script_rule){.match = ASK_OR_RELEASE, .nth = 1, .action = SCRIPT_CLOSE_BEFORE});
    cut(s, (script_rule){.match = ASK_OR_RELEASE, .nth = 1, .action = SCRIPT_CLOSE_AFTER});
    print_message("# cut at %zu places\n", count + 2);
    delays_expect_few_late(&s->disorder, "in order after the reconnect");
}

/* ------------------------------------------------------------ an ask that queues */

static void lock_directly(scene *s)
{
    assert_status(DIBS_OK, dibs_timedlock(s->f->rt, "cut", LIMIT_MS));
    s->fence = fence_of(s->f->rt, "cut");
}

/* The ask of a waiter is cut while another holds the lock: the waiter waits on, in one place. */
static void cut_the_ask_of_one_that_waits(scene *s, script_rule rule)
{
    unsigned fired = script_server_fired(s->net);

    lock_directly(s);
    script_server_add(s->net, rule);
    actor_begin_lock(s->first, s->rt, "cut", FOREVER);
    await_firing(s, fired);
    queue_await(s->f->server, "cut", 1);
    note_time(s, 0);
    assert_true(actor_busy(s->first));
    assert_status(DIBS_OK, dibs_unlock(s->f->rt, "cut"));
    expect_held_by(s, s->first, s->rt);
    expect_nothing_left(s);
}

TEST_ON(an_ask_that_queues_may_be_cut_at_any_byte, scene *s)
{
    cut_everywhere(s, cut_the_ask_of_one_that_waits);
}

/* As above, but the waiter gives up before the lock is free: its entry is removed. */
static void cut_the_ask_of_one_that_gives_up(scene *s, script_rule rule)
{
    unsigned fired = script_server_fired(s->net);
    int64_t ended, limit = now_ms() + LIMIT_MS;
    dibs_status status;

    lock_directly(s);
    script_server_add(s->net, rule);
    do { /* the time of one call may be over before it has connected again */
        status = actor_lock(s->first, s->rt, "cut", 30);
        ended = now_ms();
        assert_true(status == DIBS_TIMEOUT || status == DIBS_UNAVAILABLE);
    } while (script_server_fired(s->net) == fired && ended < limit);
    await_firing(s, fired);
    queue_await(s->f->server, "cut", 0);
    note_time(s, ended);
    assert_status(DIBS_NOT_HELD, actor_check(s->first, s->rt, "cut"));
    assert_status(DIBS_OK, dibs_unlock(s->f->rt, "cut"));
    expect_nothing_left(s);
}

TEST_ON(an_ask_that_gives_up_may_be_cut_at_any_byte, scene *s)
{
    cut_everywhere(s, cut_the_ask_of_one_that_gives_up);
}

static void lock_fairly(void *arg)
{
    scene *s = arg;

    if (dibs_lock_with(s->rt, "cut", FOREVER, &(dibs_lock_options){.flags = DIBS_FAIR}) != DIBS_OK)
        print_error("%s\n", dibs_last_error()); /* what follows fails */
}

/* A fair waiter keeps the place that its first ask got, before a waiter that came later. */
static void cut_the_ask_of_a_fair_one(scene *s, script_rule rule)
{
    unsigned fired = script_server_fired(s->net);
    dibs_hold hold;

    lock_directly(s);
    script_server_add(s->net, rule);
    actor_begin(s->first, lock_fairly, s);
    await_firing(s, fired);
    queue_await(s->f->server, "cut", 1);
    note_time(s, 0);
    actor_begin_lock(s->second, s->third, "cut", FOREVER);
    queue_await(s->f->server, "cut", 2);
    assert_status(DIBS_OK, dibs_unlock(s->f->rt, "cut"));
    actor_finish(s->first);
    assert_true(actor_busy(s->second));
    assert_status(DIBS_OK, actor_hold(s->first, s->rt, "cut", &hold));
    assert_true(hold.fence > s->fence);
    assert_status(DIBS_OK, actor_unlock(s->first, s->rt, "cut"));
    actor_gets(s->second, s->third, "cut");
    expect_nothing_left(s);
}

TEST_ON(a_fair_ask_may_be_cut_at_any_byte, scene *s)
{
    cut_everywhere(s, cut_the_ask_of_a_fair_one);
}

/* ----------------------------------------------------- a release that others wait behind */

/* An unlock whose answer got lost may have been executed or not, but never reports that the lease was lost. */
static void unlock_and_cut(scene *s, script_rule rule)
{
    unsigned fired = script_server_fired(s->net);

    script_server_add(s->net, rule);
    dibs_status status = actor_unlock(s->first, s->rt, "cut");
    await_firing(s, fired);
    assert_true(status == DIBS_OK || status == DIBS_UNAVAILABLE);
    assert_status(DIBS_NOT_HELD, actor_check(s->first, s->rt, "cut"));
}

static void lock_by_first(scene *s)
{
    dibs_hold hold;

    assert_status(DIBS_OK, actor_lock(s->first, s->rt, "cut", LIMIT_MS));
    assert_status(DIBS_OK, actor_hold(s->first, s->rt, "cut", &hold));
    s->fence = hold.fence;
}

static void cut_the_release_for_another_process(scene *s, script_rule rule)
{
    lock_by_first(s);
    actor_begin_lock(s->second, s->f->rt, "cut", FOREVER);
    queue_await(s->f->server, "cut", 1);
    unlock_and_cut(s, rule);
    actor_finish(s->second);
    note_time(s, 0);
    expect_held_by(s, s->second, s->f->rt);
    expect_nothing_left(s);
}

TEST_ON(a_release_for_another_process_may_be_cut_at_any_byte, scene *s)
{
    cut_everywhere(s, cut_the_release_for_another_process);
}

/* A thread of the holder's own process waits for the lock. */
static void begin_waiting_here(scene *s)
{
    uint64_t contended = stats_of(s->rt).contended;

    actor_begin_lock(s->second, s->rt, "cut", FOREVER);
    assert_true(comes_to(s->rt, STAT(contended), contended + 1));
}

/* The release asks for the lock again, for the thread that waits here. */
static void cut_the_requeue(scene *s, script_rule rule)
{
    lock_by_first(s);
    begin_waiting_here(s);
    unlock_and_cut(s, rule);
    actor_finish(s->second);
    note_time(s, 0);
    expect_held_by(s, s->second, s->rt);
    expect_nothing_left(s);
}

TEST_WITH(a_release_that_asks_again_may_be_cut_at_any_byte, setup_without_handoff, teardown, scene *s)
{
    cut_everywhere(s, cut_the_requeue);
}

/* As above, but another process waits already, and comes first. */
static void cut_the_requeue_behind_another(scene *s, script_rule rule)
{
    lock_by_first(s);
    actor *elsewhere = actor_locking(s->f->rt, "cut", FOREVER);
    queue_await(s->f->server, "cut", 1);
    begin_waiting_here(s);
    unlock_and_cut(s, rule);
    actor_finish(elsewhere);
    queue_await(s->f->server, "cut", 1);
    note_time(s, 0);
    assert_true(actor_busy(s->second));
    expect_held_by(s, elsewhere, s->f->rt);
    expect_held_by(s, s->second, s->rt);
    actor_end(elsewhere);
    expect_nothing_left(s);
}

TEST_WITH(a_release_that_asks_behind_another_may_be_cut_at_any_byte, setup_without_handoff, teardown, scene *s)
{
    cut_everywhere(s, cut_the_requeue_behind_another);
}

/* ----------------------------------------------------------------- a message */

/* A thread of another process waits in the queue and listens. */
static void begin_waiting_there(scene *s)
{
    lock_directly(s);
    actor_begin_lock(s->first, s->rt, "cut", FOREVER);
    queue_await(s->f->server, "cut", 1);
    queue_await_listening(s->f->server, queue_at(s->f->server, "cut", 0).channel);
}

/* The push does not reach the waiter; when it listens again, it asks. */
TEST_ON(a_grant_message_may_be_cut_at_any_byte, scene *s)
{
    size_t count = 0;

    do {
        unsigned fired = script_server_fired(s->net);

        begin_waiting_there(s);
        script_server_cut_push(s->net, count);
        assert_status(DIBS_OK, dibs_unlock(s->f->rt, "cut"));
        await_firing(s, fired);
        actor_finish(s->first);
        note_time(s, 0);
        expect_held_by(s, s->first, s->rt);
        expect_nothing_left(s);
    } while (count++ < script_server_cut_length(s->net));
    print_message("# cut at %zu places\n", count);
    assert_true(count > 100);
    delays_expect_few_late(&s->disorder, "in order after the reconnect");
}

/* All connections break while a grant is on its way, so the waiter cannot ask over the old one either. */
TEST_ON(a_grant_survives_when_every_connection_breaks, scene *s)
{
    for (int i = 0; i < 20; i++) {
        begin_waiting_there(s);
        script_server_hold_pushes(s->net, true);
        assert_status(DIBS_OK, dibs_unlock(s->f->rt, "cut"));
        assert_int_equal(queue_size(s->f->server, "cut"), 0); /* it is granted */
        script_server_cut(s->net);
        script_server_hold_pushes(s->net, false);
        expect_held_by(s, s->first, s->rt);
        expect_nothing_left(s);
    }
}

/* Its time may be over before it is seen to wait. */
static bool listens_or_gave_up(scene *s)
{
    queue_entry entry;

    return !actor_busy(s->first) ||
           (queue_find(s->f->server, "cut", 0, &entry) && queue_has_listener(s->f->server, entry.channel));
}

/*
 * A waiter gave up while its grant was on its way, and then receives all or part of the push: the grant is given back.
 */
TEST_ON(a_grant_that_nobody_waits_for_is_given_back_though_cut, scene *s)
{
    unsigned queued = 0;

    for (size_t count = 0; count < 200; count += 10) {
        dibs_status status;

        lock_directly(s);
        actor_begin_lock(s->first, s->rt, "cut", 200);
        await_that(listens_or_gave_up(s));
        queued += actor_busy(s->first);
        script_server_hold_pushes(s->net, true);
        assert_status(DIBS_OK, dibs_unlock(s->f->rt, "cut"));
        status = actor_result(s->first);
        if (count % 20)
            script_server_cut_push(s->net, count);
        script_server_hold_pushes(s->net, false);
        if (status == DIBS_OK) /* the waiter asked once more, at the end of its time */
            assert_status(DIBS_OK, actor_unlock(s->first, s->rt, "cut"));
        else
            assert_status(DIBS_TIMEOUT, status);
        expect_nothing_left(s);
    }
    assert_true(queued > 0);
}

TESTS(setup, teardown)
