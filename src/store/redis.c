/*
 * The store on one Redis server.
 *
 * Threads ask on a few shared channels; with min_replicas an ask goes over a
 * channel that it has to itself for that time, because WAIT blocks what comes
 * behind it. The scheduler has a channel of its own, `background`, for renewals
 * and for retractions.
 *
 * Lock discipline: `mutex` guards which of the exclusive channels are in use.
 * It is a leaf. The rest is read-only after open or has its own guard.
 */
#include "store/redis.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "redis/call.h"
#include "redis/reply.h"
#include "store/keys.h"
#include "store/retractions.h"

#define SHARED 4
#define EXCLUSIVE 8 /* only with min_replicas */
#define RESENDS 2   /* how often a command is sent again because its connection broke */

#define WAIT_GRACE_MS 5 /* WAIT's own timeout comes first */

#define POLL_FIRST_MS 4 /* a waiter asks again after this time, later after up to the other */
#define POLL_LAST_MS 64

struct redis_store {
    struct dibs__store store; /* read-only after open, but for what says otherwise */
    struct dibs__store_config config;
    char *key_prefix;
    struct dibs__endpoint endpoint;
    struct dibs__channel *channels[SHARED + EXCLUSIVE];
    size_t channel_count;
    struct dibs__channel *background;
    struct dibs__retractions *retractions;
    atomic_bool down;
    pthread_mutex_t mutex;
    pthread_cond_t exclusive_freed;  /* an exclusive channel is not in use any more */
    bool in_use[SHARED + EXCLUSIVE]; /* guarded by mutex */
};

static struct redis_store *of(struct dibs__store *store)
{
    return (struct redis_store *)store;
}

/* ----------------------------------------------------------------- channels */

static void hook_opened(void *context, bool again)
{
    struct redis_store *store = context;

    if (again)
        atomic_fetch_add_explicit(&store->config.counters->reconnects, 1, memory_order_relaxed);
    if (atomic_exchange(&store->down, false))
        store->config.listener.reachable(store->config.listener.context, true, store->endpoint.url.shown);
    store->config.listener.wake(store->config.listener.context);
}

static void hook_failed(void *context, const struct dibs__error *error)
{
    struct redis_store *store = context;

    if (error->status != DIBS_NO_MEMORY && !atomic_exchange(&store->down, true))
        store->config.listener.reachable(store->config.listener.context, false, error->detail);
}

static void hook_unattended(void *context)
{
    struct redis_store *store = context;

    store->config.listener.wake(store->config.listener.context);
}

/* The least busy of the shared channels, the first among equals: so few threads use few connections. */
static size_t pick_shared(struct redis_store *store)
{
    size_t best = 0;
    unsigned least = UINT_MAX;

    for (size_t i = 0; i < SHARED && least > 0; i++) {
        unsigned load = dibs__channel_load(store->channels[i]);
        if (load < least) {
            least = load;
            best = i;
        }
    }
    return best;
}

/* An exclusive channel for the caller, to be given back; false where none came free until the deadline. */
static bool take_exclusive(struct redis_store *store, int64_t deadline, size_t *out)
{
    size_t i;

    pthread_mutex_lock(&store->mutex);
    for (;;) {
        for (i = SHARED; i < store->channel_count && store->in_use[i]; i++)
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

static void give_back(struct redis_store *store, size_t exclusive)
{
    pthread_mutex_lock(&store->mutex);
    store->in_use[exclusive] = false;
    pthread_cond_signal(&store->exclusive_freed);
    pthread_mutex_unlock(&store->mutex);
}

static void heard(struct redis_store *store, dibs_status status)
{
    if (status != DIBS_UNAVAILABLE)
        atomic_store_explicit(&store->config.counters->heard, dibs__now(store->config.clock), memory_order_relaxed);
}

/* ------------------------------------------------------------------ threads */

/* "acquiring "a"": what a sentence about a failure begins with. */
#define DOING_MAX (DIBS__QUOTED_MAX + 16)

static dibs_status reply_error(struct redis_store *store, const char *verb, const char *name, const redisReply *reply,
                               struct dibs__error *error)
{
    char quoted[DIBS__QUOTED_MAX], doing[DOING_MAX];

    snprintf(doing, sizeof doing, "%s %s", verb, dibs__quote(quoted, name));
    return dibs__reply_error(error, reply, store->endpoint.url.shown, doing);
}

/*
 * Whether a command may be sent once more: the connection that stood broke,
 * the deadline is not what ended it, and it was not sent too often already.
 */
static bool try_once_more(struct redis_store *store, dibs_status status, int *resends, int64_t deadline)
{
    return status == DIBS_UNAVAILABLE && ++*resends <= RESENDS && dibs__now(store->config.clock) < deadline;
}

static void add_keys(struct dibs__call *call, const struct dibs__keys *keys, bool with_fence)
{
    dibs__call_add(call, keys->lock, keys->lock_size);
    if (with_fence)
        dibs__call_add(call, keys->fence, keys->fence_size);
}

/*
 * Until when, on the server's clock in us, an ask may be executed; 0: at any
 * time, because a later connection can see to it that this one is at its end.
 */
static int64_t ask_not_after(struct redis_store *store, const struct dibs__link_view *view, int64_t now)
{
    if (dibs__link_can_be_ended(&view->id))
        return 0;
    return now / 1000 + view->server_ahead_us + (int64_t)store->config.command_timeout_ms * 1000;
}

static int64_t again_ms(const struct dibs__ask *ask, int64_t pttl)
{
    unsigned doublings = ask->tries < 4 ? ask->tries : 4;
    int64_t most = POLL_FIRST_MS << doublings;
    int64_t pause = dibs__jitter(most / 2, most);

    return pttl >= 0 && pttl < pause ? pttl + 1 : pause;
}

/* What acquire.lua answered on that connection. */
static dibs_status read_answer(struct redis_store *store, size_t channel, const struct dibs__link_view *view,
                               const struct dibs__ask *ask, const redisReply *reply, bool *decided,
                               struct dibs__answer *answer, struct dibs__error *error)
{
    int64_t code, number;

    if (!dibs__reply_integer(reply, 0, &code) || !dibs__reply_integer(reply, 1, &number))
        return reply_error(store, "acquiring", ask->name, reply, error);
    if (code == 0) {
        answer->again_ms = again_ms(ask, number);
        return DIBS_BUSY;
    }
    if (code == 1 && number > 0) {
        answer->fence = (uint64_t)number;
        return DIBS_OK;
    }
    /* Too late, as the server's clock has it: that was set since this connection began. By its new time, once more. */
    *decided = false;
    dibs__channel_set_clock(store->channels[channel], view->serial, number - dibs__now(store->config.clock) / 1000);
    return dibs__error_set(error, DIBS_UNAVAILABLE, "%s took the request for one that came too late",
                           store->endpoint.url.shown);
}

static void retract(struct dibs__store *base, const char *name, const char *token)
{
    dibs__retractions_add(of(base)->retractions, name, token, &(struct dibs__route){.channel = NULL});
}

/* Where an ask went whose outcome is not known; channel NULL: there is none. */
typedef struct dibs__route doubt;

/* It was granted on that connection: enough replicas must have heard of it, or it is given back. */
static dibs_status wait_for_replicas(struct redis_store *store, size_t channel, const struct dibs__link_view *view,
                                     const struct dibs__ask *ask, struct dibs__error *error)
{
    uint32_t wanted = store->config.min_replicas;
    int64_t left = dibs__ms_until(ask->deadline, dibs__now(store->config.clock));
    int64_t timeout_ms = left < store->config.replica_timeout_ms ? left : store->config.replica_timeout_ms;
    uint32_t count = 0;

    if (timeout_ms > 0) /* to WAIT, 0 is for ever */
        count = dibs__call_wait(store->channels[channel], view->serial, wanted, timeout_ms,
                                dibs__after_ms(ask->deadline, WAIT_GRACE_MS));
    if (count >= wanted)
        return DIBS_OK;
    retract(&store->store, ask->name, ask->token);
    return dibs__error_set(error, DIBS_UNAVAILABLE, "%u of %u replicas acknowledged within %" PRId64 " ms", count,
                           wanted, timeout_ms);
}

/* One ask on the connection that view shows. *decided: by a reply, so that sending it again would not help. */
static dibs_status ask_once(struct redis_store *store, size_t channel, const struct dibs__link_view *view,
                            const struct dibs__ask *ask, doubt *doubtful, bool *decided, struct dibs__answer *answer,
                            struct dibs__error *error)
{
    struct dibs__keys keys;
    struct dibs__call call;
    redisReply *reply;
    bool unknown;

    answer->proof = dibs__now(store->config.clock);
    int64_t not_after = ask_not_after(store, view, answer->proof);
    dibs__keys_of(&keys, store->key_prefix, ask->name);
    dibs__call_init(&call, DIBS__SCRIPT_acquire, 2);
    add_keys(&call, &keys, true);
    dibs__call_add(&call, ask->token, strlen(ask->token));
    dibs__call_add_number(&call, ask->lease_ms);
    dibs__call_add_number(&call, not_after);
    dibs_status status = dibs__call_run(&call, store->channels[channel], view, ask->deadline, &reply, &unknown, error);
    *decided = status == DIBS_OK;
    if (!*decided) {
        if (unknown)
            *doubtful = (doubt){store->channels[channel], view->serial, view->id, not_after};
        return status;
    }
    doubtful->channel = NULL;
    status = read_answer(store, channel, view, ask, reply, decided, answer, error);
    freeReplyObject(reply);
    return status == DIBS_OK && store->config.min_replicas > 0 ? wait_for_replicas(store, channel, view, ask, error)
                                                               : status;
}

/*
 * Asks on one channel, again where its connection broke. That is safe under
 * the same token if the next connection ended the last: the ask then is either
 * done, and finds itself the owner, or never will be.
 */
static dibs_status ask_on(struct redis_store *store, size_t channel, const struct dibs__ask *ask,
                          struct dibs__answer *answer, struct dibs__error *error)
{
    doubt doubtful = {.channel = NULL};
    struct dibs__link_view view;
    dibs_status status;
    int resends = 0;
    bool decided;

    do {
        status = dibs__channel_open(store->channels[channel], ask->deadline, &view, error);
        if (status != DIBS_OK)
            break;
        status = ask_once(store, channel, &view, ask, &doubtful, &decided, answer, error);
    } while (!decided && (!doubtful.channel || dibs__link_can_be_ended(&doubtful.link)) &&
             try_once_more(store, status, &resends, ask->deadline));
    if (doubtful.channel)
        dibs__retractions_add(store->retractions, ask->name, ask->token, &doubtful);
    return status;
}

static dibs_status acquire(struct dibs__store *base, const struct dibs__ask *ask, struct dibs__answer *answer,
                           struct dibs__error *error)
{
    struct redis_store *store = of(base);
    size_t channel;
    dibs_status status;

    if (store->config.min_replicas == 0) {
        status = ask_on(store, pick_shared(store), ask, answer, error);
    } else if (take_exclusive(store, ask->deadline, &channel)) {
        status = ask_on(store, channel, ask, answer, error);
        give_back(store, channel);
    } else {
        return dibs__error_set(error, DIBS_UNAVAILABLE, "all %d connections wait for replicas", EXCLUSIVE);
    }
    heard(store, status);
    return status;
}

/*
 * Runs a call on a shared channel, again where its connection broke (unless it
 * is not to be repeated and may have been done). *repeated: an earlier sending
 * may have been executed.
 */
static dibs_status run_shared(struct redis_store *store, struct dibs__call *call, bool repeatable, int64_t deadline,
                              redisReply **reply, bool *repeated, struct dibs__error *error)
{
    struct dibs__channel *channel = store->channels[pick_shared(store)];
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
    } while ((repeatable || !unknown) && try_once_more(store, status, &resends, deadline));
    return status;
}

static dibs_status release(struct dibs__store *base, const char *name, const char *token, int64_t deadline, bool *again,
                           struct dibs__error *error)
{
    struct redis_store *store = of(base);
    struct dibs__keys keys;
    struct dibs__call call;
    redisReply *reply;
    int64_t code;

    dibs__keys_of(&keys, store->key_prefix, name);
    dibs__call_init(&call, DIBS__SCRIPT_release, 1);
    add_keys(&call, &keys, false);
    dibs__call_add(&call, token, strlen(token));
    dibs_status status = run_shared(store, &call, true, deadline, &reply, again, error);
    if (status == DIBS_OK) {
        if (dibs__reply_integer(reply, 0, &code))
            status = code == 1 ? DIBS_OK : DIBS_NOT_HELD;
        else
            status = reply_error(store, "releasing", name, reply, error);
        freeReplyObject(reply);
    }
    heard(store, status);
    if (status != DIBS_OK && status != DIBS_NOT_HELD)
        retract(base, name, token);
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
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 || reply->element[1]->type != REDIS_REPLY_INTEGER)
        return false;
    const redisReply *token = reply->element[0], *fence = reply->element[2];
    if (token->type == REDIS_REPLY_STRING) {
        owner->held = true;
        show_token(owner->token, sizeof owner->token, token);
        owner->remaining_ms = reply->element[1]->integer;
    }
    if (fence->type == REDIS_REPLY_STRING)
        owner->fence = strtoull(fence->str, NULL, 10);
    return true;
}

static dibs_status query(struct dibs__store *base, const char *name, int64_t deadline, dibs_owner *owner,
                         struct dibs__error *error)
{
    struct redis_store *store = of(base);
    struct dibs__keys keys;
    struct dibs__call call;
    redisReply *reply;
    bool repeated;

    dibs__keys_of(&keys, store->key_prefix, name);
    dibs__call_init(&call, DIBS__SCRIPT_query, 2);
    add_keys(&call, &keys, true);
    dibs_status status = run_shared(store, &call, true, deadline, &reply, &repeated, error);
    if (status == DIBS_OK) {
        if (!read_owner(reply, owner))
            status = reply_error(store, "looking at", name, reply, error);
        freeReplyObject(reply);
    }
    heard(store, status);
    return status;
}

/* Sent again it might end the next holder, unless a token says whose lock is meant. */
static dibs_status force_unlock(struct dibs__store *base, const char *name, const char *token, int64_t deadline,
                                struct dibs__error *error)
{
    struct redis_store *store = of(base);
    struct dibs__keys keys;
    struct dibs__call call;
    redisReply *reply;
    bool repeated;

    dibs__keys_of(&keys, store->key_prefix, name);
    dibs__call_init(&call, DIBS__SCRIPT_force, 2);
    add_keys(&call, &keys, true);
    if (token)
        dibs__call_add(&call, token, strlen(token));
    dibs_status status = run_shared(store, &call, token != NULL, deadline, &reply, &repeated, error);
    if (status == DIBS_OK) {
        if (reply->type == REDIS_REPLY_INTEGER)
            status = reply->integer == 1 ? DIBS_OK : DIBS_NOT_HELD;
        else
            status = reply_error(store, "unlocking", name, reply, error);
        freeReplyObject(reply);
    }
    heard(store, status);
    return status;
}

/* ------------------------------------------------------------ the scheduler */

/* The words of one renew.lua for a whole batch. */
struct renewal_call {
    struct redis_store *store;
    struct dibs__batch *batch;
    uint64_t serial; /* of the connection that it went over */
    size_t count;
    const char *words[3 + DIBS__BATCH_MAX * 6];
    size_t sizes[3 + DIBS__BATCH_MAX * 6];
    char key_count[12];
    char not_after[24]; /* of the extensions */
    struct {
        struct dibs__keys keys;
        char lease[12], fence[24];
    } items[];
};

static void add_word(struct renewal_call *call, const char *word, size_t size)
{
    call->words[call->count] = word;
    call->sizes[call->count++] = size;
}

static void build_renewal(struct renewal_call *call, int64_t not_after)
{
    const struct dibs__batch *batch = call->batch;

    call->count = 2;
    snprintf(call->not_after, sizeof call->not_after, "%" PRId64, not_after);
    add_word(call, call->key_count, (size_t)snprintf(call->key_count, sizeof call->key_count, "%zu", batch->count * 2));
    for (size_t i = 0; i < batch->count; i++) {
        struct dibs__keys *keys = &call->items[i].keys;
        dibs__keys_of(keys, call->store->key_prefix, batch->items[i].name);
        add_word(call, keys->lock, keys->lock_size);
        add_word(call, keys->fence, keys->fence_size);
    }
    for (size_t i = 0; i < batch->count; i++) {
        const struct dibs__renewal *item = &batch->items[i];
        char *lease = call->items[i].lease, *fence = call->items[i].fence;
        add_word(call, item->token, strlen(item->token));
        add_word(call, lease, (size_t)snprintf(lease, sizeof call->items[i].lease, "%u", item->lease_ms));
        add_word(call, fence, (size_t)snprintf(fence, sizeof call->items[i].fence, "%" PRIu64, item->fence));
        add_word(call, item->extension ? call->not_after : "", item->extension ? strlen(call->not_after) : 0);
    }
}

static void on_renewed(void *arg, const redisReply *reply, const struct dibs__error *error);

static bool send_renewal(struct renewal_call *call, bool with_text)
{
    struct redis_store *store = call->store;
    struct dibs__link_view view;

    if (!dibs__channel_view(store->background, &view))
        return false;
    call->serial = view.serial;
    call->batch->proof = dibs__now(store->config.clock);
    build_renewal(call, ask_not_after(store, &view, call->batch->proof));
    dibs__script_words(DIBS__SCRIPT_renew, &view, with_text, call->words, call->sizes);
    return dibs__channel_submit(store->background, view.serial,
                                &(struct dibs__command){(int)call->count, call->words, call->sizes}, on_renewed, call);
}

static void end_renewal(struct renewal_call *call, const struct dibs__error *error)
{
    heard(call->store, error->status);
    call->batch->done(call->batch, error);
    free(call);
}

/* What renew.lua answered. "Too late" also tells the server's time, by which the extension is sent again. */
static void take_results(struct renewal_call *call, const redisReply *reply)
{
    struct redis_store *store = call->store;
    int64_t result;

    for (size_t i = 0; i < call->batch->count; i++) {
        if (!dibs__reply_integer(reply, i, &result))
            continue;
        if (result >= 0)
            call->batch->items[i].result = result == 1 ? DIBS__RENEWED : DIBS__GONE;
        else
            dibs__channel_set_clock(store->background, call->serial, -result - dibs__now(store->config.clock) / 1000);
    }
}

static void on_renewed(void *arg, const redisReply *reply, const struct dibs__error *error)
{
    struct renewal_call *call = arg;
    struct dibs__batch *batch = call->batch;
    struct dibs__error failed = *error;

    if (reply && dibs__reply_is_error(reply, "NOSCRIPT") && send_renewal(call, true))
        return;
    if (reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == batch->count) {
        take_results(call, reply);
        failed.status = DIBS_OK;
    } else if (reply) {
        dibs__reply_error(&failed, reply, call->store->endpoint.url.shown, "renewing leases");
    }
    end_renewal(call, &failed);
}

static void renew(struct dibs__store *base, struct dibs__batch *batch)
{
    struct redis_store *store = of(base);
    struct renewal_call *call = calloc(1, sizeof *call + batch->count * sizeof call->items[0]);
    struct dibs__error error;

    for (size_t i = 0; i < batch->count; i++)
        batch->items[i].result = DIBS__UNANSWERED;
    if (!call) {
        dibs__error_set(&error, DIBS_NO_MEMORY, "no memory for renewing leases");
        batch->done(batch, &error);
        return;
    }
    call->store = store;
    call->batch = batch;
    if (send_renewal(call, false))
        return;
    dibs__error_set(&error, DIBS_UNAVAILABLE, "there is no connection to %s", store->endpoint.url.shown);
    end_renewal(call, &error);
}

static size_t interest(struct dibs__store *base, struct pollfd *fds, int64_t *deadline)
{
    struct redis_store *store = of(base);

    dibs__channel_interest(store->background, true, &fds[0], deadline);
    for (size_t i = 0; i < store->channel_count; i++) {
        int64_t until;
        dibs__channel_interest(store->channels[i], false, &fds[i + 1], &until);
        *deadline = until < *deadline ? until : *deadline;
    }
    int64_t until = dibs__retractions_deadline(store->retractions);
    *deadline = until < *deadline ? until : *deadline;
    return store->channel_count + 1;
}

static void attend(struct dibs__store *base, const struct pollfd *fds, size_t count)
{
    struct redis_store *store = of(base);
    int64_t now = dibs__now(store->config.clock);

    dibs__channel_attend(store->background, true, fds[0].revents, now);
    for (size_t i = 1; i < count; i++)
        dibs__channel_attend(store->channels[i - 1], false, fds[i].revents, now);
    dibs__retractions_attend(store->retractions, store->background);
}

static size_t unconfirmed(struct dibs__store *base)
{
    return dibs__retractions_count(of(base)->retractions);
}

/* --------------------------------------------------------------- open, close */

static void close_redis(struct dibs__store *base)
{
    struct redis_store *store = of(base);

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
    .acquire = acquire,
    .release = release,
    .retract = retract,
    .query = query,
    .force_unlock = force_unlock,
    .renew = renew,
    .interest = interest,
    .attend = attend,
    .unconfirmed = unconfirmed,
    .close = close_redis,
};

static bool make_parts(struct redis_store *store)
{
    const struct dibs__store_config *config = &store->config;
    struct dibs__channel_hooks hooks = {store, hook_opened, hook_failed, hook_unattended};
    size_t count = config->min_replicas > 0 ? SHARED + EXCLUSIVE : SHARED;

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
    return store->retractions && store->background;
}

static void name_client(struct dibs__endpoint *endpoint, const char *name)
{
    snprintf(endpoint->client_name, sizeof endpoint->client_name, "dibs:%s", name);
    for (char *c = endpoint->client_name; *c; c++)
        if (*c <= ' ' || *c > '~')
            *c = '-'; /* CLIENT SETNAME takes no blanks */
}

dibs_status dibs__redis_open(struct dibs__store **out, const struct dibs__store_config *config,
                             struct dibs__error *error)
{
    struct dibs__url url;
    struct dibs__link_view view;

    if (dibs__url_parse(&url, config->url, error) != DIBS_OK)
        return error->status;
    struct redis_store *store = calloc(1, sizeof *store);
    if (!store) {
        dibs__url_free(&url);
        return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for the store");
    }
    store->store = (struct dibs__store){&redis_ops, 1 + SHARED + EXCLUSIVE};
    store->config = *config;
    dibs__endpoint_init(&store->endpoint, &url);
    store->endpoint.commands = &config->counters->commands;
    store->endpoint.errors = &config->counters->errors;
    name_client(&store->endpoint, config->client_name);
    pthread_mutex_init(&store->mutex, NULL);
    dibs__cond_init(&store->exclusive_freed);
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
