/* What the store on Redis keeps of an attempt when its token is given up. */
#include "store/redis/codec.h"
#include "store/redis/redis_store.h"
#include "support/fake_redis.h"
#include "support/seat.h"
#include "support/test.h"

/*
 * The owner that was seen still has time to restore its lease: the attempt under its new token must leave the lock to
 * it.
 */
TEST(knowledge_of_the_lock_outlives_the_token)
{
    struct dibs__attempt attempt = {
        .name = "a", .token = "t", .lease_ms = 1000, .number = 3, .proof = 4, .in_store = true};
    struct dibs__redis_attempt *store_state = dibs__redis_attempt_of(&attempt);

    store_state->seen_until = 77;
    store_state->seen_server = 5;
    store_state->channel = 2;
    store_state->doubt = malloc(sizeof *store_state->doubt);
    dibs__redis_lease_of(&attempt.lease)->server = 5;
    dibs__redis_attempt_set_back(&attempt);
    assert_int_equal(store_state->seen_until, 77);
    assert_int_equal(store_state->seen_server, 5);
    assert_int_equal(store_state->channel, 0);
    assert_null(store_state->doubt);
    assert_int_equal(attempt.number, 0);
    assert_int_equal(attempt.proof, 0);
    assert_false(attempt.in_store);
    assert_int_equal(dibs__redis_lease_of(&attempt.lease)->server, 0);
}

/* On the connection itself, or on a later one before which the server ended the others, nothing can be overtaken. */
TEST(only_an_ask_in_doubt_may_be_overtaken)
{
    static const struct {
        uint64_t doubt, serial, unended;
        bool overtaken;
    } rows[] = {{0, 9, 8, false}, {3, 3, 0, false}, {3, 5, 2, false}, {3, 5, 3, true}, {3, 5, 4, true}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct dibs__attempt attempt = {.name = "a"};
        struct dibs__route route = {.serial = rows[i].doubt};
        struct dibs__link_view view = {.serial = rows[i].serial, .unended = rows[i].unended};
        dibs__redis_attempt_of(&attempt)->doubt = rows[i].doubt ? &route : NULL;
        assert_int_equal(dibs__redis_attempt_may_be_overtaken(&attempt, &view), rows[i].overtaken);
    }
}

/* At a member the doubt ends with its attempt: until then the token may hold the lock at the other members. */
TEST(at_a_member_a_doubt_ends_with_the_attempt)
{
    fake_redis *fake = fake_redis_start(false);
    struct dibs__attempt attempt = {.name = "a", .token = "t", .lease_ms = 1000};
    struct dibs__sending sending = {.attempt = &attempt, .not_after = 9};
    struct dibs__answer answer = {.fence = 0};
    struct seat seat;

    seat_open(&seat, &(struct dibs__store_config){.url = fake_redis_url(fake), .is_member = true});
    struct dibs__redis_store *store = dibs__redis_of(seat.store);
    struct dibs__lock_call *call = dibs__lock_call_new(sizeof *call, store, &(struct dibs__op){.name = "a"});
    assert_non_null(call);
    call->channel = 0;
    call->view.serial = 3;
    call->view.id = (struct dibs__link_id){.client = 5, .run_id = "r", .may_kill = false};
    dibs__sending_doubt(store, &sending, call, &answer);
    assert_int_equal(answer.retired, DIBS__STUCK);
    assert_int_equal(dibs__redis_unconfirmed(&store->store), 0);
    dibs__redis_conclude(seat.store, &attempt, false);
    assert_int_equal(dibs__redis_unconfirmed(&store->store), 2);
    free(call);
    seat_close(&seat);
    fake_redis_stop(fake);
}

/* Asks go on under the token only where the next connection of the same channel can prove the end of this one. */
TEST(an_unresolvable_doubt_retires_the_token)
{
    static const struct {
        size_t channel;
        bool may_kill, retired;
    } rows[] = {{0, true, false}, {0, false, true}, {DIBS__COMMON, true, true}, {DIBS__COMMON, false, true}};
    fake_redis *fake = fake_redis_start(false);
    struct seat seat;

    seat_open(&seat, &(struct dibs__store_config){.url = fake_redis_url(fake), .min_replicas = 1});
    struct dibs__redis_store *store = dibs__redis_of(seat.store);
    struct dibs__lock_call *call = dibs__lock_call_new(sizeof *call, store, &(struct dibs__op){.name = "a"});
    assert_non_null(call);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct dibs__attempt attempt = {.name = "a", .token = "t", .lease_ms = 1000};
        struct dibs__sending sending = {.attempt = &attempt, .not_after = 9};
        struct dibs__answer answer = {.fence = 0};
        call->channel = rows[i].channel;
        call->view.serial = 3;
        call->view.id = (struct dibs__link_id){.client = 5, .run_id = "r", .may_kill = rows[i].may_kill};
        dibs__sending_doubt(store, &sending, call, &answer);
        assert_int_equal(answer.retired, rows[i].retired);
        struct dibs__route *doubt = dibs__redis_attempt_of(&attempt)->doubt;
        assert_int_equal(doubt == NULL, rows[i].retired);
        assert_true(!doubt || (doubt->channel == store->channels[0] && doubt->serial == 3 && doubt->not_after == 9));
        free(doubt);
    }
    free(call);
    seat_close(&seat);
    fake_redis_stop(fake);
}

/* What a server answers to an ask that finds the lock taken and does not queue. */
TEST(an_answer_settles_the_asks_before_it)
{
    static const struct {
        bool in_store, doubt, known;
    } rows[] = {{false, false, false}, {true, false, true}, {false, true, true}, {true, true, true}};
    redisReply numbers[] = {{.type = REDIS_REPLY_INTEGER, .integer = DIBS__ASK_TAKEN},
                            {.type = REDIS_REPLY_INTEGER, .integer = 500},
                            {.type = REDIS_REPLY_INTEGER, .integer = 0}};
    redisReply *elements[] = {&numbers[0], &numbers[1], &numbers[2]};
    const redisReply taken = {.type = REDIS_REPLY_ARRAY, .elements = 3, .element = elements};
    struct dibs__redis_store store = {.config.clock = &dibs__system_clock};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct dibs__attempt attempt = {.name = "a", .token = "t", .lease_ms = 1000, .in_store = rows[i].in_store};
        struct dibs__sending sending = {.attempt = &attempt};
        struct dibs__lock_call call = {.channel = 0};
        struct dibs__answer answer = {.fence = 0};
        struct dibs__error error;
        bool decided = false;
        dibs__redis_attempt_of(&attempt)->doubt = rows[i].doubt ? calloc(1, sizeof(struct dibs__route)) : NULL;
        assert_status(DIBS_BUSY, dibs__sending_read(&store, &sending, &call, &taken, &decided, &answer, &error));
        assert_true(decided);
        assert_int_equal(attempt.in_store, rows[i].known);
        assert_null(dibs__redis_attempt_of(&attempt)->doubt);
    }
}

/* However short its lease is, a third of it passes between two asks at most: after half of it, its place is lost. */
TEST(a_waiter_that_is_told_of_changes_keeps_its_place)
{
    static const struct {
        uint32_t lease_ms;
        long long owners_ms;
        int64_t told_ms;
    } rows[] = {{60, 50000, 20}, {180, -1, 60}, {180, 30, 31}, {6000, -1, 2000}, {60000, -1, 10000}};
    redisReply numbers[] = {{.type = REDIS_REPLY_INTEGER, .integer = DIBS__ASK_TAKEN},
                            {.type = REDIS_REPLY_INTEGER},
                            {.type = REDIS_REPLY_INTEGER, .integer = 0}};
    redisReply *elements[] = {&numbers[0], &numbers[1], &numbers[2]};
    const redisReply taken = {.type = REDIS_REPLY_ARRAY, .elements = 3, .element = elements};
    struct dibs__redis_store store = {.config.clock = &dibs__system_clock};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct dibs__attempt attempt = {.name = "a", .token = "t", .lease_ms = rows[i].lease_ms};
        struct dibs__sending sending = {.attempt = &attempt};
        struct dibs__lock_call call = {.channel = 0};
        struct dibs__answer answer = {.fence = 0};
        struct dibs__error error;
        bool decided;
        numbers[1].integer = rows[i].owners_ms;
        assert_status(DIBS_BUSY, dibs__sending_read(&store, &sending, &call, &taken, &decided, &answer, &error));
        assert_int_equal(answer.told_ms, rows[i].told_ms);
    }
}

TESTS(NULL, NULL)
