/* The store in memory, with a user that records what the store tells it: shared by the memory tests. */
#ifndef DIBS_TEST_MEMORY_SETUP_H
#define DIBS_TEST_MEMORY_SETUP_H

#include "store/store.h"
#include "support/moved_clock.h"
#include "support/store_call.h"
#include "support/test.h"

#define TOLD_MAX 8

/* A grant that a user was told of. */
struct told {
    char name[32], token[32];
    uint64_t number, fence;
};

/* The user of a store, in place of a runtime. */
struct user {
    struct moved_clock *clock;
    struct dibs__store *store;
    struct dibs__counters counters;
    struct told told[TOLD_MAX];
    unsigned told_count;
    unsigned refusals; /* for so many of the next grants there is no waiter */
};

static inline void wake(void *context)
{
}

static inline bool granted(void *context, const struct dibs__grant *grant)
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

static inline void ask_again(void *context)
{
    assert_true(false); /* this store loses no grants */
}

static inline void server_changed(void *context)
{
    assert_true(false); /* nor does it lose any lease */
}

static inline void reachable(void *context, bool up, const char *detail)
{
}

static inline struct dibs__listener listener_for(void *user,
                                                 bool (*user_granted)(void *user, const struct dibs__grant *grant))
{
    return (struct dibs__listener){.wake = wake,
                                   .ask_again = ask_again,
                                   .source = user,
                                   .granted = user_granted,
                                   .server_changed = server_changed,
                                   .reachable = reachable};
}

static inline void open_store(struct dibs__store **store, struct moved_clock *clock, const char *url,
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

static inline void open_user(struct user *user, struct moved_clock *clock, const char *url)
{
    const struct dibs__listener listener = listener_for(user, granted);

    memset(user, 0, sizeof *user);
    user->clock = clock;
    open_store(&user->store, clock, url, &user->counters, &listener);
}

static inline void close_user(struct user *user)
{
    user->store->ops->close(user->store);
}

/* Expects that the user was told of that many grants, the last of them with this token and number. */
static inline void assert_told(const struct user *user, unsigned count, const char *token, uint64_t number)
{
    assert_int_equal(user->told_count, count);
    assert_string_equal(user->told[count - 1].token, token);
    assert_int_equal(user->told[count - 1].number, number);
}

/* An attempt for "a" that waits. */
static inline struct dibs__attempt waiting(const char *token, uint32_t lease_ms)
{
    return (struct dibs__attempt){.name = "a", .token = token, .lease_ms = lease_ms, .wait = true};
}

static inline dibs_status ask(struct user *user, struct dibs__attempt *ask)
{
    struct dibs__error error;
    struct dibs__answer answer;
    dibs_status status = store_ask(user->store, ask, DIBS__NEVER, &answer, &error);

    assert_false(answer.retired);
    return status;
}

/* An attempt with a single try, and its answer, unless that is NULL. */
static inline dibs_status acquire(struct user *user, const char *name, const char *token, uint32_t lease_ms,
                                  struct dibs__answer *answer)
{
    struct dibs__error error;
    struct dibs__answer unwanted;
    struct dibs__attempt once = {.name = name, .token = token, .lease_ms = lease_ms};
    dibs_status status = store_ask(user->store, &once, DIBS__NEVER, answer ? answer : &unwanted, &error);

    assert_int_equal(once.number, 1);
    assert_int_equal(once.proof, moved_clock_now(user->clock));
    assert_int_equal(once.in_store, status == DIBS_OK);
    return status;
}

static inline dibs_status release_with(struct user *user, const char *name, const char *token,
                                       struct dibs__attempt *next, dibs_status next_status)
{
    struct dibs__op op = store_release_op(name, token, 0, DIBS__NEVER);
    struct dibs__answer answer;

    op.release.next = (struct dibs__ask){next, &answer};
    op.release.again = true;
    dibs_status status = store_do(user->store, &op);
    assert_false(op.release.again);
    if (next)
        assert_status(next_status, op.release.next_status);
    return status;
}

static inline dibs_status release(struct user *user, const char *name, const char *token)
{
    return release_with(user, name, token, NULL, DIBS_OK);
}

static inline void retract(struct user *user, const char *token)
{
    user->store->ops->retract(user->store, "a", token, 1000, 0);
}

static inline dibs_owner query(struct user *user, const char *name)
{
    dibs_owner owner;
    struct dibs__op look = {.kind = DIBS__OP_QUERY, .name = name, .query = {.owner = &owner}};

    memset(&owner, 0, sizeof owner);
    assert_status(DIBS_OK, store_do(user->store, &look));
    return owner;
}

/* Expects that this token owns "a" ("": no token), and that so many wait for it. */
static inline void assert_owner(struct user *user, const char *token, uint32_t waiters)
{
    dibs_owner owner = query(user, "a");

    assert_string_equal(owner.token, token);
    assert_int_equal(owner.held, *token != '\0');
    assert_int_equal(owner.waiters, waiters);
}

static struct user user; /* of each test, of a store that nobody else uses */

static inline int setup(void **state)
{
    static struct moved_clock clock;

    moved_clock_init(&clock);
    *state = &clock;
    open_user(&user, &clock, "mem:");
    return 0;
}

static inline int teardown(void **state)
{
    close_user(&user);
    moved_clock_destroy(*state);
    return 0;
}

static inline void set_up_again(void **state)
{
    teardown(state);
    setup(state);
}

#endif
