/* Which sentinel is asked when, which master the answers name together, and what follows. */
#include <string.h>

#include "redis/sentinel_parts.h"

#define PAUSE_LAST_MS 1000
#define SILENCE_MS 5000      /* sentinels that tell of no switch are asked again after this time; */
#define UNSUBSCRIBED_MS 1000 /* after this time if one does not let us subscribe */

static uint64_t told(const struct dibs__sentinel *sentinel)
{
    return atomic_load(&sentinel->master->told);
}

static bool is_doubted(const struct dibs__sentinel *sentinel)
{
    return told(sentinel) > 0 && atomic_load(&sentinel->master->doubted) == told(sentinel);
}

/* True: what was told last has led to a link. */
static bool is_proved(const struct dibs__sentinel *sentinel)
{
    return told(sentinel) > 0 && atomic_load(&sentinel->master->proved) >= told(sentinel);
}

static bool is_known(const struct dibs__sentinel *sentinel)
{
    return atomic_load(&sentinel->master->known) == DIBS__KNOWN;
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
    atomic_fetch_add(&sentinel->failures, 1);
}

/* When a round may begin. If the last one led to a link that was ready, pauses that have grown do not count. */
static int64_t next_round(const struct dibs__sentinel *sentinel)
{
    int64_t soon = dibs__after_ms(sentinel->ended_at, DIBS__SENTINEL_PAUSE_MS);

    return is_proved(sentinel) && soon < sentinel->next_at ? soon : sentinel->next_at;
}

static bool has_switched(const struct dibs__sentinel *sentinel)
{
    for (size_t i = 0; i < sentinel->hosts.count; i++)
        if (sentinel->hosts.hosts[i]->switched)
            return true;
    return false;
}

static bool all_tell_of_switches(const struct dibs__sentinel *sentinel)
{
    for (size_t i = 0; i < sentinel->hosts.count; i++)
        if (sentinel->hosts.hosts[i]->answered && !sentinel->hosts.hosts[i]->subscribed)
            return false;
    return true;
}

/* When the next round is due, if none is going on. */
static int64_t due_at(const struct dibs__sentinel *sentinel)
{
    int64_t quiet = dibs__after_ms(sentinel->began_at, all_tell_of_switches(sentinel) ? SILENCE_MS : UNSUBSCRIBED_MS);

    if (sentinel->round == 0 || has_switched(sentinel))
        return 0;
    if (!is_known(sentinel) || is_doubted(sentinel) || sentinel->lost)
        return next_round(sentinel) < quiet ? next_round(sentinel) : quiet;
    return quiet;
}

static void begin_round(struct dibs__sentinel *sentinel, int64_t now)
{
    if (next_round(sentinel) != sentinel->next_at)
        dibs__backoff_reset(&sentinel->pauses);
    if (sentinel->sure)
        dibs__sentinel_hosts_forget(&sentinel->hosts, sentinel->round);
    sentinel->round++;
    sentinel->in_round = true;
    sentinel->doubting = is_doubted(sentinel);
    sentinel->lost = sentinel->sure = false;
    sentinel->began_at = now;
    dibs__sentinel_hosts_begin(&sentinel->hosts); /* every sentinel is asked now, so what it told before is no news */
}

/* ------------------------------------------------------------- one sentinel */

static enum dibs__sentinel_fault fault_of(const struct dibs__sentinel_host *host, dibs_status status, int64_t now)
{
    switch (status) {
    case DIBS_DENIED:
        return DIBS__FAULT_DENIED;
    case DIBS_STORE_ERROR:
        return DIBS__FAULT_NO_SENTINEL;
    case DIBS_NO_MEMORY:
        return DIBS__FAULT_NO_MEMORY;
    default:
        return now >= host->until ? DIBS__FAULT_SILENT : DIBS__FAULT_UNREACHED;
    }
}

static void fail(struct dibs__sentinel *sentinel, struct dibs__sentinel_host *host, dibs_status status, int64_t now)
{
    host->fault = fault_of(host, status, now);
    sentinel->lost = sentinel->lost || host->state == DIBS__SENTINEL_LISTENS;
    sentinel->news = true;
    dibs__sentinel_host_drop(host);
}

static void connect_to(struct dibs__sentinel *sentinel, struct dibs__sentinel_host *host, int64_t now)
{
    struct dibs__error error;

    dibs__connector_init(&host->connector, &host->endpoint, DIBS__LINK_SENTINEL);
    host->tried = sentinel->round;
    host->until = dibs__after_ms(now, host->endpoint.connect_timeout_ms);
    host->state = DIBS__SENTINEL_CONNECTS;
    dibs_status status = dibs__connector_begin(&host->connector, now, &error);
    if (status != DIBS_OK)
        fail(sentinel, host, status, now);
}

static void ask(struct dibs__sentinel *sentinel, struct dibs__sentinel_host *host, int64_t now)
{
    struct dibs__error error;

    if (host->state == DIBS__SENTINEL_LISTENS)
        host->until = dibs__after_ms(now, host->endpoint.connect_timeout_ms);
    host->tried = host->asked = sentinel->round;
    host->state = DIBS__SENTINEL_ASKS;
    dibs_status status = dibs__sentinel_ask(sentinel, host, &error);
    if (status != DIBS_OK)
        fail(sentinel, host, status, now);
}

static void go_on_connecting(struct dibs__sentinel *sentinel, struct dibs__sentinel_host *host, int64_t now)
{
    struct dibs__error error;
    dibs_status status = dibs__connector_step(&host->connector, now, &error);

    host->link = dibs__connector_take(&host->connector);
    if (status != DIBS_OK)
        fail(sentinel, host, status, now);
    else if (host->link)
        ask(sentinel, host, now);
}

/*
 * Called when all questions were answered. Answers to questions that were asked before this round do not count in it:
 * the sentinel is asked again.
 */
static void take_answers(struct dibs__sentinel *sentinel, struct dibs__sentinel_host *host)
{
    host->state = DIBS__SENTINEL_LISTENS;
    host->fault = host->master[0] ? DIBS__FAULT_NONE : DIBS__FAULT_UNKNOWN;
    host->named = host->asked;
    host->answered = host->asked == sentinel->round;
    sentinel->news = true;
}

static void go_on_listening(struct dibs__sentinel *sentinel, struct dibs__sentinel_host *host, int64_t now)
{
    struct dibs__error error = {DIBS_OK, ""};
    dibs_status status = dibs__sentinel_listen(sentinel, host, &error);
    bool asking = host->state == DIBS__SENTINEL_ASKS;

    if (status != DIBS_OK || (asking && host->next != DIBS__ASKS_NOTHING && now >= host->until))
        fail(sentinel, host, status, now);
    else if (asking && host->next == DIBS__ASKS_NOTHING)
        take_answers(sentinel, host);
    else if (!asking && host->asked != sentinel->round)
        ask(sentinel, host, now);
}

/* True: the sentinel was not tried in this round, or its answer may still come. */
static bool is_awaited(const struct dibs__sentinel *sentinel, const struct dibs__sentinel_host *host)
{
    return host->state == DIBS__SENTINEL_CONNECTS || host->state == DIBS__SENTINEL_ASKS ||
           (host->tried != sentinel->round && sentinel->in_round);
}

/* False: nothing more can be done now. */
static bool step_host(struct dibs__sentinel *sentinel, struct dibs__sentinel_host *host, int64_t now)
{
    enum dibs__sentinel_state state = host->state;

    switch (state) {
    case DIBS__SENTINEL_PAUSES:
        if (is_awaited(sentinel, host))
            connect_to(sentinel, host, now);
        break;
    case DIBS__SENTINEL_CONNECTS:
        go_on_connecting(sentinel, host, now);
        break;
    case DIBS__SENTINEL_ASKS:
    case DIBS__SENTINEL_LISTENS:
        go_on_listening(sentinel, host, now);
        break;
    }
    return state != host->state;
}

/* ------------------------------------------------------------- what they say */

static bool is_round_over(const struct dibs__sentinel *sentinel)
{
    for (size_t i = 0; i < sentinel->hosts.count; i++)
        if (is_awaited(sentinel, sentinel->hosts.hosts[i]))
            return false;
    return true;
}

static bool is_present(const struct dibs__sentinel *sentinel, const struct dibs__sentinel_host *host)
{
    return dibs__endpoint_is_at(sentinel->master, host->master, host->port);
}

/*
 * Whether the master stays the one that was told before. A minority may consist of sentinels that were left behind. So
 * it is not believed while that master serves, which has another try after a doubt; nor if its epoch is smaller.
 */
static bool stays(const struct dibs__sentinel *sentinel, const struct dibs__sentinel_vote *vote)
{
    if (is_present(sentinel, vote->best))
        return true;
    if (vote->sure || told(sentinel) == 0)
        return false;
    return !is_doubted(sentinel) || is_proved(sentinel) || (vote->epoch >= 0 && vote->epoch < sentinel->epoch);
}

static void believe(struct dibs__sentinel *sentinel, const struct dibs__sentinel_vote *vote)
{
    bool stayed = stays(sentinel, vote);
    bool tells_epoch = vote->epoch > sentinel->epoch || (vote->sure && vote->epoch >= 0);

    if (!stayed || (tells_epoch && is_present(sentinel, vote->best))) /* a minority may know an older epoch */
        sentinel->epoch = vote->epoch;
    if (!stayed)
        dibs__endpoint_tell(sentinel->master, vote->best->master, vote->best->port);
    else if (!is_known(sentinel) || (sentinel->in_round && sentinel->doubting))
        dibs__endpoint_tell(sentinel->master, NULL, 0);
}

/* Also called after the end of a round: a sentinel that answers late may know better than the quicker majority. */
static void decide(struct dibs__sentinel *sentinel, int64_t now)
{
    struct dibs__sentinel_vote vote = dibs__sentinel_count(sentinel);
    bool waits_for_all = !vote.sure || (sentinel->doubting && is_present(sentinel, vote.best));

    sentinel->news = false;
    if (sentinel->in_round ? waits_for_all && !is_round_over(sentinel) : !vote.sure)
        return;
    sentinel->sure = vote.sure;
    if (!vote.best) {
        fail_round(sentinel, now);
        return;
    }
    believe(sentinel, &vote);
    if (sentinel->in_round)
        end_round(sentinel, now);
}

/* -------------------------------------------------------------------- driving */

void dibs__sentinel_step(struct dibs__sentinel *sentinel, int64_t now)
{
    bool moved;

    do {
        moved = !sentinel->in_round && now >= due_at(sentinel);
        if (moved)
            begin_round(sentinel, now);
        for (size_t i = 0; i < sentinel->hosts.count; i++)
            moved = step_host(sentinel, sentinel->hosts.hosts[i], now) || moved;
        if (sentinel->news)
            decide(sentinel, now);
    } while (moved);
}

size_t dibs__sentinel_poll(struct dibs__sentinel *sentinel, struct pollfd *fds, int64_t *deadline)
{
    size_t count = 0;

    if (!sentinel->in_round)
        *deadline = dibs__earlier(*deadline, due_at(sentinel));
    for (size_t i = 0; i < sentinel->hosts.count; i++) {
        struct dibs__sentinel_host *host = sentinel->hosts.hosts[i];
        if (host->state == DIBS__SENTINEL_CONNECTS)
            fds[count++] = dibs__connector_interest(&host->connector, true, deadline);
        else if (host->state != DIBS__SENTINEL_PAUSES)
            fds[count++] = dibs__link_interest(host->link, deadline);
        if (host->state == DIBS__SENTINEL_ASKS)
            *deadline = dibs__earlier(*deadline, host->until);
    }
    return count;
}
