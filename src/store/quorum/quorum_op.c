/* Operations that were begun at one member, and how a thread waits for several. Lock discipline: quorum_parts.h. */
#include "store/quorum/quorum_parts.h"

#define REST_LAST_MS 1000 /* how long a member that failed rests at most */

#define OVERDUE_LEAST (20 * DIBS__NS_PER_MS) /* a member is overdue after at least this time, */
#define OVERDUE_TIMES 8                      /* and after this multiple of its usual time */

/* -------------------------------------------------------------- how members do */

/* The usual time of the slowest member of the fastest majority. 0: not known. */
static int64_t usual_of_majority(const struct dibs__quorum *q)
{
    uint64_t usual[DIBS__MEMBERS_MAX] = {0};

    for (size_t i = 0; i < q->count; i++)
        usual[i] = (uint64_t)atomic_load_explicit(&q->members[i].usual, memory_order_relaxed);
    return (int64_t)dibs__nth_largest(usual, q->count, q->count - q->majority + 1);
}

/* Whether the member took much longer than a majority that does not need it. */
static bool is_late(const struct dibs__member *member, int64_t took)
{
    return took >= OVERDUE_LEAST && took >= OVERDUE_TIMES * usual_of_majority(member->quorum);
}

/*
 * One outage may make many calls fail: only the first failure after a rest makes the next rest longer. That may come at
 * once, while rests_until keeps others from a second try.
 */
static void note_failure(struct dibs__member *member, int64_t now)
{
    dibs__quorum_mutex_lock(&member->quorum->mutex);
    if (now >= member->rest_ends) {
        member->rest_ends = dibs__after_ms(now, dibs__backoff_next(&member->rest, REST_LAST_MS));
        atomic_store(&member->rests_until, member->rest_ends);
    }
    dibs__quorum_mutex_unlock(&member->quorum->mutex);
}

static void note_answer(struct dibs__pending_op *op, int64_t now)
{
    struct dibs__member *member = op->member;
    int64_t took = (op->came_at > 0 ? op->came_at : now) - op->sent_at,
            usual = atomic_load_explicit(&member->usual, memory_order_relaxed);

    usual = usual > 0 ? usual + (took - usual) / 8 : took;
    atomic_store_explicit(&member->usual, usual, memory_order_relaxed);
    if (is_late(member, usual)) { /* a single answer may be late for a reason that has passed */
        note_failure(member, now);
        return;
    }
    if (atomic_load_explicit(&member->rests_until, memory_order_relaxed) == 0)
        return;
    dibs__quorum_mutex_lock(&member->quorum->mutex);
    atomic_store(&member->rests_until, 0);
    member->rest_ends = 0;
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

/*
 * Whether the member still rests. When its rest is over, one thread asks it; the others let it rest a little
 * longer, until the outcome of that ask is known.
 */
static bool rests(struct dibs__member *member, int64_t rests_until, int64_t now)
{
    return rests_until != 0 && (now < rests_until || !atomic_compare_exchange_strong(&member->rests_until, &rests_until,
                                                                                     now + OVERDUE_LEAST));
}

uint32_t dibs__members_to_ask(struct dibs__quorum *q, uint32_t *spared)
{
    uint32_t all = dibs__quorum_all(q), resting = 0, fit = all;
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

/* Sends an operation that was begun but not sent. */
static void begin_again(struct dibs__pending_op *op)
{
    struct dibs__store *store = op->member->store;

    op->sent_at = dibs__quorum_now(op->member->quorum);
    op->came_at = 0;
    store->ops->begin(store, &op->begun);
}

void dibs__pending_op_begin(struct dibs__pending_op *op, struct dibs__op begun)
{
    DIBS__REQUIRE(op->begun.kind == DIBS__OP_NONE);
    op->begun = begun;
    op->told_steps = atomic_load(&op->member->told_steps);
    op->steps = atomic_load(&op->member->steps);
    op->was_sent = false;
    begin_again(op);
}

/* An operation that is over may be so because it could not be sent. */
enum dibs__progress dibs__pending_op_progress(struct dibs__pending_op *op, struct dibs__wait *wait)
{
    struct dibs__store *store = op->member->store;

    DIBS__REQUIRE(op->begun.kind != DIBS__OP_NONE);
    enum dibs__progress progress = store->ops->progress(store, &op->begun, wait);
    op->was_sent = op->was_sent || (dibs__op_was_sent(progress) && progress != DIBS__OP_OVER);
    if (progress == DIBS__OP_OVER && op->came_at == 0)
        op->came_at = dibs__quorum_now(op->member->quorum);
    return progress;
}

static dibs_status finish(struct dibs__pending_op *op, int64_t deadline, struct dibs__error *error)
{
    struct dibs__store *store = op->member->store;

    op->begun.deadline = deadline;
    dibs_status status = store->ops->finish(store, &op->begun, error);
    op->begun.kind = DIBS__OP_NONE;
    return status;
}

/*
 * Notes the master's clock, which the answer shows. The grant of a master whose clock was set does not count: the
 * master may have forgotten another lock too early. Nor does it if the master was told so only after the operation was
 * begun: it may have granted the lock before. The key that it has set is deleted with the attempt.
 */
static dibs_status note_clock(struct dibs__pending_op *op, bool is_ask, dibs_status status, struct dibs__error *error)
{
    int64_t sent_at = is_ask ? op->attempt.proof : op->sent_at;
    int64_t server_us = is_ask ? op->answer.server_us : op->begun.vote->server_us;
    bool distrusted = server_us > 0 && dibs__member_note_clock(op->member, sent_at, server_us);

    distrusted = distrusted || atomic_load(&op->member->steps) != op->told_steps;
    if (!is_ask || !distrusted)
        return status;
    op->answer.why = DIBS__WHY_STEPPED;
    return dibs__error_set(error, DIBS_UNAVAILABLE, "the clock of a master was set: it may not vote in the quorum now");
}

/* Whether the member has answered that operation, though perhaps that it grants nothing now. */
static bool has_replied(const struct dibs__pending_op *op, enum dibs__op_kind kind, dibs_status status)
{
    return status != DIBS_UNAVAILABLE || (kind == DIBS__OP_ASK && op->answer.why != DIBS__WHY_UNTOLD);
}

dibs_status dibs__pending_op_finish(struct dibs__pending_op *op, int64_t deadline, struct dibs__error *error)
{
    enum dibs__op_kind kind = op->begun.kind;

    error->status = DIBS_OK;
    dibs_status status = finish(op, deadline, error);
    if (status == DIBS_OK && (kind == DIBS__OP_ASK || kind == DIBS__OP_VOTE))
        status = note_clock(op, kind == DIBS__OP_ASK, status, error);
    int64_t now = dibs__quorum_now(op->member->quorum);
    if (has_replied(op, kind, status) && !(kind == DIBS__OP_ASK && dibs__pending_op_is_unconfirmed(op)))
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

void dibs__error_keep_worst(struct dibs__error *worst, const struct dibs__error *other)
{
    bool may_pass = worst->status == DIBS_UNAVAILABLE && other->status != DIBS_UNAVAILABLE;

    if (other->status != DIBS_OK && (worst->status == DIBS_OK || may_pass))
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
    if (has_replied(op, what, status))
        fan_out->answered |= (uint32_t)1 << i;
    if (status != DIBS_OK && status != DIBS_BUSY && status != DIBS_NOT_HELD)
        dibs__error_keep_worst(fan_out->error, &error);
    fan_out->land(fan_out, op, what, status);
}

/* Whether replicas or the disk of the member must confirm what the operation is granted. */
static bool is_to_be_confirmed(const struct dibs__fan_out *fan_out, const struct dibs__pending_op *op)
{
    const struct dibs__store_config *config = &fan_out->quorum->config;

    return op->begun.kind == DIBS__OP_ASK && (config->durable || config->min_replicas > 0);
}

/*
 * The deadline for finishing one member's operation. If that takes more than reading a reply, the operation gets its
 * share of the time that is left; if its replicas or its disk must confirm the grant, half of it: those of the other
 * members do so meanwhile.
 */
static int64_t deadline_of(const struct dibs__fan_out *fan_out, const struct dibs__pending_op *op,
                           enum dibs__progress progress)
{
    bool confirms = is_to_be_confirmed(fan_out, op);
    bool sends_again = progress == DIBS__OP_CONNECTED || progress == DIBS__OP_BROKEN;
    unsigned open = dibs__set_count(fan_out->open);
    int64_t now;

    if (progress == DIBS__OP_FAILED)
        return 0;
    if (!(sends_again || confirms) || open < 2 || fan_out->deadline == DIBS__NEVER)
        return fan_out->deadline;
    now = dibs__quorum_now(fan_out->quorum);
    return now + (fan_out->deadline - now) / (sends_again ? open : 2);
}

/* When all operations that were sent and not answered are overdue. */
static int64_t all_overdue_at(const struct dibs__fan_out *fan_out)
{
    int64_t latest = 0;

    for (unsigned i = 0; i < fan_out->quorum->count; i++) {
        int64_t its = dibs__set_has(fan_out->open & ~fan_out->unsent, i) ? overdue_at(&fan_out->ops[i]) : 0;
        latest = its > latest ? its : latest;
    }
    return latest;
}

bool dibs__fan_out_is_overdue(const struct dibs__fan_out *fan_out, int64_t now)
{
    return now >= all_overdue_at(fan_out);
}

int dibs__least_to_decide(const struct dibs__quorum *q, unsigned for_it, uint32_t open)
{
    int majority = (int)q->majority, is_for = (int)for_it;
    int needed = majority - is_for, too_many = is_for + (int)dibs__set_count(open) - majority + 1;

    return needed < too_many ? needed : too_many;
}

/* What a thread waits with. */
struct waiting {
    struct dibs__wait_event wait_event;
    atomic_int missing; /* atomic; how many replies must still come before the thread is woken */
    struct dibs__wait waits[DIBS__MEMBERS_MAX];
};

_Static_assert(DIBS__MEMBERS_MAX <= DIBS__WAITS_MAX, "a thread can wait for all members");

static void begin_waits(const struct dibs__fan_out *fan_out, struct waiting *waiting)
{
    dibs__wait_event_init(&waiting->wait_event);
    atomic_init(&waiting->missing, 0);
    for (unsigned i = 0; i < fan_out->quorum->count; i++) {
        dibs__wait_init(&waiting->waits[i], &waiting->wait_event);
        waiting->waits[i].missing = &waiting->missing;
    }
}

static void end_waits(const struct dibs__fan_out *fan_out, struct waiting *waiting)
{
    for (unsigned i = 0; i < fan_out->quorum->count; i++)
        dibs__wait_end(&waiting->waits[i]);
}

/*
 * Takes the reply; or sends what could not be sent before, if there is a connection by now. True: the operation
 * must be finished.
 */
static bool has_come(struct dibs__fan_out *fan_out, unsigned i, struct dibs__wait *wait, enum dibs__progress *progress)
{
    struct dibs__pending_op *op = &fan_out->ops[i];
    uint32_t bit = (uint32_t)1 << i;

    *progress = dibs__pending_op_progress(op, wait);
    if (*progress == DIBS__OP_CONNECTED) {
        begin_again(op);
        *progress = dibs__pending_op_progress(op, wait);
    }
    fan_out->unsent = dibs__op_was_sent(*progress) ? fan_out->unsent & ~bit : fan_out->unsent | bit;
    return *progress != DIBS__OP_AWAITED && *progress != DIBS__OP_UNSENT;
}

/* Returns the set of members whose operations must be finished. progress: how far these are. */
static uint32_t take_all(struct dibs__fan_out *fan_out, struct waiting *waiting,
                         enum dibs__progress progress[DIBS__MEMBERS_MAX])
{
    uint32_t come = 0;

    dibs__wait_event_reset(&waiting->wait_event);
    atomic_store(&waiting->missing, 0);
    for (unsigned i = 0; i < fan_out->quorum->count; i++)
        if (dibs__set_has(fan_out->open, i) && has_come(fan_out, i, &waiting->waits[i], &progress[i]))
            come |= (uint32_t)1 << i;
    return come;
}

/*
 * Of the operations in `come`, those whose connections broke: they are put off as long as others have come, or
 * still may. Sending them again takes as long as their server is silent.
 */
static uint32_t to_put_off(const struct dibs__fan_out *fan_out, uint32_t come,
                           const enum dibs__progress progress[DIBS__MEMBERS_MAX], int64_t now)
{
    uint32_t broken = 0, awaited = fan_out->open & ~fan_out->unsent & ~come;

    for (unsigned i = 0; i < fan_out->quorum->count; i++)
        if (dibs__set_has(come, i) && progress[i] == DIBS__OP_BROKEN)
            broken |= (uint32_t)1 << i;
    return come != broken || (awaited && !dibs__fan_out_is_overdue(fan_out, now)) ? broken : 0;
}

/*
 * How many more replies must come before anything can be decided; those that are put off will not come. If
 * nothing was sent, the thread waits for a connection.
 */
static int missing(const struct dibs__fan_out *fan_out, uint32_t come, uint32_t put_off)
{
    int possible = (int)dibs__set_count((fan_out->open & ~fan_out->unsent & ~put_off) | come);
    int least = fan_out->least ? fan_out->least(fan_out) : 1;

    least = least < possible ? least : possible;
    return (least > 1 ? least : 1) - (int)dibs__set_count(come);
}

/* While one operation took time, nobody looked at the other asks: that is not counted as theirs. */
static void spare_others(const struct dibs__fan_out *fan_out, int64_t since)
{
    int64_t spent = dibs__quorum_now(fan_out->quorum) - since;

    for (unsigned i = 0; i < fan_out->quorum->count; i++)
        if (dibs__set_has(fan_out->open, i) && fan_out->ops[i].begun.kind == DIBS__OP_ASK &&
            fan_out->ops[i].came_at == 0)
            fan_out->ops[i].sent_at += spent; /* which says nothing else of an ask: see note_clock */
}

/*
 * Finishes the operations in `come`. This may take time, so the waits are ended first. What must be sent again, or be
 * confirmed, is left alone once the outcome is known.
 */
static void finish_all(struct dibs__fan_out *fan_out, struct waiting *waiting, uint32_t come,
                       const enum dibs__progress progress[DIBS__MEMBERS_MAX])
{
    end_waits(fan_out, waiting);
    for (unsigned i = 0; i < fan_out->quorum->count; i++) {
        if (!dibs__set_has(come, i))
            continue;
        int64_t now = dibs__quorum_now(fan_out->quorum);
        bool long_one = progress[i] == DIBS__OP_BROKEN || is_to_be_confirmed(fan_out, &fan_out->ops[i]);
        if (long_one && fan_out->is_decided(fan_out, now))
            continue;
        land(fan_out, i, deadline_of(fan_out, &fan_out->ops[i], progress[i]));
        if (long_one)
            spare_others(fan_out, now);
    }
}

/* Until when nothing can be decided unless enough replies come. */
static int64_t undecided_until(const struct dibs__fan_out *fan_out, int64_t now)
{
    int64_t overdue = all_overdue_at(fan_out), decides = fan_out->decides_at ? fan_out->decides_at(fan_out) : 0;
    int64_t until = fan_out->deadline;

    if (overdue > now && overdue < until)
        until = overdue;
    return decides > now && decides < until ? decides : until;
}

/* Called when the outcome is known, or time has run out: gives up the operations that still wait for a connection. */
static void end_unsent(struct dibs__fan_out *fan_out)
{
    for (unsigned i = 0; i < fan_out->quorum->count; i++) {
        enum dibs__progress progress;
        if (!dibs__set_has(fan_out->unsent, i))
            continue;
        has_come(fan_out, i, NULL, &progress);
        if (dibs__set_has(fan_out->unsent, i))
            land(fan_out, i, 0);
    }
}

void dibs__fan_out_run(struct dibs__fan_out *fan_out)
{
    enum dibs__progress progress[DIBS__MEMBERS_MAX];
    int64_t until = fan_out->deadline;
    struct waiting waiting;

    begin_waits(fan_out, &waiting);
    for (;;) {
        uint32_t come = take_all(fan_out, &waiting, progress);
        int64_t now = dibs__quorum_now(fan_out->quorum);
        uint32_t put_off = to_put_off(fan_out, come, progress, now);
        come &= ~put_off;
        int lacks = missing(fan_out, come, put_off);
        bool finishes = come && (lacks <= 0 || now >= until);
        if (finishes)
            finish_all(fan_out, &waiting, come, progress);
        if (!fan_out->open || fan_out->is_decided(fan_out, now) || now >= fan_out->deadline)
            break;
        until = undecided_until(fan_out, now);
        if (!finishes && atomic_fetch_add(&waiting.missing, lacks) + lacks > 0)
            dibs__waits_sleep(waiting.waits, fan_out->quorum->count, &waiting.wait_event, fan_out->quorum->config.clock,
                              until);
    }
    end_waits(fan_out, &waiting);
    end_unsent(fan_out);
}
