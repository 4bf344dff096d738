/* The link of a channel: what is known of it, how the next one is made, and what the scheduler does for both. */
#include "redis/channel_parts.h"

#define SPARE_LAST_MS 5000 /* longest pause between tries for a link that need not always exist */

/* ------------------------------------------------------------ what is known */

unsigned dibs__channel_load(struct dibs__channel *channel)
{
    return atomic_load_explicit(&channel->in_flight, memory_order_relaxed);
}

bool dibs__channel_is_connected(struct dibs__channel *channel)
{
    return atomic_load_explicit(&channel->standing, memory_order_relaxed) != 0;
}

uint64_t dibs__channel_serial(struct dibs__channel *channel)
{
    return atomic_load(&channel->standing); /* in one order with what the owner notes of the connection */
}

bool dibs__channel_is_waited_for(struct dibs__channel *channel)
{
    return dibs__channel_load(channel) > atomic_load_explicit(&channel->unattended, memory_order_relaxed);
}

/* If a thread has a role, that thread will notice the end of the link. */
bool dibs__channel_look(struct dibs__channel *channel)
{
    struct dibs__error error;

    channel_mutex_lock(&channel->mutex);
    if (dibs__channel_has_link(channel) && !channel->reading && !channel->writing &&
        dibs__link_look(channel->link) == DIBS__SIGHT_END) {
        dibs__error_set(&error, DIBS_UNAVAILABLE, "the connection to %s broke: the server closed it",
                        channel->endpoint->url.shown);
        dibs__channel_break(channel, &error);
    }
    bool connected = dibs__channel_has_link(channel);
    dibs__channel_unlock(channel);
    return connected;
}

bool dibs__channel_view(struct dibs__channel *channel, struct dibs__link_view *view)
{
    channel_mutex_lock(&channel->mutex);
    bool connected = dibs__channel_has_link(channel);
    if (connected)
        *view = channel->link->view;
    channel_mutex_unlock(&channel->mutex);
    return connected;
}

bool dibs__channel_distrust(struct dibs__channel *channel, uint64_t serial)
{
    channel_mutex_lock(&channel->mutex);
    bool stands = serial != 0 && atomic_load(&channel->standing) == serial;
    if (stands) {
        atomic_store(&channel->standing, 0);
        channel->tells = true;
    }
    dibs__channel_unlock(channel);
    return stands;
}

void dibs__channel_want(struct dibs__channel *channel)
{
    if (!dibs__channel_is_connected(channel) && !atomic_exchange(&channel->connector.wanted, true))
        channel->hooks.unattended(channel->hooks.context);
}

void dibs__channel_set_clock(struct dibs__channel *channel, uint64_t serial, int64_t least_us, int64_t most_us)
{
    channel_mutex_lock(&channel->mutex);
    if (channel->link && channel->serial == serial) {
        int64_t *ahead_us = &channel->link->view.server_ahead_us;
        *ahead_us = *ahead_us < most_us ? *ahead_us : most_us;
        *ahead_us = *ahead_us > least_us ? *ahead_us : least_us;
    }
    channel_mutex_unlock(&channel->mutex);
}

/* --------------------------------------------------------- the next link: tries */

static uint64_t replies_received(const struct dibs__channel *channel)
{
    return atomic_load_explicit(&channel->endpoint->received, memory_order_relaxed);
}

/* Takes the opening role and records what a try begins with. */
static void take_opening(struct dibs__channel *channel, enum dibs__opener opener) DIBS__REQUIRES(channel_mutex)
{
    DIBS__REQUIRE(!channel->link && channel->opener == DIBS__OPENER_NOBODY);
    channel->opener = opener;
    channel->received_before = replies_received(channel);
}

/* Ends the opening role: a link is ready, or the try failed with the error. Unlocks the mutex to tell the owner. */
static void end_try(struct dibs__channel *channel, const struct dibs__error *error) DIBS__REQUIRES(channel_mutex)
{
    struct dibs__link *link = dibs__connector_take(&channel->connector);
    bool silent = replies_received(channel) == channel->received_before;

    DIBS__REQUIRE(!channel->link && channel->opener != DIBS__OPENER_NOBODY);
    channel->opener = DIBS__OPENER_NOBODY;
    channel->tries++;
    atomic_store(&channel->connector.wanted, false);
    atomic_store(&channel->connector.needed, false);
    if (link) {
        if (channel->serial > 0 && !link->ended_before)
            channel->unended = channel->serial;
        channel->link = link;
        link->view.serial = ++channel->serial;
        link->view.unended = channel->unended;
        atomic_store(&channel->standing, channel->serial);
        channel->open_error.status = DIBS_OK;
    } else {
        channel->open_error = *error;
        if (channel->hooks.pushed) /* its calls wait for the pauses between tries */
            channel->connector.soonest_at = channel->connector.next_at;
    }
    pthread_cond_broadcast(&channel->changed);
    for (struct dibs__wait *wait = channel->waits; wait; wait = wait->links.next)
        dibs__wait_event_wake(wait->wait_event);
    uint64_t serial = channel->serial;
    if (link && channel->hooks.pushed) /* messages may have come behind the last answer to the greeting */
        dibs__channel_read(channel, NULL, 0);
    channel_mutex_unlock(&channel->mutex);
    if (link)
        channel->hooks.opened(channel->hooks.context, serial);
    else
        channel->hooks.failed(channel->hooks.context, error, silent);
    channel_mutex_lock(&channel->mutex);
}

/* ----------------------------------------------------------------- a thread */

/*
 * Called when the time of the thread that has the opening role is over, or no thread takes the role, while the try
 * still has time: the scheduler goes on with it.
 */
static void leave_to_scheduler(struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex)
{
    DIBS__REQUIRE(channel->opener >= DIBS__OPENER_NEXT);
    channel->opener = DIBS__OPENER_SCHEDULER;
    channel->tells = true;
}

/*
 * Called by the thread that has the opening role: leaves the role without a try, while the server is being found. want:
 * the scheduler makes a try once the server is found.
 */
static void leave_untried(struct dibs__channel *channel, bool want) DIBS__REQUIRES(channel_mutex)
{
    DIBS__REQUIRE(channel->opener == DIBS__OPENER_THREAD && !channel->connector.link);
    channel->opener = DIBS__OPENER_NOBODY;
    atomic_store(&channel->connector.wanted, want);
    channel->tells = true;
    pthread_cond_broadcast(&channel->changed);
}

/* Begins a try, as far as that goes without blocking. until: when the try is given up, if not before. */
static dibs_status begin_link(struct dibs__channel *channel, int64_t until, struct dibs__error *error)
    DIBS__EXCLUDES(channel_mutex)
{
    struct dibs__connector *connector = &channel->connector;
    int64_t now = dibs__now(channel->endpoint->clock);

    if (dibs__connector_begin(connector, now, error) != DIBS_OK)
        return error->status;
    connector->until = until < connector->until ? until : connector->until;
    return dibs__connector_step(connector, now, error);
}

/*
 * If a finder must find the server, only the finding is begun, because a try might lead to a useless server, and have
 * to be repeated.
 */
dibs_status dibs__channel_open_begin(struct dibs__channel *channel, struct dibs__error *error)
{
    bool found = channel->endpoint->finder.context != NULL;

    channel_mutex_lock(&channel->mutex);
    take_opening(channel, DIBS__OPENER_THREAD);
    channel_mutex_unlock(&channel->mutex);
    dibs_status named = dibs__endpoint_await(channel->endpoint, 0, 0, error);
    dibs_status status = named == DIBS_TIMEOUT ? DIBS_OK : named;
    if (status == DIBS_OK && !found)
        status = begin_link(channel, DIBS__NEVER, error);
    channel_mutex_lock(&channel->mutex);
    if (status != DIBS_OK)
        end_try(channel, error);
    else if (found)
        leave_untried(channel, false);
    else
        channel->opener = DIBS__OPENER_NEXT;
    dibs__channel_unlock(channel);
    return status;
}

/*
 * Tries until a link is ready, or the server that is named is still the one that was tried. All of this, including
 * finding the server, may take as long as one try. Requires the opening role; a try may be going on already.
 */
static dibs_status try_to_open(struct dibs__channel *channel, int64_t deadline, struct dibs__error *error)
    DIBS__EXCLUDES(channel_mutex)
{
    struct dibs__connector *connector = &channel->connector;
    int64_t until = dibs__after_ms(dibs__now(channel->endpoint->clock), channel->endpoint->connect_timeout_ms);
    int64_t wait_until = until < deadline ? until : deadline;
    dibs_status named, status;

    do {
        bool begun = connector->link != NULL;
        status = named = begun ? DIBS_OK : dibs__endpoint_await(channel->endpoint, 0, wait_until, error);
        if (named == DIBS_OK && !begun)
            status = begin_link(channel, until, error);
        if (status == DIBS_OK)
            status = dibs__connector_finish(connector, deadline, error);
    } while (named == DIBS_OK && dibs__connector_is_led_elsewhere(connector, status, wait_until));
    if (named == DIBS_TIMEOUT && until <= deadline)
        status = error->status = DIBS_UNAVAILABLE;
    return status;
}

/* Makes a try, or goes on with the one that was begun. Unlocks the mutex while it connects. */
static void open_link(struct dibs__channel *channel, int64_t deadline) DIBS__REQUIRES(channel_mutex)
{
    struct dibs__error error = {DIBS_OK, ""};

    if (channel->opener == DIBS__OPENER_NOBODY)
        take_opening(channel, DIBS__OPENER_THREAD);
    channel->opener = DIBS__OPENER_THREAD;
    channel_mutex_unlock(&channel->mutex);
    dibs_status status = try_to_open(channel, deadline, &error);
    channel_mutex_lock(&channel->mutex);
    if (status != DIBS_TIMEOUT)
        end_try(channel, &error);
    else if (channel->connector.link)
        leave_to_scheduler(channel);
    else
        leave_untried(channel, true);
}

/* Called when there is no time to wait for a link: fills in why the last try failed, unless one is going on. */
static dibs_status end_late(const struct dibs__channel *channel, struct dibs__error *error)
    DIBS__REQUIRES(channel_mutex)
{
    if (channel->opener != DIBS__OPENER_NOBODY || channel->open_error.status == DIBS_OK)
        return dibs__error_set(error, DIBS_UNAVAILABLE, "%s does not answer", channel->endpoint->url.shown);
    *error = channel->open_error;
    return error->status;
}

/* A thread may make the next link, or go on with the try that was begun for it. */
static bool may_open(const struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex)
{
    bool is_free = channel->opener == DIBS__OPENER_NOBODY || channel->opener == DIBS__OPENER_NEXT;

    return !channel->hooks.pushed && !channel->link && is_free;
}

/* Makes a link unless there is one, or waits for whoever makes it. seen: number of tries whose ends don't count. */
static dibs_status await_link(struct dibs__channel *channel, unsigned seen, int64_t deadline, struct dibs__error *error)
    DIBS__REQUIRES(channel_mutex)
{
    const struct dibs__error *last = &channel->open_error;

    while (atomic_load(&channel->standing) == 0) {
        bool failed = last->status != DIBS_OK && seen != channel->tries;
        seen = channel->tries;
        if (failed || (last->status == DIBS_DENIED && channel->hooks.pushed)) {
            *error = *last;
            return error->status;
        }
        if (dibs__now(channel->endpoint->clock) >= deadline)
            return end_late(channel, error);
        if (may_open(channel))
            open_link(channel, deadline);
        else
            channel->endpoint->clock->wait(channel->endpoint->clock, &channel->changed, &channel->mutex, deadline);
    }
    return DIBS_OK;
}

dibs_status dibs__channel_await(struct dibs__channel *channel, unsigned tries, int64_t deadline,
                                struct dibs__link_view *view, struct dibs__error *error)
{
    channel_mutex_lock(&channel->mutex);
    dibs_status status = await_link(channel, tries, deadline, error);
    if (status == DIBS_OK)
        *view = channel->link->view;
    dibs__channel_unlock(channel);
    return status;
}

dibs_status dibs__channel_open(struct dibs__channel *channel, int64_t deadline, struct dibs__link_view *view,
                               struct dibs__error *error)
{
    channel_mutex_lock(&channel->mutex);
    unsigned tries = channel->tries;
    channel_mutex_unlock(&channel->mutex);
    return dibs__channel_await(channel, tries, deadline, view, error);
}

unsigned dibs__channel_need(struct dibs__channel *channel)
{
    channel_mutex_lock(&channel->mutex);
    unsigned tries = channel->tries;
    if (channel->opener == DIBS__OPENER_NEXT)
        leave_to_scheduler(channel);
    if (atomic_load(&channel->standing) == 0 && !atomic_exchange(&channel->connector.needed, true)) {
        atomic_store(&channel->connector.wanted, true);
        channel->tells = true;
    }
    dibs__channel_unlock(channel);
    return tries;
}

/* ------------------------------------- a thread that waits for several things */

static void unlist(struct dibs__channel *channel, struct dibs__wait *wait) DIBS__REQUIRES(channel_mutex)
{
    DIBS__LIST_REMOVE(channel->waits, wait, links);
    wait->end = NULL;
}

static void end_wait_of_link(struct dibs__wait *wait)
{
    struct dibs__channel *channel = wait->keeper;

    channel_mutex_lock(&channel->mutex);
    unlist(channel, wait);
    channel_mutex_unlock(&channel->mutex);
}

static void list(struct dibs__channel *channel, struct dibs__wait *wait) DIBS__REQUIRES(channel_mutex)
{
    wait->end = end_wait_of_link;
    wait->keeper = channel;
    DIBS__LIST_APPEND(channel->waits, wait, links);
}

enum dibs__opening dibs__channel_opening(struct dibs__channel *channel, unsigned tries, struct dibs__wait *wait)
{
    channel_mutex_lock(&channel->mutex);
    bool stands = dibs__channel_has_link(channel), failed = !stands && channel->tries != tries;
    if (wait && !wait->end && !stands && !failed)
        list(channel, wait);
    else if (wait && wait->end && (stands || failed))
        unlist(channel, wait);
    channel_mutex_unlock(&channel->mutex);
    return stands ? DIBS__OPENING_DONE : failed ? DIBS__OPENING_FAILED : DIBS__OPENING_AWAITED;
}

/* ------------------------------------------------------------ the scheduler */

/*
 * Begins a try that is due, or goes on with a try of the scheduler's own or one that was left to it. Requires that no
 * thread has the opening role. Unlocks the mutex in between.
 */
static void attend_try(struct dibs__channel *channel, bool keep_open, int64_t now) DIBS__REQUIRES(channel_mutex)
{
    struct dibs__error error = {DIBS_OK, ""};

    if (!dibs__connector_is_due(&channel->connector, keep_open, now))
        return;
    if (channel->opener == DIBS__OPENER_NOBODY)
        take_opening(channel, DIBS__OPENER_SCHEDULER);
    channel_mutex_unlock(&channel->mutex);
    bool ended =
        dibs__connector_attend(&channel->connector, now, keep_open ? DIBS__RECONNECT_LAST_MS : SPARE_LAST_MS, &error);
    channel_mutex_lock(&channel->mutex);
    if (ended)
        end_try(channel, &error);
}

/* True: there is no link, and no thread makes one. */
static bool is_ours_to_open(const struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex)
{
    bool is_undealt = channel->hooks.pushed && channel->dealt_with != channel->serial;

    return !channel->link && !is_undealt && channel->opener < DIBS__OPENER_NEXT;
}

/*
 * What the scheduler does on a link: it reads if no thread has a role or is about to listen, and writes if no thread
 * has the writing role.
 */
static short wants(struct dibs__channel *channel, bool keep_open, int64_t *deadline) DIBS__REQUIRES(channel_mutex)
{
    bool reads = !channel->reading && !channel->writing && !channel->listeners && (channel->first || keep_open);
    short want = 0;

    if (reads && dibs__now(channel->endpoint->clock) < channel->quiet_until) {
        *deadline = dibs__earlier(*deadline, channel->quiet_until);
        reads = false;
    }
    channel->polled = reads;
    if (reads)
        want |= POLLIN;
    if (!channel->writing && dibs__channel_has_unsent(channel))
        want |= POLLOUT;
    return want;
}

/*
 * When the oldest request in flight has to be looked at. A thread that reads may have been put off the processor while
 * its reply lies in the socket, or is taken: a scheduler that checks for that reply all the time must not keep it
 * there.
 */
static int64_t next_look(const struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex)
{
    int64_t expires = channel->first->expires, now;

    if (!channel->reading || (now = dibs__now(channel->endpoint->clock)) < expires)
        return expires;
    return dibs__after_ms(now, DIBS__LOOK_AGAIN_MS);
}

struct pollfd dibs__channel_interest(struct dibs__channel *channel, bool keep_open, int64_t *deadline)
{
    struct pollfd fd = {.fd = -1};

    channel_mutex_lock(&channel->mutex);
    if (dibs__channel_has_link(channel)) {
        short want = wants(channel, keep_open, deadline);
        if (channel->first)
            *deadline = dibs__earlier(*deadline, next_look(channel));
        if (want)
            fd = dibs__link_poll(channel->link, want, deadline);
    } else if (is_ours_to_open(channel)) {
        fd = dibs__connector_interest(&channel->connector, keep_open, deadline);
    }
    if (channel->finished)
        *deadline = 0; /* completions must be run */
    channel_mutex_unlock(&channel->mutex);
    return fd;
}

static bool is_distrusted(const struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex)
{
    return dibs__channel_has_link(channel) && atomic_load(&channel->standing) == 0;
}

/* Requires a link that is not broken. True: it was given up, because the server has been replaced by another. */
static bool give_up_if_outdated(struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex)
{
    struct dibs__error why;

    if (!dibs__link_is_outdated(channel->link))
        return false;
    dibs__link_outdated(channel->link, &why);
    dibs__channel_break(channel, &why);
    return true;
}

static void give_up_if_distrusted(struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex)
{
    struct dibs__error why;

    if (!is_distrusted(channel))
        return;
    dibs__error_set(&why, DIBS_UNAVAILABLE, "%s does not know the subscription", channel->endpoint->url.shown);
    dibs__channel_break(channel, &why);
}

static bool is_overdue(const struct dibs__channel *channel, int64_t now) DIBS__REQUIRES(channel_mutex)
{
    return dibs__channel_has_link(channel) && channel->first && now >= channel->first->expires;
}

/*
 * Requires a link that is not broken. If a thread has the writing role, reading is left to that thread: if the end of
 * the link were found here meanwhile, the outcome of its command would be unknown.
 */
static void go_on_with_link(struct dibs__channel *channel, short ready, int64_t now) DIBS__REQUIRES(channel_mutex)
{
    if (give_up_if_outdated(channel))
        return;
    dibs__channel_flush(channel, 0);
    if (dibs__channel_has_link(channel) && !channel->reading && !channel->writing &&
        (dibs__link_may_receive(channel->link, ready) || is_distrusted(channel)))
        dibs__channel_read(channel, NULL, 0);
    give_up_if_distrusted(channel);
    while (is_overdue(channel, now) && dibs__channel_has_something(channel)) {
        if (channel->reading) /* that thread will hand out the reply in a moment, or tell the scheduler */
            return;
        dibs__channel_read(channel, NULL, 0);
    }
    if (is_overdue(channel, now))
        dibs__channel_time_out(channel);
}

void dibs__channel_attend(struct dibs__channel *channel, bool keep_open, short ready, int64_t now)
{
    channel_mutex_lock(&channel->mutex);
    channel->polled = false;
    if (dibs__channel_has_link(channel))
        go_on_with_link(channel, ready, now);
    else if (is_ours_to_open(channel))
        attend_try(channel, keep_open, now);
    channel->tells = false; /* this is the scheduler's thread, which calls dibs__channel_interest next */
    dibs__channel_unlock_quietly(channel);
    dibs__channel_run_completions(channel);
}

void dibs__channel_hurry(struct dibs__channel *channel)
{
    channel_mutex_lock(&channel->mutex);
    if (!dibs__channel_has_link(
            channel)) /* if there is a link and it breaks at once, the next one is not made at once */
        channel->connector.next_at = 0;
    channel_mutex_unlock(&channel->mutex);
}

void dibs__channel_put_off(struct dibs__channel *channel, int64_t next_at, int64_t soonest_at)
{
    channel->connector.next_at = next_at;
    channel->connector.soonest_at = soonest_at;
}

void dibs__channel_connect_again(struct dibs__channel *channel)
{
    channel_mutex_lock(&channel->mutex);
    channel->dealt_with = channel->serial;
    channel_mutex_unlock(&channel->mutex);
}
