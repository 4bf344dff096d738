/*
 * Lock discipline: `mutex` guards the lists, the entries that stand in one, and
 * which flights are free. It is a leaf: no command is sent while it is held.
 *
 * An entry is either in a list or in a flight. A flight and its entries belong
 * to the scheduler's thread while it sends them, and from then on to whoever
 * takes the answer; it never has more than one command under way.
 */
#include "store/redis/retractions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/backoff.h"
#include "redis/call.h"
#include "redis/reply.h"
#include "store/redis/codec.h"
#include "store/redis/keys.h"
#include "store/store.h"

#define AGAIN_FIRST_MS 20
#define AGAIN_LAST_MS 5000
#define TOGETHER_MS 10 /* what falls due within this time is worked off together */
#define FLIGHTS 4      /* commands under way: with BATCH, what a renewal may have to wait behind */
#define BATCH 64       /* tokens in one of them */
#define SLACK_MS 1000  /* between the server's clock and ours, while a lease runs out */

struct retraction {
    struct retraction *next;  /* in its list */
    struct dibs__route route; /* read-only after dibs__retractions_add */
    int64_t ends;             /* read-only after dibs__retractions_add; nothing of it is left then */
    int64_t due;              /* in `later`; DIBS__NEVER: when there is another connection */
    struct dibs__backoff backoff;
    bool alone;       /* a batch that it was in was refused */
    bool with_text;   /* the server has lost the script */
    const char *name; /* read-only after dibs__retractions_add; behind the token, as is its text */
    char token[];     /* read-only after dibs__retractions_add */
};

struct list {
    struct retraction *first, **end;
};

/* A batch under way. All its entries went the same way. */
struct flight {
    struct dibs__retractions *all; /* read-only */
    struct dibs__channel *background;
    bool taken;   /* guarded by mutex */
    bool settled; /* where the answer comes, nothing of the asks can be under way behind it */
    size_t count;
    struct retraction *entries[BATCH];
};

DIBS__MUTEX_CLASS(retractions_mutex);

struct dibs__retractions {
    struct dibs__mutex mutex;
    struct list ready;               /* guarded by mutex; due, and not sent */
    struct list later;               /* guarded by mutex */
    int64_t later_due;               /* guarded by mutex; the earliest time that one in `later` is due at, or before */
    struct flight flights[FLIGHTS];  /* each guarded as it says */
    size_t taken;                    /* guarded by mutex; how many flights are */
    atomic_size_t count;             /* written under mutex; of all entries */
    uint64_t background_serial;      /* the scheduler thread's */
    struct dibs__buffer text;        /* the scheduler thread's; the words of the command that it builds */
    const char *key_prefix;          /* read-only */
    const struct dibs__clock *clock; /* read-only */
    uint32_t command_timeout_ms;     /* read-only */
    void (*wake)(void *context);     /* read-only */
    void *context;                   /* read-only */
};

/* --------------------------------------------------------------------- lists */

static void append(struct list *list, struct retraction *entry)
{
    entry->next = NULL;
    *list->end = entry;
    list->end = &entry->next;
}

static struct retraction *take_first(struct list *list)
{
    struct retraction *entry = list->first;

    list->first = entry->next;
    if (!list->first)
        list->end = &list->first;
    return entry;
}

static void clear(struct list *list)
{
    list->first = NULL;
    list->end = &list->first;
}

/* Requires mutex. The entry is in no list. */
static void drop(struct dibs__retractions *all, struct retraction *entry)
{
    atomic_fetch_sub(&all->count, 1);
    free(entry);
}

/* Requires mutex. To be sent again at that time. */
static void put_off(struct dibs__retractions *all, struct retraction *entry, int64_t due)
{
    entry->due = due;
    append(&all->later, entry);
    if (due < all->later_due)
        all->later_due = due;
}

/* Requires mutex. To be sent again, later each time. */
static void back_off(struct dibs__retractions *all, struct retraction *entry)
{
    put_off(all, entry, dibs__after_ms(dibs__now(all->clock), dibs__backoff_next(&entry->backoff, AGAIN_LAST_MS)));
}

/* Requires mutex. Those that fall due by then become ready. */
static void make_due(struct dibs__retractions *all, int64_t by)
{
    struct list later = all->later;

    if (!later.first)
        return;
    clear(&all->later);
    all->later_due = DIBS__NEVER;
    while (later.first) {
        struct retraction *entry = take_first(&later);
        if (entry->due <= by)
            append(&all->ready, entry);
        else
            put_off(all, entry, entry->due);
    }
}

/* A new connection stands: what waited for one, or had been refused, is due. */
static void make_all_due(struct dibs__retractions *all)
{
    retractions_mutex_lock(&all->mutex);
    for (struct retraction *at = all->later.first; at; at = at->next)
        dibs__backoff_reset(&at->backoff);
    make_due(all, DIBS__NEVER);
    retractions_mutex_unlock(&all->mutex);
}

/* ------------------------------------------------------------------- flights */

/* Requires mutex. */
static void land(struct flight *flight)
{
    flight->taken = false;
    flight->all->taken--;
}

/* Requires mutex. Whether both go the same way, in one command. */
static bool goes_with(const struct retraction *a, const struct retraction *b)
{
    return a->route.channel == b->route.channel && a->route.serial == b->route.serial && !a->alone && !b->alone &&
           a->with_text == b->with_text;
}

/* Requires mutex, and that there is one. The next to be sent that is not over by itself; NULL: there is none. */
static struct retraction *next_ready(struct dibs__retractions *all, int64_t now)
{
    while (all->ready.first && all->ready.first->ends <= now)
        drop(all, take_first(&all->ready));
    return all->ready.first;
}

/* Requires mutex. */
static void fill(struct flight *flight, int64_t now)
{
    struct dibs__retractions *all = flight->all;
    struct retraction *next;

    flight->count = 0;
    while (flight->count < BATCH && (next = next_ready(all, now))) {
        if (flight->count > 0 && !goes_with(flight->entries[0], next))
            return;
        flight->entries[flight->count++] = take_first(&all->ready);
    }
}

/* A flight with what is ready; NULL: nothing is, or enough is under way. */
static struct flight *take_off(struct dibs__retractions *all, int64_t now)
{
    struct flight *flight = NULL;

    retractions_mutex_lock(&all->mutex);
    if (all->later_due <= now)
        make_due(all, dibs__after_ms(now, TOGETHER_MS));
    if (next_ready(all, now) && all->taken < FLIGHTS) {
        for (flight = all->flights; flight->taken; flight++)
            continue;
        flight->taken = true;
        all->taken++;
        fill(flight, now);
    }
    retractions_mutex_unlock(&all->mutex);
    return flight;
}

/* ------------------------------------------------------------------- answers */

/* Requires mutex. The server answered that the key is not the token's any more. */
static void confirmed(const struct flight *flight, struct retraction *entry, int64_t server_us)
{
    struct dibs__retractions *all = flight->all;
    int64_t not_after = entry->route.not_after;

    if (flight->settled || (not_after > 0 && server_us > not_after))
        drop(all, entry);
    else if (not_after > 0)
        put_off(all, entry, dibs__after_ms(dibs__now(all->clock), (not_after - server_us) / 1000 + 1));
    else
        back_off(all, entry);
}

/* Requires mutex. One entry may be why the server refuses all: its keys lack a right, or are in another slot. */
static bool is_refusal_of_some(const struct flight *flight, const redisReply *reply)
{
    return flight->count > 1 && reply->type == REDIS_REPLY_ERROR && dibs__reply_status(reply->str) != DIBS_UNAVAILABLE;
}

/* Requires mutex. What retract.lua answered; no answer: NULL. */
static void take_answer(struct flight *flight, const redisReply *reply)
{
    struct dibs__retractions *all = flight->all;
    bool lost_script = reply && dibs__reply_is_error(reply, "NOSCRIPT");
    bool refused = reply && !lost_script && is_refusal_of_some(flight, reply);
    int64_t server_us = 0;
    bool answered = reply && dibs__codec_read_retract(reply, flight->count, &server_us);

    for (size_t i = 0; i < flight->count; i++) {
        struct retraction *entry = flight->entries[i];
        entry->with_text = entry->with_text || lost_script;
        entry->alone = entry->alone || refused;
        if (lost_script || refused)
            append(&all->ready, entry);
        else if (answered && dibs__codec_read_retracted(reply, i))
            confirmed(flight, entry, server_us);
        else
            back_off(all, entry);
    }
}

static void on_retracted(void *arg, const redisReply *reply, const struct dibs__error *error)
{
    struct flight *flight = arg;
    struct dibs__retractions *all = flight->all;

    (void)error;
    retractions_mutex_lock(&all->mutex);
    take_answer(flight, reply);
    land(flight);
    retractions_mutex_unlock(&all->mutex);
    all->wake(all->context);
}

/* ------------------------------------------------------------------- sending */

/* The flight could not be sent. Where there is no connection, its entries wait for the next. */
static void give_back(struct flight *flight)
{
    struct dibs__retractions *all = flight->all;
    struct dibs__link_view view;
    bool connected = dibs__channel_view(flight->background, &view);

    retractions_mutex_lock(&all->mutex);
    for (size_t i = 0; i < flight->count; i++) {
        if (connected)
            back_off(all, flight->entries[i]);
        else
            put_off(all, flight->entries[i], DIBS__NEVER);
    }
    land(flight);
    retractions_mutex_unlock(&all->mutex);
}

/* Writes the keys of the flight's locks into the text, one behind the other. False: no memory. */
static bool write_keys(const struct flight *flight, size_t sizes[BATCH * DIBS__KEYS])
{
    struct dibs__retractions *all = flight->all;
    struct dibs__key key;

    all->text.used = 0;
    for (size_t i = 0; i < flight->count * DIBS__KEYS; i++) {
        dibs__key_of(&key, (enum dibs__key_kind)(i % DIBS__KEYS), all->key_prefix,
                     flight->entries[i / DIBS__KEYS]->name);
        sizes[i] = key.size;
        if (!dibs__buffer_append(&all->text, key.bytes, key.size))
            return false;
    }
    return true;
}

/* The words of retract.lua. False: no memory. */
static bool write_words(const struct flight *flight, struct dibs__words *words)
{
    size_t sizes[BATCH * DIBS__KEYS], at = 0;

    if (!write_keys(flight, sizes))
        return false;
    for (size_t i = 0; i < flight->count * DIBS__KEYS; at += sizes[i++])
        dibs__words_add(words, flight->all->text.bytes + at, sizes[i]);
    for (size_t i = 0; i < flight->count; i++)
        dibs__codec_retract(words, flight->entries[i]->token);
    return true;
}

/* Its answer may come, and land the flight, before this returns true. */
static bool send_retraction(struct flight *flight, struct dibs__channel *channel, const struct dibs__link_view *view)
{
    const char *word_array[DIBS__RETRACT_WORDS(BATCH)];
    size_t size_array[DIBS__RETRACT_WORDS(BATCH)];
    struct dibs__words words = {word_array, size_array, 0, DIBS__RETRACT_WORDS(BATCH)};
    char key_count[12];

    dibs__words_begin(&words, &key_count, flight->count * DIBS__KEYS);
    if (!write_words(flight, &words))
        return false;
    dibs__script_words(DIBS__SCRIPT_retract, view, flight->entries[0]->with_text, &words);
    return dibs__channel_submit(channel, view->serial, &(struct dibs__command){words.count, word_array, size_array},
                                on_retracted, flight);
}

/* Only the number of connections ended, 0 or 1, proves that nothing of the asks can come any more. */
static void on_killed(void *arg, const redisReply *reply, const struct dibs__error *error)
{
    struct flight *flight = arg;
    struct dibs__link_view view;

    (void)error;
    flight->settled = reply && reply->type == REDIS_REPLY_INTEGER;
    if (!dibs__channel_view(flight->background, &view) || !send_retraction(flight, flight->background, &view))
        give_back(flight);
}

static bool send_kill(struct flight *flight, const struct dibs__link_view *view)
{
    char id[24];
    const char *words[] = {"CLIENT", "KILL", "ID", id};
    size_t sizes[] = {6, 4, 2, 0};

    sizes[3] = (size_t)snprintf(id, sizeof id, "%lld", (long long)flight->entries[0]->route.link.client);
    return dibs__channel_submit(flight->background, view->serial, &(struct dibs__command){4, words, sizes}, on_killed,
                                flight);
}

/*
 * On the connection of the asks the flight comes behind them, and, on the
 * background channel, behind all its connections that were ended. Else, where
 * the same server still runs, that connection is ended first; another server,
 * by its run id, never had it. False: it could not be sent.
 */
static bool send_flight(struct flight *flight)
{
    const struct dibs__route *route = &flight->entries[0]->route;
    struct dibs__link_view view;

    if (route->channel && dibs__channel_view(route->channel, &view) && view.serial == route->serial) {
        flight->settled = true;
        return send_retraction(flight, route->channel, &view);
    }
    if (!dibs__channel_view(flight->background, &view))
        return false;
    if (route->channel == flight->background) {
        flight->settled = dibs__view_is_behind(&view, route->serial);
        return send_retraction(flight, flight->background, &view);
    }
    bool can_be_ended = dibs__link_can_be_ended(&route->link) && view.id.run_id[0];
    if (route->channel && can_be_ended && strcmp(route->link.run_id, view.id.run_id) == 0)
        return send_kill(flight, &view);
    flight->settled = route->channel ? can_be_ended : route->not_after == 0;
    return send_retraction(flight, flight->background, &view);
}

/* ------------------------------------------------------------------ contract */

static void tell_serial(struct dibs__retractions *all, struct dibs__channel *background)
{
    struct dibs__link_view view;

    if (!dibs__channel_view(background, &view) || view.serial == all->background_serial)
        return;
    all->background_serial = view.serial;
    make_all_due(all);
}

void dibs__retractions_attend(struct dibs__retractions *all, struct dibs__channel *background)
{
    struct flight *flight;

    if (dibs__retractions_count(all) == 0)
        return;
    tell_serial(all, background);
    while ((flight = take_off(all, dibs__now(all->clock)))) {
        flight->background = background;
        if (!send_flight(flight))
            give_back(flight);
    }
}

int64_t dibs__retractions_deadline(struct dibs__retractions *all)
{
    if (dibs__retractions_count(all) == 0)
        return DIBS__NEVER;
    retractions_mutex_lock(&all->mutex);
    int64_t deadline = all->later_due;
    if (all->ready.first)
        deadline = 0;
    if (all->taken == FLIGHTS)
        deadline = DIBS__NEVER; /* an answer will wake the scheduler */
    retractions_mutex_unlock(&all->mutex);
    return deadline;
}

size_t dibs__retractions_count(struct dibs__retractions *all)
{
    return atomic_load(&all->count);
}

/* NULL: no memory. An ask that is on its way may begin its lease, or a place in the queue of twice that, that late. */
static struct retraction *new_entry(const struct dibs__retractions *all, const char *name, const char *token,
                                    uint32_t lease_ms, const struct dibs__route *route)
{
    size_t token_size = strlen(token) + 1, name_size = strlen(name) + 1;
    struct retraction *entry = calloc(1, sizeof *entry + token_size + name_size);

    if (!entry)
        return NULL;
    entry->route = *route;
    entry->ends = dibs__after_ms(dibs__now(all->clock), all->command_timeout_ms + INT64_C(2) * lease_ms + SLACK_MS);
    entry->backoff.first_ms = AGAIN_FIRST_MS;
    memcpy(entry->token, token, token_size);
    entry->name = memcpy(entry->token + token_size, name, name_size);
    return entry;
}

void dibs__retractions_add(struct dibs__retractions *all, const char *name, const char *token, uint32_t lease_ms,
                           const struct dibs__route *route)
{
    struct retraction *entry = new_entry(all, name, token, lease_ms, route);

    if (!entry)
        return;
    retractions_mutex_lock(&all->mutex);
    append(&all->ready, entry);
    atomic_fetch_add(&all->count, 1);
    retractions_mutex_unlock(&all->mutex);
    all->wake(all->context);
}

/* ----------------------------------------------------------------- lifecycle */

struct dibs__retractions *dibs__retractions_new(const char *key_prefix, const struct dibs__clock *clock,
                                                uint32_t command_timeout_ms, void (*wake)(void *context), void *context)
{
    struct dibs__retractions *all = calloc(1, sizeof *all);

    if (!all || dibs__mutex_init(&all->mutex) != 0) {
        free(all);
        return NULL;
    }
    clear(&all->ready);
    clear(&all->later);
    all->later_due = DIBS__NEVER;
    for (size_t i = 0; i < FLIGHTS; i++)
        all->flights[i].all = all;
    all->key_prefix = key_prefix;
    all->clock = clock;
    all->command_timeout_ms = command_timeout_ms;
    all->wake = wake;
    all->context = context;
    return all;
}

void dibs__retractions_free(struct dibs__retractions *all)
{
    if (!all)
        return;
    while (all->ready.first)
        free(take_first(&all->ready));
    while (all->later.first)
        free(take_first(&all->later));
    dibs__buffer_free(&all->text);
    dibs__mutex_destroy(&all->mutex);
    free(all);
}
