/*
 * The connection on which the server tells a runtime what was granted to its
 * waiters: subscribed to one channel, kept so, PINGed while it is silent.
 *
 * It belongs to the scheduler's event loop, which alone calls interest, attend
 * and free; it connects when it is first wanted. The others are for any thread.
 */
#ifndef DIBS_REDIS_SUBSCRIBER_H
#define DIBS_REDIS_SUBSCRIBER_H

#include "redis/link.h"

/* Called by the scheduler's thread, but for wake; with no lock of the subscriber's held. */
struct dibs__subscriber_hooks {
    void *context;
    void (*wake)(void *context);   /* any thread: interest has changed */
    void (*missed)(void *context); /* what was sent may be lost: it stands, or can't be made anew so far. Not told of
                                      one that follows two that nothing confirmed: nobody relied on those */
    void (*message)(void *context, const char *bytes, size_t size); /* not its to keep; may hold any bytes */
};

struct dibs__subscriber;

/* For the endpoint's channel. NULL: no memory. */
struct dibs__subscriber *dibs__subscriber_new(struct dibs__endpoint *endpoint, const struct dibs__clock *clock,
                                              const struct dibs__subscriber_hooks *hooks, uint32_t connect_timeout_ms,
                                              uint32_t command_timeout_ms);
void dibs__subscriber_free(struct dibs__subscriber *subscriber); /* no thread is inside; NULL is fine */

/*
 * Which subscription stands; 0: none. Makes it wanted: from then on the
 * scheduler subscribes, and does so again whenever it is lost. No system call
 * where it stands.
 */
uint64_t dibs__subscriber_serial(struct dibs__subscriber *subscriber);

/*
 * The same, but waits for one: DIBS_OK, or why it can't be had: DIBS_DENIED
 * (the server lets us not subscribe) at once where the last attempt was, other
 * statuses after an attempt that failed, or at the deadline.
 */
dibs_status dibs__subscriber_await(struct dibs__subscriber *subscriber, int64_t deadline, uint64_t *serial,
                                   struct dibs__error *error);

/*
 * The server says that nobody listens: subscribes anew, unless that was done
 * since. Where the next one is not confirmed either, as happens where another
 * server serves SUBSCRIBE than runs scripts, that is done ever more seldom.
 */
void dibs__subscriber_distrust(struct dibs__subscriber *subscriber, uint64_t serial);

/*
 * The server says that somebody listens. True: that subscription stands still,
 * so whoever relies on it will be told when it is lost. Cheap.
 */
bool dibs__subscriber_confirm(struct dibs__subscriber *subscriber, uint64_t serial);

/* As those of a channel (channel.h). */
void dibs__subscriber_interest(struct dibs__subscriber *subscriber, struct pollfd *fd, int64_t *deadline);
void dibs__subscriber_attend(struct dibs__subscriber *subscriber, short ready, int64_t now);

#endif
