/*
 * Which masters may vote (PROTOCOL.md, rule 15). A master that lost its data does not know what it
 * granted. So it says that it does not know whether it may vote, until a client admits it. If a
 * majority says so and nobody knows better, the quorum is new, and they are admitted at once.
 * Otherwise the master is admitted only after the longest lease that the others know of, and only
 * once it has said so for UNSURE_MS, because another client may be setting up a new quorum right
 * now. It takes two looks to find that a quorum is new (rule 67). A client that wants to use longer
 * leases than a majority knows of announces that first. quorum_admit.c decides what follows from a
 * look.
 *
 * A look asks all masters. A thread that opens the quorum, or wants a longer lease, looks by itself
 * and waits (dibs__vote_announce). The scheduler's thread looks without waiting: once in the time
 * of its longest lease, so that it notices when a clock is set, and whenever a look is wanted.
 *
 * A master whose clock was set is distrusted (rules 39 and 58): before it is asked again it must be
 * told not to vote for the longest lease.
 */
#include <stdlib.h>

#include "store/quorum/quorum_look.h"

#define UNSURE_MS 1000
#define LOOK_LEAST_MS 1000  /* two looks are as far apart as the longest lease is long, but at least this, */
#define LOOK_MOST_MS 10000  /* and at most this: a step of a clock that is small in comparison is not noticed; */
#define LOOK_SOON_MS 100    /* this while a master may not vote yet, and at least this before a look that is wanted; */
#define LOOK_AGAIN_MS 1000  /* this while anything else is left to do; */
#define LOOK_MISSED_MS 2000 /* at most this while a master does not answer: nothing reports that it is back */
#define POLL_MS 2           /* how often the scheduler's thread looks for replies */
#define PAUSE_FIRST_MS 2    /* how long a thread waits before it looks again: the first time, and at most */
#define PAUSE_LAST_MS 50
#define WHOLE_PART 2 /* the scheduler's thread waits for the last masters for this part of the command timeout, */
#define HASTE_MS 100 /* or only so long if a longer lease is wanted meanwhile, which the next look announces */

static struct dibs__look *new_look(struct dibs__quorum *q)
{
    struct dibs__look *look = calloc(1, sizeof *look + q->count * sizeof look->ops[0]);

    for (size_t i = 0; look && i < q->count; i++)
        look->ops[i].member = &q->members[i];
    return look;
}

static void raise_to(_Atomic uint32_t *value, uint32_t to)
{
    uint32_t seen = atomic_load(value);

    while (seen < to && !atomic_compare_exchange_weak(value, &seen, to))
        ;
}

static void begin_one(struct dibs__quorum *q, struct dibs__look *look, size_t i, struct dibs__vote vote)
{
    vote.longest_ms = look->longest_ms;
    vote.quorum = atomic_load(&q->number);
    look->votes[i] = vote;
    dibs__pending_op_begin(&look->ops[i], (struct dibs__op){.kind = DIBS__OP_VOTE, .vote = &look->votes[i]});
    look->open |= (uint32_t)1 << i;
}

static void begin_at_all(struct dibs__quorum *q, struct dibs__look *look)
{
    look->longest_ms = atomic_load(&q->voting.longest_ms);
    look->known = look->ready = look->restarted = look->unknown = look->strange = 0;
    look->others_ms = 0;
    look->admitting = false;
    look->first_began = look->began = dibs__quorum_now(q);
    for (size_t i = 0; i < q->count; i++)
        begin_one(q, look, i, (struct dibs__vote){.what = DIBS__VOTE_LOOKS});
}

/*
 * Begins the second part of a look. It also announces to the masters that it admits the longest leases that the
 * others know of.
 */
static void begin_admitting(const struct dibs__quorum *q, struct dibs__look *look)
{
    look->admitting = true;
    look->began = dibs__quorum_now(q);
    if (look->others_ms > look->longest_ms)
        look->longest_ms = look->others_ms;
}

static void admit_new_quorum(struct dibs__quorum *q, struct dibs__look *look)
{
    begin_admitting(q, look);
    dibs__look_number_anew(q, look);
    for (size_t i = 0; i < q->count; i++)
        if (dibs__set_has(look->unknown, i))
            begin_one(q, look, i, dibs__look_admission(q, look, i));
}

/* Whether a majority knows how long leases may be. */
static bool is_announced(const struct dibs__quorum *q, const struct dibs__look *look)
{
    return dibs__set_count(look->known) >= q->majority;
}

static void abandon_open(const struct dibs__quorum *q, struct dibs__look *look)
{
    for (size_t i = 0; i < q->count; i++)
        if (dibs__set_has(look->open, i))
            dibs__pending_op_abandon(&look->ops[i]);
    look->open = 0;
}

/* A length counts as announced if a majority said so: this look may have announced a longer one to some masters alone.
 */
static void note_announced(struct dibs__quorum *q, const struct dibs__look *look)
{
    uint64_t lengths[DIBS__MEMBERS_MAX];
    size_t count = 0;

    for (size_t i = 0; i < q->count; i++)
        if (dibs__set_has(look->known, i))
            lengths[count++] = look->answers[i].longest_ms;
    if (is_announced(q, look))
        raise_to(&q->voting.announced_ms, (uint32_t)dibs__nth_largest(lengths, count, q->majority));
}

/* ------------------------------------------------------- a thread that waits */

/*
 * A new quorum gets some time for all of its masters to answer: a master that is admitted later has to wait,
 * and one of them may know that the quorum is not new.
 */
static bool is_decided(const struct dibs__fan_out *fan_out, int64_t now)
{
    struct dibs__look *look = fan_out->context;

    if (look->admitting)
        return is_announced(fan_out->quorum, look) && dibs__fan_out_is_overdue(fan_out, now);
    dibs__look_identify(fan_out->quorum, look);
    if (is_announced(fan_out->quorum, look))
        return true;
    return dibs__look_seems_new(fan_out->quorum, look, &look->newness, now);
}

/* When masters of a new quorum that have not answered are no longer waited for. */
static int64_t decides_at(const struct dibs__fan_out *fan_out)
{
    const struct dibs__look *look = fan_out->context;

    return look->newness.since > 0 ? dibs__look_given_until(fan_out->quorum, &look->newness) : DIBS__NEVER;
}

static void land(struct dibs__fan_out *fan_out, struct dibs__pending_op *op, enum dibs__op_kind what,
                 dibs_status status)
{
    (void)what;
    dibs__look_note(fan_out->context, op, status);
}

static void run(struct dibs__quorum *q, struct dibs__look *look, struct dibs__error *error)
{
    struct dibs__fan_out fan_out = {.quorum = q,
                                    .ops = look->ops,
                                    .open = look->open,
                                    .deadline = look->deadline,
                                    .context = look,
                                    .is_decided = is_decided,
                                    .decides_at = decides_at,
                                    .land = land,
                                    .error = error};

    dibs__fan_out_run(&fan_out);
    abandon_open(q, look);
}

/* Another client may be setting up a new quorum right now: then the masters will say something else a little later. */
static bool look_and_admit(struct dibs__quorum *q, struct dibs__look *look, struct dibs__error *error)
{
    begin_at_all(q, look);
    run(q, look, error);
    dibs__look_identify(q, look);
    if (!is_announced(q, look) && dibs__look_proves_new(q, look, &look->newness, dibs__quorum_now(q))) {
        admit_new_quorum(q, look);
        run(q, look, error);
    }
    note_announced(q, look);
    return is_announced(q, look);
}

/*
 * Looks again and again until the leases are announced, no majority answers, or two of the URLs lead to one
 * server. Returns how many masters answered, and fills `error` from the last look; if the deadline cut that one
 * short, and it therefore tells less, from the one before.
 */
static unsigned look_until_announced(struct dibs__quorum *q, struct dibs__look *look, struct dibs__error *error)
{
    struct dibs__backoff backoff = {.first_ms = PAUSE_FIRST_MS};
    unsigned answered = 0;

    for (;;) {
        struct dibs__error its = {DIBS_OK, ""};
        bool announced = look_and_admit(q, look, &its);
        unsigned replied = dibs__set_count(dibs__look_replied(look) | look->strange);
        if (replied >= answered || dibs__quorum_now(q) < look->deadline) {
            answered = replied;
            *error = its;
        }
        if (announced || replied < q->majority || dibs__look_has_twins(q, look) ||
            !dibs__quorum_pause(q, &backoff, PAUSE_LAST_MS, look->deadline))
            return answered;
    }
}

dibs_status dibs__vote_ask(const struct dibs__quorum *q, size_t i, struct dibs__vote *vote, struct dibs__error *error)
{
    struct dibs__store *store = q->members[i].store;
    struct dibs__op op = {.kind = DIBS__OP_VOTE,
                          .deadline = dibs__after_ms(dibs__quorum_now(q), q->config.command_timeout_ms),
                          .vote = vote};

    return store->ops->finish(store, &op, error);
}

/* Whether nothing is left to do: all masters may vote, and know to which quorum they belong. */
static bool is_settled(const struct dibs__quorum *q, const struct dibs__look *look)
{
    return dibs__set_count(look->ready | look->strange) == q->count && !dibs__look_lacks_number(q, look);
}

dibs_status dibs__vote_announce(struct dibs__quorum *q, uint32_t lease_ms, int64_t deadline, unsigned *answered,
                                struct dibs__error *error)
{
    struct dibs__look *look = new_look(q);

    *answered = 0;
    if (!look)
        return dibs__quorum_no_memory(error);
    raise_to(&q->voting.longest_ms, lease_ms);
    look->deadline = deadline;
    *answered = look_until_announced(q, look, error);
    bool announced = is_announced(q, look);
    if (!is_settled(q, look))
        dibs__vote_want(q, 0);
    dibs_status status = dibs__look_check_twins(q, look, error);
    if (status == DIBS_OK && !announced)
        status = dibs__look_tell_why(q, look, *answered, error);
    free(look);
    if (status == DIBS_OK)
        error->status = DIBS_OK;
    return status;
}

/* ------------------------------------------------------------- the scheduler */

/*
 * The mutex makes sure that a thread which finds the bounds as they are after a step also finds the member
 * distrusted.
 */
bool dibs__member_note_clock(struct dibs__member *member, int64_t sent_at, int64_t server_us)
{
    struct dibs__quorum *q = member->quorum;
    int64_t now = dibs__quorum_now(q);

    dibs__quorum_mutex_lock(&q->mutex);
    int step = dibs__clock_bounds_note(&member->clock, sent_at, now, server_us);
    if (step != 0)
        atomic_fetch_add(&member->steps, 1);
    if (step < 0)
        atomic_store(&member->set_back, true);
    bool distrusted = dibs__member_is_distrusted(member);
    dibs__quorum_mutex_unlock(&q->mutex);
    if (step != 0)
        dibs__vote_want(q, 0);
    return distrusted;
}

void dibs__vote_distrust(struct dibs__member *member)
{
    atomic_fetch_add(&member->steps, 1);
    dibs__vote_want(member->quorum, 0);
}

void dibs__vote_want(struct dibs__quorum *q, uint32_t lease_ms)
{
    raise_to(&q->voting.longest_ms, lease_ms);
    if (!atomic_exchange(&q->voting.due, true))
        q->config.listener.wake(q->config.listener.context);
}

/* The time between two looks: that of the longest lease, within limits. */
static int64_t look_ms(const struct dibs__quorum *q)
{
    int64_t ms = atomic_load(&q->voting.longest_ms);

    return ms < LOOK_LEAST_MS ? LOOK_LEAST_MS : ms > LOOK_MOST_MS ? LOOK_MOST_MS : ms;
}

void dibs__vote_init(struct dibs__quorum *q)
{
    q->voting.next = dibs__after_ms(dibs__quorum_now(q), look_ms(q));
    q->voting.last = dibs__quorum_now(q) - LOOK_AGAIN_MS * DIBS__NS_PER_MS;
}

/* When the next look begins. A look that is wanted for a longer lease begins almost at once. */
static int64_t due_at(const struct dibs__quorum *q)
{
    int64_t again = dibs__after_ms(q->voting.last, LOOK_SOON_MS);

    if (!atomic_load(&q->voting.due))
        return q->voting.next;
    if (!dibs__vote_is_announced(&q->voting, atomic_load(&q->voting.longest_ms)))
        again = dibs__after_ms(q->voting.last, POLL_MS);
    return again < q->voting.next ? again : q->voting.next;
}

int64_t dibs__vote_deadline(const struct dibs__quorum *q)
{
    return q->voting.look ? dibs__after_ms(dibs__quorum_now(q), POLL_MS) : due_at(q);
}

/* The members that have said for long enough that they do not know whether they may vote. */
static uint32_t long_unknown(struct dibs__quorum *q, const struct dibs__look *look, int64_t now)
{
    uint32_t set = 0;

    for (size_t i = 0; i < q->count; i++) {
        int64_t *since = &q->voting.unknown_since[i];
        if (dibs__set_has(look->known, i))
            *since = 0;
        if (!dibs__set_has(look->unknown, i))
            continue;
        if (*since == 0)
            *since = now;
        else if (now >= dibs__after_ms(*since, UNSURE_MS))
            set |= (uint32_t)1 << i;
    }
    return set;
}

/*
 * Most clocks are right. If those of a majority seem to have been set, it was the local clock that was set, or
 * this process stood still and its clock with it. Then no master is distrusted.
 */
static void trust_most_clocks(struct dibs__quorum *q)
{
    size_t count = 0;

    for (size_t i = 0; i < q->count; i++)
        count += dibs__member_is_distrusted(&q->members[i]);
    for (size_t i = 0; count >= q->majority && i < q->count; i++) {
        atomic_store(&q->members[i].told_steps, atomic_load(&q->members[i].steps));
        atomic_store(&q->members[i].set_back, false);
    }
}

/* Notes since when each member has waited for its floor. */
static void note_unfloored(struct dibs__quorum *q, const struct dibs__look *look, int64_t now)
{
    for (size_t i = 0; i < q->count; i++) {
        int64_t *since = &q->voting.unfloored_since[i];
        bool waits = dibs__set_has(look->known & ~look->ready, i) && look->answers[i].votes_in_ms == 0;
        if (!waits || *since == 0)
            *since = waits ? now : 0;
    }
}

/* Called after the first part of a look. True: the second part has begun. */
static bool admits(struct dibs__quorum *q, struct dibs__look *look, int64_t now)
{
    uint32_t set = long_unknown(q, look, now);
    struct dibs__vote vote;

    note_unfloored(q, look, now);
    trust_most_clocks(q);
    look->deadline = dibs__after_ms(now, q->config.command_timeout_ms);
    if (dibs__look_is_new_quorum(q, look)) {
        if (dibs__look_proves_new(q, look, &q->voting.newness, now))
            admit_new_quorum(q, look);
        return look->admitting;
    }
    q->voting.newness = (struct dibs__newness){.since = 0};
    for (size_t i = 0; i < q->count; i++) {
        if (!dibs__look_plan(q, look, i, set, &vote))
            continue;
        if (!look->admitting)
            begin_admitting(q, look);
        begin_one(q, look, i, vote);
    }
    return look->admitting;
}

static bool is_any_distrusted(const struct dibs__quorum *q)
{
    bool any = false;

    for (size_t i = 0; i < q->count; i++)
        any = any || dibs__member_is_distrusted(&q->members[i]);
    return any;
}

/*
 * How soon, in ms, the next step can be taken of what is left to do at a member. LOOK_MOST_MS: nothing is left
 * to do.
 */
static int64_t left_ms(const struct dibs__quorum *q, const struct dibs__look *look, size_t i)
{
    bool is_known = dibs__set_has(look->known, i);

    if (dibs__set_has(look->strange, i))
        return LOOK_MOST_MS;
    if (!is_known && dibs__set_has(look->unknown | look->restarted, i))
        return q->voting.newness.since != 0 ? LOOK_SOON_MS : LOOK_AGAIN_MS;
    if (is_known && look->answers[i].votes_in_ms > 0)
        return look->answers[i].votes_in_ms < LOOK_MOST_MS ? look->answers[i].votes_in_ms + 1 : LOOK_MOST_MS;
    return is_known && !dibs__set_has(look->ready, i) ? LOOK_SOON_MS : LOOK_MOST_MS;
}

static int64_t look_again_ms(struct dibs__quorum *q, const struct dibs__look *look)
{
    int64_t ms = look_ms(q);

    ms = !dibs__look_is_whole(q, look) && ms > LOOK_MISSED_MS ? LOOK_MISSED_MS : ms;
    ms = is_any_distrusted(q) || !is_announced(q, look) ? LOOK_AGAIN_MS : ms;
    ms = dibs__look_lacks_number(q, look) ? LOOK_SOON_MS : ms;
    for (size_t i = 0; i < q->count; i++) {
        int64_t its_ms = left_ms(q, look, i);
        ms = its_ms < ms ? its_ms : ms;
    }
    return ms;
}

static void end_look(struct dibs__quorum *q, struct dibs__look *look, int64_t now)
{
    note_announced(q, look);
    q->voting.next = dibs__after_ms(now, look_again_ms(q, look));
    q->voting.look = NULL;
    free(look);
}

/*
 * Takes the answers that have come. A member without a connection is not waited for: the next look will ask it,
 * once it has one.
 */
static void sweep(struct dibs__quorum *q, struct dibs__look *look, int64_t now)
{
    struct dibs__error unused;

    for (size_t i = 0; i < q->count; i++) {
        struct dibs__pending_op *op = &look->ops[i];
        if (dibs__set_has(look->open, i) &&
            (dibs__pending_op_progress(op, NULL) != DIBS__OP_AWAITED || now >= look->deadline))
            dibs__look_note(look, op, dibs__pending_op_finish(op, 0, &unused));
    }
}

static void begin_look(struct dibs__quorum *q, int64_t now)
{
    struct dibs__look *look = new_look(q);

    atomic_store(&q->voting.due, false);
    q->voting.last = now;
    q->voting.next = dibs__after_ms(now, LOOK_AGAIN_MS);
    if (!look)
        return;
    look->deadline = dibs__after_ms(now, q->config.command_timeout_ms);
    begin_at_all(q, look);
    q->voting.look = look;
}

void dibs__vote_attend(struct dibs__quorum *q, int64_t now)
{
    struct dibs__look *look = q->voting.look;

    if (!look && now >= due_at(q))
        begin_look(q, now);
    if (!look)
        return;
    sweep(q, look, now);
    if (look->open && !look->admitting) { /* an extension to a length that was never announced waits for that */
        dibs__look_identify(q, look);
        note_announced(q, look);
    }
    bool hastes = atomic_load(&q->voting.longest_ms) > look->longest_ms;
    int64_t whole_ms = hastes ? HASTE_MS : q->config.command_timeout_ms / WHOLE_PART;
    if (look->open && now >= dibs__after_ms(look->began, whole_ms) &&
        dibs__set_count(dibs__look_replied(look)) >= q->majority)
        abandon_open(q, look);
    if (look->open)
        return;
    if (!look->admitting)
        dibs__look_identify(q, look);
    if (look->admitting || !admits(q, look, now))
        end_look(q, look, now);
}

void dibs__vote_finish_all(struct dibs__quorum *q)
{
    if (q->voting.look)
        abandon_open(q, q->voting.look);
    free(q->voting.look);
    q->voting.look = NULL;
}
