#include "redis/call.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "redis/reply.h"

#define BEFORE_MOST 3 /* commands that go right before a call */

/* The command of a call, while it is sent. */
struct script_command {
    struct dibs__command command;
    const char *words[4];
    const char *load[4]; /* SCRIPT LOAD of its script */
    struct dibs__command before[BEFORE_MOST];
    char key_count[DIBS__DIGITS + 1];
    char *text; /* made for this command; NULL: none was */
};

static const struct dibs__command ping = {.words = (const char *const[]){"PING", NULL}};
static const struct dibs__command asking = {.words = (const char *const[]){"ASKING", NULL}};
static const struct dibs__command untracked = {.words = (const char *const[]){"CLIENT", "CACHING", "NO", NULL}};

/*
 * Adds what goes right before the call, in this order. A server writes to its clients in reverse of the order in which
 * it first had something for each. Behind a PING, the client of this link comes first in that order, and so is written
 * to last. What comes behind the PING applies only to the one command behind it.
 */
static void add_before(struct script_command *out, const struct dibs__call *call, bool loads)
{
    struct dibs__command *next = out->before;

    if (loads)
        *next++ = (struct dibs__command){.words = out->load};
    if (call->tells_first)
        *next++ = ping;
    if (call->asking || call->untracked)
        *next++ = call->asking ? asking : untracked;
    out->command.before = out->before;
    out->command.before_count = (unsigned)(next - out->before);
}

/*
 * The first two words are EVALSHA and the id or, if the server is not known to have the script, EVAL and the text. If
 * the account may not use EVAL, the text goes before, by SCRIPT LOAD. False: no memory. In either case free(out->text)
 * must follow.
 */
static bool make_command(struct script_command *out, const struct dibs__call *call, const struct dibs__link_view *view)
{
    const struct dibs__script_text *script = &dibs__scripts[call->script];
    unsigned bit = 1u << call->script, known = atomic_load_explicit(view->scripts, memory_order_relaxed);
    bool lacks = !call->asking && !(known & bit), loads = lacks && view->no_eval;
    bool by_id = loads || (!call->asking && !lacks && !(known & DIBS__SCRIPTS_AS_TEXT));

    *out = (struct script_command){
        .command = {.words = out->words, .more = &call->words, .tells_first = call->tells_first},
        .words = {by_id ? "EVALSHA" : "EVAL", by_id ? script->sha : script->text, out->key_count},
        .load = {"SCRIPT", "LOAD", script->text},
    };
    *dibs__put_number(out->key_count, call->asking ? 1 : call->key_count, 10) = '\0';
    DIBS__REQUIRE(!call->tells_first || !call->untracked);
    add_before(out, call, loads);
    if (call->asking)
        out->words[1] = out->text = dibs__script_single_key(call->script, (int)call->key_count - 1);
    else if (lacks)
        atomic_fetch_or_explicit(view->scripts, bit, memory_order_relaxed);
    return out->words[1] && !call->words.failed;
}

bool dibs__script_wants_text(enum dibs__script script, const redisReply *reply, atomic_uint *scripts)
{
    bool lost = dibs__reply_is_error(reply, "NOSCRIPT"), forbidden = dibs__reply_forbids(reply, "evalsha");

    if (lost)
        atomic_fetch_and_explicit(scripts, ~(1u << script), memory_order_relaxed);
    if (forbidden)
        atomic_fetch_or_explicit(scripts, DIBS__SCRIPTS_AS_TEXT, memory_order_relaxed);
    return lost || forbidden;
}

/* DIBS_OK: exchange->reply belongs to the caller. */
static dibs_status send_wait(struct dibs__channel *channel, uint64_t serial, const struct dibs__copies *copies,
                             struct dibs__exchange *exchange)
{
    char count[12], timeout[24];
    const char *const replicas[] = {"WAIT", count, timeout, NULL}, *const disk[] = {"WAITAOF", count, "0", timeout,
                                                                                    NULL};
    const struct dibs__command command = {.words = copies->on_disk ? disk : replicas};

    snprintf(count, sizeof count, "%" PRIu32, copies->count);
    snprintf(timeout, sizeof timeout, "%" PRId64, copies->timeout_ms);
    struct dibs__request *request = dibs__channel_send(channel, serial, &command, exchange->deadline, exchange->error);
    return request ? dibs__channel_wait(channel, request, exchange) : exchange->error->status;
}

dibs_status dibs__call_wait(struct dibs__channel *channel, uint64_t serial, const struct dibs__copies *copies,
                            int64_t deadline, int64_t *count, struct dibs__error *error)
{
    struct dibs__exchange exchange = {.deadline = deadline, .error = error};

    DIBS__REQUIRE(copies->timeout_ms > 0); /* to the server, 0 means for ever */
    *count = 0;
    dibs_status status = send_wait(channel, serial, copies, &exchange);
    if (status != DIBS_OK)
        return status;
    const redisReply *reply = exchange.reply;
    DIBS__REQUIRE(reply);
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): DIBS_OK, so there is a reply */
    if (reply->type == REDIS_REPLY_INTEGER && !copies->on_disk)
        *count = reply->integer > 0 ? reply->integer : 0;
    else if (!copies->on_disk || !dibs__reply_integer(reply, 0, count))
        status = dibs__reply_refusal(error, reply, copies->shown, copies->on_disk ? "WAITAOF" : "WAIT");
    freeReplyObject(exchange.reply);
    return status;
}

struct dibs__request *dibs__call_begin(const struct dibs__call *call, struct dibs__channel *channel,
                                       const struct dibs__link_view *view, int64_t deadline, struct dibs__error *error)
{
    struct dibs__request *request = NULL;
    struct script_command made;

    if (make_command(&made, call, view))
        request = dibs__channel_send(channel, view->serial, &made.command, deadline, error);
    else
        dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a command");
    free(made.text);
    return request;
}

bool dibs__call_submit(const struct dibs__call *call, struct dibs__channel *channel, const struct dibs__link_view *view,
                       dibs__reply_fn *done, void *arg)
{
    struct script_command made;

    bool sent =
        make_command(&made, call, view) && dibs__channel_submit(channel, view->serial, &made.command, done, arg);
    free(made.text);
    return sent;
}

/* Two more calls at most: by its id, the script may arrive before the text that another thread sends. */
dibs_status dibs__call_finish(const struct dibs__call *call, struct dibs__channel *channel,
                              const struct dibs__link_view *view, struct dibs__request *request,
                              struct dibs__exchange *exchange)
{
    dibs_status status = dibs__channel_wait(channel, request, exchange);

    for (int more = 2; more > 0 && status == DIBS_OK; more--) {
        if (!dibs__script_wants_text(call->script, exchange->reply, view->scripts))
            break;
        freeReplyObject(exchange->reply);
        exchange->unknown = false;
        request = dibs__call_begin(call, channel, view, exchange->deadline, exchange->error);
        status = request ? dibs__channel_wait(channel, request, exchange) : exchange->error->status;
    }
    return status;
}
