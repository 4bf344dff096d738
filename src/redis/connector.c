#include "redis/connector.h"

void dibs__connector_init(struct dibs__connector *connector, struct dibs__endpoint *endpoint, enum dibs__link_use use)
{
    *connector = (struct dibs__connector){
        .endpoint = endpoint,
        .use = use,
        .backoff = {.first_ms = DIBS__RECONNECT_FIRST_MS},
    };
}

void dibs__connector_free(struct dibs__connector *connector)
{
    dibs__link_free(connector->link);
    connector->link = NULL;
}

/*
 * The server may count a link that has asked to subscribe among the listeners, so the next link has the server end it.
 */
static void fail_try(struct dibs__connector *connector)
{
    const struct dibs__link *link = connector->link;

    if (link && link->use == DIBS__LINK_SUBSCRIPTIONS && link->state >= DIBS__LINK_SUBSCRIBING)
        connector->before = link->view.id;
    dibs__connector_free(connector);
    dibs__endpoint_doubt(connector->endpoint, connector->told);
}

dibs_status dibs__connector_begin(struct dibs__connector *connector, int64_t now, struct dibs__error *error)
{
    DIBS__REQUIRE(!connector->link);
    connector->until = dibs__after_ms(now, connector->endpoint->connect_timeout_ms);
    connector->told = atomic_load(&connector->endpoint->told);
    dibs__endpoint_doubt(connector->endpoint, connector->before.told); /* the previous link was lost */
    connector->link = dibs__link_start(connector->endpoint, connector->use, &connector->before, error);
    if (!connector->link)
        fail_try(connector);
    return connector->link ? DIBS_OK : error->status;
}

bool dibs__connector_is_ready(const struct dibs__connector *connector)
{
    return connector->link && connector->link->state == DIBS__LINK_READY;
}

dibs_status dibs__connector_step(struct dibs__connector *connector, int64_t now, struct dibs__error *error)
{
    DIBS__REQUIRE(connector->link);
    dibs_status status = dibs__link_step(connector->link, now, connector->until, error);
    if (status == DIBS_OK && !dibs__connector_is_ready(connector) && now >= connector->until)
        status = dibs__link_give_up(connector->link, error);
    if (status != DIBS_OK)
        fail_try(connector);
    return status;
}

dibs_status dibs__connector_finish(struct dibs__connector *connector, int64_t deadline, struct dibs__error *error)
{
    int64_t until = connector->until;

    DIBS__REQUIRE(connector->link);
    dibs_status status = dibs__link_finish(connector->link, until < deadline ? until : deadline, until, error);
    if (status == DIBS_TIMEOUT && until <= deadline)
        status = dibs__link_give_up(connector->link, error);
    if (status != DIBS_OK && status != DIBS_TIMEOUT)
        fail_try(connector);
    return status;
}

bool dibs__connector_is_led_elsewhere(struct dibs__connector *connector, dibs_status failed, int64_t deadline)
{
    struct dibs__endpoint *endpoint = connector->endpoint;
    struct dibs__error unused;

    return failed == DIBS_UNAVAILABLE && endpoint->finder.context &&
           dibs__endpoint_await(endpoint, connector->told, deadline, &unused) == DIBS_OK &&
           dibs__endpoint_has_moved(endpoint, connector->told);
}

struct dibs__link *dibs__connector_take(struct dibs__connector *connector)
{
    struct dibs__link *link = dibs__connector_is_ready(connector) ? connector->link : NULL;

    if (link) {
        connector->link = NULL;
        dibs__endpoint_prove(connector->endpoint, link->view.id.told);
    }
    return link;
}

/*
 * When the next try is due. While the server is being found for the first time, no try is due, because waiting is
 * better.
 */
static int64_t next_try(const struct dibs__connector *connector, bool always)
{
    bool soon = atomic_load(&connector->needed) && connector->soonest_at < connector->next_at;

    if (!(always || atomic_load(&connector->wanted)) || dibs__endpoint_is_awaited(connector->endpoint))
        return DIBS__NEVER;
    return soon ? connector->soonest_at : connector->next_at;
}

struct pollfd dibs__connector_interest(const struct dibs__connector *connector, bool always, int64_t *deadline)
{
    *deadline = dibs__earlier(*deadline, connector->link ? connector->until : next_try(connector, always));
    return connector->link ? dibs__link_interest(connector->link, deadline) : (struct pollfd){.fd = -1};
}

bool dibs__connector_is_due(const struct dibs__connector *connector, bool always, int64_t now)
{
    return connector->link || now >= next_try(connector, always);
}

/* Also after a success the next try has to wait: if a link breaks at once, the next one is not made at once. */
bool dibs__connector_attend(struct dibs__connector *connector, int64_t now, int64_t last_ms, struct dibs__error *error)
{
    dibs_status status =
        connector->link ? dibs__connector_step(connector, now, error) : dibs__connector_begin(connector, now, error);

    if (status == DIBS_OK && !dibs__connector_is_ready(connector))
        return false;
    connector->next_at = connector->soonest_at = dibs__after_ms(now, DIBS__RECONNECT_FIRST_MS);
    if (status == DIBS_OK)
        dibs__backoff_reset(&connector->backoff);
    else
        connector->next_at = dibs__after_ms(now, dibs__backoff_next(&connector->backoff, last_ms));
    return true;
}
