/* Leases by their tokens. */
#include <stdlib.h>

#include "core/tokens.h"
#include "support/failing_malloc.h"
#include "support/test.h"

#define COUNT 3000

static struct dibs__lease *leases[COUNT];

enum kind { FIRST, NEW }; /* of a token */

static uint64_t sequence_of(enum kind kind, size_t number)
{
    return (uint64_t)kind << 40 | number;
}

static void set_token(struct dibs__lease *lease, enum kind kind, size_t number)
{
    lease->token.sequence = sequence_of(kind, number);
}

static int setup(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT; i++) {
        leases[i] = dibs__lease_new(1, "a", 1, DIBS__TOKEN_MAX);
        assert_non_null(leases[i]);
        set_token(leases[i], FIRST, i);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT; i++)
        dibs__lease_unref(leases[i]);
    return 0;
}

static struct dibs__lease *find(const struct dibs__tokens *tokens, enum kind kind, size_t number)
{
    return dibs__tokens_find(tokens, sequence_of(kind, number));
}

/* Otherwise a search takes longer the more tokens there are. */
static void expect_a_bucket_for_each(const struct dibs__tokens *tokens)
{
    assert_true(tokens->count <= (tokens->many ? tokens->many_count : DIBS__TOKENS_FEW));
}

static void put_all(struct dibs__tokens *tokens)
{
    for (size_t i = 0; i < COUNT; i++) {
        assert_null(find(tokens, FIRST, i));
        dibs__tokens_put(tokens, leases[i]);
        expect_a_bucket_for_each(tokens);
    }
}

/* In another order than they came. */
static void take_all_out(struct dibs__tokens *tokens)
{
    for (size_t i = 0; i < COUNT; i++) {
        size_t number = i * 7919 % COUNT;
        assert_ptr_equal(find(tokens, FIRST, number), leases[number]);
        dibs__tokens_take_out(tokens, leases[number]);
        assert_null(find(tokens, FIRST, number));
        expect_a_bucket_for_each(tokens);
    }
}

static void each_token_is_found_until_removed(void **state)
{
    struct dibs__tokens tokens = {.count = 0};
    long before = atomic_load(&living);

    (void)state;
    for (int round = 0; round < 2; round++) {
        put_all(&tokens);
        assert_int_equal(tokens.count, COUNT);
        for (size_t i = 0; i < COUNT; i++)
            assert_ptr_equal(find(&tokens, FIRST, i), leases[i]);
        take_all_out(&tokens);
        assert_int_equal(tokens.count, 0);
        assert_int_equal(atomic_load(&living), before);
    }
}

/* A lease that is taken out, given another token and put in again. */
static void a_token_may_change(void **state)
{
    struct dibs__tokens tokens = {.count = 0};

    (void)state;
    put_all(&tokens);
    for (size_t i = 0; i < COUNT; i += 3) {
        dibs__tokens_take_out(&tokens, leases[i]);
        set_token(leases[i], NEW, i);
        dibs__tokens_put(&tokens, leases[i]);
    }
    for (size_t i = 0; i < COUNT; i++) {
        assert_ptr_equal(find(&tokens, FIRST, i), i % 3 ? leases[i] : NULL);
        assert_ptr_equal(find(&tokens, NEW, i), i % 3 ? NULL : leases[i]);
    }
    for (size_t i = 0; i < COUNT; i++)
        dibs__tokens_take_out(&tokens, leases[i]);
    assert_int_equal(tokens.count, 0);
}

/* Taking out and putting in need no memory: the table keeps its size. */
static void the_table_of_tokens_needs_no_memory(void **state)
{
    struct dibs__tokens tokens = {.count = 0};

    (void)state;
    fails_here = true;
    for (size_t fail_from = 0; fail_from < COUNT; fail_from += COUNT / 2) {
        for (size_t i = 0; i < COUNT; i++) {
            atomic_store(&fail_at, i >= fail_from ? 1 : 0);
            dibs__tokens_put(&tokens, leases[i]);
        }
        atomic_store(&fail_at, 0);
        for (size_t i = 0; i < COUNT; i++)
            assert_ptr_equal(find(&tokens, FIRST, i), leases[i]);
        for (size_t i = 0; i < COUNT; i++) {
            atomic_store(&fail_at, 1);
            dibs__tokens_take_out(&tokens, leases[i]);
            assert_null(find(&tokens, FIRST, i));
        }
        atomic_store(&fail_at, 0);
        assert_int_equal(tokens.count, 0);
        assert_null(tokens.many);
    }
    fails_here = false;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_token_is_found_until_removed),
        TEST(a_token_may_change),
        TEST(the_table_of_tokens_needs_no_memory),
    };

    return cmocka_run_group_tests_name("tokens", tests, NULL, NULL);
}
