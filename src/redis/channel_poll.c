#include "redis/channel_parts.h"

/* True: there is no link, and no thread makes one. */
static bool is_ours_to_open(const struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex)
{
    return !channel->link && channel->opener < DIBS__OPENER_NEXT;
}

/* What the scheduler does on a link: it reads if no thread has a role, and writes if no thread has the writing role. */
static short wants(const struct dibs__channel *channel, bool keep_open) DIBS__REQUIRES(channel_mutex)
{
    short want = 0;

    if (!channel->reading && !channel->writing && (channel->first || keep_open))
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
        short want = wants(channel, keep_open);
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
        dibs__link_may_receive(channel->link, ready))
        dibs__channel_read(channel, NULL, 0);
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
    if (dibs__channel_has_link(channel))
        go_on_with_link(channel, ready, now);
    else if (is_ours_to_open(channel))
        dibs__channel_attend_try(channel, keep_open, now);
    channel->tells = false; /* this is the scheduler's thread, which calls dibs__channel_interest next */
    dibs__flight_unlock(channel);
    dibs__flight_run_completions(channel);
}

void dibs__channel_hurry(struct dibs__channel *channel)
{
    channel_mutex_lock(&channel->mutex);
    if (!dibs__channel_has_link(
            channel)) /* if there is a link and it breaks at once, the next one is not made at once */
        channel->connector.next_at = 0;
    channel_mutex_unlock(&channel->mutex);
}
