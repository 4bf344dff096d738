/* The connections of a store: which is used for what, and whether the server can be reached. */
#include <limits.h>
#include <stdio.h>

#include "redis/reply.h"
#include "store/redis/redis_store.h"

/* The listener is told of each change once, in the order of the changes. */
static void set_reachable(struct dibs__redis_store *store)
{
    dibs__redis_mutex_lock(&store->mutex);
    if (atomic_load(&store->down)) {
        atomic_store(&store->down, false);
        store->config.listener.reachable(store->config.listener.source, true, store->endpoint.url.shown);
    }
    dibs__redis_mutex_unlock(&store->mutex);
}

static void hook_opened(void *context, uint64_t serial)
{
    struct dibs__redis_store *store = context;

    if (serial > 1)
        atomic_fetch_add_explicit(&store->config.counters->reconnects, 1, memory_order_relaxed);
    atomic_store(&store->reopened, true);
    set_reachable(store);
    store->config.listener.wake(store->config.listener.context);
}

/* As far as is known: a connection that nobody uses may have ended. */
static bool any_is_connected(const struct dibs__redis_store *store)
{
    bool stands = false;

    for (size_t i = 0; i <= store->channel_count && !stands; i++)
        stands = dibs__channel_is_connected(store->channels[i]);
    return stands;
}

/*
 * The store can be reached as long as another connection is open. A connection that is made meanwhile counts as
 * connected before its hook is called: either it is seen here, or the hook comes later and finds the store down.
 */
static void hook_failed(void *context, const struct dibs__error *error, bool silent)
{
    struct dibs__redis_store *store = context;

    if (error->status == DIBS_NO_MEMORY)
        return;
    for (size_t i = 0; i < store->channel_count; i++)
        dibs__channel_look(store->channels[i]);
    dibs__redis_mutex_lock(&store->mutex);
    bool stands = any_is_connected(store);
    if (!stands && !atomic_load(&store->down)) {
        atomic_store(&store->down, true);
        store->config.listener.reachable(store->config.listener.source, false, error->detail);
    }
    dibs__redis_mutex_unlock(&store->mutex);
    if (stands && silent && !atomic_exchange(&store->doubted, true))
        store->config.listener.wake(store->config.listener.context);
}

static void hook_unattended(void *context)
{
    struct dibs__redis_store *store = context;

    store->config.listener.wake(store->config.listener.context);
}

struct dibs__channel_hooks dibs__redis_hooks(struct dibs__redis_store *store)
{
    return (struct dibs__channel_hooks){store, hook_opened, hook_failed, hook_unattended, NULL};
}

size_t dibs__redis_pick(struct dibs__redis_store *store)
{
    size_t best = 0, missing = DIBS__COMMON;
    unsigned least = UINT_MAX;

    for (size_t i = 0; i < DIBS__COMMON && least > 0; i++) {
        unsigned load = dibs__channel_load(store->channels[i]);
        if (!dibs__channel_is_connected(store->channels[i])) {
            missing = missing < DIBS__COMMON ? missing : i;
        } else if (load < least) {
            least = load;
            best = i;
        }
    }
    if (least > 0 && least < UINT_MAX && missing < DIBS__COMMON && dibs__channel_is_waited_for(store->channels[best]))
        dibs__channel_want(store->channels[missing]);
    return best;
}

dibs_status dibs__redis_check_disk(const struct dibs__redis_store *store, const struct dibs__link_view *view,
                                   struct dibs__error *error)
{
    if (!store->config.durable || view->tells_of_disk)
        return DIBS_OK;
    return dibs__error_set(error, DIBS_STORE_ERROR,
                           "durable: %s can't be asked what is on its disk; that takes Redis 7.2, or 7.4.3 and later, "
                           "and the right to INFO",
                           store->endpoint.url.shown);
}

bool dibs__redis_another_is_connected(struct dibs__redis_store *store, size_t channel)
{
    size_t first = channel < DIBS__COMMON ? 0 : DIBS__COMMON;
    size_t end = channel < DIBS__COMMON ? DIBS__COMMON : store->channel_count;
    bool stands = false;

    for (size_t i = first; i < end && !stands; i++)
        stands = i != channel && dibs__channel_look(store->channels[i]);
    return stands;
}

uint64_t dibs__redis_known_server(const struct dibs__redis_store *store)
{
    uint64_t known = atomic_load_explicit(&store->renewal_server, memory_order_relaxed);

    return known != 0 ? known : atomic_load_explicit(&store->first_server, memory_order_relaxed);
}

bool dibs__redis_is_unconfirmed(struct dibs__store *base, const struct dibs__lease_store_state *store_state)
{
    const struct dibs__redis_lease *lease = (const struct dibs__redis_lease *)store_state;
    uint64_t server = atomic_load(&dibs__redis_of(base)->renewal_server);

    return server != 0 && lease->server != server;
}

int64_t dibs__redis_changed_at(const struct dibs__redis_store *store, uint64_t server)
{
    uint64_t known = dibs__redis_known_server(store);

    if (known != 0 && known != server) /* the scheduler has not noticed the change yet */
        return dibs__now(store->config.clock);
    return atomic_load_explicit(&store->changed_at, memory_order_relaxed);
}

bool dibs__redis_changed_within(const struct dibs__redis_store *store, uint64_t server, uint32_t lease_ms)
{
    int64_t changed_at = dibs__redis_changed_at(store, server);

    return changed_at > 0 && dibs__now(store->config.clock) < dibs__after_ms(changed_at, lease_ms);
}

void dibs__redis_note_reply(struct dibs__redis_store *store, dibs_status status)
{
    if (status != DIBS_UNAVAILABLE && status != DIBS_NO_MEMORY)
        atomic_store_explicit(&store->last_reply_at, dibs__now(store->config.clock), memory_order_relaxed);
    if ((status == DIBS_OK || status == DIBS_BUSY || status == DIBS_NOT_HELD) &&
        atomic_load_explicit(&store->down, memory_order_relaxed))
        set_reachable(store);
}

int64_t dibs__redis_not_after(const struct dibs__redis_store *store, const struct dibs__link_view *view, int64_t now)
{
    return now / 1000 + view->server_ahead_us + (int64_t)store->config.command_timeout_ms * 1000;
}

dibs_status dibs__redis_late(struct dibs__redis_store *store, struct dibs__channel *channel, uint64_t serial,
                             int64_t server_us, struct dibs__error *error)
{
    dibs__channel_set_clock(channel, serial, server_us - dibs__now(store->config.clock) / 1000, INT64_MAX);
    return dibs__error_set(error, DIBS_UNAVAILABLE, "%s rejected the request as expired", store->endpoint.url.shown);
}

dibs_status dibs__redis_reply_error(const struct dibs__redis_store *store, const char *verb, const char *name,
                                    const redisReply *reply, struct dibs__error *error)
{
    char quoted[DIBS__QUOTED_MAX], doing[DIBS__QUOTED_MAX + 16]; /* doing: acquiring "a" */

    snprintf(doing, sizeof doing, "%s %s", verb, dibs__quote(quoted, name));
    return dibs__reply_error(error, reply, store->endpoint.url.shown, doing);
}
