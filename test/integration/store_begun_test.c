/* The contract of all stores: begin, progress and finish, by which one thread has several stores work at the same time.
 */
#include "integration/store_setup.h"

#define HANG_MS 300 /* so long a store that hangs is waited for */

/* Opens the connections for asks: with replicas, asks have connections of their own. */
static void warm_up(struct world *w, struct seat *seat)
{
    struct dibs__attempt attempt = attempt_for(w, "x", false);

    get(seat, &attempt);
    assert_status(DIBS_OK, release(seat, "x", attempt.token));
}

/* One thread has three stores work at the same time. */
TEST_ON_STORES(requests_begun_at_several_stores_finish_at_each, struct world *w)
{
    struct seat *seats[SEATS] = {sit(w, 0), sit(w, 1), sit(w, 1)};
    static const char *const names[SEATS] = {"x", "x", "y"};
    struct dibs__answer answer;
    struct dibs__attempt attempts[SEATS];
    dibs_owner owners[SEATS] = {{.held = false}};
    struct dibs__op ops[SEATS];

    for (int i = 0; i < SEATS; i++) {
        attempts[i] = attempt_for(w, names[i], false);
        ops[i] = dibs__op_ask(&attempts[i], &answer, seat_deadline());
        seats[i]->store->ops->begin(seats[i]->store, &ops[i]);
    }
    for (int i = SEATS - 1; i >= 0; i--) { /* in any order */
        assert_status(DIBS_OK, store_do(seats[i]->store, &ops[i]));
        assert_true(answer.fence > 0);
        assert_int_equal(attempts[i].number, 1);
        seats[i]->store->ops->conclude(seats[i]->store, &attempts[i], true);
        ops[i] = (struct dibs__op){
            .kind = DIBS__OP_QUERY, .name = names[i], .deadline = seat_deadline(), .query = {.owner = &owners[i]}};
        seats[i]->store->ops->begin(seats[i]->store, &ops[i]);
    }
    for (int i = 0; i < SEATS; i++) {
        assert_status(DIBS_OK, store_do(seats[i]->store, &ops[i]));
        assert_string_equal(owners[i].token, attempts[i].token);
        ops[i] = store_release_op(names[i], attempts[i].token, 0, seat_deadline());
        seats[i]->store->ops->begin(seats[i]->store, &ops[i]);
    }
    for (int i = 0; i < SEATS; i++) {
        assert_status(DIBS_OK, store_do(seats[i]->store, &ops[i]));
        expect_free(seats[i], names[i]);
    }
}

/* For operations of these kinds, finish does everything, in every store. */
TEST_ON_STORES(an_operation_that_sends_nothing_at_first_may_be_begun, struct world *w)
{
    struct seat *seat = sit(w, 0);
    struct dibs__attempt attempt = attempt_for(w, "x", false);
    struct dibs__op ops[] = {{.kind = DIBS__OP_FORCE, .name = "x"}, {.kind = DIBS__OP_FORGET, .name = "x"}};

    get(seat, &attempt);
    for (int i = 0; i < 2; i++) {
        ops[i].deadline = seat_deadline();
        seat->store->ops->begin(seat->store, &ops[i]);
        assert_status(DIBS_OK, store_do(seat->store, &ops[i]));
    }
    expect_look(seat, "x", !owner.held && owner.fence == 0);
}

/* A thread that awaited the reply finishes without waiting, also when the deadline is over. */
TEST_ON_STORES(an_awaited_reply_is_finished_past_its_deadline, struct world *w)
{
    struct seat *seat = sit(w, 0);
    const struct dibs__store_ops *ops = seat->store->ops;
    struct dibs__attempt attempt = attempt_for(w, "x", false);
    struct dibs__answer answer;
    struct dibs__op ask = dibs__op_ask(&attempt, &answer, seat_deadline());

    if (w->kind->where == QUORUM_IN_MEMORY) /* nothing is asked before the ask is finished */
        return;
    warm_up(w, seat);
    ops->begin(seat->store, &ask);
    if (is_quorum(w))
        expect_look(seat, "x", owner.held);
    else
        assert_true(seat_await(seat, &ask, seat_deadline()));
    ask.deadline = w->kind->min_replicas > 0 ? seat_deadline() : dibs__now(&dibs__system_clock) - 1;
    assert_status(DIBS_OK, store_do(seat->store, &ask));
    ops->conclude(seat->store, &attempt, true);
    struct dibs__op end = store_release_op("x", attempt.token, LEASE_MS, seat_deadline());
    if (is_quorum(w)) { /* whose thread has more to do than to wait for the replies to a release */
        assert_status(DIBS_OK, store_do(seat->store, &end));
        return;
    }
    end.release.again = true; /* to be set by the store */
    ops->begin(seat->store, &end);
    assert_true(seat_await(seat, &end, seat_deadline()));
    assert_true(seat_await(seat, &end, 0));
    end.deadline = 0;
    assert_status(DIBS_OK, store_do(seat->store, &end));
    assert_false(end.release.again);
}

/* Requests that one thread has begun and does not wait for do not hold up other threads on the same connections. */
TEST_ON_STORES(a_begun_request_holds_nobody_up, struct world *w)
{
    struct seat *seat = sit(w, 0);
    const struct dibs__store_ops *ops = seat->store->ops;
    struct dibs__attempt begun[6], attempt = attempt_for(w, "y", false);
    static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
    struct dibs__op asks[6];
    struct dibs__answer answer;

    for (int i = 0; i < 6; i++) {
        begun[i] = attempt_for(w, names[i], false);
        asks[i] = dibs__op_ask(&begun[i], &answer, seat_deadline());
        ops->begin(seat->store, &asks[i]);
    }
    get(seat, &attempt);
    assert_status(DIBS_OK, release(seat, "y", attempt.token));
    for (int i = 0; i < 6; i++) {
        assert_status(DIBS_OK, store_do(seat->store, &asks[i]));
        ops->conclude(seat->store, &begun[i], true);
        assert_status(DIBS_OK, release(seat, names[i], begun[i].token));
    }
}

/*
 * The common deadline passes while the thread waits for the first store; the reply of the second has arrived and is
 * taken.
 */
TEST_ON_STORES(a_store_that_hangs_costs_no_other_its_reply, struct world *w)
{
    struct seat *hangs = sit(w, 0), *serves = sit(w, 1);
    struct dibs__attempt lost = attempt_for(w, "x", false), got = attempt_for(w, "x", false);
    struct dibs__answer answer;
    struct dibs__op first = dibs__op_ask(&lost, &answer, seat_deadline()), second = dibs__op_ask(&got, &answer, 0);

    if (is_in_memory(w) || is_quorum(w))
        return;
    warm_up(w, hangs);
    warm_up(w, serves);
    server_pause(w->servers[0]);
    hangs->store->ops->begin(hangs->store, &first);
    serves->store->ops->begin(serves->store, &second);
    if (w->kind->min_replicas > 0) /* there the replicas are asked when the ask is finished: it needs time for that */
        assert_true(seat_await(serves, &second, seat_deadline()));
    await_that(server_has(w->servers[1], "lock:x")); /* so its reply comes, however busy the machine is */
    int64_t deadline = dibs__after_ms(dibs__now(&dibs__system_clock), HANG_MS);
    first.deadline = deadline;
    second.deadline = w->kind->min_replicas > 0 ? seat_deadline() : deadline;
    assert_false(seat_await(hangs, &first, deadline));
    assert_status(DIBS_UNAVAILABLE, store_do(hangs->store, &first));
    assert_true(dibs__now(&dibs__system_clock) >= deadline);
    assert_status(DIBS_OK, store_do(serves->store, &second));
    assert_true(answer.fence > 0);
    serves->store->ops->conclude(serves->store, &got, true);
    assert_status(DIBS_OK, release(serves, "x", got.token));
    hangs->store->ops->conclude(hangs->store, &lost, false);
    server_resume(w->servers[0]);
    seat_await_confirmed(hangs);
    expect_free(hangs, "x");
}

/* begin sends nothing and does not wait; finish connects. */
TEST_ON_STORES(finish_does_everything_where_no_connection_is_open, struct world *w)
{
    struct seat *seat = sit_by(w, 0, (struct dibs__store_config){.url = NULL}, seat_open_unconnected);
    const struct dibs__store_ops *ops = seat->store->ops;
    struct dibs__attempt attempt = attempt_for(w, "x", true);
    struct dibs__answer answer;
    struct dibs__op ask = dibs__op_ask(&attempt, &answer, seat_deadline());

    ops->begin(seat->store, &ask);
    assert_status(DIBS_OK, store_do(seat->store, &ask));
    ops->conclude(seat->store, &attempt, true);
    assert_int_equal(attempt.number, 1);
    assert_status(DIBS_OK, release(seat, "x", attempt.token));
}

TEST_ON_STORES(a_begun_request_outlives_its_connection, struct world *w)
{
    struct seat *seat = sit(w, 0);
    const struct dibs__store_ops *ops = seat->store->ops;
    struct dibs__attempt attempt = attempt_for(w, "x", false);
    struct dibs__answer answer;
    struct dibs__op ask = dibs__op_ask(&attempt, &answer, seat_deadline());

    if (is_in_memory(w))
        return;
    warm_up(w, seat);
    ops->begin(seat->store, &ask);
    server_do(w->servers[0], "CLIENT KILL TYPE normal SKIPME yes");
    for (int other = 0; other < MEMBERS - 1 && w->others[0][other]; other++)
        server_do(w->others[0][other], "CLIENT KILL TYPE normal SKIPME yes");
    dibs_status status = store_do(seat->store, &ask);
    if (status == DIBS_UNAVAILABLE && answer.retired) { /* with replicas the outcome stays in doubt */
        assert_true(w->kind->min_replicas > 0);
        assert_int_equal(attempt.number, 0);
        return;
    }
    /* A master of a quorum whose connection ended before the release of warm_up was answered has the lock until then.
     */
    for (int64_t limit = now_ms() + LIMIT_MS; is_quorum(w) && status == DIBS_BUSY && now_ms() < limit; pause_ms(1))
        status = store_do(seat->store, &ask);
    assert_status(DIBS_OK, status);
    ops->conclude(seat->store, &attempt, true);
    assert_status(DIBS_OK, release(seat, "x", attempt.token));
}

int main(void)
{
    return run_cases();
}
