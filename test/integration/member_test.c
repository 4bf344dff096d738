/* What one master of a quorum does, as the contract of the stores has it (src/store/store.h). */
#define ONE_MASTER_ONLY
#include "integration/store_setup.h"
#include "store/redis/redis_store.h"
#include "support/queue.h"

static struct seat *sit_as_member(struct world *w)
{
    return sit_with(w, 0, (struct dibs__store_config){.is_member = true});
}

/* ------------------------------------------------------------------- voting */

/* Votes as a begun operation where `begun`, and waits for the reply. */
static struct dibs__vote vote_as(struct seat *seat, struct dibs__vote vote, bool begun)
{
    struct dibs__error error = {DIBS_OK, ""};
    struct dibs__op op = {.kind = DIBS__OP_VOTE, .deadline = seat_deadline(), .vote = &vote};

    if (begun) {
        seat->store->ops->begin(seat->store, &op);
        seat_await(seat, &op, seat_deadline());
    }
    dibs_status status = seat->store->ops->finish(seat->store, &op, &error);
    assert_that(status == DIBS_OK, "a vote: %s", error.detail);
    assert_null(op.state);
    return vote;
}

static struct dibs__vote look_at_vote(struct seat *seat, uint32_t longest_ms)
{
    return vote_as(seat, (struct dibs__vote){.longest_ms = longest_ms}, true);
}

static struct dibs__vote admit(struct seat *seat, int64_t wait_ms)
{
    return vote_as(
        seat, (struct dibs__vote){.longest_ms = LEASE_MS, .what = DIBS__VOTE_ADMITS, .floor = 1, .wait_ms = wait_ms},
        false);
}

static struct seat *sit_as_voter(struct world *w)
{
    struct seat *seat = sit_as_member(w);

    admit(seat, 0);
    return seat;
}

TEST_ON_STORES(a_master_that_is_new_does_not_know_whether_it_may_vote, struct world *w)
{
    struct seat *seat = sit_as_member(w);
    struct dibs__vote vote = look_at_vote(seat, 5000);

    assert_false(vote.known);
    assert_int_equal(vote.longest_ms, 5000);
    assert_false(look_at_vote(seat, 1000).known); /* to look changes nothing */
}

TEST_ON_STORES(an_admitted_master_votes_from_its_time_on, struct world *w)
{
    struct seat *seat = sit_as_member(w);
    struct dibs__vote vote = admit(seat, LEASE_MS);

    assert_true(vote.known);
    assert_in_range(vote.votes_in_ms, LEASE_MS / 2, LEASE_MS);
    vote = look_at_vote(seat, 1000);
    assert_true(vote.known);
    assert_in_range(vote.votes_in_ms, LEASE_MS / 2, LEASE_MS);
}

TEST_ON_STORES(a_master_votes_once_its_time_has_come, struct world *w)
{
    struct seat *seat = sit_as_member(w);

    assert_in_range(admit(seat, 50).votes_in_ms, 0, 50);
    await_that(look_at_vote(seat, 1000).votes_in_ms == 0);
    assert_true(look_at_vote(seat, 1000).known);
}

TEST_ON_STORES(the_longest_lease_only_grows, struct world *w)
{
    struct seat *seat = sit_as_member(w), *other = sit_as_member(w);

    assert_int_equal(admit(seat, 0).longest_ms, LEASE_MS);
    assert_int_equal(look_at_vote(seat, 500).longest_ms, LEASE_MS);
    assert_int_equal(look_at_vote(other, LEASE_MS + 7000).longest_ms, LEASE_MS + 7000);
    assert_int_equal(look_at_vote(seat, 2000).longest_ms, LEASE_MS + 7000);
    assert_int_equal(look_at_vote(seat, 2000).votes_in_ms, 0); /* as it was */
}

/* The second finds the master admitted: its time stays. */
TEST_ON_STORES(of_two_admissions_at_once_one_counts, struct world *w)
{
    struct seat *seat = sit_as_member(w), *other = sit_as_member(w);
    struct dibs__vote vote = {.longest_ms = LEASE_MS, .what = DIBS__VOTE_ADMITS, .floor = 1}, later = vote;
    struct dibs__op first = {.kind = DIBS__OP_VOTE, .deadline = seat_deadline(), .vote = &vote}, second = first;

    later.wait_ms = LEASE_MS;
    second.vote = &later;
    seat->store->ops->begin(seat->store, &first);
    if (w->kind->where != IN_MEMORY)
        assert_true(seat_await(seat, &first, seat_deadline()));
    else
        assert_status(DIBS_OK, store_do(seat->store, &first));
    other->store->ops->begin(other->store, &second);
    assert_status(DIBS_OK, store_do(other->store, &second));
    assert_int_equal(later.votes_in_ms, 0);
    assert_status(DIBS_OK, store_do(seat->store, &first));
    assert_int_equal(vote.votes_in_ms, 0);
    assert_true(vote.known && later.known);
}

/* -------------------------------------------------------------------- fences */

static dibs_status raise_to(struct seat *seat, const char *token, uint64_t fence, bool begun)
{
    struct dibs__op op = {.kind = DIBS__OP_RAISE,
                          .name = "x",
                          .deadline = seat_deadline(),
                          .raise = {.token = token, .fence = fence, .lease_ms = LEASE_MS}};

    if (begun) {
        seat->store->ops->begin(seat->store, &op);
        seat_await(seat, &op, seat_deadline());
    }
    return store_do(seat->store, &op);
}

TEST_ON_STORES(a_raise_makes_the_next_fence_larger, struct world *w)
{
    struct seat *seat = sit(w, 0), *other = sit(w, 0);
    struct dibs__attempt attempt = attempt_for(w, "x", false), next = attempt_for(w, "x", false);
    uint64_t raised = get(seat, &attempt) + 10000000000; /* hours ahead of the server's clock */

    assert_status(DIBS_OK, raise_to(seat, attempt.token, raised, true));
    assert_status(DIBS_OK, raise_to(seat, attempt.token, raised, false)); /* twice is as once */
    assert_int_equal(look(other, "x").fence, raised);
    assert_status(DIBS_OK, release(seat, "x", attempt.token));
    assert_true(get(other, &next) > raised);
    assert_status(DIBS_OK, release(other, "x", next.token));
}

TEST_ON_STORES(a_raise_never_lowers, struct world *w)
{
    struct seat *seat = sit(w, 0);
    struct dibs__attempt attempt = attempt_for(w, "x", false);
    uint64_t fence = get(seat, &attempt);

    assert_status(DIBS_OK, raise_to(seat, attempt.token, fence - 1, true));
    assert_int_equal(look(seat, "x").fence, fence);
    assert_status(DIBS_OK, raise_to(seat, attempt.token, fence, false));
    assert_int_equal(look(seat, "x").fence, fence);
    assert_status(DIBS_OK, release(seat, "x", attempt.token));
}

TEST_ON_STORES(only_the_owner_raises_a_fence, struct world *w)
{
    struct seat *seat = sit(w, 0);
    struct dibs__attempt attempt = attempt_for(w, "x", false);

    assert_status(DIBS_NOT_HELD, raise_to(seat, attempt.token, 100, true)); /* nobody's */
    uint64_t fence = get(seat, &attempt);
    assert_status(DIBS_NOT_HELD, raise_to(seat, "dibs:another", fence + 1000, true));
    assert_int_equal(look(seat, "x").fence, fence);
    assert_status(DIBS_OK, release(seat, "x", attempt.token));
}

/* ------------------------------------------------------------------- top-ups */

static struct dibs__renewal top_up_of(const char *token, uint64_t fence)
{
    return (struct dibs__renewal){.name = "x", .token = token, .lease_ms = LEASE_MS, .fence = fence, .top_up = true};
}

TEST_ON_STORES(a_lock_that_is_free_is_topped_up, struct world *w)
{
    struct seat *seat = sit_as_voter(w);
    struct dibs__renewal renewal = top_up_of("dibs:held", 5);
    struct dibs__attempt next = attempt_for(w, "x", false);

    assert_int_equal(seat_renew(seat, &renewal), DIBS__RENEWED);
    dibs_owner owner = look(seat, "x");
    assert_string_equal(owner.token, "dibs:held");
    assert_int_equal(owner.fence, 5);
    assert_in_range(owner.remaining_ms, LEASE_MS / 2, LEASE_MS);
    renewal.lease_ms *= 2;
    assert_int_equal(seat_renew(seat, &renewal), DIBS__RENEWED); /* and is renewed then as any */
    assert_in_range(look(seat, "x").remaining_ms, LEASE_MS + 1, 2 * LEASE_MS);
    assert_status(DIBS_OK, release(seat, "x", "dibs:held"));
    assert_true(get(sit(w, 0), &next) > 5);
    assert_status(DIBS_OK, release(seat, "x", next.token));
}

TEST_ON_STORES(a_renewal_without_top_up_sets_nothing, struct world *w)
{
    struct seat *seat = sit_as_member(w);
    struct dibs__renewal renewal = top_up_of("dibs:held", 5);

    renewal.top_up = false;
    assert_int_equal(seat_renew(seat, &renewal), DIBS__GONE);
    assert_false(look(seat, "x").held);
}

TEST_ON_STORES(a_top_up_leaves_the_lock_of_another_alone, struct world *w)
{
    struct seat *seat = sit(w, 0);
    struct dibs__attempt attempt = attempt_for(w, "x", false);
    uint64_t fence = get(seat, &attempt);
    struct dibs__renewal renewal = top_up_of("dibs:held", fence + 1000);

    assert_int_equal(seat_renew(seat, &renewal), DIBS__GONE);
    dibs_owner owner = look(seat, "x");
    assert_string_equal(owner.token, attempt.token);
    assert_int_equal(owner.fence, fence);
    assert_status(DIBS_OK, release(seat, "x", attempt.token));
}

/* A limit, which is 1 in a quorum, holds for a top-up too; who shares without one is let in beside the others. */
TEST_ON_STORES(a_top_up_keeps_the_limit, struct world *w)
{
    struct seat *seat = sit_as_voter(w);
    struct dibs__renewal first = top_up_of("dibs:first~1", 5), second = top_up_of("dibs:second~1", 6),
                         third = top_up_of("dibs:third~0", 7), fourth = top_up_of("dibs:fourth~0", 8);

    assert_int_equal(seat_renew(seat, &first), DIBS__RENEWED);
    assert_int_equal(seat_renew(seat, &second), DIBS__GONE); /* beside the only one */
    assert_string_equal(look(seat, "x").token, "dibs:first~1");
    assert_status(DIBS_OK, release(seat, "x", "dibs:first~1"));
    seat_renew(seat, &third);
    assert_int_equal(seat_renew(seat, &fourth), DIBS__RENEWED);
    second.result = DIBS__UNANSWERED;
    assert_int_equal(seat_renew(seat, &second), DIBS__GONE); /* beside several */
    assert_int_equal(look(seat, "x").sharers, 2);
    assert_status(DIBS_OK, release(seat, "x", "dibs:third~0"));
    assert_status(DIBS_OK, release(seat, "x", "dibs:fourth~0"));
    assert_int_equal(seat_renew(seat, &second), DIBS__RENEWED);
    assert_status(DIBS_OK, release(seat, "x", "dibs:second~1"));
}

/* Only a limit at the end makes a sharer's token: a label may have the character that introduces a limit. */
TEST_ON_STORES(a_label_makes_no_sharer, struct world *w)
{
    struct seat *seat = sit_as_voter(w);
    struct dibs__renewal alone = top_up_of("dibs:a~0:held", 5), sharer = top_up_of("dibs:sharer~0", 6);

    assert_int_equal(seat_renew(seat, &alone), DIBS__RENEWED);
    assert_int_equal(look(seat, "x").sharers, 0);
    assert_int_equal(seat_renew(seat, &sharer), DIBS__GONE);
    assert_status(DIBS_OK, release(seat, "x", "dibs:a~0:held"));
}

/* Other clients had their keys there, with larger fences, but without a majority. */
TEST_ON_STORES(a_top_up_ignores_the_fence_where_the_lock_was_never_granted, struct world *w)
{
    struct seat *seat = sit(w, 0);
    struct dibs__attempt attempt = attempt_for(w, "x", false), next = attempt_for(w, "x", false);
    uint64_t fence = get(seat, &attempt);
    struct dibs__renewal renewal = top_up_of("dibs:held", fence - 1000);

    assert_status(DIBS_OK, release(seat, "x", attempt.token));
    assert_int_equal(seat_renew(seat, &renewal), DIBS__RENEWED);
    assert_status(DIBS_OK, release(seat, "x", "dibs:held"));
    assert_true(get(seat, &next) > fence); /* what F knew stays */
    assert_status(DIBS_OK, release(seat, "x", next.token));
}

/* Nor where an ask found the lock taken. */
TEST_ON_STORES(an_ask_that_is_not_granted_proves_no_lease, struct world *w)
{
    struct seat *seat = sit_as_voter(w);
    struct dibs__attempt owner = attempt_for(w, "x", false), attempt = attempt_for(w, "x", false);
    struct dibs__answer answer;

    uint64_t fence = get(seat, &owner);
    assert_status(DIBS_BUSY, ask(seat, &attempt, &answer));
    assert_status(DIBS_OK, release(seat, "x", owner.token));
    struct dibs__renewal renewal = top_up_of(attempt.token, fence - 1000);
    renewal.store_state = attempt.lease;
    assert_int_equal(seat_renew(seat, &renewal), DIBS__RENEWED);
    assert_status(DIBS_OK, release(seat, "x", attempt.token));
}

TEST_ON_STORES(a_forced_unlock_is_not_topped_up, struct world *w)
{
    struct seat *seat = sit_as_voter(w);
    struct dibs__renewal renewal = top_up_of("dibs:held", 5);

    assert_int_equal(seat_renew(seat, &renewal), DIBS__RENEWED);
    assert_status(DIBS_OK, store_force(seat->store, "x", "dibs:held", seat_deadline()));
    assert_int_equal(seat_renew(seat, &renewal), DIBS__GONE);
    assert_true(renewal.was_anothers);
    assert_false(look(seat, "x").held);
}

/* Within a minute: the fence may come from the clock of another master, so the next fence here may be smaller. */
TEST_ON_STORES(a_member_restores_a_missing_fence, struct world *w)
{
    struct seat *seat = sit_as_voter(w);
    struct dibs__renewal renewal = top_up_of("dibs:held", 5);

    if (w->kind->where == IN_MEMORY)
        return;
    assert_int_equal(seat_renew(seat, &renewal), DIBS__RENEWED);
    renewal.top_up = false;
    server_do(w->servers[0], "DEL dibs:fence:{lock:x}");
    dibs__redis_lease_of(&renewal.store_state)->confirmed_at -= 60000 * DIBS__NS_PER_MS;
    assert_int_equal(seat_renew(seat, &renewal), DIBS__RENEWED);
    assert_int_equal(server_integer(w->servers[0], "INCRBY dibs:fence:{lock:x} 0"), 5);
    assert_status(DIBS_OK, release(seat, "x", "dibs:held"));
}

/* Others who share the lock there may have larger fences. */
TEST_ON_STORES(a_top_up_puts_back_the_fence_of_the_newest_sharer, struct world *w)
{
    struct seat *seat = sit_as_voter(w);
    struct dibs__renewal first = top_up_of("dibs:first~0", 5), newest = top_up_of("dibs:newest~0", 9),
                         last = top_up_of("dibs:last~0", 7);

    if (w->kind->where == IN_MEMORY)
        return;
    seat_renew(seat, &first);
    seat_renew(seat, &newest);
    server_do(w->servers[0], "DEL dibs:fence:{lock:x}");
    assert_int_equal(seat_renew(seat, &last), DIBS__RENEWED);
    assert_int_equal(server_integer(w->servers[0], "INCRBY dibs:fence:{lock:x} 0"), 9);
    assert_status(DIBS_OK, release(seat, "x", "dibs:first~0"));
    assert_status(DIBS_OK, release(seat, "x", "dibs:newest~0"));
    assert_status(DIBS_OK, release(seat, "x", "dibs:last~0"));
}

/* A request sent before the retraction arrives before it; the caller must not send one behind it. */
TEST_ON_STORES(a_retraction_wins_over_a_top_up, struct world *w)
{
    struct seat *seat = sit_as_member(w);
    struct dibs__renewal renewal = top_up_of("dibs:held", 5);

    seat_renew(seat, &renewal); /* the connection is open, and the server knows the script */
    for (int i = 0; i < 20; i++) {
        seat_begin_renewal(seat, &renewal);
        seat_end_renewal(seat, &renewal);
        seat->store->ops->retract(seat->store, "x", "dibs:held", LEASE_MS, 0);
        seat_await_confirmed(seat);
        assert_false(look(seat, "x").held);
        renewal.store_state = (struct dibs__lease_store_state){.words = {0}};
    }
}

/* ------------------------------------------------------------- who may not vote */

static void expect_no_vote(struct seat *seat, struct dibs__attempt *attempt)
{
    struct dibs__error error = {DIBS_OK, ""};
    struct dibs__answer answer;

    assert_status(DIBS_UNAVAILABLE, store_ask(seat->store, attempt, seat_deadline(), &answer, &error));
    assert_int_equal(answer.why, DIBS__WHY_NO_VOTE);
    assert_false(answer.retired);
    assert_false(attempt->in_store);
}

static void expect_nothing_in_the_store(struct world *w, struct seat *seat, unsigned keys)
{
    dibs_owner owner = look(seat, "x");

    assert_false(owner.held);
    assert_int_equal(owner.waiters, 0);
    assert_int_equal(owner.fence, 0);
    if (w->kind->where != IN_MEMORY)
        assert_int_equal(server_integer(w->servers[0], "DBSIZE"), keys);
}

TEST_ON_STORES(a_master_without_a_vote_changes_nothing, struct world *w)
{
    struct seat *seat = sit_as_member(w);
    struct dibs__attempt attempt = attempt_for(w, "x", false), waiter = attempt_for(w, "x", true);
    struct dibs__answer answer;

    expect_no_vote(seat, &attempt);
    expect_no_vote(seat, &waiter);
    expect_nothing_in_the_store(w, seat, 0);
    admit(seat, LEASE_MS);
    expect_no_vote(seat, &attempt);
    expect_no_vote(seat, &waiter);
    expect_nothing_in_the_store(w, seat, 1);
    seat->store->ops->conclude(seat->store, &waiter, false);
    assert_int_equal(atomic_load(&seat->counters.unconfirmed), 0);
    assert_status(DIBS_NOT_HELD, release(seat, "x", attempt.token));
    assert_status(DIBS_OK, ask(sit(w, 0), &attempt, &answer)); /* a store that is no member grants without a vote */
    assert_status(DIBS_OK, release(seat, "x", attempt.token));
}

TEST_ON_STORES(a_master_that_may_vote_again_grants, struct world *w)
{
    struct seat *seat = sit_as_member(w);
    struct dibs__attempt attempt = attempt_for(w, "x", false), second = attempt_for(w, "x", false);

    admit(seat, 50);
    await_that(look_at_vote(seat, 1000).votes_in_ms == 0);
    uint64_t fence = get(seat, &attempt);
    assert_status(DIBS_OK, release(seat, "x", attempt.token));
    assert_true(get(seat, &second) > fence);
    assert_status(DIBS_OK, release(seat, "x", second.token));
}

TEST_ON_STORES(a_master_that_lost_its_data_does_not_vote, struct world *w)
{
    struct seat *seat = sit_as_voter(w);
    struct dibs__attempt attempt = attempt_for(w, "x", false), next = attempt_for(w, "x", false);

    if (w->kind->where == IN_MEMORY)
        return;
    get(seat, &attempt);
    server_do(w->servers[0], "FLUSHALL");
    expect_no_vote(seat, &next);
    expect_nothing_in_the_store(w, seat, 0);
    assert_false(look_at_vote(seat, 1000).known);
}

/* A master may have forgotten a lock since the look: then it has another mark, and is not admitted as new. */
TEST_ON_STORES(a_master_that_forgot_since_the_look_is_not_admitted_as_new, struct world *w)
{
    struct seat *seat = sit_as_member(w);
    struct dibs__vote vote = {.longest_ms = LEASE_MS, .what = DIBS__VOTE_ADMITS, .floor = 1};

    vote.mark = look_at_vote(seat, 1000).mark;
    assert_true(vote.mark > 0);
    assert_true(look_at_vote(seat, 1000).mark == vote.mark);
    if (w->kind->where != IN_MEMORY) { /* which forgets nothing */
        server_do(w->servers[0], "FLUSHALL");
        assert_false(vote_as(seat, vote, true).known);
        uint64_t mark = look_at_vote(seat, 1000).mark;
        assert_true(mark > 0 && mark != vote.mark);
        assert_false(vote_as(seat, vote, false).known);
        vote.mark = mark;
    }
    struct dibs__vote admitted = vote_as(seat, vote, true);
    assert_true(admitted.ready && admitted.mark == 0);
}

/* A client that knows better makes the master wait. */
TEST_ON_STORES(a_waiting_master_is_not_admitted_as_new, struct world *w)
{
    struct seat *seat = sit_as_member(w);
    struct dibs__vote vote = {.longest_ms = LEASE_MS, .what = DIBS__VOTE_ADMITS, .floor = 1};

    vote.mark = look_at_vote(seat, 1000).mark;
    admit(seat, LEASE_MS);
    assert_in_range(vote_as(seat, vote, true).votes_in_ms, 1, LEASE_MS);
}

/* The clock has shown a later time. It may be set forward again: then what is granted meanwhile ends early. */
TEST_ON_STORES(a_member_whose_clock_was_set_back_does_not_vote, struct world *w)
{
    struct seat *seat = sit_as_voter(w);
    struct dibs__attempt attempt = attempt_for(w, "x", false);
    struct dibs__renewal renewal = top_up_of("dibs:held", 5);

    if (w->kind->where == IN_MEMORY)
        return;
    server_do(w->servers[0], "SET dibs:vote %s", "0 86400000 4000000000000000 0 1 - 0");
    expect_no_vote(seat, &attempt);
    assert_int_equal(seat_renew(seat, &renewal), DIBS__GONE);
    expect_nothing_in_the_store(w, seat, 1);
    assert_false(look_at_vote(seat, 1000).known);
    admit(seat, 0); /* as one that lost its data */
    get(seat, &attempt);
    assert_status(DIBS_OK, release(seat, "x", attempt.token));
}

/* The lease was granted before the step: it must end when it would have, in case the clock is set forward again. */
TEST_ON_STORES(a_lease_that_a_clock_made_longer_is_not_renewed, struct world *w)
{
    struct seat *seat = sit_as_voter(w);
    struct dibs__renewal renewal = top_up_of("dibs:held", 5);

    if (w->kind->where == IN_MEMORY)
        return;
    assert_int_equal(seat_renew(seat, &renewal), DIBS__RENEWED);
    server_do(w->servers[0], "PEXPIRE lock:x %d", 100 * LEASE_MS);
    for (int in_full = 0; in_full < 2; in_full++) {
        renewal.top_up = in_full;
        seat_begin_renewal(seat, &renewal);
        assert_int_equal(seat_end_renewal(seat, &renewal), DIBS__UNANSWERED);
    }
    renewal.fixed = true;
    assert_int_equal(seat_renew(seat, &renewal), DIBS__RENEWED);
    renewal.fixed = false;
    assert_true(look(seat, "x").remaining_ms > 99 * LEASE_MS);
    server_do(w->servers[0], "PEXPIRE lock:x %d", LEASE_MS / 2);
    renewal.top_up = false;
    assert_int_equal(seat_renew(seat, &renewal), DIBS__RENEWED);
    assert_status(DIBS_OK, release(seat, "x", "dibs:held"));
}

/* Topping up is granting, and needs a vote. A lease that was granted already is renewed. */
TEST_ON_STORES(a_top_up_needs_a_vote, struct world *w)
{
    struct seat *seat = sit_as_member(w);
    struct dibs__renewal renewal = top_up_of("dibs:held", 5), first = renewal;

    assert_int_equal(seat_renew(seat, &renewal), DIBS__GONE);
    assert_false(look(seat, "x").held);
    admit(seat, 0);
    assert_int_equal(seat_renew(seat, &first), DIBS__RENEWED);
    vote_as(seat, (struct dibs__vote){.longest_ms = LEASE_MS, .what = DIBS__VOTE_DISTRUSTS, .wait_ms = LEASE_MS},
            false);
    assert_int_equal(seat_renew(seat, &first), DIBS__RENEWED);
    assert_status(DIBS_OK, raise_to(seat, "dibs:held", 6, false));
    assert_status(DIBS_OK, release(seat, "x", "dibs:held"));
    renewal = top_up_of("dibs:held", 5);
    assert_int_equal(seat_renew(seat, &renewal), DIBS__GONE);
    assert_false(look(seat, "x").held);
}

/* A step of the clock shortens a wait that has begun, so a whole wait begins then. */
TEST_ON_STORES(a_distrusted_master_waits_from_then_on, struct world *w)
{
    struct seat *seat = sit_as_member(w);
    struct dibs__vote distrust = {.longest_ms = LEASE_MS, .what = DIBS__VOTE_DISTRUSTS, .wait_ms = LEASE_MS};

    assert_false(vote_as(seat, distrust, false).known); /* that admits nobody */
    assert_int_equal(admit(seat, 0).votes_in_ms, 0);
    struct dibs__vote vote = vote_as(seat, distrust, true);
    assert_in_range(vote.votes_in_ms, LEASE_MS / 2, LEASE_MS);
    assert_true(vote.server_us > 0);
    distrust.wait_ms = 2 * LEASE_MS;
    assert_in_range(vote_as(seat, distrust, false).votes_in_ms, LEASE_MS + 1, 2 * LEASE_MS);
    distrust.wait_ms = 1;
    assert_in_range(vote_as(seat, distrust, false).votes_in_ms, LEASE_MS + 1, 2 * LEASE_MS);
}

/* --------------------------------------------------------------------- hints */

static void expect_told(struct seat *seat, unsigned count, const struct dibs__attempt *attempt, bool hint)
{
    struct seat_grant grant = seat_await_grant(seat, count);

    assert_int_equal(grant.count, count);
    assert_string_equal(grant.name, attempt->name);
    assert_string_equal(grant.token, attempt->token);
    assert_int_equal(grant.number, attempt->number);
    assert_int_equal(grant.fence == 0, hint);
    assert_true(grant.confirm || !hint);
}

TEST_ON_STORES(a_release_hints_the_first_and_leaves_the_lock_free, struct world *w)
{
    struct seat *seat = sit_as_voter(w), *first = sit_as_voter(w), *second = sit_as_voter(w);
    struct dibs__attempt owner = attempt_for(w, "x", false), one = attempt_for(w, "x", true),
                         two = attempt_for(w, "x", true);
    struct dibs__answer answer;

    get(seat, &owner);
    queue_up(first, &one);
    queue_up(second, &two);
    assert_int_equal(look(seat, "x").waiters, 2);
    assert_status(DIBS_OK, release(seat, "x", owner.token));
    expect_told(first, 1, &one, true);
    assert_false(look(seat, "x").held);
    assert_int_equal(look(seat, "x").waiters, 1);
    assert_status(DIBS_OK, ask(first, &one, &answer));
    first->store->ops->conclude(first->store, &one, true);
    assert_int_equal(seat_last_grant(second).count, 0);
    assert_status(DIBS_OK, release(first, "x", one.token));
    expect_told(second, 1, &two, true);
    assert_int_equal(look(seat, "x").waiters, 0);
    second->store->ops->conclude(second->store, &two, false);
}

TEST_ON_STORES(the_first_ask_after_a_hint_gets_the_lock, struct world *w)
{
    struct seat *seat = sit_as_voter(w), *first = sit_as_voter(w);
    struct dibs__attempt owner = attempt_for(w, "x", false), one = attempt_for(w, "x", true),
                         passing = attempt_for(w, "x", true);
    struct dibs__answer answer;

    get(seat, &owner);
    queue_up(first, &one);
    assert_status(DIBS_OK, release(seat, "x", owner.token));
    expect_told(first, 1, &one, true);
    assert_status(DIBS_OK, ask(seat, &passing, &answer));
    assert_status(DIBS_BUSY, ask(first, &one, &answer)); /* and queues again */
    assert_int_equal(look(seat, "x").waiters, 1);
    assert_status(DIBS_OK, release(seat, "x", passing.token));
    expect_told(first, 2, &one, true);
    first->store->ops->conclude(first->store, &one, false);
    seat->store->ops->conclude(seat->store, &passing, true);
}

TEST_ON_STORES(a_waiter_that_is_gone_gets_no_hint, struct world *w)
{
    struct seat *seat = sit_as_voter(w), *second = sit_as_voter(w), *gone = sit_as_voter(w);
    struct dibs__attempt owner = attempt_for(w, "x", false), one = attempt_for(w, "x", true),
                         two = attempt_for(w, "x", true);

    get(seat, &owner);
    queue_up(gone, &one);
    queue_up(second, &two);
    queue_entry entry = {.channel = ""};
    if (w->kind->where != IN_MEMORY)
        entry = queue_at(w->servers[0], "x", 0);
    seat_close(gone);
    w->count--;
    if (w->kind->where != IN_MEMORY) /* it still tells a client whose end it has read in the same round of its loop */
        queue_await_no_listener(w->servers[0], entry.channel);
    assert_status(DIBS_OK, release(seat, "x", owner.token));
    expect_told(second, 1, &two, true);
    assert_false(look(seat, "x").held);
    assert_int_equal(look(seat, "x").waiters, 0);
    second->store->ops->conclude(second->store, &two, false);
}

TEST_ON_STORES(a_hint_that_nobody_wants_goes_to_the_next, struct world *w)
{
    struct seat *seat = sit_as_voter(w), *first = sit_as_voter(w), *second = sit_as_voter(w);
    struct dibs__attempt owner = attempt_for(w, "x", false), one = attempt_for(w, "x", true),
                         two = attempt_for(w, "x", true);

    get(seat, &owner);
    queue_up(first, &one);
    queue_up(second, &two);
    atomic_store(&first->refuses, true);
    assert_status(DIBS_OK, release(seat, "x", owner.token));
    expect_told(first, 1, &one, true);
    expect_told(second, 1, &two, true);
    first->store->ops->conclude(first->store, &one, true);
    second->store->ops->conclude(second->store, &two, false);
}

TEST_ON_STORES(a_waiter_that_gives_up_passes_the_hint_on, struct world *w)
{
    struct seat *seat = sit_as_voter(w), *first = sit_as_voter(w), *second = sit_as_voter(w);
    struct dibs__attempt owner = attempt_for(w, "x", false), one = attempt_for(w, "x", true),
                         two = attempt_for(w, "x", true);

    get(seat, &owner);
    queue_up(first, &one);
    queue_up(second, &two);
    assert_status(DIBS_OK, release(seat, "x", owner.token));
    expect_told(first, 1, &one, true);
    first->store->ops->conclude(first->store, &one, false);
    expect_told(second, 1, &two, true);
    second->store->ops->conclude(second->store, &two, false);
}

TEST_ON_STORES(a_quiet_release_gives_no_hint, struct world *w)
{
    struct seat *seat = sit_as_voter(w), *first = sit_as_voter(w);
    struct dibs__attempt owner = attempt_for(w, "x", false), one = attempt_for(w, "x", true),
                         again = attempt_for(w, "x", false);
    struct dibs__op quiet = store_release_op("x", owner.token, LEASE_MS, seat_deadline());

    quiet.release.quiet = true;
    assert_status(DIBS_NOT_HELD, store_do(seat->store, &quiet));
    get(seat, &owner);
    queue_up(first, &one);
    assert_status(DIBS_OK, store_do(seat->store, &quiet));
    assert_status(DIBS_NOT_HELD, store_do(seat->store, &quiet));
    assert_false(look(seat, "x").held);
    assert_int_equal(look(seat, "x").waiters, 1);
    get(seat, &again);
    assert_status(DIBS_OK, release(seat, "x", again.token));
    expect_told(first, 1, &one, true); /* the first message that it gets */
    first->store->ops->conclude(first->store, &one, false);
}

TEST_ON_STORES(a_release_at_a_member_asks_for_nobody, struct world *w)
{
    struct seat *seat = sit_as_voter(w);
    struct dibs__attempt owner = attempt_for(w, "x", false), next = attempt_for(w, "x", true);
    struct dibs__op end = store_release_op("x", owner.token, LEASE_MS, seat_deadline());
    struct dibs__answer answer;

    end.release.next = (struct dibs__ask){&next, &answer};
    get(seat, &owner);
    assert_status(DIBS_OK, store_do(seat->store, &end));
    assert_int_equal(end.release.next_status, DIBS_BUSY);
    assert_int_equal(next.number, 0);
    assert_false(look(seat, "x").held);
}

/* Of two waiters, only the first wants a hint: when it asks, the lock goes to the second. */
TEST_ON_STORES(an_ask_of_a_hinted_waiter_grants_to_the_next, struct world *w)
{
    struct seat *seat = sit(w, 0), *hinted = sit_as_voter(w), *granted = sit(w, 0);
    struct dibs__attempt owner = attempt_for(w, "x", false), one = attempt_for(w, "x", true),
                         two = attempt_for(w, "x", true);
    struct dibs__answer answer;

    get(seat, &owner);
    queue_up(hinted, &one);
    queue_up(granted, &two);
    assert_status(DIBS_OK, release(seat, "x", owner.token));
    expect_told(hinted, 1, &one, true);
    assert_int_equal(seat_last_grant(granted).count, 0);
    assert_status(DIBS_BUSY, ask(hinted, &one, &answer));
    expect_told(granted, 1, &two, false);
    granted->store->ops->conclude(granted->store, &two, true);
    assert_status(DIBS_OK, release(granted, "x", two.token));
    expect_told(hinted, 2, &one, true);
    hinted->store->ops->conclude(hinted->store, &one, false);
}

TEST_ON_STORES(a_release_hints_the_waiter_behind_a_granted_one, struct world *w)
{
    struct seat *seat = sit(w, 0), *granted = sit(w, 0), *hinted = sit_as_voter(w);
    struct dibs__attempt owner = attempt_for(w, "x", false), one = attempt_for(w, "x", true),
                         two = attempt_for(w, "x", true);

    get(seat, &owner);
    queue_up(granted, &one);
    queue_up(hinted, &two);
    assert_status(DIBS_OK, release(seat, "x", owner.token));
    expect_told(granted, 1, &one, false);
    assert_int_equal(seat_last_grant(hinted).count, 0);
    granted->store->ops->conclude(granted->store, &one, true);
    assert_status(DIBS_OK, release(granted, "x", one.token));
    expect_told(hinted, 1, &two, true);
    assert_false(look(seat, "x").held);
    hinted->store->ops->conclude(hinted->store, &two, false);
}

/* The head of the queue asks and gets the lock, and its entry is removed. */
TEST_ON_STORES(the_head_of_a_members_queue_gets_the_lock_by_asking, struct world *w)
{
    struct seat *seat = sit_as_voter(w), *first = sit_as_voter(w), *second = sit_as_voter(w);
    struct dibs__attempt owner = attempt_for(w, "x", false), one = attempt_for(w, "x", true),
                         two = attempt_for(w, "x", true);
    struct dibs__op quiet = store_release_op("x", owner.token, LEASE_MS, seat_deadline());
    struct dibs__answer answer;

    quiet.release.quiet = true;
    get(seat, &owner);
    queue_up(first, &one);
    queue_up(second, &two);
    assert_status(DIBS_OK, store_do(seat->store, &quiet));
    assert_status(DIBS_OK, ask(second, &two, &answer)); /* not the first */
    assert_int_equal(look(seat, "x").waiters, 1);
    quiet.release.token = two.token;
    assert_status(DIBS_OK, store_do(second->store, &quiet));
    second->store->ops->conclude(second->store, &two, true);
    assert_status(DIBS_OK, ask(first, &one, &answer));
    assert_int_equal(look(seat, "x").waiters, 0);
    first->store->ops->conclude(first->store, &one, true);
    assert_status(DIBS_OK, release(first, "x", one.token));
    assert_int_equal(seat_last_grant(first).count, 0);
}

int main(void)
{
    return run_cases();
}
