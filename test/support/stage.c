/* Gives a test a runtime on a moved clock and a faulty store. */
#include "support/stage.h"

#include "support/fixture.h"

int stage_setup(void **state)
{
    stage *s = calloc(1, sizeof *s);

    assert_true(s != NULL);
    moved_clock_init(&s->clock);
    faults_init(&s->faults, &s->clock.clock);
    events_init(&s->events);
    s->url = "mem:";
    s->settings = (struct dibs__settings){
        .connect_timeout_ms = 1000,
        .command_timeout_ms = 1000,
        .outage_ms = 5000,
        .replica_timeout_ms = 500,
        .on_event = events_record,
        .on_event_arg = &s->events,
        .open_store = faulty_store_open,
    };
    *state = s;
    return 0;
}

int stage_setup_open(void **state)
{
    stage_setup(state);
    stage_open(*state, 0);
    return 0;
}

int stage_teardown(void **state)
{
    stage *s = *state;

    faults_release(&s->faults, DIBS_OK, 0);
    faults_confirm(&s->faults);
    faults_unblock_acquires(&s->faults);
    dibs_close(s->rt);
    events_destroy(&s->events);
    faults_destroy(&s->faults);
    moved_clock_destroy(&s->clock);
    free(s);
    return 0;
}

dibs_runtime *stage_open_another(stage *s, uint32_t lease_ms)
{
    struct dibs__settings settings = s->settings;
    struct dibs__error error;
    dibs_runtime *rt = NULL;

    assert_true(dibs__settings_add_url(&settings, s->url, strlen(s->url)));
    settings.key_prefix = strdup("lock:");
    settings.label = strdup("stage");
    settings.lease_ms = lease_ms ? lease_ms : 30000;
    assert_status(DIBS_OK, dibs__runtime_open(&rt, &settings, &s->clock.clock, &error));
    return rt;
}

void stage_open(stage *s, uint32_t lease_ms)
{
    s->rt = stage_open_another(s, lease_ms);
}

void stage_open_at(stage *s, const char *url, uint32_t lease_ms)
{
    s->url = url;
    stage_open(s, lease_ms);
}

uint64_t stage_open_holding(stage *s, uint32_t lease_ms)
{
    stage_open(s, lease_ms);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    return fence_of(s->rt, "a");
}

dibs_runtime *stage_rival(stage *s, uint32_t lease_ms, const char *name)
{
    dibs_runtime *rt = test_runtime(stage_open_another(s, lease_ms));

    assert_status(DIBS_OK, dibs_lock(rt, name));
    return rt;
}

void stage_settle(stage *s)
{
    moved_clock_settle(&s->clock, 1);
}

void stage_advance(stage *s, int64_t ns)
{
    stage_settle(s);
    moved_clock_advance(&s->clock, ns);
    stage_settle(s);
}

int64_t believed(uint32_t lease_ms)
{
    return MS(lease_ms) - MS(lease_ms) / 100 - MS(2);
}

void stage_await_waiting(stage *s, size_t count)
{
    moved_clock_await_waiting(&s->clock, count);
}

actor *stage_waiter(stage *s, const char *name, int64_t wait_ms, size_t count)
{
    return stage_waiter_with(s, name, wait_ms, NULL, count);
}

actor *stage_waiter_with(stage *s, const char *name, int64_t wait_ms, const dibs_lock_options *options, size_t count)
{
    actor *a = actor_start();

    actor_begin_lock_with(a, s->rt, name, wait_ms, options);
    stage_await_waiting(s, count);
    return a;
}

void stage_let_renewals_go(stage *s)
{
    faults_let_renewals_go(&s->faults);
    dibs__scheduler_wake(s->rt->core->scheduler);
}

unsigned acquires(stage *s)
{
    return faults_count(&s->faults, &s->faults.acquires);
}
