/* Shared locks in all stores: a table of cases. */
#include "integration/store_setup.h"

#define SHARED_TOKENS 16

/* Tokens that want to share a lock, with that limit. */
static struct dibs__attempt share_for(struct world *w, const char *name, bool wait, uint32_t limit)
{
    static char texts[SHARED_TOKENS][48];
    static unsigned next;
    struct dibs__attempt attempt = attempt_for(w, name, wait);
    char *text = texts[next++ % SHARED_TOKENS];

    snprintf(text, sizeof texts[0], "%s%c%u", attempt.token, DIBS__TOKEN_SHARED, limit);
    attempt.token = text;
    attempt.shared = true;
    attempt.limit = limit;
    return attempt;
}

static bool has_it(struct seat *seat, struct dibs__attempt *attempt)
{
    struct dibs__answer answer;

    if (ask(seat, attempt, &answer) != DIBS_OK)
        return false;
    seat->store->ops->conclude(seat->store, attempt, true);
    return true;
}

static void give_back(struct seat *seat, const struct dibs__attempt *attempt)
{
    assert_status(DIBS_OK, release(seat, attempt->name, attempt->token));
}

static void expect_taken(struct seat *seat, struct dibs__attempt *attempt)
{
    struct dibs__answer answer;

    assert_status(DIBS_BUSY, ask(seat, attempt, &answer));
    assert_in_range(answer.again_ms, 1, LEASE_MS);
}

/*
 * Expects so many grants in all for the seat. With replicas, and in a quorum, an ask must still confirm the last one.
 */
static void expect_told(struct world *w, struct seat *seat, unsigned count)
{
    struct seat_grant grant = seat_await_grant(seat, count);

    assert_int_equal(grant.confirm, w->kind->min_replicas > 0 || is_quorum(w));
    assert_true(is_quorum(w) || grant.fence > 0); /* of a quorum a hint */
}

/* The attempt was granted by a push: when it asks, the store confirms it. */
static void expect_had(struct seat *seat, struct dibs__attempt *attempt)
{
    get(seat, attempt);
}

/* ------------------------------------------------------------------- cases */

TEST_ON_STORES(any_number_may_share_and_no_writer_gets_in, struct world *w)
{
    struct seat *seat = sit(w, 0), *other = sit(w, 0);
    struct dibs__attempt first = share_for(w, "x", false, 0), second = share_for(w, "x", false, 0),
                         third = share_for(w, "x", false, 0), alone = attempt_for(w, "x", false);

    uint64_t fence = get(seat, &first);
    assert_true(get(other, &second) > fence);
    expect_taken(other, &alone);
    give_back(seat, &first);
    expect_taken(other, &alone);
    get(seat, &third);
    give_back(other, &second);
    expect_taken(other, &alone);
    give_back(seat, &third);
    assert_true(get(other, &alone) > fence);
    expect_taken(seat, &first);
    give_back(other, &alone);
    expect_free(seat, "x");
}

TEST_ON_STORES(a_sharers_fence_is_larger_than_the_last_writers, struct world *w)
{
    struct seat *seat = sit(w, 0);
    struct dibs__attempt alone = attempt_for(w, "x", false), first = share_for(w, "x", false, 0),
                         second = share_for(w, "x", false, 0), last = attempt_for(w, "x", false);

    uint64_t fence = get(seat, &alone);
    give_back(seat, &alone);
    uint64_t of_first = get(seat, &first), of_second = get(seat, &second);
    assert_true(of_first > fence && of_second > fence);
    give_back(seat, &second);
    give_back(seat, &first);
    fence = get(seat, &last);
    assert_true(fence > of_first && fence > of_second);
    give_back(seat, &last);
}

TEST_ON_STORES(no_more_than_the_limit_share_a_lock, struct world *w)
{
    if (is_quorum(w)) /* majorities can't count */
        return;
    struct seat *seat = sit(w, 0);
    struct dibs__attempt attempts[3], more = share_for(w, "x", false, 3);
    struct dibs__answer answer;

    for (int i = 0; i < 3; i++) {
        attempts[i] = share_for(w, "x", false, 3);
        get(seat, &attempts[i]);
    }
    expect_taken(seat, &more);
    assert_status(DIBS_OK, ask(seat, &attempts[1], &answer)); /* who has a permit has it */
    expect_look(seat, "x", owner.sharers == 3);
    give_back(seat, &attempts[1]);
    get(seat, &more);
    struct dibs__attempt wider = share_for(w, "x", false, 4), any = share_for(w, "x", false, 0);
    expect_taken(seat, &attempts[1]);
    get(seat, &wider); /* who asks decides by its own limit */
    get(seat, &any);
    give_back(seat, &wider);
    give_back(seat, &any);
    give_back(seat, &attempts[0]);
    give_back(seat, &attempts[2]);
    give_back(seat, &more);
    expect_free(seat, "x");
}

TEST_ON_STORES(a_sharer_that_asks_again_is_told_so, struct world *w)
{
    struct seat *seat = sit(w, 0);
    struct dibs__attempt attempt = share_for(w, "x", false, 1), other = share_for(w, "x", false, 1);
    struct dibs__answer first, second;

    assert_status(DIBS_OK, ask(seat, &attempt, &first));
    expect_taken(seat, &other);
    assert_status(DIBS_OK, ask(seat, &attempt, &second));
    assert_int_equal(second.fence, first.fence);
    seat->store->ops->conclude(seat->store, &attempt, true);
    seat->store->ops->conclude(seat->store, &other, false);
    give_back(seat, &attempt);
    assert_status(DIBS_NOT_HELD, release(seat, "x", attempt.token));
}

TEST_ON_STORES(a_sharer_does_not_pass_a_waiting_writer, struct world *w)
{
    if (is_quorum(w)) /* there is no common queue */
        return;
    struct seat *seat = sit(w, 0), *other = sit(w, 0);
    struct dibs__attempt inside = share_for(w, "x", false, 0), alone = attempt_for(w, "x", true),
                         late = share_for(w, "x", false, 0), later = share_for(w, "x", true, 0);

    get(seat, &inside);
    queue_up(other, &alone);
    expect_taken(seat, &late); /* one try */
    queue_up(seat, &later);
    expect_taken(seat, &late);
    give_back(seat, &inside);
    expect_told(w, other, 1);
    expect_had(other, &alone);
    expect_taken(seat, &late);
    give_back(other, &alone);
    expect_told(w, seat, 1);
    expect_had(seat, &later);
    get(seat, &late);
    give_back(seat, &late);
    give_back(seat, &later);
}

TEST_ON_STORES(all_waiting_sharers_are_let_in_together, struct world *w)
{
    struct seat *seat = sit(w, 0), *other = sit(w, 0);
    struct dibs__attempt alone = attempt_for(w, "x", false), sharers[3], last = attempt_for(w, "x", true),
                         behind = share_for(w, "x", true, 0);

    get(seat, &alone);
    for (int i = 0; i < 3; i++) {
        sharers[i] = share_for(w, "x", true, 0);
        queue_up(other, &sharers[i]);
    }
    queue_up(seat, &last);
    queue_up(seat, &behind);
    expect_seen(seat, "x", 0, 5);
    give_back(seat, &alone);
    expect_told(w, other, 3);
    if (is_quorum(w)) { /* there is no common queue: a slow master has another order, and a hinted waiter asks */
        for (int i = 0; i < 3; i++)
            await_that(has_it(other, &sharers[i]));
        expect_seen(seat, "x", 3, 2);
        for (int i = 0; i < 3; i++)
            give_back(other, &sharers[i]);
        seat->store->ops->conclude(seat->store, &last, false);
        seat->store->ops->conclude(seat->store, &behind, false);
        return;
    }
    expect_look(seat, "x", owner.sharers == 3);
    expect_look(seat, "x", owner.waiters == 2);
    for (int i = 0; i < 3; i++)
        expect_had(other, &sharers[i]);
    for (int i = 0; i < 3; i++)
        give_back(other, &sharers[i]);
    expect_told(w, seat, 1);
    expect_had(seat, &last);
    give_back(seat, &last);
    expect_told(w, seat, 2);
    expect_had(seat, &behind);
    give_back(seat, &behind);
}

TEST_ON_STORES(a_waiter_gets_the_first_permit_given_back, struct world *w)
{
    if (is_quorum(w)) /* there is no common queue */
        return;
    struct seat *seat = sit(w, 0), *other = sit(w, 0);
    struct dibs__attempt first = share_for(w, "x", false, 2), second = share_for(w, "x", false, 2),
                         third = share_for(w, "x", true, 2), fourth = share_for(w, "x", true, 2),
                         late = share_for(w, "x", false, 2);

    get(seat, &first);
    get(seat, &second);
    queue_up(other, &third);
    queue_up(other, &fourth);
    give_back(seat, &second);
    expect_told(w, other, 1);
    assert_string_equal(seat_last_grant(other).token, third.token);
    expect_taken(seat, &late);
    expect_look(seat, "x", owner.sharers == 2);
    give_back(seat, &first);
    expect_told(w, other, 2);
    expect_had(other, &third);
    expect_had(other, &fourth);
    give_back(other, &third);
    give_back(other, &fourth);
}

/* The waiters behind waited only for the writer, which gives up. */
TEST_ON_STORES(a_writer_that_gives_up_lets_the_waiters_behind_it_in, struct world *w)
{
    if (is_quorum(w)) /* there is no common queue */
        return;
    struct seat *seat = sit(w, 0), *other = sit(w, 0), *third = sit(w, 0);
    struct dibs__attempt inside = share_for(w, "x", false, 0), alone = attempt_for(w, "x", true),
                         behind = share_for(w, "x", true, 0), next = share_for(w, "x", true, 0);

    get(seat, &inside);
    queue_up(other, &alone);
    queue_up(third, &behind);
    queue_up(third, &next);
    other->store->ops->conclude(other->store, &alone, false);
    expect_told(w, third, 2);
    expect_had(third, &behind);
    expect_had(third, &next);
    expect_look(seat, "x", owner.sharers == 3);
    give_back(third, &behind);
    give_back(third, &next);
    give_back(seat, &inside);
}

static struct dibs__renewal renewal_of(const struct dibs__attempt *attempt, uint32_t lease_ms, uint64_t fence)
{
    return (struct dibs__renewal){.name = attempt->name,
                                  .token = attempt->token,
                                  .lease_ms = lease_ms,
                                  .fence = fence,
                                  .store_state = attempt->lease,
                                  .extension = lease_ms != LEASE_MS};
}

TEST_ON_STORES(each_sharer_has_a_lease_of_its_own, struct world *w)
{
    struct seat *seat = sit(w, 0);
    struct dibs__attempt first = share_for(w, "x", false, 0), second = share_for(w, "x", false, 0),
                         alone = attempt_for(w, "x", false);
    const uint32_t longer_ms = 10 * LEASE_MS;

    uint64_t fence = get(seat, &first);
    get(seat, &second);
    struct dibs__renewal longer = renewal_of(&first, longer_ms, fence);
    assert_int_equal(seat_renew(seat, &longer), DIBS__RENEWED);
    expect_look(seat, "x", owner.remaining_ms > LEASE_MS && owner.remaining_ms <= longer_ms);
    struct dibs__renewal usual = renewal_of(&second, LEASE_MS, 0);
    assert_int_equal(seat_renew(seat, &usual), DIBS__RENEWED);
    expect_look(seat, "x", owner.remaining_ms > LEASE_MS && owner.remaining_ms <= longer_ms); /* the longest of all */
    give_back(seat, &first);
    expect_look(seat, "x", owner.held && owner.remaining_ms <= LEASE_MS);
    longer = renewal_of(&first, LEASE_MS, fence);
    assert_int_equal(seat_renew(seat, &longer), DIBS__GONE);
    expect_taken(seat, &alone);
    give_back(seat, &second);
    get(seat, &alone);
    usual = renewal_of(&second, LEASE_MS, 0);
    assert_int_equal(seat_renew(seat, &usual), DIBS__GONE);
    give_back(seat, &alone);
}

struct waiting {
    struct seat *seat;
    struct dibs__attempt *attempt;
};

static bool is_granted(struct seat *seat, struct dibs__attempt *attempt)
{
    struct dibs__answer answer;

    return ask(seat, attempt, &answer) == DIBS_OK;
}

/* This holds although the others renew theirs. */
TEST_ON_STORES(the_permit_of_a_dead_sharer_is_free_when_its_lease_is_over, struct world *w)
{
    if (is_quorum(w)) /* majorities can't count */
        return;
    struct seat *seat = sit(w, 0);
    struct dibs__attempt lives = share_for(w, "x", false, 2), dead = share_for(w, "x", false, 2),
                         more = share_for(w, "x", false, 2);

    dead.lease_ms = 300;
    get(seat, &lives);
    int64_t since = now_ms();
    get(seat, &dead);
    bool is_had = is_granted(seat, &more);
    assert_true(!is_had || now_ms() - since >= dead.lease_ms);
    assert_true(is_had || within(LIMIT_MS, is_granted(seat, &more)));
    seat->store->ops->conclude(seat->store, &more, true);
    expect_look(seat, "x", owner.sharers == 2);
    struct dibs__renewal late = renewal_of(&dead, LEASE_MS, 0);
    assert_int_equal(seat_renew(seat, &late), DIBS__GONE);
    assert_status(DIBS_NOT_HELD, release(seat, "x", dead.token));
    give_back(seat, &more);
    give_back(seat, &lives);
}

/* A slow master may have let it in only now. */
static void end_dead(struct seat *seat, const struct dibs__attempt *dead)
{
    (void)release(seat, "x", dead->token); /* most masters have forgotten it */
}

TEST_ON_STORES(a_writer_gets_the_lock_when_a_dead_sharers_lease_is_over, struct world *w)
{
    struct seat *seat = sit(w, 0);
    struct dibs__attempt lives = share_for(w, "x", false, 0), dead = share_for(w, "x", false, 0),
                         alone = attempt_for(w, "x", false);

    dead.lease_ms = 300;
    get(seat, &lives);
    int64_t since = now_ms();
    get(seat, &dead);
    bool are_two = within(dead.lease_ms, look(seat, "x").sharers == 2);
    assert_true(are_two || now_ms() - since >= dead.lease_ms);
    give_back(seat, &lives);
    await_that(is_granted(seat, &alone));
    seat->store->ops->conclude(seat->store, &alone, true);
    expect_seen(seat, "x", 0, 0);
    give_back(seat, &alone);
    end_dead(seat, &dead);
}

TEST_ON_STORES(a_look_shows_the_newest_sharer, struct world *w)
{
    struct seat *seat = sit(w, 0);
    struct dibs__attempt first = share_for(w, "x", false, 0), second = share_for(w, "x", false, 0);

    uint64_t fence = get(seat, &first), newest = get(seat, &second);
    expect_look(seat, "x", owner.held && owner.sharers == 2 && owner.held_ms <= LIMIT_MS);
    if (!is_quorum(w)) /* where a vote that comes late makes the older one look like the newest */
        expect_look(seat, "x", strcmp(owner.token, second.token) == 0 && owner.fence == newest);
    give_back(seat, &second);
    expect_look(seat, "x", owner.sharers == 1 && strcmp(owner.token, first.token) == 0);
    if (!is_quorum(w))
        expect_look(seat, "x", owner.fence == fence);
    give_back(seat, &first);
    expect_look(seat, "x", !owner.held && owner.sharers == 0);
}

static size_t sharers_of(struct seat *seat, dibs_sharer *out, size_t most)
{
    struct dibs__sharers sharers = {.items = out, .most = most};
    dibs_owner owner = {0};
    struct dibs__op query = {.kind = DIBS__OP_QUERY,
                             .name = "x",
                             .deadline = seat_deadline(),
                             .query = {.owner = &owner, .sharers = &sharers}};

    assert_status(DIBS_OK, store_do(seat->store, &query));
    return sharers.count;
}

/*
 * So many share it, and these attempts are among them. A look at a quorum may come before the slower masters have done
 * what they were asked, so that is waited for.
 */
static void expect_sharers(const struct world *w, struct seat *seat, dibs_sharer *out, size_t count,
                           struct dibs__attempt *const *attempts)
{
    const int64_t end = now_ms() + LIMIT_MS;
    size_t found, of_these;

    do {
        found = sharers_of(seat, out, 4);
        of_these = 0;
        for (size_t i = 0; i < found; i++)
            for (struct dibs__attempt *const *attempt = attempts; *attempt; attempt++)
                of_these += strcmp(out[i].token, (*attempt)->token) == 0;
    } while ((found != count || of_these != count) && is_quorum(w) && now_ms() < end);
    assert_int_equal(found, count);
    assert_int_equal(of_these, count);
}

/*
 * The attempt's is at that place. Of a quorum it is among them: a vote that comes late makes an older sharer look like
 * the newest for that master.
 */
static void expect_sharer(const struct world *w, const dibs_sharer *sharers, size_t count, size_t at,
                          const struct dibs__attempt *attempt, uint64_t fence)
{
    const dibs_sharer *sharer = &sharers[at];

    for (size_t i = 0; i < count && is_quorum(w); i++)
        if (strcmp(sharers[i].token, attempt->token) == 0)
            sharer = &sharers[i];
    assert_string_equal(sharer->token, attempt->token);
    assert_true(is_quorum(w) ? sharer->fence >= fence : fence == 0 || sharer->fence == fence);
    assert_in_range(sharer->held_ms, 0, LIMIT_MS);
    assert_in_range(sharer->remaining_ms, 1, attempt->lease_ms);
}

TEST_ON_STORES(sharers_are_listed_newest_first, struct world *w)
{
    struct seat *seat = sit(w, 0);
    struct dibs__attempt attempts[3], alone = attempt_for(w, "x", false);
    struct dibs__attempt *const all[] = {&attempts[0], &attempts[1], &attempts[2], NULL};
    uint64_t fences[3];
    dibs_sharer out[4];

    for (int i = 0; i < 3; i++)
        attempts[i] = share_for(w, "x", false, 0);
    assert_int_equal(sharers_of(seat, out, 4), 0);
    for (int i = 0; i < 3; i++) {
        attempts[i].lease_ms += 1000 * (uint32_t)i;
        fences[i] = get(seat, &attempts[i]);
        expect_sharers(w, seat, out, (size_t)i + 1, all);
        expect_sharer(w, out, (size_t)i + 1, 0, &attempts[i], fences[i]);
        expect_sharer(w, out, (size_t)i + 1, (size_t)i, &attempts[0], fences[0]);
    }
    assert_true(is_quorum(w) || out[0].remaining_ms > attempts[0].lease_ms);
    assert_int_equal(sharers_of(seat, out, 2), 2);
    if (!is_quorum(w))
        expect_sharer(w, out, 2, 1, &attempts[1], fences[1]);
    give_back(seat, &attempts[1]);
    expect_sharers(w, seat, out, 2, (struct dibs__attempt *[]){&attempts[0], &attempts[2], NULL});
    expect_sharer(w, out, 2, 1, &attempts[0], fences[0]);
    give_back(seat, &attempts[0]);
    give_back(seat, &attempts[2]);
    get(seat, &alone);
    expect_sharers(w, seat, out, 0, all);
    give_back(seat, &alone);
}

static bool is_forgotten(struct seat *seat, const struct dibs__attempt *attempt)
{
    dibs_sharer out[4];

    for (size_t i = sharers_of(seat, out, 4); i > 0; i--)
        if (strcmp(out[i - 1].token, attempt->token) == 0)
            return false;
    return true;
}

TEST_ON_STORES(a_dead_sharer_is_not_listed, struct world *w)
{
    struct seat *seat = sit(w, 0);
    struct dibs__attempt lives = share_for(w, "x", false, 0), dead = share_for(w, "x", false, 0),
                         more = share_for(w, "x", false, 0);
    dibs_sharer out[4];

    dead.lease_ms = 20;
    get(seat, &lives);
    get(seat, &dead);
    uint64_t fence = get(seat, &more);
    await_that(is_forgotten(seat, &dead));
    expect_sharers(w, seat, out, 2, (struct dibs__attempt *[]){&lives, &more, NULL});
    expect_sharer(w, out, 2, 0, &more, fence);
    expect_sharer(w, out, 2, 1, &lives, 0);
    give_back(seat, &more);
    give_back(seat, &lives);
    end_dead(seat, &dead);
}

static dibs_status force(struct seat *seat, const char *token)
{
    return store_force(seat->store, "x", token, seat_deadline());
}

TEST_ON_STORES(a_forced_unlock_ends_one_sharer_or_all, struct world *w)
{
    struct seat *seat = sit(w, 0), *other = sit(w, 0);
    struct dibs__attempt attempts[3], alone = attempt_for(w, "x", true);

    for (int i = 0; i < 3; i++) {
        attempts[i] = share_for(w, "x", false, 0);
        get(seat, &attempts[i]);
    }
    uint64_t newest = look(seat, "x").fence;
    queue_up(other, &alone);
    assert_status(DIBS_NOT_HELD, force(seat, "dibs:nobody"));
    assert_status(DIBS_OK, force(seat, attempts[1].token));
    assert_status(DIBS_NOT_HELD, force(seat, attempts[1].token));
    expect_look(seat, "x", owner.sharers == 2);
    assert_status(DIBS_NOT_HELD, release(seat, "x", attempts[1].token));
    assert_status(DIBS_OK, force(seat, NULL));
    expect_told(w, other, 1);
    assert_true(within(LIMIT_MS, is_granted(other, &alone))); /* at the first ask, but on a quorum */
    other->store->ops->conclude(other->store, &alone, true);
    expect_look(seat, "x", owner.fence > newest);
    expect_look(seat, "x", owner.sharers == 0);
    for (int i = 0; i < 3; i++)
        assert_status(DIBS_NOT_HELD, release(seat, "x", attempts[i].token));
    give_back(other, &alone);
    assert_status(DIBS_OK, force(seat, NULL));
}

static bool found(void *context, const char *name)
{
    unsigned *count = context;

    *count += strcmp(name, "x") == 0;
    return true;
}

static bool goes_on(void *context)
{
    return true;
}

TEST_ON_STORES(a_walk_finds_shared_locks, struct world *w)
{
    struct seat *seat = sit(w, 0);
    struct dibs__attempt attempt = share_for(w, "x", false, 0);
    struct dibs__error error;
    unsigned count = 0;
    const struct dibs__walk walk = {NULL, &count, goes_on, found};

    get(seat, &attempt);
    assert_status(DIBS_OK, seat->store->ops->walk(seat->store, &walk, &error));
    assert_in_range(count, 1, is_quorum(w) ? MEMBERS : 1);
    give_back(seat, &attempt);
}

int main(void)
{
    return run_cases();
}
