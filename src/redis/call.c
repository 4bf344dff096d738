#include "redis/call.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "redis/reply.h"

void dibs__call_init(struct dibs__call *call, enum dibs__script script, int key_count)
{
    memset(call, 0, sizeof *call);
    call->script = script;
    call->count = 2;
    dibs__call_add_number(call, key_count);
}

void dibs__call_add(struct dibs__call *call, const char *bytes, size_t size)
{
    call->words[call->count] = bytes;
    call->sizes[call->count++] = size;
}

void dibs__call_add_number(struct dibs__call *call, int64_t number)
{
    char *text = call->numbers[call->number_count++];
    int size = snprintf(text, sizeof call->numbers[0], "%lld", (long long)number);

    dibs__call_add(call, text, (size_t)size);
}

void dibs__call_set_number(struct dibs__call *call, int nth, int64_t number)
{
    char *text = call->numbers[nth];

    for (int i = 0; i < call->count; i++)
        if (call->words[i] == text)
            call->sizes[i] = (size_t)snprintf(text, sizeof call->numbers[0], "%lld", (long long)number);
}

void dibs__script_words(enum dibs__script script, const struct dibs__link_view *view, bool with_text,
                        const char *words[2], size_t sizes[2])
{
    bool by_text = with_text || !view->shas[script][0];

    words[0] = by_text ? "EVAL" : "EVALSHA";
    words[1] = by_text ? dibs__script_text(script) : view->shas[script];
    sizes[0] = strlen(words[0]);
    sizes[1] = strlen(words[1]);
}

int64_t dibs__call_wait(struct dibs__channel *channel, uint64_t serial, uint32_t wanted, int64_t timeout_ms,
                        int64_t deadline)
{
    char replicas[12], timeout[24];
    const char *words[] = {"WAIT", replicas, timeout};
    size_t sizes[] = {4, 0, 0};
    struct dibs__error unused;
    redisReply *reply;
    bool unknown;
    int64_t count = 0;

    sizes[1] = (size_t)snprintf(replicas, sizeof replicas, "%" PRIu32, wanted);
    sizes[2] = (size_t)snprintf(timeout, sizeof timeout, "%" PRId64, timeout_ms);
    struct dibs__request *request =
        dibs__channel_send(channel, serial, &(struct dibs__command){3, words, sizes}, deadline, &unused);
    if (!request || dibs__channel_wait(channel, request, deadline, &reply, &unknown, &unused) != DIBS_OK)
        return -1;
    if (reply->type == REDIS_REPLY_INTEGER && reply->integer > 0)
        count = reply->integer;
    freeReplyObject(reply);
    return count;
}

static dibs_status run_once(struct dibs__call *call, struct dibs__channel *channel, const struct dibs__link_view *view,
                            bool with_text, int64_t deadline, redisReply **reply, bool *unknown,
                            struct dibs__error *error)
{
    *unknown = false;
    dibs__script_words(call->script, view, with_text, call->words, call->sizes);
    struct dibs__request *request = dibs__channel_send(
        channel, view->serial, &(struct dibs__command){call->count, call->words, call->sizes}, deadline, error);
    if (!request)
        return error->status;
    return dibs__channel_wait(channel, request, deadline, reply, unknown, error);
}

dibs_status dibs__call_run(struct dibs__call *call, struct dibs__channel *channel, const struct dibs__link_view *view,
                           int64_t deadline, redisReply **reply, bool *unknown, struct dibs__error *error)
{
    dibs_status status = run_once(call, channel, view, false, deadline, reply, unknown, error);

    if (status != DIBS_OK || !dibs__reply_is_error(*reply, "NOSCRIPT"))
        return status;
    freeReplyObject(*reply);
    return run_once(call, channel, view, true, deadline, reply, unknown, error);
}
