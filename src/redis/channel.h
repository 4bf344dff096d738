/*
 * A link that many threads share. It has no thread of its own, and is made again when it breaks.
 *
 * Commands are pipelined: they run in the order in which they were sent. A thread appends its command, and writes
 * unless another thread does. The first thread that waits for a reply reads for all, hands out the replies in order,
 * and passes the reading on when it has its own reply. When the connection breaks, the commands in flight fail, and the
 * next command opens another connection. The scheduler's thread goes on with what no thread waits for: see
 * dibs__channel_interest.
 *
 * A completion says that a command which no thread waits for has finished. Completions run within dibs__channel_attend
 * and dibs__channel_free, and within no other function. So a thread that sends, waits or looks may hold pointers to
 * what a completion changes or frees; and a completion may send. See base/borrow.h.
 */
#ifndef DIBS_REDIS_CHANNEL_H
#define DIBS_REDIS_CHANNEL_H

#include "base/wait.h"
#include "redis/link.h"

struct dibs__command {
    const char *const *words;       /* texts; NULL ends them */
    const struct dibs__words *more; /* further words behind those; NULL: there are none */
    bool tells_first;               /* what the command publishes wakes somebody who needs the processor more than the
                                       thread that waits for the reply */
    const struct dibs__command *before; /* commands that are sent right before this one, in the same write; they have
                                           only words. The server may run commands of other clients in between */
    unsigned before_count;              /* at most 31 */
};

#define DIBS__BEFORE_REFUSED (UINT32_C(1) << 31)

/* One command and its reply, for the thread that waits for the reply. */
struct dibs__exchange {
    int64_t deadline;  /* when the wait ends at the latest */
    redisReply *reply; /* set with DIBS_OK: belongs to the caller (freeReplyObject); otherwise NULL */
    uint32_t before;   /* set with DIBS_OK; bit i: the i-th command before this one (0: right before it) was answered by
                          OK or by a number above 0. DIBS__BEFORE_REFUSED: one of them by an error */
    bool unknown;      /* set on failure: the server may have got the command */
    struct dibs__error *error; /* filled on failure */
};

/* What a channel tells its owner. Called from any thread, with no lock of the channel held. */
struct dibs__channel_hooks {
    void *context;

    /* A connection was made, with that serial. If that is above 1, an earlier one had broken. */
    void (*opened)(void *context, uint64_t serial);

    /*
     * No connection could be made. silent: meanwhile nothing was received from the server on any other connection
     * either.
     */
    void (*failed)(void *context, const struct dibs__error *error, bool silent);

    /* There is something to do that no thread will do: the scheduler must call dibs__channel_interest again. */
    void (*unattended)(void *context);

    /*
     * NULL for a channel of commands. Otherwise the connections are subscribed to the endpoint's channel, the scheduler
     * alone makes them, and this is called for each reply, which is valid during the call. True: it was a message. It
     * may have been the last one: then the error is filled, and the connection is given up. False: it answers the
     * oldest command in flight, if there is one.
     */
    bool (*pushed)(void *context, uint64_t serial, const redisReply *reply, struct dibs__error *error);
};

struct dibs__channel;
struct dibs__request;

struct dibs__channel *dibs__channel_new(struct dibs__endpoint *endpoint, const struct dibs__channel_hooks *hooks);

/*
 * Requires that no thread is inside. Commands in flight fail, and so do those that were answered but not completed.
 * NULL is fine.
 */
void dibs__channel_free(struct dibs__channel *channel);

/*
 * The number of commands in flight, and whether there is a connection. Both may have changed a moment ago, and cost
 * next to nothing: they serve to pick the least busy of some channels.
 */
unsigned dibs__channel_load(struct dibs__channel *channel);
bool dibs__channel_is_connected(struct dibs__channel *channel);

/* The serial of the connection; 0: there is none, or it is distrusted. Costs as little. */
uint64_t dibs__channel_serial(struct dibs__channel *channel);

/* Whether a thread waits for a reply, or did a moment ago. No thread waits for a command that was given up. */
bool dibs__channel_is_waited_for(struct dibs__channel *channel);

/*
 * Unless there is a connection, has the scheduler try once to connect, as soon as the pause since the last try is over.
 */
void dibs__channel_want(struct dibs__channel *channel);

/*
 * As dibs__channel_want, for a call that can't go on without a connection: the pause since the last try is cut short,
 * and a try that dibs__channel_open_begin began goes on in the background. Returns the number of tries that have ended.
 */
unsigned dibs__channel_need(struct dibs__channel *channel);

enum dibs__opening {
    DIBS__OPENING_AWAITED,
    DIBS__OPENING_DONE,  /* there is a connection */
    DIBS__OPENING_FAILED /* there is none, and the last try failed */
};

/*
 * The state of the connection since dibs__channel_need returned `tries`. While it is awaited, the wait event of `wait`
 * is woken at the end of a try; otherwise nothing is watched any more. If wait is NULL, the caller only looks.
 */
enum dibs__opening dibs__channel_opening(struct dibs__channel *channel, unsigned tries, struct dibs__wait *wait);

/*
 * As dibs__channel_is_connected, but checks whether the server has closed a connection that nobody has used since. Does
 * not block.
 */
bool dibs__channel_look(struct dibs__channel *channel);

/*
 * Whether all that was sent on the channel's connection of that serial arrives before a command on the connection that
 * the view shows, or never: they are the same connection, or the end of the older one was proven before the newer one
 * was ready.
 */
static inline bool dibs__view_is_behind(const struct dibs__link_view *view, uint64_t serial)
{
    return view->serial == serial || view->unended < serial;
}

/*
 * Begins to connect a new channel, as far as that goes without waiting for the server; dibs__channel_open goes on with
 * it. Any status but DIBS_OK: that try has failed.
 */
dibs_status dibs__channel_open_begin(struct dibs__channel *channel, struct dibs__error *error);

/* Connects unless there is a connection. Blocks until the deadline at most, and for the connect timeout at most. */
dibs_status dibs__channel_open(struct dibs__channel *channel, int64_t deadline, struct dibs__link_view *view,
                               struct dibs__error *error);

/*
 * As dibs__channel_open, but never connects: waits until the scheduler has. tries: as dibs__channel_need has returned.
 * Fails when another try has failed, or at the deadline; or at once with DIBS_DENIED if the last try has shown that.
 */
dibs_status dibs__channel_await(struct dibs__channel *channel, unsigned tries, int64_t deadline,
                                struct dibs__link_view *view, struct dibs__error *error);

/*
 * The connection of that serial counts as lost from now on. The scheduler ends it, and first reads what has come unless
 * another thread reads. False: there is no such connection any more.
 */
bool dibs__channel_distrust(struct dibs__channel *channel, uint64_t serial);

/* Called by the scheduler when there is no connection: when the next try is due, and when if a call needs it. */
void dibs__channel_put_off(struct dibs__channel *channel, int64_t next_at, int64_t soonest_at);

/* Called by the scheduler when a connection of messages has ended, and that was dealt with. Before, none is made. */
void dibs__channel_connect_again(struct dibs__channel *channel);

/*
 * Sends a command on the connection of that serial. The request must be given to dibs__channel_wait. NULL: nothing was
 * sent, and the error is filled (DIBS_UNAVAILABLE: that connection no longer exists; DIBS_NO_MEMORY).
 *
 * With deadline 0 this never blocks, and the scheduler sends what the socket does not take yet; the caller may do
 * something else before it waits for the reply. With any other deadline, the caller must wait at once.
 */
struct dibs__request *dibs__channel_send(struct dibs__channel *channel, uint64_t serial,
                                         const struct dibs__command *command, int64_t deadline,
                                         struct dibs__error *error);

enum dibs__reply_state {
    DIBS__REPLY_AWAITED,
    DIBS__REPLY_OVER,  /* dibs__channel_wait will not block: the reply has come, or the command timeout is over */
    DIBS__REPLY_ERROR, /* the same: the reply has come, and is an error */
    DIBS__REPLY_BROKEN /* the same: the connection broke, and there is no reply */
};

/*
 * The state of the reply. The request must still be given to dibs__channel_wait. While the reply is awaited, the thread
 * must wait by the wait and call this again, or end the wait. Meanwhile it may be the thread that reads for all, so it
 * must not do anything else that takes time. Once the reply is no longer awaited, nothing is watched. If wait is NULL,
 * the thread only looks: it takes what lies in the socket, unless another thread reads.
 */
enum dibs__reply_state dibs__channel_progress(struct dibs__channel *channel, struct dibs__request *request,
                                              struct dibs__wait *wait);

/*
 * Waits for the reply and frees the request. Returns DIBS_OK, or why there is no reply.
 *
 * If the deadline comes before the end of the command timeout, the connection stays as it is. At the end of the command
 * timeout the connection is given up, unless the reply has come by then: after the process was stopped for a while, the
 * reply lies in the socket.
 */
dibs_status dibs__channel_wait(struct dibs__channel *channel, struct dibs__request *request,
                               struct dibs__exchange *exchange);

/*
 * Called by the scheduler: sends a command and returns without blocking. `done`, its completion, is called once: by the
 * scheduler's thread within dibs__channel_attend, or within dibs__channel_free, in the order of the commands, with no
 * lock held. It gets the reply, which is valid during the call, or NULL and the error if the connection broke. It is
 * never called before this function returns, nor within another completion. If done is NULL, nobody wants the reply.
 * False: nothing was sent, and done is not called.
 */
typedef void dibs__reply_fn(void *arg, const redisReply *reply, const struct dibs__error *error);
bool dibs__channel_submit(struct dibs__channel *channel, uint64_t serial, const struct dibs__command *command,
                          dibs__reply_fn *done, void *arg);

/*
 * The same for a command that is answered by messages, or by nothing. The words are texts; NULL ends them.
 */
bool dibs__channel_say(struct dibs__channel *channel, uint64_t serial, const char *const *words);

/*
 * Waits until the wait event is woken, which the `pushed` hook may do, but not longer than `until`. Meanwhile the
 * calling thread may be the one that reads for all, so that a message for it wakes no other thread first. Returns when
 * the scheduler must have called dibs__channel_interest again; DIBS__NEVER: it need not.
 */
int64_t dibs__channel_listen(struct dibs__channel *channel, struct dibs__wait_event *wait_event, int64_t until);

/*
 * From now on there are messages that no thread in listen waits for. After the last thread has left listen, the
 * scheduler goes on reading a moment later; without this call, only after a while. Cheap from the second call on.
 * Returns as dibs__channel_listen does.
 */
int64_t dibs__channel_unheard(struct dibs__channel *channel);

/*
 * Corrects what the link of that serial believes of the server's clock, after a reply that told the time: the server's
 * clock is ahead of ours by at least least_us, as a reply shows however long it has lain unread, for example while the
 * process was stopped; and by at most most_us (INT64_MAX: not known), as a reply shows if its time is counted from
 * before its request was sent.
 */
void dibs__channel_set_clock(struct dibs__channel *channel, uint64_t serial, int64_t least_us, int64_t most_us);

/* The current connection, without waiting for one. False: there is none. */
bool dibs__channel_view(struct dibs__channel *channel, struct dibs__link_view *view);

/*
 * Called by the scheduler. interest: what to poll for (fd -1: nothing); *deadline is lowered to the time until when to
 * poll at the latest. attend: goes on after that poll, which returned the events `ready`, and runs completions; never
 * blocks. keep_open: the channel must be connected at all times.
 */
struct pollfd dibs__channel_interest(struct dibs__channel *channel, bool keep_open, int64_t *deadline);
void dibs__channel_attend(struct dibs__channel *channel, bool keep_open, short ready, int64_t now);

/*
 * Between gather and send_gathered, commands that the calling thread sends without waiting are only appended, on any
 * channel. Then they go out together: one write for many commands. No channel may be freed in between. The pairs may be
 * nested.
 */
void dibs__channel_gather(void);
void dibs__channel_send_gathered(void);

/* Called by the scheduler when the server answers others: a try to connect that was put off must be made at once. */
void dibs__channel_hurry(struct dibs__channel *channel);

#endif
