/*
 * The contract of all stores (src/store/store.h): a table of cases, each run
 * against every store of another table. A store that is new gets a line there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/seat.h"
#include "support/server.h"
#include "support/test.h"
#include "support/wait.h"

#define LEASE_MS LONG_LEASE_MS
#define HANG_MS 300 /* so long a store that hangs is waited for */
#define SEATS 3

/* --------------------------------------------------------------- the stores */

enum where { IN_MEMORY, ON_TCP, ON_UNIX_SOCKET, WITH_REPLICA };

static const struct kind {
    const char *name;
    enum where where;
    uint32_t min_replicas;
} kinds[] = {
    {"memory", IN_MEMORY, 0},
    {"Redis over TCP", ON_TCP, 0},
    {"Redis over a Unix socket", ON_UNIX_SOCKET, 0},
    {"Redis with a replica", WITH_REPLICA, 1},
};
#define KINDS (sizeof kinds / sizeof kinds[0])

struct world;
typedef void test_case(struct world *w);

/* What a case has: up to three seats at the first of two servers, or at both. */
struct world {
    const struct kind *kind;
    test_case *run;
    server *servers[2], *replicas[2];
    struct seat seats[SEATS];
    size_t count; /* of the seats that are open */
    unsigned tokens;
    char token[16][32];
};

static bool has_replica(void *arg)
{
    redisReply *reply = server_command(arg, "INFO replication");
    bool online = strstr(reply->str, "state=online") != NULL;

    freeReplyObject(reply);
    return online;
}

static void start_servers(struct world *w, size_t count)
{
    const server_options options = {.tcp = w->kind->where != ON_UNIX_SOCKET, .config = "repl-diskless-sync-delay 0"};

    for (size_t i = 0; i < count && w->kind->where != IN_MEMORY; i++) {
        if (w->servers[i])
            continue;
        w->servers[i] = server_start(&options);
        if (w->kind->where != WITH_REPLICA)
            continue;
        w->replicas[i] = server_start(&options);
        server_do(w->replicas[i], "REPLICAOF 127.0.0.1 %d", w->servers[i]->port);
        assert_true(wait_until(has_replica, w->servers[i], LIMIT_MS));
    }
}

static struct seat *sit_with(struct world *w, size_t at, struct dibs__store_config config)
{
    char url[64];

    start_servers(w, at + 1);
    snprintf(url, sizeof url, "mem:store%zu", at);
    config.url = w->servers[at] ? w->servers[at]->url : url;
    config.min_replicas = w->kind->min_replicas;
    config.replica_timeout_ms = LIMIT_MS / 4;
    assert_true(w->count < SEATS);
    seat_open(&w->seats[w->count], &config);
    return &w->seats[w->count++];
}

static struct seat *sit(struct world *w, size_t at)
{
    return sit_with(w, at, (struct dibs__store_config){.connect_later = false});
}

static void stand_up(struct world *w)
{
    for (size_t i = 0; i < w->count; i++) {
        seat_await_confirmed(&w->seats[i]);
        seat_close(&w->seats[i]);
    }
    w->count = 0;
}

/* ----------------------------------------------------------------- the calls */

static const char *new_token(struct world *w)
{
    char *token = w->token[w->tokens % 16];

    snprintf(token, sizeof w->token[0], "dibs:test:%u", w->tokens++);
    return token;
}

static struct dibs__bid bid_for(struct world *w, const char *name, bool wait)
{
    return (struct dibs__bid){
        .name = name, .token = new_token(w), .lease_ms = LEASE_MS, .wait = wait, .deadline = seat_deadline()};
}

static dibs_status ask(struct seat *seat, struct dibs__bid *bid, struct dibs__answer *answer)
{
    struct dibs__error error = {DIBS_OK, ""};
    uint64_t number = bid->number;

    bid->deadline = seat_deadline();
    dibs_status status = dibs__store_ask(seat->store, bid, answer, &error);
    assert_that(status == DIBS_OK || status == DIBS_BUSY, "an ask: %s", error.detail);
    assert_false(answer->spent);
    assert_int_equal(bid->number, number + 1);
    return status;
}

/* A lock that is free, granted; returns the fence. */
static uint64_t get(struct seat *seat, struct dibs__bid *bid)
{
    struct dibs__answer answer;

    assert_status(DIBS_OK, ask(seat, bid, &answer));
    seat->store->ops->conclude(seat->store, bid, true);
    assert_true(answer.fence > 0);
    return answer.fence;
}

static dibs_status release(struct seat *seat, const char *name, const char *token)
{
    struct dibs__error error;
    struct dibs__release end = {.name = name, .token = token, .lease_ms = LEASE_MS, .deadline = seat_deadline()};

    return dibs__store_release(seat->store, &end, &error);
}

static dibs_owner look(struct seat *seat, const char *name)
{
    struct dibs__error error;
    struct dibs__query query = {.name = name, .deadline = seat_deadline()};
    dibs_owner owner;

    memset(&owner, 0, sizeof owner);
    assert_status(DIBS_OK, dibs__store_query(seat->store, &query, &owner, &error));
    return owner;
}

struct queueing {
    struct seat *seat;
    struct dibs__bid *bid;
};

static bool stands_in_queue(void *arg)
{
    const struct queueing *queueing = arg;
    struct dibs__answer answer;

    assert_status(DIBS_BUSY, ask(queueing->seat, queueing->bid, &answer));
    assert_true(answer.again_ms > 0);
    return queueing->bid->in_store;
}

/* Asks for a lock that is taken until the bid stands in the queue: what tells of grants may not stand at first. */
static void queue_up(struct seat *seat, struct dibs__bid *bid)
{
    assert_that(wait_until(stands_in_queue, &(struct queueing){seat, bid}, LIMIT_MS), "the bid does not queue");
}

static void expect_grant(struct world *w, struct seat *seat, unsigned count, const struct dibs__bid *bid)
{
    struct seat_grant grant = seat_await_grant(seat, count);

    assert_string_equal(grant.name, bid->name);
    assert_string_equal(grant.token, bid->token);
    assert_int_equal(grant.number, bid->number);
    assert_true(grant.fence > 0);
    assert_int_equal(grant.confirm, w->kind->min_replicas > 0);
}

/* ----------------------------------------------------------------- the cases */

static void a_lock_is_granted_to_one(struct world *w)
{
    struct seat *seat = sit(w, 0), *other = sit(w, 0);
    struct dibs__bid first = bid_for(w, "x", false), second = bid_for(w, "x", false);
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

static void who_asks_again_finds_itself_the_owner(struct world *w)
{
    struct seat *seat = sit(w, 0);
    struct dibs__bid bid = bid_for(w, "x", false);
    struct dibs__answer first, second;

    assert_status(DIBS_OK, ask(seat, &bid, &first));
    assert_true(bid.in_store);
    assert_status(DIBS_OK, ask(seat, &bid, &second));
    assert_int_equal(second.fence, first.fence);
    assert_int_equal(bid.number, 2);
    seat->store->ops->conclude(seat->store, &bid, true);
    assert_status(DIBS_OK, release(seat, "x", bid.token));
}

static void only_its_token_releases_a_lock(struct world *w)
{
    struct seat *seat = sit(w, 0);
    struct dibs__bid bid = bid_for(w, "x", false);

    assert_status(DIBS_NOT_HELD, release(seat, "x", bid.token));
    get(seat, &bid);
    assert_status(DIBS_NOT_HELD, release(seat, "x", "dibs:another"));
    assert_status(DIBS_OK, release(seat, "x", bid.token));
    assert_status(DIBS_NOT_HELD, release(seat, "x", bid.token));
}

static void a_look_tells_the_owner(struct world *w)
{
    struct seat *seat = sit(w, 0), *other = sit(w, 0);
    struct dibs__bid bid = bid_for(w, "x", false), waiter = bid_for(w, "x", true);

    assert_false(look(seat, "x").held);
    uint64_t fence = get(seat, &bid);
    queue_up(other, &waiter);
    dibs_owner owner = look(other, "x");
    assert_true(owner.held);
    assert_string_equal(owner.token, bid.token);
    assert_int_equal(owner.fence, fence);
    assert_in_range(owner.remaining_ms, 1, LEASE_MS);
    assert_int_equal(owner.waiters, 1);
    other->store->ops->conclude(other->store, &waiter, false);
    assert_status(DIBS_OK, release(seat, "x", bid.token));
    seat_await_confirmed(other);
    owner = look(seat, "x");
    assert_false(owner.held);
    assert_int_equal(owner.waiters, 0);
}

static void a_lock_can_be_taken_away(struct world *w)
{
    struct seat *seat = sit(w, 0);
    struct dibs__error error;
    struct dibs__bid bid = bid_for(w, "x", false), next = bid_for(w, "x", false);
    uint64_t fence = get(seat, &bid);
    const struct dibs__store_ops *ops = seat->store->ops;

    assert_status(DIBS_NOT_HELD, ops->force_unlock(seat->store, "x", "dibs:another", seat_deadline(), &error));
    assert_status(DIBS_OK, ops->force_unlock(seat->store, "x", bid.token, seat_deadline(), &error));
    assert_status(DIBS_NOT_HELD, release(seat, "x", bid.token));
    assert_status(DIBS_OK, ops->force_unlock(seat->store, "x", NULL, seat_deadline(), &error)); /* nobody has it */
    assert_true(get(seat, &next) > fence);
    assert_status(DIBS_OK, ops->force_unlock(seat->store, "x", NULL, seat_deadline(), &error));
    assert_false(look(seat, "x").held);
}

static struct dibs__renewal renewal_of(const struct dibs__bid *bid, uint64_t fence, uint32_t lease_ms)
{
    return (struct dibs__renewal){
        .name = bid->name, .token = bid->token, .lease_ms = lease_ms, .fence = fence, .memo = bid->lease};
}

static void a_lease_is_renewed_extended_and_gone(struct world *w)
{
    struct seat *seat = sit(w, 0);
    struct dibs__bid bid = bid_for(w, "x", false);
    struct dibs__renewal renewal = renewal_of(&bid, get(seat, &bid), LEASE_MS / 2);

    renewal.memo = bid.lease;
    seat_renew(seat, &renewal);
    assert_int_equal(renewal.result, DIBS__RENEWED);
    assert_int_equal(renewal.cut_ms, 0);
    assert_false(seat->store->ops->is_unproven(seat->store, &renewal.memo));
    assert_false(seat->store->ops->is_unproven(seat->store, &bid.lease));
    assert_in_range(look(seat, "x").remaining_ms, LEASE_MS / 2 + 1, LEASE_MS); /* a renewal never shortens */
    renewal.extension = true;
    seat_renew(seat, &renewal);
    assert_int_equal(renewal.result, DIBS__RENEWED);
    assert_in_range(look(seat, "x").remaining_ms, 1, LEASE_MS / 2);
    assert_status(DIBS_OK, release(seat, "x", bid.token));
    seat_renew(seat, &renewal);
    assert_int_equal(renewal.result, DIBS__GONE);
}

static void what_is_retracted_is_gone_when_it_is_confirmed(struct world *w)
{
    struct seat *seat = sit(w, 0);
    struct dibs__bid bid = bid_for(w, "x", false), other = bid_for(w, "y", false);

    get(seat, &bid);
    get(seat, &other);
    seat->store->ops->retract(seat->store, "x", bid.token, LEASE_MS);
    seat->store->ops->retract(seat->store, "y", "dibs:another", LEASE_MS);
    seat_await_confirmed(seat);
    assert_false(look(seat, "x").held);
    assert_true(look(seat, "y").held);
    assert_status(DIBS_OK, release(seat, "y", other.token));
}

static void a_release_grants_to_the_first_in_the_queue(struct world *w)
{
    struct seat *seat = sit(w, 0), *other = sit(w, 0);
    struct dibs__bid owner = bid_for(w, "x", false), first = bid_for(w, "x", true), second = bid_for(w, "x", true);
    struct dibs__answer answer;
    uint64_t fence = get(seat, &owner);

    queue_up(other, &first);
    queue_up(seat, &second);
    assert_status(DIBS_BUSY, ask(other, &first, &answer)); /* who asks again keeps its place */
    assert_status(DIBS_OK, release(seat, "x", owner.token));
    expect_grant(w, other, 1, &first);
    assert_true(seat_last_grant(other).fence > fence);
    assert_int_equal(seat_last_grant(seat).count, 0);
    assert_status(DIBS_OK, ask(other, &first, &answer)); /* and finds itself the owner */
    assert_int_equal(answer.fence, seat_last_grant(other).fence);
    other->store->ops->conclude(other->store, &first, true);
    assert_status(DIBS_OK, release(other, "x", first.token));
    expect_grant(w, seat, 1, &second);
    seat->store->ops->conclude(seat->store, &second, true);
    assert_status(DIBS_OK, release(seat, "x", second.token));
}

static bool is_free(void *arg)
{
    return !look(arg, "x").held;
}

static void a_grant_that_nobody_wants_is_given_back(struct world *w)
{
    struct seat *seat = sit(w, 0), *other = sit(w, 0);
    struct dibs__bid owner = bid_for(w, "x", false), waiter = bid_for(w, "x", true);

    get(seat, &owner);
    queue_up(other, &waiter);
    atomic_store(&other->refuses, true);
    assert_status(DIBS_OK, release(seat, "x", owner.token));
    expect_grant(w, other, 1, &waiter);
    assert_true(wait_until(is_free, seat, LIMIT_MS));
    other->store->ops->conclude(other->store, &waiter, true);
}

/* Releases, and asks with `next` in the same round trip. */
static dibs_status requeue(struct seat *seat, const char *token, struct dibs__bid *next, struct dibs__answer *answer)
{
    struct dibs__error error;
    struct dibs__release end = {
        .name = "x", .token = token, .lease_ms = LEASE_MS, .deadline = seat_deadline(), .next = next};

    assert_status(DIBS_OK, dibs__store_release(seat->store, &end, &error));
    assert_false(end.again);
    assert_false(end.next_answer.spent);
    *answer = end.next_answer;
    return end.next_status;
}

/* Where replicas are waited for, the next has to ask by itself. */
static void the_ask_behind_a_release(struct world *w)
{
    struct seat *seat = sit(w, 0);
    struct dibs__bid owner = bid_for(w, "x", false), next = bid_for(w, "x", true);
    struct dibs__answer answer;
    uint64_t fence = get(seat, &owner);

    if (w->kind->min_replicas > 0) {
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

static void the_ask_behind_a_release_comes_behind_who_waits(struct world *w)
{
    struct seat *seat = sit(w, 0), *other = sit(w, 0);
    struct dibs__bid owner = bid_for(w, "x", false), waiter = bid_for(w, "x", true), next = bid_for(w, "x", true);
    struct dibs__answer answer;

    get(seat, &owner);
    queue_up(other, &waiter);
    assert_status(DIBS_BUSY, requeue(seat, owner.token, &next, &answer));
    expect_grant(w, other, 1, &waiter);
    other->store->ops->conclude(other->store, &waiter, true);
    seat->store->ops->conclude(seat->store, &next, false);
    seat_await_confirmed(seat);
    assert_status(DIBS_OK, release(other, "x", waiter.token));
}

static void fences_grow_whoever_asks(struct world *w)
{
    uint64_t last = 0;

    for (int i = 0; i < 6; i++) {
        struct seat *seat = sit(w, 0);
        struct dibs__bid bid = bid_for(w, "x", false);
        uint64_t fence = get(seat, &bid);
        assert_true(fence > last);
        last = fence;
        assert_status(DIBS_OK, release(seat, "x", bid.token));
        stand_up(w);
    }
}

/* What it left in the queue is retracted; the bid goes on under a new token as if it had never asked. */
static void a_bid_that_is_concluded_leaves_nothing(struct world *w)
{
    struct seat *seat = sit(w, 0), *other = sit(w, 0);
    struct dibs__bid owner = bid_for(w, "x", false), waiter = bid_for(w, "x", true);

    get(seat, &owner);
    queue_up(other, &waiter);
    other->store->ops->conclude(other->store, &waiter, false);
    assert_false(waiter.in_store);
    assert_int_equal(waiter.number, 0);
    assert_int_equal(waiter.proof, 0);
    seat_await_confirmed(other);
    assert_int_equal(look(seat, "x").waiters, 0);
    waiter.token = new_token(w);
    queue_up(other, &waiter);
    assert_int_equal(look(seat, "x").waiters, 1);
    assert_status(DIBS_OK, release(seat, "x", owner.token));
    expect_grant(w, other, 1, &waiter);
    other->store->ops->conclude(other->store, &waiter, false); /* granted, and not taken */
    seat_await_confirmed(other);
    assert_false(look(seat, "x").held);
}

/* ---------------------------------------------------------- begun and finished */

/* The connections that asks go over stand from now on: with replicas, asks have connections of their own. */
static void warm_up(struct world *w, struct seat *seat)
{
    struct dibs__bid bid = bid_for(w, "warm", false);

    get(seat, &bid);
    assert_status(DIBS_OK, release(seat, "warm", bid.token));
}

/* One thread has three stores work at the same time. */
static void what_is_begun_at_several_stores_is_finished_at_each(struct world *w)
{
    struct seat *seats[SEATS] = {sit(w, 0), sit(w, 1), sit(w, 1)};
    static const char *const names[SEATS] = {"x", "x", "y"};
    struct dibs__error error;
    struct dibs__answer answer;
    struct dibs__bid bids[SEATS];
    struct dibs__release releases[SEATS];
    struct dibs__query queries[SEATS];

    for (int i = 0; i < SEATS; i++) {
        bids[i] = bid_for(w, names[i], false);
        seats[i]->store->ops->ask_begin(seats[i]->store, &bids[i]);
    }
    for (int i = SEATS - 1; i >= 0; i--) { /* in any order */
        assert_status(DIBS_OK, seats[i]->store->ops->ask_finish(seats[i]->store, &bids[i], &answer, &error));
        assert_true(answer.fence > 0);
        assert_int_equal(bids[i].number, 1);
        seats[i]->store->ops->conclude(seats[i]->store, &bids[i], true);
        queries[i] = (struct dibs__query){.name = names[i], .deadline = seat_deadline()};
        seats[i]->store->ops->query_begin(seats[i]->store, &queries[i]);
    }
    for (int i = 0; i < SEATS; i++) {
        dibs_owner owner = {.held = false};
        assert_status(DIBS_OK, seats[i]->store->ops->query_finish(seats[i]->store, &queries[i], &owner, &error));
        assert_string_equal(owner.token, bids[i].token);
        releases[i] = (struct dibs__release){.name = names[i], .token = bids[i].token, .deadline = seat_deadline()};
        seats[i]->store->ops->release_begin(seats[i]->store, &releases[i]);
    }
    for (int i = 0; i < SEATS; i++) {
        assert_status(DIBS_OK, seats[i]->store->ops->release_finish(seats[i]->store, &releases[i], &error));
        assert_false(look(seats[i], names[i]).held);
    }
}

/* Whoever awaited the reply finishes without waiting, also when the deadline is over. */
static void what_is_awaited_is_finished_past_its_deadline(struct world *w)
{
    struct seat *seat = sit(w, 0);
    const struct dibs__store_ops *ops = seat->store->ops;
    struct dibs__bid bid = bid_for(w, "x", false);
    struct dibs__error error;
    struct dibs__answer answer;

    warm_up(w, seat);
    ops->ask_begin(seat->store, &bid);
    assert_true(ops->await(seat->store, &bid.begun, seat_deadline()));
    bid.deadline = w->kind->min_replicas > 0 ? seat_deadline() : dibs__now(&dibs__system_clock) - 1;
    assert_status(DIBS_OK, ops->ask_finish(seat->store, &bid, &answer, &error));
    ops->conclude(seat->store, &bid, true);
    struct dibs__release end = {.name = "x", .token = bid.token, .lease_ms = LEASE_MS, .deadline = seat_deadline()};
    ops->release_begin(seat->store, &end);
    assert_true(ops->await(seat->store, &end.begun, seat_deadline()));
    assert_true(ops->await(seat->store, &end.begun, 0));
    end.deadline = 0;
    assert_status(DIBS_OK, ops->release_finish(seat->store, &end, &error));
}

/* Threads on the same connections are not held up by what another has begun and does not wait for. */
static void what_is_begun_holds_nobody_up(struct world *w)
{
    struct seat *seat = sit(w, 0);
    const struct dibs__store_ops *ops = seat->store->ops;
    struct dibs__bid begun[6], bid = bid_for(w, "y", false);
    static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
    struct dibs__error error;
    struct dibs__answer answer;

    for (int i = 0; i < 6; i++) {
        begun[i] = bid_for(w, names[i], false);
        ops->ask_begin(seat->store, &begun[i]);
    }
    get(seat, &bid);
    assert_status(DIBS_OK, release(seat, "y", bid.token));
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
    struct dibs__bid lost = bid_for(w, "x", false), got = bid_for(w, "x", false);
    struct dibs__error error;
    struct dibs__answer answer;

    if (w->kind->where == IN_MEMORY)
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
    assert_false(look(hangs, "x").held);
}

/* begin sends nothing and does not wait; finish connects. */
static void finish_does_the_whole_where_no_connection_stands(struct world *w)
{
    struct seat *seat = sit_with(w, 0, (struct dibs__store_config){.connect_later = true});
    const struct dibs__store_ops *ops = seat->store->ops;
    struct dibs__bid bid = bid_for(w, "x", true);
    struct dibs__error error;
    struct dibs__answer answer;

    ops->ask_begin(seat->store, &bid);
    assert_status(DIBS_OK, ops->ask_finish(seat->store, &bid, &answer, &error));
    ops->conclude(seat->store, &bid, true);
    assert_int_equal(bid.number, 1);
    assert_status(DIBS_OK, release(seat, "x", bid.token));
}

static void what_is_begun_outlives_its_connection(struct world *w)
{
    struct seat *seat = sit(w, 0);
    const struct dibs__store_ops *ops = seat->store->ops;
    struct dibs__bid bid = bid_for(w, "x", false);
    struct dibs__error error;
    struct dibs__answer answer;

    if (w->kind->where == IN_MEMORY)
        return;
    warm_up(w, seat);
    ops->ask_begin(seat->store, &bid);
    server_do(w->servers[0], "CLIENT KILL TYPE normal SKIPME yes");
    dibs_status status = ops->ask_finish(seat->store, &bid, &answer, &error);
    if (status == DIBS_UNAVAILABLE && answer.spent) { /* with replicas nothing settles what was sent */
        assert_true(w->kind->min_replicas > 0);
        assert_int_equal(bid.number, 0);
        return;
    }
    assert_status(DIBS_OK, status);
    ops->conclude(seat->store, &bid, true);
    assert_status(DIBS_OK, release(seat, "x", bid.token));
}

/* ------------------------------------------------------------------- the table */

static const struct {
    const char *name;
    test_case *run;
} cases[] = {
#define CASE(name)                                                                                                     \
    {                                                                                                                  \
#name, name                                                                                                    \
    }
    CASE(a_lock_is_granted_to_one),
    CASE(who_asks_again_finds_itself_the_owner),
    CASE(only_its_token_releases_a_lock),
    CASE(a_look_tells_the_owner),
    CASE(a_lock_can_be_taken_away),
    CASE(a_lease_is_renewed_extended_and_gone),
    CASE(what_is_retracted_is_gone_when_it_is_confirmed),
    CASE(a_release_grants_to_the_first_in_the_queue),
    CASE(a_grant_that_nobody_wants_is_given_back),
    CASE(the_ask_behind_a_release),
    CASE(the_ask_behind_a_release_comes_behind_who_waits),
    CASE(fences_grow_whoever_asks),
    CASE(a_bid_that_is_concluded_leaves_nothing),
    CASE(what_is_begun_at_several_stores_is_finished_at_each),
    CASE(what_is_awaited_is_finished_past_its_deadline),
    CASE(what_is_begun_holds_nobody_up),
    CASE(a_store_that_hangs_costs_no_other_its_reply),
    CASE(finish_does_the_whole_where_no_connection_stands),
    CASE(what_is_begun_outlives_its_connection),
};
#define CASES (sizeof cases / sizeof cases[0])

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    const size_t *nth = *state;

    assert_non_null(w);
    w->kind = &kinds[*nth / CASES];
    w->run = cases[*nth % CASES].run;
    *state = w;
    return 0;
}

static void run_case(void **state)
{
    struct world *w = *state;

    w->run(w);
}

static int teardown(void **state)
{
    struct world *w = *state;

    stand_up(w);
    for (int i = 0; i < 2; i++) {
        if (w->servers[i])
            server_assert_no_locks(w->servers[i]);
        server_stop(w->replicas[i]);
        server_stop(w->servers[i]);
    }
    free(w);
    return 0;
}

int main(void)
{
    static struct CMUnitTest tests[KINDS * CASES];
    static char names[KINDS * CASES][128];
    static size_t numbers[KINDS * CASES];

    for (size_t i = 0; i < KINDS * CASES; i++) {
        snprintf(names[i], sizeof names[i], "%s: %s", kinds[i / CASES].name, cases[i % CASES].name);
        numbers[i] = i;
        tests[i] = (struct CMUnitTest){names[i], run_case, setup, teardown, &numbers[i]};
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
