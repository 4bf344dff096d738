/* Several users of one memory store: which of them share locks, and one that closes while others are served. */
#include "unit/memory_setup.h"

TEST(a_store_that_closes_leaves_the_queues)
{
    struct user one, other;
    struct dibs__attempt asks[] = {waiting("1", 1000), waiting("2", 1000), waiting("3", 1000), waiting("4", 1000)};
    struct dibs__attempt elsewhere = {.name = "b", .token = "5", .lease_ms = 1000, .wait = true};

    open_user(&one, *state, "mem:x");
    open_user(&other, *state, "mem:x");
    assert_status(DIBS_OK, acquire(&one, "a", "owner", 1000, NULL));
    assert_status(DIBS_OK, acquire(&one, "b", "owner", 1000, NULL));
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

/* A user that closes while it is told of a grant. */
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

static bool granted_while_closing(void *context, const struct dibs__grant *grant)
{
    struct closer *closer = context;

    assert_int_equal(pthread_create(&closer->thread, NULL, close_it, closer), 0);
    closer->closed_early = within(50, atomic_load(&closer->closed));
    return false;
}

TEST(a_store_is_not_freed_while_it_is_being_told)
{
    static struct closer closer;
    struct user one;
    struct dibs__error error;
    struct dibs__answer answer;
    struct dibs__attempt first = waiting("first", 1000), second = waiting("second", 1000);
    const struct dibs__listener listener = listener_for(&closer, granted_while_closing);

    memset(&closer, 0, sizeof closer);
    open_user(&one, *state, "mem:x");
    open_store(&closer.store, *state, "mem:x", &closer.counters, &listener);
    assert_status(DIBS_OK, acquire(&one, "a", "owner", 1000, &answer));
    assert_status(DIBS_BUSY, store_ask(closer.store, &first, DIBS__NEVER, &answer, &error));
    assert_status(DIBS_BUSY, ask(&one, &second));
    assert_status(DIBS_OK, release(&one, "a", "owner"));
    assert_false(closer.closed_early);
    assert_int_equal(pthread_join(closer.thread, NULL), 0);
    assert_told(&one, 1, "second", 1);
    close_user(&one);
}

/*
 * One thread of a crowd, which is a user of its own. Each of its turns is an attempt, whose token contains the number
 * of the turn.
 */
struct member {
    struct dibs__store *store;
    struct dibs__counters counters;
    pthread_t thread;
    char letter;
    atomic_int turn, granted; /* the turn that it wants; the last that it was granted */
    unsigned *turns;          /* how many turns all members had; guarded by the lock that is tested */
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

/* False: the store did not do what it should. */
static bool take_turn(struct member *member, int turn)
{
    char token[16] = "";
    struct dibs__error error;
    struct dibs__answer answer;
    struct dibs__attempt attempt = waiting(token, 1000);
    struct dibs__op release = store_release_op("a", token, 0, 0);

    snprintf(token, sizeof token, "%c%d", member->letter, turn);
    atomic_store(&member->turn, turn);
    dibs_status status = store_ask(member->store, &attempt, DIBS__NEVER, &answer, &error);
    if (status == DIBS_BUSY && turn % 4 == 0) { /* the member gives up, perhaps just when it is granted */
        atomic_store(&member->turn, 0);
        member->store->ops->conclude(member->store, &attempt, false);
        return true;
    }
    if (status != DIBS_OK &&
        (status != DIBS_BUSY || !within(LIMIT_MS, atomic_load(&member->granted) == atomic_load(&member->turn))))
        return false;
    ++*member->turns;
    return store_do(member->store, &release) == DIBS_OK;
}

static void *take_turns(void *arg)
{
    struct member *member = arg;

    for (int turn = 1; turn <= TURNS && !member->failed; turn++)
        member->failed = !take_turn(member, turn);
    member->store->ops->close(member->store);
    return NULL;
}

TEST(users_of_one_space_take_turns)
{
    static struct member members[MEMBERS];
    unsigned turns = 0;
    struct user one;

    memset(members, 0, sizeof members);
    open_user(&one, *state, "mem:x");
    for (size_t i = 0; i < MEMBERS; i++) {
        const struct dibs__listener listener = listener_for(&members[i], granted_to_member);
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
    assert_owner(&one, "", 0);
    close_user(&one);
}

TEST(names_choose_the_space)
{
    static const struct {
        const char *one, *other;
        bool shared;
    } rows[] = {
        {"mem:", "mem:", false},    {"mem:x", "mem:x", true},  {"mem:x", "mem:y", false},
        {"mem:x", "mem:xx", false}, {"mem:X", "mem:x", false}, {"MEM:x", "mem:x", true},
    };
    struct user one, other;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        open_user(&one, *state, rows[i].one);
        open_user(&other, *state, rows[i].other);
        assert_status(DIBS_OK, acquire(&one, "a", "1", 1000, NULL));
        assert_status(rows[i].shared ? DIBS_BUSY : DIBS_OK, acquire(&other, "a", "2", 1000, NULL));
        struct dibs__attempt third = waiting("3", 1000);
        assert_status(DIBS_BUSY, ask(&other, &third));
        assert_status(DIBS_OK, release(&one, "a", "1"));
        assert_int_equal(other.told_count, rows[i].shared);
        assert_string_equal(other.told[0].name, rows[i].shared ? "a" : "");
        close_user(&one);
        close_user(&other);
    }
}

TEST(a_space_ends_with_its_last_user)
{
    struct user one, other;

    open_user(&one, *state, "mem:x");
    open_user(&other, *state, "mem:x");
    assert_status(DIBS_OK, acquire(&one, "a", "1", 1000, NULL));
    close_user(&one);
    assert_true(query(&other, "a").held);
    close_user(&other);
    open_user(&one, *state, "mem:x");
    assert_false(query(&one, "a").held);
    close_user(&one);
}

TESTS(setup, teardown)
