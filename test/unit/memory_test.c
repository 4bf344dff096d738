/* The store in memory, by the contract of all stores. */
#include <string.h>

#include "store/store.h"
#include "support/moved_clock.h"
#include "support/test.h"

/* What a runtime would be to the store. */
struct user {
    struct moved_clock *clock;
    struct dibs__store *store;
    struct dibs__counters counters;
    atomic_uint told;
    char name[32]; /* that may be free */
};

static void wake(void *context)
{
    (void)context;
}

static void maybe_free(void *context, const char *name)
{
    struct user *user = context;

    atomic_fetch_add(&user->told, 1);
    strcpy(user->name, name);
}

static void reachable(void *context, bool up, const char *detail)
{
    (void)context;
    (void)up;
    (void)detail;
}

static void open_user(struct user *user, struct moved_clock *clock, const char *url)
{
    struct dibs__error error;

    memset(user, 0, sizeof *user);
    user->clock = clock;
    const struct dibs__store_config config = {
        .url = url,
        .key_prefix = "lock:",
        .client_name = "test",
        .clock = &clock->clock,
        .listener = {user, wake, maybe_free, reachable},
        .counters = &user->counters,
    };
    assert_status(DIBS_OK, dibs__store_open(&user->store, &config, &error));
}

static void close_user(struct user *user)
{
    user->store->ops->close(user->store);
}

static dibs_status acquire(struct user *user, const char *name, const char *token, uint32_t lease_ms,
                           struct dibs__answer *answer)
{
    struct dibs__error error;
    const struct dibs__ask ask = {.name = name, .token = token, .lease_ms = lease_ms, .deadline = DIBS__NEVER};

    return user->store->ops->acquire(user->store, &ask, answer, &error);
}

static dibs_status release(struct user *user, const char *name, const char *token)
{
    struct dibs__error error;
    bool again = true;
    dibs_status status = user->store->ops->release(user->store, name, token, DIBS__NEVER, &again, &error);

    assert_false(again);
    return status;
}

static dibs_owner query(struct user *user, const char *name)
{
    dibs_owner owner;
    struct dibs__error error;

    memset(&owner, 0, sizeof owner);
    assert_status(DIBS_OK, user->store->ops->query(user->store, name, DIBS__NEVER, &owner, &error));
    return owner;
}

static int setup(void **state)
{
    static struct moved_clock clock;

    moved_clock_init(&clock);
    *state = &clock;
    return 0;
}

static int teardown(void **state)
{
    moved_clock_destroy(*state);
    return 0;
}

static void a_name_is_granted_to_one_token_until_its_lease_ends(void **state)
{
    struct user user;
    struct dibs__answer answer = {0};

    open_user(&user, *state, "mem:");
    int64_t start = moved_clock_now(user.clock);
    assert_status(DIBS_OK, acquire(&user, "a", "one", 1000, &answer));
    assert_int_equal(answer.proof, start);
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
    close_user(&user);
}

static void fences_rise_with_every_grant(void **state)
{
    struct user user;
    struct dibs__answer answer = {0};
    uint64_t last = 0;

    open_user(&user, *state, "mem:");
    for (int i = 0; i < 10000; i++) { /* many within a microsecond, which is what they count */
        assert_status(DIBS_OK, acquire(&user, "a", "t", 1000, &answer));
        assert_true(answer.fence > last);
        last = answer.fence;
        assert_status(DIBS_OK, release(&user, "a", "t"));
    }
    close_user(&user);
}

static void a_retraction_takes_away_only_its_own_token(void **state)
{
    struct user user;
    struct dibs__answer answer;

    open_user(&user, *state, "mem:");
    assert_status(DIBS_OK, acquire(&user, "a", "token", 1000, &answer));
    user.store->ops->retract(user.store, "a", "toke"); /* a prefix is another token */
    user.store->ops->retract(user.store, "a", "token2");
    user.store->ops->retract(user.store, "b", "token");
    assert_true(query(&user, "a").held);
    user.store->ops->retract(user.store, "a", "token");
    assert_false(query(&user, "a").held);
    user.store->ops->retract(user.store, "a", "token");
    assert_int_equal(user.store->ops->unconfirmed(user.store), 0);
    close_user(&user);
}

static void query_tells_the_owner(void **state)
{
    struct user user;
    struct dibs__answer answer;

    open_user(&user, *state, "mem:");
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
    close_user(&user);
}

static void force_unlock_takes_it_from_a_token_or_from_any(void **state)
{
    static const struct {
        const char *token;
        dibs_status status;
        bool held;
    } rows[] = {{"other", DIBS_NOT_HELD, true}, {"token", DIBS_OK, false}, {NULL, DIBS_OK, false}};
    struct user user;
    struct dibs__answer answer;
    struct dibs__error error;

    open_user(&user, *state, "mem:");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_status(DIBS_OK, acquire(&user, "a", "token", 1000, &answer));
        assert_status(rows[i].status,
                      user.store->ops->force_unlock(user.store, "a", rows[i].token, DIBS__NEVER, &error));
        assert_int_equal(query(&user, "a").held, rows[i].held);
        user.store->ops->retract(user.store, "a", "token");
        assert_status(DIBS_OK, user.store->ops->force_unlock(user.store, "a", rows[i].token, DIBS__NEVER, &error));
    }
    close_user(&user);
}

static unsigned done_count;

static void on_done(struct dibs__batch *batch, const struct dibs__error *error)
{
    (void)batch;
    (void)error;
    done_count++;
}

static void a_renewal_prolongs_what_still_is_the_tokens(void **state)
{
    static struct dibs__batch batch;
    struct user user;
    struct dibs__answer answer;

    open_user(&user, *state, "mem:");
    assert_status(DIBS_OK, acquire(&user, "mine", "t", 1000, &answer));
    assert_status(DIBS_OK, acquire(&user, "over", "t", 500, &answer));
    assert_status(DIBS_OK, acquire(&user, "others", "o", 1000, &answer));
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
    close_user(&user);
}

/* --------------------------------------------------------------- who shares */

static void names_of_spaces(void **state)
{
    static const struct {
        const char *one, *other;
        bool shared;
    } rows[] = {
        {"mem:", "mem:", false},     {"mem:x", "mem:x", true}, {"mem:x", "mem:y", false},
        {"mem:x", "mem:xx", false}, {"mem:X", "mem:x", false}, {"MEM:x", "mem:x", true},
    };
    struct user one, other;
    struct dibs__answer answer;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        open_user(&one, *state, rows[i].one);
        open_user(&other, *state, rows[i].other);
        assert_status(DIBS_OK, acquire(&one, "a", "1", 1000, &answer));
        assert_status(rows[i].shared ? DIBS_BUSY : DIBS_OK, acquire(&other, "a", "2", 1000, &answer));
        assert_status(DIBS_OK, release(&one, "a", "1"));
        assert_int_equal(atomic_load(&other.told), rows[i].shared);
        assert_string_equal(other.name, rows[i].shared ? "a" : "");
        close_user(&one);
        close_user(&other);
    }
}

static void a_space_ends_with_its_last_user(void **state)
{
    struct user one, other;
    struct dibs__answer answer;

    open_user(&one, *state, "mem:x");
    open_user(&other, *state, "mem:x");
    assert_status(DIBS_OK, acquire(&one, "a", "1", 1000, &answer));
    close_user(&one);
    assert_true(query(&other, "a").held);
    close_user(&other);
    open_user(&one, *state, "mem:x");
    assert_false(query(&one, "a").held);
    close_user(&one);
}

static void each_call_is_a_command_and_is_heard(void **state)
{
    struct user user;
    struct dibs__answer answer;

    open_user(&user, *state, "mem:");
    moved_clock_advance(user.clock, MS(5));
    assert_status(DIBS_OK, acquire(&user, "a", "t", 1000, &answer));
    assert_int_equal(atomic_load(&user.counters.heard), moved_clock_now(user.clock));
    query(&user, "a");
    release(&user, "a", "t");
    user.store->ops->retract(user.store, "a", "t");
    assert_int_equal(atomic_load(&user.counters.commands), 4);
    close_user(&user);
}

static void it_has_no_replicas(void **state)
{
    struct moved_clock *clock = *state;
    struct dibs__store *store;
    struct dibs__error error = {DIBS_OK, ""};
    struct dibs__counters counters;
    const struct dibs__store_config config = {
        .url = "mem:", .min_replicas = 1, .clock = &clock->clock, .counters = &counters};

    assert_status(DIBS_INVALID, dibs__store_open(&store, &config, &error));
    assert_null(store);
    assert_non_null(strstr(error.detail, "min_replicas"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_name_is_granted_to_one_token_until_its_lease_ends),
        TEST(fences_rise_with_every_grant),
        TEST(a_retraction_takes_away_only_its_own_token),
        TEST(query_tells_the_owner),
        TEST(force_unlock_takes_it_from_a_token_or_from_any),
        TEST(a_renewal_prolongs_what_still_is_the_tokens),
        TEST(names_of_spaces),
        TEST(a_space_ends_with_its_last_user),
        TEST(each_call_is_a_command_and_is_heard),
        TEST(it_has_no_replicas),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
