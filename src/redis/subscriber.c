#include "redis/subscriber_parts.h"

#include <stdlib.h>

/* --------------------------------------------------------------- any thread */

uint64_t dibs__subscriber_serial(struct dibs__subscriber *subscriber)
{
    uint64_t serial = atomic_load_explicit(&subscriber->serial, memory_order_acquire);

    if (serial == 0 && !atomic_exchange(&subscriber->connector.wanted, true))
        subscriber->hooks.wake(subscriber->hooks.above);
    return serial;
}

/* Unlocks the mutex while it sleeps. seen: the number of tries that had ended when the call began. */
static dibs_status wait_for_one(struct dibs__subscriber *subscriber, unsigned seen, int64_t deadline, uint64_t *serial,
                                struct dibs__error *error) DIBS__REQUIRES(subscriber_mutex)
{
    while ((*serial = atomic_load(&subscriber->serial)) == 0) {
        unsigned ended = atomic_load(&subscriber->tries);
        bool late = dibs__now(subscriber->endpoint->clock) >= deadline;
        dibs_status failure = subscriber->failure.status;
        if (failure == DIBS_DENIED || (failure != DIBS_OK && (late || ended != seen))) {
            *error = subscriber->failure;
            return failure;
        }
        if (late)
            return dibs__error_set(error, DIBS_UNAVAILABLE, "%s does not answer", subscriber->endpoint->url.shown);
        seen = ended;
        subscriber->endpoint->clock->wait(subscriber->endpoint->clock, &subscriber->changed, &subscriber->mutex,
                                          deadline);
    }
    return DIBS_OK;
}

dibs_status dibs__subscriber_await(struct dibs__subscriber *subscriber, int64_t deadline, uint64_t *serial,
                                   struct dibs__error *error)
{
    unsigned seen =
        atomic_load(&subscriber->tries); /* read before a subscription is wanted, because the try may fail at once */

    *serial = dibs__subscriber_serial(subscriber);
    if (*serial != 0)
        return DIBS_OK;
    if (dibs__now(subscriber->endpoint->clock) < deadline && !atomic_exchange(&subscriber->connector.needed, true) &&
        dibs__subscriber_is_unconfirmed(subscriber))
        subscriber->hooks.wake(subscriber->hooks.above);
    subscriber_mutex_lock(&subscriber->mutex);
    dibs_status status = wait_for_one(subscriber, seen, deadline, serial, error);
    subscriber_mutex_unlock(&subscriber->mutex);
    return status;
}

void dibs__subscriber_distrust(struct dibs__subscriber *subscriber, uint64_t serial)
{
    uint_fast64_t standing = serial;

    if (serial != 0 && atomic_compare_exchange_strong(&subscriber->serial, &standing, 0))
        subscriber->hooks.wake(subscriber->hooks.above);
}

bool dibs__subscriber_confirm(struct dibs__subscriber *subscriber, uint64_t serial)
{
    uint_fast64_t before = atomic_load_explicit(&subscriber->confirmed, memory_order_relaxed);

    while (before < serial && !atomic_compare_exchange_weak(&subscriber->confirmed, &before, serial))
        continue;
    return atomic_load(&subscriber->serial) == serial;
}

/* ----------------------------------------------------------------- lifecycle */

struct dibs__subscriber *dibs__subscriber_new(struct dibs__endpoint *endpoint,
                                              const struct dibs__subscriber_hooks *hooks)
{
    struct dibs__subscriber *subscriber = calloc(1, sizeof *subscriber);

    if (!subscriber)
        return NULL;
    subscriber->endpoint = endpoint;
    subscriber->hooks = *hooks;
    subscriber->retry.first_ms = DIBS__UNCONFIRMED_FIRST_MS;
    atomic_init(&subscriber->slots.due, DIBS__NEVER);
    dibs__connector_init(&subscriber->connector, endpoint, DIBS__LINK_SUBSCRIPTIONS);
    if (dibs__mutex_init(&subscriber->mutex) != 0)
        goto no_mutex;
    if (dibs__cond_init(&subscriber->changed) != 0)
        goto no_cond;
    if (!dibs__wake_init(&subscriber->bell))
        goto no_bell;
    return subscriber;
no_bell:
    pthread_cond_destroy(&subscriber->changed);
no_cond:
    dibs__mutex_destroy(&subscriber->mutex);
no_mutex:
    free(subscriber);
    return NULL;
}

void dibs__subscriber_free(struct dibs__subscriber *subscriber)
{
    if (!subscriber)
        return;
    subscriber_mutex_lock(&subscriber->mutex);
    DIBS__REQUIRE(!subscriber->first && subscriber->role_holder != DIBS__ROLE_HOLDER_THREAD);
    subscriber_mutex_unlock(&subscriber->mutex);
    dibs__slots_free(&subscriber->slots);
    dibs__link_free(subscriber->link);
    dibs__connector_free(&subscriber->connector);
    dibs__wake_free(&subscriber->bell);
    pthread_cond_destroy(&subscriber->changed);
    dibs__mutex_destroy(&subscriber->mutex);
    free(subscriber);
}
