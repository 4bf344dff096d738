/* The store in memory, by the contract of all stores: grants, releases, renewals, and what it counts. */
#include "support/failing_malloc.h"
#include "unit/memory_setup.h"

TEST(a_name_is_granted_to_one_token_until_its_lease_ends)
{
    struct dibs__answer answer = {0};

    int64_t start = moved_clock_now(user.clock);
    assert_status(DIBS_OK, acquire(&user, "a", "one", 1000, &answer));
    uint64_t fence = answer.fence;
    assert_true(fence > 0 && fence < UINT64_C(1) << 53);
    moved_clock_set(user.clock, start + MS(1000) - 1);
    assert_status(DIBS_BUSY, acquire(&user, "a", "two", 1000, &answer));
    assert_int_equal(answer.again_ms, 1);
    assert_status(DIBS_OK, acquire(&user, "b", "two", 1000, &answer));
    moved_clock_set(user.clock, start + MS(1000));
    assert_status(DIBS_OK, acquire(&user, "a", "two", 1000, &answer));
    assert_true(answer.fence > fence);
    assert_status(DIBS_NOT_HELD, release(&user, "a", "one"));
    assert_status(DIBS_OK, release(&user, "a", "two"));
    assert_status(DIBS_NOT_HELD, release(&user, "a", "two"));
}

TEST(fences_rise_with_every_grant)
{
    struct dibs__answer answer = {0};
    uint64_t last = 0;

    for (int i = 0; i < 10000; i++) { /* many within a microsecond, the unit of a fence */
        assert_status(DIBS_OK, acquire(&user, "a", "t", 1000, &answer));
        assert_true(answer.fence > last);
        last = answer.fence;
        assert_status(DIBS_OK, release(&user, "a", "t"));
    }
}

#if CAN_FAIL
TEST(a_release_without_memory_grants_to_the_first_in_the_queue)
{
    struct dibs__answer answer;
    struct dibs__error error;
    struct dibs__attempt first = waiting("first", 1000);

    assert_status(DIBS_OK, acquire(&user, "a", "one", 1000, &answer));
    assert_status(DIBS_BUSY, store_ask(user.store, &first, DIBS__NEVER, &answer, &error));
    fail_here(1);
    dibs_status status = release(&user, "a", "one");
    fail_no_more();
    assert_status(DIBS_OK, status);
    assert_int_equal(user.told_count, 1);
    assert_string_equal(query(&user, "a").token, "first");
    user.store->ops->conclude(user.store, &first, false);
}

/* The error is that of the release alone. */
TEST(a_release_leaves_the_error_alone_if_the_ask_behind_it_has_no_memory)
{
    struct dibs__answer answer;
    struct dibs__error error = {DIBS_CLOSED, "as it was"};
    struct dibs__attempt next = {.name = "a", .token = "two", .lease_ms = 1000};

    assert_status(DIBS_OK, acquire(&user, "a", "one", 1000, &answer));
    struct dibs__op op = {.kind = DIBS__OP_RELEASE, .name = "a", .release = {.token = "one", .next = {&next, &answer}}};
    fail_here(1);
    dibs_status status = user.store->ops->finish(user.store, &op, &error);
    fail_no_more();
    assert_status(DIBS_OK, status);
    assert_status(DIBS_NO_MEMORY, op.release.next_status);
    assert_string_equal(error.detail, "as it was");
    assert_false(query(&user, "a").held);
}
#endif

TEST(a_retraction_takes_away_only_its_own_token)
{
    assert_status(DIBS_OK, acquire(&user, "a", "token", 1000, NULL));
    user.store->ops->retract(user.store, "a", "toke", 1000, 0); /* a prefix is another token */
    user.store->ops->retract(user.store, "a", "token2", 1000, 0);
    user.store->ops->retract(user.store, "b", "token", 1000, 0);
    assert_true(query(&user, "a").held);
    user.store->ops->retract(user.store, "a", "token", 1000, 0);
    assert_false(query(&user, "a").held);
    user.store->ops->retract(user.store, "a", "token", 1000, 0);
    assert_int_equal(atomic_load(&user.counters.unconfirmed), 0);
}

TEST(query_tells_the_owner)
{
    struct dibs__answer answer;

    assert_false(query(&user, "a").held);
    assert_string_equal(query(&user, "a").token, "");
    assert_status(DIBS_OK, acquire(&user, "a", "token", 1000, &answer));
    moved_clock_advance(user.clock, MS(400));
    dibs_owner owner = query(&user, "a");
    assert_true(owner.held);
    assert_string_equal(owner.token, "token");
    assert_int_equal(owner.remaining_ms, 600);
    assert_int_equal(owner.fence, answer.fence);
    moved_clock_advance(user.clock, MS(600));
    assert_false(query(&user, "a").held);
}

TEST(force_unlock_takes_it_from_a_token_or_from_any)
{
    static const struct {
        const char *token;
        dibs_status status;
        bool held;
    } rows[] = {{"other", DIBS_NOT_HELD, true}, {"token", DIBS_OK, false}, {NULL, DIBS_OK, false}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_status(DIBS_OK, acquire(&user, "a", "token", 1000, NULL));
        assert_status(rows[i].status, store_force(user.store, "a", rows[i].token, DIBS__NEVER));
        assert_int_equal(query(&user, "a").held, rows[i].held);
        user.store->ops->retract(user.store, "a", "token", 1000, 0);
        assert_status(DIBS_OK, store_force(user.store, "a", rows[i].token, DIBS__NEVER));
    }
}

static unsigned done_count;

static void on_done(struct dibs__batch *batch, const struct dibs__error *error)
{
    done_count++;
}

TEST(a_renewal_prolongs_only_the_tokens_own_lease)
{
    static struct dibs__batch batch;

    assert_status(DIBS_OK, acquire(&user, "mine", "t", 1000, NULL));
    assert_status(DIBS_OK, acquire(&user, "over", "t", 500, NULL));
    assert_status(DIBS_OK, acquire(&user, "others", "o", 1000, NULL));
    moved_clock_advance(user.clock, MS(500));
    batch = (struct dibs__batch){.count = 4, .done = on_done};
    static const char *const names[] = {"mine", "over", "others", "none"};
    for (size_t i = 0; i < 4; i++)
        batch.items[i] = (struct dibs__renewal){.name = names[i], .token = "t", .lease_ms = 2000};
    done_count = 0;
    user.store->ops->renew(user.store, &batch);
    assert_int_equal(done_count, 1);
    assert_int_equal(batch.proof, moved_clock_now(user.clock));
    assert_int_equal(batch.items[0].result, DIBS__RENEWED);
    for (size_t i = 1; i < 4; i++)
        assert_int_equal(batch.items[i].result, DIBS__GONE);
    assert_int_equal(query(&user, "mine").remaining_ms, 2000);
    assert_int_equal(query(&user, "others").remaining_ms, 500);
}

/* A renewal makes no lease shorter, an extension sets it to its length. */
TEST(only_an_extension_shortens)
{
    static const struct {
        bool extension;
        uint32_t lease_ms;
        int64_t left_ms;
    } rows[] = {{false, 400, 1000}, {true, 400, 400}, {false, 300, 400}, {true, 900, 900}, {false, 1000, 1000}};
    static struct dibs__batch batch;

    assert_status(DIBS_OK, acquire(&user, "a", "t", 1000, NULL));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        batch = (struct dibs__batch){.count = 1, .done = on_done};
        batch.items[0] = (struct dibs__renewal){
            .name = "a", .token = "t", .lease_ms = rows[i].lease_ms, .extension = rows[i].extension};
        user.store->ops->renew(user.store, &batch);
        assert_int_equal(batch.items[0].result, DIBS__RENEWED);
        assert_int_equal(query(&user, "a").remaining_ms, rows[i].left_ms);
    }
}

TEST(calls_to_a_store_in_memory_count_as_commands)
{
    static struct dibs__batch batch = {.done = on_done};

    moved_clock_advance(user.clock, MS(5));
    assert_status(DIBS_OK, acquire(&user, "a", "t", 1000, NULL));
    query(&user, "a");
    release(&user, "a", "t");
    user.store->ops->retract(user.store, "a", "t", 1000, 0);
    assert_int_equal(atomic_load(&user.counters.commands), 4);
    assert_status(DIBS_OK, store_force(user.store, "a", NULL, DIBS__NEVER));
    user.store->ops->renew(user.store, &batch);
    assert_int_equal(atomic_load(&user.counters.commands), 6);
}

TEST_ON(a_store_in_memory_has_no_replicas, struct moved_clock *clock)
{
    struct dibs__store *store;
    struct dibs__error error = {DIBS_OK, ""};
    struct dibs__counters counters;

    const struct dibs__store_config config = {
        .url = "mem:", .min_replicas = 1, .clock = &clock->clock, .counters = &counters};

    assert_status(DIBS_INVALID, dibs__store_open(&store, &config, &error));
    assert_null(store);
    assert_non_null(strstr(error.detail, "min_replicas"));
}

TESTS(setup, teardown)
