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

static void note_answer(struct dibs__pending_op *op, int64_t now)
{
    struct dibs__member *member = op->member;
    int64_t took = now - op->sent_at, usual = atomic_load_explicit(&member->usual, memory_order_relaxed);

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

static int64_t overdue_at(const struct dibs__pending_op *op)
{
    int64_t usual = atomic_load_explicit(&op->member->usual, memory_order_relaxed) * OVERDUE_TIMES;

    return op->sent_at + (usual > OVERDUE_LEAST ? usual : OVERDUE_LEAST);
}

void dibs__pending_op_note_delay(const struct dibs__pending_op *op, int64_t now)
{
    if (is_late(op->member, now - op->sent_at))
        note_failure(op->member, now);
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

/* -------------------------------------------------------------------- one pending operation */

void dibs__pending_op_begin_again(struct dibs__pending_op *op)
{
    struct dibs__store *store = op->member->store;

    op->sent_at = dibs__quorum_now(op->member->quorum);
    store->ops->begin(store, &op->begun);
}

void dibs__pending_op_begin(struct dibs__pending_op *op, struct dibs__op begun)
{
    DIBS__REQUIRE(op->begun.kind == DIBS__OP_NONE);
    op->begun = begun;
    dibs__pending_op_begin_again(op);
}

bool dibs__pending_op_await(struct dibs__pending_op *op, int64_t until)
{
    struct dibs__store *store = op->member->store;

    DIBS__REQUIRE(op->begun.kind != DIBS__OP_NONE);
    return store->ops->await(store, &op->begun, until);
}

enum dibs__sent dibs__pending_op_is_sent(const struct dibs__pending_op *op)
{
    struct dibs__store *store = op->member->store;

    return store->ops->is_sent ? store->ops->is_sent(store, &op->begun) : DIBS__SENT;
}

static dibs_status finish(struct dibs__pending_op *op, int64_t deadline, struct dibs__error *error)
{
    struct dibs__store *store = op->member->store;

    op->begun.deadline = deadline;
    dibs_status status = store->ops->finish(store, &op->begun, error);
    op->begun.kind = DIBS__OP_NONE;
    return status;
}

/* A master whose clock was set may have granted a lock that it forgot too early. Its key goes with the attempt. */
static dibs_status doubt_grant(struct dibs__pending_op *op, struct dibs__error *error)
{
    op->answer.why = DIBS__WHY_STEPPED;
    return dibs__error_set(error, DIBS_UNAVAILABLE, "the clock of a master was set: it may not vote in the quorum now");
}

/* What an answer shows of the master's clock. */
static dibs_status note_clock(struct dibs__pending_op *op, bool is_ask, dibs_status status, struct dibs__error *error)
{
    int64_t sent_at = is_ask ? op->attempt.proof : op->sent_at;
    int64_t server_us = is_ask ? op->answer.server_us : op->begun.vote->server_us;
    bool distrusted = server_us > 0 && dibs__member_note_clock(op->member, sent_at, server_us);

    return is_ask && distrusted ? doubt_grant(op, error) : status;
}

dibs_status dibs__pending_op_finish(struct dibs__pending_op *op, int64_t deadline, struct dibs__error *error)
{
    bool is_ask = op->begun.kind == DIBS__OP_ASK, is_vote = op->begun.kind == DIBS__OP_VOTE;

    error->status = DIBS_OK;
    dibs_status status = finish(op, deadline, error);
    if (status == DIBS_OK && (is_ask || is_vote))
        status = note_clock(op, is_ask, status, error);
    int64_t now = dibs__quorum_now(op->member->quorum);
    if (status != DIBS_UNAVAILABLE || (is_ask && op->answer.why != DIBS__WHY_UNTOLD))
        note_answer(op, now);
    else
        note_failure(op->member, now);
    return status;
}

void dibs__pending_op_abandon(struct dibs__pending_op *op)
{
    struct dibs__error unused;

    DIBS__REQUIRE(op->begun.kind != DIBS__OP_ASK && op->begun.kind != DIBS__OP_RELEASE);
    finish(op, 0, &unused);
}

int64_t dibs__pending_op_end(const struct dibs__pending_op *op)
{
    return dibs__after_ms(op->sent_at, op->member->quorum->config.command_timeout_ms);
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
    struct dibs__pending_op *op = &fan_out->ops[i];
    enum dibs__op_kind what = op->begun.kind;
    struct dibs__error error;
    dibs_status status = dibs__pending_op_finish(op, deadline, &error);

    fan_out->open &= ~((uint32_t)1 << i);
    fan_out->unsent &= ~((uint32_t)1 << i);
    if (status != DIBS_UNAVAILABLE)
        fan_out->answered |= (uint32_t)1 << i;
    if (status != DIBS_OK && status != DIBS_BUSY && status != DIBS_NOT_HELD)
        dibs__error_keep_worst(fan_out->error, &error);
    fan_out->land(fan_out, op, what, status);
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
    struct dibs__pending_op *op = &fan_out->ops[i];
    enum dibs__sent sent = dibs__pending_op_is_sent(op);

    if (sent == DIBS__UNSENT_CONNECTED) {
        dibs__pending_op_begin_again(op);
        sent = dibs__pending_op_is_sent(op);
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
        struct dibs__pending_op *op = &fan_out->ops[i];
        if (!dibs__set_has(fan_out->open, i))
            continue;
        if (dibs__pending_op_await(op, 0)) {
            land(fan_out, i, fan_out->deadline);
        } else if (dibs__pending_op_is_sent(op) != DIBS__SENT) {
            fan_out->unsent |= (uint32_t)1 << i;
            go_on_unsent(fan_out, i, dibs__quorum_now(fan_out->quorum));
        }
    }
}

static int64_t expected_at(const struct dibs__pending_op *op)
{
    return op->sent_at + atomic_load_explicit(&op->member->usual, memory_order_relaxed);
}

/* Who should answer next. What is overdue comes the later the longer it is that. */
static int64_t rank(const struct dibs__pending_op *op, int64_t now)
{
    int64_t expected = expected_at(op);

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
        int64_t its = dibs__set_has(open, i) ? rank(&fan_out->ops[i], now) : INT64_MAX;
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
        if (dibs__set_has(fan_out->open & ~fan_out->unsent, i) && now < overdue_at(&fan_out->ops[i]))
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
    struct dibs__pending_op *op = &fan_out->ops[i];
    int64_t expected = expected_at(op), slice = (now - expected) / 2;

    slice = slice < SLICE_LEAST ? SLICE_LEAST : slice > SLICE_MOST ? SLICE_MOST : slice;
    int64_t until = (expected > now ? expected : now) + slice, look = look_at_unsent(fan_out, now);
    until = fan_out->unsent && look < until ? look : until;
    until = until < fan_out->deadline ? until : fan_out->deadline;
    if (dibs__pending_op_await(op, until))
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
