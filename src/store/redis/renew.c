/*
 * Renewals, many leases in one script over the background connection; and looks at the locks that are watched
 * (tracking.c), many in one MGET. All of this runs on the scheduler's thread, which alone uses that connection.
 *
 * A call is sent in short (renew_short.lua) if all its leases need only be renewed or looked at: without the fences,
 * which stay as they are. If a lease needs more, its whole call is sent in full (renew.lua). That is so for extensions,
 * for leases that may have to be restored, for those whose fence must be looked after again, for those whose use is
 * told, and for top-ups.
 */
#include <stdlib.h>

#include "redis/reply.h"
#include "store/redis/redis_store.h"

/* A server remembers a fence for an hour at least (fence.lua), less what its clock may be off. */
#define MEMORY_MS 3500000

/*
 * The fence of a held lock is put back if it is gone, and its life begins again, at least this often. At a member of a
 * quorum the fence may come from the clock of another, so the next one may be smaller if it is gone.
 */
#define FENCE_MS 300000
#define FENCE_AT_MEMBER_MS 60000

/* As dibs__call_finish does. A server that never takes the text must not be asked without end. */
#define RESENT_MOST 2

/* What the store notes with extensions that were sent and never answered: the contents of their store_state. */
struct __attribute__((__may_alias__)) extension {
    uint64_t serial;   /* of the connection that the first of them was sent on */
    int64_t not_after; /* the server ignores the last of them after this time */
};

_Static_assert(sizeof(struct dibs__redis_lease) <= sizeof(struct dibs__lease_store_state),
               "what is noted fits into the store state");
_Static_assert(_Alignof(struct dibs__redis_lease) <= _Alignof(struct dibs__lease_store_state), "and can lie there");
_Static_assert(sizeof(struct extension) <= sizeof(struct dibs__extension_store_state),
               "what is noted fits into the store state");
_Static_assert(_Alignof(struct extension) <= _Alignof(struct dibs__extension_store_state), "and can lie there");

static struct extension *extension_of(struct dibs__renewal *item)
{
    return (struct extension *)&item->pending_extension;
}

/* A batch that is under way: in one call or, if the server refused that, in one call for each lease. */
struct renewal {
    struct dibs__redis_store *store;
    struct dibs__batch *batch;
    uint64_t tracking; /* of a batch with `watch`: the tracking that watches */
    size_t calls;      /* number of calls that are not answered yet, plus 1 while further calls may be begun */
    struct dibs__error failed;
};

/* One sending for `count` leases of the batch, from `first` on. */
struct renewal_call {
    struct renewal *renewal;
    size_t first, count;
    bool in_full;
    bool all_moved;  /* as of dibs__redis_turned_away */
    unsigned resent; /* how often it was sent again because the server had lost its script */
    uint64_t serial; /* of the connection that the call was sent on */
    uint64_t server; /* the one that the call was sent to */
    int64_t not_after;
};

static struct dibs__renewal *item_of(const struct renewal_call *call, size_t i)
{
    return &call->renewal->batch->items[call->first + i];
}

/*
 * Whether the server may have forgotten the lease, so that the lock may be restored. What an administrator deleted is
 * not restored: only what another server, or one that was restarted, can't know. After the hour another token may have
 * had the lock, and its fence may be forgotten. An owner that the server knows from before gives way (rule 54).
 */
static bool may_be_forgotten(const struct renewal_call *call, struct dibs__renewal *item)
{
    const struct dibs__redis_lease *lease = dibs__redis_lease_of(&item->store_state);
    int64_t now = dibs__now(call->renewal->store->config.clock);

    return lease->server && call->server && lease->server != call->server &&
           now - lease->confirmed_at < MEMORY_MS * DIBS__NS_PER_MS;
}

/*
 * Whether a top-up leaves the lock alone if the lease's fence is smaller than the server's. It does if the server
 * confirmed the lease lately: only a forced unlock, or a grant to another token after the key was deleted, explains
 * both. Else other tokens may have had the key at this member, and none of them a majority.
 */
static bool minds_fence(const struct renewal_call *call, struct dibs__renewal *item)
{
    const struct dibs__redis_lease *lease = dibs__redis_lease_of(&item->store_state);
    int64_t end = dibs__after_ms(lease->confirmed_at, item->lease_ms);

    return lease->confirmed_at != 0 && (item->extension || dibs__now(call->renewal->store->config.clock) < end);
}

/*
 * A retraction that begins from now on must arrive after what restores leases: after this call, and after earlier ones
 * that may still arrive.
 */
static void note_restoring(const struct renewal_call *call, const struct dibs__link_view *view)
{
    struct dibs__redis_store *store = call->renewal->store;

    dibs__redis_mutex_lock(&store->mutex);
    struct dibs__route *restored = &store->restored;
    if (!restored->channel || dibs__view_is_behind(view, restored->serial))
        *restored = (struct dibs__route){.channel = store->background, .serial = view->serial};
    if (call->not_after > restored->not_after)
        restored->not_after = call->not_after;
    dibs__redis_mutex_unlock(&store->mutex);
}

/* A fence is looked after once in each span of time. Whether that has not been done in the present span. */
static bool fence_is_due(const struct renewal_call *call, struct dibs__renewal *item)
{
    const bool at_member = call->renewal->store->config.is_member;
    const int64_t span = (at_member ? FENCE_AT_MEMBER_MS : FENCE_MS) * DIBS__NS_PER_MS;

    return call->renewal->batch->proof / span != dibs__redis_lease_of(&item->store_state)->confirmed_at / span;
}

/* ----------------------------------------------------------------- the words */

static void add_keys(struct dibs__words *words, const struct renewal_call *call, enum dibs__key_kind kind)
{
    struct dibs__key key;

    for (size_t i = 0; i < call->count; i++) {
        dibs__key_of(&key, kind, call->renewal->store->config.key_prefix, item_of(call, i)->name);
        dibs__words_add(words, key.bytes, key.size);
    }
}

static void add_in_full(struct dibs__words *words, const struct renewal_call *call, const struct dibs__link_view *view)
{
    for (size_t i = 0; i < call->count; i++) {
        struct dibs__renewal *item = item_of(call, i);
        bool restores = item->top_up || may_be_forgotten(call, item);
        bool any_fence = item->top_up && !minds_fence(call, item);
        dibs__codec_renew(words, item, call->not_after,
                          any_fence  ? DIBS__RESTORING_ANY_FENCE
                          : restores ? DIBS__RESTORING_BY_FENCE
                                     : DIBS__RESTORING_NO);
        if (restores)
            note_restoring(call, view);
    }
}

static bool needs_full(const struct renewal_call *call)
{
    for (size_t i = 0; i < call->count; i++) {
        struct dibs__renewal *item = item_of(call, i);
        if (item->extension || item->top_up || item->use != DIBS__USE_UNTOLD || may_be_forgotten(call, item) ||
            (!item->look && fence_is_due(call, item)))
            return true;
    }
    return false;
}

/* Writes the words of the call in full or in short. */
static void write_script(struct dibs__call *script, struct renewal_call *call, const struct dibs__link_view *view)
{
    bool at_member = call->renewal->store->config.is_member;

    script->script = call->in_full ? DIBS__SCRIPT_renew : DIBS__SCRIPT_renew_short;
    script->key_count = call->in_full ? 2 * call->count + at_member : call->count;
    add_keys(&script->words, call, DIBS__KEY_LOCK);
    if (!call->in_full) {
        dibs__codec_renew_short(&script->words, item_of(call, 0), call->count);
        return;
    }
    add_keys(&script->words, call, DIBS__KEY_FENCE);
    if (at_member)
        dibs__words_add_text(&script->words, DIBS__KEY_MEMBER);
    add_in_full(&script->words, call, view);
    if (at_member) {
        dibs__words_add_text(&script->words, dibs__codec_run(view->id.run_id));
        dibs__words_add_number(&script->words, (int64_t)dibs__redis_quorum(call->renewal->store));
    }
}

/* ----------------------------------------------------------------- the sending */

static void on_renewed(void *arg, const redisReply *reply, const struct dibs__error *error);

static bool send_look(struct renewal_call *call)
{
    struct dibs__words keys = {.count = 0};
    const struct dibs__command command = {.words = (const char *const[]){"MGET", NULL}, .more = &keys};

    add_keys(&keys, call, DIBS__KEY_LOCK);
    bool sent = dibs__channel_submit(call->renewal->store->background, call->serial, &command, on_renewed, call);
    dibs__words_free(&keys);
    return sent;
}

/* A server that may not know the lease must restore it, not only look at it. */
static bool send_script(struct renewal_call *call, const struct dibs__link_view *view)
{
    const struct dibs__redirect *redirect = item_of(call, 0)->redirect;
    struct dibs__call script = {.asking = redirect && redirect->asking};

    for (size_t i = 0; i < call->count; i++)
        item_of(call, i)->look = item_of(call, i)->look && !may_be_forgotten(call, item_of(call, i));
    call->in_full = needs_full(call);
    call->all_moved = !call->in_full || view->tells_parted;
    write_script(&script, call, view);
    bool sent = dibs__call_submit(&script, call->renewal->store->background, view, on_renewed, call);
    dibs__words_free(&script.words);
    return sent;
}

/* Must be called after batch->proof was taken. Watched locks are read on the connection that the server tracks. */
static bool send_call(struct renewal_call *call)
{
    struct dibs__redis_store *store = call->renewal->store;
    bool watch = call->renewal->batch->watch;
    struct dibs__link_view view;

    if (!dibs__channel_view(store->background, &view) || (watch && view.serial != store->tracking.link))
        return false;
    call->serial = view.serial;
    call->server = view.server;
    call->not_after = dibs__redis_not_after(store, &view, dibs__now(store->config.clock));
    call->all_moved = true;
    return watch ? send_look(call) : send_script(call, &view);
}

/* If there is a connection, memory ran out. */
static void note_unsent(struct renewal *renewal)
{
    if (dibs__channel_is_connected(renewal->store->background))
        dibs__error_set(&renewal->failed, DIBS_NO_MEMORY, "no memory for renewing leases");
    else
        dibs__error_set(&renewal->failed, DIBS_UNAVAILABLE, "there is no connection to %s",
                        renewal->store->endpoint.url.shown);
}

/* A call that can't be sent counts as unanswered. */
static void begin_call(struct renewal *renewal, size_t first, size_t count)
{
    struct renewal_call *call = malloc(sizeof *call);

    if (call)
        *call = (struct renewal_call){.renewal = renewal, .first = first, .count = count};
    if (!call || !send_call(call)) {
        free(call);
        note_unsent(renewal);
        return;
    }
    renewal->calls++;
    for (size_t i = first; i < first + count; i++)
        renewal->batch->items[i].sent = true;
}

static void end_one(struct renewal *renewal)
{
    if (--renewal->calls > 0)
        return;
    if (renewal->batch->watch)
        renewal->failed.status = DIBS_OK; /* a lock that is not watched is no failure */
    else
        dibs__redis_note_reply(renewal->store, renewal->failed.status);
    renewal->batch->done(renewal->batch, &renewal->failed);
    free(renewal);
}

/*
 * Sends each lease in a call of its own. One lease may be the reason why the server refuses a whole call: the right to
 * its key is missing. At a node of a cluster leases are always sent so, since each has a slot of its own.
 */
static void send_one_by_one(struct renewal *renewal, size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++)
        begin_call(renewal, first + i, 1);
}

/* ----------------------------------------------------------------- the answers */

/* The call may have been executed, or may still be: an extension in it can shorten its lease later. */
static void note_unanswered(const struct renewal_call *call)
{
    for (size_t i = 0; i < call->count; i++) {
        struct dibs__renewal *item = item_of(call, i);
        struct extension *extension = extension_of(item);
        item->status = call->renewal->failed.status;
        if (!item->extension)
            continue;
        if (item->pending_extension_ms == 0 || item->lease_ms < item->pending_extension_ms)
            item->pending_extension_ms = item->lease_ms;
        if (extension->serial == 0)
            extension->serial = call->serial;
        if (call->not_after > extension->not_after)
            extension->not_after = call->not_after;
    }
}

/*
 * An extension that was never answered can't arrive any more once the server's clock has passed its time, or the server
 * has ended its connection. Until then it may shorten the lease to its own length.
 */
static void see_what_is_sure(const struct renewal_call *call, struct dibs__renewal *item,
                             const struct dibs__link_view *view, int64_t server_us)
{
    struct extension *extension = extension_of(item);
    bool behind = view && view->serial == call->serial && dibs__view_is_behind(view, extension->serial);

    if (item->pending_extension_ms == 0)
        return;
    if (behind || server_us > extension->not_after) {
        item->pending_extension_ms = 0;
        extension->serial = 0;
        extension->not_after = 0;
    } else if (item->pending_extension_ms < item->lease_ms) {
        item->again_ms = (extension->not_after - server_us) / 1000 + 1;
    }
}

static void take_renewed(const struct renewal_call *call, struct dibs__renewal *item,
                         const struct dibs__link_view *view, int64_t server_us)
{
    struct dibs__redis_lease *lease = dibs__redis_lease_of(&item->store_state);

    item->result = DIBS__RENEWED;
    lease->server = call->server;
    lease->confirmed_at = call->renewal->batch->proof;
    see_what_is_sure(call, item, view, server_us);
}

/* A renewal that came too late is sent again, with a time by the server's present clock. */
static void take_result(const struct renewal_call *call, struct dibs__renewal *item,
                        const struct dibs__renew_reply *said, const struct dibs__link_view *view, int64_t server_us)
{
    struct dibs__redis_store *store = call->renewal->store;
    struct dibs__error unused;

    switch (said->code) {
    case DIBS__RENEW_REFUSED:
        item->status =
            dibs__reply_error(&call->renewal->failed, said->error, store->endpoint.url.shown, "restoring leases");
        break;
    case DIBS__RENEW_LATE:
        item->status = dibs__redis_late(store, store->background, call->serial, said->server_us, &unused);
        break;
    case DIBS__RENEW_ANOTHERS:
        item->was_anothers = true;
        /* fallthrough */
    case DIBS__RENEW_GONE:
        item->result = DIBS__GONE;
        break;
    case DIBS__RENEW_LONGER: /* at a member this counts as no answer, unless the lease is fixed: the clock was set back,
                                and may be set forward again (rule 52) */
        if (!store->config.is_member || item->fixed)
            take_renewed(call, item, view, server_us);
        break;
    case DIBS__RENEW_LOOKED:
        item->result = DIBS__WATCHED;
        break;
    case DIBS__RENEW_WANTED:
    case DIBS__RENEW_DONE:
    case DIBS__RENEW_RESTORED:
        item->raised = item->use != DIBS__USE_UNTOLD;
        item->wanted = said->code == DIBS__RENEW_WANTED && item->use != DIBS__USE_WANTED; /* it is told already */
        /* fallthrough */
    case DIBS__RENEW_NOT_RAISED:
        take_renewed(call, item, view, server_us);
        break;
    }
}

/* One lease may be refused while the others are renewed. False: the reply does not tell what became of each. */
static bool take_results(const struct renewal_call *call, const redisReply *reply)
{
    struct renewal *renewal = call->renewal;
    struct dibs__link_view view;
    int64_t server_us;

    if (renewal->batch->watch)
        return dibs__tracking_take_look(renewal->store, renewal->tracking, item_of(call, 0), call->count, reply);
    if (!dibs__codec_read_renew(reply, call->count, &server_us))
        return false;
    renewal->batch->server_us = server_us;
    bool standing = dibs__channel_view(renewal->store->background, &view);
    for (size_t i = 0; i < call->count; i++) {
        struct dibs__renew_reply said = dibs__codec_read_renewed(reply, i);
        take_result(call, item_of(call, i), &said, standing ? &view : NULL, server_us);
    }
    return true;
}

static void refuse(const struct renewal_call *call, const redisReply *reply)
{
    struct renewal *renewal = call->renewal;

    if (call->count > 1 && dibs__reply_is_final_error(reply)) {
        send_one_by_one(renewal, call->first, call->count);
        return;
    }
    dibs__reply_error(&renewal->failed, reply, renewal->store->endpoint.url.shown, "renewing leases");
    for (size_t i = 0; i < call->count; i++)
        item_of(call, i)->status = renewal->failed.status;
}

static void on_renewed(void *arg, const redisReply *reply, const struct dibs__error *error)
{
    struct renewal_call *call = arg;
    struct renewal *renewal = call->renewal;

    enum dibs__script script = call->in_full ? DIBS__SCRIPT_renew : DIBS__SCRIPT_renew_short;
    bool wants_text = reply && dibs__script_wants_text(script, reply, &renewal->store->endpoint.scripts);
    bool resends = wants_text && call->resent++ < RESENT_MOST;
    if (resends && send_call(call))
        return;
    if (!reply) {
        renewal->failed = *error;
        note_unanswered(call);
    } else if (resends) {
        note_unsent(renewal);
    } else if (dibs__redis_turned_away(renewal->store->config.node, item_of(call, 0)->redirect, reply,
                                       call->all_moved)) {
        dibs__error_set(&renewal->failed, DIBS_UNAVAILABLE, "renewing leases: %s answered: %s",
                        renewal->store->endpoint.url.shown, reply->str);
    } else if (!take_results(call, reply)) {
        refuse(call, reply);
    }
    free(call);
    end_one(renewal);
}

void dibs__redis_renew(struct dibs__store *base, struct dibs__batch *batch)
{
    struct dibs__redis_store *store = dibs__redis_of(base);
    struct renewal *renewal = calloc(1, sizeof *renewal);
    struct dibs__error error;

    for (size_t i = 0; i < batch->count; i++) {
        batch->items[i].result = DIBS__UNANSWERED;
        batch->items[i].status = DIBS_UNAVAILABLE; /* until the batch is sent */
        batch->items[i].sent = batch->items[i].was_anothers = false;
    }
    batch->proof = dibs__now(store->config.clock);
    if (!renewal) {
        dibs__error_set(&error, DIBS_NO_MEMORY, "no memory for renewing leases");
        batch->done(batch, &error);
        return;
    }
    renewal->store = store;
    renewal->batch = batch;
    renewal->calls = 1;
    if (batch->watch)
        renewal->tracking = dibs__tracking_watch(store, batch->items[0].name);
    else if (batch->count > 0)
        dibs__tracking_offer(store, batch->items[0].name);
    bool sends = !batch->watch || renewal->tracking > 0;
    if (sends && store->config.node)
        send_one_by_one(renewal, 0, batch->count);
    else if (sends)
        begin_call(renewal, 0, batch->count);
    end_one(renewal);
}
