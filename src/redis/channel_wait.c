/* How a thread waits for replies of several channels at the same time (base/wait.h), and for messages of one. */
#include "redis/channel_parts.h"

/* Nobody reads for this long after a thread has left listen, because another may be about to come; */
#define QUIET_MS 50
#define UNHEARD_MS 2 /* or for this long, if some messages are for no thread in listen */

/* ---------------------------------------------------------- several channels */

static enum dibs__reply_state state_of(const struct dibs__channel *channel, const struct dibs__request *request)
    DIBS__REQUIRES(channel_mutex)
{
    if (dibs__request_is_done(request) && !request->reply)
        return DIBS__REPLY_BROKEN;
    if (dibs__request_is_done(request))
        return request->reply->type == REDIS_REPLY_ERROR ? DIBS__REPLY_ERROR : DIBS__REPLY_OVER;
    return dibs__now(channel->endpoint->clock) >= request->expires ? DIBS__REPLY_OVER : DIBS__REPLY_AWAITED;
}

/* The thread stops reading, or waiting for another thread that reads. */
static void leave(struct dibs__channel *channel, struct dibs__request *request, struct dibs__wait *wait)
    DIBS__REQUIRES(channel_mutex)
{
    bool reads = wait->fd.fd >= 0, done = dibs__request_is_done(request);

    wait->fd.fd = -1;
    wait->until = DIBS__NEVER;
    wait->spin = NULL;
    wait->end = NULL;
    request->wait = NULL;
    request->asleep = false;
    request->away = true;
    if (reads)
        dibs__channel_end_reading(channel);
    else if (!done && !channel->reading)
        dibs__channel_pass_reading_on(channel);
}

static void end_wait(struct dibs__wait *wait)
{
    struct dibs__channel *channel = wait->keeper;

    channel_mutex_lock(&channel->mutex);
    leave(channel, wait->thing, wait);
    dibs__channel_unlock(channel);
}

/*
 * The thread reads, unless another one does; then it will be woken. A wait event that tells belongs to no thread, so
 * the scheduler reads.
 */
static void join(struct dibs__channel *channel, struct dibs__request *request, struct dibs__wait *wait)
    DIBS__REQUIRES(channel_mutex)
{
    bool reads = wait->fd.fd >= 0, is_free = !channel->reading, tells = wait->wait_event->tell != NULL;

    DIBS__REQUIRE(dibs__channel_has_link(channel)); /* otherwise the requests in flight have failed */
    request->wait = wait;
    request->away = tells;
    wait->end = end_wait;
    wait->keeper = channel;
    wait->thing = request;
    wait->until = request->expires;
    if (!reads && is_free && !tells)
        reads = dibs__channel_begin_reading(channel);
    request->asleep = !reads;
    if (!reads) {
        channel->tells = channel->tells || is_free;
        return;
    }
    wait->fd = dibs__link_poll(channel->link, POLLIN, &wait->until);
    wait->bell = &channel->bell;
    wait->spin = dibs__channel_spin(channel, request);
}

/* Takes what lies in the socket, unless another thread reads. */
static void look(struct dibs__channel *channel, const struct dibs__request *request) DIBS__REQUIRES(channel_mutex)
{
    if (!dibs__request_is_done(request) && dibs__channel_has_link(channel) && !channel->reading &&
        dibs__channel_has_something(channel))
        dibs__channel_read(channel, NULL, 0);
}

enum dibs__reply_state dibs__channel_progress(struct dibs__channel *channel, struct dibs__request *request,
                                              struct dibs__wait *wait)
{
    channel_mutex_lock(&channel->mutex);
    DIBS__REQUIRE(request->waited_for && (!request->wait || request->wait == wait));
    if (!wait)
        look(channel, request);
    else if (wait->fd.fd >= 0)
        dibs__channel_read_on(channel, wait->fd.revents);
    enum dibs__reply_state state = state_of(channel, request);
    if (wait && state == DIBS__REPLY_AWAITED)
        join(channel, request, wait);
    else if (wait && request->wait)
        leave(channel, request, wait);
    dibs__channel_unlock(channel);
    return state;
}

/* ------------------------------------------------------------------ messages */

/* False: another thread has the reading role, or there is no link. */
static bool take_reading(struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex)
{
    if (channel->reading || !dibs__channel_has_link(channel) || !dibs__channel_begin_reading(channel))
        return false;
    channel->tells = channel->tells || channel->polled;
    channel->polled = false;
    return true;
}

/*
 * One step of listening: the thread reads for all, or sleeps. Unlocks the mutex meanwhile. reads: it has the reading
 * role; the result is whether it still does.
 */
static bool listen_a_while(struct dibs__channel *channel, struct dibs__wait_event *wait_event, int64_t until,
                           bool reads) DIBS__REQUIRES(channel_mutex)
{
    const struct dibs__clock *clock = channel->endpoint->clock;
    struct dibs__wake *bell = &channel->bell;
    struct pollfd fds[2] = {{.fd = -1}};
    int64_t by = until;

    if (reads)
        fds[0] = dibs__link_poll(channel->link, POLLIN, &by);
    dibs__channel_unlock(channel);
    if (reads)
        dibs__wait_event_poll(wait_event, clock, bell, fds, 1, by);
    else
        dibs__sleeper_sleep(&wait_event->sleeper, clock, until);
    channel_mutex_lock(&channel->mutex);
    if (reads)
        dibs__channel_read_on(channel, fds[0].revents);
    if (!reads || !channel->broken)
        return reads;
    dibs__channel_end_reading(channel);
    return false;
}

/* Lists the thread, which listens until its wait is over. Returns whether it has the reading role then. */
static bool join_listeners(struct dibs__channel *channel, struct dibs__listening *me, int64_t until)
    DIBS__REQUIRES(channel_mutex)
{
    bool reads = false;

    DIBS__LIST_APPEND(channel->listeners, me, links);
    while (!dibs__wait_event_is_woken(me->wait_event) && dibs__now(channel->endpoint->clock) < until) {
        reads = reads || take_reading(channel);
        reads = listen_a_while(channel, me->wait_event, until, reads);
    }
    return reads;
}

/* Returns when the scheduler has to read, if nobody does. */
static int64_t leave_listeners(struct dibs__channel *channel, struct dibs__listening *me, bool reads)
    DIBS__REQUIRES(channel_mutex)
{
    int64_t now = dibs__now(channel->endpoint->clock);

    DIBS__LIST_REMOVE(channel->listeners, me, links);
    if (!channel->listeners)
        channel->quiet_until = dibs__after_ms(now, atomic_load(&channel->unheard) ? UNHEARD_MS : QUIET_MS);
    if (reads)
        dibs__channel_end_reading(channel);
    else if (!channel->reading) /* this thread may have been woken to read */
        dibs__channel_pass_reading_on(channel);
    return channel->listeners ? DIBS__NEVER : channel->quiet_until;
}

int64_t dibs__channel_listen(struct dibs__channel *channel, struct dibs__wait_event *wait_event, int64_t until)
{
    struct dibs__listening me = {.wait_event = wait_event};

    if (dibs__wait_event_is_woken(wait_event) || dibs__now(channel->endpoint->clock) >= until)
        return DIBS__NEVER;
    channel_mutex_lock(&channel->mutex);
    bool reads = join_listeners(channel, &me, until);
    int64_t quiet_until = leave_listeners(channel, &me, reads);
    dibs__channel_unlock(channel);
    return quiet_until;
}

int64_t dibs__channel_unheard(struct dibs__channel *channel)
{
    if (atomic_load_explicit(&channel->unheard, memory_order_relaxed))
        return DIBS__NEVER;
    int64_t until = dibs__after_ms(dibs__now(channel->endpoint->clock), UNHEARD_MS);
    channel_mutex_lock(&channel->mutex);
    atomic_store(&channel->unheard, true);
    bool is_quiet = !channel->listeners && until < channel->quiet_until;
    if (is_quiet)
        channel->quiet_until = until;
    channel_mutex_unlock(&channel->mutex);
    return is_quiet ? until : DIBS__NEVER;
}
