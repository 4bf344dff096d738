/*
 * Finds the master of a redis-sentinel:// URL: asks all sentinels that are
 * known, side by side, and stays subscribed to +switch-master at each.
 *
 * Each sentinel is asked in one write for the master's address and its config
 * epoch, for the other sentinels, and to subscribe; so no switch is missed in
 * between. All are asked again, a round, when one tells of a switch, when one
 * is lost, after some seconds, and where what was told led to no master
 * (dibs__endpoint_doubt). A round ends when a majority of those that are known
 * names a master (sentinel_vote.c), or all have answered or failed. After a
 * doubt, the same server as before counts only once all have been heard.
 * Between two rounds there is a pause that grows while they lead to no link, so
 * sentinels are asked at most some ten times in a second, and soon once in a
 * second.
 *
 * A minority decides where nothing was known before. It moves nobody away from
 * a master that still serves, nor back to one of a smaller epoch.
 *
 * What the sentinels say is only where to look: a link finds out by ROLE
 * whether the server is a master (greeting.c).
 */
#ifndef DIBS_REDIS_SENTINEL_H
#define DIBS_REDIS_SENTINEL_H

#include <poll.h>

#include "base/clock.h"
#include "redis/endpoint.h"

struct dibs__sentinel_config {
    struct dibs__endpoint *master;   /* has the URL; its finder is set; outlives the sentinels' object */
    const char *user, *password;     /* of the sentinels; NULL: none */
    const struct dibs__clock *clock; /* outlives it */
    uint32_t connect_timeout_ms;     /* a round has half of it, and the master the rest */
    void (*wake)(void *context);     /* any thread: interest has changed */
    void *context;
};

struct dibs__sentinel;

/* Strings are copied. NULL: no memory. */
struct dibs__sentinel *dibs__sentinel_new(const struct dibs__sentinel_config *config);
void dibs__sentinel_free(struct dibs__sentinel *sentinel); /* no thread is inside; NULL is fine */

/*
 * Asks each sentinel that is known which server is the master, one after the
 * other, on the calling thread and on connections of their own; each until its
 * share of the time is over. told is called for each: error DIBS_OK: it names
 * that host and port; else why it names none. DIBS_OK: all were asked;
 * DIBS_NO_MEMORY; DIBS_UNAVAILABLE: the sentinels were in use until the deadline.
 */
typedef void dibs__sentinel_told_fn(void *context, const char *sentinel, const char *host, unsigned port,
                                    const struct dibs__error *error);
dibs_status dibs__sentinel_survey(struct dibs__sentinel *sentinel, int64_t deadline, dibs__sentinel_told_fn *told,
                                  void *context, struct dibs__error *error);

/* The scheduler's, as those of a channel (channel.h). */
size_t dibs__sentinel_fd_max(const struct dibs__sentinel *sentinel); /* the most that interest fills in */
size_t dibs__sentinel_interest(struct dibs__sentinel *sentinel, struct pollfd *fds, int64_t *deadline);
void dibs__sentinel_attend(struct dibs__sentinel *sentinel, int64_t now);

#endif
