/*
 * What the files of a channel share, and nobody else includes:
 *
 *     channel.c         what other files call: sending, waiting, asking after the channel
 *     channel_flight.c  the requests in flight
 *     channel_io.c      the writing and the reading role, and the end of a link
 *     channel_wait.c    waiting for several channels at the same time
 *     channel_open.c    making the next link
 *     channel_poll.c    what the scheduler's event loop calls
 *
 * Lock discipline
 *
 * `mutex` guards every field that does not say otherwise. It is a leaf, except
 * that a transport may lock its own beneath it. It is let go of before any I/O
 * and before every callback. (To look at what lies in the socket, which neither
 * takes nor waits, does not count as I/O.)
 *
 * Three roles are each taken, under the mutex, by one thread at a time:
 *     writing  may send on the link without the mutex; alone it changes `sending`.
 *     reading  may receive on the link without the mutex; it owns the link's reader.
 *     opening  makes the next link while there is none; it owns the connector's try. Whoever leaves it says that no
 *              link is `wanted` or `needed` any more.
 *
 * Whoever finds that a link broke marks it `broken` and shuts it, which brings
 * the owners of the roles back. All requests in flight fail at that moment.
 * The last to leave a role frees the link.
 *
 * Completions (done_fn) run on the scheduler's thread alone. Whoever finishes a
 * request that has one adds it to `finished`, and calls for the scheduler.
 *
 * A thread that waits for its reply sleeps by its request's sleeper until
 *     request->done, or it must read, or its deadline. It looks at `done`
 *     without the mutex: whoever was woken meets no mutex at all.
 * A thread that waits for several requests or links has a wait for each, and
 *     sleeps until one is done, stands or has failed, it must read, or its
 *     deadline: in poll(2) on those links whose reading role it took, or by its
 *     wait event, which is woken under the mutex, so that it still exists.
 *     Where no thread waits and the wait event tells instead, the scheduler reads.
 * A thread whose time is over while another reads sleeps on `changed` until
 *     what that thread has taken off the socket is handed out, but no longer than
 *     HANDED_OUT_MS; or, where the bytes lie in the socket still, until
 *     DIBS__LOOK_AGAIN_MS have passed. If the link would be given up, it does so
 *     again and again while there is something to read, for LAST_LOOK_MS.
 * The reading thread says so in `takes` before it receives, never afterwards: it may be put off the processor
 *     between the two, and nobody else could tell that from a server that is silent.
 * A thread that needs a link sleeps on `changed` until
 *     a link stands, or a try that it waited for failed, or its deadline.
 */
#ifndef DIBS_REDIS_CHANNEL_PARTS_H
#define DIBS_REDIS_CHANNEL_PARTS_H

#include "base/sleeper.h"
#include "redis/channel.h"
#include "redis/connector.h"

DIBS__MUTEX_CLASS(channel_mutex);

/* The request of a command, from when it was appended to the link's bytes until its reply was taken. */
struct dibs__request {
    struct dibs__request *next DIBS__GUARDED_BY(channel_mutex); /* in flight, or finished */
    int64_t expires DIBS__GUARDED_BY(channel_mutex);            /* without a reply by then the link is given up */
    uint64_t begin DIBS__GUARDED_BY(channel_mutex);  /* the place of its first byte in all bytes of the link */
    bool waited_for DIBS__GUARDED_BY(channel_mutex); /* a thread takes the reply; false: done_fn does, or nobody */
    bool away DIBS__GUARDED_BY(channel_mutex);       /* that thread does something else, and sleeps for no reply */
    bool asleep DIBS__GUARDED_BY(channel_mutex);     /* that thread sleeps, or is about to, and must be woken; with
                                                        `away`: the wait event tells instead */
    atomic_bool done;                                /* atomic; written under mutex; no longer in flight: answered, or
                                                        failed. Then the request is the waiting thread's alone */
    unsigned before DIBS__GUARDED_BY(channel_mutex); /* so many replies come before its own */
    uint32_t said_before; /* the reading thread's until done, then the taker's; as exchange->before */
    bool tells_first;     /* read-only once sent; as of the command */
    bool unknown;         /* set before done; failed, and the server may have got the command */
    struct dibs__error *error DIBS__GUARDED_BY(channel_mutex); /* the waiting thread's, for the reason of a failure */
    redisReply *reply;            /* the reading thread's until done, then the taker's; NULL: failed */
    struct dibs__sleeper sleeper; /* has its own guard */
    struct dibs__wait *wait DIBS__GUARDED_BY(channel_mutex); /* by whose wait event that thread is woken; NULL: by the
                                                                  sleeper */
    dibs__reply_fn *done_fn; /* read-only once sent; NULL: nobody takes the reply, or a thread does */
    void *arg;               /* read-only once sent; of done_fn */
};

/* Threads to wake, with the mutex unlocked. */
#define DIBS__WAKES_MAX 66
struct dibs__wakes {
    size_t count;
    struct dibs__sleeper *sleepers[DIBS__WAKES_MAX];
};

/* Who has the opening role. */
enum dibs__opener {
    DIBS__OPENER_NOBODY,
    DIBS__OPENER_SCHEDULER, /* the scheduler's thread */
    DIBS__OPENER_NEXT,      /* the next thread that needs a link; a try is going on */
    DIBS__OPENER_THREAD,    /* a thread that needs a link */
};

struct dibs__channel {
    struct dibs__endpoint *endpoint;  /* read-only after new */
    const struct dibs__clock *clock;  /* read-only after new */
    struct dibs__channel_hooks hooks; /* read-only after new */
    uint32_t command_timeout_ms;      /* read-only after new */
    struct dibs__mutex mutex;

    struct dibs__link *link DIBS__GUARDED_BY(channel_mutex); /* NULL: there is none */
    bool broken DIBS__GUARDED_BY(channel_mutex);             /* the link is at its end; the roles must be left */
    bool reading DIBS__GUARDED_BY(channel_mutex);            /* a thread has the reading role */
    bool writing DIBS__GUARDED_BY(channel_mutex);            /* a thread has the writing role */
    int64_t
        no_yield_until DIBS__GUARDED_BY(channel_mutex); /* a thread that writes lets no others run first until then */
    bool in_send DIBS__GUARDED_BY(channel_mutex);       /* any part of `sending` may have left by now */
    unsigned looking DIBS__GUARDED_BY(channel_mutex);   /* threads that wait for the end of a round of reading */
    uint64_t serial DIBS__GUARDED_BY(channel_mutex);    /* of the link, or of the last one where there is none */
    uint64_t unended DIBS__GUARDED_BY(channel_mutex); /* of the newest link whose end is not proven; 0: there is none */
    struct dibs__error broken_by DIBS__GUARDED_BY(channel_mutex);  /* why that link broke */
    struct dibs__error open_error DIBS__GUARDED_BY(channel_mutex); /* of the last try; DIBS_OK: it made a link */
    unsigned tries DIBS__GUARDED_BY(channel_mutex);                /* how many have ended */
    struct dibs__wait *waits DIBS__GUARDED_BY(channel_mutex);      /* woken when a try has ended */
    uint64_t received_before DIBS__GUARDED_BY(channel_mutex); /* how often the server was heard before the last try */
    enum dibs__opener opener DIBS__GUARDED_BY(channel_mutex);
    pthread_cond_t changed;           /* a try, a link or a round of reading has ended */
    struct dibs__connector connector; /* its try is the opening role's, its pauses are the scheduler thread's */

    struct dibs__buffer out DIBS__GUARDED_BY(channel_mutex);     /* commands that the writing role has not taken yet */
    struct dibs__buffer sending DIBS__GUARDED_BY(channel_mutex); /* the bytes that the writing role must send */
    uint64_t queued DIBS__GUARDED_BY(channel_mutex);     /* how many bytes were appended since the link was made */
    uint64_t handed_out DIBS__GUARDED_BY(channel_mutex); /* how many of those were moved to `sending` */
    struct dibs__request *first DIBS__GUARDED_BY(channel_mutex); /* in flight, in the order of the commands */
    struct dibs__request *last DIBS__GUARDED_BY(channel_mutex);
    struct dibs__request *spare DIBS__GUARDED_BY(channel_mutex); /* requests for later commands */
    _Atomic(struct dibs__request *) returned; /* atomic; more of them, by threads without the mutex */
    struct dibs__request *finished DIBS__GUARDED_BY(channel_mutex); /* those whose done_fn must be called, in order */
    struct dibs__request **finished_end DIBS__GUARDED_BY(channel_mutex);

    atomic_uint in_flight;  /* atomic; changed under mutex; requests in flight */
    atomic_uint unattended; /* atomic; changed under mutex; those of them that no thread waits for */
    atomic_bool standing;   /* atomic; changed under mutex; there is a link, and it is not broken */
    struct dibs__wake
        bell DIBS__GUARDED_BY(channel_mutex); /* has_bell; of the thread that polls with the reading role */
    bool has_bell DIBS__GUARDED_BY(channel_mutex);
    atomic_uint takes; /* atomic; the reading role's; odd from before each receive until what it took is handed out */
};

/* ----------------------------------------------------------- channel_flight.c */

static inline bool dibs__request_is_done(const struct dibs__request *request)
{
    return atomic_load_explicit(&request->done, memory_order_acquire);
}

/*
 * A request for a command; NULL: no memory, and the error is filled. Requests
 * are used again, and freed with the channel: whoever wakes the thread of a
 * request may do so when that thread has gone on already.
 */
struct dibs__request *dibs__request_new(struct dibs__channel *channel, struct dibs__error *error)
    DIBS__REQUIRES(channel_mutex);

/* Gives the request back, and frees its reply. With or without the mutex. */
void dibs__request_free(struct dibs__channel *channel, struct dibs__request *request);
void dibs__flight_free_spare(struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex);

/* Appends a command, and its request to those in flight. Requires a link that stands. False: no memory. */
bool dibs__flight_append(struct dibs__channel *channel, struct dibs__request *request,
                         const struct dibs__command *command) DIBS__REQUIRES(channel_mutex);

/* Gives the oldest request in flight its reply. Requires that one is in flight, and room in *wakes. */
void dibs__flight_answer(struct dibs__channel *channel, redisReply *reply, struct dibs__wakes *wakes)
    DIBS__REQUIRES(channel_mutex);

/* Wakes the threads, whose number becomes 0. */
void dibs__wakes_run(struct dibs__wakes *wakes);

/* Fails all that is in flight, and wakes the threads. sent: how many bytes of the link may have left. */
void dibs__flight_fail(struct dibs__channel *channel, uint64_t sent, const struct dibs__error *why)
    DIBS__REQUIRES(channel_mutex);

/*
 * The scheduler's: runs the completions of what has finished. Its thread holds
 * no pointers to what they may change (base/borrow.h): so dibs__channel_attend
 * and dibs__channel_free call this, at their ends, and nobody else.
 */
void dibs__flight_run_completions(struct dibs__channel *channel) DIBS__EXCLUDES(channel_mutex);

/* What was answered and not completed yet fails like the rest. */
void dibs__flight_drop_replies(struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex);

/* --------------------------------------------------------------- channel_io.c */

/* A link stands: there is one, and it is not broken. Whoever has a role on a broken link is about to leave it. */
static inline bool dibs__channel_has_link(const struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex)
{
    return channel->link && !channel->broken;
}

static inline bool dibs__channel_has_unsent(const struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex)
{
    return channel->sending.used > 0 || channel->out.used > 0;
}

/* Whether the calling thread gathers (channel.h): the channel will be sent from later. */
bool dibs__channel_is_gathered(struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex);

/* The link, if one stands, is of no use any more: fails what is in flight. */
void dibs__channel_break(struct dibs__channel *channel, const struct dibs__error *why) DIBS__REQUIRES(channel_mutex);

/* The same, because a reply took longer than the command timeout. */
void dibs__channel_time_out(struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex);

/*
 * Sends what was appended, unless another thread does. Waits for the socket
 * until the deadline (0: not at all, and later if the calling thread gathers).
 * Lets go of the mutex in between.
 */
void dibs__channel_flush(struct dibs__channel *channel, int64_t deadline) DIBS__REQUIRES(channel_mutex);

/*
 * Reading: waits for bytes until the deadline (0: not at all) and hands out the
 * replies that are complete; again and again until `own` is done, the link
 * breaks, there is something to send or the deadline has passed. own NULL: one
 * round. Lets go of the mutex in between. Requires a link that stands, and that
 * nobody has the reading role. *wakes: the caller must run them once the mutex is
 * unlocked. True: the caller must tell the scheduler to read what comes next.
 */
bool dibs__channel_read(struct dibs__channel *channel, const struct dibs__request *own, int64_t deadline,
                        struct dibs__wakes *wakes) DIBS__REQUIRES(channel_mutex);

/*
 * The same for a thread that polls by itself. It takes the reading role, reads on
 * as long as it is waiting for the reply, and ends that. The requirements and
 * what is returned are those above, except that begin_reading returns false where
 * it can't be done: no descriptor is left.
 */
bool dibs__channel_begin_reading(struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex);
void dibs__channel_read_on(struct dibs__channel *channel, short ready, struct dibs__wakes *wakes)
    DIBS__REQUIRES(channel_mutex);
bool dibs__channel_end_reading(struct dibs__channel *channel, struct dibs__wakes *wakes) DIBS__REQUIRES(channel_mutex);

/* The waits for such a reply, where it may pay to poll before sleeping; else NULL. */
struct dibs__spin *dibs__channel_spin(const struct dibs__channel *channel, const struct dibs__request *own);

/* Nobody reads: a thread that will is woken, if any waits. True: none does, and the caller must tell the scheduler to.
 */
bool dibs__channel_pass_reading_on(struct dibs__channel *channel, struct dibs__wakes *wakes)
    DIBS__REQUIRES(channel_mutex);

#define DIBS__LOOK_AGAIN_MS                                                                                            \
    5 /* so often a thread looks what has become of what another thread must take or hand out                          \
       */

/* Whether what a receive took, which a thread began with that count of `takes`, may not be handed out yet. */
static inline bool dibs__channel_is_taking(unsigned takes)
{
    return takes % 2 != 0;
}

/* Whether a reply may be about to come: bytes lie in the socket, or were taken and not handed out. Requires a link. */
bool dibs__channel_has_something(const struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex);

/* -------------------------------------------------------------- channel_wait.c */

/* A try has ended. */
void dibs__channel_wake_waits(struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex);

/* ------------------------------------------------------------------ channel.c */

/* Unlocks the mutex, then does what must not be done under it. Completions are the scheduler's to run. */
void dibs__channel_unlock_and_tell(struct dibs__channel *channel, struct dibs__wakes *wakes, bool tell)
    DIBS__RELEASES(channel_mutex);

/* ------------------------------------------------------------- channel_open.c */

/*
 * The scheduler's: begins a try that is due, or goes on with one that it makes or that was left to it. Requires that no
 * thread has the opening role. Lets go of the mutex in between.
 */
void dibs__channel_attend_try(struct dibs__channel *channel, bool keep_open, int64_t now) DIBS__REQUIRES(channel_mutex);

#endif
