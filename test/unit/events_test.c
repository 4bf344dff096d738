/* Events: in order, on one thread, from a bounded queue whose overflow is counted. */
#include <pthread.h>

#include "core/events.h"
#include "support/fixture.h"
#include "support/stage.h"

#define QUEUE 1024 /* as many events may wait for the callback */

/* A callback that can be stopped, and keeps the fences of the events, which here are their numbers. */
static struct gate {
    pthread_mutex_t mutex; /* guards the rest */
    pthread_cond_t changed;
    bool closed, inside;
    uint64_t fences[4096];
    unsigned count;
    bool other_thread; /* the callback was called by two threads */
    pthread_t thread;
} gate;

static atomic_uint_fast64_t dropped;

static int gate_setup(void **state)
{
    (void)state;
    memset(&gate, 0, sizeof gate);
    pthread_mutex_init(&gate.mutex, NULL);
    pthread_cond_init(&gate.changed, NULL);
    atomic_store(&dropped, 0);
    return 0;
}

static int gate_teardown(void **state)
{
    (void)state;
    pthread_cond_destroy(&gate.changed);
    pthread_mutex_destroy(&gate.mutex);
    return 0;
}

static void gate_open(void)
{
    pthread_mutex_lock(&gate.mutex);
    gate.closed = false;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.mutex);
}

static void on_event(const dibs_event *event, void *arg)
{
    (void)arg;
    pthread_mutex_lock(&gate.mutex);
    gate.inside = true;
    pthread_cond_broadcast(&gate.changed);
    while (gate.closed)
        pthread_cond_wait(&gate.changed, &gate.mutex);
    gate.other_thread = gate.other_thread || (gate.count > 0 && !pthread_equal(gate.thread, pthread_self()));
    gate.thread = pthread_self();
    gate.fences[gate.count++] = event->fence;
    pthread_mutex_unlock(&gate.mutex);
}

static void emit(struct dibs__events *queue, uint64_t number)
{
    dibs__events_emit(queue, DIBS_EVENT_LOST, "a", number, "number %d", (int)number);
}

static struct dibs__events *started(dibs_event_fn *callback)
{
    struct dibs__events *queue = dibs__events_new(callback, NULL, &dropped);

    assert_true(queue && dibs__events_start(queue));
    return queue;
}

static struct dibs__events *started_with_a_blocked_callback(void)
{
    gate.closed = true;
    struct dibs__events *queue = started(on_event);
    emit(queue, 0);
    pthread_mutex_lock(&gate.mutex);
    while (!gate.inside)
        pthread_cond_wait(&gate.changed, &gate.mutex);
    pthread_mutex_unlock(&gate.mutex);
    return queue;
}

TEST(events_are_delivered_in_order_on_one_thread)
{
    struct dibs__events *queue = started(on_event);

    for (uint64_t i = 0; i < 1000; i++)
        emit(queue, i);
    dibs__events_stop(queue, &dibs__system_clock, DIBS__NEVER); /* tells what is queued first */
    assert_int_equal(gate.count, 1000);
    for (uint64_t i = 0; i < gate.count; i++)
        assert_int_equal(gate.fences[i], i);
    assert_false(gate.other_thread);
    assert_false(pthread_equal(gate.thread, pthread_self()));
    assert_int_equal(atomic_load(&dropped), 0);
    emit(queue, 7); /* after the end */
    assert_int_equal(atomic_load(&dropped), 1);
    dibs__events_stop(queue, &dibs__system_clock, DIBS__NEVER);
    dibs__events_free(queue);
    assert_int_equal(gate.count, 1000);
}

TEST(events_before_the_start_come_after_it_or_never)
{
    struct dibs__events *queue = dibs__events_new(on_event, NULL, &dropped);

    emit(queue, 0);
    assert_true(dibs__events_start(queue));
    dibs__events_free(queue);
    assert_int_equal(gate.count, 1);
    queue = dibs__events_new(on_event, NULL, &dropped);
    emit(queue, 0);
    dibs__events_free(queue);
    assert_int_equal(gate.count, 1);
}

TEST(dropped_events_are_counted_and_the_order_is_kept)
{
    struct dibs__events *queue = started_with_a_blocked_callback(); /* which has an event, and the queue is empty */

    for (uint64_t i = 1; i <= QUEUE + 100; i++)
        emit(queue, i);
    assert_int_equal(atomic_load(&dropped), 100);
    gate_open();
    dibs__events_free(queue);
    assert_int_equal(gate.count, QUEUE + 1);
    for (uint64_t i = 0; i < gate.count; i++)
        assert_int_equal(gate.fences[i], i);
}

static void *stop_now(void *queue)
{
    dibs__events_stop(queue, &dibs__system_clock, 0);
    return NULL;
}

/* Else dibs_close would wait for a thousand callbacks. */
TEST(events_that_are_queued_when_the_time_is_over_are_dropped)
{
    struct dibs__events *queue = started_with_a_blocked_callback();
    uint64_t emitted = 1;
    pthread_t thread;

    for (int i = 0; i < 10; i++)
        emit(queue, emitted++);
    assert_int_equal(pthread_create(&thread, NULL, stop_now, queue), 0);
    for (; atomic_load(&dropped) == 0; pause_ms(1)) /* until the events are ending */
        emit(queue, emitted++);
    gate_open();
    pthread_join(thread, NULL);
    assert_int_equal(gate.count, 1);
    assert_int_equal(atomic_load(&dropped), emitted - 1);
    dibs__events_free(queue);
}

TEST(events_without_a_listener_do_nothing)
{
    emit(NULL, 1);
    dibs__events_stop(NULL, &dibs__system_clock, DIBS__NEVER);
    dibs__events_free(NULL);
}

static dibs_event_kind seen_kind;
static char seen_detail[1024], seen_name[600];

static void copy_event(const dibs_event *event, void *arg)
{
    seen_kind = event->kind;
    snprintf(seen_detail, sizeof seen_detail, "%s", event->detail);
    snprintf(seen_name, sizeof seen_name, "%s", event->name ? event->name : "(null)");
}

TEST(an_events_strings_are_whole_copies)
{
    char name[DIBS_NAME_MAX + 1], text[1000];

    memset(name, 'n', sizeof name - 1);
    name[DIBS_NAME_MAX] = '\0';
    memset(text, 't', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    struct dibs__events *queue = started(copy_event);
    dibs__events_emit(queue, DIBS_EVENT_AT_RISK, name, 1, "%s", text);
    memset(name, 'x', DIBS_NAME_MAX);
    dibs__events_free(queue);
    assert_int_equal(seen_kind, DIBS_EVENT_AT_RISK);
    assert_int_equal(strspn(seen_name, "n"), DIBS_NAME_MAX);
    assert_int_equal(strlen(seen_detail), DIBS__DETAIL_MAX - 1);
    queue = started(copy_event);
    dibs__events_emit(queue, DIBS_EVENT_STORE_DOWN, NULL, 0, "gone");
    dibs__events_free(queue);
    assert_string_equal(seen_name, "(null)");
    assert_string_equal(seen_detail, "gone");
}

/* ------------------------------------------------------ a callback that locks */

struct user {
    _Atomic(dibs_runtime *) rt;
    atomic_int status, calls;
};

/* Unlocks, locks and asks inside the callback of a loss, where other libraries may deadlock. */
static void use_dibs(const dibs_event *event, void *arg)
{
    struct user *user = arg;
    dibs_runtime *rt = atomic_load(&user->rt);
    dibs_owner owner;
    dibs_stats stats;

    if (event->kind != DIBS_EVENT_LOST)
        return;
    dibs_status status = dibs_trylock(rt, "from-the-callback");
    if (status == DIBS_OK)
        status = dibs_check(rt, "from-the-callback");
    if (status == DIBS_OK)
        status = dibs_unlock(rt, "from-the-callback");
    if (status == DIBS_OK)
        status = dibs_query(rt, event->name, &owner);
    if (status == DIBS_OK)
        status = dibs_force_unlock(rt, event->name, NULL);
    dibs_stats_get(rt, &stats);
    atomic_store(&user->status, (int)status);
    atomic_fetch_add(&user->calls, 1);
}

TEST_WITH(an_event_callback_may_use_the_runtime, stage_setup, stage_teardown, stage *s)
{
    struct user user = {.status = -1};
    const dibs_lock_options fixed = {.flags = DIBS_FIXED_LEASE};

    s->settings.on_event = use_dibs;
    s->settings.on_event_arg = &user;
    stage_open(s, 30000);
    atomic_store(&user.rt, s->rt);
    assert_status(DIBS_OK, dibs_lock_with(s->rt, "a", 0, &fixed));
    stage_advance(s, believed(30000));
    await_that(atomic_load(&user.calls) > 0);
    assert_int_equal(atomic_load(&user.status), DIBS_OK);
    assert_status(DIBS_LOST, dibs_unlock(s->rt, "a"));
}

/* The queue fills while the callback is blocked; locks, losses and the scheduler go on nevertheless. */
TEST_WITH(a_blocked_callback_holds_up_nobody, stage_setup, stage_teardown, stage *s)
{
    const dibs_lock_options fixed = {.lease_ms = 100, .flags = DIBS_FIXED_LEASE};
    char name[16];

    gate_setup(NULL);
    gate.closed = true;
    s->settings.on_event = on_event;
    stage_open(s, 30000);
    for (unsigned i = 0; i < QUEUE + 50; i++) {
        snprintf(name, sizeof name, "%u", i);
        assert_status(DIBS_OK, dibs_lock_with(s->rt, name, 0, &fixed));
    }
    stage_advance(s, MS(100));
    assert_int_equal(stats_of(s->rt).lost, QUEUE + 50);
    uint64_t untold = stats_of(s->rt).events_dropped; /* one event may be with the callback */
    assert_true(untold == 50 || untold == 49);
    assert_status(DIBS_LOST, dibs_unlock_all(s->rt));
    lock_and_release(s->rt, "a", DIBS_WAIT_FOREVER);
    gate_open();
    close_runtime(&s->rt);
    assert_int_equal(gate.count + untold, QUEUE + 50);
    gate_teardown(NULL);
}

TESTS(gate_setup, gate_teardown)
