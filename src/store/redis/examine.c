/* Finds out what endangers locks on one server. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "store/redis/examine_parts.h"

#define PINGS 9
#define SENTINELS_LEAST 3
#define CLOCK_MOST_US 1000000 /* the clocks may differ by this much */

bool dibs__examining_ask(struct dibs__examining *e, const char *const *const *commands, size_t count,
                         redisReply **replies)
{
    if (!e->examination->goes_on(e->examination->context) || e->examination->no_memory)
        return false;
    int64_t deadline = dibs__after_ms(dibs__now(e->store->config.clock), e->store->config.command_timeout_ms);
    if (dibs__inquiry_ask(e->link, commands, count, replies, deadline, e->error) == DIBS_OK)
        return true;
    if (e->error->status == DIBS_NO_MEMORY)
        e->examination->no_memory = true;
    else
        DIBS__SAY(e, "connection", DIBS_VERDICT_BAD,
                  "See whether the server, or a proxy in front of it, closes connections or is overloaded.",
                  "The connection broke during the examination: %s.", e->error->detail);
    return false;
}

/* ---------------------------------------------------------------- the connection */

/* Names the server in the findings: if it has to be found first, by its present address. */
static void name_server(struct dibs__examining *e)
{
    struct dibs__endpoint *endpoint = &e->store->endpoint;

    snprintf(e->server, sizeof e->server, "%s", endpoint->url.shown);
    if (!endpoint->finder.context || atomic_load(&endpoint->known) != DIBS__KNOWN)
        return;
    dibs__endpoint_mutex_lock(&endpoint->mutex);
    snprintf(e->server, sizeof e->server, strchr(endpoint->host, ':') ? "[%.240s]:%u" : "%.240s:%u", endpoint->host,
             endpoint->port);
    dibs__endpoint_mutex_unlock(&endpoint->mutex);
}

static bool connect_to(struct dibs__examining *e)
{
    struct dibs__redis_store *store = e->store;
    int64_t deadline = dibs__after_ms(dibs__now(store->config.clock), store->config.connect_timeout_ms);

    e->link = dibs__inquiry_open(&store->endpoint, DIBS__LINK_COMMANDS, deadline, e->error);
    name_server(e);
    if (e->link) {
        DIBS__SAY(e, "connection", DIBS_VERDICT_OK, "", "The server answers.");
        return true;
    }
    if (e->error->status == DIBS_NO_MEMORY)
        e->examination->no_memory = true;
    else
        DIBS__SAY(e, "connection", DIBS_VERDICT_BAD,
                  e->error->status == DIBS_DENIED
                      ? "Correct the user, the password or the certificates."
                      : "Start the server, or correct its URL; see whether a firewall is in between.",
                  "No new connection can be made: %s.", e->error->detail);
    return false;
}

/* --------------------------------------------------------- the round trip, the clock */

static int compare_times(const void *one, const void *other)
{
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;

    return a < b ? -1 : a > b;
}

static bool measure_round_trip(struct dibs__examining *e)
{
    static const char *const words[] = {"PING", NULL}, *const *const ping = words;
    int64_t took[PINGS];

    for (size_t i = 0; i < PINGS; i++) {
        redisReply *reply;
        int64_t begun = dibs__now(e->store->config.clock);
        if (!dibs__examining_ask(e, &ping, 1, &reply))
            return false;
        took[i] = dibs__now(e->store->config.clock) - begun;
        freeReplyObject(reply);
    }
    qsort(took, PINGS, sizeof took[0], compare_times);
    e->round_trip_ns = took[PINGS / 2];
    return true;
}

static void tell_round_trip(struct dibs__examining *e)
{
    const struct dibs__store_config *config = &e->store->config;
    double ms = (double)e->round_trip_ns / 1e6;
    bool near_timeout = ms * 10 > config->command_timeout_ms,
         near_lease = config->lease_ms && ms * 30 > config->lease_ms;
    bool too_long = ms * 2 > config->command_timeout_ms || (config->lease_ms && ms * 6 > config->lease_ms);

    if (!near_timeout && !near_lease) {
        DIBS__SAY(e, "round trip", DIBS_VERDICT_OK, "", "A round trip takes %.3f ms.", ms);
        return;
    }
    DIBS__SAY(e, "round trip", too_long ? DIBS_VERDICT_BAD : DIBS_VERDICT_WARN,
              near_lease ? "Use longer leases, or a server nearby."
                         : "Set command_timeout_ms to at least ten round trips, or use a server nearby.",
              "A round trip takes %.3f ms, which is long beside %s (%" PRIu32 " ms): %s.", ms,
              near_lease ? "a lease" : "command_timeout_ms", near_lease ? config->lease_ms : config->command_timeout_ms,
              near_lease ? "a lease may end before its renewal arrives" : "calls may time out");
}

static int64_t wall_clock_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static int64_t number_at(const redisReply *reply, size_t i)
{
    const redisReply *element = reply->type == REDIS_REPLY_ARRAY && i < reply->elements ? reply->element[i] : NULL;

    return element && element->type == REDIS_REPLY_STRING ? strtoll(element->str, NULL, 10) : 0;
}

/* Half of the round trip counts as the way to the server. */
static bool examine_clock(struct dibs__examining *e)
{
    static const char *const words[] = {"TIME", NULL}, *const *const command = words;
    redisReply *reply;
    int64_t before = wall_clock_us();

    if (!dibs__examining_ask(e, &command, 1, &reply))
        return false;
    int64_t after = wall_clock_us(), us = number_at(reply, 0) * 1000000 + number_at(reply, 1);
    freeReplyObject(reply);
    if (us <= 0) {
        DIBS__SAY(e, "clock", DIBS_VERDICT_WARN, "Give the account the right to TIME.",
                  "The server does not tell its time.");
        return true;
    }
    e->examination->clock_known = true;
    e->examination->ahead_us = us - before - (after - before) / 2;
    double ahead_s = (double)e->examination->ahead_us / 1e6;
    if (llabs(e->examination->ahead_us) <= CLOCK_MOST_US + (after - before) / 2)
        DIBS__SAY(e, "clock", DIBS_VERDICT_OK, "", "Its clock is that of this host, but for %.3f s.",
                  ahead_s < 0 ? -ahead_s : ahead_s);
    else
        DIBS__SAY(e, "clock", DIBS_VERDICT_WARN,
                  "Have both clocks kept by NTP, and set right in small steps (chrony does so).",
                  "Its clock is %.3f s %s this host's. dibs does not compare the two, but one of them is wrong: "
                  "when the server's is set forward, leases end early, and when it is set back, fences may fall.",
                  ahead_s < 0 ? -ahead_s : ahead_s, ahead_s < 0 ? "behind" : "ahead of");
    return true;
}

/* ---------------------------------------------------------------------- tracking */

static void tell_tracking(struct dibs__examining *e)
{
    static const char learned[] = "a lost lock is noticed at its next renewal only, and who waits for a lock of a "
                                  "client without dibs asks every 50 to 100 ms";
    const struct dibs__tracking *tracking = &e->store->tracking;

    if (atomic_load(&tracking->on) != 0)
        DIBS__SAY(e, "tracking", DIBS_VERDICT_OK, "", "The server tells at once of locks that change.");
    else if (!e->link->view.tracks_keys)
        DIBS__SAY(e, "tracking", DIBS_VERDICT_WARN, "Use Redis 7.0.5 or later, and give the account +info.",
                  "The server does not tell of locks that change, as far as its version is known: %s.", learned);
    else if (!e->hears_changes)
        DIBS__SAY(e, "tracking", DIBS_VERDICT_WARN, "Give the account the rights that are missing.",
                  "The server does not tell this account of locks that change: %s.", learned);
    else if (atomic_load(&tracking->wanted))
        DIBS__SAY(e, "tracking", DIBS_VERDICT_WARN,
                  "See whether a proxy in front of the server passes on what the server says by itself.",
                  "The server was asked to tell of locks that change, and has not shown yet that it does: %s.",
                  learned);
    else
        DIBS__SAY(e, "tracking", DIBS_VERDICT_OK, "",
                  "The server can tell at once of locks that change. It is asked to once a lock is held or "
                  "waited for so long that this is needed.");
}

/* --------------------------------------------------------------------- sentinels */

/* What the sentinels say: whether there are enough of them, and whether they agree. */
struct survey {
    struct dibs__examining *e;
    unsigned known, agreeing;
    unsigned hopeless; /* number of those that say that there can be no failover */
};

static void told(void *context, const char *sentinel, const char *host, unsigned port, bool no_failover,
                 const struct dibs__error *error)
{
    struct survey *survey = context;
    struct dibs__examining *e = survey->e;

    survey->known++;
    survey->hopeless += no_failover;
    if (error->status == DIBS_NO_MEMORY)
        e->examination->no_memory = true;
    else if (error->status != DIBS_OK)
        DIBS__SAY(e, "sentinels", DIBS_VERDICT_WARN, "Start the sentinel, or correct its credentials.",
                  "A sentinel names no master: %s.", error->detail);
    else if (dibs__endpoint_is_at(&e->store->endpoint, host, port))
        survey->agreeing++;
    else
        DIBS__SAY(e, "sentinels", DIBS_VERDICT_WARN,
                  "Wait until a failover is over; if it stays so, see what SENTINEL MASTERS says there.",
                  "The sentinel %s names another master, %s:%u, than the one that is used.", sentinel, host, port);
}

void dibs__examine_sentinels(struct dibs__examining *e)
{
    struct dibs__redis_store *store = e->store;
    int64_t deadline = dibs__after_ms(dibs__now(store->config.clock), store->config.connect_timeout_ms);
    struct survey survey = {.e = e};

    snprintf(e->server, sizeof e->server, "%s", store->endpoint.url.shown);
    dibs_status status = dibs__sentinel_survey(store->sentinel, deadline, told, &survey, e->error);
    if (status == DIBS_NO_MEMORY)
        e->examination->no_memory = true;
    else if (status != DIBS_OK)
        DIBS__SAY(e, "sentinels", DIBS_VERDICT_WARN, "Start sentinels that answer.",
                  "The sentinels could not be asked: %s.", e->error->detail);
    else if (survey.known < SENTINELS_LEAST)
        DIBS__SAY(e, "sentinels", DIBS_VERDICT_WARN, "Run at least three sentinels, on different hosts.",
                  "There %s %u sentinel%s: when the host of one fails, the others are no majority, and there "
                  "is no failover.",
                  survey.known == 1 ? "is" : "are", survey.known, survey.known == 1 ? "" : "s");
    else if (survey.agreeing == survey.known)
        DIBS__SAY(e, "sentinels", DIBS_VERDICT_OK, "", "There are %u sentinels, and all name that master.",
                  survey.known);
    if (survey.hopeless > 0)
        DIBS__SAY(
            e, "sentinels", DIBS_VERDICT_WARN,
            "Start the sentinels that are missing, or have the others forget them (SENTINEL RESET), or lower the "
            "quorum; SENTINEL CKQUORUM tells which it is.",
            "There can be no failover, as %u of %u sentinels see it: too few of them are up for a majority, or for "
            "the quorum that is set.",
            survey.hopeless, survey.known);
}

/* ---------------------------------------------------------------------- the order */

static void examine_all(struct dibs__examining *e)
{
    if (!dibs__examine_info(e) || !examine_clock(e) || !measure_round_trip(e) || !dibs__examine_rights(e))
        return;
    tell_tracking(e);
    tell_round_trip(e);
}

dibs_status dibs__redis_examine(struct dibs__store *base, struct dibs__examination *examination,
                                struct dibs__error *error)
{
    struct dibs__error why = {DIBS_OK, ""};
    struct dibs__examining e = {.store = dibs__redis_of(base), .examination = examination, .error = &why};

    examination->server = 0;
    examination->reached = examination->clock_known = false;
    if (connect_to(&e)) {
        examination->reached = true;
        examination->server = e.link->view.server;
        examine_all(&e);
    }
    dibs__link_free(e.link);
    if (e.store->sentinel && !examination->no_memory && examination->goes_on(examination->context))
        dibs__examine_sentinels(&e);
    if (!examination->goes_on(examination->context))
        return dibs__error_set(error, DIBS_CLOSED, "the runtime is closing");
    return DIBS_OK;
}
