/*
 * The link on which the server tells a runtime what was granted to its waiters. It is subscribed to one channel of the
 * server, is made again whenever it is lost, and is PINGed while it is silent. On a cluster, it is also subscribed to
 * the sharded channels of the slots for which threads wait.
 *
 * A subscriber belongs to the scheduler's event loop, which alone calls interest, attend and free. Any thread may call
 * the other functions. The subscriber connects when a subscription is first wanted. Messages are received by the
 * scheduler's thread, or by one of the threads that wait for them.
 */
#ifndef DIBS_REDIS_SUBSCRIBER_H
#define DIBS_REDIS_SUBSCRIBER_H

#include "base/wait_event.h"
#include "redis/endpoint.h"
#include "redis/slot.h"

/* Called with no lock of the subscriber held, and by the scheduler's thread unless noted otherwise. */
struct dibs__subscriber_hooks {
    void *above;               /* for wake, wake_by and missed */
    void (*wake)(void *above); /* any thread: interest has changed */
    void (*wake_by)(void *above,
                    int64_t when); /* any thread: interest names that time, or an earlier one, from now on */

    /*
     * Messages may have been lost: there is a subscription that did not exist before, or the first try to make another
     * has failed, or the subscription of a slot was lost. Not called for a subscription that follows two which nothing
     * confirmed, because nobody relied on those.
     */
    void (*missed)(void *above);

    void *context; /* for message and changed */

    /* Called by any thread that attends or listens. The bytes are arbitrary, and valid only during the call. */
    void (*message)(void *context, const char *bytes, size_t size);

    /* The same, once changes are heard: the key was changed, or is no longer tracked. NULL: this holds for all keys. */
    void (*changed)(void *context, const char *key, size_t size);
};

struct dibs__subscriber;

/* Makes a subscriber for the endpoint's channel. NULL: no memory. */
struct dibs__subscriber *dibs__subscriber_new(struct dibs__endpoint *endpoint,
                                              const struct dibs__subscriber_hooks *hooks);
void dibs__subscriber_free(struct dibs__subscriber *subscriber); /* no thread may be inside; NULL is fine */

/*
 * The serial of the current subscription; 0: there is none. From the first call on, a subscription is wanted: the
 * scheduler makes one, and another whenever it is lost. Makes no system call if there is a subscription.
 */
uint64_t dibs__subscriber_serial(struct dibs__subscriber *subscriber);

/*
 * As dibs__subscriber_serial, but waits until there is a subscription: DIBS_OK, or why none can be had. DIBS_DENIED:
 * the server does not let the account subscribe; returned at once if the last try has shown that. Other statuses are
 * returned when a try has failed, or at the deadline.
 */
dibs_status dibs__subscriber_await(struct dibs__subscriber *subscriber, int64_t deadline, uint64_t *serial,
                                   struct dibs__error *error);

/*
 * The server says that nobody listens: the subscription of that serial is made again, unless that has happened since.
 * If nothing confirms the next one either, the pauses in between grow. That happens if the server that serves SUBSCRIBE
 * is not the one that runs the scripts.
 */
void dibs__subscriber_distrust(struct dibs__subscriber *subscriber, uint64_t serial);

/*
 * The server says that somebody listens. True: the subscription of that serial still exists, so whoever relies on it
 * will be told when it is lost. Cheap.
 */
bool dibs__subscriber_confirm(struct dibs__subscriber *subscriber, uint64_t serial);

/* The sharded channel of a slot, on which the runtime is told of grants: NAME:{TAG}, with a NUL. */
#define DIBS__SLOT_CHANNEL_MAX (DIBS__CHANNEL_MAX + DIBS__SLOT_TAG + 3)
void dibs__subscriber_slot_channel(const struct dibs__subscriber *subscriber, unsigned slot,
                                   char out[DIBS__SLOT_CHANNEL_MAX]);

/*
 * Somebody waits for a lock in that slot, and may be told of its grant for lease_ms / 2 at most: the scheduler
 * subscribes to the channel of the slot. A subscription that nobody has asked about for a while is ended. False: no
 * subscription will come soon, because the last one was refused or lost, or memory ran out.
 */
bool dibs__subscriber_want_slot(struct dibs__subscriber *subscriber, unsigned slot, uint32_t lease_ms);

/*
 * The serial of the slot's current subscription; 0: there is none. The subscription is kept for at least lease_ms / 2.
 * Makes no system call, and locks no mutex if no slot is wanted.
 */
uint64_t dibs__subscriber_slot(struct dibs__subscriber *subscriber, unsigned slot, uint32_t lease_ms);

/*
 * As dibs__subscriber_distrust, but for one slot: every waiter is told to ask again, and asks with the subscriber's own
 * channel until the slot's subscription was made again. If nothing confirms that one, the pauses in between grow.
 */
void dibs__subscriber_distrust_slot(struct dibs__subscriber *subscriber, unsigned slot, uint64_t serial);

/* As dibs__subscriber_confirm, but for one slot. */
bool dibs__subscriber_confirm_slot(struct dibs__subscriber *subscriber, unsigned slot, uint64_t serial);

/*
 * Called by the scheduler. From now on each subscription also hears which of the keys that the server tracks for this
 * client have changed (CLIENT TRACKING with REDIRECT), if the account may. True: the current subscription hears that.
 * *serial is its serial, and *client the id of its client, to which the server must redirect the messages.
 */
bool dibs__subscriber_hear_changes(struct dibs__subscriber *subscriber, uint64_t *serial, int64_t *client);

/*
 * Waits until the wait event is woken, which the `message` and `changed` hooks may do, but not longer than `until`.
 * Meanwhile the calling thread may be the one that receives for all, so that a message for it wakes no other thread
 * first.
 */
void dibs__subscriber_listen(struct dibs__subscriber *subscriber, struct dibs__wait_event *wait_event, int64_t until);

/*
 * From now on there are messages that no thread in listen waits for: for a begun call, or for a holder. After the last
 * thread has left listen, the scheduler's thread goes on reading a moment later; without this call, only after a while.
 * Cheap from the second call on.
 */
void dibs__subscriber_unheard(struct dibs__subscriber *subscriber);

/* As those of a channel (channel.h). */
struct pollfd dibs__subscriber_interest(struct dibs__subscriber *subscriber, int64_t *deadline);
void dibs__subscriber_attend(struct dibs__subscriber *subscriber, short ready, int64_t now);

/* Called by the scheduler when the server is elsewhere now: a try that was put off must be made at once. */
void dibs__subscriber_hurry(struct dibs__subscriber *subscriber);

#endif
