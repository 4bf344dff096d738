/* The contract of all stores: what each operation does, as a table of cases. */
#include "integration/store_setup.h"

static void expect_grant(struct world *w, struct seat *seat, unsigned count, const struct dibs__attempt *attempt)
{
    struct seat_grant grant = seat_await_grant(seat, count);

    assert_string_equal(grant.name, attempt->name);
    assert_string_equal(grant.token, attempt->token);
    assert_int_equal(grant.confirm, w->kind->min_replicas > 0 || is_quorum(w));
    if (is_quorum(w)) { /* a hint: nobody has the lock */
        assert_int_equal(grant.fence, 0);
        return;
    }
    assert_int_equal(grant.number, attempt->number);
    assert_true(grant.fence > 0);
}

TEST_ON_STORES(a_lock_is_granted_to_one, struct world *w)
{
    struct seat *seat = sit(w, 0), *other = sit(w, 0);
    struct dibs__attempt first = attempt_for(w, "x", false), second = attempt_for(w, "x", false);
    struct dibs__answer answer;

    int64_t before = dibs__now(&dibs__system_clock);
    uint64_t fence = get(seat, &first);
    assert_in_range(first.proof, before, dibs__now(&dibs__system_clock));
    assert_status(DIBS_BUSY, ask(other, &second, &answer));
    assert_in_range(answer.again_ms, 1, LEASE_MS);
    assert_false(second.in_store);
    assert_status(DIBS_OK, release(seat, "x", first.token));
    assert_true(get(other, &second) > fence);
    assert_status(DIBS_OK, release(other, "x", second.token));
}

TEST_ON_STORES(an_owner_that_asks_again_is_told_so, struct world *w)
{
    struct seat *seat = sit(w, 0);
    struct dibs__attempt attempt = attempt_for(w, "x", false);
    struct dibs__answer first, second;

    assert_status(DIBS_OK, ask(seat, &attempt, &first));
    assert_true(attempt.in_store);
    assert_status(DIBS_OK, ask(seat, &attempt, &second));
    assert_int_equal(second.fence, first.fence);
    assert_int_equal(attempt.number, 2);
    seat->store->ops->conclude(seat->store, &attempt, true);
    assert_status(DIBS_OK, release(seat, "x", attempt.token));
}

TEST_ON_STORES(only_its_token_releases_a_lock, struct world *w)
{
    struct seat *seat = sit(w, 0);
    struct dibs__attempt attempt = attempt_for(w, "x", false);

    assert_status(DIBS_NOT_HELD, release(seat, "x", attempt.token));
    get(seat, &attempt);
    assert_status(DIBS_NOT_HELD, release(seat, "x", "dibs:another"));
    assert_status(DIBS_OK, release(seat, "x", attempt.token));
    assert_status(DIBS_NOT_HELD, release(seat, "x", attempt.token));
}

TEST_ON_STORES(a_look_tells_the_owner, struct world *w)
{
    struct seat *seat = sit(w, 0), *other = sit(w, 0);
    struct dibs__attempt attempt = attempt_for(w, "x", false), waiter = attempt_for(w, "x", true);

    expect_free(seat, "x");
    uint64_t fence = get(seat, &attempt);
    queue_up(other, &waiter);
    expect_look(other, "x", owner.held && owner.waiters == 1 && strcmp(owner.token, attempt.token) == 0);
    expect_look(other, "x",
                is_quorum(w) ? owner.fence >= fence : owner.fence == fence); /* a late vote's may be larger */
    expect_look(other, "x", owner.remaining_ms > 0 && owner.remaining_ms <= LEASE_MS);
    other->store->ops->conclude(other->store, &waiter, false);
    assert_status(DIBS_OK, release(seat, "x", attempt.token));
    seat_await_confirmed(other);
    expect_look(seat, "x", !owner.held && owner.waiters == 0);
}

/* How often a walk found the name x, and the name with odd bytes; and whether it may go on. */
struct walked {
    unsigned x, odd, others;
    bool ends;
};

#define ODD "x*[?\\\n\xff"

static bool goes_on(void *context)
{
    return !((const struct walked *)context)->ends;
}

static bool count_name(void *context, const char *name)
{
    struct walked *walked = context;

    walked->x += strcmp(name, "x") == 0;
    walked->odd += strcmp(name, ODD) == 0;
    walked->others += strcmp(name, "x") != 0 && strcmp(name, ODD) != 0;
    return true;
}

static bool refuse_name(void *context, const char *name)
{
    return false;
}

static struct walked walk_with(struct seat *seat, const char *pattern)
{
    struct walked walked = {.x = 0};
    struct dibs__error error;
    const struct dibs__walk walk = {.pattern = pattern, .context = &walked, .goes_on = goes_on, .found = count_name};

    assert_status(DIBS_OK, seat->store->ops->walk(seat->store, &walk, &error));
    assert_int_equal(walked.others, 0);
    return walked;
}

TEST_ON_STORES(a_walk_tells_the_names_of_held_locks, struct world *w)
{
    struct seat *seat = sit(w, 0), *other = sit(w, 0);
    struct dibs__attempt attempt = attempt_for(w, "x", false), odd = attempt_for(w, ODD, false);
    struct walked walked = {.ends = true};
    struct dibs__walk walk = {.context = &walked, .goes_on = goes_on, .found = count_name};
    struct dibs__error error;

    get(seat, &attempt);
    get(seat, &odd);
    assert_true(walk_with(other, NULL).x > 0);
    assert_true(walk_with(other, NULL).odd > 0);
    assert_int_equal(walk_with(other, "?").odd, 0);
    assert_int_equal(walk_with(other, "x\\*[[]*").x, 0);
    assert_true(walk_with(other, "x\\*[[]*").odd > 0);
    assert_status(DIBS_CLOSED, other->store->ops->walk(other->store, &walk, &error));
    walked.ends = false;
    walk.found = refuse_name;
    assert_status(DIBS_NO_MEMORY, other->store->ops->walk(other->store, &walk, &error));
    assert_status(DIBS_OK, release(seat, "x", attempt.token));
    assert_status(DIBS_OK, release(seat, ODD, odd.token));
}

/* What an examination found, and after how many findings memory runs out. */
struct examined {
    unsigned findings, connections, most;
};

static bool examines_on(void *context)
{
    return true;
}

static bool count_finding(void *context, const dibs_finding *finding)
{
    struct examined *examined = context;

    if (examined->findings == examined->most)
        return false;
    examined->findings++;
    examined->connections += strcmp(finding->subject, "connection") == 0;
    return true;
}

TEST_ON_STORES(an_examination_tells_of_each_server, struct world *w)
{
    struct seat *seat = sit(w, 0);
    struct examined examined = {.most = 1000};
    struct dibs__examination examination = {.context = &examined, .goes_on = examines_on, .found = count_finding};
    struct dibs__error error;
    unsigned servers = is_quorum(w) || w->kind->where == ON_CLUSTER ? 3 : 1;

    assert_status(DIBS_OK, seat->store->ops->examine(seat->store, &examination, &error));
    assert_int_equal(examined.connections, servers);
    assert_false(examination.no_memory);
    for (unsigned most = 0, all = examined.findings; most < all; most++) {
        examined = (struct examined){.most = most};
        examination.no_memory = false;
        assert_status(DIBS_OK, seat->store->ops->examine(seat->store, &examination, &error));
        assert_true(examination.no_memory);
        assert_int_equal(examined.findings, most);
    }
}

TEST_ON_STORES(a_lock_can_be_taken_away, struct world *w)
{
    struct seat *seat = sit(w, 0);
    struct dibs__attempt attempt = attempt_for(w, "x", false), next = attempt_for(w, "x", false);
    uint64_t fence = get(seat, &attempt);

    assert_status(DIBS_NOT_HELD, store_force(seat->store, "x", "dibs:another", seat_deadline()));
    assert_status(DIBS_OK, store_force(seat->store, "x", attempt.token, seat_deadline()));
    assert_status(DIBS_NOT_HELD, release(seat, "x", attempt.token));
    assert_status(DIBS_OK, store_force(seat->store, "x", NULL, seat_deadline())); /* nobody has it */
    assert_true(get(seat, &next) > fence);
    assert_status(DIBS_OK, store_force(seat->store, "x", NULL, seat_deadline()));
    expect_free(seat, "x");
}

/* Not while somebody holds the lock. The next fence is larger nevertheless. */
TEST_ON_STORES(a_free_lock_is_forgotten, struct world *w)
{
    struct seat *seat = sit(w, 0);
    struct dibs__attempt attempt = attempt_for(w, "x", false), next = attempt_for(w, "x", false);
    uint64_t fence = get(seat, &attempt);

    assert_status(DIBS_BUSY, store_forget(seat->store, "x", seat_deadline()));
    expect_look(seat, "x", owner.fence > 0);
    assert_status(DIBS_OK, release(seat, "x", attempt.token));
    assert_status(DIBS_OK, store_forget(seat->store, "x", seat_deadline()));
    assert_status(DIBS_OK, store_forget(seat->store, "x", seat_deadline()));
    expect_look(seat, "x", owner.fence == 0);
    assert_true(get(seat, &next) > fence);
    assert_status(DIBS_OK, release(seat, "x", next.token));
}

static struct dibs__renewal renewal_of(const struct dibs__attempt *attempt, uint64_t fence, uint32_t lease_ms)
{
    return (struct dibs__renewal){.name = attempt->name,
                                  .token = attempt->token,
                                  .lease_ms = lease_ms,
                                  .fence = fence,
                                  .store_state = attempt->lease};
}

TEST_ON_STORES(a_lease_is_renewed_extended_and_gone, struct world *w)
{
    struct seat *seat = sit(w, 0);
    struct dibs__attempt attempt = attempt_for(w, "x", false);
    struct dibs__renewal renewal = renewal_of(&attempt, get(seat, &attempt), LEASE_MS / 2);

    renewal.store_state = attempt.lease;
    if (is_quorum(w)) /* a master where more is left of a lease than is asked for is not counted (rule 52) */
        renewal.lease_ms = LEASE_MS;
    assert_int_equal(seat_renew(seat, &renewal), DIBS__RENEWED);
    assert_int_equal(renewal.pending_extension_ms, 0);
    assert_false(seat->store->ops->is_unconfirmed(seat->store, &renewal.store_state));
    assert_false(seat->store->ops->is_unconfirmed(seat->store, &attempt.lease));
    expect_look(seat, "x",
                owner.remaining_ms > LEASE_MS / 2 && owner.remaining_ms <= LEASE_MS); /* a renewal never shortens */
    renewal.extension = true;
    renewal.lease_ms = LEASE_MS / 2;
    assert_int_equal(seat_renew(seat, &renewal), DIBS__RENEWED);
    expect_look(seat, "x", owner.held && owner.remaining_ms <= LEASE_MS / 2);
    assert_status(DIBS_OK, release(seat, "x", attempt.token));
    assert_int_equal(seat_renew(seat, &renewal), DIBS__GONE);
}

static void pause_servers(struct world *w, bool pause)
{
    void (*const call)(server *) = pause ? server_pause : server_resume;

    call(w->servers[0]);
    for (size_t i = 0; w->kind->where == QUORUM && i < MEMBERS - 1; i++)
        call(w->others[0][i]);
}

/* Until a later renewal is answered, the lease may be as short as it would have become. */
TEST_ON_STORES(an_extension_without_an_answer_may_have_cut_the_lease, struct world *w)
{
    if (is_in_memory(w))
        return;
    /*
     * Within the time of a command, a server that is not paused answers on a busy machine, too. A cluster gives up a
     * node that is silent for so long.
     */
    uint32_t timeout_ms = w->kind->where == ON_CLUSTER ? 1000 : 3000;
    struct seat *seat = sit_with(w, 0, (struct dibs__store_config){.command_timeout_ms = timeout_ms});
    struct dibs__attempt attempt = attempt_for(w, "x", false);
    struct dibs__renewal renewal = renewal_of(&attempt, get(seat, &attempt), LEASE_MS);

    renewal.store_state = attempt.lease;
    assert_int_equal(seat_renew(seat, &renewal), DIBS__RENEWED); /* the connections stand */
    renewal.extension = true;
    renewal.lease_ms = LEASE_MS / 2;
    pause_servers(w, true);
    seat_begin_renewal(seat, &renewal);
    seat_end_renewal(seat, &renewal);
    pause_servers(w, false);
    assert_int_equal(renewal.result, DIBS__UNANSWERED);
    if (!is_quorum(w)) /* whose members know it, each for itself */
        assert_int_equal(renewal.pending_extension_ms, LEASE_MS / 2);
    assert_int_equal(seat_renew(seat, &renewal), DIBS__RENEWED);
    assert_status(DIBS_OK, release(seat, "x", attempt.token));
}

TEST_ON_STORES(a_confirmed_retraction_leaves_nothing, struct world *w)
{
    struct seat *seat = sit(w, 0);
    struct dibs__attempt attempt = attempt_for(w, "x", false), other = attempt_for(w, "y", false);

    get(seat, &attempt);
    get(seat, &other);
    seat->store->ops->retract(seat->store, "x", attempt.token, LEASE_MS, 0);
    seat->store->ops->retract(seat->store, "y", "dibs:another", LEASE_MS, 0);
    seat_await_confirmed(seat);
    expect_free(seat, "x");
    expect_look(seat, "y", owner.held);
    assert_status(DIBS_OK, release(seat, "y", other.token));
}

TEST_ON_STORES(a_release_grants_to_the_first_in_the_queue, struct world *w)
{
    if (is_quorum(w))
        return;
    struct seat *seat = sit(w, 0), *other = sit(w, 0);
    struct dibs__attempt owner = attempt_for(w, "x", false), first = attempt_for(w, "x", true),
                         second = attempt_for(w, "x", true);
    struct dibs__answer answer;
    uint64_t fence = get(seat, &owner);

    queue_up(other, &first);
    queue_up(seat, &second);
    assert_status(DIBS_BUSY, ask(other, &first, &answer)); /* who asks again keeps its place */
    assert_status(DIBS_OK, release(seat, "x", owner.token));
    expect_grant(w, other, 1, &first);
    assert_true(seat_last_grant(other).fence > fence);
    assert_int_equal(seat_last_grant(seat).count, 0);
    assert_status(DIBS_OK, ask(other, &first, &answer)); /* and is told that it owns the lock */
    assert_int_equal(answer.fence, seat_last_grant(other).fence);
    other->store->ops->conclude(other->store, &first, true);
    assert_status(DIBS_OK, release(other, "x", first.token));
    expect_grant(w, seat, 1, &second);
    seat->store->ops->conclude(seat->store, &second, true);
    assert_status(DIBS_OK, release(seat, "x", second.token));
}

/* A quorum hints the first in the queue that the lock may be free. */
TEST_ON_STORES(a_release_hints_the_first_in_the_queue, struct world *w)
{
    struct seat *seat = sit(w, 0), *other = sit(w, 0);
    struct dibs__attempt owner = attempt_for(w, "x", false), first = attempt_for(w, "x", true);

    if (!is_quorum(w))
        return;
    uint64_t fence = get(seat, &owner);
    queue_up(other, &first);
    assert_status(DIBS_OK, release(seat, "x", owner.token));
    expect_grant(w, other, 1, &first);
    assert_true(get(other, &first) > fence);
    assert_status(DIBS_OK, release(other, "x", first.token));
}

TEST_ON_STORES(a_grant_that_nobody_wants_is_given_back, struct world *w)
{
    struct seat *seat = sit(w, 0), *other = sit(w, 0);
    struct dibs__attempt owner = attempt_for(w, "x", false), waiter = attempt_for(w, "x", true);

    get(seat, &owner);
    queue_up(other, &waiter);
    atomic_store(&other->refuses, true);
    assert_status(DIBS_OK, release(seat, "x", owner.token));
    expect_grant(w, other, 1, &waiter);
    await_that(!look(seat, "x").held);
    other->store->ops->conclude(other->store, &waiter, true);
}

/* Releases, and asks with `next` in the same round trip. */
static dibs_status requeue(struct seat *seat, const char *token, struct dibs__attempt *next,
                           struct dibs__answer *answer)
{
    struct dibs__op end = store_release_op("x", token, LEASE_MS, seat_deadline());

    end.release.next = (struct dibs__ask){next, answer};
    assert_status(DIBS_OK, store_do(seat->store, &end));
    assert_false(end.release.again);
    assert_false(answer->retired);
    return end.release.next_status;
}

/* Where replicas are waited for, and in a quorum, the next has to ask by itself. */
TEST_ON_STORES(an_ask_rides_along_with_a_release, struct world *w)
{
    struct seat *seat = sit(w, 0);
    struct dibs__attempt owner = attempt_for(w, "x", false), next = attempt_for(w, "x", true);
    struct dibs__answer answer;
    uint64_t fence = get(seat, &owner);

    if (w->kind->min_replicas > 0 || is_quorum(w)) {
        assert_status(DIBS_BUSY, requeue(seat, owner.token, &next, &answer));
        assert_int_equal(next.number, 0);
        assert_int_equal(answer.again_ms, 0);
        return;
    }
    assert_status(DIBS_OK, requeue(seat, owner.token, &next, &answer));
    assert_true(answer.fence > fence);
    assert_int_equal(next.number, 1);
    seat->store->ops->conclude(seat->store, &next, true);
    assert_string_equal(look(seat, "x").token, next.token);
    assert_status(DIBS_OK, release(seat, "x", next.token));
}

TEST_ON_STORES(an_ask_with_a_release_queues_behind_the_waiters, struct world *w)
{
    struct seat *seat = sit(w, 0), *other = sit(w, 0);
    struct dibs__attempt owner = attempt_for(w, "x", false), waiter = attempt_for(w, "x", true),
                         next = attempt_for(w, "x", true);
    struct dibs__answer answer;

    if (is_quorum(w)) /* there is no common queue */
        return;
    get(seat, &owner);
    queue_up(other, &waiter);
    assert_status(DIBS_BUSY, requeue(seat, owner.token, &next, &answer));
    expect_grant(w, other, 1, &waiter);
    other->store->ops->conclude(other->store, &waiter, true);
    seat->store->ops->conclude(seat->store, &next, false);
    seat_await_confirmed(seat);
    assert_status(DIBS_OK, release(other, "x", waiter.token));
}

/* Returns once grants reach the seat. */
static void have_it_listen(struct world *w, struct seat *seat, struct seat *other)
{
    struct dibs__attempt owner = attempt_for(w, "y", false), waiter = attempt_for(w, "y", true);

    get(other, &owner);
    queue_up(seat, &waiter);
    assert_status(DIBS_OK, release(other, "y", owner.token));
    expect_grant(w, seat, 1, &waiter);
    seat->store->ops->conclude(seat->store, &waiter, true);
    assert_status(DIBS_OK, release(seat, "y", waiter.token));
}

TEST_ON_STORES(an_ask_with_a_release_is_told_of_its_grant, struct world *w)
{
    struct seat *seat = sit(w, 0), *other = sit(w, 0);
    struct dibs__attempt owner = attempt_for(w, "x", false), waiter = attempt_for(w, "x", true),
                         next = attempt_for(w, "x", true);
    struct dibs__answer answer;

    if (w->kind->min_replicas > 0 || is_quorum(w))
        return;
    have_it_listen(w, seat, other);
    get(seat, &owner);
    queue_up(other, &waiter);
    assert_status(DIBS_BUSY, requeue(seat, owner.token, &next, &answer));
    assert_true(next.in_store);
    expect_grant(w, other, 1, &waiter);
    other->store->ops->conclude(other->store, &waiter, true);
    assert_status(DIBS_OK, release(other, "x", waiter.token));
    expect_grant(w, seat, 2, &next);
    seat->store->ops->conclude(seat->store, &next, true);
    assert_status(DIBS_OK, release(seat, "x", next.token));
}

TEST_ON_STORES(fences_grow_for_every_asker, struct world *w)
{
    uint64_t last = 0;

    for (int i = 0; i < 6; i++) {
        struct seat *seat = sit(w, 0);
        struct dibs__attempt attempt = attempt_for(w, "x", false);
        uint64_t fence = get(seat, &attempt);
        assert_true(fence > last);
        last = fence;
        assert_status(DIBS_OK, release(seat, "x", attempt.token));
        stand_up(w);
    }
}

/* Its entry in the queue is retracted; the attempt goes on under a new token as if it had never asked. */
TEST_ON_STORES(a_concluded_attempt_leaves_nothing_in_the_store, struct world *w)
{
    struct seat *seat = sit(w, 0), *other = sit(w, 0);
    struct dibs__attempt owner = attempt_for(w, "x", false), waiter = attempt_for(w, "x", true);

    get(seat, &owner);
    queue_up(other, &waiter);
    other->store->ops->conclude(other->store, &waiter, false);
    assert_false(waiter.in_store);
    assert_int_equal(waiter.number, 0);
    assert_int_equal(waiter.proof, 0);
    seat_await_confirmed(other);
    expect_seen(seat, "x", 0, 0);
    waiter.token = new_token(w);
    queue_up(other, &waiter);
    expect_seen(seat, "x", 0, 1);
    assert_status(DIBS_OK, release(seat, "x", owner.token));
    expect_grant(w, other, 1, &waiter);
    other->store->ops->conclude(other->store, &waiter, false); /* granted, and not taken */
    seat_await_confirmed(other);
    expect_free(seat, "x");
}

int main(void)
{
    return run_cases();
}
