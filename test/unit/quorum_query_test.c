/* What masters that say different things come to: who holds a lock, who shares it, and which names there are. */
#include "quorum_voters.h"

#define OVERDUE_MS 20

static dibs_owner owner;
static bool unsure;

static int setup(void **state)
{
    begin_vote(0, 0, 0);
    owner = (dibs_owner){0};
    return 0;
}

/* The master says that the token has the lock, with these numbers. */
static void names(size_t i, const char *token, int64_t remaining_ms, int64_t held_ms, uint64_t fence)
{
    dibs_owner *its = &voters[i].owner;

    *its = (dibs_owner){.held = true, .remaining_ms = remaining_ms, .held_ms = held_ms, .fence = fence};
    strcpy(its->token, token);
}

static void shares(size_t i, const char *token, uint32_t sharers, uint64_t fence)
{
    names(i, token, 1000, 0, fence);
    voters[i].owner.sharers = sharers;
}

static dibs_status look_with(struct dibs__query query)
{
    struct dibs__op op = {.kind = DIBS__OP_QUERY, .name = "x", .deadline = the_time + MS(1000), .query = query};

    owner = (dibs_owner){0};
    op.query.owner = &owner;
    dibs__quorum_query_begin(&setting.q.store, &op);
    dibs_status status = dibs__quorum_query_finish(&setting.q.store, &op, &error);
    unsure = op.query.unsure;
    return status;
}

static dibs_status look(void)
{
    return look_with((struct dibs__query){.owner = NULL});
}

/* ------------------------------------------------------------------ the owner */

TEST(the_owner_is_whom_a_majority_names)
{
    names(0, "a", 900, 10, 5);
    names(1, "a", 700, 30, 6);
    names(2, "b", 9000, 90, 8);
    voters[2].owner.waiters = 3;
    assert_status(DIBS_OK, look());
    assert_true(owner.held && owner.sharers == 0 && !unsure);
    assert_string_equal(owner.token, "a");
    assert_true(owner.remaining_ms == 700); /* so long a majority keeps it */
    assert_true(owner.held_ms == 30);
    assert_true(owner.fence == 8); /* a later holder's is larger than any that was given */
    assert_int_equal(owner.waiters, 3);
}

TEST(a_lock_without_expiry_outlasts_all_others)
{
    names(0, "a", -1, 10, 5);
    names(1, "a", 700, 30, 6);
    names(2, "a", -1, 30, 6);
    assert_status(DIBS_OK, look());
    assert_true(owner.remaining_ms == -1);
}

TEST(whom_no_majority_names_has_no_lock)
{
    names(0, "a", 900, 10, 5);
    names(1, "b", 900, 10, 5);
    names(2, "c", 900, 10, 5);
    assert_status(DIBS_OK, look());
    assert_true(!owner.held && !owner.token[0] && owner.fence == 5 && !unsure);
    names(1, "a", 900, 10, 5);
    voters[0].owner.held = voters[2].owner.held = false;
    assert_status(DIBS_OK, look());
    assert_true(!owner.held && !unsure);
}

/* The last one decides where the others do not agree; where it can't, it is not waited for. */
TEST(the_last_master_is_waited_for_where_it_decides)
{
    static const struct {
        const char *first, *second;
        int64_t passed_ms;
        bool held, unsure;
    } rows[] = {{"a", "a", 0, true, false},
                {"", "", 0, false, false},
                {"a", "b", OVERDUE_MS, false, true},
                {"a", "", OVERDUE_MS, false, true}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        setup(state);
        if (rows[i].first[0])
            names(0, rows[i].first, 900, 10, 5);
        if (rows[i].second[0])
            names(1, rows[i].second, 900, 10, 5);
        voter_says(2, DIBS__OP_QUERY, DIBS_OK, NEVER_MS);
        int64_t began = the_time;
        assert_status(DIBS_OK, look());
        assert_int_equal(passed_ms(began), rows[i].passed_ms);
        assert_int_equal(owner.held, rows[i].held);
        assert_int_equal(unsure, rows[i].unsure);
        voters[2].unsent = true; /* nor where it has no connection */
        began = the_time;
        assert_status(DIBS_OK, look());
        assert_int_equal(passed_ms(began), 0);
    }
}

TEST(a_minority_of_answers_is_none)
{
    names(0, "a", 900, 10, 5);
    voter_says(1, DIBS__OP_QUERY, DIBS_UNAVAILABLE, 0);
    voter_says(2, DIBS__OP_QUERY, DIBS_UNAVAILABLE, 0);
    assert_status(DIBS_UNAVAILABLE, look());
    assert_string_equal(error.detail, "1 of 3 masters answered, which is no majority: a master said so");
    assert_true(!owner.held);
}

TEST(who_waits_is_asked_of_the_master_with_the_longest_queue)
{
    dibs_waiter items[4];
    struct dibs__waiters waiters = {.items = items, .most = 4};

    for (size_t longest = 0; longest < MEMBERS; longest++) {
        setup(state);
        assert_status(DIBS_OK, look_with((struct dibs__query){.waiters = &waiters}));
        for (size_t i = 0; i < MEMBERS; i++)
            assert_int_equal(voters[i].asked[DIBS__OP_QUERY], 1); /* nobody waits */
        for (size_t i = 0; i < MEMBERS; i++)
            voters[i].owner.waiters = i == longest ? 2 : 1;
        assert_status(DIBS_OK, look_with((struct dibs__query){.waiters = &waiters}));
        for (size_t i = 0; i < MEMBERS; i++)
            assert_int_equal(voters[i].asked[DIBS__OP_QUERY], i == longest ? 3 : 2);
        assert_ptr_equal(voters[longest].last.query.waiters, &waiters);
    }
}

/* -------------------------------------------------------------------- sharers */

/* Each master names its newest sharer; the fence is the one to which a majority of them is raised. */
TEST(a_lock_is_shared_where_a_majority_says_so)
{
    shares(0, "s1", 3, 9);
    shares(1, "s2", 2, 8);
    shares(2, "s2", 1, 7);
    assert_status(DIBS_OK, look());
    assert_true(owner.held && owner.sharers == 2);
    assert_string_equal(owner.token, "s2");
    assert_true(owner.fence == 7);
    shares(2, "s1", 1, 10);
    assert_status(DIBS_OK, look());
    assert_string_equal(owner.token, "s1");
    assert_true(owner.fence == 9);
    shares(0, "s2", 1, 9);
    shares(1, "s2", 1, 9);
    shares(2, "s1", 1, 9);
    assert_status(DIBS_OK, look());
    assert_string_equal(owner.token, "s2");
    for (size_t i = 0; i < MEMBERS; i++)
        shares(i, "s1", 1, 9 - i);
    assert_status(DIBS_OK, look());
    assert_true(owner.sharers == 1 && owner.fence == 8);
    names(0, "a", 900, 10, 5);
    names(1, "b", 900, 10, 5);
    assert_status(DIBS_OK, look());
    assert_false(owner.held);
}

static struct dibs__sharers named;
static dibs_sharer named_items[4];

static dibs_status look_at_sharers(size_t most, bool by_majority)
{
    memset(named_items, 0, sizeof named_items);
    named = (struct dibs__sharers){.items = named_items, .most = most, .by_majority = by_majority};
    return look_with((struct dibs__query){.sharers = &named});
}

static const dibs_sharer first_says[] = {{.token = "s1", .fence = 4, .remaining_ms = 10},
                                         {.token = "s2", .fence = 7, .remaining_ms = 50}},
                         second_says[] = {{.token = "s2", .fence = 6, .remaining_ms = 90},
                                          {.token = "s3", .fence = 9, .remaining_ms = 20}};

/* The first two masters name these; the third does not share the lock. */
static void share_at_two(void)
{
    shares(0, "s2", 2, 7);
    shares(1, "s3", 2, 9);
    voters[0].sharers = first_says;
    voters[1].sharers = second_says;
    voters[0].sharer_count = voters[1].sharer_count = 2;
}

TEST(all_sharers_are_named_the_newest_first)
{
    share_at_two();
    assert_status(DIBS_OK, look_at_sharers(4, false));
    assert_int_equal(named.count, 3);
    assert_string_equal(named.items[0].token, "s3");
    assert_string_equal(named.items[1].token, "s2");
    assert_string_equal(named.items[2].token, "s1");
    assert_true(named.items[1].fence == 7 && named.items[1].remaining_ms == 90); /* the most that a master says */
    for (size_t i = 0; i < named.count; i++)
        assert_true(named.items[i].reserved[0] == 0);
    assert_int_equal(voters[2].asked[DIBS__OP_QUERY], 1); /* it has none to name */
    assert_false(unsure);
    assert_status(DIBS_OK, look_at_sharers(2, false));
    assert_int_equal(named.count, 2); /* there is no room for more */
    assert_string_equal(named.items[0].token, "s2");
}

TEST(sharers_of_a_majority_are_those_that_a_majority_names)
{
    share_at_two();
    assert_status(DIBS_OK, look_at_sharers(4, true));
    assert_int_equal(named.count, 1);
    assert_string_equal(named.items[0].token, "s2");
    assert_true(!named.items[1].token[0]);
    assert_false(unsure);
    assert_int_equal(voters[2].asked[DIBS__OP_QUERY], 1);
}

/* It may name one whom a majority would name with it. */
TEST(a_master_that_does_not_name_its_sharers_leaves_that_unsure)
{
    for (int by_majority = 0; by_majority < 2; by_majority++) {
        setup(state);
        share_at_two();
        voter_says(2, DIBS__OP_QUERY, DIBS_UNAVAILABLE, 0);
        assert_status(DIBS_OK, look_at_sharers(4, by_majority));
        assert_int_equal(unsure, by_majority);
        assert_int_equal(voters[2].asked[DIBS__OP_QUERY], by_majority ? 2 : 1);
    }
}

#if CAN_FAIL
TEST(a_query_without_memory_fails)
{
    struct dibs__op op = {.kind = DIBS__OP_QUERY, .name = "x", .query = {.owner = &owner, .sharers = &named}};

    share_at_two();
    fail_here(1);
    assert_status(DIBS_NO_MEMORY, dibs__quorum_query_finish(&setting.q.store, &op, &error));
    assert_false(owner.held);
    atomic_store(&fail_at, 2);
    assert_status(DIBS_NO_MEMORY, look_at_sharers(4, false));
    assert_int_equal(named.count, 0);
    fail_no_more();
}
#endif

/* --------------------------------------------------------- names, and free locks */

static unsigned walked[MEMBERS];
static unsigned walks; /* of all masters */
static dibs_status walk_says[MEMBERS];

static dibs_status walk(struct dibs__store *store, const struct dibs__walk *how, struct dibs__error *why)
{
    size_t i = (size_t)(store - setting.stores);

    walked[i] = ++walks;
    if (walk_says[i] == DIBS_OK)
        return DIBS_OK; /* leaves the error as it is */
    return dibs__error_set(why, walk_says[i], "%s", "a master said so");
}

static struct dibs__store_ops walking;

static dibs_status walk_all(dibs_status first, dibs_status second, dibs_status third)
{
    const struct dibs__walk how = {.pattern = NULL};

    walking = voting;
    walking.walk = walk;
    walks = 0;
    memset(walked, 0, sizeof walked);
    walk_says[0] = first, walk_says[1] = second, walk_says[2] = third;
    for (size_t i = 0; i < MEMBERS; i++)
        setting.stores[i].ops = &walking;
    return dibs__quorum_walk(&setting.q.store, &how, &error);
}

/* A lock that a majority granted is known to one of any majority. */
TEST(the_names_are_those_of_any_majority)
{
    assert_status(DIBS_OK, walk_all(DIBS_OK, DIBS_OK, DIBS_OK));
    assert_int_equal(walks, 2);
    assert_status(DIBS_OK, walk_all(DIBS_UNAVAILABLE, DIBS_OK, DIBS_OK));
    assert_int_equal(walks, 3);
    assert_status(DIBS_UNAVAILABLE, walk_all(DIBS_UNAVAILABLE, DIBS_OK, DIBS_UNAVAILABLE));
    assert_string_equal(error.detail, "1 of 3 masters answered, which is no majority: a master said so");
    assert_status(DIBS_DENIED, walk_all(DIBS_UNAVAILABLE, DIBS_DENIED, DIBS_OK));
    assert_status(DIBS_CLOSED, walk_all(DIBS_CLOSED, DIBS_OK, DIBS_OK));
    assert_int_equal(walks, 1);
    assert_status(DIBS_NO_MEMORY, walk_all(DIBS_OK, DIBS_NO_MEMORY, DIBS_OK));
    assert_int_equal(walks, 2);
    atomic_store(&setting.members[0].rests_until, the_time + MS(900)); /* who rests comes last */
    assert_status(DIBS_OK, walk_all(DIBS_OK, DIBS_OK, DIBS_OK));
    assert_int_equal(walked[0], 0);
    assert_status(DIBS_OK, walk_all(DIBS_OK, DIBS_UNAVAILABLE, DIBS_OK));
    assert_true(walked[1] == 1 && walked[2] == 2 && walked[0] == 3);
}

static dibs_status forget(void)
{
    struct dibs__op op = {.kind = DIBS__OP_FORGET, .name = "x", .deadline = the_time + MS(1000)};

    return dibs__quorum_forget(&setting.q.store, &op, &error);
}

/* Where only a minority has it in use, it may have been released a moment ago: that one is asked again, and again. */
TEST(a_lock_is_forgotten_by_all)
{
    assert_status(DIBS_OK, forget());
    voter_says(0, DIBS__OP_FORGET, DIBS_BUSY, 0);
    voter_says(1, DIBS__OP_FORGET, DIBS_BUSY, 0);
    int64_t began = the_time;
    assert_status(DIBS_BUSY, forget());
    assert_true(the_time == began);
    assert_int_equal(voters[0].asked[DIBS__OP_FORGET], 2);
    voter_says(0, DIBS__OP_FORGET, DIBS_OK, 0);
    assert_status(DIBS_BUSY, forget());
    assert_true(the_time >= began + MS(1000) - MS(50) && the_time <= began + MS(1000));
    assert_in_range(voters[1].asked[DIBS__OP_FORGET], 20, 60);
    assert_int_equal(voters[0].asked[DIBS__OP_FORGET], 3);
    voter_says(1, DIBS__OP_FORGET, DIBS_UNAVAILABLE, 0);
    assert_status(DIBS_UNAVAILABLE, forget());
}

/* Each has its share of the time that is left: the first a third. */
TEST(each_master_has_its_share_of_the_time_to_forget)
{
    assert_status(DIBS_OK, forget());
    assert_true(voters[0].last.deadline == the_time + MS(1000) / 3);
    assert_true(voters[1].last.deadline == the_time + MS(500));
    assert_true(voters[2].last.deadline == the_time + MS(1000));
}

/* ----------------------------------------------------------------- by force */

static dibs_status force(const char *token)
{
    struct dibs__op op = {
        .kind = DIBS__OP_FORCE, .name = "x", .deadline = the_time + MS(1000), .force = {.token = token}};

    return dibs__quorum_force(&setting.q.store, &op, &error);
}

static void all_say(dibs_status first, dibs_status second, dibs_status third)
{
    voter_says(0, DIBS__OP_FORCE, first, 0);
    voter_says(1, DIBS__OP_FORCE, second, 0);
    voter_says(2, DIBS__OP_FORCE, third, 0);
}

TEST(a_token_is_forced_where_a_majority_has_done_it)
{
    static const struct {
        dibs_status say[MEMBERS], status;
    } rows[] = {
        {{DIBS_OK, DIBS_OK, DIBS_UNAVAILABLE}, DIBS_OK},
        {{DIBS_OK, DIBS_NOT_HELD, DIBS_OK}, DIBS_OK},
        {{DIBS_NOT_HELD, DIBS_NOT_HELD, DIBS_OK}, DIBS_NOT_HELD},
        {{DIBS_NOT_HELD, DIBS_NOT_HELD, DIBS_UNAVAILABLE}, DIBS_NOT_HELD},
        {{DIBS_OK, DIBS_NOT_HELD, DIBS_UNAVAILABLE}, DIBS_UNAVAILABLE},
        {{DIBS_OK, DIBS_DENIED, DIBS_UNAVAILABLE}, DIBS_DENIED},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        setup(state);
        all_say(rows[i].say[0], rows[i].say[1], rows[i].say[2]);
        assert_status(rows[i].status, force("a"));
        assert_string_equal(voters[2].last.force.token, "a");
        assert_false(voters[2].last.force.is_shown);
        assert_int_equal(voters[0].asked[DIBS__OP_QUERY], 0);
    }
}

TEST(a_token_that_no_majority_has_lost_is_told)
{
    all_say(DIBS_OK, DIBS_NOT_HELD, DIBS_UNAVAILABLE);
    assert_status(DIBS_UNAVAILABLE, force("a"));
    assert_string_equal(error.detail,
                        "the lock was taken away at 1 of 3 masters, and another has it at 1: a master said so");
    all_say(DIBS_OK, DIBS_UNAVAILABLE, DIBS_UNAVAILABLE);
    assert_status(DIBS_UNAVAILABLE, force("a"));
    assert_string_equal(error.detail, "1 of 3 masters answered, which is no majority: a master said so");
}

TEST(whom_a_majority_names_is_forced)
{
    assert_status(DIBS_OK, force(NULL)); /* nobody has it */
    assert_int_equal(voters[0].asked[DIBS__OP_FORCE], 0);
    names(0, "a", 900, 10, 5);
    names(1, "b", 900, 10, 5);
    names(2, "b", 900, 10, 5);
    assert_status(DIBS_OK, force(NULL));
    assert_int_equal(voters[0].asked[DIBS__OP_FORCE], 1);
    assert_true(voters[0].last.force.is_shown); /* as the query shows it */
}

/* It is not known who has it, until the masters say so. */
TEST(who_has_the_lock_is_asked_until_it_is_known)
{
    names(0, "a", 900, 10, 5);
    voter_says(2, DIBS__OP_QUERY, DIBS_UNAVAILABLE, 0);
    int64_t began = the_time;
    assert_status(DIBS_UNAVAILABLE, force(NULL));
    assert_string_equal(error.detail, "no majority of the masters says who holds the lock");
    assert_true(the_time >= began + MS(1000) - MS(50) && the_time <= began + MS(1000));
    assert_int_equal(voters[0].asked[DIBS__OP_FORCE], 0);
    voter_says(1, DIBS__OP_QUERY, DIBS_UNAVAILABLE, 0);
    assert_status(DIBS_UNAVAILABLE, force(NULL));
    assert_string_equal(error.detail, "1 of 3 masters answered, which is no majority: a master said so");
}

TEST(all_sharers_of_a_majority_are_forced)
{
    setup(state);
    share_at_two();
    assert_status(DIBS_OK, force(NULL));
    for (size_t i = 0; i < MEMBERS; i++)
        assert_int_equal(voters[i].asked[DIBS__OP_FORCE], 1);
    setup(state);
    share_at_two();
    voters[1].sharers = first_says;
    assert_status(DIBS_OK, force(NULL));
    for (size_t i = 0; i < MEMBERS; i++)
        assert_int_equal(voters[i].asked[DIBS__OP_FORCE], 2);
    all_say(DIBS_UNAVAILABLE, DIBS_UNAVAILABLE, DIBS_OK);
    assert_status(DIBS_UNAVAILABLE, force(NULL));
    assert_int_equal(voters[0].asked[DIBS__OP_FORCE], 3); /* one that has failed is asked for no other token */
}

TESTS(setup, end_vote)
