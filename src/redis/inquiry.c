#include "redis/inquiry.h"

#include <string.h>

struct dibs__link *dibs__inquiry_open(struct dibs__endpoint *endpoint, enum dibs__link_use use, int64_t deadline,
                                      struct dibs__error *error)
{
    struct dibs__link *link = dibs__link_start(endpoint, use, NULL, error);
    dibs_status status = link ? dibs__link_finish(link, deadline, deadline, error) : error->status;

    if (status == DIBS_OK)
        return link;
    if (status == DIBS_TIMEOUT)
        dibs__link_give_up(link, error);
    dibs__link_free(link);
    return NULL;
}

void dibs__inquiry_free(redisReply **replies, size_t count)
{
    for (size_t i = 0; i < count; i++)
        freeReplyObject(replies[i]);
}

static dibs_status say_all(struct dibs__link *link, const char *const *const *commands, size_t count,
                           struct dibs__error *error)
{
    for (size_t i = 0; i < count; i++)
        if (!dibs__link_say(link, commands[i]))
            return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a command");
    return DIBS_OK;
}

/* Sends and receives what is possible now, and takes the replies that are complete. Sets *moved if something came. */
static dibs_status go_on(struct dibs__link *link, redisReply **replies, size_t count, size_t *taken, bool *moved,
                         struct dibs__error *error)
{
    redisReply *reply;

    if (dibs__link_send_out(link, error) != DIBS_OK)
        return error->status;
    long received = dibs__link_receive(link, error);
    if (received < 0)
        return error->status;
    *moved = received > 0;
    while (*taken < count) {
        if (dibs__link_next_reply(link, &reply, error) != DIBS_OK)
            return error->status;
        if (!reply)
            break;
        replies[(*taken)++] = reply;
    }
    return DIBS_OK;
}

dibs_status dibs__inquiry_ask(struct dibs__link *link, const char *const *const *commands, size_t count,
                              redisReply **replies, int64_t deadline, struct dibs__error *error)
{
    const struct dibs__clock *clock = link->endpoint->clock;
    dibs_status status = say_all(link, commands, count, error);
    size_t taken = 0;
    bool moved = false;

    while (status == DIBS_OK && taken < count) {
        int64_t until = deadline;
        status = go_on(link, replies, count, &taken, &moved, error);
        if (status != DIBS_OK || moved || taken == count)
            continue;
        if (dibs__now(clock) >= deadline) {
            status = dibs__error_set(error, DIBS_UNAVAILABLE, "%s did not answer in time", link->endpoint->url.shown);
            continue;
        }
        struct pollfd fd = dibs__link_interest(link, &until);
        clock->poll(clock, &fd, 1, until);
    }
    if (status != DIBS_OK)
        dibs__inquiry_free(replies, taken);
    return status;
}
