#include "store/redis/retract_batch.h"

#include <stdio.h>
#include <string.h>

#include "base/borrow.h"
#include "redis/call.h"
#include "redis/reply.h"
#include "store/redis/codec.h"
#include "store/redis/keys.h"
#include "store/redis/redirect.h"

bool dibs__retract_batch_takes_both(const struct dibs__retraction *a, const struct dibs__retraction *b)
{
    return a->route.channel == b->route.channel && a->route.serial == b->route.serial && !a->alone && !b->alone &&
           a->with_text == b->with_text;
}

/* ---------------------------------------------------------------- the answer */

/* The server answered that the token does not have the lock any more. */
static struct dibs__retract_end confirmed(const struct dibs__retract_batch *batch, const struct dibs__retraction *entry,
                                          int64_t server_us)
{
    int64_t not_after = entry->route.not_after;

    if (batch->settled || (not_after > 0 && server_us > not_after))
        return (struct dibs__retract_end){.ending = DIBS__RETRACT_CONFIRMED};
    if (not_after > 0)
        return (struct dibs__retract_end){.ending = DIBS__RETRACT_AFTER,
                                          .pause_ms = (not_after - server_us) / 1000 + 1};
    return (struct dibs__retract_end){.ending = DIBS__RETRACT_LATER};
}

/* A queue that was not served to its end is served further before the token counts as gone. */
static struct dibs__retract_end end_of(const struct dibs__retract_batch *batch, const struct dibs__retraction *entry,
                                       int64_t server_us, enum dibs__retract_code code)
{
    if (code == DIBS__RETRACT_GONE)
        return confirmed(batch, entry, server_us);
    return (struct dibs__retract_end){.ending = code == DIBS__RETRACT_UNFINISHED ? DIBS__RETRACT_AT_ONCE
                                                                                 : DIBS__RETRACT_LATER};
}

/*
 * One entry may be the reason why the server refuses all: the right to its keys is missing, or they are in another
 * slot. reply NULL: there is no answer.
 */
static void take_answer(struct dibs__retract_batch *batch, const redisReply *reply)
{
    bool lost_script = reply && dibs__script_wants_text(reply, batch->carrier);
    bool refused = reply && !lost_script && batch->count > 1 && dibs__reply_is_final_error(reply);
    int64_t server_us = 0;
    bool answered = reply && dibs__codec_read_retract(reply, batch->count, &server_us);

    for (size_t i = 0; i < batch->count; i++) {
        struct dibs__retraction *entry = batch->entries[i];
        entry->with_text = entry->with_text || lost_script;
        entry->alone = entry->alone || refused;
        if (lost_script || refused) {
            batch->ends[i] = (struct dibs__retract_end){.ending = DIBS__RETRACT_AT_ONCE};
            continue;
        }
        enum dibs__retract_code code = answered ? dibs__codec_read_retracted(reply, i) : DIBS__RETRACT_REFUSED;
        if (code == DIBS__RETRACT_REFUSED) /* the slot may be here as a whole by now; else the node redirects anew */
            entry->asking = false;
        batch->ends[i] = end_of(batch, entry, server_us, code);
    }
}

/*
 * The node redirected the only entry of a batch. The asks are settled if the batch settles them; one that still arrives
 * at this node is redirected, too. A node that was asked before the slot had moved there may also redirect the entry:
 * then the slot's own node must send it there again.
 */
static void take_redirect(struct dibs__retract_batch *batch, const struct dibs__redirect *redirect)
{
    struct dibs__retraction *entry = batch->entries[0];

    DIBS__REQUIRE(batch->count == 1);
    batch->ends[0] = (struct dibs__retract_end){.ending = DIBS__RETRACT_LATER};
    entry->asking = redirect->asking;
    if (!redirect->to)
        return;
    batch->ends[0] = (struct dibs__retract_end){.ending = DIBS__RETRACT_ELSEWHERE, .redirect = *redirect};
    if (batch->settled)
        entry->route.not_after = 0;
}

static void on_retracted(void *arg, const redisReply *reply, const struct dibs__error *error)
{
    struct dibs__retract_batch *batch = arg;
    struct dibs__redirect redirect = {.asking = batch->entries[0]->asking};

    (void)error;
    if (reply && dibs__redis_turned_away(batch->node, &redirect, reply, batch->all_moved))
        take_redirect(batch, &redirect);
    else
        take_answer(batch, reply);
    batch->on_ended(batch);
}

/* The batch could not be sent. If there is no connection, its entries wait for the next one. */
static void give_back(struct dibs__retract_batch *batch)
{
    struct dibs__link_view view;
    bool connected = dibs__channel_view(batch->carrier, &view);

    for (size_t i = 0; i < batch->count; i++)
        batch->ends[i].ending = connected ? DIBS__RETRACT_LATER : DIBS__RETRACT_DISCONNECTED;
    batch->on_ended(batch);
}

/* ----------------------------------------------------------------- the words */

/* Writes the keys of the batch's locks into the text, one after the other. False: no memory. */
static bool write_keys(const struct dibs__retract_batch *batch, size_t sizes[DIBS__RETRACT_BATCH_MAX * DIBS__KEYS])
{
    struct dibs__key key;

    batch->text->used = 0;
    for (size_t i = 0; i < batch->count * DIBS__KEYS; i++) {
        dibs__key_of(&key, (enum dibs__key_kind)(i % DIBS__KEYS), batch->key_prefix,
                     batch->entries[i / DIBS__KEYS]->name);
        sizes[i] = key.size;
        if (!dibs__buffer_append(batch->text, key.bytes, key.size))
            return false;
    }
    return true;
}

/* False: no memory. */
static bool write_words(const struct dibs__retract_batch *batch, struct dibs__words *words)
{
    size_t sizes[DIBS__RETRACT_BATCH_MAX * DIBS__KEYS], at = 0;

    if (!write_keys(batch, sizes))
        return false;
    for (size_t i = 0; i < batch->count * DIBS__KEYS; at += sizes[i++])
        dibs__words_add(words, batch->text->bytes + at, sizes[i]);
    for (size_t i = 0; i < batch->count; i++)
        dibs__codec_retract(words, batch->entries[i]->token,
                            batch->entries[i]->surpasses ? batch->entries[i]->fence : "");
    return true;
}

/* --------------------------------------------------------------- the sending */

/*
 * The words point into a text that all batches share: between write_words and the sending, no completion may run. The
 * server must not track what this script reads: for so many keys, that would multiply the script's cost.
 */
static bool send_words(struct dibs__retract_batch *batch, struct dibs__channel *channel,
                       const struct dibs__link_view *view, struct dibs__words *words)
{
    const struct dibs__retraction *first = batch->entries[0];
    struct dibs__command command;

    if (!write_words(batch, words))
        return false;
    bool sent = dibs__script_command(&command, DIBS__SCRIPT_retract, view, first->with_text, first->asking, words);
    batch->untracked = view->tracked && !first->asking;
    batch->all_moved = view->tells_parted;
    if (batch->untracked) {
        command.before = &dibs__caching_no;
        command.before_count = 1;
    }
    sent = sent && dibs__channel_submit(channel, view->serial, &command, on_retracted, batch);
    dibs__script_command_end(&command);
    return sent;
}

static bool send_retraction(struct dibs__retract_batch *batch, struct dibs__channel *channel,
                            const struct dibs__link_view *view)
{
    const char *word_array[DIBS__RETRACT_WORDS(DIBS__RETRACT_BATCH_MAX)];
    size_t size_array[DIBS__RETRACT_WORDS(DIBS__RETRACT_BATCH_MAX)];
    struct dibs__words words = {word_array, size_array, 0, DIBS__RETRACT_WORDS(DIBS__RETRACT_BATCH_MAX)};
    char key_count[12];

    dibs__words_begin(&words, &key_count, batch->count * DIBS__KEYS);
    dibs__borrow_begin();
    bool sent = send_words(batch, channel, view, &words);
    dibs__borrow_end();
    return sent;
}

/* Only a reply that is the number of ended connections, 0 or 1, proves that nothing of the asks can arrive any more. */
static void on_killed(void *arg, const redisReply *reply, const struct dibs__error *error)
{
    struct dibs__retract_batch *batch = arg;
    struct dibs__link_view view;

    (void)error;
    batch->settled = reply && reply->type == REDIS_REPLY_INTEGER;
    if (!dibs__channel_view(batch->carrier, &view) || !send_retraction(batch, batch->carrier, &view))
        give_back(batch);
}

static bool send_kill(struct dibs__retract_batch *batch, const struct dibs__link_view *view)
{
    char id[24];
    const struct dibs__command command = {.words = (const char *const[]){"CLIENT", "KILL", "ID", id, NULL}};

    snprintf(id, sizeof id, "%lld", (long long)batch->entries[0]->route.link.client);
    return dibs__channel_submit(batch->carrier, view->serial, &command, on_killed, batch);
}

/*
 * On the connection of the asks, the batch arrives after them; on a later connection of the same channel, it arrives
 * after all connections of that channel that were ended. Otherwise, if the same server still runs, the connection of
 * the asks is ended first; another server, known by its run id, never had that connection. False: the batch could not
 * be sent.
 */
static bool send_batch(struct dibs__retract_batch *batch)
{
    const struct dibs__route *route = &batch->entries[0]->route;
    struct dibs__link_view view;

    if (route->channel && dibs__channel_view(route->channel, &view) && view.serial == route->serial) {
        batch->settled = true;
        return send_retraction(batch, route->channel, &view);
    }
    if (!dibs__channel_view(batch->carrier, &view))
        return false;
    if (route->channel == batch->carrier) {
        batch->settled = dibs__view_is_behind(&view, route->serial);
        return send_retraction(batch, batch->carrier, &view);
    }
    bool can_be_ended = dibs__link_can_be_ended(&route->link) && view.id.run_id[0];
    if (route->channel && can_be_ended && strcmp(route->link.run_id, view.id.run_id) == 0)
        return send_kill(batch, &view);
    batch->settled = route->channel ? can_be_ended : route->not_after == 0;
    return send_retraction(batch, batch->carrier, &view);
}

void dibs__retract_batch_send(struct dibs__retract_batch *batch)
{
    DIBS__REQUIRE(batch->count > 0);
    if (!send_batch(batch))
        give_back(batch);
}
