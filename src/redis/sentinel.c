#include "redis/sentinel_parts.h"

#include <stdlib.h>
#include <string.h>

#include "redis/inquiry.h"
#include "redis/reply.h"

/* ----------------------------------------------------------- the driving role */

static void leave_driving(struct dibs__sentinel *sentinel) DIBS__REQUIRES(dibs__endpoint_mutex)
{
    sentinel->driven = false;
    pthread_cond_broadcast(&sentinel->changed);
}

/* Takes the driving role once nobody has it. False: another thread had it until the deadline. */
static bool take_role(struct dibs__sentinel *sentinel, int64_t deadline)
{
    dibs__endpoint_mutex_lock(&sentinel->master->mutex);
    while (sentinel->driven && dibs__now(sentinel->master->clock) < deadline)
        sentinel->master->clock->wait(sentinel->master->clock, &sentinel->changed, &sentinel->master->mutex, deadline);
    bool taken = !sentinel->driven;
    sentinel->driven = true;
    dibs__endpoint_mutex_unlock(&sentinel->master->mutex);
    return taken;
}

size_t dibs__sentinel_fd_max(const struct dibs__sentinel *sentinel)
{
    return sentinel->hosts.room;
}

size_t dibs__sentinel_interest(struct dibs__sentinel *sentinel, struct pollfd *fds, int64_t *deadline)
{
    size_t count = 0;

    dibs__endpoint_mutex_lock(&sentinel->master->mutex);
    if (!sentinel->driven)
        count = dibs__sentinel_poll(sentinel, fds, deadline);
    dibs__endpoint_mutex_unlock(&sentinel->master->mutex);
    return count;
}

void dibs__sentinel_attend(struct dibs__sentinel *sentinel, int64_t now)
{
    if (!take_role(sentinel, 0))
        return;
    dibs__sentinel_step(sentinel, now);
    dibs__endpoint_mutex_lock(&sentinel->master->mutex);
    leave_driving(sentinel);
    dibs__endpoint_mutex_unlock(&sentinel->master->mutex);
}

/* ---------------------------------------------------------- waiting for the master */

static bool is_told(const struct dibs__sentinel *sentinel, uint64_t after)
{
    return atomic_load(&sentinel->master->known) == DIBS__KNOWN && atomic_load(&sentinel->master->told) > after;
}

/* Sleeps until something can be done or the deadline has passed, and makes one step. Unlocks the mutex meanwhile. */
static void drive(struct dibs__sentinel *sentinel, int64_t deadline) DIBS__REQUIRES(dibs__endpoint_mutex)
{
    const struct dibs__clock *clock = sentinel->master->clock;
    int64_t until = deadline;

    DIBS__REQUIRE(!sentinel->driven);
    sentinel->driven = true;
    dibs__endpoint_mutex_unlock(&sentinel->master->mutex);
    size_t count = dibs__sentinel_poll(sentinel, sentinel->fds, &until);
    clock->poll(clock, sentinel->fds, count, until);
    dibs__sentinel_step(sentinel, dibs__now(clock));
    dibs__endpoint_mutex_lock(&sentinel->master->mutex);
    leave_driving(sentinel);
}

/* Unlocks the mutex while it drives or sleeps. */
static dibs_status wait_for_news(struct dibs__sentinel *sentinel, uint64_t after, int64_t deadline,
                                 struct dibs__error *error) DIBS__REQUIRES(dibs__endpoint_mutex)
{
    unsigned failures = atomic_load(&sentinel->failures);
    bool driven = false;

    while (!is_told(sentinel, after)) {
        if (atomic_load(&sentinel->failures) != failures) {
            *error = sentinel->master->find_error;
            return error->status;
        }
        if ((driven || sentinel->driven) && dibs__now(sentinel->master->clock) >= deadline)
            return dibs__error_set(error, DIBS_TIMEOUT, "%s was not named in time", sentinel->master->url.shown);
        driven = driven || !sentinel->driven;
        if (sentinel->driven)
            sentinel->master->clock->wait(sentinel->master->clock, &sentinel->changed, &sentinel->master->mutex,
                                          deadline);
        else
            drive(sentinel, deadline);
    }
    return DIBS_OK;
}

static dibs_status await_master(void *context, uint64_t after, int64_t deadline, struct dibs__error *error)
{
    struct dibs__sentinel *sentinel = context;

    if (is_told(sentinel, after))
        return DIBS_OK;
    dibs__endpoint_mutex_lock(&sentinel->master->mutex);
    dibs_status status = wait_for_news(sentinel, after, deadline, error);
    dibs__endpoint_mutex_unlock(&sentinel->master->mutex);
    sentinel->wake(sentinel->context);
    return status;
}

static void doubt_master(void *context)
{
    struct dibs__sentinel *sentinel = context;

    sentinel->wake(sentinel->context);
}

/* ------------------------------------------------------- what each of them says */

/* Fills in what the sentinel says: its master, its id, and whether there can be a failover. */
static dibs_status ask_one(struct dibs__sentinel_host *host, const char *name, int64_t until, struct dibs__error *error)
{
    const char *const asks_master[] = {"SENTINEL", "GET-MASTER-ADDR-BY-NAME", name, NULL},
                      *const asks_id[] = {"SENTINEL", "MYID", NULL},
                      *const asks_failover[] = {"SENTINEL", "CKQUORUM", name, NULL},
                      *const *const commands[] = {asks_master, asks_id, asks_failover};
    struct dibs__endpoint *endpoint = &host->endpoint;
    struct dibs__link *link = dibs__inquiry_open(endpoint, DIBS__LINK_SENTINEL, until, error);
    redisReply *replies[3];

    if (!link)
        return error->status;
    dibs_status status = dibs__inquiry_ask(link, commands, 3, replies, until, error);
    dibs__link_free(link);
    if (status != DIBS_OK)
        return status;
    status = dibs__sentinel_read_master(replies[0], endpoint->url.shown, host->master, &host->port, error);
    dibs__sentinel_take_id(host, replies[1]);
    host->no_failover = dibs__reply_is_error(replies[2], "NOQUORUM");
    dibs__inquiry_free(replies, 3);
    if (status == DIBS_OK && !host->master[0])
        status = dibs__error_set(error, DIBS_UNAVAILABLE, "%s does not know that name", endpoint->url.shown);
    return status;
}

/* Whether a sentinel before it on the list is the same one: that of the URL, as the others name it. */
static bool is_second_name(const struct dibs__sentinel_hosts *hosts, size_t at)
{
    const char *id = hosts->hosts[at]->id;

    for (size_t i = 0; i < at && id[0]; i++)
        if (strcmp(hosts->hosts[i]->id, id) == 0)
            return true;
    return false;
}

dibs_status dibs__sentinel_survey(struct dibs__sentinel *sentinel, int64_t deadline, dibs__sentinel_told_fn *told,
                                  void *context, struct dibs__error *error)
{
    const char *name = sentinel->master->url.master_name;
    struct dibs__sentinel_hosts hosts;

    if (!take_role(sentinel, deadline))
        return dibs__error_set(error, DIBS_UNAVAILABLE, "the sentinels are being asked by another thread");
    bool copied = dibs__sentinel_hosts_copy(&hosts, &sentinel->hosts, sentinel->master);
    dibs__endpoint_mutex_lock(&sentinel->master->mutex);
    leave_driving(sentinel);
    dibs__endpoint_mutex_unlock(&sentinel->master->mutex);
    sentinel->wake(sentinel->context);
    if (!copied)
        return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for the sentinels");
    for (size_t i = 0; i < hosts.count; i++) {
        struct dibs__sentinel_host *host = hosts.hosts[i];
        struct dibs__error why = {DIBS_OK, ""};
        int64_t now = dibs__now(sentinel->master->clock);
        ask_one(host, name, now + (deadline - now) / (int64_t)(hosts.count - i), &why);
        if (!is_second_name(&hosts, i))
            told(context, host->endpoint.url.shown, host->master, host->port, host->no_failover, &why);
    }
    dibs__sentinel_hosts_free(&hosts);
    return DIBS_OK;
}

/* ----------------------------------------------------------------- lifecycle */

struct dibs__sentinel *dibs__sentinel_new(struct dibs__endpoint *master, const char *user, const char *password,
                                          void (*wake)(void *context), void *context)
{
    struct dibs__sentinel *sentinel = calloc(1, sizeof *sentinel);

    if (!sentinel)
        return NULL;
    sentinel->master = master;
    sentinel->wake = wake;
    sentinel->context = context;
    sentinel->epoch = -1;
    sentinel->pauses.first_ms = DIBS__SENTINEL_PAUSE_MS;
    if (!dibs__sentinel_hosts_init(&sentinel->hosts, master, user, password) ||
        !(sentinel->fds = calloc(sentinel->hosts.room, sizeof *sentinel->fds)) ||
        dibs__cond_init(&sentinel->changed) != 0) {
        dibs__sentinel_hosts_free(&sentinel->hosts);
        free(sentinel->fds);
        free(sentinel);
        return NULL;
    }
    master->finder = (struct dibs__finder){sentinel, await_master, doubt_master};
    return sentinel;
}

void dibs__sentinel_free(struct dibs__sentinel *sentinel)
{
    if (!sentinel)
        return;
    dibs__sentinel_hosts_free(&sentinel->hosts);
    free(sentinel->fds);
    pthread_cond_destroy(&sentinel->changed);
    free(sentinel);
}
