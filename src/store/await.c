#include "store/store.h"

static bool goes_on(const struct dibs__waiting *waiting)
{
    return dibs__now(waiting->clock) < waiting->until &&
           !(waiting->wait_event && waiting->cancelled && atomic_load(waiting->cancelled));
}

static enum dibs__progress wait_for(struct dibs__store *store, const struct dibs__op *op,
                                    const struct dibs__waiting *waiting, struct dibs__wait_event *wait_event)
{
    enum dibs__progress progress;
    struct dibs__wait wait;

    dibs__wait_init(&wait, wait_event);
    for (;;) {
        dibs__wait_event_reset(wait_event);
        progress = store->ops->progress(store, op, &wait);
        if (progress != DIBS__OP_AWAITED || !goes_on(waiting))
            break;
        dibs__waits_sleep(&wait, 1, wait_event, waiting->clock, waiting->until);
    }
    dibs__wait_end(&wait);
    return progress;
}

bool dibs__op_await(struct dibs__store *store, const struct dibs__op *op, const struct dibs__waiting *waiting)
{
    struct dibs__wait_event own;
    enum dibs__progress progress;

    dibs__wait_event_init(&own);
    if (goes_on(waiting))
        progress = wait_for(store, op, waiting, waiting->wait_event ? waiting->wait_event : &own);
    else
        progress = store->ops->progress(store, op, NULL);
    return progress == DIBS__OP_OVER || progress == DIBS__OP_IMMEDIATE;
}

bool dibs__op_watch(struct dibs__store *store, const struct dibs__op *op, struct dibs__wait *wait)
{
    DIBS__REQUIRE(wait->wait_event->tell);
    bool is_awaited = store->ops->progress(store, op, wait) == DIBS__OP_AWAITED;
    if (!is_awaited)
        dibs__wait_end(wait);
    return is_awaited;
}
