#include <sched.h>

#include "redis/channel_parts.h"
#include "redis/reply.h"

#define REPLIES_AT_ONCE 63
#define CROWD 4                    /* with this many commands in flight, many threads use the channel */
#define YIELD_MOST DIBS__NS_PER_MS /* letting others run may take this long for each command that it brings; */
#define YIELD_REST 20              /* otherwise nobody is let run first for this many times as long */
#define REPLICA_LEAST_MS 500       /* a link to a replica is kept for at least this long */
#define NEWEST 64                  /* so many of the newest requests are looked at for a thread that reads on */

/* ------------------------------------------------------------------- the roles */

/* Frees a broken link, unless a thread still has a role. */
static void drop_link(struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex)
{
    if (!channel->link || !channel->broken || channel->reading || channel->writing)
        return;
    channel->connector.before = channel->link->view.id;
    dibs__link_free(channel->link);
    channel->link = NULL;
    channel->broken = false;
    channel->out.used = channel->sending.used = 0;
    channel->queued = channel->handed_out = 0;
    channel->tells = true; /* it may have to make the next link */
    pthread_cond_broadcast(&channel->changed);
}

/* The roles, for the compiler's analysis: a thread has a role between taking and leaving it. */
extern struct dibs__mutex_class writing_role, reading_role;

/* Not analysed: the roles are flags, which no analysis can follow. */
static void take_writing(struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex)
    DIBS__ACQUIRES(writing_role) DIBS__UNANALYSED
{
    DIBS__REQUIRE(dibs__channel_has_link(channel) && !channel->writing);
    channel->writing = true;
}

static void leave_writing(struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex)
    DIBS__RELEASES(writing_role) DIBS__UNANALYSED
{
    DIBS__REQUIRE(channel->link && channel->writing);
    channel->writing = false;
    drop_link(channel);
}

static void take_reading(struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex)
    DIBS__ACQUIRES(reading_role) DIBS__UNANALYSED
{
    DIBS__REQUIRE(dibs__channel_has_link(channel) && !channel->reading);
    channel->reading = true;
}

static void leave_reading(struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex)
    DIBS__RELEASES(reading_role) DIBS__UNANALYSED
{
    DIBS__REQUIRE(channel->link && channel->reading);
    channel->reading = false;
    drop_link(channel);
}

/* --------------------------------------------------------- the end of a link */

void dibs__channel_break(struct dibs__channel *channel, const struct dibs__error *why)
{
    channel_mutex_held(&channel->mutex);
    if (!dibs__channel_has_link(channel))
        return;
    uint64_t sent = channel->in_send ? channel->handed_out : channel->handed_out - channel->sending.used;
    channel->broken = true;
    atomic_store(&channel->standing, 0);
    channel->broken_by = *why;
    dibs__link_shut(channel->link);
    dibs__channel_fail_all(channel, sent);
    drop_link(channel);
}

void dibs__channel_time_out(struct dibs__channel *channel)
{
    struct dibs__error why;

    dibs__error_set(&why, DIBS_UNAVAILABLE, "%s did not answer within %u ms", channel->endpoint->url.shown,
                    channel->endpoint->command_timeout_ms);
    dibs__channel_break(channel, &why);
}

/* ------------------------------------------------------------------- writing */

/* Must be called without the mutex, because it blocks. True: the deadline has passed. */
static bool wait_for_room(struct dibs__channel *channel, struct dibs__link *link, int64_t deadline)
    DIBS__REQUIRES(writing_role)
{
    if (deadline > 0) {
        int64_t until = deadline;
        struct pollfd fd = dibs__link_poll(link, POLLOUT, &until);
        channel->endpoint->clock->poll(channel->endpoint->clock, &fd, 1, until);
    }
    return dibs__now(channel->endpoint->clock) >= deadline;
}

/*
 * Sends what was appended, until nothing is left, the link breaks or the deadline has passed. Unlocks the mutex while
 * it sends.
 */
static void write_out(struct dibs__channel *channel, int64_t deadline) DIBS__REQUIRES(channel_mutex)
    DIBS__REQUIRES(writing_role)
{
    struct dibs__link *link = channel->link;
    struct dibs__error error;
    bool late = false;

    while (!late && !channel->broken && dibs__channel_has_unsent(channel)) {
        if (channel->sending.used == 0) {
            struct dibs__buffer empty = channel->sending;
            channel->sending = channel->out;
            channel->out = empty;
            channel->handed_out = channel->queued;
        }
        struct dibs__buffer sending = channel->sending;
        channel->in_send = true;
        channel_mutex_unlock(&channel->mutex);
        long sent = dibs__link_send(link, sending.bytes, sending.used, &error);
        late = sent == 0 && wait_for_room(channel, link, deadline);
        channel_mutex_lock(&channel->mutex);
        channel->in_send = false;
        if (sent < 0)
            dibs__channel_break(channel, &error);
        else
            dibs__buffer_drop(&channel->sending, (size_t)sent);
    }
}

/*
 * If many threads use the channel, some of them are likely to be about to send as well, because replies wake them in
 * batches. The thread that will write lets those run first, so that one write takes the commands of all. When other
 * work keeps the processor busy, that takes too long for the commands that it brings, and is not done again for a
 * while.
 */
static void let_others_append(struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex) DIBS__REQUIRES(writing_role)
{
    int64_t before = dibs__now(channel->endpoint->clock);
    size_t used = channel->out.used;

    if (dibs__channel_load(channel) < CROWD || used == 0 || before < channel->no_yield_until)
        return;
    channel_mutex_unlock(&channel->mutex);
    sched_yield();
    int64_t after = dibs__now(channel->endpoint->clock);
    channel_mutex_lock(&channel->mutex);
    if (after - before > YIELD_MOST * (int64_t)(channel->out.used / used))
        channel->no_yield_until = after + YIELD_REST * (after - before);
}

#define GATHERED_MAX 16 /* a thread gathers on at most this many channels at a time */

static _Thread_local unsigned gathers;      /* the calling thread's; depth of nested gathers */
static _Thread_local size_t gathered_count; /* the calling thread's */
static _Thread_local struct dibs__channel
    *gathered[GATHERED_MAX]; /* the calling thread's; the channels on which it gathers */

/* Whether the calling thread gathers (channel.h). If so, it will send later what this channel has. */
static bool is_gathered(struct dibs__channel *channel)
{
    if (gathers == 0)
        return false;
    for (size_t i = 0; i < gathered_count; i++)
        if (gathered[i] == channel)
            return true;
    if (gathered_count == GATHERED_MAX)
        return false;
    gathered[gathered_count++] = channel;
    return true;
}

void dibs__channel_flush(struct dibs__channel *channel, int64_t deadline)
{
    channel_mutex_held(&channel->mutex);
    if (channel->writing || !dibs__channel_has_link(channel) || (deadline == 0 && is_gathered(channel)))
        return;
    take_writing(channel);
    if (deadline > 0)
        let_others_append(channel);
    write_out(channel, deadline);
    leave_writing(channel);
    if (dibs__channel_has_link(channel) && dibs__channel_has_unsent(channel))
        channel->tells = true;
}

void dibs__channel_gather(void)
{
    if (gathers++ == 0)
        gathered_count = 0;
}

void dibs__channel_send_gathered(void)
{
    DIBS__REQUIRE(gathers > 0);
    if (--gathers > 0)
        return;
    for (size_t i = 0; i < gathered_count; i++) {
        struct dibs__channel *channel = gathered[i];
        channel_mutex_lock(&channel->mutex);
        dibs__channel_flush(channel, 0);
        dibs__channel_unlock(channel);
    }
}

/* ------------------------------------------------------------------- reading */

/*
 * Takes complete replies from the reader. False: the bytes are no replies. Sets *of_replica if one of them shows that
 * the server is a replica.
 */
static bool parse(struct dibs__link *link, redisReply *replies[REPLIES_AT_ONCE], size_t *count, bool *of_replica,
                  struct dibs__error *error) DIBS__REQUIRES(reading_role)
{
    for (*count = 0; *count < REPLIES_AT_ONCE; ++*count) {
        if (dibs__link_next_reply(link, &replies[*count], error) != DIBS_OK)
            return false;
        if (!replies[*count])
            break;
        *of_replica = *of_replica || dibs__reply_tells_of_a_replica(replies[*count]);
    }
    return true;
}

/* Frees a reply that no request gets. */
static void drop_reply(struct dibs__channel *channel, redisReply *reply)
{
    if (reply->type == REDIS_REPLY_ERROR)
        atomic_fetch_add_explicit(channel->endpoint->errors, 1, memory_order_relaxed);
    freeReplyObject(reply);
}

/*
 * Shows the replies to the owner, in their order, and keeps those that answer commands: returns their number. The error
 * is filled if the link must be given up. What comes behind that is dropped.
 */
static size_t pass_on_messages(struct dibs__channel *channel, const struct dibs__link *link, redisReply **replies,
                               size_t count, struct dibs__error *error) DIBS__REQUIRES(reading_role)
{
    const struct dibs__channel_hooks *hooks = &channel->hooks;
    size_t kept = 0;

    error->status = DIBS_OK;
    for (size_t i = 0; i < count; i++) {
        if (error->status == DIBS_OK && !hooks->pushed(hooks->context, link->view.serial, replies[i], error))
            replies[kept++] = replies[i];
        else
            drop_reply(channel, replies[i]);
    }
    return kept;
}

/* Hands the replies to their requests. False: there are more replies than requests. */
static bool hand_out(struct dibs__channel *channel, redisReply **replies, size_t count) DIBS__REQUIRES(channel_mutex)
{
    size_t i = 0;

    for (; i < count && channel->first; i++)
        dibs__channel_answer(channel, replies[i]);
    bool all = i == count;
    for (; i < count; i++)
        drop_reply(channel, replies[i]);
    return all;
}

/*
 * Sleeps until something has come or the deadline has passed. Takes nothing. A lone thread sleeps in the transport,
 * which saves the poll(2), if the deadline is further away than the longest sleep there. On a Unix socket, recv(2) is
 * also woken when the server takes the command, before there is a reply; if other threads want to run, that costs more
 * than the poll(2).
 */
static void sleep_until_it_comes(struct dibs__channel *channel, struct dibs__link *link, int64_t deadline)
    DIBS__REQUIRES(reading_role)
{
    bool lone = atomic_load_explicit(&channel->endpoint->in_flight, memory_order_relaxed) == 1;

    if (lone && channel->endpoint->clock == &dibs__system_clock &&
        dibs__after_ms(dibs__now(channel->endpoint->clock), DIBS__SLEEP_MS) <= deadline && dibs__link_sleep(link))
        return;
    struct pollfd fd = dibs__link_poll(link, POLLIN, &deadline);
    channel->endpoint->clock->poll(channel->endpoint->clock, &fd, 1, deadline);
}

/* Ends what take() began: it took nothing, or what it took is handed out. */
static void end_take(struct dibs__channel *channel) DIBS__REQUIRES(reading_role)
{
    DIBS__REQUIRE(dibs__channel_is_taking(atomic_load(&channel->takes)));
    atomic_fetch_add(&channel->takes, 1);
}

/* Receives. If it returns anything but 0, end_take must follow. */
static long take(struct dibs__channel *channel, struct dibs__link *link, struct dibs__error *error)
    DIBS__REQUIRES(reading_role)
{
    DIBS__REQUIRE(!dibs__channel_is_taking(atomic_load(&channel->takes)));
    atomic_fetch_add(&channel->takes, 1);
    long received = dibs__link_receive(link, error);
    if (received == 0)
        end_take(channel);
    return received;
}

/*
 * If so many commands are in flight that their threads need all processors, a thread that polls only keeps another from
 * its reply. The same holds for a command that tells first: the thread that it tells needs the processor more.
 */
struct dibs__spin *dibs__channel_spin(const struct dibs__channel *channel, const struct dibs__request *own)
{
    struct dibs__spin *spin = &channel->endpoint->spin;
    unsigned in_flight = atomic_load_explicit(&channel->endpoint->in_flight, memory_order_relaxed);

    return (!own || !own->tells_first) && (int)in_flight <= spin->others ? spin : NULL;
}

/* Waits until something has come or the deadline has passed, and takes it. Polls first where that pays. */
static long receive_by(struct dibs__channel *channel, struct dibs__link *link, struct dibs__spin *spin,
                       int64_t deadline, struct dibs__error *error) DIBS__REQUIRES(reading_role)
{
    struct dibs__spinning wait;
    long received = 0;

    dibs__spin_begin(&wait, spin, channel->endpoint->clock);
    while (received == 0 && dibs__spin_goes_on(&wait, channel->endpoint->clock))
        received = take(channel, link, error);
    if (received == 0) {
        sleep_until_it_comes(channel, link, deadline);
        received = take(channel, link, error);
    }
    dibs__spin_end(&wait, received > 0, channel->endpoint->clock);
    return received;
}

/*
 * Hands out the replies that the reader has, and breaks the link if they are not what was asked for. Locks the mutex.
 * True: the server has become a replica, so that the address may lead to another server by now. A new link is kept, so
 * that a replica is not connected to again and again, unless the link was made to a server that had to be a master.
 */
static bool take_replies(struct dibs__channel *channel, struct dibs__link *link) DIBS__ACQUIRES(channel_mutex)
    DIBS__REQUIRES(reading_role)
{
    redisReply *replies[REPLIES_AT_ONCE];
    struct dibs__error garbage, refused = {DIBS_OK, ""};
    bool of_replica = false;

    for (;;) {
        size_t count, answers;
        bool good = parse(link, replies, &count, &of_replica, &garbage);
        answers = channel->hooks.pushed ? pass_on_messages(channel, link, replies, count, &refused) : count;
        channel_mutex_lock(&channel->mutex);
        if (answers < count && channel->first) /* a message shows that the server is there, as the answer would */
            dibs__request_set_expiry(channel, channel->first);
        if (!hand_out(channel, replies, answers) && !channel->broken && !channel->hooks.pushed)
            dibs__error_set(&refused, DIBS_STORE_ERROR, "%s sent a reply that nobody asked for",
                            channel->endpoint->url.shown);
        if (!good || refused.status != DIBS_OK)
            dibs__channel_break(channel, refused.status != DIBS_OK ? &refused : &garbage);
        if (!good || refused.status != DIBS_OK || count < REPLIES_AT_ONCE)
            break;
        dibs__channel_unlock_quietly(channel);
    }
    return of_replica && (link->greeting.role == DIBS__ROLE_MASTER ||
                          dibs__now(channel->endpoint->clock) >= dibs__after_ms(link->greeted_at, REPLICA_LEAST_MS));
}

static void read_in(struct dibs__channel *channel, const struct dibs__request *own, int64_t deadline)
    DIBS__REQUIRES(channel_mutex) DIBS__REQUIRES(reading_role)
{
    struct dibs__link *link = channel->link;
    struct dibs__error error = {DIBS_OK, ""};
    bool demoted = false;

    dibs__channel_unlock_quietly(channel);
    long received = deadline > 0 ? receive_by(channel, link, dibs__channel_spin(channel, own), deadline, &error)
                                 : take(channel, link, &error);
    if (received != 0 || channel->hooks.pushed) /* messages may have been received with the greeting */
        demoted = take_replies(channel, link);
    else
        channel_mutex_lock(&channel->mutex);
    if (demoted) {
        dibs__channel_unlock_quietly(channel);
        dibs__endpoint_failed(channel->endpoint);
        channel_mutex_lock(&channel->mutex);
    }
    if (demoted && received >= 0)
        dibs__error_set(&error, DIBS_UNAVAILABLE, "%s is a replica", channel->endpoint->url.shown);
    if (error.status != DIBS_OK)
        dibs__channel_break(channel, &error);
    if (received != 0)
        end_take(channel);
    if (channel->looking > 0)
        pthread_cond_broadcast(&channel->changed);
}

/*
 * The next thread to read is the one whose request was sent last: its reply comes last, so it reads for longest. A
 * request whose thread does something else needs no reader: that thread reads when it comes back. If the scheduler may
 * read as well, only the newest requests are looked at: thousands may be in flight, and each of them may end here.
 */
void dibs__channel_pass_reading_on(struct dibs__channel *channel)
{
    struct dibs__request *next = NULL, *first = channel->first, *request = first ? first->links.previous : NULL;
    bool is_left = atomic_load_explicit(&channel->unattended, memory_order_relaxed) > 0;

    channel_mutex_held(&channel->mutex);
    DIBS__REQUIRE(!channel->reading);
    if (channel->listeners) {
        dibs__sleeper_wake(&channel->listeners->wait_event->sleeper);
        return;
    }
    for (unsigned seen = 0; request && !next && !(is_left && seen >= NEWEST); seen++) {
        if (request->waited_for && !request->away)
            next = request;
        is_left = is_left || (request->away && request->asleep); /* watched by a wait event that tells */
        request = request == first ? NULL : request->links.previous;
    }
    if (!next && is_left)
        channel->tells = true;
    else if (next && next->asleep && next->wait)
        dibs__wait_event_wake(next->wait->wait_event);
    else if (next && next->asleep) /* otherwise the thread is awake, and will find that nobody reads */
        channel->woken[channel->woken_count++] = &next->sleeper;
}

_Static_assert(DIBS__WOKEN_MAX > REPLIES_AT_ONCE, "a batch of replies wakes that many threads, and one that reads on");

void dibs__channel_read(struct dibs__channel *channel, const struct dibs__request *own, int64_t deadline)
{
    channel_mutex_held(&channel->mutex);
    take_reading(channel);
    do
        read_in(channel, own, deadline);
    while (own && !dibs__request_is_done(own) && !channel->broken &&
           (channel->writing || !dibs__channel_has_unsent(channel)) && dibs__now(channel->endpoint->clock) < deadline);
    leave_reading(channel);
    dibs__channel_pass_reading_on(channel);
}

bool dibs__channel_begin_reading(struct dibs__channel *channel) DIBS__UNANALYSED /* the role is kept */
{
    if (!channel->has_bell)
        channel->has_bell = dibs__wake_init(&channel->bell);
    if (channel->has_bell)
        take_reading(channel);
    return channel->has_bell;
}

/* Not analysed: the calling thread has the role. */
DIBS__UNANALYSED void dibs__channel_read_on(struct dibs__channel *channel, short ready)
{
    DIBS__REQUIRE(channel->link && channel->reading);
    if (!channel->broken && dibs__link_may_receive(channel->link, ready))
        read_in(channel, NULL, 0);
}

/* Not analysed, as above. */
DIBS__UNANALYSED void dibs__channel_end_reading(struct dibs__channel *channel)
{
    leave_reading(channel);
    dibs__channel_pass_reading_on(channel);
}

/*
 * Looks at the socket first: if bytes were taken off it before that, the taking was announced in `takes` even earlier.
 */
bool dibs__channel_has_something(const struct dibs__channel *channel)
{
    channel_mutex_held(&channel->mutex);
    DIBS__REQUIRE(channel->link != NULL);
    return dibs__link_look(channel->link) == DIBS__SIGHT_BYTES || dibs__channel_is_taking(atomic_load(&channel->takes));
}
