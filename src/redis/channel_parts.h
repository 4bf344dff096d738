/*
 * What the files of a channel share, and nobody else includes. doc/ARCHITECTURE.md says what each file is for.
 *
 * Lock discipline
 *
 * `mutex` guards every field that does not say otherwise. It is a leaf, except that a transport may lock its own mutex
 * beneath it. It is unlocked before any I/O and before every callback. (Looking at what lies in the socket takes
 * nothing and does not block, so it does not count as I/O.)
 *
 * Three roles are each taken, under the mutex, by one thread at a time:
 *
 * - writing: may send on the link without the mutex; only this role changes `sending`.
 * - reading: may receive on the link without the mutex; it owns the link's reader.
 * - opening: makes the next link while there is none; it owns the connector's try. The end of a try clears `wanted` and
 *   `needed`.
 *
 * A thread that finds that a link broke marks it `broken` and shuts it, which brings the owners of the roles back. All
 * requests in flight fail at that moment. The last thread to leave a role frees the link, and has the scheduler told.
 *
 * A thread that leaves something to the scheduler, because no thread will do it, sets `tells`. The scheduler is told
 * once the mutex is unlocked (dibs__channel_unlock).
 *
 * Completions (done_fn) run only on the scheduler's thread. A thread that finishes a request with a done_fn adds the
 * request to `finished`, which is left to the scheduler, too.
 *
 * What threads wait for:
 *
 * - A thread that waits for its reply sleeps by its request's sleeper until request->done, or it must read, or its
 *   deadline. It looks at `done` without the mutex, so that a woken thread meets no locked mutex.
 * - A thread that waits for several requests or links has a wait for each. It sleeps until one of them is done, ready
 *   or has failed, or it must read, or its deadline: in poll(2) on the links whose reading role it took, or by its wait
 *   event. The wait event is woken under the mutex, so that it still exists. If no thread waits and the wait event
 *   tells instead, the scheduler reads.
 * - A thread whose time is over while another thread reads sleeps on `changed` until what that thread has taken off the
 *   socket is handed out, for at most HANDED_OUT_MS; or, if the bytes still lie in the socket, for DIBS__LOOK_AGAIN_MS.
 *   If the link would be given up, the thread repeats this while there is something to read, for LAST_LOOK_MS.
 * - A thread in listen waits for messages until its wait event is woken, or its deadline. It takes the reading role if
 *   nobody has it, and reads in poll(2). Otherwise it sleeps by its wait event, until it must read. A reader that
 *   leaves has the thread read that has listened longest. If no other listens, nobody reads until `quiet_until`,
 *   because most likely another thread will listen soon; then the scheduler does. That time is short if some messages
 *   are for no thread in listen (`unheard`). A thread that takes the role while the scheduler may be in poll(2) on the
 *   link (`polled`) has the scheduler told.
 * - A thread that needs a link sleeps on `changed` until there is a link, or a try that it waited for failed, or its
 *   deadline.
 *
 * The reading thread records in `takes` that it receives before it does so, never afterwards: it may be put off the
 * processor between the two, and nobody else could tell that from a silent server.
 */
#ifndef DIBS_REDIS_CHANNEL_PARTS_H
#define DIBS_REDIS_CHANNEL_PARTS_H

#include "base/list.h"
#include "base/sleeper.h"
#include "redis/channel.h"
#include "redis/connector.h"

DIBS__MUTEX_CLASS(channel_mutex);

/* The request of a command, from when it was appended to the link's bytes until its reply was taken. */
struct dibs__request {
    DIBS__LINKS(struct dibs__request) links DIBS__GUARDED_BY(channel_mutex); /* in flight, finished, or unused */
    int64_t expires DIBS__GUARDED_BY(channel_mutex); /* if there is no reply by then, the link is given up */
    uint64_t begin DIBS__GUARDED_BY(channel_mutex);  /* position of its first byte among all bytes of the link */
    bool waited_for DIBS__GUARDED_BY(channel_mutex); /* a thread takes the reply; false: done_fn does, or nobody */
    bool away DIBS__GUARDED_BY(channel_mutex);   /* that thread does something else, and does not sleep for the reply */
    bool asleep DIBS__GUARDED_BY(channel_mutex); /* that thread sleeps, or is about to, and must be woken; with `away`:
                                                    the wait event tells instead */
    atomic_bool done; /* atomic; written under mutex; the request was answered or failed, is no longer in flight, and
                         belongs to the waiting thread alone */
    unsigned before DIBS__GUARDED_BY(channel_mutex); /* number of replies that come before its own */
    uint32_t said_before; /* the reading thread's until done, then the taker's; as exchange->before */
    bool tells_first;     /* read-only once sent; as in struct dibs__command */
    bool unknown;         /* set before done; the request failed, and the server may have got the command */
    redisReply *reply;    /* the reading thread's until done, then the taker's; NULL: the request failed */
    dibs_status why;      /* set before done; why the request failed: the channel's text may be that of a later end */
    struct dibs__sleeper sleeper;                            /* has its own guard */
    struct dibs__wait *wait DIBS__GUARDED_BY(channel_mutex); /* wakes that thread; NULL: the sleeper does */
    dibs__reply_fn *done_fn; /* read-only once sent; NULL: nobody takes the reply, or a thread does */
    void *arg;               /* read-only once sent; argument of done_fn */
};

/* A thread in listen. It is on the thread's stack. */
struct dibs__listening {
    DIBS__LINKS(struct dibs__listening) links DIBS__GUARDED_BY(channel_mutex);
    struct dibs__wait_event *wait_event; /* read-only */
};

#define DIBS__WOKEN_MAX 66 /* threads that must be woken once the mutex is unlocked */

/* The owner of the opening role. */
enum dibs__opener {
    DIBS__OPENER_NOBODY,
    DIBS__OPENER_SCHEDULER, /* the scheduler's thread */
    DIBS__OPENER_NEXT,      /* the next thread that needs a link; a try is going on */
    DIBS__OPENER_THREAD,    /* a thread that needs a link */
};

struct dibs__channel {
    struct dibs__endpoint *endpoint;  /* read-only after new */
    struct dibs__channel_hooks hooks; /* read-only after new */
    struct dibs__mutex mutex;

    struct dibs__link *link DIBS__GUARDED_BY(channel_mutex); /* NULL: there is none */
    bool broken DIBS__GUARDED_BY(channel_mutex);             /* the link has ended; the roles must be left */
    bool reading DIBS__GUARDED_BY(channel_mutex);            /* a thread has the reading role */
    bool writing DIBS__GUARDED_BY(channel_mutex);            /* a thread has the writing role */
    int64_t no_yield_until DIBS__GUARDED_BY(channel_mutex);  /* until then, a writer lets no others run first */
    bool polled DIBS__GUARDED_BY(channel_mutex);             /* the scheduler may be in poll(2) to read the link */
    int64_t quiet_until DIBS__GUARDED_BY(channel_mutex);     /* until then, the scheduler does not read */
    struct dibs__listening *listeners DIBS__GUARDED_BY(channel_mutex); /* in the order in which they came */
    bool in_send DIBS__GUARDED_BY(channel_mutex);        /* any part of `sending` may have been sent by now */
    unsigned looking DIBS__GUARDED_BY(channel_mutex);    /* threads that wait for the end of a round of reading */
    uint64_t serial DIBS__GUARDED_BY(channel_mutex);     /* of the link, or of the last one if there is none */
    uint64_t dealt_with DIBS__GUARDED_BY(channel_mutex); /* with `pushed`: serial of the newest link whose end was dealt
                                                            with */
    uint64_t unended DIBS__GUARDED_BY(channel_mutex);    /* of the newest link whose end is not proven; 0: none */
    struct dibs__error broken_by DIBS__GUARDED_BY(channel_mutex);  /* why the last link broke; requests fail by it */
    struct dibs__error open_error DIBS__GUARDED_BY(channel_mutex); /* error of the last try; DIBS_OK: it made a link */
    unsigned tries DIBS__GUARDED_BY(channel_mutex);                /* number of tries that have ended */
    struct dibs__wait *waits DIBS__GUARDED_BY(channel_mutex);      /* woken when a try has ended */
    uint64_t received_before DIBS__GUARDED_BY(channel_mutex);      /* endpoint->received when the last try began */
    enum dibs__opener opener DIBS__GUARDED_BY(channel_mutex);
    bool tells DIBS__GUARDED_BY(channel_mutex); /* the scheduler must be told that something is left to it */
    pthread_cond_t changed;                     /* a try, a link or a round of reading has ended */
    struct dibs__connector connector; /* its try belongs to the opening role, its pauses to the scheduler's thread */

    struct dibs__buffer out DIBS__GUARDED_BY(channel_mutex);     /* commands that the writing role has not taken yet */
    struct dibs__buffer sending DIBS__GUARDED_BY(channel_mutex); /* the bytes that the writing role must send */
    uint64_t queued DIBS__GUARDED_BY(channel_mutex);             /* number of bytes appended since the link was made */
    uint64_t handed_out DIBS__GUARDED_BY(channel_mutex); /* number of those bytes that were moved to `sending` */
    struct dibs__request *first DIBS__GUARDED_BY(channel_mutex);    /* in flight, in the order of the commands */
    struct dibs__request *finished DIBS__GUARDED_BY(channel_mutex); /* their done_fn must be called, in order */
    struct dibs__sleeper *woken[DIBS__WOKEN_MAX] DIBS__GUARDED_BY(channel_mutex); /* must be woken, without the mutex */
    size_t woken_count DIBS__GUARDED_BY(channel_mutex);
    _Atomic(struct dibs__request *) unused; /* atomic; put there without the mutex, and taken under mutex */

    atomic_uint in_flight;         /* atomic; changed under mutex; number of requests in flight */
    atomic_uint unattended;        /* atomic; changed under mutex; number of those that no thread waits for */
    atomic_bool unheard;           /* atomic; set under mutex, for good; some messages are for no thread in listen */
    atomic_uint_fast64_t standing; /* atomic; changed under mutex; serial of the link, if that is not broken and not
                                      distrusted; 0: there is none */
    struct dibs__wake bell DIBS__GUARDED_BY(channel_mutex); /* if has_bell; ends the poll(2) of a reading thread */
    bool has_bell DIBS__GUARDED_BY(channel_mutex);
    atomic_uint takes; /* atomic; the reading role's; odd from before each receive until what it took is handed out */
};

/* ------------------------------------------------------------------ channel.c */

static inline bool dibs__request_is_done(const struct dibs__request *request)
{
    return atomic_load_explicit(&request->done, memory_order_acquire);
}

/* From now on, the command timeout begins anew. */
static inline void dibs__request_set_expiry(const struct dibs__channel *channel, struct dibs__request *request)
    DIBS__REQUIRES(channel_mutex)
{
    request->expires = dibs__after_ms(dibs__now(channel->endpoint->clock), channel->endpoint->command_timeout_ms);
}

/* Gives the oldest request in flight its reply. Requires that there is one, and that one more thread can be woken. */
void dibs__channel_answer(struct dibs__channel *channel, redisReply *reply) DIBS__REQUIRES(channel_mutex);

/* Fails all requests in flight, and wakes their threads. sent: how many bytes of the link may have been sent. */
void dibs__channel_fail_all(struct dibs__channel *channel, uint64_t sent) DIBS__REQUIRES(channel_mutex);

/* Unlocks the mutex, wakes the threads whose replies have come, and tells the scheduler what was left to it. */
void dibs__channel_unlock(struct dibs__channel *channel) DIBS__RELEASES(channel_mutex);

/* The same, but leaves telling the scheduler to whoever unlocks the mutex next. */
void dibs__channel_unlock_quietly(struct dibs__channel *channel) DIBS__RELEASES(channel_mutex);

/*
 * Runs the completions of the requests that have finished. Called only at the ends of dibs__channel_attend and
 * dibs__channel_free, where the thread holds no pointers to what completions may change (base/borrow.h).
 */
void dibs__channel_run_completions(struct dibs__channel *channel) DIBS__EXCLUDES(channel_mutex);

/* --------------------------------------------------------------- channel_io.c */

/* There is a link, and it is not broken. A thread that has a role on a broken link is about to leave the role. */
static inline bool dibs__channel_has_link(const struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex)
{
    return channel->link && !channel->broken;
}

static inline bool dibs__channel_has_unsent(const struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex)
{
    return channel->sending.used > 0 || channel->out.used > 0;
}

/* If there is a link, gives it up: fails what is in flight. */
void dibs__channel_break(struct dibs__channel *channel, const struct dibs__error *why) DIBS__REQUIRES(channel_mutex);

/* The same, because a reply took longer than the command timeout. */
void dibs__channel_time_out(struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex);

/*
 * Sends what was appended, unless another thread does. Waits for the socket until the deadline (0: not at all, and
 * sends later if the calling thread gathers). The rest is left to the scheduler. Unlocks the mutex in between.
 */
void dibs__channel_flush(struct dibs__channel *channel, int64_t deadline) DIBS__REQUIRES(channel_mutex);

/*
 * Reads: waits for bytes until the deadline (0: not at all), and hands out the replies that are complete. Repeats this
 * until `own` is done, the link breaks, there is something to send or the deadline has passed. If own is NULL, reads
 * one round. Unlocks the mutex in between. Requires a link that is not broken, and that nobody has the reading role.
 */
void dibs__channel_read(struct dibs__channel *channel, const struct dibs__request *own, int64_t deadline)
    DIBS__REQUIRES(channel_mutex);

/*
 * The same for a thread that polls by itself. It takes the reading role, reads on while it waits for the reply, and
 * leaves the role. Requirements and results are as above, except that begin_reading returns false if no descriptor is
 * left.
 */
bool dibs__channel_begin_reading(struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex);
void dibs__channel_read_on(struct dibs__channel *channel, short ready) DIBS__REQUIRES(channel_mutex);
void dibs__channel_end_reading(struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex);

/* Measures the waits for such a reply, if it may pay to poll before sleeping; else NULL. */
struct dibs__spin *dibs__channel_spin(const struct dibs__channel *channel, const struct dibs__request *own);

/* Called when nobody reads: wakes a thread that will read, if any waits. Otherwise reading is left to the scheduler. */
void dibs__channel_pass_reading_on(struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex);

#define DIBS__LOOK_AGAIN_MS 5 /* how often a thread checks what another thread must take or hand out */

/* Whether what a receive took, which a thread began with that value of `takes`, may not be handed out yet. */
static inline bool dibs__channel_is_taking(unsigned takes)
{
    return takes % 2 != 0;
}

/* Whether a reply may be about to come: bytes lie in the socket, or were taken and not handed out. Requires a link. */
bool dibs__channel_has_something(const struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex);

#endif
