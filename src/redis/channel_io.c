#include "redis/channel_parts.h"
#include "redis/reply.h"

#define REPLIES_AT_ONCE 64
#define REPLICA_LEAST_MS 500 /* so long at least a link to a replica is kept */

/* The roles, for the compiler's analysis: what a thread has between taking one and leaving it. */
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
}

/* --------------------------------------------------------- the end of a link */

/* Frees a broken link, unless a thread still has a role. */
static void drop_link(struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex)
{
    if (!channel->link || !channel->broken || channel->reading || channel->writing)
        return;
    channel->last_id = channel->link->id;
    dibs__link_free(channel->link);
    channel->link = NULL;
    channel->broken = false;
    channel->out.used = channel->sending.used = 0;
    channel->queued = channel->handed_out = 0;
    pthread_cond_broadcast(&channel->changed);
}

void dibs__channel_break(struct dibs__channel *channel, const struct dibs__error *why)
{
    channel_mutex_held(&channel->mutex);
    if (!dibs__channel_has_link(channel))
        return;
    uint64_t sent = channel->in_send ? channel->handed_out : channel->handed_out - channel->sending.used;
    channel->broken = true;
    atomic_store(&channel->standing, false);
    channel->broken_by = *why;
    dibs__link_shut(channel->link);
    dibs__flight_fail(channel, sent, why);
    drop_link(channel);
}

void dibs__channel_time_out(struct dibs__channel *channel)
{
    struct dibs__error why;

    dibs__error_set(&why, DIBS_UNAVAILABLE, "%s did not answer within %u ms", channel->endpoint->url.shown,
                    channel->command_timeout_ms);
    dibs__channel_break(channel, &why);
}

/* ------------------------------------------------------------------- writing */

/* Not the mutex: it waits. True: the deadline has passed. */
static bool wait_for_room(struct dibs__channel *channel, struct dibs__link *link, int64_t deadline)
    DIBS__REQUIRES(writing_role)
{
    if (deadline > 0) {
        int64_t until = deadline;
        struct pollfd fd = dibs__link_poll(link, POLLOUT, &until);
        channel->clock->poll(channel->clock, &fd, 1, until);
    }
    return dibs__now(channel->clock) >= deadline;
}

/* Sends what was appended, until nothing is left, the link breaks or the deadline has passed. */
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

void dibs__channel_flush(struct dibs__channel *channel, int64_t deadline)
{
    channel_mutex_held(&channel->mutex);
    if (channel->writing || !dibs__channel_has_link(channel))
        return;
    take_writing(channel);
    write_out(channel, deadline);
    leave_writing(channel);
    drop_link(channel);
}

/* ------------------------------------------------------------------- reading */

/* Takes complete replies from the reader. False: the bytes are no replies. */
static bool parse(struct dibs__link *link, redisReply *replies[REPLIES_AT_ONCE], size_t *count,
                  struct dibs__error *error) DIBS__REQUIRES(reading_role)
{
    for (*count = 0; *count < REPLIES_AT_ONCE; ++*count) {
        if (dibs__link_next_reply(link, &replies[*count], error) != DIBS_OK)
            return false;
        if (!replies[*count])
            break;
    }
    return true;
}

/*
 * Whether the server has become a replica: the address may lead to another
 * server by now. A link that is new is kept, so that a replica is not connected
 * to again and again.
 */
static bool is_demoted(const struct dibs__channel *channel, const struct dibs__link *link, redisReply **replies,
                       size_t count) DIBS__REQUIRES(reading_role)
{
    bool told = false;

    for (size_t i = 0; i < count && !told; i++)
        told = dibs__reply_tells_of_a_replica(replies[i]);
    return told && dibs__now(channel->clock) >= dibs__after_ms(link->greeted_at, REPLICA_LEAST_MS);
}

/* Hands replies to the requests that they answer. False: there are more replies than requests. */
static bool hand_out(struct dibs__channel *channel, redisReply **replies, size_t count) DIBS__REQUIRES(channel_mutex)
{
    size_t i = 0;

    for (; i < count && channel->first; i++)
        dibs__flight_answer(channel, replies[i]);
    bool all = i == count;
    for (; i < count; i++)
        freeReplyObject(replies[i]);
    return all;
}

static void wait_for_bytes(struct dibs__channel *channel, struct dibs__link *link, int64_t deadline)
    DIBS__REQUIRES(reading_role)
{
    if (deadline == 0)
        return;
    struct pollfd fd = dibs__link_poll(link, POLLIN, &deadline);
    atomic_store(&channel->polling, true);
    channel->clock->poll(channel->clock, &fd, 1, deadline);
    atomic_store(&channel->polling, false);
}

/* Hands out what the reader has, and breaks the link where that is not what was asked for. True: demoted. */
static bool take_replies(struct dibs__channel *channel, struct dibs__link *link) DIBS__REQUIRES(reading_role)
    DIBS__EXCLUDES(channel_mutex)
{
    redisReply *replies[REPLIES_AT_ONCE];
    struct dibs__error garbage;
    size_t count = REPLIES_AT_ONCE;
    bool good = true, demoted = false;

    while (good && count == REPLIES_AT_ONCE) {
        good = parse(link, replies, &count, &garbage);
        demoted = demoted || is_demoted(channel, link, replies, count);
        channel_mutex_lock(&channel->mutex);
        if (!hand_out(channel, replies, count) && !channel->broken) {
            good = false;
            dibs__error_set(&garbage, DIBS_STORE_ERROR, "%s sent a reply that nobody asked for",
                            channel->endpoint->url.shown);
        }
        if (!good)
            dibs__channel_break(channel, &garbage);
        channel_mutex_unlock(&channel->mutex);
    }
    return demoted;
}

static void read_in(struct dibs__channel *channel, int64_t deadline) DIBS__REQUIRES(channel_mutex)
    DIBS__REQUIRES(reading_role)
{
    struct dibs__link *link = channel->link;
    struct dibs__error error = {DIBS_OK, ""};

    channel_mutex_unlock(&channel->mutex);
    wait_for_bytes(channel, link, deadline);
    long received = dibs__link_receive(link, &error);
    bool demoted = received != 0 && take_replies(channel, link);
    if (demoted)
        dibs__endpoint_failed(channel->endpoint);
    if (demoted && received >= 0)
        dibs__error_set(&error, DIBS_UNAVAILABLE, "%s is a replica", channel->endpoint->url.shown);
    channel_mutex_lock(&channel->mutex);
    if (error.status != DIBS_OK)
        dibs__channel_break(channel, &error);
    if (channel->looking > 0)
        pthread_cond_broadcast(&channel->changed);
}

/* A request whose thread does something else needs no reader: that thread reads when it comes. */
bool dibs__channel_pass_reading_on(struct dibs__channel *channel)
{
    channel_mutex_held(&channel->mutex);
    DIBS__REQUIRE(!channel->reading);
    for (struct dibs__request *request = channel->first; request; request = request->next) {
        if (request->waited_for && !request->away) {
            pthread_cond_signal(&request->cond);
            return false;
        }
    }
    return atomic_load_explicit(&channel->unattended, memory_order_relaxed) > 0;
}

bool dibs__channel_read(struct dibs__channel *channel, int64_t deadline)
{
    channel_mutex_held(&channel->mutex);
    take_reading(channel);
    read_in(channel, deadline);
    leave_reading(channel);
    drop_link(channel);
    return dibs__channel_pass_reading_on(channel);
}

/* While the reading thread still polls, it has not taken what a look at the socket would have shown. */
bool dibs__channel_has_something(const struct dibs__channel *channel)
{
    channel_mutex_held(&channel->mutex);
    DIBS__REQUIRE(channel->link != NULL);
    return dibs__link_look(channel->link) == DIBS__SIGHT_BYTES || (channel->reading && !atomic_load(&channel->polling));
}
