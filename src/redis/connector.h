/*
 * Making a link, and making the next one: a try that has a time limit, and after failed tries a pause that grows. Used
 * by channels and subscribers; a sentinel uses only the tries.
 *
 * A connector has no lock. One thread at a time goes on with a try. The pauses belong to the scheduler's thread, which
 * makes all tries except those that a thread makes for itself (channel_link.c).
 */
#ifndef DIBS_REDIS_CONNECTOR_H
#define DIBS_REDIS_CONNECTOR_H

#include "base/backoff.h"
#include "redis/link.h"

#define DIBS__RECONNECT_FIRST_MS 10 /* the first pause between two tries */
#define DIBS__RECONNECT_LAST_MS 500 /* the longest pause, for a link that must always exist */

struct dibs__connector {
    struct dibs__endpoint *endpoint; /* read-only after init */
    enum dibs__link_use use;         /* read-only after init */
    struct dibs__link *link;         /* the trying thread's; NULL: no try is going on */
    struct dibs__link_id before;     /* the trying thread's, or of whoever freed the last link; the replaced link */
    uint64_t told;                   /* the trying thread's; endpoint->told when the try began */
    int64_t until;                   /* the trying thread's; when the last try that began is given up */
    struct dibs__backoff backoff;    /* the scheduler thread's */
    int64_t next_at;                 /* the scheduler thread's; when the next try is due */
    int64_t soonest_at;              /* the scheduler thread's; when the next try is due if `needed` */
    atomic_bool wanted;              /* atomic; the scheduler must make a link; the owner says until when */
    atomic_bool needed;              /* atomic; a call waits for a link; cleared when a try has ended */
};

void dibs__connector_init(struct dibs__connector *connector, struct dibs__endpoint *endpoint, enum dibs__link_use use);
void dibs__connector_free(struct dibs__connector *connector);

/* Begins a try. Requires that no try is going on. Any status but DIBS_OK: the try failed, and has ended. */
dibs_status dibs__connector_begin(struct dibs__connector *connector, int64_t now, struct dibs__error *error);

/*
 * Goes on with the try as far as possible without blocking. Any status but DIBS_OK: the try failed or took too long,
 * and has ended.
 */
dibs_status dibs__connector_step(struct dibs__connector *connector, int64_t now, struct dibs__error *error);

/*
 * Blocks until the try has ended, but not beyond the deadline. DIBS_OK: the link is ready. DIBS_TIMEOUT: the try may go
 * on. Any other status: the try failed.
 */
dibs_status dibs__connector_finish(struct dibs__connector *connector, int64_t deadline, struct dibs__error *error);

bool dibs__connector_is_ready(const struct dibs__connector *connector); /* a link is ready, and can be taken */

/*
 * Called when a try has failed with that status. Blocks until a finder was asked again, but not beyond the deadline.
 * True: the server is elsewhere, and must be tried there.
 */
bool dibs__connector_is_led_elsewhere(struct dibs__connector *connector, dibs_status failed, int64_t deadline);

/* Ends the try and returns the link that is ready, which belongs to the caller from now on. NULL: no link is ready. */
struct dibs__link *dibs__connector_take(struct dibs__connector *connector);

/*
 * What to poll for while a try is going on (fd -1: nothing). *deadline is lowered to the time when to go on at the
 * latest, or when the next try is due. always: as if the link were `wanted`.
 */
struct pollfd dibs__connector_interest(const struct dibs__connector *connector, bool always, int64_t *deadline);

/* Called by the scheduler. True: a try is going on, or the next one is due. */
bool dibs__connector_is_due(const struct dibs__connector *connector, bool always, int64_t now);

/*
 * Called by the scheduler: begins a try or goes on with it, without blocking. last_ms: the longest pause after a try
 * that failed. True: the try has ended, and the error is filled unless there is a link to take.
 */
bool dibs__connector_attend(struct dibs__connector *connector, int64_t now, int64_t last_ms, struct dibs__error *error);

#endif
