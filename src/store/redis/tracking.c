/*
 * How the server reports that locks have changed: CLIENT TRACKING, in the form for RESP2 (Redis' documentation,
 * "Client-side caching in Redis"). The background connection reads the keys. The server remembers that, and sends one
 * message to the client of the subscription when such a key is changed next, except by the background connection
 * itself. After that the key must be read again.
 *
 * Tracking belongs to a pair of a connection and a subscription. For each new pair one key, the probe, is written over
 * the background connection, to see whether the server reports it, because a proxy may swallow the messages. If
 * tracking does not work, it is not tried again with that pair, unless the server refused it for a reason that may
 * pass: for example, the server was out of memory, or the slot of that key has moved to another node.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "redis/reply.h"
#include "store/redis/redis_store.h"

#define PROBE_MS "100"      /* how long the probe's key lives */
#define PROBE_LIMIT_MS 5000 /* the server must report the probe within this time; nothing waits for that */
#define AGAIN_MS 5000       /* pause after a refusal that may pass */

/* ---------------------------------------------------------------- sending */

/* Sends a command on the connection of the pair. */
static bool send_command(struct dibs__redis_store *store, const char *const *words, dibs__reply_fn *done, void *arg)
{
    const struct dibs__command command = {.words = words};

    return dibs__channel_submit(store->background, store->tracking.link, &command, done, arg);
}

/* --------------------------------------------------------------- the probe */

/* The probe's key is no longer at this node: another name, which is, must give the probe its key. */
static void forget_probe(struct dibs__redis_store *store)
{
    dibs__redis_mutex_lock(&store->mutex);
    store->tracking.probe.size = 0;
    dibs__redis_mutex_unlock(&store->mutex);
}

static bool lacks_probe(struct dibs__redis_store *store)
{
    dibs__redis_mutex_lock(&store->mutex);
    bool lacks = store->tracking.probe.size == 0;
    dibs__redis_mutex_unlock(&store->mutex);
    return lacks;
}

/* Whether the server may do later what it refuses now. */
static bool may_pass(const redisReply *refusal)
{
    return !dibs__reply_is_error(refusal, "ERR") && dibs__reply_status(refusal->str) != DIBS_DENIED;
}

static void on_probed(void *arg, const redisReply *reply, const struct dibs__error *error)
{
    struct dibs__redis_store *store = arg;
    struct dibs__tracking *tracking = &store->tracking;

    (void)error;
    tracking->unanswered--;
    tracking->refused = tracking->refused || !reply || reply->type == REDIS_REPLY_ERROR;
    if (!reply || reply->type != REDIS_REPLY_ERROR)
        return;
    tracking->for_now = tracking->for_now && may_pass(reply);
    if (dibs__redis_turned_away(store->config.node, NULL, reply, true))
        forget_probe(store);
}

static void on_enabled(void *arg, const redisReply *reply, const struct dibs__error *error)
{
    struct dibs__redis_store *store = arg;

    store->tracking.enabled = reply && reply->type != REDIS_REPLY_ERROR;
    on_probed(arg, reply, error);
}

/*
 * At first the server also reports what the connection itself changes, so that the connection can write the probe;
 * afterwards no more (NOLOOP).
 */
static void begin(struct dibs__redis_store *store, int64_t client, int64_t now)
{
    struct dibs__tracking *tracking = &store->tracking;
    struct dibs__key probe;
    char id[24];

    dibs__redis_mutex_lock(&store->mutex);
    probe = tracking->probe;
    dibs__redis_mutex_unlock(&store->mutex);
    snprintf(id, sizeof id, "%" PRId64, client);
    const char *const commands[][8] = {
        {"CLIENT", "TRACKING", "ON", "REDIRECT", id, "OPTOUT"},
        {"EXISTS", probe.bytes},
        {"SET", probe.bytes, "1", "PX", PROBE_MS},
        {"CLIENT", "TRACKING", "ON", "REDIRECT", id, "OPTOUT", "NOLOOP"},
    };
    tracking->state = DIBS__TRACKING_PROBING;
    tracking->until = dibs__after_ms(now, PROBE_LIMIT_MS);
    tracking->refused = false;
    tracking->for_now = true;
    atomic_store(&tracking->heard, false);
    atomic_store(&tracking->flushed, false);
    for (size_t i = 0; i < sizeof commands / sizeof *commands && !tracking->refused; i++) {
        tracking->unanswered++;
        if (!send_command(store, commands[i], i == 0 ? on_enabled : on_probed, store)) {
            tracking->unanswered--;
            tracking->refused = true;
        }
    }
}

/*
 * At a member of a quorum, the counter does not tell: whether the listener is told depends on the other members, too.
 */
static void tell_watching(const struct dibs__redis_store *store, bool on)
{
    if (!store->config.is_member)
        atomic_store_explicit(&store->config.counters->tracking, on, memory_order_relaxed);
    store->config.listener.watching(store->config.listener.source, on);
}

static void turn_on(struct dibs__redis_store *store)
{
    store->tracking.state = DIBS__TRACKING_ON;
    atomic_store(&store->tracking.on, ++store->tracking.last);
    tell_watching(store, true);
}

/* The pair has ended. Whoever relied on being told asks again. */
static void stop(struct dibs__redis_store *store)
{
    bool was_on = store->tracking.state == DIBS__TRACKING_ON;

    store->tracking.state = DIBS__TRACKING_IDLE;
    if (!was_on)
        return;
    atomic_store(&store->tracking.on, 0);
    tell_watching(store, false);
    store->config.listener.ask_again(store->config.listener.context);
}

/*
 * Tracking does not work. If the server tracks already, it must stop: nobody would receive what it reports, or rely on
 * it.
 */
static void refuse(struct dibs__redis_store *store, int64_t again_at)
{
    static const char *const off[] = {"CLIENT", "TRACKING", "OFF", NULL};

    if (store->tracking.enabled || store->tracking.unanswered > 0)
        send_command(store, off, NULL, NULL);
    store->tracking.state = DIBS__TRACKING_REFUSED;
    store->tracking.until = again_at;
}

/* When tracking that was refused is tried again. If it needs another key: as soon as a name gives one. */
static int64_t again_at(struct dibs__redis_store *store, int64_t now)
{
    if (!store->tracking.for_now)
        return DIBS__NEVER;
    return lacks_probe(store) ? now : dibs__after_ms(now, AGAIN_MS);
}

/* What has come counts, whatever the time: the process may have stood still before it read that. */
static void see_to_probe(struct dibs__redis_store *store, int64_t now)
{
    struct dibs__tracking *tracking = &store->tracking;

    if (tracking->refused && tracking->unanswered == 0)
        refuse(store, again_at(store, now));
    else if (tracking->unanswered == 0 && atomic_load(&tracking->heard))
        turn_on(store);
    else if (now >= tracking->until)
        refuse(store, DIBS__NEVER);
}

/* ----------------------------------------------------------- foreign locks */

/* If nobody has the lock any more, its waiters ask for it at once. */
static void on_foreign(void *arg, const redisReply *reply, const struct dibs__error *error)
{
    struct dibs__foreign *foreign = arg;
    const struct dibs__listener *listener = &foreign->store->config.listener;

    (void)error;
    if (reply && reply->type != REDIS_REPLY_STRING)
        listener->changed(listener->context, foreign->name);
    free(foreign);
}

static struct dibs__foreign *take_foreign(struct dibs__redis_store *store)
{
    dibs__redis_mutex_lock(&store->mutex);
    struct dibs__foreign *first = store->tracking.foreign;
    store->tracking.foreign = NULL;
    dibs__redis_mutex_unlock(&store->mutex);
    return first;
}

/* If a name can't be read, the connection is broken: then all waiters are told to ask again. */
static void read_foreign(struct dibs__redis_store *store)
{
    struct dibs__foreign *foreign = take_foreign(store);
    struct dibs__key key;

    for (struct dibs__foreign *next; foreign; foreign = next) {
        next = foreign->next;
        dibs__key_of(&key, DIBS__KEY_LOCK, store->config.key_prefix, foreign->name);
        const char *const command[] = {"GET", key.bytes, NULL};
        if (!send_command(store, command, on_foreign, foreign))
            free(foreign);
    }
}

static void free_foreign(struct dibs__foreign *foreign)
{
    for (struct dibs__foreign *next; foreign; foreign = next) {
        next = foreign->next;
        free(foreign);
    }
}

/*
 * The first name that will be watched gives the probe its key, so that the account may write that key, which is in the
 * same slot. True: the probe has a key.
 */
static bool choose_probe(struct dibs__redis_store *store, const char *name)
{
    struct dibs__tracking *tracking = &store->tracking;

    dibs__redis_mutex_lock(&store->mutex);
    if (!name && tracking->foreign)
        name = tracking->foreign->name;
    if (tracking->probe.size == 0 && name)
        dibs__key_of(&tracking->probe, DIBS__KEY_PROBE, store->config.key_prefix, name);
    bool has = tracking->probe.size > 0;
    dibs__redis_mutex_unlock(&store->mutex);
    return has;
}

/* From now on the server must report changes. If that was wanted before, the name only gives the probe a key. */
static void want(struct dibs__redis_store *store, const char *name)
{
    if (atomic_load(&store->tracking.wanted) && !lacks_probe(store))
        return;
    choose_probe(store, name);
    atomic_store(&store->tracking.wanted, true);
    store->config.listener.wake(store->config.listener.context);
}

void dibs__tracking_offer(struct dibs__redis_store *store, const char *name)
{
    if (atomic_load(&store->tracking.wanted))
        want(store, name);
}

/* The scheduler reads the name or, if tracking was not wanted before, takes it for the probe. */
uint64_t dibs__redis_tell_when_free(struct dibs__store *base, const char *name, uint64_t since)
{
    struct dibs__redis_store *store = dibs__redis_of(base);
    struct dibs__tracking *tracking = &store->tracking;
    uint64_t on = atomic_load(&tracking->on);

    if (on > 0 && on == since)
        return on;
    if (on == 0 && atomic_load(&tracking->wanted)) {
        want(store, name);
        return 0;
    }
    struct dibs__foreign *foreign = malloc(sizeof *foreign + strlen(name) + 1);
    if (!foreign)
        return 0;
    foreign->store = store;
    strcpy(foreign->name, name);
    dibs__redis_mutex_lock(&store->mutex);
    foreign->next = tracking->foreign;
    tracking->foreign = foreign;
    dibs__redis_mutex_unlock(&store->mutex);
    atomic_store(&tracking->wanted, true);
    store->config.listener.wake(store->config.listener.context);
    return on;
}

bool dibs__redis_can_keep(struct dibs__store *base, const char *name)
{
    struct dibs__redis_store *store = dibs__redis_of(base);

    dibs__subscriber_unheard(store->subscriber); /* a recall may come when no thread listens */
    bool on = atomic_load(&store->tracking.on) > 0;
    if (!on)
        want(store, name);
    return on;
}

/* ---------------------------------------------------------- our own leases */

uint64_t dibs__tracking_watch(struct dibs__redis_store *store, const char *name)
{
    dibs__subscriber_unheard(store->subscriber);
    want(store, name);
    return atomic_load(&store->tracking.on);
}

/*
 * Whether the lock is shared, and the token may be a sharer's. A change that only concerns that sharer changes the key,
 * too.
 */
static bool may_share(const char *owner, const char *token)
{
    return strcmp(owner, DIBS__CODEC_SHARED) == 0 && dibs__token_limit(token) >= 0;
}

bool dibs__tracking_take_look(const struct dibs__redis_store *store, uint64_t on, struct dibs__renewal *items,
                              size_t count, const redisReply *reply)
{
    if (atomic_load(&store->tracking.on) != on)
        return true;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != count)
        return false;
    for (size_t i = 0; i < count; i++) {
        const redisReply *owner = reply->element[i];
        bool own = owner->type == REDIS_REPLY_STRING &&
                   (strcmp(owner->str, items[i].token) == 0 || may_share(owner->str, items[i].token));
        items[i].result = own ? DIBS__WATCHED : DIBS__GONE;
    }
    return true;
}

/* ------------------------------------------------------------ what is told */

static bool is_probe(struct dibs__redis_store *store, const char *key, size_t size)
{
    const struct dibs__key *probe = &store->tracking.probe;

    dibs__redis_mutex_lock(&store->mutex);
    bool is = size == probe->size && memcmp(key, probe->bytes, size) == 0;
    dibs__redis_mutex_unlock(&store->mutex);
    return is;
}

void dibs__tracking_changed(void *context, const char *key, size_t size)
{
    struct dibs__redis_store *store = context;
    const struct dibs__listener *listener = &store->config.listener;
    const char *name = key ? dibs__key_name(store->config.key_prefix, key, size) : NULL;

    if (key && is_probe(store, key, size)) {
        atomic_store(&store->tracking.heard, true);
        listener->wake(listener->context);
        return;
    }
    if (key && !name)
        return;
    if (!key)
        atomic_store(&store->tracking.flushed, true);
    atomic_fetch_add_explicit(&store->config.counters->invalidations, 1, memory_order_relaxed);
    listener->changed(listener->context, name);
}

/* ---------------------------------------------------------- the scheduler */

int64_t dibs__tracking_deadline(const struct dibs__tracking *tracking)
{
    bool waits = tracking->state == DIBS__TRACKING_PROBING || tracking->state == DIBS__TRACKING_REFUSED;

    return waits ? tracking->until : DIBS__NEVER;
}

/* Whether the server may have reported a change of all keys in place of the probe's: another probe is needed. */
static bool is_flushed(struct dibs__tracking *tracking)
{
    return tracking->state == DIBS__TRACKING_PROBING && tracking->unanswered == 0 && !tracking->refused &&
           !atomic_load(&tracking->heard) && atomic_load(&tracking->flushed);
}

void dibs__tracking_attend(struct dibs__redis_store *store, int64_t now)
{
    struct dibs__tracking *tracking = &store->tracking;
    struct dibs__link_view view = {.serial = 0};
    uint64_t subscription;
    int64_t client = 0;

    if (tracking->state == DIBS__TRACKING_REFUSED && now >= tracking->until)
        tracking->state = DIBS__TRACKING_IDLE;
    if (!atomic_load(&tracking->wanted))
        return;
    bool has_probe = choose_probe(store, NULL); /* a refused probe may have lost its key, but must still end */
    if (!has_probe && tracking->state == DIBS__TRACKING_IDLE)
        return;
    bool hears = dibs__subscriber_hear_changes(store->subscriber, &subscription, &client);
    bool stands = dibs__channel_view(store->background, &view);
    if (tracking->state != DIBS__TRACKING_IDLE &&
        (!hears || !stands || view.serial != tracking->link || subscription != tracking->subscription))
        stop(store);
    if (is_flushed(tracking))
        tracking->state = DIBS__TRACKING_IDLE;
    if (tracking->state == DIBS__TRACKING_IDLE && has_probe && hears && stands && tracking->unanswered == 0) {
        tracking->link = view.serial;
        tracking->subscription = subscription;
        tracking->enabled = false;
        if (view.tracks_keys)
            begin(store, client, now);
        else
            refuse(store, DIBS__NEVER);
    }
    if (tracking->state == DIBS__TRACKING_PROBING)
        see_to_probe(store, now);
    if (tracking->state == DIBS__TRACKING_ON)
        read_foreign(store);
    else if (tracking->state == DIBS__TRACKING_REFUSED)
        free_foreign(take_foreign(store));
}

void dibs__tracking_free(struct dibs__redis_store *store)
{
    free_foreign(take_foreign(store));
}
