/* What the answers of three masters to a renewal come to, and what follows at each of them. */
#include "quorum_setup.h"
#include "support/failing_malloc.h"

#define LEASE_MS 30000

static struct dibs__batch *asked[MEMBERS]; /* under way at each; NULL: none */
static unsigned retracted;

static void renew(struct dibs__store *store, struct dibs__batch *batch)
{
    assert_null(asked[store - setting.stores]);
    asked[store - setting.stores] = batch;
}

static void retract(struct dibs__store *store, const char *name, const char *token, uint32_t lease_ms, uint64_t fence)
{
    retracted++;
}

static void conclude(struct dibs__store *store, struct dibs__attempt *attempt, bool held)
{
}

static const struct dibs__store_ops renewing = {.renew = renew, .retract = retract, .conclude = conclude};

/* ------------------------------------------------------------------- a batch */

static struct dibs__batch batch;
static unsigned dones;
static struct dibs__error done_error;

static void done(struct dibs__batch *whole, const struct dibs__error *error)
{
    assert_ptr_equal(whole, &batch);
    dones++;
    done_error = *error;
}

static struct dibs__renewal *item = &batch.items[0];

static void begin_with(struct dibs__renewal renewal, bool watch)
{
    batch = (struct dibs__batch){.count = 1, .watch = watch, .done = done};
    renewal.name = "x";
    renewal.token = "dibs:token";
    renewal.result = DIBS__GONE;
    renewal.status = DIBS_DENIED;
    *item = renewal;
    dones = 0;
    dibs__quorum_renew(&setting.q.store, &batch);
}

static void begin_renewal(void)
{
    begin_with((struct dibs__renewal){.lease_ms = LEASE_MS, .fence = 7}, false);
}

/* The answer of one master, with what it sets besides. */
static void answers(size_t i, struct dibs__renewal set)
{
    struct dibs__error error = {set.status, ""};
    struct dibs__batch *part = asked[i];
    struct dibs__renewal *its = &part->items[0];

    asked[i] = NULL;
    its->result = set.result;
    its->status = set.status;
    its->was_anothers = set.was_anothers;
    its->sent = set.sent;
    its->again_ms = set.again_ms;
    its->pending_extension_ms = set.pending_extension_ms;
    if (set.result != DIBS__UNANSWERED)
        error.status = DIBS_OK;
    part->done(part, &error);
}

static const struct dibs__renewal yes = {.result = DIBS__RENEWED}, gone = {.result = DIBS__GONE},
                                  silent = {.result = DIBS__UNANSWERED, .status = DIBS_UNAVAILABLE, .sent = true},
                                  unsent = {.result = DIBS__UNANSWERED, .status = DIBS_UNAVAILABLE},
                                  denied = {.result = DIBS__UNANSWERED, .status = DIBS_DENIED};

static void end_rest(void)
{
    for (size_t i = 0; i < MEMBERS; i++)
        if (asked[i])
            answers(i, unsent);
}

static int teardown(void **state)
{
    end_rest();
    return tear_down(state);
}

/* The lock x is held at all masters. */
static int setup(void **state)
{
    teardown(NULL);
    set_up(&renewing);
    held_at_all(LEASE_MS);
    retracted = 0;
    return 0;
}

static struct dibs__member_state *state_at(size_t i)
{
    struct dibs__claim *claim = dibs__claim_find(&setting.q, "dibs:token");

    assert_non_null(claim);
    dibs__claim_unref(&setting.q, claim);
    return &claim->states[i];
}

static void put_in(size_t i, enum dibs__member_phase phase)
{
    struct dibs__member_state *state = state_at(i);

    UNDER_MUTEX(state->phase = phase);
}

/* ------------------------------------------------------------------ decisions */

TEST(a_majority_renews_and_the_last_delays_nobody)
{
    for (size_t last = 0; last < MEMBERS; last++) {
        setup(state);
        moved_clock_advance(&setting.clock, MS(5));
        begin_renewal();
        assert_true(batch.proof == moved_clock_now(&setting.clock));
        answers((last + 1) % MEMBERS, yes);
        assert_true(dones == 0 && atomic_load(&setting.q.last_reply_at) == 0);
        answers((last + 2) % MEMBERS, yes);
        assert_int_equal(dones, 1);
        assert_int_equal(item->result, DIBS__RENEWED);
        assert_status(DIBS_OK, done_error.status);
        assert_true(item->pending_extension_ms == 0 && item->again_ms == 0);
        assert_true(atomic_load(&setting.q.last_reply_at) == moved_clock_now(&setting.clock));
        answers(last, gone);
        assert_int_equal(dones, 1);
        assert_int_equal(retracted, 0);
    }
}

/* No majority is left: what the last may have is taken back. */
TEST(what_a_majority_lost_is_gone_at_once)
{
    begin_renewal();
    answers(0, gone);
    assert_int_equal(dones, 0);
    answers(1, gone);
    assert_true(dones == 1 && item->result == DIBS__GONE);
    assert_int_equal(retracted, 1);
    assert_null(dibs__claim_find(&setting.q, "dibs:token"));
}

TEST(where_too_few_answer_nothing_is_decided)
{
    static const struct {
        const struct dibs__renewal *says[MEMBERS];
        dibs_status status, error;
        const char *detail;
    } rows[] = {
        {{&yes, &gone, &silent}, DIBS_OK, DIBS_UNAVAILABLE, ""},
        {{&yes, &silent, &unsent}, DIBS_OK, DIBS_UNAVAILABLE, ""},
        {{&denied, &yes, &silent}, DIBS_DENIED, DIBS_DENIED, ""},
        {{&gone, &denied, &yes}, DIBS_DENIED, DIBS_DENIED, ""},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        setup(state);
        begin_renewal();
        for (size_t member = 0; member < MEMBERS; member++) {
            assert_int_equal(dones, 0);
            answers(member, *rows[i].says[member]);
        }
        assert_int_equal(dones, 1);
        assert_int_equal(item->result, DIBS__UNANSWERED);
        assert_status(rows[i].status, item->status);
        assert_status(rows[i].error, done_error.status);
        assert_int_equal(retracted, 0);
        assert_true(atomic_load(&setting.q.last_reply_at) == 0);
    }
}

/* A member that may not be asked leaves two, one of which lost it. */
TEST(masters_that_are_asked_nothing_renew_nothing)
{
    setup(state);
    put_in(2, DIBS__MEMBER_RETIRED);
    begin_renewal();
    assert_null(asked[2]);
    answers(0, yes);
    answers(1, gone);
    assert_true(dones == 1 && item->result == DIBS__UNANSWERED);
    assert_string_equal(done_error.detail, "fewer than 2 of 3 masters renewed the lease");
    setup(state);
    for (size_t i = 0; i < MEMBERS; i++)
        put_in(i, DIBS__MEMBER_RETIRED);
    begin_renewal();
    assert_true(dones == 1 && item->result == DIBS__UNANSWERED);
}

TEST(the_generation_of_a_renewal_is_that_of_its_beginning)
{
    atomic_store(&setting.q.generation, 4);
    begin_renewal();
    atomic_store(&setting.q.generation, 5); /* one went over to another server meanwhile */
    answers(0, yes);
    answers(1, yes);
    assert_true(item->store_state.words[0] == 4);
}

/* An extension that may still arrive would cut it: so long a majority makes sure of. */
TEST(a_lease_is_as_long_as_a_majority_makes_sure)
{
    static const struct {
        uint32_t cuts[2];
        int64_t agains[2];
        uint32_t pending_ms;
        int64_t again_ms;
    } rows[] = {{{100, 300}, {9, 5}, 100, 5},
                {{300, 100}, {9, 5}, 100, 5},
                {{100, 300}, {5, 9}, 100, 5},
                {{0, 300}, {0, 9}, 300, 9},
                {{200, 0}, {4, 0}, 200, 4},
                {{LEASE_MS, 0}, {4, 0}, 0, 0},
                {{LEASE_MS + 1, LEASE_MS}, {4, 4}, 0, 0}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        setup(state);
        begin_renewal();
        for (size_t member = 0; member < 2; member++)
            answers(member, (struct dibs__renewal){.result = DIBS__RENEWED,
                                                   .pending_extension_ms = rows[i].cuts[member],
                                                   .again_ms = rows[i].agains[member]});
        assert_int_equal(item->result, DIBS__RENEWED);
        assert_int_equal(item->pending_extension_ms, rows[i].pending_ms);
        assert_true(item->again_ms == rows[i].again_ms);
    }
}

/* -------------------------------------------------------------- what is sent */

TEST(each_master_is_asked_for_what_the_caller_wants)
{
    begin_with((struct dibs__renewal){.lease_ms = LEASE_MS, .fence = 7, .look = true, .fixed = true}, false);
    for (size_t i = 0; i < MEMBERS; i++) {
        const struct dibs__renewal *its = &asked[i]->items[0];
        assert_true(its->look && its->fixed && !its->extension && !its->top_up);
        assert_true(its->lease_ms == LEASE_MS && its->fence == 7);
        assert_string_equal(its->name, "x");
        assert_string_equal(its->token, "dibs:token");
    }
    end_rest();
    begin_with((struct dibs__renewal){.lease_ms = LEASE_MS, .extension = true, .look = true}, false);
    assert_true(asked[0]->items[0].extension && !asked[0]->items[0].look);
}

/* The fence that it gave may be larger than that of the hold: by it, it knows whether another has had the lock since.
 */
TEST(a_lock_is_set_where_it_was_not_granted)
{
    static const uint64_t fences[] = {5, 7, 9};

    for (size_t i = 0; i < sizeof fences / sizeof fences[0]; i++) {
        setup(state);
        put_in(1, DIBS__MEMBER_NOTHING);
        struct dibs__member_state *first = state_at(0), *second = state_at(1);
        UNDER_MUTEX(first->fence = second->fence = fences[i]);
        begin_with((struct dibs__renewal){.lease_ms = LEASE_MS, .fence = 7, .look = true}, false);
        assert_true(asked[1]->items[0].top_up && !asked[0]->items[0].top_up);
        assert_true(asked[1]->items[0].fence == (fences[i] > 7 ? 9 : 7) && asked[0]->items[0].fence == 7);
        assert_true(!asked[1]->items[0].look && asked[0]->items[0].look);
        assert_true(second->topping_up && !first->topping_up);
    }
}

/* Whether that arrives is not known before it is answered; a release must know. */
TEST(a_lock_that_may_be_set_is_noted_until_an_answer)
{
    static const struct {
        const struct dibs__renewal *first, *second;
        bool noted;
    } rows[] = {{&unsent, NULL, false},
                {&silent, NULL, true},
                {&silent, &unsent, true},
                {&silent, &yes, false},
                {&silent, &gone, false}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        setup(state);
        put_in(2, DIBS__MEMBER_NOTHING);
        begin_renewal();
        answers(2, *rows[i].first);
        end_rest();
        if (rows[i].second) {
            begin_renewal();
            answers(2, *rows[i].second);
        }
        assert_int_equal(state_at(2)->topping_up, rows[i].noted);
        assert_int_equal(state_at(2)->phase == DIBS__MEMBER_GRANTED, rows[i].second == &yes);
    }
}

/* What was sent over another connection, and had no answer, may arrive later, unless another has had the lock since. */
TEST(an_ask_in_doubt_stays_so_where_a_renewal_set_the_lock)
{
    static const struct dibs__renewal *const says[] = {&yes, &silent, &gone};

    for (size_t i = 0; i < sizeof says / sizeof says[0]; i++) {
        setup(state);
        put_in(2, DIBS__MEMBER_NOTHING);
        struct dibs__member_state *third = state_at(2);
        UNDER_MUTEX(third->in_doubt = true);
        begin_renewal();
        answers(2, *says[i]);
        assert_int_equal(third->in_doubt, says[i] != &gone);
        end_rest();
    }
}

TEST(who_is_busy_with_the_token_is_asked_later)
{
    static const enum dibs__member_phase busy[] = {DIBS__MEMBER_PENDING, DIBS__MEMBER_PENDING, DIBS__MEMBER_RETIRED};

    for (size_t i = 0; i < sizeof busy / sizeof busy[0]; i++) {
        setup(state);
        put_in(1, busy[i]);
        begin_renewal();
        assert_true(asked[0] && !asked[1] && asked[2]);
    }
}

/* Nor one whose clock was set, nor one of another quorum, where the lock would have to be set. */
TEST(who_may_not_vote_is_not_asked_to_set_the_lock)
{
    put_in(0, DIBS__MEMBER_NOTHING);
    put_in(1, DIBS__MEMBER_NOTHING);
    atomic_store(&setting.members[0].steps, 1);
    atomic_store(&setting.members[1].strange, true);
    atomic_store(&setting.members[2].steps, 1);
    begin_renewal();
    assert_true(!asked[0] && !asked[1] && asked[2]);
}

/* An extension that was not sent there is sent with the next renewal. */
TEST(an_extension_is_caught_up_on)
{
    begin_renewal();
    answers(0, yes);
    answers(1, yes); /* the third is busy with it */
    begin_with((struct dibs__renewal){.lease_ms = LEASE_MS, .extension = true}, false);
    assert_true(asked[0]->items[0].extension);
    answers(0, yes);
    answers(1, yes);
    answers(2, yes);
    begin_with((struct dibs__renewal){.lease_ms = LEASE_MS, .look = true}, false);
    assert_true(asked[2]->items[0].extension && !asked[2]->items[0].look && !asked[0]->items[0].extension);
    answers(2, yes);
    end_rest();
    begin_renewal();
    assert_false(asked[2]->items[0].extension);
}

/* Where it shortened the lease, a renewal would find more left than it asks for, and never count. */
TEST(an_extension_without_an_answer_is_sent_again)
{
    const struct dibs__renewal *says[] = {&silent, &unsent, &silent};

    begin_with((struct dibs__renewal){.lease_ms = LEASE_MS, .extension = true}, false);
    for (size_t i = 0; i < 3; i++) {
        answers(0, yes);
        answers(1, yes);
        answers(2, *says[i]);
        begin_renewal();
        assert_true(asked[2]->items[0].extension && !asked[1]->items[0].extension);
    }
    answers(2, yes);
    end_rest();
    begin_renewal();
    assert_false(asked[2]->items[0].extension);
}

/* What happened while the answer was under way may be missing in it. */
TEST(a_change_during_a_renewal_is_looked_at_again)
{
    for (int replies = 0; replies < 2; replies++) {
        setup(state);
        begin_renewal();
        answers(0, yes);
        answers(1, yes);
        begin_renewal(); /* because of a change, say */
        answers(0, yes);
        answers(1, yes);
        assert_int_equal(setting.changes, 0);
        answers(2, replies ? yes : silent);
        assert_int_equal(setting.changes, replies);
        begin_renewal();
        answers(2, yes);
        assert_int_equal(setting.changes, replies);
    }
}

TEST(a_length_that_is_not_announced_is_not_sent)
{
    setup(state);
    begin_with((struct dibs__renewal){.lease_ms = LEASE_MS + 1, .extension = true}, false);
    assert_true(!asked[0] && !asked[1] && !asked[2]);
    assert_true(dones == 1 && item->result == DIBS__UNANSWERED);
    assert_int_equal(atomic_load(&setting.q.voting.longest_ms), LEASE_MS + 1);
    assert_true(atomic_load(&setting.q.voting.due));
    setup(state);
    begin_renewal();
    assert_false(atomic_load(&setting.q.voting.due));
}

/* Begins to renew two leases of one lock. */
static void renew_two(uint32_t first_ms, uint32_t second_ms)
{
    static const struct dibs__renewal renewal = {.name = "x", .token = "dibs:token", .fence = 7, .result = DIBS__GONE};

    batch = (struct dibs__batch){.count = 2, .done = done, .items = {renewal, renewal}};
    batch.items[0].lease_ms = first_ms;
    batch.items[1].lease_ms = second_ms;
    batch.items[1].token = "dibs:other"; /* of an earlier process, say */
    dones = 0;
    dibs__quorum_renew(&setting.q.store, &batch);
}

/* Each lease of a batch by itself; where one is not sent, the others keep their places. */
TEST(the_leases_of_a_batch_are_decided_one_by_one)
{
    for (size_t long_one = 0; long_one < 2; long_one++) {
        setup(state);
        renew_two(LEASE_MS + (long_one == 0), LEASE_MS + (long_one == 1));
        assert_int_equal(atomic_load(&setting.q.voting.longest_ms), LEASE_MS + 1);
        assert_int_equal(asked[0]->count, 1);
        assert_string_equal(asked[0]->items[0].token, long_one == 0 ? "dibs:other" : "dibs:token");
        answers(0, yes);
        assert_int_equal(dones, 0);
        answers(1, yes);
        assert_int_equal(dones, 1);
        assert_int_equal(batch.items[long_one].result, DIBS__UNANSWERED);
        assert_int_equal(batch.items[1 - long_one].result, DIBS__RENEWED);
        assert_status(DIBS_UNAVAILABLE, done_error.status);
        assert_string_equal(done_error.detail, "fewer than 2 of 3 masters renewed the lease");
    }
}

/* The reason is that of the batch, the status that of the lease that was refused alone. */
TEST(why_a_lease_was_refused_is_told_though_others_were_renewed)
{
    struct dibs__error refusal;

    renew_two(LEASE_MS, LEASE_MS);
    for (size_t i = 0; i < MEMBERS; i++) {
        struct dibs__batch *part = asked[i];
        asked[i] = NULL;
        part->items[0].result = DIBS__RENEWED;
        part->items[1].status = DIBS_DENIED;
        dibs__error_set(&refusal, DIBS_DENIED, "no right to %s", part->items[1].token);
        part->done(part, &refusal);
    }
    assert_int_equal(dones, 1);
    assert_int_equal(batch.items[0].result, DIBS__RENEWED);
    assert_status(DIBS_OK, batch.items[0].status);
    assert_int_equal(batch.items[1].result, DIBS__UNANSWERED);
    assert_status(DIBS_DENIED, batch.items[1].status);
    assert_status(DIBS_UNAVAILABLE, done_error.status);
    assert_string_equal(done_error.detail, "no right to dibs:other");
    assert_true(atomic_load(&setting.q.last_reply_at) == moved_clock_now(&setting.clock));
}

TEST(a_batch_is_done_when_all_its_leases_are_decided)
{
    const struct dibs__error none = {DIBS_OK, ""};

    renew_two(LEASE_MS, LEASE_MS);
    for (size_t i = 0; i < MEMBERS; i++) {
        struct dibs__batch *part = asked[i];
        asked[i] = NULL;
        assert_int_equal(dones, 0);
        assert_int_equal(part->count, 2);
        part->items[0].result = DIBS__RENEWED;
        part->items[1].result = i == 1 ? DIBS__RENEWED : DIBS__GONE;
        part->done(part, &none);
    }
    assert_int_equal(dones, 1);
    assert_int_equal(batch.items[0].result, DIBS__RENEWED);
    assert_int_equal(batch.items[1].result, DIBS__GONE);
}

/* ------------------------------------------------------------ what counts not */

/* It may come later; but not where another has had the lock since. */
TEST(a_lock_that_could_not_be_set_is_no_loss)
{
    for (int anothers = 0; anothers < 2; anothers++) {
        setup(state);
        put_in(0, DIBS__MEMBER_NOTHING);
        begin_renewal();
        answers(0, (struct dibs__renewal){.result = DIBS__GONE, .was_anothers = anothers});
        answers(1, gone);
        assert_int_equal(dones, anothers);
        answers(2, yes);
        assert_true(dones == 1 && item->result == (anothers ? DIBS__GONE : DIBS__UNANSWERED));
        assert_true(anothers || state_at(0)->phase == DIBS__MEMBER_NOTHING);
    }
}

/* Its leases end early once the clock is set right; what it sets, it may have forgotten too early. */
TEST(renewals_by_a_clock_that_was_set_do_not_count)
{
    static const struct {
        bool set_back, distrusted, top_up, counts;
    } rows[] = {{false, false, false, true},
                {true, false, false, false},
                {false, true, false, true},
                {false, true, true, false},
                {false, false, true, true}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        setup(state);
        if (rows[i].top_up)
            put_in(0, DIBS__MEMBER_NOTHING);
        begin_renewal();
        atomic_store(&setting.members[0].set_back, rows[i].set_back);
        atomic_store(&setting.members[0].steps, rows[i].distrusted);
        answers(0, yes);
        answers(1, yes);
        assert_int_equal(dones, rows[i].counts);
    }
}

/* What it set before it was told may have been another's, whoever was told since. */
TEST(what_was_set_before_a_step_was_told_does_not_count)
{
    setup(state);
    put_in(0, DIBS__MEMBER_NOTHING);
    begin_renewal();
    atomic_store(&setting.members[0].steps, 1);
    atomic_store(&setting.members[0].told_steps, 1);
    answers(0, yes);
    answers(1, yes);
    assert_int_equal(dones, 0);
}

TEST(an_answer_shows_the_clock_of_its_master)
{
    for (int i = 0; i < 2; i++) {
        begin_renewal();
        asked[0]->proof = moved_clock_now(&setting.clock);
        asked[0]->server_us = moved_clock_now(&setting.clock) / 1000 + (i == 0 ? 5000000 : 1000);
        answers(0, yes);
        end_rest();
        assert_int_equal(dibs__member_is_distrusted(&setting.members[0]), i);
        assert_int_equal(atomic_load(&setting.members[0].set_back), i);
    }
}

/* ---------------------------------------------------------------------- looks */

static void look(void)
{
    begin_with((struct dibs__renewal){.lease_ms = 0}, true);
}

TEST(a_look_finds_any_loss)
{
    static const struct dibs__renewal watched = {.result = DIBS__WATCHED};
    static const struct {
        const struct dibs__renewal *says[MEMBERS];
        enum dibs__renewed result;
    } rows[] = {{{&watched, &watched, &watched}, DIBS__WATCHED},
                {{&watched, &watched, &gone}, DIBS__GONE},
                {{&gone, &watched, &silent}, DIBS__GONE},
                {{&silent, &unsent, &watched}, DIBS__WATCHED},
                {{&silent, &silent, &denied}, DIBS__UNANSWERED}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        setup(state);
        look();
        for (size_t member = 0; member < MEMBERS; member++) {
            assert_true(dones == 0 && asked[member]->watch);
            answers(member, *rows[i].says[member]);
        }
        assert_true(dones == 1 && item->result == rows[i].result);
        assert_status(DIBS_OK, done_error.status);
        assert_int_equal(retracted, 0);
        assert_true(atomic_load(&setting.q.last_reply_at) == 0);
        assert_int_equal(state_at(0)->phase, DIBS__MEMBER_GRANTED);
    }
}

/* Others may have it where it was not granted; and who does not watch is not asked. */
TEST(a_look_concerns_who_granted_the_lock_and_watches)
{
    put_in(0, DIBS__MEMBER_NOTHING);
    setting.stores[2].watches = false;
    look();
    assert_null(asked[2]);
    answers(0, gone);
    answers(1, (struct dibs__renewal){.result = DIBS__WATCHED});
    assert_true(dones == 1 && item->result == DIBS__WATCHED);
}

/* A look is no renewal: one may be under way beside it. */
TEST(a_renewal_goes_on_beside_a_look)
{
    look();
    for (size_t i = 0; i < MEMBERS; i++)
        assert_false(state_at(i)->renewing || state_at(i)->passed_over);
}

/* ---------------------------------------------------------------- a release meanwhile */

/* What another thread does while the renewal is being divided. */
static void release_meanwhile(void *context)
{
    dibs__quorum_retract(&setting.q.store, "x", "dibs:token", LEASE_MS, 7);
}

/* The first master does not have the lock, so nothing is retracted there. */
TEST(what_was_released_while_its_renewal_began_is_not_set_again)
{
    put_in(0, DIBS__MEMBER_NOTHING);
    setting.q.config.listener.wake = release_meanwhile;
    batch = (struct dibs__batch){.count = 2, .done = done};
    batch.items[0] = (struct dibs__renewal){.name = "x", .token = "dibs:token", .lease_ms = LEASE_MS, .fence = 7};
    batch.items[1] = (struct dibs__renewal){.name = "x", .token = "dibs:longer", .lease_ms = 2 * LEASE_MS, .fence = 8};
    dones = 0;
    dibs__quorum_renew(&setting.q.store, &batch);
    assert_int_equal(retracted, 2);
    assert_null(asked[0]);
    answers(1, gone);
    answers(2, gone);
    assert_true(dones == 1 && item->result == DIBS__GONE);
}

/* --------------------------------------------------------------------- memory */

#if CAN_FAIL
TEST(without_memory_a_renewal_is_unanswered)
{
    for (long fails = 1; fails <= 4; fails++) {
        fail_here(fails);
        begin_renewal();
        fail_no_more();
        if (fails == 1) {
            assert_true(dones == 1 && item->result == DIBS__UNANSWERED && item->status == DIBS_OK);
            assert_status(DIBS_NO_MEMORY, done_error.status);
            continue;
        }
        for (size_t i = 0; i < MEMBERS; i++)
            assert_int_equal(asked[i] == NULL, (long)i == fails - 2);
        end_rest();
        assert_true(dones == 1 && item->result == DIBS__UNANSWERED);
        assert_status(DIBS_NO_MEMORY, done_error.status);
    }
    begin_renewal();
    answers(0, yes);
    answers(2, yes);
    assert_int_equal(item->result, DIBS__RENEWED);
}
#endif

TESTS(setup, teardown)
