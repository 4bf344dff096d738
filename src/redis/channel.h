/*
 * A link that many threads share, with no thread of its own, and that is made
 * again when it breaks.
 *
 * Commands are pipelined: they run in the order in which they were sent. A
 * thread appends its command, and writes unless another thread does. The first
 * thread that waits reads for all, hands out the replies in order, and when it
 * has its own, passes the reading on. When the connection breaks, what is in
 * flight fails, and the next command opens another. The scheduler's thread goes
 * on with what no thread waits for: see dibs__channel_interest.
 *
 * Completions, which say that such a command is finished, run within
 * dibs__channel_attend and dibs__channel_free, and within no other function. So
 * whoever sends, waits or looks may hold pointers to what a completion changes
 * or frees; and a completion may send. See base/borrow.h.
 */
#ifndef DIBS_REDIS_CHANNEL_H
#define DIBS_REDIS_CHANNEL_H

#include "base/wait.h"
#include "redis/link.h"

struct dibs__command {
    const char *const *words;
    const size_t *sizes; /* NULL: the words are texts, and NULL ends them */
    int count;           /* of the words; only with sizes */
    bool tells_first; /* what it publishes must leave the server before its reply does: costs a PING in the same write
                       */
    const struct dibs__command *before; /* commands that are sent right before it, in the same write; each has words
                                           alone. The server may run commands of other clients in between */
    unsigned before_count;              /* at most 31 */
};

/* For `before`, alone: a node of a cluster must serve a slot that it is just getting (ASKING). */
extern const struct dibs__command dibs__asking;

/* For `before`, alone: the server must not track what the command reads (CLIENT CACHING NO). */
extern const struct dibs__command dibs__caching_no;

/* One command and its reply, for the thread that waits for the reply. */
struct dibs__exchange {
    int64_t deadline;          /* of the wait */
    redisReply *reply;         /* set with DIBS_OK: the caller's (freeReplyObject); otherwise NULL */
    uint32_t before;           /* set with DIBS_OK: bit i: the command that was sent as the i-th before it (0: right
                                  before it) was answered by OK or by a number above 0 */
    bool unknown;              /* set otherwise: the server may have got the command */
    struct dibs__error *error; /* filled otherwise */
};

/* What a channel tells its owner. Called from any thread, with no lock of the channel held. */
struct dibs__channel_hooks {
    void *context;

    /* A connection stands. again: another one had broken before. */
    void (*opened)(void *context, bool again);

    /* No connection could be made. silent: meanwhile the server was heard on no other connection either. */
    void (*failed)(void *context, const struct dibs__error *error, bool silent);

    /* There is something to do that no thread will do: the scheduler must ask for dibs__channel_interest again. */
    void (*unattended)(void *context);
};

struct dibs__channel;
struct dibs__request;

struct dibs__channel *dibs__channel_new(struct dibs__endpoint *endpoint, const struct dibs__clock *clock,
                                        const struct dibs__channel_hooks *hooks, uint32_t connect_timeout_ms,
                                        uint32_t command_timeout_ms);

/* Requires that no thread is inside. What is in flight fails, and so does what was answered but not completed. NULL is
 * fine. */
void dibs__channel_free(struct dibs__channel *channel);

/*
 * How many commands are in flight, and whether a connection stands. Both were so
 * a moment ago, and cost next to nothing: to pick the least busy of some channels.
 */
unsigned dibs__channel_load(struct dibs__channel *channel);
bool dibs__channel_is_connected(struct dibs__channel *channel);

/* Whether a thread waits for a reply, or did a moment ago. For a command that was given up, no thread waits. */
bool dibs__channel_is_waited_for(struct dibs__channel *channel);

/* Has the scheduler try once to connect, unless a connection stands, as soon as the pause since the last try is over.
 */
void dibs__channel_want(struct dibs__channel *channel);

/*
 * As dibs__channel_want, for a call that can't go on without a connection: the pause since the last try is cut short,
 * and a try that dibs__channel_open_begin began goes on in the background. Returns how many tries have ended.
 */
unsigned dibs__channel_need(struct dibs__channel *channel);

enum dibs__opening {
    DIBS__OPENING_AWAITED,
    DIBS__OPENING_DONE,  /* a connection stands */
    DIBS__OPENING_FAILED /* none does, and one could not be made */
};

/*
 * How far it is with the connection since dibs__channel_need returned `tries`. As
 * long as it is awaited, the wait's wait event is woken at the end of a try;
 * else nothing is watched any more. wait NULL: the caller only looks.
 */
enum dibs__opening dibs__channel_opening(struct dibs__channel *channel, unsigned tries, struct dibs__wait *wait);

/*
 * As dibs__channel_is_connected, but looks whether the server has closed a connection
 * that nobody has used since. Waits for nothing.
 */
bool dibs__channel_look(struct dibs__channel *channel);

/*
 * Whether all that was sent on the channel's connection of that serial arrives
 * before a command on the connection that the view shows, or never: they are the
 * same connection, or the end of that one was proven before this one was ready.
 */
static inline bool dibs__view_is_behind(const struct dibs__link_view *view, uint64_t serial)
{
    return view->serial == serial || view->unended < serial;
}

/*
 * Begins to connect a channel that is new, as far as that goes without waiting
 * for the server; dibs__channel_open goes on with it. Any status but DIBS_OK:
 * that try has failed.
 */
dibs_status dibs__channel_open_begin(struct dibs__channel *channel, struct dibs__error *error);

/* Connects unless a connection stands. Blocks, at most until the deadline and for the connect timeout. */
dibs_status dibs__channel_open(struct dibs__channel *channel, int64_t deadline, struct dibs__link_view *view,
                               struct dibs__error *error);

/* From now on the server tracks what is read on the connection of that serial. */
void dibs__channel_set_tracked(struct dibs__channel *channel, uint64_t serial);

/*
 * Sends a command on the connection of that serial. The request must be given
 * to dibs__channel_wait, and until then the error must live. NULL on failure:
 * nothing was sent, and the error is filled (DIBS_UNAVAILABLE: that connection
 * is no more; DIBS_NO_MEMORY).
 *
 * Deadline 0: never blocks, and the scheduler sends what the socket does not
 * take yet. The caller may do something else before it waits for the reply.
 * With any other deadline the caller must wait at once.
 */
struct dibs__request *dibs__channel_send(struct dibs__channel *channel, uint64_t serial,
                                         const struct dibs__command *command, int64_t deadline,
                                         struct dibs__error *error);

enum dibs__reply_state {
    DIBS__REPLY_AWAITED,
    DIBS__REPLY_OVER,  /* dibs__channel_wait will not wait: the reply is there, or the command timeout is over */
    DIBS__REPLY_ERROR, /* the same: the reply is there, and an error */
    DIBS__REPLY_BROKEN /* nor here: the connection broke, and there is no reply */
};

/*
 * How far it is with the reply. The request must still be given to
 * dibs__channel_wait. As long as the reply is awaited, the thread must wait by
 * the wait and call this again, or end the wait; meanwhile it may be the one
 * that reads for all, so it must not do anything else that takes time. Where the
 * reply is awaited no more, nothing is watched. wait NULL: the thread only looks,
 * and takes what lies in the socket, unless another one reads.
 */
enum dibs__reply_state dibs__channel_progress(struct dibs__channel *channel, struct dibs__request *request,
                                              struct dibs__wait *wait);

/*
 * Waits for the reply and frees the request. DIBS_OK, or why there is no reply.
 *
 * If the deadline comes before the end of the command timeout, the connection
 * stays as it is. At the end of the command timeout the connection is given up,
 * unless the reply has come by then: after the process was stopped for a while,
 * the reply lies in the socket.
 */
dibs_status dibs__channel_wait(struct dibs__channel *channel, struct dibs__request *request,
                               struct dibs__exchange *exchange);

/*
 * The scheduler's: sends a command and returns; never blocks. done, its
 * completion, is called once, by the scheduler's thread within
 * dibs__channel_attend, or within dibs__channel_free, in the order of the
 * commands, with no lock held: with the reply, which is valid during the call,
 * or with NULL and the error where the connection broke. It is never called
 * before this function returns, nor within another completion. done NULL: nobody
 * wants the reply. False: nothing was sent, and done is not called.
 */
typedef void dibs__reply_fn(void *arg, const redisReply *reply, const struct dibs__error *error);
bool dibs__channel_submit(struct dibs__channel *channel, uint64_t serial, const struct dibs__command *command,
                          dibs__reply_fn *done, void *arg);

/*
 * Corrects what the link of that serial believes of the server's clock, after a reply that told the time: the server's
 * clock is so far ahead of ours at least. The link never believes that it is less than before, because the reply may
 * have lain unread for a while, as where the process was stopped.
 */
void dibs__channel_set_clock(struct dibs__channel *channel, uint64_t serial, int64_t server_ahead_us);

/*
 * The same the other way round: the server's clock is so far ahead at most. That is what a reply tells whose time is
 * counted from before its request was sent, however late it is read.
 */
void dibs__channel_lower_clock(struct dibs__channel *channel, uint64_t serial, int64_t most_ahead_us);

/* The connection that stands now, without waiting for one. False: none does. */
bool dibs__channel_view(struct dibs__channel *channel, struct dibs__link_view *view);

/*
 * The scheduler's. interest: what to poll for (fd -1: nothing) and until when at
 * the latest. attend: goes on after that poll, which answered `ready`, and runs
 * completions; never blocks. keep_open: the channel must be connected at all
 * times.
 */
void dibs__channel_interest(struct dibs__channel *channel, bool keep_open, struct pollfd *fd, int64_t *deadline);
void dibs__channel_attend(struct dibs__channel *channel, bool keep_open, short ready, int64_t now);

/*
 * From gather to send_gathered, what the calling thread sends without waiting is
 * only appended, on any channel, and then goes out together: one write for many
 * commands. No channel may be freed in between. Both may be nested.
 */
void dibs__channel_gather(void);
void dibs__channel_send_gathered(void);

/* The scheduler's: the server answers others, so a try to connect that was put off must be made at once. */
void dibs__channel_hurry(struct dibs__channel *channel);

#endif
