/*
 * A pipelined connection that many threads share, with no thread of its own.
 *
 * A thread appends its command and writes if nobody is writing; the first that
 * waits reads for all, hands out the replies in order, and when it has its own
 * passes the reading on. Commands run in the order in which they were sent. A
 * broken connection fails what was in flight, and the next command opens
 * another. The scheduler thread drives what no thread waits for: see
 * dibs__channel_interest.
 */
#ifndef DIBS_REDIS_CHANNEL_H
#define DIBS_REDIS_CHANNEL_H

#include "redis/link.h"

struct dibs__command {
    int count;
    const char *const *words;
    const size_t *sizes;
};

/* What a channel tells its owner. Called from any thread, with no lock of the channel held. */
struct dibs__channel_hooks {
    void *context;
    void (*opened)(void *context, bool again); /* a connection stands; again: after one that had broken */
    void (*failed)(void *context, const struct dibs__error *error, bool silent); /* none could be made; silent: nor was
                                                                                    the server heard on any other */
    void (*unattended)(void *context); /* something is in flight that no thread waits for: the scheduler is to look */
};

struct dibs__channel;
struct dibs__request;

struct dibs__channel *dibs__channel_new(struct dibs__endpoint *endpoint, const struct dibs__clock *clock,
                                        const struct dibs__channel_hooks *hooks, uint32_t connect_timeout_ms,
                                        uint32_t command_timeout_ms);

/* No thread may be inside. What is in flight fails. NULL is fine. */
void dibs__channel_free(struct dibs__channel *channel);

/*
 * How many commands are in flight, and whether a connection stands, as it was a
 * moment ago: to pick the least busy of some channels. Both cost next to nothing.
 */
unsigned dibs__channel_load(struct dibs__channel *channel);
bool dibs__channel_stands(struct dibs__channel *channel);

/* Whether a thread waits for a reply, as it was a moment ago: a command that was given up makes nobody wait. */
bool dibs__channel_is_waited_for(struct dibs__channel *channel);

/* The scheduler is to try once to connect it, unless it is connected, when its last attempt is long enough ago. */
void dibs__channel_want(struct dibs__channel *channel);

/*
 * Like dibs__channel_stands, but looks for an end of the connection that nobody
 * has met, because nobody used it. Waits for nothing. The requests that fail by
 * this are told on the calling thread.
 */
bool dibs__channel_look(struct dibs__channel *channel);

/* What is to be known of a link to send scripts on it. */
struct dibs__link_view {
    struct dibs__link_id id;
    int64_t server_ahead_us;
    uint64_t serial;  /* of this connection, within the channel */
    uint64_t unended; /* what was sent on a connection up to that serial may still arrive: its end is not proven */
    bool may_publish;
    bool cluster;
    uint64_t server; /* see dibs__link_server */
    char shas[DIBS__SCRIPT_COUNT][41];
};

/*
 * Whether nothing that was sent on the channel's connection of that serial can
 * arrive behind a command on the connection that view shows: that is the same
 * connection, or a later one before which the server ended the others.
 */
static inline bool dibs__view_is_behind(const struct dibs__link_view *view, uint64_t serial)
{
    return view->serial == serial || view->unended < serial;
}

/* Connects unless it is connected, at most until the deadline and for the connect timeout. Blocks. */
dibs_status dibs__channel_open(struct dibs__channel *channel, int64_t deadline, struct dibs__link_view *view,
                               struct dibs__error *error);

/*
 * Sends a command on the connection of that serial. The request is to be given
 * to dibs__channel_wait, until when the error must live. NULL on failure with
 * the error filled: nothing was sent (DIBS_UNAVAILABLE: that connection is no
 * more, or DIBS_NO_MEMORY). Deadline 0: never blocks (what the socket does not
 * take yet, the scheduler sends), and the caller may do something else before
 * it waits for the reply; otherwise it is to wait at once.
 */
struct dibs__request *dibs__channel_send(struct dibs__channel *channel, uint64_t serial,
                                         const struct dibs__command *command, int64_t deadline,
                                         struct dibs__error *error);

/*
 * Waits for the reply at most until that time, and leaves the request as it is:
 * it is still to be given to dibs__channel_wait. True: that will not have to
 * wait, for the reply is there or the connection broke. False: neither until
 * then, or until the request has timed out.
 */
bool dibs__channel_await(struct dibs__channel *channel, struct dibs__request *request, int64_t until);

/*
 * Waits for the reply and frees the request. DIBS_OK: *reply is the caller's
 * (freeReplyObject). Otherwise the error is filled and *unknown says whether
 * the server may have got the command. A request that is given up before the
 * command timeout leaves the connection as it is; one that waited for all of
 * it ends the connection, unless the reply has come by then: where the process
 * was stopped, it lies in the socket.
 */
dibs_status dibs__channel_wait(struct dibs__channel *channel, struct dibs__request *request, int64_t deadline,
                               redisReply **reply, bool *unknown, struct dibs__error *error);

/*
 * Sends a command and returns; never blocks. done is called once, from any
 * thread, with no lock held: with the reply (which is not its to keep) or,
 * where the connection broke, with NULL and the error; in the order of the
 * commands, if no other thread uses the channel. False: nothing was sent, done
 * is not called. Only the scheduler thread calls this.
 */
typedef void dibs__reply_fn(void *arg, const redisReply *reply, const struct dibs__error *error);
bool dibs__channel_submit(struct dibs__channel *channel, uint64_t serial, const struct dibs__command *command,
                          dibs__reply_fn *done, void *arg);

/* A reply told the server's clock: what the link of that serial believed of it was wrong. */
void dibs__channel_set_clock(struct dibs__channel *channel, uint64_t serial, int64_t server_ahead_us);

/* The connection that stands now, without waiting for one. False: none does. */
bool dibs__channel_view(struct dibs__channel *channel, struct dibs__link_view *view);

/*
 * For the scheduler's event loop, which alone calls these two. interest: what
 * to poll for (fd -1: nothing) and until when at the latest. attend: goes on,
 * never blocks. keep_open: the channel is to be connected at all times.
 */
void dibs__channel_interest(struct dibs__channel *channel, bool keep_open, struct pollfd *fd, int64_t *deadline);
void dibs__channel_attend(struct dibs__channel *channel, bool keep_open, short ready, int64_t now);

/* The scheduler's: the server answers others, so an attempt to connect that was put off is to be made at once. */
void dibs__channel_hurry(struct dibs__channel *channel);

#endif
