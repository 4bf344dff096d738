/* Releases, alone or followed by an ask in the same round trip, and releases in the background. */

#include "redis/reply.h"
#include "store/redis/redis_store.h"

/*
 * To serve a queue further, a token is retracted that nobody has. GO_ON_MS: for how long at most; what is left then is
 * served when somebody asks next.
 */
#define NO_TOKEN "dibs:"
#define GO_ON_MS 60000

/* One release that was begun, or is being finished. */
struct releasing {
    struct dibs__lock_call call;
    struct dibs__release *release; /* of the operation */
    struct dibs__sending next;     /* the ask after the release; attempt NULL: there is none */
    bool with_next;                /* the last sending included the ask */
    bool refused;                  /* plain commands did not delete the key */
    bool deleted;                  /* they did: the token had the lock until then */
};

/* ---------------------------------------------------------------- the sending */

/*
 * If grants are confirmed, the thread of the next attempt asks by itself, because its ask needs a channel that nobody
 * else uses. It also does so at a member of a quorum, where an ask is another script, and after a quiet release.
 */
static struct releasing *new_releasing(struct dibs__redis_store *store, struct dibs__op *op)
{
    struct releasing *releasing = dibs__lock_call_new(sizeof *releasing, store, op);
    struct dibs__release *release = &op->release;
    bool alone = dibs__redis_confirms(store) || store->config.is_member || release->quiet;
    struct dibs__attempt *next = alone ? NULL : release->next.attempt;

    release->again = false;
    release->next_status = DIBS_BUSY; /* the next attempt was not asked for: it must ask at once */
    if (release->next.attempt)
        *release->next.answer = (struct dibs__answer){.again_ms = 0};
    if (!releasing)
        return NULL;
    DIBS__REQUIRE(!next || !next->fair);
    releasing->release = release;
    releasing->next = (struct dibs__sending){.attempt = next};
    releasing->with_next = releasing->refused = releasing->deleted = false;
    if (next) {
        release->next_status = DIBS_UNAVAILABLE;
        releasing->next.subscription = next->wait ? dibs__subscriber_serial(store->subscriber) : 0;
    }
    return releasing;
}

/*
 * Whether the lock is released by plain commands: a lock that nobody is known to wait for is deleted by its value,
 * which costs the server a fifth of what a script does. What these commands leave undone, the script does afterwards
 * (rule 71 of PROTOCOL.md).
 */
static bool may_be_plain(struct dibs__redis_store *store, const struct releasing *releasing)
{
    const struct dibs__release *release = releasing->release;
    const struct dibs__link_view *view = &releasing->call.view;

    return view->deletes_if != DIBS__DELETE_IF_NONE && release->next_step && !release->shared && !release->again &&
           !releasing->call.repeated && !releasing->refused && !releasing->deleted && !releasing->next.attempt &&
           !store->config.is_member && !view->cluster && !dibs__redis_confirms(store) &&
           atomic_load_explicit(&store->no_delete_if, memory_order_relaxed) != view->server &&
           !dibs__redis_changed_within(store, view->server, release->lease_ms);
}

/* Deletes K if it is the token's, and then looks whether anybody waits. */
static dibs_status send_plain(struct dibs__redis_store *store, struct releasing *releasing, struct dibs__error *error)
{
    struct dibs__lock_call *call = &releasing->call;
    const char *lock = call->keys[DIBS__KEY_LOCK].bytes, *token = releasing->release->token;
    const char *const delex[] = {"DELEX", lock, "IFEQ", token, NULL}, *const delifeq[] = {"DELIFEQ", lock, token, NULL};
    const char *const exists[] = {"EXISTS", call->keys[DIBS__KEY_QUEUE].bytes, NULL};
    const struct dibs__command delete = {.words = call->view.deletes_if == DIBS__DELETE_IF_EX ? delex : delifeq};
    const struct dibs__command command = {.words = exists, .before = &delete, .before_count = 1};

    return dibs__lock_call_send(store, call, &command, error);
}

/*
 * The ask is sent only if the end of the connection that it was sent on before settles its outcome. error NULL: the
 * release is only begun, and this never blocks.
 */
static dibs_status send_release(struct dibs__redis_store *store, struct dibs__lock_call *call,
                                struct dibs__error *error)
{
    struct releasing *releasing = (struct releasing *)call;
    struct dibs__release *release = releasing->release;
    struct dibs__attempt *next = releasing->next.attempt;

    if (next && dibs__redis_attempt_may_be_overtaken(next, &call->view))
        dibs__redis_attempt_retire(store, next, release->next.answer);
    releasing->with_next = next && !release->next.answer->retired;
    if (may_be_plain(store, releasing))
        return send_plain(store, releasing, error);
    dibs__lock_call_write(call, releasing->with_next ? DIBS__SCRIPT_requeue : DIBS__SCRIPT_release, false);
    if (releasing->with_next) {
        struct dibs__ask_words ask = dibs__sending_compose(store, &releasing->next, call);
        dibs__codec_requeue(&call->call.words, release->token, &ask);
    } else {
        dibs__codec_release(&call->call.words, release->token, release->quiet,
                            dibs__redis_changed_within(store, call->view.server, release->lease_ms) ? release->fence
                                                                                                    : 0);
    }
    call->call.tells_first = release->contended;
    return dibs__lock_call_send(store, call, NULL, error);
}

/* ----------------------------------------------------------------- the answer */

static void read_next(struct dibs__redis_store *store, struct releasing *releasing, const redisReply *reply)
{
    struct dibs__release *release = releasing->release;
    struct dibs__error unused;
    bool decided;

    release->next_status =
        dibs__sending_read(store, &releasing->next, &releasing->call, reply, &decided, release->next.answer, &unused);
}

/* If nobody else wants the lock, the process may lock it again with the same fence. */
static void note_given_up(struct dibs__redis_store *store, const struct releasing *releasing)
{
    const struct dibs__op *op = releasing->call.op;
    struct dibs__relock relock = {op->release.fence, op->release.next_step, op->release.shared};

    dibs__redis_mutex_lock(&store->mutex);
    dibs__relocks_note(&store->relocks, op->name, releasing->call.view.server, relock, op->release.granted_at);
    dibs__redis_mutex_unlock(&store->mutex);
}

static dibs_status read_script(struct dibs__redis_store *store, struct releasing *releasing,
                               const struct dibs__exchange *exchange)
{
    const char *name = releasing->call.op->name;
    struct dibs__release_reply said;

    if (!dibs__codec_read_release(&said, exchange->reply))
        return dibs__redis_reply_error(store, "releasing", name, exchange->reply, exchange->error);
    if (said.unfinished)
        dibs__redis_go_on(store, name);
    if (said.released && releasing->refused) /* the token had K, so the server refused that command */
        atomic_store_explicit(&store->no_delete_if, releasing->call.view.server, memory_order_relaxed);
    if (said.released && !said.unfinished && !said.shared_on && !releasing->with_next && releasing->release->next_step)
        note_given_up(store, releasing);
    if (releasing->with_next && said.ask)
        read_next(store, releasing, said.ask);
    return said.released || releasing->deleted ? DIBS_OK : DIBS_NOT_HELD;
}

/* Whether the script was cut short, after it had deleted K: while the slot moves, it may not set a key that is gone. */
static bool is_cut_short(const redisReply *reply)
{
    return dibs__reply_is_error(reply, "ERR Script attempted to access a non local key");
}

/* If something is left to do, the script is sent next: it serves the queue, or says who has the lock. */
static dibs_status read_plain(struct dibs__redis_store *store, struct releasing *releasing,
                              const struct dibs__exchange *exchange)
{
    releasing->deleted = exchange->before & 1u;
    releasing->call.decided =
        releasing->deleted && exchange->reply->type == REDIS_REPLY_INTEGER && exchange->reply->integer == 0;
    if (releasing->call.decided) {
        note_given_up(store, releasing);
        return DIBS_OK;
    }
    releasing->refused = !releasing->deleted;
    return dibs__error_set(exchange->error, DIBS_UNAVAILABLE, "%s: the release is not done yet",
                           store->endpoint.url.shown);
}

static dibs_status read_reply(struct dibs__redis_store *store, struct dibs__lock_call *call,
                              struct dibs__exchange *exchange)
{
    struct releasing *releasing = (struct releasing *)call;
    dibs_status status =
        call->is_plain ? read_plain(store, releasing, exchange) : read_script(store, releasing, exchange);

    releasing->release->again = releasing->release->again || is_cut_short(exchange->reply);
    return status;
}

static void doubt(struct dibs__redis_store *store, struct dibs__lock_call *call)
{
    const struct releasing *releasing = (const struct releasing *)call;

    if (releasing->with_next)
        dibs__sending_doubt(store, &releasing->next, call, releasing->release->next.answer);
}

/* ---------------------------------------------------------------- the channel */

/* Chooses the channel of the release, and so of the ask after it. */
static void choose_channel(struct dibs__redis_store *store, struct releasing *releasing)
{
    releasing->call.channel = dibs__redis_pick(store);
    if (releasing->next.attempt)
        dibs__redis_attempt_of(releasing->next.attempt)->channel = (unsigned)releasing->call.channel + 1;
}

/*
 * Releasing twice does no harm. But an ask that was sent with the release, and may be under way on the first channel,
 * is given up for good.
 */
static bool moves(struct dibs__redis_store *store, struct dibs__lock_call *call)
{
    struct releasing *releasing = (struct releasing *)call;
    struct dibs__attempt *next = releasing->next.attempt;

    if (dibs__now(store->config.clock) >= call->op->deadline || !dibs__redis_another_is_connected(store, call->channel))
        return false;
    if (next && dibs__redis_attempt_of(next)->doubt)
        dibs__redis_attempt_retire(store, next, releasing->release->next.answer);
    choose_channel(store, releasing);
    return true;
}

/* ------------------------------------------------------------------- contract */

void dibs__redis_release_begin(struct dibs__store *base, struct dibs__op *op)
{
    struct dibs__redis_store *store = dibs__redis_of(base);

    struct releasing *releasing = op->state = op->state ? op->state : new_releasing(store, op);
    if (!releasing)
        return;
    DIBS__REQUIRE(!releasing->call.request);
    choose_channel(store, releasing);
    if (!dibs__lock_call_standing(store, &releasing->call))
        return;
    struct dibs__attempt *next = releasing->next.attempt;
    if (!next || !dibs__redis_attempt_may_be_overtaken(next, &releasing->call.view))
        send_release(store, &releasing->call, NULL);
}

static dibs_status run(struct dibs__redis_store *store, struct releasing *releasing, struct dibs__error *error)
{
    static const struct dibs__lock_call_ops ops = {moves, send_release, doubt, read_reply};
    struct dibs__lock_call *call = &releasing->call;
    struct dibs__release *release = releasing->release;

    if (!call->request)
        choose_channel(store, releasing);
    dibs_status status = dibs__lock_call_run(store, call, &ops, error);
    release->again = release->again || call->repeated;
    if (call->op->redirect)
        call->op->redirect->in_doubt = call->in_doubt;
    if (releasing->next.attempt)
        dibs__redis_attempt_asked(store, releasing->next.attempt);
    return status;
}

dibs_status dibs__redis_release_finish(struct dibs__store *base, struct dibs__op *op, struct dibs__error *error)
{
    struct dibs__redis_store *store = dibs__redis_of(base);
    struct releasing *releasing = op->state ? op->state : new_releasing(store, op);
    const struct dibs__release *release = &op->release;

    op->state = NULL;
    dibs_status status = releasing ? run(store, releasing, error) : dibs__lock_call_no_memory(error);
    dibs__lock_call_free(releasing ? &releasing->call : NULL);
    if (status != DIBS_OK && status != DIBS_NOT_HELD && !op->redirect)
        dibs__redis_retract(base, op->name, release->token, release->lease_ms, release->fence);
    return status;
}

void dibs__redis_go_on(struct dibs__redis_store *store, const char *name)
{
    dibs__retractions_add(store->retractions, name, NO_TOKEN, GO_ON_MS / 2, 0, NULL);
}

void dibs__redis_retract(struct dibs__store *base, const char *name, const char *token, uint32_t lease_ms,
                         uint64_t fence)
{
    struct dibs__redis_store *store = dibs__redis_of(base);

    dibs__redis_mutex_lock(&store->mutex);
    struct dibs__route route = store->restored; /* what may restore the lease must arrive before what deletes it */
    dibs__redis_mutex_unlock(&store->mutex);
    dibs__retractions_add(store->retractions, name, token, lease_ms, fence, &route);
}
