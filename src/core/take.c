#include "core/take.h"

#include <pthread.h>

#include "base/clock.h"
#include "core/runtime.h"

/* Drives the workers until the queue has a completion, the time is over, or the runtime is closing. */
static void drive(dibs_queue *queue, struct dibs__core *core, struct dibs__wait_event *wait_event, int64_t until)
{
    int64_t due;

    while (!atomic_load(core->config.closing)) {
        dibs__wait_event_reset(wait_event);
        bool ran = dibs__workers_run_some(core->workers, until, &due);
        if (dibs__queue_await(queue, 0) || dibs__now(&dibs__system_clock) >= until)
            break;
        if (!ran && !atomic_load(core->config.closing))
            dibs__store_listen(core->store, &dibs__system_clock, "dibs", wait_event, dibs__earlier(due, until));
    }
}

/* False: the calling thread could not drive, so it must sleep. */
static bool try_to_drive(dibs_queue *queue, int64_t until)
{
    dibs_runtime *runtime = dibs__queue_served(queue);
    struct dibs__wait_event wait_event;
    struct dibs__visit visit;
    struct dibs__error unused;

    if (!runtime || runtime->clock != &dibs__system_clock || atomic_load(&runtime->closing))
        return false;
    dibs__wait_event_init(&wait_event);
    if (!dibs__queue_set_driver(queue, &wait_event))
        return false;
    bool drives = false;
    if (dibs__visit_begin(&visit, runtime, &unused) == DIBS_OK) {
        drives = dibs__workers_drive(visit.core->workers, &wait_event);
        if (drives) {
            drive(queue, visit.core, &wait_event, until);
            dibs__workers_end_drive(visit.core->workers, &wait_event);
        }
        dibs__visit_end(&visit);
    }
    dibs__queue_set_driver(queue, NULL);
    return drives;
}

size_t dibs__queue_take(dibs_queue *queue, dibs_completion *out, size_t max, int64_t wait_ms)
{
    const struct dibs__clock *clock = &dibs__system_clock;
    int cancel_state;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    size_t count = dibs__queue_take_ready(queue, out, max);
    if (count == 0 && wait_ms != 0) {
        int64_t until = wait_ms < 0 ? DIBS__NEVER : dibs__after_ms(dibs__now(clock), wait_ms);
        while (count == 0 && dibs__now(clock) < until) {
            if (!try_to_drive(queue, until))
                dibs__queue_await(queue, until);
            count = dibs__queue_take_ready(queue, out, max);
        }
    }
    pthread_setcancelstate(cancel_state, NULL);
    return count;
}
