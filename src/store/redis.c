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

/* The listener hears of each change once, and in the order in which they came. */
static void set_reachable(struct dibs__redis_store *store)
{
    dibs__reach_mutex_lock(&store->reach_mutex);
    if (atomic_load(&store->down)) {
        atomic_store(&store->down, false);
        store->config.listener.reachable(store->config.listener.context, true, store->endpoint.url.shown);
    }
    dibs__reach_mutex_unlock(&store->reach_mutex);
}

static void hook_opened(void *context, bool again)
{
    struct dibs__redis_store *store = context;

    if (again)
        atomic_fetch_add_explicit(&store->config.counters->reconnects, 1, memory_order_relaxed);
    atomic_store(&store->reopened, true);
    set_reachable(store);
    store->config.listener.wake(store->config.listener.context);
}

/* As far as is known: one that nobody uses may be at its end. */
static bool any_stands(const struct dibs__redis_store *store)
{
    bool stands = dibs__channel_stands(store->background);

    for (size_t i = 0; i < store->channel_count && !stands; i++)
        stands = dibs__channel_stands(store->channels[i]);
    return stands;
}

/*
 * While another connection stands the store can be reached. One that is made
 * meanwhile stands before its hook is called, so it is either seen here, or the
 * hook comes later and finds the store down.
 */
static void hook_failed(void *context, const struct dibs__error *error, bool silent)
{
    struct dibs__redis_store *store = context;

    if (error->status == DIBS_NO_MEMORY)
        return;
    for (size_t i = 0; i < store->channel_count; i++)
        dibs__channel_look(store->channels[i]);
    dibs__reach_mutex_lock(&store->reach_mutex);
    bool stands = any_stands(store);
    if (!stands && !atomic_load(&store->down)) {
        atomic_store(&store->down, true);
        store->config.listener.reachable(store->config.listener.context, false, error->detail);
    }
    dibs__reach_mutex_unlock(&store->reach_mutex);
    if (stands && silent && !atomic_exchange(&store->doubted, true))
        store->config.listener.wake(store->config.listener.context);
}

static void hook_unattended(void *context)
{
    struct dibs__redis_store *store = context;

    store->config.listener.wake(store->config.listener.context);
}

size_t dibs__redis_pick(struct dibs__redis_store *store)
{
    size_t best = 0, missing = DIBS__SHARED;
    unsigned least = UINT_MAX;

    for (size_t i = 0; i < DIBS__SHARED && least > 0; i++) {
        unsigned load = dibs__channel_load(store->channels[i]);
        if (!dibs__channel_stands(store->channels[i])) {
            missing = missing < DIBS__SHARED ? missing : i;
        } else if (load < least) {
            least = load;
            best = i;
        }
    }
    if (least > 0 && least < UINT_MAX && missing < DIBS__SHARED && dibs__channel_is_waited_for(store->channels[best]))
        dibs__channel_want(store->channels[missing]);
    return best;
}

bool dibs__redis_another_stands(struct dibs__redis_store *store, size_t channel)
{
    size_t first = channel < DIBS__SHARED ? 0 : DIBS__SHARED;
    size_t end = channel < DIBS__SHARED ? DIBS__SHARED : store->channel_count;
    bool stands = false;

    for (size_t i = first; i < end && !stands; i++)
        stands = i != channel && dibs__channel_look(store->channels[i]);
    return stands;
}

/* Requires mutex. channel_count: there is none. */
static size_t find_free(const struct dibs__redis_store *store, bool connected)
{
    size_t i = DIBS__SHARED;

    while (i < store->channel_count && (store->in_use[i] || (connected && !dibs__channel_stands(store->channels[i]))))
        i++;
    return i;
}

bool dibs__redis_take_exclusive(struct dibs__redis_store *store, bool connected, int64_t deadline, size_t *out)
{
    size_t i;

    dibs__redis_mutex_lock(&store->mutex);
    for (;;) {
        i = find_free(store, true);
        if (i == store->channel_count && !connected)
            i = find_free(store, false);
        if (i < store->channel_count || dibs__now(store->config.clock) >= deadline)
            break;
        store->choosy += connected;
        store->config.clock->wait(store->config.clock, &store->exclusive_freed, &store->mutex, deadline);
        store->choosy -= connected;
    }
    *out = i;
    if (i < store->channel_count)
        store->in_use[i] = true;
    dibs__redis_mutex_unlock(&store->mutex);
    return i < store->channel_count;
}

void dibs__redis_give_back(struct dibs__redis_store *store, size_t exclusive)
{
    dibs__redis_mutex_lock(&store->mutex);
    store->in_use[exclusive] = false;
    if (store->choosy > 0) /* it may not be good enough for the one that a signal would wake */
        pthread_cond_broadcast(&store->exclusive_freed);
    else
        pthread_cond_signal(&store->exclusive_freed);
    dibs__redis_mutex_unlock(&store->mutex);
}

void dibs__redis_heard(struct dibs__redis_store *store, dibs_status status)
{
    if (status != DIBS_UNAVAILABLE)
        atomic_store_explicit(&store->config.counters->heard, dibs__now(store->config.clock), memory_order_relaxed);
    if ((status == DIBS_OK || status == DIBS_BUSY || status == DIBS_NOT_HELD) &&
        atomic_load_explicit(&store->down, memory_order_relaxed))
        set_reachable(store);
}

bool dibs__redis_once_more(struct dibs__redis_store *store, dibs_status status, int *resends, int64_t deadline)
{
    return status == DIBS_UNAVAILABLE && ++*resends <= RESENDS && dibs__now(store->config.clock) < deadline;
}

int64_t dibs__redis_not_after(struct dibs__redis_store *store, const struct dibs__link_view *view, int64_t now)
{
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

dibs_status dibs__redis_check_slots(const struct dibs__redis_store *store, const struct dibs__link_view *view,
                                    const char *lock_key, struct dibs__error *error)
{
    char quoted[DIBS__QUOTED_MAX];

    if (!view->cluster || !dibs__key_splits(lock_key))
        return DIBS_OK;
    return dibs__error_set(error, DIBS_INVALID,
                           "%s is part of a cluster: the key %s has a } but no hash tag, so its slot is its own alone",
                           store->endpoint.url.shown, dibs__quote(quoted, lock_key));
}

dibs_status dibs__lock_call_init(struct dibs__lock_call *call, const struct dibs__redis_store *store,
                                 enum dibs__script script, const char *name, struct dibs__error *error)
{
    call->keys = malloc(DIBS__KEYS * sizeof *call->keys);
    if (!call->keys) {
        dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a command");
        return DIBS_NO_MEMORY;
    }
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

/* How a call on a shared channel went. */
struct run {
    struct dibs__channel *channel;
    struct dibs__link_view view;
    bool repeated; /* an earlier sending may have been executed */
};

/* Its place among the numbers of a call that does harm when it comes late: behind the number of keys. */
#define NOT_AFTER 1

/*
 * Runs a call on a shared channel, again where its connection broke or could
 * not be made though another stands. stamped: it has a NOT_AFTER, to be filled.
 */
static dibs_status run_shared(struct dibs__redis_store *store, struct dibs__call *call, bool stamped, int64_t deadline,
                              redisReply **reply, struct run *run, struct dibs__error *error)
{
    dibs_status status;
    int resends = 0;
    bool unknown = false;

    run->repeated = false;
    do {
        size_t channel = dibs__redis_pick(store);
        run->channel = store->channels[channel];
        run->repeated = run->repeated || unknown;
        unknown = false;
        status = dibs__channel_open(run->channel, deadline, &run->view, error);
        if (status == DIBS_UNAVAILABLE && dibs__redis_another_stands(store, channel))
            continue;
        if (status == DIBS_OK)
            status = dibs__redis_check_slots(store, &run->view, call->words[DIBS__CALL_FIRST_KEY], error);
        if (status != DIBS_OK)
            return status;
        if (stamped)
            dibs__call_set_number(call, NOT_AFTER,
                                  dibs__redis_not_after(store, &run->view, dibs__now(store->config.clock)));
        status = dibs__call_run(call, run->channel, &run->view, deadline, reply, &unknown, error);
    } while (dibs__redis_once_more(store, status, &resends, deadline));
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
    if (owner->fence >= DIBS__REPLY_MOST) /* not written by dibs */
        owner->fence = 0;
    owner->waiters = (uint32_t)reply->element[3]->integer;
    return true;
}

/* DIBS_OK: *reply is what query.lua answered, read into *owner; the caller's. */
static dibs_status look(struct dibs__redis_store *store, const char *name, int64_t deadline, dibs_owner *owner,
                        redisReply **reply, struct dibs__error *error)
{
    struct dibs__lock_call call;
    struct run run;

    dibs_status status = dibs__lock_call_init(&call, store, DIBS__SCRIPT_query, name, error);
    if (status != DIBS_OK)
        return status;
    status = run_shared(store, &call.call, false, deadline, reply, &run, error);
    dibs__lock_call_free(&call);
    if (status == DIBS_OK && !read_owner(*reply, owner)) {
        status = dibs__redis_reply_error(store, "looking at", name, *reply, error);
        freeReplyObject(*reply);
    }
    return status;
}

static dibs_status query(struct dibs__store *base, const char *name, int64_t deadline, dibs_owner *owner,
                         struct dibs__error *error)
{
    struct dibs__redis_store *store = dibs__redis_of(base);
    redisReply *reply;
    dibs_status status = look(store, name, deadline, owner, &reply, error);

    if (status == DIBS_OK)
        freeReplyObject(reply);
    dibs__redis_heard(store, status);
    return status;
}

/* What force.lua answered. */
static dibs_status read_forced(struct dibs__redis_store *store, const char *name, const struct run *run,
                               const redisReply *reply, struct dibs__error *error)
{
    if (reply->type != REDIS_REPLY_INTEGER)
        return dibs__redis_reply_error(store, "unlocking", name, reply, error);
    if (reply->integer >= 0)
        return reply->integer == 1 ? DIBS_OK : DIBS_NOT_HELD;
    dibs__channel_set_clock(run->channel, run->view.serial, -reply->integer - dibs__now(store->config.clock) / 1000);
    return dibs__error_set(error, DIBS_UNAVAILABLE, "%s took the request for one that came too late",
                           store->endpoint.url.shown);
}

/*
 * Ends the hold of that token; NULL: nobody held the lock. Once more where the
 * server's clock was not known. *repeated: an earlier sending may have done it.
 */
static dibs_status end_hold(struct dibs__redis_store *store, const char *name, const char *token, size_t size,
                            int64_t deadline, bool *repeated, struct dibs__error *error)
{
    struct dibs__lock_call call;
    redisReply *reply;
    struct run run;
    dibs_status status;
    int resends = 0;
    bool late;

    *repeated = false;
    status = dibs__lock_call_init(&call, store, DIBS__SCRIPT_force, name, error);
    if (status != DIBS_OK)
        return status;
    dibs__call_add_number(&call.call, 0);
    if (token)
        dibs__call_add(&call.call, token, size);
    do {
        late = false;
        status = run_shared(store, &call.call, true, deadline, &reply, &run, error);
        if (status != DIBS_OK)
            continue;
        status = read_forced(store, name, &run, reply, error);
        late = reply->type == REDIS_REPLY_INTEGER && reply->integer < 0;
        freeReplyObject(reply);
    } while (late && dibs__redis_once_more(store, status, &resends, deadline));
    dibs__lock_call_free(&call);
    *repeated = run.repeated;
    return status;
}

/*
 * Whoever holds the lock is found out first: a request that names no token, and
 * is stuck on its way, would end the hold of somebody who came later.
 */
static dibs_status end_any_hold(struct dibs__redis_store *store, const char *name, int64_t deadline,
                                struct dibs__error *error)
{
    dibs_status status;
    bool repeated;

    do {
        dibs_owner unused = {0};
        redisReply *reply;
        status = look(store, name, deadline, &unused, &reply, error);
        if (status != DIBS_OK)
            return status;
        const redisReply *token = reply->element[0];
        bool held = token->type == REDIS_REPLY_STRING;
        status = end_hold(store, name, held ? token->str : NULL, (size_t)token->len, deadline, &repeated, error);
        freeReplyObject(reply);
        if (status == DIBS_NOT_HELD && repeated && held) /* who holds it now came after the one that was meant */
            status = DIBS_OK;
    } while (status == DIBS_NOT_HELD && dibs__now(store->config.clock) < deadline);
    if (status == DIBS_NOT_HELD)
        return dibs__error_set(error, DIBS_UNAVAILABLE, "%s: the lock changed hands each time it was looked at",
                               store->endpoint.url.shown);
    return status;
}

static dibs_status force_unlock(struct dibs__store *base, const char *name, const char *token, int64_t deadline,
                                struct dibs__error *error)
{
    struct dibs__redis_store *store = dibs__redis_of(base);
    bool repeated;
    dibs_status status = token ? end_hold(store, name, token, strlen(token), deadline, &repeated, error)
                               : end_any_hold(store, name, deadline, error);

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
    dibs__redis_mutex_lock(&store->mutex);
    store->healed.channel = NULL; /* nothing that went to the other comes here */
    dibs__redis_mutex_unlock(&store->mutex);
    store->config.listener.forgetful(store->config.listener.context, view.server);
}

static void try_if_idle(struct dibs__channel *channel)
{
    static const char *const words[] = {"PING"};
    static const size_t sizes[] = {4};
    struct dibs__link_view view;

    if (dibs__channel_load(channel) == 0 && dibs__channel_view(channel, &view))
        dibs__channel_submit(channel, view.serial, &(struct dibs__command){1, words, sizes}, NULL, NULL);
}

/* Connections that stand while none can be made may stand for a server that is gone without a word: it is asked. */
static void try_idle_channels(struct dibs__redis_store *store)
{
    try_if_idle(store->background);
    for (size_t i = 0; i < store->channel_count; i++)
        try_if_idle(store->channels[i]);
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
    if (atomic_exchange(&store->doubted, false))
        try_idle_channels(store);
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
    dibs__mutex_destroy(&store->reach_mutex);
    dibs__mutex_destroy(&store->mutex);
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
    store->retractions = dibs__retractions_new(store->key_prefix, config->clock, config->command_timeout_ms,
                                               config->listener.wake, config->listener.context);
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
    if (dibs__mutex_init(&store->mutex) != 0)
        goto no_mutex;
    if (dibs__mutex_init(&store->reach_mutex) != 0)
        goto no_reach_mutex;
    if (dibs__cond_init(&store->exclusive_freed) != 0)
        goto no_cond;
    if (!dibs__endpoint_init(&store->endpoint, url))
        goto no_endpoint;
    return store;
no_endpoint:
    pthread_cond_destroy(&store->exclusive_freed);
no_cond:
    dibs__mutex_destroy(&store->reach_mutex);
no_reach_mutex:
    dibs__mutex_destroy(&store->mutex);
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
