/*
 * Finds the master of a redis-sentinel:// URL: asks all known sentinels side by side, and stays subscribed to
 * +switch-master at each.
 *
 * Each sentinel is asked in one write for the master's address and its config epoch, for the other sentinels, and to
 * subscribe. So no switch is missed in between. All are asked again, in a new round, when one tells of a switch, when
 * one is lost, after some seconds, and when what was told led to no master (dibs__endpoint_doubt). A round ends when a
 * majority of the known sentinels names a master (sentinel_vote.c), or when all have answered or failed. After a doubt,
 * the same server as before counts only once all have been heard. Between two rounds there is a pause, which grows
 * while they lead to no link. So sentinels are asked at most some ten times a second, and after a while once a second.
 *
 * If nothing was known before, a minority decides. Otherwise it moves nobody away from a master that still serves, nor
 * back to one of a smaller epoch.
 *
 * What the sentinels say only tells where to look: a link finds out by ROLE whether the server is a master
 * (greeting.c).
 */
#ifndef DIBS_REDIS_SENTINEL_H
#define DIBS_REDIS_SENTINEL_H

#include <poll.h>

#include "redis/endpoint.h"

struct dibs__sentinel;

/*
 * Makes what finds the master of that endpoint, which has the URL and outlives the sentinels' object; sets its finder.
 * A round may take half of its connect timeout; connecting to the master has the rest. user, password: credentials for
 * the sentinels, which are copied; NULL: none. wake is called by any thread: interest has changed. NULL: no memory.
 */
struct dibs__sentinel *dibs__sentinel_new(struct dibs__endpoint *master, const char *user, const char *password,
                                          void (*wake)(void *context), void *context);
void dibs__sentinel_free(struct dibs__sentinel *sentinel); /* no thread may be inside; NULL is fine */

/*
 * Asks each known sentinel which server is the master: one after the other, by the calling thread, on separate
 * connections, each until its share of the time is over. `told` is called for each, once for one that is known by two
 * names. If its error is DIBS_OK, the sentinel names that host and port; otherwise the error says why it names none.
 * no_failover: it says that there can be no failover, because too few sentinels are up.
 * DIBS_OK: all were asked. DIBS_NO_MEMORY. DIBS_UNAVAILABLE: the sentinels were in use until the deadline.
 */
typedef void dibs__sentinel_told_fn(void *context, const char *sentinel, const char *host, unsigned port,
                                    bool no_failover, const struct dibs__error *error);
dibs_status dibs__sentinel_survey(struct dibs__sentinel *sentinel, int64_t deadline, dibs__sentinel_told_fn *told,
                                  void *context, struct dibs__error *error);

/* Called by the scheduler, as those of a channel (channel.h). */
size_t dibs__sentinel_fd_max(const struct dibs__sentinel *sentinel); /* the most descriptors that interest fills in */
size_t dibs__sentinel_interest(struct dibs__sentinel *sentinel, struct pollfd *fds, int64_t *deadline);
void dibs__sentinel_attend(struct dibs__sentinel *sentinel, int64_t now);

#endif
