/* The questions to one sentinel, and what it answers. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "redis/reply.h"
#include "redis/sentinel_parts.h"

#define SWITCHES "+switch-master" /* the channel on which a sentinel tells that the master has changed */
#define EPOCH_MOST (UINT64_C(1) << 59)

/* ------------------------------------------------------------------- asking */

static bool say(struct dibs__sentinel_host *host, const char *first, const char *second, const char *third)
{
    const char *words[] = {first, second, third, NULL};

    return dibs__link_say(host->link, words);
}

/*
 * A subscribed client may ask nothing else, so the subscription is ended and begun again, in one write: what happens in
 * between is told afterwards, or shows in the answers. The epoch is asked for before the address: if a switch comes
 * between the two, the address looks older than it is, and never newer.
 */
dibs_status dibs__sentinel_ask(struct dibs__sentinel *sentinel, struct dibs__sentinel_host *host,
                               struct dibs__error *error)
{
    const char *name = sentinel->master->url.master_name;
    bool unsubscribes = host->subscribed;

    DIBS__REQUIRE(host->link && host->next == DIBS__ASKS_NOTHING);
    host->master[0] = host->id[0] = '\0';
    host->epoch = -1;
    host->others = 0;
    host->switched = host->subscribed = host->answered = false;
    host->next = unsubscribes ? DIBS__ASKS_UNSUBSCRIBE : DIBS__ASKS_EPOCH;
    if ((unsubscribes && !say(host, "UNSUBSCRIBE", SWITCHES, NULL)) || !say(host, "SENTINEL", "MASTER", name) ||
        !say(host, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", name) || !say(host, "SENTINEL", "SENTINELS", name) ||
        !say(host, "SENTINEL", "MYID", NULL) || !say(host, "SUBSCRIBE", SWITCHES, NULL))
        return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a command");
    return dibs__link_send_out(host->link, error);
}

/* ------------------------------------------------------------------ answers */

/*
 * The message is "NAME OLD-HOST OLD-PORT NEW-HOST NEW-PORT". Only the name matters, because the sentinel is asked
 * again.
 */
static bool is_about(const char *master, const char *message)
{
    size_t size = strlen(master);

    return strncmp(message, master, size) == 0 && message[size] == ' ';
}

/* Whether the reply is the name of a host or an address. */
static bool is_host(const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_STRING || reply->len == 0 || (size_t)reply->len >= DIBS__HOST_MAX)
        return false;
    for (const char *c = reply->str; c < reply->str + reply->len; c++)
        if (!isalnum((unsigned char)*c) && (*c == '\0' || !strchr("-._:%", *c)))
            return false;
    return true;
}

/* 0: the reply is no port. */
static unsigned port_of(const redisReply *reply)
{
    uint64_t port = 0;

    if (reply->type == REDIS_REPLY_STRING)
        dibs__read_number(reply->str, reply->len, 65535, &port);
    return (unsigned)port;
}

static dibs_status no_sentinel(const char *shown, struct dibs__error *error)
{
    return dibs__error_set(error, DIBS_STORE_ERROR, "%s does not answer as a sentinel does", shown);
}

dibs_status dibs__sentinel_read_master(const redisReply *reply, const char *shown, char host[DIBS__HOST_MAX],
                                       unsigned *port, struct dibs__error *error)
{
    if (reply->type == REDIS_REPLY_ERROR)
        return dibs__reply_refusal(error, reply, shown, "SENTINEL GET-MASTER-ADDR-BY-NAME");
    if (reply->type == REDIS_REPLY_NIL)
        return DIBS_OK;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 || !is_host(reply->element[0]) ||
        port_of(reply->element[1]) == 0)
        return no_sentinel(shown, error);
    memcpy(host, reply->element[0]->str, (size_t)reply->element[0]->len + 1);
    *port = port_of(reply->element[1]);
    return DIBS_OK;
}

/*
 * The value of a field in the description of a master or a sentinel, a list of fields and values. NULL: there is none.
 */
static const redisReply *field_of(const redisReply *described, const char *field)
{
    if (described->type != REDIS_REPLY_ARRAY)
        return NULL;
    for (size_t i = 0; i + 1 < described->elements; i += 2)
        if (described->element[i]->type == REDIS_REPLY_STRING && strcmp(described->element[i]->str, field) == 0)
            return described->element[i + 1];
    return NULL;
}

/* If the account may not ask, or the answer is no number, the epoch stays unknown. */
static void take_epoch(struct dibs__sentinel_host *host, const redisReply *reply)
{
    const redisReply *epoch = field_of(reply, "config-epoch");
    uint64_t number;

    if (epoch && epoch->type == REDIS_REPLY_STRING && dibs__read_number(epoch->str, epoch->len, EPOCH_MOST, &number))
        host->epoch = (int64_t)number;
}

/* Learns the sentinels of the list that can be understood. An error, or an empty list, tells nothing. */
static void take_others(struct dibs__sentinel *sentinel, struct dibs__sentinel_host *host, const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY)
        return;
    for (size_t i = 0; i < reply->elements; i++) {
        const redisReply *name = field_of(reply->element[i], "ip"), *port = field_of(reply->element[i], "port");
        if (!name || !port || !is_host(name) || port_of(port) == 0)
            continue;
        host->others++;
        dibs__sentinel_hosts_learn(&sentinel->hosts, name->str, port_of(port), sentinel->round);
    }
}

void dibs__sentinel_take_id(struct dibs__sentinel_host *host, const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_STRING && reply->len == DIBS__RUN_ID)
        memcpy(host->id, reply->str, DIBS__RUN_ID + 1);
}

/* If the account may not subscribe, the sentinel is asked again more often. */
static dibs_status take_subscription(struct dibs__sentinel_host *host, const redisReply *reply,
                                     struct dibs__error *error)
{
    host->subscribed = dibs__reply_is_event(reply, "subscribe", SWITCHES, REDIS_REPLY_INTEGER);
    host->answered = host->subscribed || reply->type == REDIS_REPLY_ERROR;
    return host->answered ? DIBS_OK : no_sentinel(host->endpoint.url.shown, error);
}

static dibs_status take(struct dibs__sentinel *sentinel, struct dibs__sentinel_host *host, const redisReply *reply,
                        struct dibs__error *error)
{
    enum dibs__sentinel_question question = host->next;

    if (reply->type == REDIS_REPLY_ERROR)
        atomic_fetch_add_explicit(host->endpoint.errors, 1, memory_order_relaxed);
    if (dibs__reply_is_event(reply, "message", SWITCHES, REDIS_REPLY_STRING)) {
        if (is_about(sentinel->master->url.master_name, reply->element[2]->str))
            host->switched = true;
        return DIBS_OK;
    }
    if (question == DIBS__ASKS_NOTHING)
        return no_sentinel(host->endpoint.url.shown, error);
    host->next++;
    switch (question) {
    case DIBS__ASKS_UNSUBSCRIBE:
        return dibs__reply_is_event(reply, "unsubscribe", SWITCHES, REDIS_REPLY_INTEGER)
                   ? DIBS_OK
                   : no_sentinel(host->endpoint.url.shown, error);
    case DIBS__ASKS_EPOCH:
        take_epoch(host, reply);
        return DIBS_OK;
    case DIBS__ASKS_MASTER:
        return dibs__sentinel_read_master(reply, host->endpoint.url.shown, host->master, &host->port, error);
    case DIBS__ASKS_OTHERS:
        take_others(sentinel, host, reply);
        return DIBS_OK;
    case DIBS__ASKS_ID:
        dibs__sentinel_take_id(host, reply);
        return DIBS_OK;
    case DIBS__ASKS_SUBSCRIBE:
    case DIBS__ASKS_NOTHING:
        break;
    }
    return take_subscription(host, reply, error);
}

dibs_status dibs__sentinel_listen(struct dibs__sentinel *sentinel, struct dibs__sentinel_host *host,
                                  struct dibs__error *error)
{
    redisReply *reply;

    if (dibs__link_send_out(host->link, error) != DIBS_OK)
        return error->status;
    long received = dibs__link_receive(host->link, error);
    if (received <= 0)
        return received < 0 ? error->status : DIBS_OK;
    while (dibs__link_next_reply(host->link, &reply, error) == DIBS_OK) {
        if (!reply)
            return DIBS_OK;
        dibs_status status = take(sentinel, host, reply, error);
        freeReplyObject(reply);
        if (status != DIBS_OK)
            return status;
    }
    return error->status;
}
