#include "redis/call.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "redis/reply.h"

void dibs__words_add(struct dibs__words *words, const char *bytes, size_t size)
{
    DIBS__REQUIRE(words->count < words->most);
    words->words[words->count] = bytes;
    words->sizes[words->count++] = size;
}

void dibs__words_begin(struct dibs__words *words, char (*text)[12], size_t key_count)
{
    words->count = DIBS__SCRIPT_WORDS - 1;
    dibs__words_add(words, *text, (size_t)(dibs__put_number(*text, key_count, 10) - *text));
}

/* Fills the first two words: EVALSHA and the id, or EVAL and the text. */
static void write_script(enum dibs__script script, const struct dibs__link_view *view, bool with_text,
                         const struct dibs__words *words)
{
    unsigned bit = 1u << script;
    unsigned known = atomic_load_explicit(view->scripts, memory_order_relaxed);
    bool by_text = with_text || !(known & bit) || (known & DIBS__SCRIPTS_AS_TEXT);

    if (!(known & bit))
        atomic_fetch_or_explicit(view->scripts, bit, memory_order_relaxed);
    words->words[0] = by_text ? "EVAL" : "EVALSHA";
    words->words[1] = by_text ? dibs__script_text(script) : dibs__script_sha(script);
    words->sizes[0] = strlen(words->words[0]);
    words->sizes[1] = strlen(words->words[1]);
}

/* Fills the first three words for a call that names only one key. False: no memory. */
static bool write_single_key(enum dibs__script script, const struct dibs__words *words)
{
    uint64_t keys = 1;

    dibs__read_number(words->words[2], words->sizes[2], INT_MAX, &keys);
    char *text = dibs__script_single_key(script, (int)keys - 1);
    words->words[0] = "EVAL";
    words->words[1] = text;
    words->words[2] = "1";
    words->sizes[0] = 4;
    words->sizes[1] = text ? strlen(text) : 0;
    words->sizes[2] = 1;
    return text != NULL;
}

bool dibs__script_command(struct dibs__command *out, enum dibs__script script, const struct dibs__link_view *view,
                          bool with_text, bool asking, const struct dibs__words *words)
{
    *out = (struct dibs__command){.words = words->words, .sizes = words->sizes, .count = words->count};
    if (!asking) {
        write_script(script, view, with_text, words);
        return true;
    }
    out->before = &dibs__asking;
    out->before_count = 1;
    return write_single_key(script, words);
}

void dibs__script_command_end(const struct dibs__command *command)
{
    if (command->before == &dibs__asking)
        free((char *)command->words[1]);
}

bool dibs__script_wants_text(const redisReply *reply, struct dibs__channel *channel)
{
    struct dibs__link_view view;

    if (reply->type != REDIS_REPLY_ERROR)
        return false;
    if (dibs__reply_is_error(reply, "NOSCRIPT"))
        return true;
    if (!dibs__reply_forbids(reply, "evalsha"))
        return false;
    if (dibs__channel_view(channel, &view))
        atomic_fetch_or_explicit(view.scripts, DIBS__SCRIPTS_AS_TEXT, memory_order_relaxed);
    return true;
}

void dibs__call_init(struct dibs__call *call, enum dibs__script script, size_t key_count)
{
    DIBS__REQUIRE(key_count <= DIBS__CALL_KEYS);
    call->script = script;
    call->number_count = 0;
    call->tells_first = call->asking = call->with_text = false;
    call->words = (struct dibs__words){call->word_array, call->size_array, 0, DIBS__CALL_WORDS};
    dibs__words_begin(&call->words, &call->key_count, key_count);
}

void dibs__call_add(struct dibs__call *call, const char *text)
{
    dibs__words_add(&call->words, text, strlen(text));
}

void dibs__call_add_number(struct dibs__call *call, int64_t number)
{
    DIBS__REQUIRE(call->number_count < DIBS__CALL_NUMBERS);
    char *text = call->numbers[call->number_count++];

    dibs__words_add(&call->words, text, (size_t)(dibs__put_signed(text, number) - text));
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

struct dibs__request *dibs__call_begin(struct dibs__call *call, struct dibs__channel *channel,
                                       const struct dibs__link_view *view, int64_t deadline, struct dibs__error *error)
{
    struct dibs__request *request = NULL;
    struct dibs__command command;

    if (dibs__script_command(&command, call->script, view, call->with_text, call->asking, &call->words)) {
        command.tells_first = call->tells_first;
        request = dibs__channel_send(channel, view->serial, &command, deadline, error);
    } else {
        dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a command");
    }
    dibs__script_command_end(&command);
    return request;
}

dibs_status dibs__call_finish(struct dibs__call *call, struct dibs__channel *channel,
                              const struct dibs__link_view *view, struct dibs__request *request,
                              struct dibs__exchange *exchange)
{
    dibs_status status = dibs__channel_wait(channel, request, exchange);

    if (status != DIBS_OK || !dibs__script_wants_text(exchange->reply, channel))
        return status;
    freeReplyObject(exchange->reply);
    exchange->unknown = false;
    call->with_text = true;
    request = dibs__call_begin(call, channel, view, exchange->deadline, exchange->error);
    return request ? dibs__channel_wait(channel, request, exchange) : exchange->error->status;
}
