/* The store on one Redis server: its connections, and the scheduler's part in them. See redis_store.h. */
#include "store/redis.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "redis/reply.h"
#include "store/redis_store.h"

#define RESENDS 2 /* how often a command is sent again because its connection broke */

/* ----------------------------------------------------------------- channels */

static void hook_opened(void *context, bool again)
{
    struct dibs__redis_store *store = context;

    if (again)
        atomic_fetch_add_explicit(&store->config.counters->reconnects, 1, memory_order_relaxed);
    atomic_store(&store->reopened, true);
    if (atomic_exchange(&store->down, false))
        store->config.listener.reachable(store->config.listener.context, true, store->endpoint.url.shown);
    store->config.listener.wake(store->config.listener.context);
}

static void hook_failed(void *context, const struct dibs__error *error)
{
    struct dibs__redis_store *store = context;

    if (error->status != DIBS_NO_MEMORY && !atomic_exchange(&store->down, true))
        store->config.listener.reachable(store->config.listener.context, false, error->detail);
}

static void hook_unattended(void *context)
{
    struct dibs__redis_store *store = context;

    store->config.listener.wake(store->config.listener.context);
}

size_t dibs__redis_pick(struct dibs__redis_store *store)
{
    size_t best = 0;
    unsigned least = UINT_MAX;

    for (size_t i = 0; i < DIBS__SHARED && least > 0; i++) {
        unsigned load = dibs__channel_load(store->channels[i]);
        if (load < least) {
            least = load;
            best = i;
        }
    }
    return best;
}

bool dibs__redis_take_exclusive(struct dibs__redis_store *store, int64_t deadline, size_t *out)
{
    size_t i;

    pthread_mutex_lock(&store->mutex);
    for (;;) {
        for (i = DIBS__SHARED; i < store->channel_count && store->in_use[i]; i++)
            continue;
        if (i < store->channel_count || dibs__now(store->config.clock) >= deadline)
            break;
        store->config.clock->wait(store->config.clock, &store->exclusive_freed, &store->mutex, deadline);
    }
    *out = i;
    if (i < store->channel_count)
        store->in_use[i] = true;
    pthread_mutex_unlock(&store->mutex);
    return i < store->channel_count;
}

void dibs__redis_give_back(struct dibs__redis_store *store, size_t exclusive)
{
    pthread_mutex_lock(&store->mutex);
    store->in_use[exclusive] = false;
    pthread_cond_signal(&store->exclusive_freed);
    pthread_mutex_unlock(&store->mutex);
}

void dibs__redis_heard(struct dibs__redis_store *store, dibs_status status)
{
    if (status != DIBS_UNAVAILABLE)
        atomic_store_explicit(&store->config.counters->heard, dibs__now(store->config.clock), memory_order_relaxed);
}

bool dibs__redis_once_more(struct dibs__redis_store *store, dibs_status status, int *resends, int64_t deadline)
{
    return status == DIBS_UNAVAILABLE && ++*resends <= RESENDS && dibs__now(store->config.clock) < deadline;
}

int64_t dibs__redis_not_after(struct dibs__redis_store *store, const struct dibs__link_view *view, int64_t now)
{
    if (dibs__link_can_be_ended(&view->id))
        return 0;
    return now / 1000 + view->server_ahead_us + (int64_t)store->config.command_timeout_ms * 1000;
}

/* "acquiring "a"": what a sentence about a failure begins with. */
#define DOING_MAX (DIBS__QUOTED_MAX + 16)

dibs_status dibs__redis_reply_error(struct dibs__redis_store *store, const char *verb, const char *name,
                                    const redisReply *reply, struct dibs__error *error)
{
    char quoted[DIBS__QUOTED_MAX], doing[DOING_MAX];

    snprintf(doing, sizeof doing, "%s %s", verb, dibs__quote(quoted, name));
    return dibs__reply_error(error, reply, store->endpoint.url.shown, doing);
}

dibs_status dibs__lock_call_init(struct dibs__lock_call *call, const struct dibs__redis_store *store,
                                 enum dibs__script script, const char *name, struct dibs__error *error)
{
    call->keys = malloc(DIBS__KEYS * sizeof *call->keys);
    if (!call->keys)
        return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a command");
    dibs__call_init(&call->call, script, DIBS__KEYS);
    for (int i = 0; i < DIBS__KEYS; i++) {
        dibs__key_of(&call->keys[i], (enum dibs__key_kind)i, store->key_prefix, name);
        dibs__call_add(&call->call, call->keys[i].bytes, call->keys[i].size);
    }
    return DIBS_OK;
}

void dibs__lock_call_free(struct dibs__lock_call *call)
{
    free(call->keys);
}

void dibs__lock_call_add(struct dibs__lock_call *call, const char *text)
{
    dibs__call_add(&call->call, text, strlen(text));
}

static void on_missed(void *context)
{
    struct dibs__redis_store *store = context;

    store->config.listener.ask_again(store->config.listener.context);
}

/* ------------------------------------------------------------------ threads */

/*
 * Runs a call on a shared channel, again where its connection broke (unless it
 * is not to be repeated and may have been done). *repeated: an earlier sending
 * may have been executed.
 */
static dibs_status run_shared(struct dibs__redis_store *store, struct dibs__call *call, bool repeatable,
                              int64_t deadline, redisReply **reply, bool *repeated, struct dibs__error *error)
{
    struct dibs__channel *channel = store->channels[dibs__redis_pick(store)];
    struct dibs__link_view view;
    dibs_status status;
    int resends = 0;
    bool unknown = false;

    *repeated = false;
    do {
        *repeated = *repeated || unknown;
        unknown = false;
        status = dibs__channel_open(channel, deadline, &view, error);
        if (status != DIBS_OK)
            return status;
        status = dibs__call_run(call, channel, &view, deadline, reply, &unknown, error);
    } while ((repeatable || !unknown) && dibs__redis_once_more(store, status, &resends, deadline));
    return status;
}

/* As it is, so that dibs_force_unlock takes it, unless it does not print or does not fit. */
static void show_token(char *out, size_t size, const redisReply *token)
{
    bool prints = token->len < size;

    for (size_t i = 0; i < token->len; i++)
        prints = prints && token->str[i] >= ' ' && token->str[i] <= '~';
    if (prints)
        memcpy(out, token->str, token->len + 1);
    else
        dibs__escape(out, size, token->str, token->len);
}

/* What query.lua answered. */
static bool read_owner(const redisReply *reply, dibs_owner *owner)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 4 || reply->element[1]->type != REDIS_REPLY_INTEGER ||
        reply->element[3]->type != REDIS_REPLY_INTEGER)
        return false;
    const redisReply *token = reply->element[0], *fence = reply->element[2];
    if (token->type == REDIS_REPLY_STRING) {
        owner->held = true;
        show_token(owner->token, sizeof owner->token, token);
        owner->remaining_ms = reply->element[1]->integer;
    }
    if (fence->type == REDIS_REPLY_STRING)
        owner->fence = strtoull(fence->str, NULL, 10);
    owner->waiters = (uint32_t)reply->element[3]->integer;
    return true;
}

static dibs_status query(struct dibs__store *base, const char *name, int64_t deadline, dibs_owner *owner,
                         struct dibs__error *error)
{
    struct dibs__redis_store *store = dibs__redis_of(base);
    struct dibs__lock_call call;
    redisReply *reply;
    bool repeated;

    dibs_status status = dibs__lock_call_init(&call, store, DIBS__SCRIPT_query, name, error);
    if (status != DIBS_OK)
        return status;
    status = run_shared(store, &call.call, true, deadline, &reply, &repeated, error);
    dibs__lock_call_free(&call);
    if (status == DIBS_OK) {
        if (!read_owner(reply, owner))
            status = dibs__redis_reply_error(store, "looking at", name, reply, error);
        freeReplyObject(reply);
    }
    dibs__redis_heard(store, status);
    return status;
}

/* Sent again it might end the next holder, unless a token says whose lock is meant. */
static dibs_status force_unlock(struct dibs__store *base, const char *name, const char *token, int64_t deadline,
                                struct dibs__error *error)
{
    struct dibs__redis_store *store = dibs__redis_of(base);
    struct dibs__lock_call call;
    redisReply *reply;
    bool repeated;

    dibs_status status = dibs__lock_call_init(&call, store, DIBS__SCRIPT_force, name, error);
    if (status != DIBS_OK)
        return status;
    if (token)
        dibs__lock_call_add(&call, token);
    status = run_shared(store, &call.call, token != NULL, deadline, &reply, &repeated, error);
    dibs__lock_call_free(&call);
    if (status == DIBS_OK) {
        if (reply->type == REDIS_REPLY_INTEGER)
            status = reply->integer == 1 ? DIBS_OK : DIBS_NOT_HELD;
        else
            status = dibs__redis_reply_error(store, "unlocking", name, reply, error);
        freeReplyObject(reply);
    }
    dibs__redis_heard(store, status);
    return status;
}

/* ------------------------------------------------------------ the scheduler */

static void sooner(int64_t *deadline, int64_t until)
{
    *deadline = until < *deadline ? until : *deadline;
}

/* The subscriber comes first: what it hears, a thread waits for. */
static size_t interest(struct dibs__store *base, struct pollfd *fds, int64_t *deadline)
{
    struct dibs__redis_store *store = dibs__redis_of(base);
    int64_t until;

    dibs__subscriber_interest(store->subscriber, &fds[0], deadline);
    dibs__channel_interest(store->background, true, &fds[1], &until);
    sooner(deadline, until);
    for (size_t i = 0; i < store->channel_count; i++) {
        dibs__channel_interest(store->channels[i], false, &fds[i + 2], &until);
        sooner(deadline, until);
    }
    sooner(deadline, dibs__retractions_deadline(store->retractions));
    return store->channel_count + 2;
}

static void look_for_another_server(struct dibs__redis_store *store)
{
    struct dibs__link_view view;

    if (!dibs__channel_view(store->background, &view) || !view.server || view.server == store->background_server)
        return;
    store->background_server = view.server;
    atomic_store(&store->heal_until, 0); /* nothing that went to the other comes here */
    store->config.listener.forgetful(store->config.listener.context, view.server);
}

static void attend(struct dibs__store *base, const struct pollfd *fds, size_t count)
{
    struct dibs__redis_store *store = dibs__redis_of(base);
    int64_t now = dibs__now(store->config.clock);

    dibs__subscriber_attend(store->subscriber, fds[0].revents, now);
    dibs__channel_attend(store->background, true, fds[1].revents, now);
    if (atomic_exchange(&store->reopened, false)) {
        look_for_another_server(store);
        dibs__channel_hurry(store->background);
    }
    for (size_t i = 2; i < count; i++)
        dibs__channel_attend(store->channels[i - 2], false, fds[i].revents, now);
    dibs__retractions_attend(store->retractions, store->background);
}

static size_t unconfirmed(struct dibs__store *base)
{
    return dibs__retractions_count(dibs__redis_of(base)->retractions);
}

/* --------------------------------------------------------------- open, close */

static void close_redis(struct dibs__store *base)
{
    struct dibs__redis_store *store = dibs__redis_of(base);

    dibs__subscriber_free(store->subscriber);
    dibs__channel_free(store->background);
    for (size_t i = 0; i < store->channel_count; i++)
        dibs__channel_free(store->channels[i]);
    dibs__retractions_free(store->retractions);
    dibs__endpoint_free(&store->endpoint);
    pthread_cond_destroy(&store->exclusive_freed);
    pthread_mutex_destroy(&store->mutex);
    free(store->key_prefix);
    free(store);
}

static const struct dibs__store_ops redis_ops = {
    .acquire = dibs__redis_acquire,
    .conclude = dibs__redis_conclude,
    .release = dibs__redis_release,
    .retract = dibs__redis_retract,
    .query = query,
    .force_unlock = force_unlock,
    .renew = dibs__redis_renew,
    .interest = interest,
    .attend = attend,
    .unconfirmed = unconfirmed,
    .close = close_redis,
};

static bool make_parts(struct dibs__redis_store *store)
{
    const struct dibs__store_config *config = &store->config;
    struct dibs__channel_hooks hooks = {store, hook_opened, hook_failed, hook_unattended};
    struct dibs__subscriber_hooks ears = {store, hook_unattended, on_missed, dibs__redis_on_push};
    size_t count = config->min_replicas > 0 ? DIBS__SHARED + DIBS__EXCLUSIVE : DIBS__SHARED;

    snprintf(store->endpoint.channel, sizeof store->endpoint.channel, "dibs:%s", config->runtime_id);
    store->subscriber = dibs__subscriber_new(&store->endpoint, config->clock, &ears, config->connect_timeout_ms,
                                             config->command_timeout_ms);
    store->retractions =
        dibs__retractions_new(store->key_prefix, config->clock, config->listener.wake, config->listener.context);
    store->background = dibs__channel_new(&store->endpoint, config->clock, &hooks, config->connect_timeout_ms,
                                          config->command_timeout_ms);
    for (; store->channel_count < count; store->channel_count++) {
        struct dibs__channel *channel = dibs__channel_new(&store->endpoint, config->clock, &hooks,
                                                          config->connect_timeout_ms, config->command_timeout_ms);
        if (!channel)
            return false;
        store->channels[store->channel_count] = channel;
    }
    return store->subscriber && store->retractions && store->background;
}

static void name_client(struct dibs__endpoint *endpoint, const char *name)
{
    snprintf(endpoint->client_name, sizeof endpoint->client_name, "dibs:%s", name);
    for (char *c = endpoint->client_name; *c; c++)
        if (*c <= ' ' || *c > '~')
            *c = '-'; /* CLIENT SETNAME takes no blanks */
}

/* With what close_redis takes for granted; takes over url. NULL: no memory, and url is still the caller's. */
static struct dibs__redis_store *store_new(struct dibs__url *url)
{
    struct dibs__redis_store *store = calloc(1, sizeof *store);

    if (!store)
        return NULL;
    if (pthread_mutex_init(&store->mutex, NULL) != 0)
        goto no_mutex;
    if (dibs__cond_init(&store->exclusive_freed) != 0)
        goto no_cond;
    if (!dibs__endpoint_init(&store->endpoint, url))
        goto no_endpoint;
    return store;
no_endpoint:
    pthread_cond_destroy(&store->exclusive_freed);
no_cond:
    pthread_mutex_destroy(&store->mutex);
no_mutex:
    free(store);
    return NULL;
}

dibs_status dibs__redis_open(struct dibs__store **out, const struct dibs__store_config *config,
                             struct dibs__error *error)
{
    struct dibs__url url;
    struct dibs__link_view view;

    if (dibs__url_parse(&url, config->url, error) != DIBS_OK)
        return error->status;
    struct dibs__redis_store *store = store_new(&url);
    if (!store) {
        dibs__url_free(&url);
        return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for the store");
    }
    store->store = (struct dibs__store){&redis_ops, 2 + DIBS__SHARED + DIBS__EXCLUSIVE};
    store->config = *config;
    store->endpoint.commands = &config->counters->commands;
    store->endpoint.errors = &config->counters->errors;
    name_client(&store->endpoint, config->client_name);
    store->key_prefix = strdup(config->key_prefix);
    if (!store->key_prefix || !make_parts(store)) {
        dibs__error_set(error, DIBS_NO_MEMORY, "no memory for the store");
        goto fail;
    }
    int64_t deadline = dibs__after_ms(dibs__now(config->clock), config->connect_timeout_ms);
    if (!config->connect_later && dibs__channel_open(store->channels[0], deadline, &view, error) != DIBS_OK)
        goto fail;
    *out = &store->store;
    return DIBS_OK;
fail:
    close_redis(&store->store);
    return error->status;
}
