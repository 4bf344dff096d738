/* The store in memory, by the contract of all stores. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/store.h"
#include "support/moved_clock.h"
#include "support/test.h"
#include "support/wait.h"

#define TOLD_MAX 8

/* A grant that a user was told of. */
struct told {
    char name[32], token[32];
    uint64_t number, fence;
};

/* What a runtime would be to the store. */
struct user {
    struct moved_clock *clock;
    struct dibs__store *store;
    struct dibs__counters counters;
    struct told told[TOLD_MAX];
    unsigned told_count;
    unsigned refusals; /* so many grants more will find nobody who waits */
};

static void wake(void *context)
{
    (void)context;
}

static bool granted(void *context, const struct dibs__grant *grant)
{
    struct user *user = context;

    assert_true(user->told_count < TOLD_MAX);
    assert_false(grant->confirm);
    struct told *told = &user->told[user->told_count++];
    strcpy(told->name, grant->name);
    strcpy(told->token, grant->token);
    told->number = grant->number;
    told->fence = grant->fence;
    if (user->refusals == 0)
        return true;
    user->refusals--;
    return false;
}

static void ask_again(void *context)
{
    (void)context;
    assert_true(false); /* this store loses no grants */
}

static void forgetful(void *context, uint64_t server)
{
    (void)context;
    (void)server;
    assert_true(false); /* nor any lease */
}

static void reachable(void *context, bool up, const char *detail)
{
    (void)context;
    (void)up;
    (void)detail;
}

static void open_store(struct dibs__store **store, struct moved_clock *clock, const char *url,
                       struct dibs__counters *counters, const struct dibs__listener *listener)
{
    struct dibs__error error;
    const struct dibs__store_config config = {
        .url = url,
        .key_prefix = "lock:",
        .client_name = "test",
        .runtime_id = "0123",
        .clock = &clock->clock,
        .listener = *listener,
        .counters = counters,
    };

    assert_status(DIBS_OK, dibs__store_open(store, &config, &error));
}

static void open_user(struct user *user, struct moved_clock *clock, const char *url)
{
    const struct dibs__listener listener = {user, wake, granted, ask_again, forgetful, reachable};

    memset(user, 0, sizeof *user);
    user->clock = clock;
    open_store(&user->store, clock, url, &user->counters, &listener);
}

static void close_user(struct user *user)
{
    user->store->ops->close(user->store);
}

/* The user was told of that many grants; the last of them is told here. */
static void assert_told(const struct user *user, unsigned count, const char *token, uint64_t number)
{
    assert_int_equal(user->told_count, count);
    assert_string_equal(user->told[count - 1].token, token);
    assert_int_equal(user->told[count - 1].number, number);
}

/* An attempt at the lock "a" that waits. */
static struct dibs__ask waiting(const char *token, uint32_t lease_ms)
{
    return (struct dibs__ask){.name = "a", .token = token, .lease_ms = lease_ms, .wait = true, .deadline = DIBS__NEVER};
}

static dibs_status ask(struct user *user, struct dibs__ask *ask)
{
    struct dibs__error error;
    struct dibs__answer answer;
    dibs_status status = user->store->ops->acquire(user->store, ask, &answer, &error);

    assert_false(answer.spent);
    return status;
}

/* An attempt of one try, with an answer. */
static dibs_status acquire(struct user *user, const char *name, const char *token, uint32_t lease_ms,
                           struct dibs__answer *answer)
{
    struct dibs__error error;
    struct dibs__ask once = {.name = name, .token = token, .lease_ms = lease_ms, .deadline = DIBS__NEVER};
    dibs_status status = user->store->ops->acquire(user->store, &once, answer, &error);

    assert_int_equal(once.number, 1);
    assert_int_equal(once.proof, moved_clock_now(user->clock));
    assert_int_equal(once.in_store, status == DIBS_OK);
    return status;
}

static dibs_status release_with(struct user *user, const char *name, const char *token, struct dibs__ask *next,
                                dibs_status next_status)
{
    struct dibs__error error;
    struct dibs__release release = {.name = name, .token = token, .deadline = DIBS__NEVER, .next = next, .again = true};
    dibs_status status = user->store->ops->release(user->store, &release, &error);

    assert_false(release.again);
    if (next)
        assert_status(next_status, release.next_status);
    return status;
}

static dibs_status release(struct user *user, const char *name, const char *token)
{
    return release_with(user, name, token, NULL, DIBS_OK);
}

static void retract(struct user *user, const char *token)
{
    user->store->ops->retract(user->store, "a", token, 1000);
}

static dibs_owner query(struct user *user, const char *name)
{
    dibs_owner owner;
    struct dibs__error error;

    memset(&owner, 0, sizeof owner);
    assert_status(DIBS_OK, user->store->ops->query(user->store, name, DIBS__NEVER, &owner, &error));
    return owner;
}

/* Who owns "a" ("": nobody), and how many wait for it. */
static void assert_owner(struct user *user, const char *token, uint32_t waiters)
{
    dibs_owner owner = query(user, "a");

    assert_string_equal(owner.token, token);
    assert_int_equal(owner.held, *token != '\0');
    assert_int_equal(owner.waiters, waiters);
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
    user.store->ops->retract(user.store, "a", "toke", 1000); /* a prefix is another token */
    user.store->ops->retract(user.store, "a", "token2", 1000);
    user.store->ops->retract(user.store, "b", "token", 1000);
    assert_true(query(&user, "a").held);
    user.store->ops->retract(user.store, "a", "token", 1000);
    assert_false(query(&user, "a").held);
    user.store->ops->retract(user.store, "a", "token", 1000);
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
        user.store->ops->retract(user.store, "a", "token", 1000);
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

/* A renewal makes no lease shorter, an extension sets it to its length. */
static void only_an_extension_shortens(void **state)
{
    static const struct {
        bool extension;
        uint32_t lease_ms;
        int64_t left_ms;
    } rows[] = {{false, 400, 1000}, {true, 400, 400}, {false, 300, 400}, {true, 900, 900}, {false, 1000, 1000}};
    static struct dibs__batch batch;
    struct user user;
    struct dibs__answer answer;

    open_user(&user, *state, "mem:");
    assert_status(DIBS_OK, acquire(&user, "a", "t", 1000, &answer));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        batch = (struct dibs__batch){.count = 1, .done = on_done};
        batch.items[0] = (struct dibs__renewal){
            .name = "a", .token = "t", .lease_ms = rows[i].lease_ms, .extension = rows[i].extension};
        user.store->ops->renew(user.store, &batch);
        assert_int_equal(batch.items[0].result, DIBS__RENEWED);
        assert_int_equal(query(&user, "a").remaining_ms, rows[i].left_ms);
    }
    close_user(&user);
}

/* ---------------------------------------------------------------- the queue */

static void waiters_are_served_in_the_order_of_arrival(void **state)
{
    struct user one, other;
    struct dibs__ask asks[] = {waiting("1", 1000), waiting("2", 1000), waiting("3", 1000), waiting("4", 2000)};

    open_user(&one, *state, "mem:x");
    open_user(&other, *state, "mem:x");
    assert_status(DIBS_OK, ask(&one, &asks[0]));
    assert_status(DIBS_BUSY, ask(&other, &asks[1]));
    assert_status(DIBS_BUSY, ask(&one, &asks[2]));
    assert_status(DIBS_BUSY, ask(&other, &asks[3]));
    assert_owner(&one, "1", 3);
    assert_status(DIBS_OK, release(&one, "a", "1"));
    assert_told(&other, 1, "2", 1);
    uint64_t fence = other.told[0].fence;
    assert_int_equal(query(&one, "a").fence, fence);
    assert_status(DIBS_OK, release(&other, "a", "2"));
    assert_told(&one, 1, "3", 1);
    assert_true(one.told[0].fence > fence);
    assert_status(DIBS_OK, release(&one, "a", "3"));
    assert_told(&other, 2, "4", 1);
    assert_true(other.told[1].fence > one.told[0].fence);
    assert_int_equal(query(&one, "a").remaining_ms, 2000);
    assert_status(DIBS_OK, release(&other, "a", "4"));
    assert_owner(&one, "", 0);
    close_user(&one);
    close_user(&other);
}

static void who_asks_again_keeps_its_place_and_is_granted_by_the_newest_ask(void **state)
{
    struct user user;
    struct dibs__answer answer;
    struct dibs__ask first = waiting("first", 1000), second = waiting("second", 1000);

    open_user(&user, *state, "mem:");
    assert_status(DIBS_OK, acquire(&user, "a", "owner", 10000, &answer));
    assert_status(DIBS_BUSY, ask(&user, &first));
    assert_status(DIBS_BUSY, ask(&user, &second));
    moved_clock_advance(user.clock, MS(5));
    first.lease_ms = 3000;
    assert_status(DIBS_BUSY, ask(&user, &first));
    assert_int_equal(first.number, 2);
    assert_int_equal(first.proof, moved_clock_now(user.clock));
    first.wait = false; /* its last try: it is in the queue all the same, until it concludes */
    assert_status(DIBS_BUSY, ask(&user, &first));
    assert_owner(&user, "owner", 2);
    assert_status(DIBS_OK, release(&user, "a", "owner"));
    assert_told(&user, 1, "first", 3);
    assert_int_equal(query(&user, "a").remaining_ms, 3000);
    close_user(&user);
}

static void nobody_passes_the_queue_when_a_lease_ends(void **state)
{
    struct user user;
    struct dibs__answer answer;
    struct dibs__ask first = waiting("first", 1000), late = waiting("late", 1000);

    open_user(&user, *state, "mem:");
    assert_status(DIBS_OK, acquire(&user, "a", "owner", 100, &answer));
    assert_status(DIBS_BUSY, ask(&user, &first));
    moved_clock_advance(user.clock, MS(100));
    assert_owner(&user, "", 1); /* to ask who owns it changes nothing */
    assert_status(DIBS_BUSY, acquire(&user, "a", "once", 1000, &answer));
    assert_told(&user, 1, "first", 1);
    assert_owner(&user, "first", 0);
    moved_clock_advance(user.clock, MS(999));
    assert_status(DIBS_BUSY, ask(&user, &late));
    moved_clock_advance(user.clock, MS(1));
    assert_status(DIBS_OK, ask(&user, &late)); /* the head itself is answered, and not told */
    assert_int_equal(user.told_count, 1);
    assert_owner(&user, "late", 0);
    close_user(&user);
}

static void one_try_of_the_head_gets_the_lock(void **state)
{
    struct user user;
    struct dibs__answer answer;
    struct dibs__ask head = waiting("head", 1000), next = waiting("next", 1000);

    open_user(&user, *state, "mem:");
    assert_status(DIBS_OK, acquire(&user, "a", "owner", 100, &answer));
    assert_status(DIBS_BUSY, ask(&user, &head));
    assert_status(DIBS_BUSY, ask(&user, &next));
    moved_clock_advance(user.clock, MS(100));
    head.wait = false;
    head.lease_ms = 500;
    assert_status(DIBS_OK, ask(&user, &head));
    assert_int_equal(query(&user, "a").remaining_ms, 500);
    assert_owner(&user, "head", 1);
    assert_int_equal(user.told_count, 0);
    close_user(&user);
}

static void the_owner_that_asks_is_granted_again(void **state)
{
    static const struct {
        uint32_t lease_ms;
        int64_t remaining_ms;
    } rows[] = {{1000, 1000}, {100, 900}, {2000, 2000}};
    struct user user;
    struct dibs__answer first, answer;
    struct dibs__ask other = waiting("other", 1000);

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        open_user(&user, *state, "mem:");
        assert_status(DIBS_OK, acquire(&user, "a", "owner", 1000, &first));
        assert_status(DIBS_BUSY, ask(&user, &other));
        moved_clock_advance(user.clock, MS(100));
        assert_status(DIBS_OK, acquire(&user, "a", "owner", rows[i].lease_ms, &answer));
        assert_int_equal(answer.fence, first.fence);
        assert_int_equal(query(&user, "a").remaining_ms, rows[i].remaining_ms);
        assert_owner(&user, "owner", 1);
        close_user(&user);
    }
}

static void who_was_granted_by_a_push_and_asks_owns_it(void **state)
{
    struct user user;
    struct dibs__answer answer;
    struct dibs__error error;
    struct dibs__ask waiter = waiting("waiter", 1000);

    open_user(&user, *state, "mem:");
    assert_status(DIBS_OK, acquire(&user, "a", "owner", 1000, &answer));
    assert_status(DIBS_BUSY, ask(&user, &waiter));
    assert_status(DIBS_OK, release(&user, "a", "owner"));
    moved_clock_advance(user.clock, MS(10));
    assert_status(DIBS_OK, user.store->ops->acquire(user.store, &waiter, &answer, &error));
    assert_int_equal(answer.fence, user.told[0].fence);
    assert_int_equal(query(&user, "a").remaining_ms, 1000);
    assert_owner(&user, "waiter", 0);
    close_user(&user);
}

static void the_time_to_ask_again(void **state)
{
    static const struct {
        uint32_t owners_ms, elapsed_ms, askers_ms;
        int64_t again_ms;
    } rows[] = {
        {1000, 0, 30000, 1000}, {1000, 400, 30000, 600}, {30000, 0, 1000, 333}, {1000, 999, 30000, 1},
        {1000, 0, 3000, 1000},  {1000, 0, 2, 1},         {1000, 0, 0, 1},
    };
    struct user user;
    struct dibs__answer answer;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        open_user(&user, *state, "mem:");
        assert_status(DIBS_OK, acquire(&user, "a", "owner", rows[i].owners_ms, &answer));
        moved_clock_advance(user.clock, MS(rows[i].elapsed_ms));
        assert_status(DIBS_BUSY, acquire(&user, "a", "asker", rows[i].askers_ms, &answer));
        assert_int_equal(answer.again_ms, rows[i].again_ms);
        assert_int_equal(answer.fence, 0);
        close_user(&user);
    }
}

/* ------------------------------------------- releases, retractions, the rest */

static void the_ask_behind_a_release_comes_behind_the_queue(void **state)
{
    struct user user;
    struct dibs__ask one = waiting("1", 1000), two = waiting("2", 1000), three = waiting("3", 1000);

    open_user(&user, *state, "mem:");
    assert_status(DIBS_OK, ask(&user, &one));
    assert_status(DIBS_OK, release_with(&user, "a", "1", &two, DIBS_OK)); /* nobody waited */
    assert_int_equal(two.number, 1);
    assert_int_equal(two.proof, moved_clock_now(user.clock));
    assert_true(two.in_store);
    assert_owner(&user, "2", 0);
    assert_status(DIBS_BUSY, ask(&user, &three));
    one = waiting("1 again", 1000);
    assert_status(DIBS_OK, release_with(&user, "a", "2", &one, DIBS_BUSY));
    assert_told(&user, 1, "3", 1);
    assert_true(one.in_store);
    assert_owner(&user, "3", 1);
    two = waiting("2 again", 1000);
    two.wait = false;
    assert_status(DIBS_OK, release_with(&user, "a", "3", &two, DIBS_BUSY)); /* one try */
    assert_told(&user, 2, "1 again", 1);
    assert_false(two.in_store);
    assert_owner(&user, "1 again", 0);
    close_user(&user);
}

static void the_ask_behind_a_release_that_waited_already_keeps_its_place(void **state)
{
    struct user user;
    struct dibs__ask one = waiting("1", 1000), two = waiting("2", 1000), three = waiting("3", 1000);

    open_user(&user, *state, "mem:");
    assert_status(DIBS_OK, ask(&user, &one));
    assert_status(DIBS_BUSY, ask(&user, &two));
    assert_status(DIBS_BUSY, ask(&user, &three));
    assert_status(DIBS_OK, release_with(&user, "a", "1", &two, DIBS_OK));
    assert_int_equal(two.number, 2);
    assert_int_equal(user.told_count, 0); /* it was answered */
    assert_owner(&user, "2", 1);
    close_user(&user);
}

static void a_release_of_what_is_not_held(void **state)
{
    struct user user;
    struct dibs__answer answer;
    struct dibs__ask first = waiting("first", 1000), second = waiting("second", 1000), third = waiting("third", 1000);

    open_user(&user, *state, "mem:");
    assert_status(DIBS_OK, acquire(&user, "a", "owner", 100, &answer));
    assert_status(DIBS_BUSY, ask(&user, &first));
    assert_status(DIBS_BUSY, ask(&user, &second));
    assert_status(DIBS_NOT_HELD, release(&user, "a", "stranger"));
    assert_owner(&user, "owner", 2);
    moved_clock_advance(user.clock, MS(100));
    assert_status(DIBS_NOT_HELD, release(&user, "a", "owner")); /* too late; the queue goes on all the same */
    assert_told(&user, 1, "first", 1);
    assert_status(DIBS_NOT_HELD, release_with(&user, "a", "second", &third, DIBS_BUSY)); /* which waits no longer */
    assert_owner(&user, "first", 1);
    assert_status(DIBS_NOT_HELD, release_with(&user, "b", "b", NULL, DIBS_OK));
    close_user(&user);
}

static void retractions_of_who_waits_and_of_who_was_granted(void **state)
{
    struct user user;
    struct dibs__answer answer;
    struct dibs__ask asks[] = {waiting("1", 1000), waiting("2", 1000), waiting("3", 1000), waiting("4", 1000)};

    open_user(&user, *state, "mem:");
    assert_status(DIBS_OK, acquire(&user, "a", "owner", 1000, &answer));
    for (size_t i = 0; i < 4; i++)
        assert_status(DIBS_BUSY, ask(&user, &asks[i]));
    retract(&user, "1"); /* the head */
    retract(&user, "3"); /* from the middle */
    retract(&user, "5");
    assert_owner(&user, "owner", 2);
    assert_int_equal(user.told_count, 0);
    assert_status(DIBS_OK, release(&user, "a", "owner"));
    assert_told(&user, 1, "2", 1);
    retract(&user, "2"); /* granted */
    assert_told(&user, 2, "4", 1);
    retract(&user, "4"); /* the last */
    assert_owner(&user, "", 0);
    assert_int_equal(user.told_count, 2);
    close_user(&user);
}

static void an_attempt_that_is_concluded_leaves_nothing_but_what_it_holds(void **state)
{
    struct user user;
    struct dibs__ask owner = waiting("owner", 1000), waiter = waiting("waiter", 1000), last = waiting("last", 1000);

    open_user(&user, *state, "mem:");
    assert_status(DIBS_OK, ask(&user, &owner));
    user.store->ops->conclude(user.store, &owner, true);
    assert_false(owner.in_store);
    assert_status(DIBS_BUSY, ask(&user, &waiter));
    assert_status(DIBS_BUSY, ask(&user, &last));
    assert_true(waiter.in_store);
    user.store->ops->conclude(user.store, &waiter, false);
    assert_false(waiter.in_store);
    assert_owner(&user, "owner", 1);
    uint_fast64_t commands = atomic_load(&user.counters.commands);
    user.store->ops->conclude(user.store, &waiter, false); /* the store knows nothing of it */
    assert_int_equal(atomic_load(&user.counters.commands), commands);
    assert_status(DIBS_OK, release(&user, "a", "owner"));
    user.store->ops->conclude(user.store, &last, false); /* granted, and nobody took it */
    assert_owner(&user, "", 0);
    close_user(&user);
}

static void a_grant_that_nobody_waits_for_goes_to_the_next(void **state)
{
    struct user one, other;
    struct dibs__ask asks[] = {waiting("1", 1000), waiting("2", 1000), waiting("3", 1000), waiting("4", 1000)};

    open_user(&one, *state, "mem:x");
    open_user(&other, *state, "mem:x");
    assert_status(DIBS_OK, ask(&one, &asks[0]));
    assert_status(DIBS_BUSY, ask(&one, &asks[1]));
    assert_status(DIBS_BUSY, ask(&other, &asks[2]));
    assert_status(DIBS_BUSY, ask(&other, &asks[3]));
    one.refusals = other.refusals = 1;
    assert_status(DIBS_OK, release(&one, "a", "1"));
    assert_told(&one, 1, "2", 1);
    assert_told(&other, 2, "4", 1);
    assert_owner(&one, "4", 0);
    assert_true(other.told[1].fence > other.told[0].fence);
    other.refusals = 1;
    assert_status(DIBS_BUSY, ask(&other, &asks[2]));
    assert_status(DIBS_OK, release(&other, "a", "4"));
    assert_owner(&one, "", 0); /* nobody was left */
    close_user(&one);
    close_user(&other);
}

static void force_unlock_serves_the_queue(void **state)
{
    struct user user;
    struct dibs__answer answer;
    struct dibs__error error;
    struct dibs__ask first = waiting("first", 100), second = waiting("second", 1000), third = waiting("third", 1000);

    open_user(&user, *state, "mem:");
    assert_status(DIBS_OK, acquire(&user, "a", "owner", 1000, &answer));
    assert_status(DIBS_BUSY, ask(&user, &first));
    assert_status(DIBS_BUSY, ask(&user, &second));
    assert_status(DIBS_BUSY, ask(&user, &third));
    assert_status(DIBS_NOT_HELD, user.store->ops->force_unlock(user.store, "a", "first", DIBS__NEVER, &error));
    assert_owner(&user, "owner", 3);
    assert_status(DIBS_OK, user.store->ops->force_unlock(user.store, "a", NULL, DIBS__NEVER, &error));
    assert_told(&user, 1, "first", 1);
    assert_true(user.told[0].fence > answer.fence);
    moved_clock_advance(user.clock, MS(100));
    assert_status(DIBS_OK, user.store->ops->force_unlock(user.store, "a", "owner", DIBS__NEVER, &error));
    assert_told(&user, 2, "second", 1); /* it was free */
    assert_status(DIBS_OK, user.store->ops->force_unlock(user.store, "a", "second", DIBS__NEVER, &error));
    assert_told(&user, 3, "third", 1);
    close_user(&user);
}

/* --------------------------------------------------------------- who shares */

static void who_closes_waits_no_longer(void **state)
{
    struct user one, other;
    struct dibs__answer answer;
    struct dibs__ask asks[] = {waiting("1", 1000), waiting("2", 1000), waiting("3", 1000), waiting("4", 1000)};
    struct dibs__ask elsewhere = {.name = "b", .token = "5", .lease_ms = 1000, .wait = true};

    open_user(&one, *state, "mem:x");
    open_user(&other, *state, "mem:x");
    assert_status(DIBS_OK, acquire(&one, "a", "owner", 1000, &answer));
    assert_status(DIBS_OK, acquire(&one, "b", "owner", 1000, &answer));
    assert_status(DIBS_BUSY, ask(&other, &asks[0]));
    assert_status(DIBS_BUSY, ask(&other, &asks[1]));
    assert_status(DIBS_BUSY, ask(&one, &asks[2]));
    assert_status(DIBS_BUSY, ask(&other, &asks[3]));
    assert_status(DIBS_BUSY, ask(&other, &elsewhere));
    close_user(&other);
    assert_owner(&one, "owner", 1);
    assert_status(DIBS_OK, release(&one, "a", "owner"));
    assert_told(&one, 1, "3", 1);
    assert_int_equal(query(&one, "b").waiters, 0);
    assert_status(DIBS_OK, release(&one, "b", "owner"));
    assert_false(query(&one, "b").held);
    close_user(&one);
}

/* Who closes while it is told of a grant. */
struct closer {
    struct dibs__store *store;
    struct dibs__counters counters;
    pthread_t thread;
    atomic_bool closed;
    bool closed_early;
};

static void *close_it(void *arg)
{
    struct closer *closer = arg;

    closer->store->ops->close(closer->store);
    atomic_store(&closer->closed, true);
    return NULL;
}

static bool has_closed(void *arg)
{
    return atomic_load(&((struct closer *)arg)->closed);
}

static bool granted_while_closing(void *context, const struct dibs__grant *grant)
{
    struct closer *closer = context;

    (void)grant;
    assert_int_equal(pthread_create(&closer->thread, NULL, close_it, closer), 0);
    closer->closed_early = wait_until(has_closed, closer, 50);
    return false;
}

static void who_is_being_told_is_not_freed(void **state)
{
    static struct closer closer;
    struct user user;
    struct dibs__error error;
    struct dibs__answer answer;
    struct dibs__ask first = waiting("first", 1000), second = waiting("second", 1000);
    const struct dibs__listener listener = {&closer, wake, granted_while_closing, ask_again, forgetful, reachable};

    memset(&closer, 0, sizeof closer);
    open_user(&user, *state, "mem:x");
    open_store(&closer.store, *state, "mem:x", &closer.counters, &listener);
    assert_status(DIBS_OK, acquire(&user, "a", "owner", 1000, &answer));
    assert_status(DIBS_BUSY, closer.store->ops->acquire(closer.store, &first, &answer, &error));
    assert_status(DIBS_BUSY, ask(&user, &second));
    assert_status(DIBS_OK, release(&user, "a", "owner"));
    assert_false(closer.closed_early);
    assert_int_equal(pthread_join(closer.thread, NULL), 0);
    assert_told(&user, 1, "second", 1);
    close_user(&user);
}

/* One thread of a crowd that takes turns, as a user of its own. A turn is an attempt; its number is in the token. */
struct member {
    struct dibs__store *store;
    struct dibs__counters counters;
    pthread_t thread;
    char letter;
    atomic_int turn, granted; /* the turn it wants; the last that it was told of */
    unsigned *turns;          /* of all; guarded by the lock */
    bool failed;
};

#define MEMBERS 6
#define TURNS 200

static bool granted_to_member(void *context, const struct dibs__grant *grant)
{
    struct member *member = context;
    int turn = atoi(grant->token + 1);

    if (turn != atomic_load(&member->turn))
        return false;
    atomic_store(&member->granted, turn);
    return true;
}

static bool is_granted(void *arg)
{
    struct member *member = arg;

    return atomic_load(&member->granted) == atomic_load(&member->turn);
}

/* False: the store did not do as it should. */
static bool take_turn(struct member *member, int turn)
{
    char token[16];
    struct dibs__error error;
    struct dibs__answer answer;
    struct dibs__ask attempt = waiting(token, 1000);
    struct dibs__release release = {.name = "a", .token = token};

    snprintf(token, sizeof token, "%c%d", member->letter, turn);
    atomic_store(&member->turn, turn);
    dibs_status status = member->store->ops->acquire(member->store, &attempt, &answer, &error);
    if (status == DIBS_BUSY && turn % 4 == 0) { /* out of patience, maybe when it is just granted */
        atomic_store(&member->turn, 0);
        member->store->ops->conclude(member->store, &attempt, false);
        return true;
    }
    if (status != DIBS_OK && (status != DIBS_BUSY || !wait_until(is_granted, member, LIMIT_MS)))
        return false;
    ++*member->turns;
    return member->store->ops->release(member->store, &release, &error) == DIBS_OK;
}

static void *take_turns(void *arg)
{
    struct member *member = arg;

    for (int turn = 1; turn <= TURNS && !member->failed; turn++)
        member->failed = !take_turn(member, turn);
    member->store->ops->close(member->store);
    return NULL;
}

static void threads_take_turns(void **state)
{
    static struct member members[MEMBERS];
    unsigned turns = 0;
    struct user user;

    memset(members, 0, sizeof members);
    open_user(&user, *state, "mem:x");
    for (size_t i = 0; i < MEMBERS; i++) {
        const struct dibs__listener listener = {&members[i], wake, granted_to_member, ask_again, forgetful, reachable};
        members[i].letter = (char)('a' + i);
        members[i].turns = &turns;
        open_store(&members[i].store, *state, "mem:x", &members[i].counters, &listener);
    }
    for (size_t i = 0; i < MEMBERS; i++)
        assert_int_equal(pthread_create(&members[i].thread, NULL, take_turns, &members[i]), 0);
    for (size_t i = 0; i < MEMBERS; i++) {
        assert_int_equal(pthread_join(members[i].thread, NULL), 0);
        assert_false(members[i].failed);
    }
    assert_true(turns >= MEMBERS * TURNS * 3 / 4);
    assert_owner(&user, "", 0);
    close_user(&user);
}

static void names_of_spaces(void **state)
{
    static const struct {
        const char *one, *other;
        bool shared;
    } rows[] = {
        {"mem:", "mem:", false},    {"mem:x", "mem:x", true},  {"mem:x", "mem:y", false},
        {"mem:x", "mem:xx", false}, {"mem:X", "mem:x", false}, {"MEM:x", "mem:x", true},
    };
    struct user one, other;
    struct dibs__answer answer;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        open_user(&one, *state, rows[i].one);
        open_user(&other, *state, rows[i].other);
        assert_status(DIBS_OK, acquire(&one, "a", "1", 1000, &answer));
        assert_status(rows[i].shared ? DIBS_BUSY : DIBS_OK, acquire(&other, "a", "2", 1000, &answer));
        struct dibs__ask third = waiting("3", 1000);
        assert_status(DIBS_BUSY, ask(&other, &third));
        assert_status(DIBS_OK, release(&one, "a", "1"));
        assert_int_equal(other.told_count, rows[i].shared);
        assert_string_equal(other.told[0].name, rows[i].shared ? "a" : "");
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
    static struct dibs__batch batch = {.done = on_done};
    struct user user;
    struct dibs__answer answer;
    struct dibs__error error;

    open_user(&user, *state, "mem:");
    moved_clock_advance(user.clock, MS(5));
    assert_status(DIBS_OK, acquire(&user, "a", "t", 1000, &answer));
    assert_int_equal(atomic_load(&user.counters.heard), moved_clock_now(user.clock));
    query(&user, "a");
    release(&user, "a", "t");
    user.store->ops->retract(user.store, "a", "t", 1000);
    assert_int_equal(atomic_load(&user.counters.commands), 4);
    assert_status(DIBS_OK, user.store->ops->force_unlock(user.store, "a", NULL, DIBS__NEVER, &error));
    user.store->ops->renew(user.store, &batch);
    assert_int_equal(atomic_load(&user.counters.commands), 6);
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
        TEST(only_an_extension_shortens),
        TEST(waiters_are_served_in_the_order_of_arrival),
        TEST(who_asks_again_keeps_its_place_and_is_granted_by_the_newest_ask),
        TEST(nobody_passes_the_queue_when_a_lease_ends),
        TEST(one_try_of_the_head_gets_the_lock),
        TEST(the_owner_that_asks_is_granted_again),
        TEST(who_was_granted_by_a_push_and_asks_owns_it),
        TEST(the_time_to_ask_again),
        TEST(the_ask_behind_a_release_comes_behind_the_queue),
        TEST(the_ask_behind_a_release_that_waited_already_keeps_its_place),
        TEST(a_release_of_what_is_not_held),
        TEST(retractions_of_who_waits_and_of_who_was_granted),
        TEST(an_attempt_that_is_concluded_leaves_nothing_but_what_it_holds),
        TEST(a_grant_that_nobody_waits_for_goes_to_the_next),
        TEST(force_unlock_serves_the_queue),
        TEST(names_of_spaces),
        TEST(who_closes_waits_no_longer),
        TEST(who_is_being_told_is_not_freed),
        TEST(threads_take_turns),
        TEST(a_space_ends_with_its_last_user),
        TEST(each_call_is_a_command_and_is_heard),
        TEST(it_has_no_replicas),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
