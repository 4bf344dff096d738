/* Commands that are no scripts, on a shared connection. */
#include <stdlib.h>

#include "store/redis/redis_store.h"

#define RESENDS 2

void dibs__plain_free(const struct dibs__plain *plain)
{
    for (size_t i = 0; i < plain->count; i++) {
        if (plain->replies[i])
            dibs__reply_free(plain->replies[i]);
        plain->replies[i] = NULL;
    }
}

/* Sends all before the first reply is waited for. Afterwards none is in flight. */
static dibs_status exchange_all(struct dibs__channel *channel, struct dibs__plain *plain,
                                struct dibs__request **requests, int64_t deadline, struct dibs__error *error)
{
    struct dibs__error unsent = {DIBS_OK, ""};
    dibs_status status = DIBS_OK;
    size_t sent = 0;

    while (sent < plain->count &&
           (requests[sent] = dibs__channel_send(channel, plain->view.serial, &plain->commands[sent], 0, &unsent)))
        sent++;
    for (size_t i = 0; i < sent; i++) {
        struct dibs__error its = {DIBS_OK, ""};
        struct dibs__exchange exchange = {.deadline = deadline, .error = &its};
        dibs_status one = dibs__channel_wait(channel, requests[i], &exchange);
        plain->replies[i] = exchange.reply;
        if (one != DIBS_OK && status == DIBS_OK)
            *error = its;
        status = status == DIBS_OK ? one : status;
    }
    if (status == DIBS_OK && sent < plain->count)
        *error = unsent;
    return sent < plain->count && status == DIBS_OK ? unsent.status : status;
}

dibs_status dibs__redis_plain(struct dibs__redis_store *store, struct dibs__plain *plain, int64_t deadline,
                              struct dibs__error *error)
{
    struct dibs__request **requests = malloc(plain->count * sizeof(struct dibs__request *));
    dibs_status status;
    int resends = 0;

    if (!requests)
        return dibs__lock_call_no_memory(error);
    for (size_t i = 0; i < plain->count; i++)
        plain->replies[i] = NULL;
    do {
        size_t at = dibs__redis_pick(store);
        dibs__plain_free(plain);
        status = dibs__channel_open(store->channels[at], deadline, &plain->view, error);
        if (status == DIBS_OK)
            status = exchange_all(store->channels[at], plain, requests, deadline, error);
        else if (status == DIBS_UNAVAILABLE && !dibs__redis_another_stands(store, at))
            break;
    } while (status == DIBS_UNAVAILABLE && ++resends <= RESENDS && dibs__now(store->config.clock) < deadline);
    if (status != DIBS_OK)
        dibs__plain_free(plain);
    free(requests);
    dibs__redis_heard(store, status);
    return status;
}
