/* What one master of a quorum does, as the contract of the stores has it (src/store/store.h). */
#include "integration/store_setup.h"

static struct seat *sit_as_member(struct world *w)
{
    return sit_with(w, 0, (struct dibs__store_config){.is_member = true});
}

/* ------------------------------------------------------------------- voting */

/* Begun first where `begun`, and waited for. */
static struct dibs__vote vote_as(struct seat *seat, struct dibs__vote vote, bool begun)
{
    struct dibs__error error = {DIBS_OK, ""};

    vote.deadline = seat_deadline();
    if (begun) {
        seat->store->ops->vote_begin(seat->store, &vote);
        seat->store->ops->await(seat->store, &vote.begun, seat_deadline());
    }
    dibs_status status = seat->store->ops->vote_finish(seat->store, &vote, &error);
    assert_that(status == DIBS_OK, "a vote: %s", error.detail);
    assert_null(vote.begun.state);
    return vote;
}

static struct dibs__vote look_at_vote(struct seat *seat, uint32_t longest_ms)
{
    return vote_as(seat, (struct dibs__vote){.longest_ms = longest_ms}, true);
}

static struct dibs__vote admit(struct seat *seat, int64_t wait_ms)
{
    return vote_as(seat, (struct dibs__vote){.longest_ms = 1000, .admit = true, .wait_ms = wait_ms}, false);
}

static void a_master_that_is_new_does_not_know_whether_it_may_vote(struct world *w)
{
    struct seat *seat = sit_as_member(w);
    struct dibs__vote vote = look_at_vote(seat, 5000);

    assert_false(vote.known);
    assert_int_equal(vote.longest_ms, 5000);
    assert_false(look_at_vote(seat, 1000).known); /* to look changes nothing */
}

static void who_is_admitted_votes_from_its_time_on(struct world *w)
{
    struct seat *seat = sit_as_member(w);
    struct dibs__vote vote = admit(seat, LEASE_MS);

    assert_true(vote.known);
    assert_in_range(vote.votes_in_ms, LEASE_MS / 2, LEASE_MS);
    vote = look_at_vote(seat, 1000);
    assert_true(vote.known);
    assert_in_range(vote.votes_in_ms, LEASE_MS / 2, LEASE_MS);
}

static bool may_vote(void *arg)
{
    return look_at_vote(arg, 1000).votes_in_ms == 0;
}

static void the_time_comes(struct world *w)
{
    struct seat *seat = sit_as_member(w);

    assert_in_range(admit(seat, 50).votes_in_ms, 0, 50);
    assert_true(wait_until(may_vote, seat, LIMIT_MS));
    assert_true(look_at_vote(seat, 1000).known);
}

static void the_longest_lease_only_grows(struct world *w)
{
    struct seat *seat = sit_as_member(w), *other = sit_as_member(w);

    assert_int_equal(admit(seat, 0).longest_ms, 1000);
    assert_int_equal(look_at_vote(seat, 500).longest_ms, 1000);
    assert_int_equal(look_at_vote(other, 7000).longest_ms, 7000);
    assert_int_equal(look_at_vote(seat, 2000).longest_ms, 7000);
    assert_int_equal(look_at_vote(seat, 2000).votes_in_ms, 0); /* as it was */
}

/* The second finds the master admitted: its time stays. */
static void of_two_who_admit_at_once_one_does(struct world *w)
{
    struct seat *seat = sit_as_member(w), *other = sit_as_member(w);
    struct dibs__vote first = {.longest_ms = 1000, .admit = true, .deadline = seat_deadline()}, second = first;
    struct dibs__error error;

    second.wait_ms = LEASE_MS;
    seat->store->ops->vote_begin(seat->store, &first);
    if (w->kind->where != IN_MEMORY)
        assert_true(seat->store->ops->await(seat->store, &first.begun, seat_deadline()));
    else
        assert_status(DIBS_OK, seat->store->ops->vote_finish(seat->store, &first, &error));
    other->store->ops->vote_begin(other->store, &second);
    assert_status(DIBS_OK, other->store->ops->vote_finish(other->store, &second, &error));
    assert_int_equal(second.votes_in_ms, 0);
    assert_status(DIBS_OK, seat->store->ops->vote_finish(seat->store, &first, &error));
    assert_int_equal(first.votes_in_ms, 0);
    assert_true(first.known && second.known);
}

/* -------------------------------------------------------------------- fences */

static dibs_status raise_to(struct seat *seat, const char *token, uint64_t fence, bool begun)
{
    struct dibs__error error;
    struct dibs__raise raise = {
        .name = "x", .token = token, .fence = fence, .lease_ms = LEASE_MS, .deadline = seat_deadline()};

    if (begun) {
        seat->store->ops->raise_begin(seat->store, &raise);
        seat->store->ops->await(seat->store, &raise.begun, seat_deadline());
    }
    return seat->store->ops->raise_finish(seat->store, &raise, &error);
}

static void a_raise_makes_the_next_fence_larger(struct world *w)
{
    struct seat *seat = sit(w, 0), *other = sit(w, 0);
    struct dibs__bid bid = bid_for(w, "x", false), next = bid_for(w, "x", false);
    uint64_t raised = get(seat, &bid) + 10000000000; /* hours ahead of the server's clock */

    assert_status(DIBS_OK, raise_to(seat, bid.token, raised, true));
    assert_status(DIBS_OK, raise_to(seat, bid.token, raised, false)); /* twice is as once */
    assert_int_equal(look(other, "x").fence, raised);
    assert_status(DIBS_OK, release(seat, "x", bid.token));
    assert_true(get(other, &next) > raised);
    assert_status(DIBS_OK, release(other, "x", next.token));
}

static void a_raise_never_lowers(struct world *w)
{
    struct seat *seat = sit(w, 0);
    struct dibs__bid bid = bid_for(w, "x", false);
    uint64_t fence = get(seat, &bid);

    assert_status(DIBS_OK, raise_to(seat, bid.token, fence - 1, true));
    assert_int_equal(look(seat, "x").fence, fence);
    assert_status(DIBS_OK, raise_to(seat, bid.token, fence, false));
    assert_int_equal(look(seat, "x").fence, fence);
    assert_status(DIBS_OK, release(seat, "x", bid.token));
}

static void only_its_owner_raises_a_fence(struct world *w)
{
    struct seat *seat = sit(w, 0);
    struct dibs__bid bid = bid_for(w, "x", false);

    assert_status(DIBS_NOT_HELD, raise_to(seat, bid.token, 100, true)); /* nobody's */
    uint64_t fence = get(seat, &bid);
    assert_status(DIBS_NOT_HELD, raise_to(seat, "dibs:another", fence + 1000, true));
    assert_int_equal(look(seat, "x").fence, fence);
    assert_status(DIBS_OK, release(seat, "x", bid.token));
}

/* ------------------------------------------------------------------- top-ups */

static struct dibs__renewal top_up_of(const char *token, uint64_t fence)
{
    return (struct dibs__renewal){.name = "x", .token = token, .lease_ms = LEASE_MS, .fence = fence, .top_up = true};
}

static void a_lock_that_is_free_is_topped_up(struct world *w)
{
    struct seat *seat = sit_as_member(w);
    struct dibs__renewal renewal = top_up_of("dibs:held", 5);
    struct dibs__bid next = bid_for(w, "x", false);

    seat_renew(seat, &renewal);
    assert_int_equal(renewal.result, DIBS__RENEWED);
    dibs_owner owner = look(seat, "x");
    assert_string_equal(owner.token, "dibs:held");
    assert_int_equal(owner.fence, 5);
    assert_in_range(owner.remaining_ms, LEASE_MS / 2, LEASE_MS);
    renewal.lease_ms *= 2;
    seat_renew(seat, &renewal); /* and is renewed then as any */
    assert_int_equal(renewal.result, DIBS__RENEWED);
    assert_in_range(look(seat, "x").remaining_ms, LEASE_MS + 1, 2 * LEASE_MS);
    assert_status(DIBS_OK, release(seat, "x", "dibs:held"));
    assert_true(get(sit(w, 0), &next) > 5);
    assert_status(DIBS_OK, release(seat, "x", next.token));
}

static void without_the_wish_nothing_is_topped_up(struct world *w)
{
    struct seat *seat = sit_as_member(w);
    struct dibs__renewal renewal = top_up_of("dibs:held", 5);

    renewal.top_up = false;
    seat_renew(seat, &renewal);
    assert_int_equal(renewal.result, DIBS__GONE);
    assert_false(look(seat, "x").held);
}

static void a_top_up_leaves_the_lock_of_another_alone(struct world *w)
{
    struct seat *seat = sit(w, 0);
    struct dibs__bid bid = bid_for(w, "x", false);
    uint64_t fence = get(seat, &bid);
    struct dibs__renewal renewal = top_up_of("dibs:held", fence + 1000);

    seat_renew(seat, &renewal);
    assert_int_equal(renewal.result, DIBS__GONE);
    dibs_owner owner = look(seat, "x");
    assert_string_equal(owner.token, bid.token);
    assert_int_equal(owner.fence, fence);
    assert_status(DIBS_OK, release(seat, "x", bid.token));
}

/* Others had their keys there, with larger fences, and no majority. */
static void a_top_up_minds_no_fence_where_the_lock_was_never_granted(struct world *w)
{
    struct seat *seat = sit(w, 0);
    struct dibs__bid bid = bid_for(w, "x", false), next = bid_for(w, "x", false);
    uint64_t fence = get(seat, &bid);
    struct dibs__renewal renewal = top_up_of("dibs:held", fence - 1000);

    assert_status(DIBS_OK, release(seat, "x", bid.token));
    seat_renew(seat, &renewal);
    assert_int_equal(renewal.result, DIBS__RENEWED);
    assert_status(DIBS_OK, release(seat, "x", "dibs:held"));
    assert_true(get(seat, &next) > fence); /* what F knew stays */
    assert_status(DIBS_OK, release(seat, "x", next.token));
}

static void a_forced_unlock_is_not_topped_up(struct world *w)
{
    struct seat *seat = sit_as_member(w);
    struct dibs__renewal renewal = top_up_of("dibs:held", 5);
    struct dibs__error error;

    seat_renew(seat, &renewal);
    assert_int_equal(renewal.result, DIBS__RENEWED);
    assert_status(DIBS_OK, seat->store->ops->force_unlock(seat->store, "x", "dibs:held", seat_deadline(), &error));
    seat_renew(seat, &renewal);
    assert_int_equal(renewal.result, DIBS__GONE);
    assert_false(look(seat, "x").held);
}

int main(void)
{
    static const struct store_case cases[] = {
        CASE(a_master_that_is_new_does_not_know_whether_it_may_vote),
        CASE(who_is_admitted_votes_from_its_time_on),
        CASE(the_time_comes),
        CASE(the_longest_lease_only_grows),
        CASE(of_two_who_admit_at_once_one_does),
        CASE(a_raise_makes_the_next_fence_larger),
        CASE(a_raise_never_lowers),
        CASE(only_its_owner_raises_a_fence),
        CASE(a_lock_that_is_free_is_topped_up),
        CASE(without_the_wish_nothing_is_topped_up),
        CASE(a_top_up_leaves_the_lock_of_another_alone),
        CASE(a_top_up_minds_no_fence_where_the_lock_was_never_granted),
        CASE(a_forced_unlock_is_not_topped_up),
    };

    return run_cases(cases, sizeof cases / sizeof cases[0]);
}
