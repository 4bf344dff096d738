#include "redis/link.h"

#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- lifecycle */

struct dibs__link *dibs__link_start(struct dibs__endpoint *endpoint, enum dibs__link_use use,
                                    const struct dibs__link_id *before, struct dibs__error *error)
{
    struct dibs__link *link = calloc(1, sizeof *link);

    if (link) {
        link->endpoint = endpoint;
        link->use = use;
    }
    if (!link || !dibs__reader_init(&link->reader)) {
        dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a connection");
        goto fail;
    }
    if (before)
        link->before = *before;
    link->view.id.told = atomic_load(&endpoint->told);
    link->view.scripts = &endpoint->scripts;
    link->transport = endpoint->transport->open(endpoint, error);
    if (link->transport)
        return link;
fail:
    dibs__link_free(link);
    return NULL;
}

void dibs__link_free(struct dibs__link *link)
{
    if (!link)
        return;
    if (link->transport)
        link->transport->ops->close(link->transport);
    dibs__reader_end(&link->reader);
    dibs__buffer_free(&link->out);
    free(link);
}

/* ------------------------------------------------------------------ driving */

/* Called when sending failed. A server that turns a connection away says why before it closes the connection. */
static dibs_status prefer_reason_of_server(struct dibs__link *link, struct dibs__error *error)
{
    struct dibs__error said = {DIBS_OK, ""};

    long received = dibs__link_receive(link, &said);
    bool says_why = received > 0 ? dibs__greeting_take(link, &said) != DIBS_OK : said.status == DIBS_DENIED;
    if (says_why)
        *error = said;
    return error->status;
}

/* Requires that the transport is connected. */
static dibs_status go_on_greeting(struct dibs__link *link, struct dibs__error *error)
{
    DIBS__REQUIRE(link->transport->connected);
    while (link->state != DIBS__LINK_READY) {
        if (dibs__link_send_out(link, error) != DIBS_OK)
            return prefer_reason_of_server(link, error);
        long received = dibs__link_receive(link, error);
        if (received < 0)
            return error->status;
        enum dibs__link_state state = link->state;
        if (dibs__greeting_take(link, error) != DIBS_OK)
            return error->status;
        if (received == 0 && state == link->state)
            return DIBS_OK;
    }
    return DIBS_OK;
}

dibs_status dibs__link_step(struct dibs__link *link, int64_t now, int64_t until, struct dibs__error *error)
{
    struct dibs__transport *transport = link->transport;

    if (link->state == DIBS__LINK_CONNECTING) {
        if (transport->ops->connect(transport, now, until, error) !=
            DIBS_OK) /* a name may be that of the next server */
            return dibs__link_is_outdated(link) ? dibs__link_outdated(link, error) : error->status;
        if (!transport->connected)
            return DIBS_OK;
        if (dibs__greeting_begin(link, now, error) != DIBS_OK)
            return error->status;
    }
    if (go_on_greeting(link, error) != DIBS_OK)
        return error->status;
    return link->state == DIBS__LINK_READY && dibs__link_is_outdated(link) ? dibs__link_outdated(link, error) : DIBS_OK;
}

dibs_status dibs__link_outdated(const struct dibs__link *link, struct dibs__error *error)
{
    return dibs__error_set(error, DIBS_UNAVAILABLE, "the sentinels name another server as %s",
                           link->endpoint->url.shown);
}

struct pollfd dibs__link_interest(struct dibs__link *link, int64_t *deadline)
{
    return dibs__link_poll(link, link->out.used > 0 ? POLLIN | POLLOUT : POLLIN, deadline);
}

/* Polls for the answers to the greeting. Nothing is learned from this wait, because it is not of the usual kind. */
static dibs_status finish_soon(struct dibs__link *link, int64_t until, struct dibs__error *error)
{
    const struct dibs__clock *clock = link->endpoint->clock;
    struct dibs__spinning wait;
    dibs_status status = DIBS_OK;

    if (link->state == DIBS__LINK_CONNECTING)
        return DIBS_OK;
    dibs__spin_begin(&wait, &link->endpoint->spin, clock);
    while (status == DIBS_OK && link->state != DIBS__LINK_READY && dibs__spin_goes_on(&wait, clock))
        status = dibs__link_step(link, dibs__now(clock), until, error);
    dibs__spin_end(&wait, false, clock);
    return status;
}

dibs_status dibs__link_finish(struct dibs__link *link, int64_t deadline, int64_t until, struct dibs__error *error)
{
    const struct dibs__clock *clock = link->endpoint->clock;

    for (;;) {
        int64_t now = dibs__now(clock), again = deadline;
        if (dibs__link_step(link, now, until, error) != DIBS_OK)
            return error->status;
        if (link->state != DIBS__LINK_READY && finish_soon(link, until, error) != DIBS_OK)
            return error->status;
        if (link->state == DIBS__LINK_READY)
            return DIBS_OK;
        if (now >= deadline)
            return DIBS_TIMEOUT;
        struct pollfd fd = dibs__link_interest(link, &again);
        clock->poll(clock, &fd, 1, again);
    }
}

dibs_status dibs__link_give_up(struct dibs__link *link, struct dibs__error *error)
{
    dibs__endpoint_failed(link->endpoint);
    bool lacks_tls = link->endpoint->url.tls && !link->transport->connected;
    return dibs__error_set(error, DIBS_UNAVAILABLE, "%s does not answer%s", link->endpoint->url.shown,
                           lacks_tls ? " with a TLS handshake; without TLS, the URL begins with redis, not rediss"
                                     : "");
}

/* ------------------------------------------------------- what a link found out */

bool dibs__link_can_be_ended(const struct dibs__link_id *id)
{
    return id->client > 0 && id->run_id[0] && id->may_kill;
}

/* ---------------------------------------------------------------- the bytes */

long dibs__link_send(struct dibs__link *link, const char *bytes, size_t size, struct dibs__error *error)
{
    DIBS__REQUIRE(link->transport->connected);
    return link->transport->ops->send(link->transport, bytes, size, error);
}

bool dibs__link_say(struct dibs__link *link, const char *const *words)
{
    if (!dibs__buffer_command(&link->out, words, NULL))
        return false;
    atomic_fetch_add_explicit(link->endpoint->commands, 1, memory_order_relaxed);
    return true;
}

dibs_status dibs__link_send_out(struct dibs__link *link, struct dibs__error *error)
{
    if (link->out.used == 0)
        return DIBS_OK;
    long sent = dibs__link_send(link, link->out.bytes, link->out.used, error);
    if (sent < 0)
        return error->status;
    dibs__buffer_drop(&link->out, (size_t)sent);
    return DIBS_OK;
}

long dibs__link_receive(struct dibs__link *link, struct dibs__error *error)
{
    DIBS__REQUIRE(link->transport->connected);
    long received = link->transport->ops->receive(link->transport, link->in, sizeof link->in, error);
    if (received <= 0)
        return received;
    atomic_fetch_add_explicit(&link->endpoint->received, 1, memory_order_relaxed);
    if (redisReaderFeed(link->reader.native, link->in, (size_t)received) == REDIS_OK)
        return received;
    dibs__error_set(error, DIBS_UNAVAILABLE, "the connection to %s broke: no memory for its reply",
                    link->endpoint->url.shown);
    return -1;
}

bool dibs__link_sleep(struct dibs__link *link)
{
    if (link->transport->ops->sleep)
        link->transport->ops->sleep(link->transport);
    return link->transport->ops->sleep != NULL;
}

struct pollfd dibs__link_poll(struct dibs__link *link, short want, int64_t *deadline)
{
    return link->transport->ops->poll(link->transport, want, deadline);
}

enum dibs__sight dibs__link_look(struct dibs__link *link)
{
    return link->transport->ops->look(link->transport);
}

void dibs__link_shut(struct dibs__link *link)
{
    link->transport->ops->shut(link->transport);
}

bool dibs__link_may_receive(struct dibs__link *link, short revents)
{
    return revents != 0 || (link->transport->ops->pending && link->transport->ops->pending(link->transport));
}

dibs_status dibs__link_next_reply(struct dibs__link *link, redisReply **reply, struct dibs__error *error)
{
    void *next = NULL;

    *reply = NULL;
    if (redisReaderGetReply(link->reader.native, &next) != REDIS_OK) {
        if (link->reader.native->err == REDIS_ERR_OOM && !link->reader.too_large)
            return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for an answer of %s", link->endpoint->url.shown);
        /*
         * The reader's own sentence is not shown, because it quotes bytes, which may be ours sent back, with a
         * password.
         */
        return dibs__error_set(error, DIBS_STORE_ERROR, "%s does not speak as a Redis server does",
                               link->endpoint->url.shown);
    }
    *reply = next;
    return DIBS_OK;
}
