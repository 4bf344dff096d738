/* What was begun at one member, and how a thread waits for several. Lock discipline: quorum_parts.h. */
#include "store/quorum/quorum_parts.h"

#define REST_FIRST_MS 10 /* how long a member that failed rests, at first and at most */
#define REST_LAST_MS 1000

/* A thread waits for one member at least so long past the time when that should have answered, at most so long, and for
   half of that time in between; then it looks at the others. */
#define SLICE_LEAST (DIBS__NS_PER_MS / 4)
#define SLICE_MOST (4 * DIBS__NS_PER_MS)

#define CONNECT_LEAST (DIBS__NS_PER_MS / 10) /* how often at most a thread looks whether a connection stands */

#define OVERDUE_LEAST (20 * DIBS__NS_PER_MS) /* a member is overdue after so long, */
#define OVERDUE_TIMES 8                      /* and after so many times of what is usual */

/* -------------------------------------------------------------- how members do */

/* How long the slowest of the fastest majority takes. 0: not known. */
static int64_t usual_of_majority(const struct dibs__quorum *q)
{
    int64_t sorted[DIBS__MEMBERS_MAX] = {0};

    for (size_t i = 0; i < q->count; i++) {
        int64_t usual = atomic_load_explicit(&q->members[i].usual, memory_order_relaxed);
        size_t at = i;
        for (; at > 0 && sorted[at - 1] > usual; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = usual;
    }
    return sorted[q->majority - 1];
}

/* Whether the member took much longer than the majority that can do without it. */
static bool is_late(const struct dibs__member *member, int64_t took)
{
    return took >= OVERDUE_LEAST && took >= OVERDUE_TIMES * usual_of_majority(member->quorum);
}

/* Many calls may fail because of one outage: only the first of them after a rest makes the next rest longer. */
static void note_failure(struct dibs__member *member, int64_t now)
{
    dibs__quorum_mutex_lock(&member->quorum->mutex);
    if (now >= atomic_load(&member->rests_until))
        atomic_store(&member->rests_until, dibs__after_ms(now, dibs__backoff_next(&member->rest, REST_LAST_MS)));
    dibs__quorum_mutex_unlock(&member->quorum->mutex);
}

static void note_answer(struct dibs__flight *flight, int64_t now)
{
    struct dibs__member *member = flight->member;
    int64_t took = now - flight->sent_at, usual = atomic_load_explicit(&member->usual, memory_order_relaxed);

    usual = usual > 0 ? usual + (took - usual) / 8 : took;
    atomic_store_explicit(&member->usual, usual, memory_order_relaxed);
    if (is_late(member, usual)) { /* one answer may be late for a reason that has passed */
        note_failure(member, now);
        return;
    }
    if (atomic_load_explicit(&member->rests_until, memory_order_relaxed) == 0)
        return;
    dibs__quorum_mutex_lock(&member->quorum->mutex);
    atomic_store(&member->rests_until, 0);
    dibs__backoff_reset(&member->rest);
    dibs__quorum_mutex_unlock(&member->quorum->mutex);
}

static int64_t overdue_at(const struct dibs__flight *flight)
{
    int64_t usual = atomic_load_explicit(&flight->member->usual, memory_order_relaxed) * OVERDUE_TIMES;

    return flight->sent_at + (usual > OVERDUE_LEAST ? usual : OVERDUE_LEAST);
}

void dibs__flight_note_delay(const struct dibs__flight *flight, int64_t now)
{
    if (is_late(flight->member, now - flight->sent_at))
        note_failure(flight->member, now);
}

/* A member whose rest is over is tried by one ask; the others wait a while for what comes of that. */
static bool rests(struct dibs__member *member, int64_t rests_until, int64_t now)
{
    return rests_until != 0 && (now < rests_until || !atomic_compare_exchange_strong(&member->rests_until, &rests_until,
                                                                                     now + OVERDUE_LEAST));
}

uint32_t dibs__members_to_ask(struct dibs__quorum *q, uint32_t *spared)
{
    uint32_t all = ((uint32_t)1 << q->count) - 1, resting = 0, fit = all;
    int64_t now = 0;

    *spared = 0;
    for (size_t i = 0; i < q->count; i++) {
        uint32_t bit = (uint32_t)1 << i;
        int64_t rests_until = atomic_load_explicit(&q->members[i].rests_until, memory_order_relaxed);
        int64_t votes_from = atomic_load_explicit(&q->members[i].votes_from, memory_order_relaxed);
        if (rests_until == 0 && votes_from == 0)
            continue;
        now = now ? now : dibs__quorum_now(q);
        if (now < votes_from)
            fit &= ~bit;
        else if (rests(&q->members[i], rests_until, now))
            resting |= bit;
    }
    if (dibs__set_count(fit & ~resting) < q->majority)
        return all;
    *spared = resting;
    return fit & ~resting;
}

/* -------------------------------------------------------------------- one flight */

void dibs__flight_begin_again(struct dibs__flight *flight)
{
    struct dibs__store *store = flight->member->store;

    flight->sent_at = dibs__quorum_now(flight->member->quorum);
    switch (flight->what) {
    case DIBS__FLIES_ASK:
        store->ops->ask_begin(store, &flight->bid);
        break;
    case DIBS__FLIES_RELEASE:
        store->ops->release_begin(store, &flight->of.release);
        break;
    case DIBS__FLIES_RAISE:
        store->ops->raise_begin(store, &flight->of.raise);
        break;
    case DIBS__FLIES_QUERY:
        store->ops->query_begin(store, &flight->of.query);
        break;
    case DIBS__FLIES_VOTE:
        store->ops->vote_begin(store, &flight->of.vote);
        break;
    case DIBS__FLIES_NOT:
        break;
    }
}

void dibs__flight_begin(struct dibs__flight *flight, enum dibs__flying what)
{
    DIBS__REQUIRE(flight->what == DIBS__FLIES_NOT);
    flight->what = what;
    dibs__flight_begin_again(flight);
}

static const struct dibs__begun *begun_of(const struct dibs__flight *flight)
{
    switch (flight->what) {
    case DIBS__FLIES_ASK:
        return &flight->bid.begun;
    case DIBS__FLIES_RELEASE:
        return &flight->of.release.begun;
    case DIBS__FLIES_RAISE:
        return &flight->of.raise.begun;
    case DIBS__FLIES_QUERY:
        return &flight->of.query.begun;
    case DIBS__FLIES_VOTE:
    case DIBS__FLIES_NOT:
    default:
        return &flight->of.vote.begun;
    }
}

bool dibs__flight_await(struct dibs__flight *flight, int64_t until)
{
    struct dibs__store *store = flight->member->store;

    DIBS__REQUIRE(flight->what != DIBS__FLIES_NOT);
    return store->ops->await(store, begun_of(flight), until);
}

enum dibs__sent dibs__flight_is_sent(const struct dibs__flight *flight)
{
    struct dibs__store *store = flight->member->store;

    return store->ops->is_sent ? store->ops->is_sent(store, begun_of(flight)) : DIBS__SENT;
}

static dibs_status finish(struct dibs__flight *flight, int64_t deadline, dibs_owner *owner, struct dibs__error *error)
{
    struct dibs__store *store = flight->member->store;
    enum dibs__flying what = flight->what;

    flight->what = DIBS__FLIES_NOT;
    switch (what) {
    case DIBS__FLIES_ASK:
        flight->bid.deadline = deadline;
        return store->ops->ask_finish(store, &flight->bid, &flight->answer, error);
    case DIBS__FLIES_RELEASE:
        flight->of.release.deadline = deadline;
        return store->ops->release_finish(store, &flight->of.release, error);
    case DIBS__FLIES_RAISE:
        flight->of.raise.deadline = deadline;
        return store->ops->raise_finish(store, &flight->of.raise, error);
    case DIBS__FLIES_QUERY:
        flight->of.query.deadline = deadline;
        return store->ops->query_finish(store, &flight->of.query, owner, error);
    case DIBS__FLIES_VOTE:
    case DIBS__FLIES_NOT:
    default:
        flight->of.vote.deadline = deadline;
        return store->ops->vote_finish(store, &flight->of.vote, error);
    }
}

/* A master whose clock was set may have granted a lock that it forgot too early. Its key goes with the bid. */
static dibs_status doubt_grant(struct dibs__flight *flight, struct dibs__error *error)
{
    flight->answer.stepped = flight->answer.no_vote = true;
    return dibs__error_set(error, DIBS_UNAVAILABLE, "the clock of a master was set: it may not vote in the quorum now");
}

/* What an answer shows of the master's clock. */
static dibs_status note_clock(struct dibs__flight *flight, bool is_ask, dibs_status status, struct dibs__error *error)
{
    int64_t sent_at = is_ask ? flight->bid.proof : flight->sent_at;
    int64_t server_us = is_ask ? flight->answer.server_us : flight->of.vote.server_us;
    bool distrusted = server_us > 0 && dibs__member_note_clock(flight->member, sent_at, server_us);

    return is_ask && distrusted ? doubt_grant(flight, error) : status;
}

dibs_status dibs__flight_finish(struct dibs__flight *flight, int64_t deadline, dibs_owner *owner,
                                struct dibs__error *error)
{
    bool is_ask = flight->what == DIBS__FLIES_ASK, is_vote = flight->what == DIBS__FLIES_VOTE;

    error->status = DIBS_OK;
    dibs_status status = finish(flight, deadline, owner, error);
    if (status == DIBS_OK && (is_ask || is_vote))
        status = note_clock(flight, is_ask, status, error);
    int64_t now = dibs__quorum_now(flight->member->quorum);
    if (status != DIBS_UNAVAILABLE || (is_ask && (flight->answer.no_vote || flight->answer.too_few_replicas)))
        note_answer(flight, now);
    else
        note_failure(flight->member, now);
    return status;
}

void dibs__flight_abandon(struct dibs__flight *flight)
{
    struct dibs__error unused;
    dibs_owner nobody = {.held = false};

    DIBS__REQUIRE(flight->what != DIBS__FLIES_ASK && flight->what != DIBS__FLIES_RELEASE);
    finish(flight, 0, &nobody, &unused);
}

int64_t dibs__flight_end(const struct dibs__flight *flight)
{
    return dibs__after_ms(flight->sent_at, flight->member->quorum->config.command_timeout_ms);
}

/* ------------------------------------------------------------------- many */

static bool is_worse(dibs_status one, dibs_status other)
{
    return other == DIBS_OK || (other == DIBS_UNAVAILABLE && one != DIBS_UNAVAILABLE);
}

void dibs__error_keep_worst(struct dibs__error *worst, const struct dibs__error *other)
{
    if (other->status != DIBS_OK && is_worse(other->status, worst->status))
        *worst = *other;
}

static void land(struct dibs__fan_out *fan_out, unsigned i, int64_t deadline)
{
    struct dibs__flight *flight = &fan_out->flights[i];
    enum dibs__flying what = flight->what;
    struct dibs__error error;
    dibs_status status = dibs__flight_finish(flight, deadline, fan_out->owners ? &fan_out->owners[i] : NULL, &error);

    fan_out->open &= ~((uint32_t)1 << i);
    fan_out->unsent &= ~((uint32_t)1 << i);
    if (status != DIBS_UNAVAILABLE)
        fan_out->answered |= (uint32_t)1 << i;
    if (status != DIBS_OK && status != DIBS_BUSY && status != DIBS_NOT_HELD)
        dibs__error_keep_worst(fan_out->error, &error);
    fan_out->land(fan_out, flight, what, status);
}

/* So long one member may take for what is more than to read its reply: its share of the time that is left. */
static int64_t share_until(const struct dibs__fan_out *fan_out, int64_t now)
{
    return fan_out->deadline == DIBS__NEVER ? DIBS__NEVER
                                            : now + (fan_out->deadline - now) / dibs__set_count(fan_out->open);
}

/*
 * Sends what waited for a connection, and finishes what will have none. `now` 0: what still waits is finished, too,
 * since the outcome is known without it.
 */
static void go_on_unsent(struct dibs__fan_out *fan_out, unsigned i, int64_t now)
{
    struct dibs__flight *flight = &fan_out->flights[i];
    enum dibs__sent sent = dibs__flight_is_sent(flight);

    if (sent == DIBS__UNSENT_CONNECTED) {
        dibs__flight_begin_again(flight);
        sent = dibs__flight_is_sent(flight);
    }
    if (sent == DIBS__SENT)
        fan_out->unsent &= ~((uint32_t)1 << i);
    else if (sent == DIBS__UNSENT_CONNECTED && now)
        land(fan_out, i, share_until(fan_out, now));
    else if (sent != DIBS__UNSENT || !now)
        land(fan_out, i, 0);
}

/* Finishes all that was answered, and sends what can be sent by now. */
static void sweep(struct dibs__fan_out *fan_out)
{
    for (unsigned i = 0; i < fan_out->quorum->count; i++) {
        struct dibs__flight *flight = &fan_out->flights[i];
        if (!dibs__set_has(fan_out->open, i))
            continue;
        if (dibs__flight_await(flight, 0)) {
            land(fan_out, i, fan_out->deadline);
        } else if (dibs__flight_is_sent(flight) != DIBS__SENT) {
            fan_out->unsent |= (uint32_t)1 << i;
            go_on_unsent(fan_out, i, dibs__quorum_now(fan_out->quorum));
        }
    }
}

static int64_t expected_at(const struct dibs__flight *flight)
{
    return flight->sent_at + atomic_load_explicit(&flight->member->usual, memory_order_relaxed);
}

/* Who should answer next. What is overdue comes the later the longer it is that. */
static int64_t rank(const struct dibs__flight *flight, int64_t now)
{
    int64_t expected = expected_at(flight);

    return expected >= now ? expected : now + (now - expected);
}

static unsigned choose(const struct dibs__fan_out *fan_out, int64_t now)
{
    uint32_t open = fan_out->open & ~fan_out->unsent;
    unsigned best = 0;
    int64_t least = INT64_MAX;

    if (open & ~fan_out->optional)
        open &= ~fan_out->optional;
    for (unsigned i = 0; i < fan_out->quorum->count; i++) {
        int64_t its = dibs__set_has(open, i) ? rank(&fan_out->flights[i], now) : INT64_MAX;
        if (its < least) {
            least = its;
            best = i;
        }
    }
    return best;
}

bool dibs__fan_out_is_overdue(const struct dibs__fan_out *fan_out, int64_t now)
{
    for (unsigned i = 0; i < fan_out->quorum->count; i++)
        if (dibs__set_has(fan_out->open & ~fan_out->unsent, i) && now < overdue_at(&fan_out->flights[i]))
            return false;
    return true;
}

/* While connections are made, it is looked so often whether they stand: at first soon. */
static int64_t look_at_unsent(const struct dibs__fan_out *fan_out, int64_t now)
{
    int64_t slice = (now - fan_out->began) / 4;

    return now + (slice < CONNECT_LEAST ? CONNECT_LEAST : slice > SLICE_MOST ? SLICE_MOST : slice);
}

/* Waits for one member for a while. */
static void wait_for_one(struct dibs__fan_out *fan_out, int64_t now)
{
    unsigned i = choose(fan_out, now);
    struct dibs__flight *flight = &fan_out->flights[i];
    int64_t expected = expected_at(flight), slice = (now - expected) / 2;

    slice = slice < SLICE_LEAST ? SLICE_LEAST : slice > SLICE_MOST ? SLICE_MOST : slice;
    int64_t until = (expected > now ? expected : now) + slice, look = look_at_unsent(fan_out, now);
    until = fan_out->unsent && look < until ? look : until;
    until = until < fan_out->deadline ? until : fan_out->deadline;
    if (dibs__flight_await(flight, until))
        land(fan_out, i, fan_out->deadline);
}

/* Nothing was sent. */
static void wait_for_connections(const struct dibs__fan_out *fan_out, int64_t now)
{
    int64_t look = look_at_unsent(fan_out, now);
    struct dibs__wait_event wait_event;

    dibs__wait_event_init(&wait_event);
    dibs__wait_event_wait(&wait_event, fan_out->quorum->config.clock,
                          look < fan_out->deadline ? look : fan_out->deadline);
}

void dibs__fan_out_run(struct dibs__fan_out *fan_out)
{
    int64_t now;

    fan_out->began = dibs__quorum_now(fan_out->quorum);
    for (;;) {
        sweep(fan_out);
        now = dibs__quorum_now(fan_out->quorum);
        if (!fan_out->open || fan_out->is_decided(fan_out, now) || now >= fan_out->deadline)
            break;
        if (fan_out->open & ~fan_out->unsent)
            wait_for_one(fan_out, now);
        else
            wait_for_connections(fan_out, now);
    }
    for (unsigned i = 0; i < fan_out->quorum->count; i++)
        if (dibs__set_has(fan_out->unsent, i))
            go_on_unsent(fan_out, i, 0);
}
