/* What is said of three masters, and what an operator's word changes at them. */
#include "quorum_voters.h"
#include "store/quorum/quorum_look.h"

#define NUMBER 5
#define OTHER_NUMBER 6
#define TOLD_MOST 16
#define ADMIT_MS 6000

/* What an examination of each master shows. */
static struct {
    bool reached, clock_known;
    uint64_t server;
    int64_t ahead_us;
    dibs_status status;
} seen[MEMBERS];

static struct {
    dibs_verdict verdict;
    char text[DIBS__FINDING_MAX];
} told[TOLD_MOST];
static size_t told_count;

static bool found(void *context, const dibs_finding *finding)
{
    assert_true(told_count < TOLD_MOST);
    assert_string_equal(finding->server, "the quorum");
    assert_true((finding->verdict == DIBS_VERDICT_OK) == (finding->remedy[0] == '\0'));
    told[told_count].verdict = finding->verdict;
    snprintf(told[told_count++].text, sizeof told[0].text, "%s", finding->text);
    return true;
}

static dibs_status examine_one(struct dibs__store *store, struct dibs__examination *examination,
                               struct dibs__error *why)
{
    size_t i = (size_t)(store - setting.stores);

    examination->reached = seen[i].reached;
    examination->server = seen[i].server;
    examination->clock_known = seen[i].clock_known;
    examination->ahead_us = seen[i].ahead_us;
    return dibs__error_set(why, seen[i].status, "%s", "");
}

static enum { ADMITS, FAILS, BELONGS_ELSEWHERE } second; /* how the second master answers an admission */

static dibs_status finish(struct dibs__store *store, struct dibs__op *op, struct dibs__error *why)
{
    bool is_second = store == &setting.stores[1] && op->vote->what == DIBS__VOTE_ADMITS;

    if (is_second && second == FAILS)
        return dibs__error_set(why, DIBS_UNAVAILABLE, "it is away");
    if (is_second && second == BELONGS_ELSEWHERE) {
        op->vote->known = false;
        return DIBS_OK;
    }
    return voter_finish(store, op, why);
}

static struct dibs__store_ops examining;

static int setup(void **state)
{
    begin_vote(0, 0, 0);
    examining = voting;
    examining.examine = examine_one;
    examining.finish = finish;
    for (size_t i = 0; i < MEMBERS; i++) {
        setting.stores[i].ops = &examining;
        voters[i].vote.quorum = NUMBER;
        seen[i].reached = seen[i].clock_known = true;
        seen[i].server = 10 + i;
        seen[i].ahead_us = 0;
        seen[i].status = DIBS_OK;
    }
    second = ADMITS;
    return 0;
}

static dibs_status examine(uint32_t admit_ms)
{
    struct dibs__examination examination = {.found = found, .admit_ms = admit_ms};

    told_count = 0;
    return dibs__quorum_examine(&setting.q.store, &examination, &error);
}

static void expect_told(size_t i, dibs_verdict verdict, const char *text)
{
    assert_true(i < told_count);
    assert_that(told[i].verdict == verdict && strncmp(told[i].text, text, strlen(text)) == 0, "%d: %s",
                (int)told[i].verdict, told[i].text);
}

/* ------------------------------------------------------------- an examination */

TEST(it_is_told_how_many_masters_can_be_reached)
{
    assert_status(DIBS_OK, examine(0));
    assert_int_equal(told_count, 2);
    expect_told(0, DIBS_VERDICT_OK, "All 3 masters can be reached.");
    seen[1].reached = seen[1].clock_known = false;
    assert_status(DIBS_OK, examine(0));
    expect_told(0, DIBS_VERDICT_WARN, "Only 2 of 3 masters can be reached. That is a majority; 0 more may fail.");
    assert_int_equal(voters[1].vote_count, 1); /* who can't be reached is not asked whether it votes */
    seen[0].reached = seen[0].clock_known = false;
    assert_status(DIBS_OK, examine(0));
    expect_told(0, DIBS_VERDICT_BAD, "Only 1 of 3 masters can be reached, which is no majority");
    seen[2].status = DIBS_CLOSED;
    assert_status(DIBS_CLOSED, examine(0));
    assert_int_equal(told_count, 0);
}

TEST(two_urls_of_one_server_are_told)
{
    seen[2].server = seen[0].server;
    assert_status(DIBS_OK, examine(0));
    assert_int_equal(told_count, 3);
    expect_told(1, DIBS_VERDICT_BAD, "Number 1 and number 3 of the URLs are the same server");
    seen[0].server = seen[2].server = 0; /* not known */
    assert_status(DIBS_OK, examine(0));
    assert_int_equal(told_count, 2);
}

TEST(it_is_told_how_far_the_clocks_are_apart)
{
    seen[0].ahead_us = 300000;
    seen[1].ahead_us = -700000;
    seen[2].ahead_us = 5;
    assert_status(DIBS_OK, examine(0));
    expect_told(1, DIBS_VERDICT_OK, "The clocks of the masters are at most 1.000 s apart.");
    seen[2].ahead_us = 300001;
    assert_status(DIBS_OK, examine(0));
    expect_told(1, DIBS_VERDICT_WARN, "The clocks of the masters are up to 1.000 s apart.");
    seen[1].clock_known = false;
    assert_status(DIBS_OK, examine(0));
    expect_told(1, DIBS_VERDICT_OK, "The clocks of the masters are at most 0.000 s apart.");
    seen[0].clock_known = seen[2].clock_known = false;
    assert_status(DIBS_OK, examine(0));
    assert_int_equal(told_count, 1);
}

TEST(it_is_told_who_does_not_vote_and_why)
{
    static const struct {
        struct dibs__vote vote;
        dibs_verdict verdict;
        const char *text;
    } rows[] = {
        {{.known = true, .ready = true, .quorum = OTHER_NUMBER}, DIBS_VERDICT_BAD, "is a master of another quorum"},
        {{.restarted = true}, DIBS_VERDICT_WARN, "was restarted, and may have come back with older data."},
        {{.mark = 3}, DIBS_VERDICT_WARN, "lost its data, and does not know yet whether it may vote."},
        {{.known = true, .votes_in_ms = 1234, .quorum = NUMBER},
         DIBS_VERDICT_WARN,
         "forgot what it granted: it does not vote for another 1234 ms."},
        {{.known = true, .ready = true}, DIBS_VERDICT_OK, ""},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (size_t member = 0; member < MEMBERS; member++) {
            char text[256];
            setup(state);
            atomic_store(&setting.q.number, NUMBER);
            voters[member].vote = rows[i].vote;
            assert_status(DIBS_OK, examine(0));
            snprintf(text, sizeof text, "Number %zu of the URLs %s", member + 1, rows[i].text);
            if (rows[i].text[0])
                expect_told(1, rows[i].verdict, text);
            else
                assert_int_equal(told_count, 2);
        }
    setup(state);
    voters[0].vote.quorum = OTHER_NUMBER; /* whose quorum is not known here */
    assert_status(DIBS_OK, examine(0));
    assert_int_equal(told_count, 2);
    voter_says(0, DIBS__OP_VOTE, DIBS_DENIED, 0);
    assert_status(DIBS_OK, examine(0));
    assert_int_equal(told_count, 2);
}

/* ---------------------------------------------------------- an operator's word */

static void lose(size_t i)
{
    voters[i].vote = (struct dibs__vote){.mark = 10 + i, .process = 1 + i};
}

/* What each master was asked for besides the look: NULL: nothing. */
static const struct dibs__vote *admission_of(size_t i)
{
    assert_in_range(voters[i].vote_count, 1, 2);
    assert_int_equal(voters[i].votes[0].what, DIBS__VOTE_LOOKS);
    assert_int_equal(voters[i].votes[0].longest_ms, ADMIT_MS);
    return voters[i].vote_count > 1 ? &voters[i].votes[1] : NULL;
}

TEST(who_lost_its_data_is_admitted)
{
    lose(0);
    voter_says(2, DIBS__OP_VOTE, DIBS_UNAVAILABLE, 0);
    voters[1].vote.longest_ms = 1000;
    assert_status(DIBS_OK, examine(ADMIT_MS));
    assert_int_equal(told_count, 3);
    expect_told(0, DIBS_VERDICT_OK, "Number 1 of the URLs may vote in 6080 ms, once a program that is open then");
    expect_told(1, DIBS_VERDICT_OK, "Number 2 of the URLs votes.");
    expect_told(2, DIBS_VERDICT_WARN, "Number 3 of the URLs did not answer: nothing was changed there.");
    const struct dibs__vote *admission = admission_of(0);
    assert_true(admission->what == DIBS__VOTE_ADMITS && admission->wait_ms == dibs__admission_wait_ms(ADMIT_MS));
    assert_true(admission->quorum == NUMBER && admission->longest_ms == ADMIT_MS);
    assert_null(admission_of(1));
    assert_true(atomic_load(&setting.q.number) == NUMBER);
    assert_true(atomic_load(&setting.q.voting.due)); /* the floor comes with a look */
}

/* The wait is that for the longest lease that a master knows of. */
TEST(the_operator_does_not_make_leases_shorter)
{
    lose(0);
    assert_status(DIBS_OK, examine(ADMIT_MS));
    assert_true(admission_of(0)->wait_ms == dibs__admission_wait_ms(LEASE_MS));
    assert_int_equal(admission_of(0)->longest_ms, LEASE_MS);
}

TEST(a_wait_that_is_too_long_is_shortened)
{
    static const int64_t waits_ms[] = {6080, 6081, 1000};

    for (size_t i = 0; i < sizeof waits_ms / sizeof waits_ms[0]; i++) {
        setup(state);
        for (size_t member = 0; member < MEMBERS; member++)
            voters[member].vote.longest_ms = 1000;
        voters[1].vote.ready = false;
        voters[1].vote.votes_in_ms = waits_ms[i];
        assert_status(DIBS_OK, examine(ADMIT_MS));
        assert_int_equal(admission_of(1) != NULL, waits_ms[i] > 6080);
        assert_true(voters[1].vote.votes_in_ms == (waits_ms[i] > 6080 ? 6080 : waits_ms[i]));
    }
}

TEST(an_admission_that_fails_is_told)
{
    lose(1);
    second = FAILS;
    assert_status(DIBS_OK, examine(ADMIT_MS));
    expect_told(1, DIBS_VERDICT_BAD, "Number 2 of the URLs could not be admitted: it is away.");
    second = BELONGS_ELSEWHERE;
    assert_status(DIBS_OK, examine(ADMIT_MS));
    expect_told(1, DIBS_VERDICT_BAD,
                "Number 2 of the URLs could not be admitted: it belongs to another quorum by now.");
}

TEST(without_a_majority_nobody_is_admitted)
{
    lose(0);
    voter_says(1, DIBS__OP_VOTE, DIBS_UNAVAILABLE, 0);
    voter_says(2, DIBS__OP_VOTE, DIBS_UNAVAILABLE, 0);
    assert_status(DIBS_UNAVAILABLE, examine(ADMIT_MS));
    assert_string_equal(error.detail, "1 of 3 masters answered, which is no majority: a master said so");
    assert_null(admission_of(0));
    voter_says(2, DIBS__OP_VOTE, DIBS_DENIED, 0);
    assert_status(DIBS_DENIED, examine(ADMIT_MS));
    assert_string_equal(error.detail, "a master said so");
    assert_int_equal(told_count, 0);
}

TEST(a_new_quorum_needs_no_word)
{
    for (size_t i = 0; i < MEMBERS; i++)
        lose(i);
    assert_status(DIBS_OK, examine(ADMIT_MS));
    assert_int_equal(told_count, 1);
    expect_told(0, DIBS_VERDICT_OK, "No master knows of a quorum: it is new, and the next lock begins it.");
    for (size_t i = 0; i < MEMBERS; i++)
        assert_null(admission_of(i));
}

/* Of two quorums, the one that has a majority counts; without one, only an operator can tell. */
TEST(masters_of_two_quorums_are_not_mixed)
{
    setup(state);
    lose(0);
    voters[1].vote.quorum = OTHER_NUMBER;
    assert_status(DIBS_OK, examine(ADMIT_MS));
    assert_int_equal(told_count, 1);
    expect_told(0, DIBS_VERDICT_BAD, "Some of the masters belong to one quorum, others to another");
    assert_null(admission_of(0));
    setup(state);
    voters[1].vote.quorum = OTHER_NUMBER;
    assert_status(DIBS_OK, examine(ADMIT_MS));
    expect_told(0, DIBS_VERDICT_OK, "Number 1 of the URLs votes.");
    expect_told(1, DIBS_VERDICT_BAD, "Number 2 of the URLs is a master of another quorum, or another one of these");
    assert_null(admission_of(1));
    setup(state);
    lose(0);
    lose(2); /* the only number that there is */
    assert_status(DIBS_OK, examine(ADMIT_MS));
    assert_true(admission_of(0)->quorum == NUMBER && admission_of(2)->quorum == NUMBER);
}

/* That which this process knows counts first. */
TEST(the_number_that_is_known_stays)
{
    atomic_store(&setting.q.number, OTHER_NUMBER);
    lose(0);
    voters[2].vote.quorum = OTHER_NUMBER;
    assert_status(DIBS_OK, examine(ADMIT_MS));
    assert_true(admission_of(0)->quorum == OTHER_NUMBER);
    expect_told(1, DIBS_VERDICT_BAD, "Number 2 of the URLs is a master of another quorum");
    assert_true(atomic_load(&setting.q.number) == OTHER_NUMBER);
}

TESTS(setup, end_vote)
