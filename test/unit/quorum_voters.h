/*
 * Masters whose answers the test gives, on a clock that jumps: a thread that would sleep is at once at the time of the
 * next answer, or of its deadline. So a test of one thread knows when what was decided.
 */
#ifndef DIBS_TEST_QUORUM_VOTERS_H
#define DIBS_TEST_QUORUM_VOTERS_H

#include "quorum_setup.h"
#include "support/failing_malloc.h"

#define NEVER_MS INT64_C(-1)
#define VOTES_MOST 256
#define LEASE_MS 30000
#define ALL ((UINT32_C(1) << MEMBERS) - 1)

/* One master. What it says to each kind of operation, and how long that takes; NEVER_MS: it is silent. */
struct voter {
    dibs_status says[DIBS__OP_KINDS];
    int64_t takes_ms[DIBS__OP_KINDS];
    enum dibs__progress ends; /* how an operation looks that was answered; 0: OVER */
    bool unsent;              /* there is no connection */
    bool connects;            /* there is one since, so what was begun must be begun again */
    struct dibs__answer answer;
    bool again;  /* a release had to be sent twice */
    bool queues; /* the token of an ask is in the queue from then on */
    dibs_owner owner;
    struct dibs__vote vote;     /* what it knows of itself */
    const dibs_sharer *sharers; /* that it names */
    size_t sharer_count;

    /* What it was asked so far. */
    unsigned asked[DIBS__OP_KINDS], quiet, retracted, kept, dropped;
    struct dibs__vote votes[VOTES_MOST]; /* as it was asked for each */
    size_t vote_count;
    uint64_t retracted_fence; /* of the last retraction */
    struct dibs__op last;
    int64_t finished_at, finish_by; /* of the last that was finished */
    int64_t due;                    /* when what was begun is answered */
    bool begun;
    struct dibs__wait *wait; /* of the thread that waits for that */
};

static struct voter voters[MEMBERS];
static struct dibs__counters counters;
static int64_t the_time;
static unsigned sleeps; /* how often the thread went to sleep */

static inline struct voter *voter_of(const struct dibs__store *store)
{
    return &voters[store - setting.stores];
}

/* -------------------------------------------------------------------- the clock */

static inline int64_t jumping_now(const struct dibs__clock *clock)
{
    return the_time;
}

static inline struct voter *next_to_answer(int64_t deadline)
{
    struct voter *next = NULL;

    for (size_t i = 0; i < MEMBERS; i++)
        if (voters[i].wait && voters[i].due <= deadline && (!next || voters[i].due < next->due))
            next = &voters[i];
    return next;
}

static inline void jumping_sleep(const struct dibs__clock *clock, atomic_uint *word, unsigned value, int64_t deadline)
{
    struct voter *next;

    sleeps++;
    while (atomic_load(word) == value && (next = next_to_answer(deadline))) {
        struct dibs__wait *wait = next->wait;
        the_time = next->due > the_time ? next->due : the_time;
        next->wait = NULL;
        dibs__wait_came(wait);
    }
    if (atomic_load(word) != value)
        return;
    assert_true(deadline != DIBS__NEVER); /* else nothing ends the sleep */
    the_time = deadline > the_time ? deadline : the_time;
}

static const struct dibs__clock jumping = {.now = jumping_now, .sleep = jumping_sleep};

/* ------------------------------------------------------------------- the masters */

static inline void voter_begin(struct dibs__store *store, struct dibs__op *op)
{
    struct voter *voter = voter_of(store);
    int64_t takes_ms = voter->takes_ms[op->kind];

    if (op->kind == DIBS__OP_RELEASE)
        assert_string_equal(op->release.token, "dibs:token");
    voter->last = *op;
    voter->begun = true;
    voter->due = takes_ms == NEVER_MS ? DIBS__NEVER : the_time + MS(takes_ms);
    if (op->kind != DIBS__OP_ASK)
        return;
    op->ask.attempt->proof = the_time;
    op->ask.attempt->number++;
}

static inline void voter_wait_ends(struct dibs__wait *wait)
{
    ((struct voter *)wait->keeper)->wait = NULL;
    wait->end = NULL;
}

static inline enum dibs__progress voter_progress(struct dibs__store *store, const struct dibs__op *op,
                                                 struct dibs__wait *wait)
{
    struct voter *voter = voter_of(store);

    if (voter->connects) {
        voter->connects = false;
        return DIBS__OP_CONNECTED;
    }
    if (the_time >= voter->due && !voter->unsent)
        return voter->ends ? voter->ends : DIBS__OP_OVER;
    voter->wait = voter->unsent ? NULL : wait;
    if (wait) {
        wait->keeper = voter;
        wait->end = voter_wait_ends;
    }
    return voter->unsent ? DIBS__OP_UNSENT : DIBS__OP_AWAITED;
}

/* As a master does what it is asked for, except that no time passes for it. */
static inline void voter_votes(struct voter *voter, struct dibs__vote *vote)
{
    struct dibs__vote *own = &voter->vote;

    assert_true(voter->vote_count < VOTES_MOST);
    voter->votes[voter->vote_count++] = *vote;
    if (vote->what == DIBS__VOTE_ADMITS)
        *own = (struct dibs__vote){.known = true, .longest_ms = own->longest_ms, .process = own->process};
    if (vote->what == DIBS__VOTE_ADMITS || vote->what == DIBS__VOTE_DISTRUSTS)
        own->votes_in_ms = vote->wait_ms;
    if (vote->what != DIBS__VOTE_LOOKS)
        own->ready = own->votes_in_ms == 0 && vote->floor != 0;
    own->quorum = own->known && own->quorum == 0 ? vote->quorum : own->quorum;
    own->longest_ms = own->known && vote->longest_ms > own->longest_ms ? vote->longest_ms : own->longest_ms;
    *vote = *own;
    vote->what = voter->votes[voter->vote_count - 1].what;
}

static inline void voter_fill(struct voter *voter, struct dibs__op *op)
{
    if (op->kind == DIBS__OP_ASK) {
        *op->ask.answer = voter->answer;
        op->ask.attempt->in_store = voter->queues;
        if (voter->answer.retired == DIBS__RETIRED)
            op->ask.attempt->number = 0;
    }
    if (op->kind == DIBS__OP_RELEASE)
        op->release.again = voter->again;
    if (op->kind == DIBS__OP_VOTE)
        voter_votes(voter, op->vote);
    if (op->kind != DIBS__OP_QUERY || voter->says[DIBS__OP_QUERY] != DIBS_OK)
        return;
    *op->query.owner = voter->owner;
    struct dibs__sharers *sharers = op->query.sharers;
    for (size_t i = 0; sharers && i < voter->sharer_count; i++)
        sharers->items[sharers->count++] = voter->sharers[i];
}

static inline dibs_status voter_finish(struct dibs__store *store, struct dibs__op *op, struct dibs__error *error)
{
    struct voter *voter = voter_of(store);
    bool in_time = !voter->begun || (the_time >= voter->due && !voter->unsent);

    if (!voter->begun)
        voter->last = *op;
    voter->begun = false;
    voter->finished_at = the_time;
    voter->finish_by = op->deadline;
    voter->asked[op->kind]++;
    voter->quiet += op->kind == DIBS__OP_RELEASE && op->release.quiet;
    if (!in_time)
        return dibs__error_set(error, DIBS_UNAVAILABLE, "%s", "a master was silent");
    voter_fill(voter, op);
    if (voter->says[op->kind] == DIBS_OK)
        return DIBS_OK; /* leaves the error as it is */
    return dibs__error_set(error, voter->says[op->kind], "%s", "a master said so");
}

/* Counted the first time only: after that nothing is left to conclude. */
static inline void voter_conclude(struct dibs__store *store, struct dibs__attempt *attempt, bool held)
{
    if (attempt->number > 0)
        *(held ? &voter_of(store)->kept : &voter_of(store)->dropped) += 1;
    attempt->number = 0;
}

static inline void voter_retract(struct dibs__store *store, const char *name, const char *token, uint32_t lease_ms,
                                 uint64_t fence)
{
    assert_string_equal(name, "x");
    assert_string_equal(token, "dibs:token");
    assert_int_equal(lease_ms, LEASE_MS);
    voter_of(store)->retracted++;
    voter_of(store)->retracted_fence = fence;
}

static const struct dibs__store_ops voting = {.begin = voter_begin,
                                              .progress = voter_progress,
                                              .finish = voter_finish,
                                              .conclude = voter_conclude,
                                              .retract = voter_retract};

/* ---------------------------------------------------------------------- the test */

static inline void voters_wake_by(void *context, int64_t at)
{
}

static inline int end_vote(void **state)
{
    if (setting.q.members)
        dibs__detached_finish_all(&setting.q);
    return tear_down(state);
}

/* Anew. All masters say DIBS_OK at once, and grant with these fences. */
static inline void begin_vote(uint64_t first, uint64_t second, uint64_t third)
{
    const uint64_t fences[MEMBERS] = {first, second, third};

    end_vote(NULL);
    set_up(&voting);
    setting.q.config.clock = &jumping;
    setting.q.config.counters = &counters;
    setting.q.config.listener.wake_by = voters_wake_by;
    setting.q.config.command_timeout_ms = 1000;
    atomic_store(&setting.q.voting.announced_ms, LEASE_MS);
    the_time = MS(1000000);
    sleeps = 0;
    for (size_t i = 0; i < MEMBERS; i++)
        voters[i] = (struct voter){.answer = {.fence = fences[i]},
                                   .vote = {.known = true, .ready = true, .process = 1 + i, .longest_ms = LEASE_MS}};
}

/* The attempt of one thread to get the lock x. */
static struct dibs__attempt attempt;
static struct dibs__answer answer;
static struct dibs__error error;

static inline int end_attempt(void **state)
{
    if (setting.q.members)
        dibs__quorum_conclude(&setting.q.store, &attempt, false);
    return end_vote(state);
}

static inline void begin_attempt(uint64_t first, uint64_t second, uint64_t third)
{
    end_attempt(NULL);
    begin_vote(first, second, third);
    attempt = (struct dibs__attempt){.name = "x", .token = "dibs:token", .lease_ms = LEASE_MS};
    answer = (struct dibs__answer){.fence = 0};
}

/* Begins an ask, and goes on only that much later. */
static inline dibs_status ask_late(int64_t deadline_ms, int64_t late_ms)
{
    int64_t began = the_time;
    struct dibs__op op = dibs__op_ask(&attempt, &answer, the_time + MS(deadline_ms));

    dibs__quorum_ask_begin(&setting.q.store, &op);
    the_time += MS(late_ms);
    dibs_status status = dibs__quorum_ask_finish(&setting.q.store, &op, &error);
    assert_true(status == DIBS_OK || answer.fence == 0);
    assert_true(status != DIBS_OK || attempt.proof == began || attempt.number > 1);
    return status;
}

static inline dibs_status ask(void)
{
    return ask_late(1000, 0);
}

static inline int64_t passed_ms(int64_t since)
{
    return (the_time - since) / MS(1);
}

static inline void expect_ask(dibs_status status, int64_t takes_ms)
{
    int64_t began = the_time;

    assert_status(status, ask());
    assert_int_equal(passed_ms(began), takes_ms);
}

/* What that master says to that kind of operation, and after which time. */
static inline void voter_says(size_t i, enum dibs__op_kind kind, dibs_status status, int64_t takes_ms)
{
    voters[i].says[kind] = status;
    voters[i].takes_ms[kind] = takes_ms;
}

#endif
