/*
 * Loose flights: asks and releases that were begun, and for which no thread
 * waits any more. The scheduler's thread looks for their replies, at first soon,
 * then less often, and gives them up at the end of the command timeout. What
 * could not be sent is given up at once: then its retraction need not wait.
 *
 * Lock discipline: quorum_parts.h. While the scheduler's thread looks at a
 * flight, that has is_looked_at, and no other thread takes it.
 */
#include "store/quorum/quorum_parts.h"

#define LOOK_FIRST (2 * DIBS__NS_PER_MS)
#define LOOK_LAST (50 * DIBS__NS_PER_MS)

void dibs__detached_add(struct dibs__quorum *q, struct dibs__claim *claim, uint32_t set)
{
    int64_t at = dibs__quorum_now(q) + LOOK_FIRST;

    if (!set)
        return;
    dibs__quorum_mutex_lock(&q->mutex);
    for (size_t i = 0; i < q->count; i++) {
        if (!dibs__set_has(set, i))
            continue;
        struct dibs__flight *flight = &claim->flights[i];
        DIBS__REQUIRE(!flight->detached && flight->what != DIBS__FLIES_NOT);
        flight->detached = true;
        flight->look_at = at;
        flight->next = q->detached;
        q->detached = flight;
        claim->references++;
    }
    dibs__quorum_mutex_unlock(&q->mutex);
    q->config.listener.wake_by(q->config.listener.context, at);
}

/* The claim keeps the reference that the list had. */
static void take_out(struct dibs__quorum *q, struct dibs__flight *flight) DIBS__REQUIRES(dibs__quorum_mutex)
{
    struct dibs__flight **at = &q->detached;

    while (*at != flight)
        at = &(*at)->next;
    *at = flight->next;
    flight->detached = false;
}

bool dibs__detached_take(struct dibs__quorum *q, struct dibs__flight *flight)
{
    if (!flight->detached || flight->is_looked_at)
        return false;
    take_out(q, flight);
    DIBS__REQUIRE(flight->claim->references > 1);
    flight->claim->references--; /* the caller has one of its own */
    return true;
}

int64_t dibs__detached_deadline(struct dibs__quorum *q)
{
    int64_t deadline = DIBS__NEVER;

    dibs__quorum_mutex_lock(&q->mutex);
    for (const struct dibs__flight *at = q->detached; at; at = at->next)
        deadline = at->look_at < deadline ? at->look_at : deadline;
    dibs__quorum_mutex_unlock(&q->mutex);
    return deadline;
}

/* The next that is due, to be looked at. NULL: none. */
static struct dibs__flight *take_due(struct dibs__quorum *q, int64_t now)
{
    dibs__quorum_mutex_lock(&q->mutex);
    struct dibs__flight *flight = q->detached;
    while (flight && flight->look_at > now)
        flight = flight->next;
    if (flight)
        flight->is_looked_at = true;
    dibs__quorum_mutex_unlock(&q->mutex);
    return flight;
}

/* Later by what it has taken so far. */
static void put_back(struct dibs__quorum *q, struct dibs__flight *flight, int64_t now)
{
    int64_t pause = now - flight->sent_at, end = dibs__flight_end(flight);

    pause = pause < LOOK_FIRST ? LOOK_FIRST : pause > LOOK_LAST ? LOOK_LAST : pause;
    dibs__quorum_mutex_lock(&q->mutex);
    flight->look_at = now + pause < end ? now + pause : end > now ? end : now + LOOK_FIRST;
    flight->is_looked_at = false;
    dibs__quorum_mutex_unlock(&q->mutex);
}

/* What a flight that is over leads to may be another: the late grant of a lock that is not held is given back. */
static void land(struct dibs__quorum *q, struct dibs__flight *flight, int64_t now)
{
    struct dibs__claim *claim = flight->claim;
    bool was_ask = flight->what == DIBS__FLIES_ASK;
    struct dibs__error unused;
    dibs_status status = dibs__flight_finish(flight, 0, NULL, &unused);

    if (was_ask)
        dibs__part_land_late(q, flight, status);
    else
        dibs__part_left(q, flight, status);
    if (flight->what != DIBS__FLIES_NOT) {
        put_back(q, flight, now);
        return;
    }
    dibs__quorum_mutex_lock(&q->mutex);
    flight->is_looked_at = false;
    take_out(q, flight); /* the reference of the list is this function's now */
    claim->users++;
    dibs__quorum_mutex_unlock(&q->mutex);
    dibs__claim_leave(q, claim);
    dibs__claim_unref(q, claim);
}

void dibs__detached_attend(struct dibs__quorum *q, int64_t now)
{
    struct dibs__flight *flight;

    while ((flight = take_due(q, now))) {
        if (dibs__flight_await(flight, 0) || dibs__flight_is_sent(flight) != DIBS__SENT ||
            now >= dibs__flight_end(flight)) {
            land(q, flight, now);
            continue;
        }
        dibs__flight_note_delay(flight, now);
        put_back(q, flight, now);
    }
}

void dibs__detached_finish_all(struct dibs__quorum *q)
{
    struct dibs__flight *flight;

    while ((flight = take_due(q, DIBS__NEVER)))
        land(q, flight, 0);
}
