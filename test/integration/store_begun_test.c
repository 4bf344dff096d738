/*
 * The contract of all stores: what is begun, awaited and finished. So one
 * thread has several stores work at the same time.
 */
#include "integration/store_setup.h"

#define HANG_MS 300 /* so long a store that hangs is waited for */

/* The connections that asks go over stand from now on: with replicas, asks have connections of their own. */
static void warm_up(struct world *w, struct seat *seat)
{
    struct dibs__attempt attempt = attempt_for(w, "x", false);

    get(seat, &attempt);
    assert_status(DIBS_OK, release(seat, "x", attempt.token));
}

/* One thread has three stores work at the same time. */
static void what_is_begun_at_several_stores_is_finished_at_each(struct world *w)
{
    struct seat *seats[SEATS] = {sit(w, 0), sit(w, 1), sit(w, 1)};
    static const char *const names[SEATS] = {"x", "x", "y"};
    struct dibs__error error;
    struct dibs__answer answer;
    struct dibs__attempt attempts[SEATS];
    struct dibs__release releases[SEATS];
    struct dibs__query queries[SEATS];

    for (int i = 0; i < SEATS; i++) {
        attempts[i] = attempt_for(w, names[i], false);
        seats[i]->store->ops->ask_begin(seats[i]->store, &attempts[i]);
    }
    for (int i = SEATS - 1; i >= 0; i--) { /* in any order */
        assert_status(DIBS_OK, seats[i]->store->ops->ask_finish(seats[i]->store, &attempts[i], &answer, &error));
        assert_true(answer.fence > 0);
        assert_int_equal(attempts[i].number, 1);
        seats[i]->store->ops->conclude(seats[i]->store, &attempts[i], true);
        queries[i] = (struct dibs__query){.name = names[i], .deadline = seat_deadline()};
        seats[i]->store->ops->query_begin(seats[i]->store, &queries[i]);
    }
    for (int i = 0; i < SEATS; i++) {
        dibs_owner owner = {.held = false};
        assert_status(DIBS_OK, seats[i]->store->ops->query_finish(seats[i]->store, &queries[i], &owner, &error));
        assert_string_equal(owner.token, attempts[i].token);
        releases[i] = (struct dibs__release){.name = names[i], .token = attempts[i].token, .deadline = seat_deadline()};
        seats[i]->store->ops->release_begin(seats[i]->store, &releases[i]);
    }
    for (int i = 0; i < SEATS; i++) {
        assert_status(DIBS_OK, seats[i]->store->ops->release_finish(seats[i]->store, &releases[i], &error));
        expect_free(seats[i], names[i]);
    }
}

/* Whoever awaited the reply finishes without waiting, also when the deadline is over. */
static void what_is_awaited_is_finished_past_its_deadline(struct world *w)
{
    struct seat *seat = sit(w, 0);
    const struct dibs__store_ops *ops = seat->store->ops;
    struct dibs__attempt attempt = attempt_for(w, "x", false);
    struct dibs__error error;
    struct dibs__answer answer;

    if (is_quorum(w)) /* whose thread has more to do than to wait for the replies */
        return;
    warm_up(w, seat);
    ops->ask_begin(seat->store, &attempt);
    assert_true(ops->await(seat->store, &attempt.begun, seat_deadline()));
    attempt.deadline = w->kind->min_replicas > 0 ? seat_deadline() : dibs__now(&dibs__system_clock) - 1;
    assert_status(DIBS_OK, ops->ask_finish(seat->store, &attempt, &answer, &error));
    ops->conclude(seat->store, &attempt, true);
    struct dibs__release end = {.name = "x", .token = attempt.token, .lease_ms = LEASE_MS, .deadline = seat_deadline()};
    end.again = true; /* to be set by the store */
    ops->release_begin(seat->store, &end);
    assert_true(ops->await(seat->store, &end.begun, seat_deadline()));
    assert_true(ops->await(seat->store, &end.begun, 0));
    end.deadline = 0;
    assert_status(DIBS_OK, ops->release_finish(seat->store, &end, &error));
    assert_false(end.again);
}

/* Threads on the same connections are not held up by what another has begun and does not wait for. */
static void what_is_begun_holds_nobody_up(struct world *w)
{
    struct seat *seat = sit(w, 0);
    const struct dibs__store_ops *ops = seat->store->ops;
    struct dibs__attempt begun[6], attempt = attempt_for(w, "y", false);
    static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
    struct dibs__error error;
    struct dibs__answer answer;

    for (int i = 0; i < 6; i++) {
        begun[i] = attempt_for(w, names[i], false);
        ops->ask_begin(seat->store, &begun[i]);
    }
    get(seat, &attempt);
    assert_status(DIBS_OK, release(seat, "y", attempt.token));
    for (int i = 0; i < 6; i++) {
        assert_status(DIBS_OK, ops->ask_finish(seat->store, &begun[i], &answer, &error));
        ops->conclude(seat->store, &begun[i], true);
        assert_status(DIBS_OK, release(seat, names[i], begun[i].token));
    }
}

/* The time of the common deadline goes by at the first; the reply of the second lies there and is taken. */
static void a_store_that_hangs_costs_no_other_its_reply(struct world *w)
{
    struct seat *hangs = sit(w, 0), *serves = sit(w, 1);
    struct dibs__attempt lost = attempt_for(w, "x", false), got = attempt_for(w, "x", false);
    struct dibs__error error;
    struct dibs__answer answer;

    if (is_in_memory(w) || is_quorum(w))
        return;
    warm_up(w, hangs);
    warm_up(w, serves);
    server_pause(w->servers[0]);
    hangs->store->ops->ask_begin(hangs->store, &lost);
    serves->store->ops->ask_begin(serves->store, &got);
    if (w->kind->min_replicas > 0) /* there the replicas are asked when the ask is finished: it needs time for that */
        assert_true(serves->store->ops->await(serves->store, &got.begun, seat_deadline()));
    int64_t deadline = dibs__after_ms(dibs__now(&dibs__system_clock), HANG_MS);
    lost.deadline = deadline;
    got.deadline = w->kind->min_replicas > 0 ? seat_deadline() : deadline;
    assert_false(hangs->store->ops->await(hangs->store, &lost.begun, deadline));
    assert_status(DIBS_UNAVAILABLE, hangs->store->ops->ask_finish(hangs->store, &lost, &answer, &error));
    assert_true(dibs__now(&dibs__system_clock) >= deadline);
    assert_status(DIBS_OK, serves->store->ops->ask_finish(serves->store, &got, &answer, &error));
    assert_true(answer.fence > 0);
    serves->store->ops->conclude(serves->store, &got, true);
    assert_status(DIBS_OK, release(serves, "x", got.token));
    hangs->store->ops->conclude(hangs->store, &lost, false);
    server_resume(w->servers[0]);
    seat_await_confirmed(hangs);
    expect_free(hangs, "x");
}

/* begin sends nothing and does not wait; finish connects. */
static void finish_does_the_whole_where_no_connection_stands(struct world *w)
{
    struct seat *seat = sit_with(w, 0, (struct dibs__store_config){.connect_later = true});
    const struct dibs__store_ops *ops = seat->store->ops;
    struct dibs__attempt attempt = attempt_for(w, "x", true);
    struct dibs__error error;
    struct dibs__answer answer;

    ops->ask_begin(seat->store, &attempt);
    assert_status(DIBS_OK, ops->ask_finish(seat->store, &attempt, &answer, &error));
    ops->conclude(seat->store, &attempt, true);
    assert_int_equal(attempt.number, 1);
    assert_status(DIBS_OK, release(seat, "x", attempt.token));
}

static void what_is_begun_outlives_its_connection(struct world *w)
{
    struct seat *seat = sit(w, 0);
    const struct dibs__store_ops *ops = seat->store->ops;
    struct dibs__attempt attempt = attempt_for(w, "x", false);
    struct dibs__error error;
    struct dibs__answer answer;

    if (is_in_memory(w))
        return;
    warm_up(w, seat);
    ops->ask_begin(seat->store, &attempt);
    server_do(w->servers[0], "CLIENT KILL TYPE normal SKIPME yes");
    for (int other = 0; other < MEMBERS - 1 && w->others[0][other]; other++)
        server_do(w->others[0][other], "CLIENT KILL TYPE normal SKIPME yes");
    dibs_status status = ops->ask_finish(seat->store, &attempt, &answer, &error);
    if (status == DIBS_UNAVAILABLE && answer.retired) { /* with replicas nothing settles what was sent */
        assert_true(w->kind->min_replicas > 0);
        assert_int_equal(attempt.number, 0);
        return;
    }
    /* A master of a quorum whose connection ended before the release of warm_up was answered has the lock until then.
     */
    for (int64_t limit = now_ms() + LIMIT_MS; is_quorum(w) && status == DIBS_BUSY && now_ms() < limit; pause_ms(1))
        status = ops->ask_finish(seat->store, &attempt, &answer, &error);
    assert_status(DIBS_OK, status);
    ops->conclude(seat->store, &attempt, true);
    assert_status(DIBS_OK, release(seat, "x", attempt.token));
}

int main(void)
{
    static const struct store_case cases[] = {
        CASE(what_is_begun_at_several_stores_is_finished_at_each),
        CASE(what_is_awaited_is_finished_past_its_deadline),
        CASE(what_is_begun_holds_nobody_up),
        CASE(a_store_that_hangs_costs_no_other_its_reply),
        CASE(finish_does_the_whole_where_no_connection_stands),
        CASE(what_is_begun_outlives_its_connection),
    };

    return run_cases(cases, sizeof cases / sizeof cases[0]);
}
