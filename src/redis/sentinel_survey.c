/* Asks each sentinel by itself. */
#include "redis/inquiry.h"
#include "redis/reply.h"
#include "redis/sentinel_parts.h"

static dibs_status ask_one(struct dibs__endpoint *endpoint, const struct dibs__clock *clock, const char *name,
                           int64_t until, char host[DIBS__HOST_MAX], unsigned *port, struct dibs__error *error)
{
    const char *const words[] = {"SENTINEL", "GET-MASTER-ADDR-BY-NAME", name, NULL}, *const *command = words;
    struct dibs__link *link = dibs__inquiry_open(endpoint, DIBS__LINK_SENTINEL, clock, until, error);
    redisReply *reply;
    dibs_status status = link ? dibs__inquiry_ask(link, clock, &command, 1, &reply, until, error) : error->status;

    if (status == DIBS_OK) {
        status = dibs__sentinel_read_master(reply, endpoint->url.shown, host, port, error);
        freeReplyObject(reply);
    }
    if (status == DIBS_OK && !host[0])
        status = dibs__error_set(error, DIBS_UNAVAILABLE, "%s does not know that name", endpoint->url.shown);
    dibs__link_free(link);
    return status;
}

dibs_status dibs__sentinel_survey(struct dibs__sentinel *sentinel, int64_t deadline, dibs__sentinel_told_fn *told,
                                  void *context, struct dibs__error *error)
{
    const char *name = sentinel->master->url.master_name;
    struct dibs__sentinel_hosts hosts;

    if (!dibs__sentinel_take(sentinel, deadline))
        return dibs__error_set(error, DIBS_UNAVAILABLE, "the sentinels are being asked by another thread");
    bool copied = dibs__sentinel_hosts_copy(&hosts, &sentinel->hosts, sentinel->master);
    dibs__sentinel_leave(sentinel);
    if (!copied)
        return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for the sentinels");
    for (size_t i = 0; i < hosts.count; i++) {
        struct dibs__endpoint *endpoint = &hosts.hosts[i]->endpoint;
        struct dibs__error why = {DIBS_OK, ""};
        char host[DIBS__HOST_MAX] = "";
        unsigned port = 0;
        int64_t now = dibs__now(sentinel->clock);
        ask_one(endpoint, sentinel->clock, name, now + (deadline - now) / (int64_t)(hosts.count - i), host, &port,
                &why);
        told(context, endpoint->url.shown, host, port, &why);
    }
    dibs__sentinel_hosts_free(&hosts);
    return DIBS_OK;
}
