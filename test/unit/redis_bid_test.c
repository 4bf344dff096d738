/* What the store on Redis keeps of a bid when its token is given up. */
#include <stdlib.h>
#include <string.h>

#include "store/redis/redis_store.h"
#include "support/test.h"

/* The owner that was seen still has its time: the bid under its new token must leave the lock to it. */
static void what_is_known_of_the_lock_outlives_the_token(void **state)
{
    struct dibs__bid bid = {.name = "a", .token = "t", .lease_ms = 1000, .number = 3, .proof = 4, .in_store = true};
    struct dibs__redis_bid *memo = dibs__redis_bid_of(&bid);

    (void)state;
    memo->seen_until = 77;
    memo->seen_server = 5;
    memo->route = 2;
    memo->doubt = malloc(sizeof *memo->doubt);
    dibs__redis_lease_of(&bid.lease)->server = 5;
    dibs__redis_bid_set_back(&bid);
    assert_int_equal(memo->seen_until, 77);
    assert_int_equal(memo->seen_server, 5);
    assert_int_equal(memo->route, 0);
    assert_null(memo->doubt);
    assert_int_equal(bid.number, 0);
    assert_int_equal(bid.proof, 0);
    assert_false(bid.in_store);
    assert_int_equal(dibs__redis_lease_of(&bid.lease)->server, 0);
}

/* On the connection itself, or on a later one before which the server ended the others, nothing can be overtaken. */
static void only_an_ask_in_doubt_may_be_overtaken(void **state)
{
    static const struct {
        uint64_t doubt, serial, unended;
        bool overtaken;
    } rows[] = {{0, 9, 8, false}, {3, 3, 0, false}, {3, 5, 2, false}, {3, 5, 3, true}, {3, 5, 4, true}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct dibs__bid bid = {.name = "a"};
        struct dibs__route route = {.serial = rows[i].doubt};
        struct dibs__link_view view = {.serial = rows[i].serial, .unended = rows[i].unended};
        dibs__redis_bid_of(&bid)->doubt = rows[i].doubt ? &route : NULL;
        assert_int_equal(dibs__redis_bid_may_be_overtaken(&bid, &view), rows[i].overtaken);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_known_of_the_lock_outlives_the_token),
        cmocka_unit_test(only_an_ask_in_doubt_may_be_overtaken),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
