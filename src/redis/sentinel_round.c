/* Which sentinel is asked when, and what its answers lead to. */
#include <string.h>

#include "redis/sentinel_parts.h"

#define PAUSE_LAST_MS 1000
#define SILENCE_MS 5000      /* a sentinel from which nothing came for so long is asked again; */
#define UNSUBSCRIBED_MS 1000 /* where it does not let us subscribe, after so long */

static struct dibs__sentinel_host *host_of(struct dibs__sentinel *sentinel)
{
    return sentinel->hosts.hosts[sentinel->at];
}

static uint64_t told(const struct dibs__sentinel *sentinel)
{
    return atomic_load(&sentinel->master->told);
}

static bool is_doubted(const struct dibs__sentinel *sentinel)
{
    return told(sentinel) > 0 && atomic_load(&sentinel->master->doubted) == told(sentinel);
}

static void tell_threads(struct dibs__sentinel *sentinel)
{
    sentinel_mutex_lock(&sentinel->mutex);
    pthread_cond_broadcast(&sentinel->changed);
    sentinel_mutex_unlock(&sentinel->mutex);
}

static void drop_link(struct dibs__sentinel *sentinel)
{
    dibs__link_free(sentinel->link);
    sentinel->link = NULL;
    dibs__connector_free(&sentinel->connector);
    sentinel->next = DIBS__ASKS_NOTHING;
    sentinel->subscribed = sentinel->switched = false;
    sentinel->state = DIBS__SENTINEL_PAUSES;
}

/* ----------------------------------------------------------------- the rounds */

static void end_round(struct dibs__sentinel *sentinel, int64_t now)
{
    sentinel->in_round = false;
    sentinel->ended_at = now;
    sentinel->next_at = dibs__after_ms(now, dibs__backoff_next(&sentinel->pauses, PAUSE_LAST_MS));
}

static void fail_round(struct dibs__sentinel *sentinel, int64_t now)
{
    struct dibs__error why;

    dibs__sentinel_hosts_tell(&sentinel->hosts, sentinel->master->url.master_name, &why);
    dibs__endpoint_untell(sentinel->master, &why);
    end_round(sentinel, now);
    sentinel_mutex_lock(&sentinel->mutex);
    sentinel->failure = why;
    atomic_fetch_add(&sentinel->failures, 1);
    pthread_cond_broadcast(&sentinel->changed);
    sentinel_mutex_unlock(&sentinel->mutex);
}

/* The sentinels of a round share the time in which a thread connects: the last share is for the master. */
static uint32_t share_of_time(const struct dibs__sentinel *sentinel)
{
    uint32_t ms = sentinel->config.connect_timeout_ms / (uint32_t)(sentinel->hosts.given + 1);

    return ms > 0 ? ms : 1;
}

/* Goes over to the next sentinel, or ends the round in vain. */
static void pass_over(struct dibs__sentinel *sentinel, enum dibs__sentinel_fault fault, int64_t now)
{
    size_t most = sentinel->hosts.count * (sentinel->doubting ? 2 : 1);

    host_of(sentinel)->fault = fault;
    drop_link(sentinel);
    sentinel->at = (sentinel->at + 1) % sentinel->hosts.count;
    if (++sentinel->tried >= most)
        fail_round(sentinel, now);
}

static enum dibs__sentinel_fault fault_of(const struct dibs__sentinel *sentinel, dibs_status status, int64_t now)
{
    switch (status) {
    case DIBS_DENIED:
        return DIBS__FAULT_DENIED;
    case DIBS_STORE_ERROR:
        return DIBS__FAULT_NO_SENTINEL;
    case DIBS_NO_MEMORY:
        return DIBS__FAULT_NO_MEMORY;
    default:
        return now >= sentinel->until ? DIBS__FAULT_SILENT : DIBS__FAULT_UNREACHED;
    }
}

/* When a round may begin. Where the last one led to a link that was ready, the pauses need not have grown. */
static int64_t next_round(const struct dibs__sentinel *sentinel)
{
    int64_t soon = dibs__after_ms(sentinel->ended_at, DIBS__SENTINEL_PAUSE_MS);
    bool proved = told(sentinel) > 0 && atomic_load(&sentinel->master->proved) >= told(sentinel);

    return proved && soon < sentinel->next_at ? soon : sentinel->next_at;
}

/* From the sentinel behind the one that answered last. */
static void begin_round(struct dibs__sentinel *sentinel)
{
    if (next_round(sentinel) != sentinel->next_at)
        dibs__backoff_reset(&sentinel->pauses);
    if (sentinel->link) {
        drop_link(sentinel);
        sentinel->at = (sentinel->at + 1) % sentinel->hosts.count;
    }
    sentinel->in_round = true;
    sentinel->doubting = is_doubted(sentinel);
    sentinel->tried = 0;
    dibs__sentinel_hosts_begin(&sentinel->hosts);
}

/* ------------------------------------------------------------- one sentinel */

static void connect_to(struct dibs__sentinel *sentinel, int64_t now)
{
    struct dibs__error error;

    dibs__connector_init(&sentinel->connector, &host_of(sentinel)->endpoint, DIBS__LINK_SENTINEL,
                         share_of_time(sentinel));
    sentinel->until = dibs__after_ms(now, share_of_time(sentinel));
    sentinel->state = DIBS__SENTINEL_CONNECTS;
    dibs_status status = dibs__connector_begin(&sentinel->connector, NULL, now, &error);
    if (status != DIBS_OK)
        pass_over(sentinel, fault_of(sentinel, status, now), now);
}

static void ask(struct dibs__sentinel *sentinel, int64_t now)
{
    struct dibs__error error;

    sentinel->state = DIBS__SENTINEL_ASKS;
    dibs_status status = dibs__sentinel_ask(sentinel, &error);
    if (status != DIBS_OK)
        pass_over(sentinel, fault_of(sentinel, status, now), now);
}

static void go_on_connecting(struct dibs__sentinel *sentinel, int64_t now)
{
    struct dibs__error error;
    dibs_status status = dibs__connector_step(&sentinel->connector, now, &error);

    sentinel->link = dibs__connector_take(&sentinel->connector);
    if (status != DIBS_OK)
        pass_over(sentinel, fault_of(sentinel, status, now), now);
    else if (sentinel->link)
        ask(sentinel, now);
}

/* A sentinel that listens is lost or useless: the others are asked. */
static void lose(struct dibs__sentinel *sentinel, enum dibs__sentinel_fault fault)
{
    host_of(sentinel)->fault = fault;
    drop_link(sentinel);
    sentinel->at = (sentinel->at + 1) % sentinel->hosts.count;
}

static void fail_sentinel(struct dibs__sentinel *sentinel, enum dibs__sentinel_fault fault, int64_t now)
{
    if (sentinel->in_round)
        pass_over(sentinel, fault, now);
    else
        lose(sentinel, fault);
}

/* All questions were answered. */
static void take_answers(struct dibs__sentinel *sentinel, int64_t now)
{
    bool named = sentinel->host[0] != '\0';

    if (!named || (sentinel->in_round && sentinel->doubting && sentinel->tried < sentinel->hosts.count &&
                   dibs__endpoint_is_at(sentinel->master, sentinel->host, sentinel->port))) {
        fail_sentinel(sentinel, named ? DIBS__FAULT_NONE : DIBS__FAULT_UNKNOWN, now);
        return;
    }
    sentinel->state = DIBS__SENTINEL_LISTENS;
    if (sentinel->in_round || !dibs__endpoint_is_at(sentinel->master, sentinel->host, sentinel->port))
        dibs__endpoint_tell(sentinel->master, sentinel->host, sentinel->port);
    if (sentinel->in_round)
        end_round(sentinel, now);
    tell_threads(sentinel);
}

static void go_on_asking(struct dibs__sentinel *sentinel, int64_t now)
{
    struct dibs__error error = {DIBS_OK, ""};
    dibs_status status = dibs__sentinel_listen(sentinel, now, &error);

    if (status != DIBS_OK || (sentinel->next != DIBS__ASKS_NOTHING && now >= sentinel->until))
        fail_sentinel(sentinel, fault_of(sentinel, status, now), now);
    else if (sentinel->next == DIBS__ASKS_NOTHING)
        take_answers(sentinel, now);
}

static int64_t next_question(const struct dibs__sentinel *sentinel)
{
    if (sentinel->switched)
        return 0;
    return dibs__after_ms(sentinel->heard_at, sentinel->subscribed ? SILENCE_MS : UNSUBSCRIBED_MS);
}

static void go_on_listening(struct dibs__sentinel *sentinel, int64_t now)
{
    struct dibs__error error = {DIBS_OK, ""};
    dibs_status status = dibs__sentinel_listen(sentinel, now, &error);

    if (status != DIBS_OK) {
        lose(sentinel, fault_of(sentinel, status, now));
    } else if (is_doubted(sentinel) && now >= next_round(sentinel)) {
        begin_round(sentinel);
    } else if (now >= next_question(sentinel)) {
        sentinel->until = dibs__after_ms(now, share_of_time(sentinel));
        ask(sentinel, now);
    }
}

/* -------------------------------------------------------------------- driving */

/* False: nothing more can be done now. */
static bool step_once(struct dibs__sentinel *sentinel, int64_t now)
{
    enum dibs__sentinel_state state = sentinel->state;
    size_t at = sentinel->at;

    switch (state) {
    case DIBS__SENTINEL_PAUSES:
        if (!sentinel->in_round && now >= next_round(sentinel))
            begin_round(sentinel);
        if (sentinel->in_round)
            connect_to(sentinel, now);
        break;
    case DIBS__SENTINEL_CONNECTS:
        go_on_connecting(sentinel, now);
        break;
    case DIBS__SENTINEL_ASKS:
        go_on_asking(sentinel, now);
        break;
    case DIBS__SENTINEL_LISTENS:
        go_on_listening(sentinel, now);
        break;
    }
    return state != sentinel->state || at != sentinel->at;
}

void dibs__sentinel_step(struct dibs__sentinel *sentinel, int64_t now)
{
    while (step_once(sentinel, now))
        continue;
}

static void sooner(int64_t *deadline, int64_t until)
{
    *deadline = until < *deadline ? until : *deadline;
}

void dibs__sentinel_poll(struct dibs__sentinel *sentinel, struct pollfd *fd, int64_t *deadline)
{
    *fd = (struct pollfd){.fd = -1};
    *deadline = DIBS__NEVER;
    switch (sentinel->state) {
    case DIBS__SENTINEL_PAUSES:
        *deadline = sentinel->in_round ? 0 : next_round(sentinel);
        break;
    case DIBS__SENTINEL_CONNECTS:
        dibs__connector_interest(&sentinel->connector, fd, deadline);
        break;
    case DIBS__SENTINEL_ASKS:
        *fd = dibs__link_interest(sentinel->link, deadline);
        sooner(deadline, sentinel->until);
        break;
    case DIBS__SENTINEL_LISTENS:
        *fd = dibs__link_interest(sentinel->link, deadline);
        sooner(deadline, next_question(sentinel));
        if (is_doubted(sentinel))
            sooner(deadline, next_round(sentinel));
        break;
    }
}
