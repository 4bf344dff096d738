#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "redis/reply.h"
#include "redis/subscriber_parts.h"

#define KEPT_MS 60000       /* a subscription is kept for at least this long after somebody asked about it */
#define ANSWER_MS 5000      /* time that the server has to answer */
#define PAUSE_FIRST_MS 1000 /* the first pause before a subscription that was refused or lost is asked for again */
#define PAUSE_LAST_MS 60000

/* ----------------------------------------------------------------- the slots */

static struct dibs__slot **bucket_of(struct dibs__slots *slots, unsigned number) DIBS__REQUIRES(subscriber_mutex)
{
    return &slots->buckets[number & (DIBS__SLOT_BUCKETS - 1)];
}

static struct dibs__slot *find(struct dibs__slots *slots, unsigned number) DIBS__REQUIRES(subscriber_mutex)
{
    struct dibs__slot *slot = *bucket_of(slots, number);

    while (slot && slot->number != number)
        slot = slot->next;
    return slot;
}

/* NULL: no memory. */
static struct dibs__slot *add(struct dibs__slots *slots, unsigned number) DIBS__REQUIRES(subscriber_mutex)
{
    struct dibs__slot *slot = calloc(1, sizeof *slot), **bucket = bucket_of(slots, number);

    if (!slot)
        return NULL;
    slot->number = number;
    slot->backoff.first_ms = PAUSE_FIRST_MS;
    slot->next = *bucket;
    *bucket = slot;
    atomic_fetch_add(&slots->count, 1);
    return slot;
}

static void act_by(struct dibs__slots *slots, int64_t when) DIBS__REQUIRES(subscriber_mutex)
{
    if (when < atomic_load(&slots->due))
        atomic_store(&slots->due, when);
}

static void keep(const struct dibs__subscriber *subscriber, struct dibs__slot *slot, uint32_t lease_ms)
    DIBS__REQUIRES(subscriber_mutex)
{
    int64_t ms = lease_ms / 2 > KEPT_MS ? lease_ms / 2 : KEPT_MS;
    int64_t until = dibs__after_ms(dibs__now(subscriber->endpoint->clock), ms);

    slot->kept_until = until > slot->kept_until ? until : slot->kept_until;
}

/*
 * Called when the server has ended the subscription, refused it, or does not know it. If the slot has gone to another
 * server, nobody asks about it here any more. True: somebody may have relied on the subscription.
 */
static bool lose(struct dibs__slots *slots, struct dibs__slot *slot, int64_t now) DIBS__REQUIRES(subscriber_mutex)
{
    int64_t kept_until = dibs__after_ms(now, KEPT_MS);
    bool stood = slot->serial != 0;

    slot->serial = 0;
    slot->state = DIBS__SLOT_DUE;
    slot->act_at = dibs__after_ms(now, dibs__backoff_next(&slot->backoff, PAUSE_LAST_MS));
    slot->kept_until = kept_until < slot->kept_until ? kept_until : slot->kept_until;
    act_by(slots, slot->act_at);
    return stood;
}

static void tell_of_loss(struct dibs__subscriber *subscriber)
{
    atomic_store(&subscriber->slots.lost, true);
    subscriber->hooks.wake(subscriber->hooks.above);
}

/* --------------------------------------------------------------- any thread */

void dibs__subscriber_slot_channel(const struct dibs__subscriber *subscriber, unsigned slot,
                                   char out[DIBS__SLOT_CHANNEL_MAX])
{
    const char *name = subscriber->endpoint->channel;
    char *end = dibs__put(out, name, strlen(name));

    end = dibs__put(end, ":{", 2);
    dibs__slot_tag(end, slot);
    memcpy(end + DIBS__SLOT_TAG, "}", 2);
}

bool dibs__subscriber_want_slot(struct dibs__subscriber *subscriber, unsigned slot, uint32_t lease_ms)
{
    struct dibs__slots *slots = &subscriber->slots;

    DIBS__REQUIRE(slot < DIBS__SLOTS);
    subscriber_mutex_lock(&subscriber->mutex);
    struct dibs__slot *known = find(slots, slot), *wanted = known ? known : add(slots, slot);
    if (wanted)
        keep(subscriber, wanted, lease_ms);
    if (wanted && !known)
        act_by(slots, 0);
    bool soon = wanted && wanted->backoff.next_ms == 0;
    subscriber_mutex_unlock(&subscriber->mutex);
    if (wanted && !known)
        subscriber->hooks.wake(subscriber->hooks.above);
    return soon;
}

uint64_t dibs__subscriber_slot(struct dibs__subscriber *subscriber, unsigned slot, uint32_t lease_ms)
{
    uint64_t serial = 0;

    if (atomic_load_explicit(&subscriber->slots.count, memory_order_relaxed) == 0)
        return 0;
    subscriber_mutex_lock(&subscriber->mutex);
    struct dibs__slot *known = find(&subscriber->slots, slot);
    if (known && known->serial != 0) {
        keep(subscriber, known, lease_ms);
        serial = known->serial;
    }
    subscriber_mutex_unlock(&subscriber->mutex);
    return serial;
}

void dibs__subscriber_distrust_slot(struct dibs__subscriber *subscriber, unsigned slot, uint64_t serial)
{
    int64_t now = dibs__now(subscriber->endpoint->clock);

    DIBS__REQUIRE(serial != 0);
    subscriber_mutex_lock(&subscriber->mutex);
    struct dibs__slot *known = find(&subscriber->slots, slot);
    bool lost = known && known->serial == serial && lose(&subscriber->slots, known, now);
    subscriber_mutex_unlock(&subscriber->mutex);
    if (lost)
        tell_of_loss(subscriber);
}

bool dibs__subscriber_confirm_slot(struct dibs__subscriber *subscriber, unsigned slot, uint64_t serial)
{
    subscriber_mutex_lock(&subscriber->mutex);
    struct dibs__slot *known = find(&subscriber->slots, slot);
    bool stands = known && known->serial == serial;
    if (stands)
        dibs__backoff_reset(&known->backoff);
    subscriber_mutex_unlock(&subscriber->mutex);
    return stands;
}

/* ------------------------------------------------------------ what is received */

/* Whether that is the channel of a slot. */
static bool is_slot_channel(const struct dibs__subscriber *subscriber, const redisReply *channel, unsigned *slot)
{
    char expected[DIBS__SLOT_CHANNEL_MAX];

    if (channel->type != REDIS_REPLY_STRING)
        return false;
    *slot = dibs__slot_of(channel->str, (size_t)channel->len);
    dibs__subscriber_slot_channel(subscriber, *slot, expected);
    return strlen(expected) == (size_t)channel->len && memcmp(expected, channel->str, (size_t)channel->len) == 0;
}

static void take_confirmation(struct dibs__subscriber *subscriber, uint64_t link, unsigned number)
{
    struct dibs__slots *slots = &subscriber->slots;

    subscriber_mutex_lock(&subscriber->mutex);
    struct dibs__slot *slot = find(slots, number);
    if (slot && link == slots->link && (slot->state == DIBS__SLOT_ASKED || slot->state == DIBS__SLOT_DUE)) {
        slot->state = DIBS__SLOT_STANDS;
        slot->serial = ++slots->last_serial;
        act_by(slots, slot->kept_until);
    }
    subscriber_mutex_unlock(&subscriber->mutex);
}

/* The server ended the subscription because the slot moved, or it became a replica; or it ended an earlier one as
 * asked. */
static void take_end(struct dibs__subscriber *subscriber, uint64_t link, unsigned number, int64_t now)
{
    struct dibs__slots *slots = &subscriber->slots;

    subscriber_mutex_lock(&subscriber->mutex);
    struct dibs__slot *slot = find(slots, number);
    bool lost = slot && link == slots->link && slot->state == DIBS__SLOT_STANDS && lose(slots, slot, now);
    subscriber_mutex_unlock(&subscriber->mutex);
    if (lost)
        tell_of_loss(subscriber);
}

bool dibs__slots_take(struct dibs__subscriber *subscriber, uint64_t link, const redisReply *reply, int64_t now)
{
    unsigned slot;

    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 || reply->element[0]->type != REDIS_REPLY_STRING ||
        reply->element[0]->str[0] != 's' || !is_slot_channel(subscriber, reply->element[1], &slot))
        return false;
    const char *event = reply->element[0]->str;
    const redisReply *body = reply->element[2];
    if (strcmp(event, "smessage") == 0 && body->type == REDIS_REPLY_STRING) {
        dibs__subscriber_confirm(subscriber, link);
        subscriber->hooks.message(subscriber->hooks.context, body->str, (size_t)body->len);
    } else if (strcmp(event, "ssubscribe") == 0) {
        take_confirmation(subscriber, link, slot);
    } else if (strcmp(event, "sunsubscribe") == 0) {
        take_end(subscriber, link, slot, now);
    }
    return true;
}

bool dibs__slots_explain(const struct dibs__subscriber *subscriber, const redisReply *error)
{
    static const char *const codes[] = {"MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "ERR"};

    for (size_t i = 0; atomic_load(&subscriber->slots.asked) && i < sizeof codes / sizeof *codes; i++)
        if (dibs__reply_is_error(error, codes[i]))
            return true;
    return false;
}

/* --------------------------------------------------------------- what is sent */

/* *done: the slot must be forgotten. False: no memory. */
static bool act(struct dibs__subscriber *subscriber, struct dibs__slot *slot, int64_t now, bool *done)
    DIBS__REQUIRES(subscriber_mutex)
{
    bool kept = now < slot->kept_until, leaves = slot->state == DIBS__SLOT_STANDS && !kept;
    char channel[DIBS__SLOT_CHANNEL_MAX];

    if (slot->state == DIBS__SLOT_ASKED && now >= slot->act_at)
        lose(&subscriber->slots, slot, now);
    *done = leaves || (slot->state == DIBS__SLOT_DUE && !kept);
    if (!leaves && (slot->state != DIBS__SLOT_DUE || *done || now < slot->act_at))
        return true;
    slot->state = DIBS__SLOT_ASKED;
    slot->act_at = dibs__after_ms(now, ANSWER_MS);
    atomic_store(&subscriber->slots.asked, true);
    dibs__subscriber_slot_channel(subscriber, slot->number, channel);
    const char *const words[] = {leaves ? "SUNSUBSCRIBE" : "SSUBSCRIBE", channel, NULL};
    return dibs__channel_say(subscriber->channel, subscriber->slots.link, words);
}

static int64_t next_act(const struct dibs__slot *slot) DIBS__REQUIRES(subscriber_mutex)
{
    bool at_its_end =
        slot->state == DIBS__SLOT_STANDS || (slot->state == DIBS__SLOT_DUE && slot->kept_until < slot->act_at);

    return at_its_end ? slot->kept_until : slot->act_at;
}

bool dibs__slots_ask(struct dibs__subscriber *subscriber, int64_t now)
{
    struct dibs__slots *slots = &subscriber->slots;
    bool good = true;

    if (now < atomic_load(&slots->due))
        return true;
    subscriber_mutex_lock(&subscriber->mutex);
    atomic_store(&slots->due, DIBS__NEVER);
    for (size_t i = 0; i < DIBS__SLOT_BUCKETS; i++) {
        for (struct dibs__slot **at = &slots->buckets[i], *slot; (slot = *at);) {
            bool done = false;
            good = good && act(subscriber, slot, now, &done);
            if (done) {
                *at = slot->next;
                free(slot);
                atomic_fetch_sub(&slots->count, 1);
            } else {
                act_by(slots, next_act(slot));
                at = &slot->next;
            }
        }
    }
    subscriber_mutex_unlock(&subscriber->mutex);
    return good;
}

void dibs__slots_drop(struct dibs__subscriber *subscriber)
{
    struct dibs__slots *slots = &subscriber->slots;

    subscriber_mutex_lock(&subscriber->mutex);
    slots->link = 0;
    for (size_t i = 0; i < DIBS__SLOT_BUCKETS; i++) {
        for (struct dibs__slot *slot = slots->buckets[i]; slot; slot = slot->next) {
            slot->serial = 0;
            slot->state = DIBS__SLOT_DUE;
            slot->act_at = 0;
            act_by(slots, 0);
        }
    }
    atomic_store(&slots->asked, false);
    subscriber_mutex_unlock(&subscriber->mutex);
}

/* ----------------------------------------------------------------- lifecycle */

/* Not analysed: no thread is inside. */
DIBS__UNANALYSED void dibs__slots_free(struct dibs__slots *slots)
{
    for (size_t i = 0; i < DIBS__SLOT_BUCKETS; i++) {
        for (struct dibs__slot *slot = slots->buckets[i], *next; slot; slot = next) {
            next = slot->next;
            free(slot);
        }
    }
}
