/*
 * Which masters may vote (PROTOCOL.md, rule 15). A master that lost its data
 * does not know what it granted. So it says that it does not know whether it may
 * vote, until a client admits it: at once where a majority says so, because then
 * the quorum is new; else after the longest lease that the others know of, and
 * only once it has said so for UNSURE_MS, because another client may be setting
 * up a new quorum right now. Whoever is to use longer leases than a majority
 * knows of announces that first.
 *
 * A look asks all masters. A thread that opens the quorum, or wants a longer
 * lease, looks by itself and waits (dibs__vote_announce). The scheduler's thread
 * looks without waiting: once an hour, so that the masters remember, and whenever
 * it is wanted.
 *
 * A master whose clock was set forward is distrusted (rule 39): it is not asked
 * before it was told not to vote for the longest lease.
 */
#include <stdlib.h>

#include "store/quorum/quorum_parts.h"

#define UNSURE_MS 1000
#define LOOK_MS 3600000    /* how often masters are looked at: they remember for three days */
#define LOOK_SOON_MS 100   /* how often at most where a master says that it may not vote, */
#define LOOK_AGAIN_MS 1000 /* and where something else is left to do */
#define MISSED_MOST 6      /* that pause doubles so often while a master is not heard */
#define POLL_MS 2          /* how often the scheduler's thread looks for replies */
#define PAUSE_FIRST_MS 2   /* how long a thread waits before it looks again, at first and at most */
#define PAUSE_LAST_MS 50
#define WHOLE_MS 250      /* how long the last masters are waited for */
#define ADMIT_GRACE_MS 20 /* the clocks of masters may differ in pace: this, and 1 % of the lease */

/* What one look at the masters found. */
struct dibs__look {
    uint32_t open;           /* members that have not answered */
    uint32_t known, unknown; /* members that know whether they may vote, and that do not */
    uint32_t admitted;
    bool admitting;      /* the second part: those of `open` are admitted */
    uint32_t longest_ms; /* that is announced */
    uint32_t others_ms;  /* the longest that those know of who know */
    int64_t deadline;
    int64_t began;                       /* of the scheduler's thread: when this part of the look began */
    int64_t ahead_us[DIBS__MEMBERS_MAX]; /* how far the clock of each that answered is ahead of ours */
    int64_t new_since;                   /* since when it is known that the quorum is new; 0: it is not known */
    struct dibs__flight flights[];
};

static struct dibs__look *new_look(struct dibs__quorum *q)
{
    struct dibs__look *look = calloc(1, sizeof *look + q->count * sizeof look->flights[0]);

    for (size_t i = 0; look && i < q->count; i++)
        look->flights[i].member = &q->members[i];
    return look;
}

static void raise_to(_Atomic uint32_t *value, uint32_t to)
{
    uint32_t seen = atomic_load(value);

    while (seen < to && !atomic_compare_exchange_weak(value, &seen, to))
        ;
}

/* Looks at a member only, or admits or distrusts it as the vote says. */
static void begin_one(struct dibs__look *look, size_t i, struct dibs__vote vote)
{
    vote.deadline = look->deadline;
    vote.longest_ms = look->longest_ms;
    look->flights[i].of.vote = vote;
    dibs__flight_begin(&look->flights[i], DIBS__FLIES_VOTE);
    look->open |= (uint32_t)1 << i;
}

static void begin_at_all(struct dibs__quorum *q, struct dibs__look *look)
{
    look->longest_ms = atomic_load(&q->voting.longest_ms);
    look->known = look->unknown = look->admitted = 0;
    look->others_ms = 0;
    look->new_since = 0;
    look->admitting = false;
    for (size_t i = 0; i < q->count; i++)
        begin_one(look, i, (struct dibs__vote){.admit = false});
}

/* How far the clock of a member is behind those of the others that know whether they may vote. */
static int64_t behind_ms(const struct dibs__quorum *q, const struct dibs__look *look, size_t i)
{
    int64_t most = look->ahead_us[i];

    for (size_t other = 0; other < q->count; other++)
        if (dibs__set_has(look->known, other) && look->ahead_us[other] > most)
            most = look->ahead_us[other];
    return (most - look->ahead_us[i]) / 1000;
}

/* Also until the clock of a member has passed those of the others: its fences are to be larger than those it forgot. */
static void begin_admitting(const struct dibs__quorum *q, struct dibs__look *look, uint32_t set, int64_t wait_ms)
{
    look->admitting = true;
    for (size_t i = 0; i < q->count; i++) {
        bool distrust = atomic_load(&q->members[i].distrusted);
        int64_t behind = wait_ms > 0 && !distrust ? behind_ms(q, look, i) + ADMIT_GRACE_MS : 0;
        if (dibs__set_has(set, i))
            begin_one(look, i,
                      (struct dibs__vote){
                          .admit = !distrust, .distrust = distrust, .wait_ms = wait_ms > behind ? wait_ms : behind});
    }
}

/* What a member said. It is not asked for locks before it may vote. */
static void note(struct dibs__look *look, const struct dibs__flight *flight, dibs_status status)
{
    uint32_t bit = (uint32_t)1 << flight->member->index;
    const struct dibs__vote *vote = &flight->of.vote;
    int64_t now = dibs__quorum_now(flight->member->quorum);

    look->open &= ~bit;
    if (status != DIBS_OK)
        return;
    look->ahead_us[flight->member->index] = vote->server_us - now / 1000;
    atomic_store(&flight->member->votes_from, vote->votes_in_ms > 0 ? dibs__after_ms(now, vote->votes_in_ms) : 0);
    if (vote->distrust)
        atomic_store(&flight->member->distrusted, false);
    if (look->admitting) {
        look->admitted |= bit;
    } else if (vote->known) {
        look->known |= bit;
        look->others_ms = vote->longest_ms > look->others_ms ? vote->longest_ms : look->others_ms;
    } else {
        look->unknown |= bit;
    }
}

/* A majority knows how long leases may be. */
static bool is_announced(const struct dibs__quorum *q, const struct dibs__look *look)
{
    return dibs__set_count(look->known | look->admitted) >= q->majority;
}

static bool is_new_quorum(const struct dibs__quorum *q, const struct dibs__look *look)
{
    return dibs__set_count(look->unknown) >= q->majority;
}

static void note_announced(struct dibs__quorum *q, const struct dibs__look *look)
{
    if (is_announced(q, look))
        raise_to(&q->voting.announced_ms, look->longest_ms);
}

/* ------------------------------------------------------- a thread that waits */

/*
 * A new quorum is given a while to be heard as a whole: a master that is
 * admitted later has to wait.
 */
static bool is_decided(const struct dibs__wave *wave, int64_t now)
{
    struct dibs__look *look = wave->context;

    if (look->admitting)
        return is_announced(wave->quorum, look) && dibs__wave_is_overdue(wave, now);
    if (is_announced(wave->quorum, look))
        return true;
    if (!is_new_quorum(wave->quorum, look))
        return false;
    if (look->new_since == 0)
        look->new_since = now;
    return now >= dibs__after_ms(look->new_since, WHOLE_MS);
}

static void land(struct dibs__wave *wave, struct dibs__flight *flight, enum dibs__flying what, dibs_status status)
{
    (void)what;
    note(wave->context, flight, status);
}

static void run(struct dibs__quorum *q, struct dibs__look *look, struct dibs__error *error)
{
    struct dibs__wave wave = {.quorum = q,
                              .flights = look->flights,
                              .open = look->open,
                              .deadline = look->deadline,
                              .context = look,
                              .is_decided = is_decided,
                              .land = land,
                              .error = error};

    dibs__wave_run(&wave);
    for (size_t i = 0; i < q->count; i++)
        if (dibs__set_has(wave.open, i))
            dibs__flight_abandon(&look->flights[i]);
    look->open = 0;
}

/* Another client may be setting up a new quorum right now: then a little later the masters say something else. */
static bool look_and_admit(struct dibs__quorum *q, struct dibs__look *look, struct dibs__error *error)
{
    begin_at_all(q, look);
    run(q, look, error);
    if (!is_announced(q, look) && is_new_quorum(q, look)) {
        begin_admitting(q, look, look->unknown, 0);
        run(q, look, error);
    }
    note_announced(q, look);
    return is_announced(q, look);
}

static void pause(struct dibs__quorum *q, int64_t ms)
{
    struct dibs__ear ear;

    dibs__ear_init(&ear);
    dibs__ear_wait(&ear, q->config.clock, dibs__after_ms(dibs__quorum_now(q), ms));
}

/* Again and again until it is announced, or no majority answers. Returns how many masters answered at last. */
static unsigned look_until_announced(struct dibs__quorum *q, struct dibs__look *look, struct dibs__error *error)
{
    struct dibs__backoff backoff = {.first_ms = PAUSE_FIRST_MS};
    unsigned answered;

    for (;;) {
        error->status = DIBS_OK;
        bool announced = look_and_admit(q, look, error);
        answered = dibs__set_count(look->known | look->unknown);
        int64_t pause_ms = dibs__backoff_next(&backoff, PAUSE_LAST_MS);
        if (announced || answered < q->majority || dibs__after_ms(dibs__quorum_now(q), pause_ms) >= look->deadline)
            return answered;
        pause(q, pause_ms);
    }
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
    if (dibs__set_count(look->known | look->admitted) < q->count)
        dibs__vote_want(q, 0);
    free(look);
    if (!announced)
        return dibs__quorum_no_majority(q, *answered, error);
    error->status = DIBS_OK;
    return DIBS_OK;
}

/* ------------------------------------------------------------- the scheduler */

void dibs__vote_distrust(struct dibs__member *member)
{
    atomic_store(&member->distrusted, true);
    dibs__vote_want(member->quorum, 0);
}

void dibs__vote_want(struct dibs__quorum *q, uint32_t lease_ms)
{
    raise_to(&q->voting.longest_ms, lease_ms);
    if (!atomic_exchange(&q->voting.due, true))
        q->config.listener.wake(q->config.listener.context);
}

void dibs__vote_init(struct dibs__quorum *q)
{
    q->voting.next = dibs__after_ms(dibs__quorum_now(q), LOOK_MS);
    q->voting.last = dibs__quorum_now(q) - LOOK_AGAIN_MS * DIBS__NS_PER_MS;
}

/* When the next look begins. What is wanted for a longer lease begins at once. */
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
        if (dibs__set_has(look->known | look->admitted, i))
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

/* The members whose clock was found to be set forward. */
static uint32_t distrusted(const struct dibs__quorum *q, const struct dibs__look *look)
{
    uint32_t set = 0;

    for (size_t i = 0; i < q->count; i++)
        if (dibs__set_has(look->known, i) && atomic_load(&q->members[i].distrusted))
            set |= (uint32_t)1 << i;
    return set;
}

/* The first part of a look is over. True: the second has begun. */
static bool admits(struct dibs__quorum *q, struct dibs__look *look, int64_t now)
{
    uint32_t set = long_unknown(q, look, now);
    int64_t wait_ms = 0;

    look->began = now;
    look->deadline = dibs__after_ms(now, q->config.command_timeout_ms);
    if (is_new_quorum(q, look)) {
        set = look->unknown;
    } else if (dibs__set_count(look->known) >= q->majority) {
        set |= distrusted(q, look);
        wait_ms = (int64_t)look->others_ms + look->others_ms / 100 + ADMIT_GRACE_MS;
    } else {
        set = 0; /* who can't be reached now may know of longer leases */
    }
    if (set)
        begin_admitting(q, look, set, wait_ms);
    return set != 0;
}

/* Whether a member is still to be distrusted. */
static bool is_any_distrusted(const struct dibs__quorum *q)
{
    bool any = false;

    for (size_t i = 0; i < q->count; i++)
        any = any || atomic_load(&q->members[i].distrusted);
    return any;
}

/* A member that was not heard, because it had to be connected first, is looked at again; ever more seldom. */
static int64_t look_again_ms(struct dibs__quorum *q, const struct dibs__look *look)
{
    bool left = (look->unknown & ~look->admitted) != 0 || is_any_distrusted(q) || !is_announced(q, look);
    bool all = dibs__set_count(look->known | look->unknown) == q->count;

    q->voting.missed = all ? 0 : q->voting.missed + 1;
    if (left)
        return LOOK_AGAIN_MS;
    return all ? LOOK_MS : (int64_t)LOOK_AGAIN_MS << (q->voting.missed < MISSED_MOST ? q->voting.missed : MISSED_MOST);
}

static void end_look(struct dibs__quorum *q, struct dibs__look *look, int64_t now)
{
    note_announced(q, look);
    q->voting.next = dibs__after_ms(now, look_again_ms(q, look));
    q->voting.look = NULL;
    free(look);
}

/* A member that has no connection is not waited for: it is heard by the next look, once it has one. */
static void sweep(struct dibs__quorum *q, struct dibs__look *look, int64_t now)
{
    struct dibs__error unused;

    for (size_t i = 0; i < q->count; i++) {
        struct dibs__flight *flight = &look->flights[i];
        if (dibs__set_has(look->open, i) &&
            (dibs__flight_await(flight, 0) || dibs__flight_is_sent(flight) != DIBS__SENT || now >= look->deadline))
            note(look, flight, dibs__flight_finish(flight, 0, NULL, &unused));
    }
}

static void abandon_open(const struct dibs__quorum *q, struct dibs__look *look)
{
    for (size_t i = 0; i < q->count; i++)
        if (dibs__set_has(look->open, i))
            dibs__flight_abandon(&look->flights[i]);
    look->open = 0;
}

static void begin_look(struct dibs__quorum *q, int64_t now)
{
    struct dibs__look *look = new_look(q);

    atomic_store(&q->voting.due, false);
    q->voting.last = now;
    q->voting.next = dibs__after_ms(now, LOOK_AGAIN_MS);
    if (!look)
        return;
    look->began = now;
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
    if (look->open && now >= look->began + WHOLE_MS * DIBS__NS_PER_MS &&
        dibs__set_count(look->known | look->unknown) >= q->majority)
        abandon_open(q, look);
    if (!look->open && (look->admitting || !admits(q, look, now)))
        end_look(q, look, now);
}

void dibs__vote_finish_all(struct dibs__quorum *q)
{
    if (q->voting.look)
        abandon_open(q, q->voting.look);
    free(q->voting.look);
    q->voting.look = NULL;
}
