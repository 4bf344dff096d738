/* The store on one Redis server: its opening and closing, and the scheduler's part. See redis_store.h. */
#include "store/redis/redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "redis/socket.h"
#include "redis/tls.h"
#include "store/redis/redis_store.h"

/* ------------------------------------------------------------ the scheduler */

/* The server granted a lock. If nobody here waits for the grant any more, the lock is given back. */
static void on_push(void *context, const char *bytes, size_t size)
{
    struct dibs__redis_store *store = context;
    struct dibs__pushed pushed;

    if (!dibs__push_read(&pushed, store->config.key_prefix, bytes, size))
        return;
    pushed.grant.confirm = dibs__redis_confirms(store) || pushed.grant.fence == 0;
    if (!store->config.listener.granted(store->config.listener.source, &pushed.grant))
        dibs__redis_retract(&store->store, pushed.name, pushed.token, DIBS__LEASE_MAX_MS,
                            pushed.grant.fence); /* the length of the lease is not known here */
}

/* The subscriber comes first, because threads wait for what it receives. */
static size_t interest(struct dibs__store *base, struct pollfd *fds, int64_t *deadline)
{
    struct dibs__redis_store *store = dibs__redis_of(base);
    size_t count = 0;

    *deadline =
        dibs__earlier(dibs__retractions_deadline(store->retractions), dibs__tracking_deadline(&store->tracking));
    fds[count++] = dibs__subscriber_interest(store->subscriber, deadline);
    for (size_t i = 0; i <= store->channel_count; i++)
        fds[count++] = dibs__channel_interest(store->channels[i], i == store->channel_count, deadline);
    if (store->sentinel)
        count += dibs__sentinel_interest(store->sentinel, &fds[count], deadline);
    return count;
}

/* The sentinels come first, because connections to another server than the master are given up. */
static void attend_sentinel(struct dibs__redis_store *store, int64_t now)
{
    uint64_t told = store->told;

    if (store->sentinel)
        dibs__sentinel_attend(store->sentinel, now);
    store->told = atomic_load(&store->endpoint.told);
    if (store->told == told)
        return;
    dibs__subscriber_hurry(store->subscriber);
    for (size_t i = 0; i <= store->channel_count; i++)
        dibs__channel_hurry(store->channels[i]);
}

static void look_for_another_server(struct dibs__redis_store *store)
{
    struct dibs__link_view view;

    if (!dibs__channel_view(store->background, &view) || !view.server ||
        view.server == atomic_load_explicit(&store->renewal_server, memory_order_relaxed))
        return;
    uint64_t known = dibs__redis_known_server(store);
    if ((known && known != view.server) || store->config.node) /* a node of a cluster may have followed another */
        atomic_store(&store->changed_at, dibs__now(store->config.clock));
    atomic_store(&store->renewal_server, view.server);
    dibs__redis_mutex_lock(&store->mutex);
    store->restored.channel = NULL; /* nothing that went to the other server comes here */
    dibs__redis_mutex_unlock(&store->mutex);
    store->config.listener.server_changed(store->config.listener.source);
}

/*
 * If no connection can be made, the open ones may lead to a server that is gone without a word. A PING on each that is
 * idle finds that out.
 */
static void try_idle_channels(struct dibs__redis_store *store)
{
    const struct dibs__command ping = {.words = (const char *const[]){"PING", NULL}};
    struct dibs__link_view view;

    for (size_t i = 0; i <= store->channel_count; i++)
        if (dibs__channel_load(store->channels[i]) == 0 && dibs__channel_view(store->channels[i], &view))
            dibs__channel_submit(store->channels[i], view.serial, &ping, NULL, NULL);
}

/*
 * The channel for retractions that can't follow their asks: the background channel or, if that is not connected, for
 * example because the server takes no more clients, a common channel that is.
 */
static struct dibs__channel *carrier(const struct dibs__redis_store *store)
{
    struct dibs__channel *standing = dibs__channel_is_connected(store->background) ? store->background : NULL;

    for (size_t i = 0; i < DIBS__COMMON && !standing; i++)
        standing = dibs__channel_is_connected(store->channels[i]) ? store->channels[i] : NULL;
    return standing ? standing : store->background;
}

static void attend(struct dibs__store *base, const struct pollfd *fds, size_t count)
{
    struct dibs__redis_store *store = dibs__redis_of(base);
    int64_t now = dibs__now(store->config.clock);

    DIBS__REQUIRE(count >= store->channel_count + 2);
    attend_sentinel(store, now);
    dibs__subscriber_attend(store->subscriber, fds[0].revents, now);
    for (size_t i = 0; i <= store->channel_count; i++)
        dibs__channel_attend(store->channels[i], i == store->channel_count, fds[i + 1].revents, now);
    if (atomic_exchange(&store->reopened, false)) {
        look_for_another_server(store);
        dibs__channel_hurry(store->background);
    }
    dibs__tracking_attend(store, now);
    if (atomic_exchange(&store->doubted, false))
        try_idle_channels(store);
    struct dibs__channel *channel = carrier(store);
    struct dibs__link_view view;
    bool standing = dibs__channel_view(channel, &view);
    dibs__retractions_attend(store->retractions, channel, standing ? dibs__redis_changed_at(store, view.server) : 0);
}

static void listen_redis(struct dibs__store *base, const char *name, struct dibs__wait_event *wait_event, int64_t until)
{
    (void)name;
    if (wait_event)
        dibs__subscriber_listen(dibs__redis_of(base)->subscriber, wait_event, until);
    else
        dibs__subscriber_unheard(dibs__redis_of(base)->subscriber);
}

/* --------------------------------------------------------------- open, close */

static void close_redis(struct dibs__store *base)
{
    struct dibs__redis_store *store = dibs__redis_of(base);

    dibs__subscriber_free(store->subscriber);
    for (size_t i = 0; i <= store->channel_count; i++)
        dibs__channel_free(store->channels[i]);
    dibs__retractions_free(store->retractions);
    dibs__redis_mutex_lock(&store->mutex);
    dibs__relocks_free(store->relocks);
    dibs__redis_mutex_unlock(&store->mutex);
    dibs__tracking_free(store);
    dibs__sentinel_free(store->sentinel);
    dibs__endpoint_free(&store->endpoint);
    pthread_cond_destroy(&store->exclusive_freed);
    dibs__mutex_destroy(&store->mutex);
    free(store);
}

/* Tries to wait for what confirms grants, so that opening the store fails if the server can't do that. */
static dibs_status try_to_wait(struct dibs__redis_store *store, uint64_t serial, bool on_disk, int64_t deadline,
                               struct dibs__error *error)
{
    struct dibs__copies copies = {
        .on_disk = on_disk, .count = on_disk, .timeout_ms = 1, .shown = store->endpoint.url.shown};
    int64_t count;

    return dibs__call_wait(store->channels[0], serial, &copies, deadline, &count, error);
}

static dibs_status connect_redis(struct dibs__store *base, bool wait, struct dibs__error *error)
{
    struct dibs__redis_store *store = dibs__redis_of(base);
    int64_t deadline = dibs__after_ms(dibs__now(store->config.clock), store->config.connect_timeout_ms);
    struct dibs__link_view view;

    if (!wait)
        return dibs__channel_open_begin(store->channels[0], error);
    dibs_status status = dibs__channel_open(store->channels[0], deadline, &view, error);

    if (status == DIBS_OK)
        status = dibs__redis_check_disk(store, &view, error);
    if (status == DIBS_OK && store->config.durable)
        status = try_to_wait(store, view.serial, true, deadline, error);
    if (status == DIBS_OK && store->config.min_replicas > 0)
        status = try_to_wait(store, view.serial, false, deadline, error);
    return status;
}

void dibs__redis_gather(struct dibs__store *store, bool on)
{
    (void)store; /* the thread gathers for all channels of all stores */
    if (on)
        dibs__channel_gather();
    else
        dibs__channel_send_gathered();
}

static const struct dibs__op_row rows[DIBS__OP_KINDS] = {
    [DIBS__OP_ASK] = {dibs__redis_ask_begin, dibs__redis_ask_finish},
    [DIBS__OP_RELEASE] = {dibs__redis_release_begin, dibs__redis_release_finish},
    [DIBS__OP_QUERY] = {dibs__redis_call_begin, dibs__redis_call_finish},
    [DIBS__OP_FORCE] = {NULL, dibs__redis_force},
    [DIBS__OP_FORGET] = {dibs__redis_call_begin, dibs__redis_call_finish},
    [DIBS__OP_VOTE] = {dibs__redis_call_begin, dibs__redis_call_finish},
    [DIBS__OP_RAISE] = {dibs__redis_call_begin, dibs__redis_call_finish},
};

static const struct dibs__store_ops redis_ops = {
    .connect = connect_redis,
    .begin = dibs__rows_begin,
    .rows = rows,
    .progress = dibs__redis_progress,
    .finish = dibs__rows_finish,
    .conclude = dibs__redis_conclude,
    .walk = dibs__redis_walk,
    .examine = dibs__redis_examine,
    .listen = listen_redis,
    .retract = dibs__redis_retract,
    .renew = dibs__redis_renew,
    .tell_when_free = dibs__redis_tell_when_free,
    .is_unconfirmed = dibs__redis_is_unconfirmed,
    .can_keep = dibs__redis_can_keep,
    .gather = dibs__redis_gather,
    .interest = interest,
    .attend = attend,
    .close = close_redis,
};

/* Makes what asks the sentinels, if the URL names any. False: no memory. */
static bool make_sentinel(struct dibs__redis_store *store)
{
    const struct dibs__store_config *config = &store->config;

    if (store->endpoint.url.kind != DIBS__URL_SENTINEL)
        return true;
    store->sentinel = dibs__sentinel_new(&store->endpoint, config->access ? config->access->sentinel_user : NULL,
                                         config->access ? config->access->sentinel_password : NULL,
                                         config->listener.wake, config->listener.context);
    if (store->sentinel)
        store->store.fd_max += dibs__sentinel_fd_max(store->sentinel);
    return store->sentinel != NULL;
}

static bool make_parts(struct dibs__redis_store *store)
{
    const struct dibs__store_config *config = &store->config;
    struct dibs__channel_hooks hooks = dibs__redis_hooks(store);
    const struct dibs__subscriber_hooks subscriber_hooks = {
        .above = config->listener.context,
        .wake = config->listener.wake,
        .wake_by = config->listener.wake_by,
        .missed = config->listener.ask_again,
        .context = store,
        .message = on_push,
        .changed = dibs__tracking_changed,
    };

    snprintf(store->endpoint.channel, sizeof store->endpoint.channel, "dibs:%s", config->runtime_id);
    store->subscriber = dibs__subscriber_new(&store->endpoint, &subscriber_hooks);
    store->retractions = dibs__retractions_new(store);
    store->channel_count = dibs__redis_confirms(store) ? DIBS__COMMON + DIBS__EXCLUSIVE : DIBS__COMMON;
    bool made = true;
    for (size_t i = 0; i <= store->channel_count && made; i++) {
        store->channels[i] = dibs__channel_new(&store->endpoint, &hooks);
        made = store->channels[i] != NULL;
    }
    store->background = store->channels[store->channel_count];
    return store->subscriber && store->retractions && made && make_sentinel(store);
}

static void name_client(struct dibs__endpoint *endpoint, const char *name)
{
    snprintf(endpoint->client_name, sizeof endpoint->client_name, "dibs:%s", name);
    for (char *c = endpoint->client_name; *c; c++)
        if (*c <= ' ' || *c > '~')
            *c = '-'; /* CLIENT SETNAME takes no blanks */
}

/*
 * Makes a store with all that close_redis requires, and takes over url. NULL: no memory, and url still belongs to the
 * caller.
 */
static struct dibs__redis_store *store_new(struct dibs__url *url)
{
    struct dibs__redis_store *store = calloc(1, sizeof *store);

    if (!store)
        return NULL;
    if (dibs__mutex_and_cond_init(&store->mutex, &store->exclusive_freed)) {
        if (dibs__endpoint_init(&store->endpoint, url))
            return store;
        pthread_cond_destroy(&store->exclusive_freed);
        dibs__mutex_destroy(&store->mutex);
    }
    free(store);
    return NULL;
}

/* Makes what the encrypted connections of the runtime share, unless another store has made it already. */
static dibs_status need_tls(struct dibs__access *access, struct dibs__error *error)
{
    DIBS__REQUIRE(access);
    if (!access->tls)
        access->tls = dibs__tls_new(&(struct dibs__tls_files){.ca = access->tls_ca_file,
                                                              .certificate = access->tls_cert_file,
                                                              .key = access->tls_key_file,
                                                              .server_name = access->tls_server_name},
                                    error);
    return access->tls ? DIBS_OK : error->status;
}

dibs_status dibs__redis_open(struct dibs__store **out, const struct dibs__store_config *config,
                             struct dibs__error *error)
{
    struct dibs__url url;

    return dibs__url_parse(&url, config->url, error) == DIBS_OK ? dibs__redis_open_at(out, &url, config, error)
                                                                : error->status;
}

dibs_status dibs__redis_open_at(struct dibs__store **out, struct dibs__url *at, const struct dibs__store_config *config,
                                struct dibs__error *error)
{
    struct dibs__url url = *at;

    memset(at, 0, sizeof *at);
    if (url.tls && need_tls(config->access, error) != DIBS_OK) {
        dibs__url_free(&url);
        return error->status;
    }
    struct dibs__redis_store *store = store_new(&url);
    if (!store) {
        dibs__url_free(&url);
        return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for the store");
    }
    store->store =
        (struct dibs__store){&redis_ops, 2 + DIBS__COMMON + DIBS__EXCLUSIVE, true,
                             config->min_replicas == 0 && !config->durable && !config->is_member && !config->node};
    store->config = *config;
    store->endpoint.clock = config->clock;
    store->endpoint.connect_timeout_ms = config->connect_timeout_ms;
    store->endpoint.command_timeout_ms = config->command_timeout_ms;
    store->endpoint.commands = &config->counters->commands;
    store->endpoint.errors = &config->counters->errors;
    dibs__spin_init(&store->endpoint.spin, config->clock, config->spin_us);
    store->endpoint.transport = store->endpoint.url.tls ? &dibs__tls_transport : &dibs__socket_transport;
    store->endpoint.tls = config->access ? config->access->tls : NULL;
    name_client(&store->endpoint, config->client_name);
    if (!make_parts(store)) {
        close_redis(&store->store);
        return dibs__error_set(error, DIBS_NO_MEMORY, "no memory or descriptor for the store");
    }
    *out = &store->store;
    return DIBS_OK;
}
