/* What follows from the answers of three masters: who belongs to the quorum, and who is admitted, when and how. */
#include "quorum_setup.h"
#include "store/quorum/quorum_look.h"

#define LEASE_MS 5000
#define WAIT_MS (LEASE_MS + LEASE_MS / 100 + DIBS__ADMIT_GRACE_MS)
#define WHOLE_WAIT_MS ((int64_t)DIBS__LEASE_MAX_MS + DIBS__LEASE_MAX_MS / 100 + DIBS__ADMIT_GRACE_MS)
#define TIMEOUT_MS 1000
#define FLOOR_MS 10000 /* for so long a floor waits for masters that are silent */
#define NUMBER 5
#define OTHER_NUMBER 6

static const struct dibs__store_ops silent = {.begin = NULL};

/* Knows the longest lease, and votes; is in its wait; its wait is over; was restarted; has lost its data. */
static const struct dibs__vote votes = {.known = true, .ready = true, .longest_ms = LEASE_MS, .highest = 7},
                               waits = {.known = true, .votes_in_ms = 1000, .longest_ms = LEASE_MS},
                               waited = {.known = true, .longest_ms = LEASE_MS, .highest = 3},
                               restarted = {.restarted = true, .longest_ms = LEASE_MS, .highest = 9},
                               lost = {.mark = 1};

static struct dibs__quorum *const q = &setting.q;
static struct dibs__look *look;

static void begin_look(void)
{
    free(look);
    look = calloc(1, sizeof *look + MEMBERS * sizeof look->ops[0]);
    assert_non_null(look);
    for (size_t i = 0; i < MEMBERS; i++)
        look->ops[i].member = &setting.members[i];
    look->open = 7;
    look->first_began = moved_clock_now(&setting.clock);
}

static int teardown(void **state)
{
    free(look);
    look = NULL;
    return tear_down(state);
}

static int setup(void **state)
{
    teardown(NULL);
    set_up(&silent);
    q->config.command_timeout_ms = TIMEOUT_MS;
    begin_look();
    return 0;
}

static void says(size_t i, struct dibs__vote vote)
{
    look->open &= ~((uint32_t)1 << i);
    dibs__look_take(look, &vote, i);
}

static struct dibs__vote of(struct dibs__vote vote, uint64_t number)
{
    vote.quorum = number;
    return vote;
}

static struct dibs__vote in(struct dibs__vote vote, uint64_t process)
{
    vote.process = process;
    return vote;
}

/* ------------------------------------------------------------- a new quorum */

TEST(masters_that_all_lost_their_data_are_a_new_quorum)
{
    struct dibs__newness newness = {.since = 0};

    says(0, lost);
    assert_false(dibs__look_is_new_quorum(q, look));
    says(1, lost);
    assert_true(dibs__look_is_new_quorum(q, look));
    assert_false(dibs__look_seems_new(q, look, &newness, look->first_began));
    says(2, lost);
    assert_true(dibs__look_seems_new(q, look, &newness, look->first_began));
}

TEST(who_knows_or_knew_of_a_quorum_makes_it_none_that_is_new)
{
    const struct dibs__vote knowing[] = {votes, waits, waited, restarted};

    for (size_t i = 0; i < sizeof knowing / sizeof knowing[0]; i++) {
        struct dibs__newness newness = {.since = 1, .marks = {1, 1, 1}};
        setup(state);
        says(0, lost);
        says(1, lost);
        says(2, knowing[i]);
        assert_false(dibs__look_seems_new(q, look, &newness, DIBS__NEVER));
        assert_true(newness.since == 0 && newness.marks[0] == 0);
    }
}

/* It may know better; so it has half of the command timeout, from when the quorum first seemed to be new. */
TEST(a_silent_master_is_waited_for_before_the_quorum_is_new)
{
    struct dibs__newness newness = {.since = 0};

    int64_t now = look->first_began;
    look->deadline = now + MS(TIMEOUT_MS);
    says(0, lost);
    says(1, lost);
    assert_false(dibs__look_seems_new(q, look, &newness, now));
    assert_false(dibs__look_seems_new(q, look, &newness, now + MS(TIMEOUT_MS / 2) - 1));
    assert_true(dibs__look_seems_new(q, look, &newness, now + MS(TIMEOUT_MS / 2)));
    for (size_t i = 0; i < MEMBERS; i++) {
        newness.marks[0] = newness.marks[1] = newness.marks[2] = 0;
        newness.marks[i] = 1; /* it answered in an earlier look */
        assert_int_equal(dibs__look_seems_new(q, look, &newness, look->deadline - 1), i < 2);
        assert_true(dibs__look_seems_new(q, look, &newness, look->deadline));
    }
}

/* Once a majority has voted, a silent one may know of that. */
TEST(a_quorum_that_has_begun_is_new_only_where_all_say_so)
{
    atomic_store(&q->voting.announced_ms, 1);
    says(0, lost);
    says(1, lost);
    assert_false(dibs__look_is_new_quorum(q, look));
    says(2, lost);
    assert_true(dibs__look_is_new_quorum(q, look));
}

/* The others lost their data, or it belongs to other URLs: only an operator can tell. */
TEST(nobody_is_admitted_beside_a_master_of_an_unknown_quorum)
{
    struct dibs__vote vote;

    says(0, lost);
    says(1, lost);
    says(2, of(votes, NUMBER));
    assert_false(dibs__look_is_new_quorum(q, look));
    assert_false(dibs__look_plan(q, look, 0, 1, &vote));
    atomic_store(&q->number, OTHER_NUMBER); /* which all have forgotten */
    assert_false(dibs__look_plan(q, look, 0, 1, &vote));
    atomic_store(&q->number, NUMBER);
    assert_true(dibs__look_plan(q, look, 0, 1, &vote));
}

/* Else it would be given a number that the others have not, if they all forgot that one: and never vote with them. */
TEST(nobody_is_admitted_to_a_quorum_that_no_master_which_answers_belongs_to)
{
    struct dibs__vote vote;

    atomic_store(&q->number, OTHER_NUMBER);
    says(0, lost);
    says(2, of(votes, NUMBER));
    assert_false(dibs__look_plan(q, look, 0, 1, &vote));
    says(1, of(votes, OTHER_NUMBER)); /* it was silent */
    assert_true(dibs__look_plan(q, look, 0, 1, &vote));
}

static void look_with_marks(uint64_t first, uint64_t second, uint64_t third)
{
    const uint64_t marks[MEMBERS] = {first, second, third};

    begin_look();
    for (size_t i = 0; i < MEMBERS; i++)
        says(i, (struct dibs__vote){.mark = marks[i]});
}

TEST(it_takes_two_looks_with_the_same_marks_to_prove_a_quorum_new)
{
    struct dibs__newness newness = {.since = 0};

    look_with_marks(1, 2, 3);
    assert_false(dibs__look_proves_new(q, look, &newness, 1));
    look_with_marks(1, 4, 3); /* it lost its data again */
    assert_false(dibs__look_proves_new(q, look, &newness, 1));
    look_with_marks(1, 4, 3);
    assert_true(dibs__look_proves_new(q, look, &newness, 1));
    look_with_marks(1, 0, 3);
    assert_false(dibs__look_proves_new(q, look, &newness, 1));
    look_with_marks(1, 0, 3); /* no mark proves nothing */
    assert_false(dibs__look_proves_new(q, look, &newness, 1));
}

TEST(an_admission_goes_to_the_mark_and_above_what_members_gave)
{
    says(0, votes);
    says(1, restarted);
    says(2, (struct dibs__vote){.mark = 4, .highest = 99});
    struct dibs__vote vote = dibs__look_admission(q, look, 2);
    assert_true(vote.what == DIBS__VOTE_ADMITS && vote.mark == 4 && vote.floor == 9 && vote.wait_ms == 0);
    begin_look();
    assert_true(dibs__look_admission(q, look, 2).floor == 1);
}

/* --------------------------------------------------------------- admissions */

static struct dibs__vote planned(size_t i, uint32_t long_unknown)
{
    struct dibs__vote vote;

    assert_true(dibs__look_plan(q, look, i, long_unknown, &vote));
    return vote;
}

static bool plans(size_t i, uint32_t long_unknown)
{
    struct dibs__vote vote;

    return dibs__look_plan(q, look, i, long_unknown, &vote);
}

TEST(who_lost_its_data_waits_for_the_longest_lease_that_others_know)
{
    says(0, votes);
    says(1, votes);
    says(2, lost);
    assert_false(plans(2, 0));
    assert_false(plans(0, 4) || plans(1, 4));
    struct dibs__vote vote = planned(2, 4);
    assert_true(vote.what == DIBS__VOTE_ADMITS && vote.wait_ms == WAIT_MS && vote.floor == 0 && vote.mark == 0);
    look->longest_ms = 2 * LEASE_MS;
    assert_true(planned(2, 4).wait_ms == dibs__admission_wait_ms(2 * LEASE_MS));
}

TEST(who_was_restarted_is_admitted_at_once_and_waits)
{
    says(0, votes);
    says(1, votes);
    says(2, restarted);
    struct dibs__vote vote = planned(2, 0);
    assert_true(vote.what == DIBS__VOTE_ADMITS && vote.wait_ms == WAIT_MS);
}

/* A silent master may know of longer ones, until a majority that never forgot has answered, or all have. */
TEST(where_few_know_how_long_leases_are_the_wait_is_the_longest_of_all)
{
    says(0, votes);
    says(2, lost);
    assert_true(planned(2, 4).wait_ms == WHOLE_WAIT_MS);
    says(1, lost);
    assert_true(planned(2, 4).wait_ms == WAIT_MS);
    begin_look();
    says(0, waits); /* what it knows it was told when it was admitted */
    says(2, restarted);
    assert_true(planned(2, 0).wait_ms == WHOLE_WAIT_MS);
    begin_look();
    says(0, waited);
    says(2, restarted);
    assert_true(planned(2, 0).wait_ms == WAIT_MS);
}

TEST(a_wait_that_is_too_long_is_shortened)
{
    struct dibs__vote too_long = waits;

    says(0, votes);
    says(1, votes);
    too_long.votes_in_ms = WAIT_MS;
    says(2, too_long);
    assert_false(plans(2, 0));
    too_long.votes_in_ms = WAIT_MS + 1;
    says(2, too_long);
    struct dibs__vote vote = planned(2, 0);
    assert_true(vote.what == DIBS__VOTE_ADMITS && vote.wait_ms == WAIT_MS);
    begin_look();
    says(0, votes);
    says(2, too_long); /* a silent one may know of longer leases */
    assert_false(plans(2, 0));
}

/* A second at least, so that others notice the step; and it is not told by a minority, which knows no length. */
TEST(a_master_whose_clock_was_set_is_told_to_wait)
{
    struct dibs__vote shorter = votes;

    atomic_store(&setting.members[0].steps, 1);
    says(0, votes);
    assert_false(plans(0, 0));
    says(1, votes);
    struct dibs__vote vote = planned(0, 0);
    assert_true(vote.what == DIBS__VOTE_DISTRUSTS && vote.wait_ms == WAIT_MS);
    assert_false(plans(1, 0));
    begin_look();
    shorter.longest_ms = 100;
    says(0, shorter);
    says(1, shorter);
    assert_true(planned(0, 0).wait_ms == DIBS__DISTRUST_LEAST_MS);
}

/* ------------------------------------------------------------------- floors */

/* The look began that long after the wait of the third was found to be over. */
static void look_after(int64_t ms)
{
    begin_look();
    q->voting.unfloored_since[2] = look->first_began;
    look->first_began += MS(ms);
    says(2, waited);
}

TEST(a_floor_is_what_a_majority_gave_as_a_later_look_finds)
{
    look_after(0);
    says(0, votes);
    says(1, votes);
    assert_false(plans(2, 0));
    q->voting.unfloored_since[2] = 0;
    assert_false(plans(2, 0));
    look_after(1);
    says(0, votes);
    says(1, votes);
    struct dibs__vote vote = planned(2, 0);
    assert_true(vote.what == DIBS__VOTE_FLOORS && vote.floor == 7 && vote.wait_ms == 0);
    q->voting.unfloored_since[0] = q->voting.unfloored_since[2];
    assert_false(plans(0, 0)); /* it votes */
}

/* One that is silent may never have forgotten; it is waited for, but not for ever. */
TEST(a_floor_waits_for_a_majority_that_never_forgot)
{
    look_after(FLOOR_MS - 1);
    says(0, votes);
    assert_false(plans(2, 0));
    look_after(FLOOR_MS);
    says(0, votes);
    assert_true(planned(2, 0).floor == 7);
    look_after(1);
    says(0, votes);
    says(1, restarted); /* then two have forgotten, and their fences count */
    assert_true(planned(2, 0).floor == 9);
}

/* ------------------------------------------------------- whose members they are */

TEST(the_number_of_a_majority_is_that_of_the_quorum)
{
    says(0, in(of(votes, NUMBER), 1));
    says(1, in(of(votes, OTHER_NUMBER), 2));
    dibs__look_identify(q, look);
    assert_true(atomic_load(&q->number) == 0 && look->strange == 0);
    says(2, in(of(waits, NUMBER), 3));
    dibs__look_identify(q, look);
    assert_true(atomic_load(&q->number) == NUMBER);
    assert_int_equal(look->strange, 2);
    assert_int_equal(look->known, 5);
    assert_int_equal(look->ready, 1);
    assert_true(atomic_load(&setting.members[1].strange) && !atomic_load(&setting.members[0].strange));
}

/* Also masters that were restarted, or do not know whether they may vote. */
TEST(a_master_of_another_quorum_is_in_no_other_set)
{
    const struct dibs__vote some[] = {votes, waits, restarted, lost};

    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        setup(state);
        atomic_store(&q->number, NUMBER);
        says(2, of(some[i], OTHER_NUMBER));
        dibs__look_identify(q, look);
        assert_int_equal(look->strange, 4);
        assert_int_equal(look->known | look->ready | look->restarted | look->unknown, 0);
        begin_look();
        says(2, of(some[i], NUMBER));
        dibs__look_identify(q, look);
        assert_int_equal(look->strange, 0);
        assert_false(atomic_load(&setting.members[2].strange));
    }
}

TEST(a_number_that_is_known_stays_until_all_have_forgotten_it)
{
    atomic_store(&q->number, NUMBER);
    says(0, in(of(votes, OTHER_NUMBER), 1));
    says(1, in(of(votes, OTHER_NUMBER), 2));
    dibs__look_identify(q, look);
    assert_true(atomic_load(&q->number) == NUMBER);
    says(2, in(of(votes, NUMBER), 3));
    dibs__look_identify(q, look);
    assert_true(atomic_load(&q->number) == NUMBER);
    says(2, in(of(votes, 0), 3));
    dibs__look_identify(q, look);
    assert_true(atomic_load(&q->number) == OTHER_NUMBER);
}

TEST(two_names_of_a_server_are_one_master)
{
    struct dibs__error error = {DIBS_OK, ""};

    says(0, in(votes, 1));
    says(1, in(votes, 0)); /* not known */
    says(2, in(votes, 0));
    dibs__look_identify(q, look);
    assert_int_equal(look->strange, 0);
    assert_status(DIBS_OK, dibs__look_check_twins(q, look, &error));
    says(2, in(votes, 1));
    dibs__look_identify(q, look);
    assert_int_equal(look->strange, 4);
    assert_status(DIBS_INVALID, dibs__look_check_twins(q, look, &error));
    assert_string_equal(error.detail, "urls[0] and urls[2] are the same master");
}

static uint64_t number_of(uint64_t first, uint64_t second, uint64_t third)
{
    setup(NULL);
    says(0, in(votes, first));
    says(1, in(votes, second));
    says(2, in(votes, third));
    dibs__look_identify(q, look);
    return atomic_load(&q->number);
}

TEST(masters_without_a_number_get_one_that_their_order_does_not_change)
{
    uint64_t number = number_of(11, 12, 13);
    assert_in_range(number, 1, UINT64_C(1) << 52);
    assert_true(number_of(13, 11, 12) == number && number_of(12, 13, 11) == number);
    assert_true(number_of(11, 12, 14) != number);
    assert_true(number_of(11, 0, 13) == 0);
}

TEST(a_number_is_made_anew_only_where_all_were_heard_and_have_none)
{
    atomic_store(&q->number, NUMBER);
    says(0, in(lost, 1));
    says(1, in(lost, 2));
    dibs__look_number_anew(q, look);
    assert_true(atomic_load(&q->number) == NUMBER);
    says(2, in(of(votes, OTHER_NUMBER), 3));
    dibs__look_number_anew(q, look);
    assert_true(atomic_load(&q->number) == NUMBER);
    says(2, in(lost, 3));
    dibs__look_number_anew(q, look);
    assert_true(atomic_load(&q->number) != NUMBER && atomic_load(&q->number) != 0);
}

TEST(a_number_is_lacking_where_one_more_look_can_tell_it)
{
    says(0, in(votes, 1));
    says(1, in(votes, 2));
    assert_false(dibs__look_lacks_number(q, look)); /* it can't be made, and is not known */
    atomic_store(&q->number, NUMBER);
    assert_true(dibs__look_lacks_number(q, look));
    atomic_store(&q->number, 0);
    says(2, in(votes, 3));
    assert_true(dibs__look_lacks_number(q, look));
    for (size_t i = 0; i < MEMBERS; i++)
        says(i, in(of(votes, NUMBER), 1 + i));
    assert_false(dibs__look_lacks_number(q, look));
}

/* ---------------------------------------------------------------- sentences */

static void expect_why(const char *why)
{
    struct dibs__error error = {DIBS_OK, ""};
    unsigned answered = dibs__set_count(dibs__look_replied(look) | look->strange);

    assert_status(DIBS_UNAVAILABLE, dibs__look_tell_why(q, look, answered, &error));
    assert_that(strncmp(error.detail, why, strlen(why)) == 0, "%s", error.detail);
}

TEST(it_is_told_why_masters_are_no_majority)
{
    says(2, of(votes, NUMBER));
    expect_why("1 of 3 masters answered, which is no majority");
    says(1, lost);
    expect_why("number 3 of the URLs is a master of a quorum that those of the others which answered do not know: "
               "start the masters");
    says(0, lost);
    expect_why("number 3 of the URLs is a master of a quorum that the others do not know: they lost their data");
    atomic_store(&q->number, NUMBER);
    expect_why("fewer than 2 of 3 masters may grant locks now");
    says(1, of(votes, OTHER_NUMBER));
    dibs__look_identify(q, look);
    expect_why("number 2 of the URLs is a master of another quorum");
}

/* ------------------------------------------------------------------ answers */

static void answers(size_t i, dibs_status status, struct dibs__vote vote)
{
    look->votes[i] = vote;
    look->ops[i].begun = (struct dibs__op){.kind = DIBS__OP_VOTE, .vote = &look->votes[i]};
    dibs__look_note(look, &look->ops[i], status);
}

TEST(an_answer_tells_from_when_a_master_votes)
{
    answers(1, DIBS_OK, waits);
    assert_int_equal(look->open, 5);
    assert_true(atomic_load(&setting.members[1].votes_from) == moved_clock_now(&setting.clock) + MS(1000));
    answers(1, DIBS_UNAVAILABLE, votes); /* which is no answer */
    assert_true(atomic_load(&setting.members[1].votes_from) != 0);
    assert_int_equal(look->ready, 0);
    answers(1, DIBS_OK, votes);
    assert_true(atomic_load(&setting.members[1].votes_from) == 0);
    answers(1, DIBS_OK, (struct dibs__vote){.known = true, .votes_in_ms = 1});
    assert_true(atomic_load(&setting.members[1].votes_from) == moved_clock_now(&setting.clock) + MS(1));
}

/* What a master says when it is admitted takes the place of what it said before. */
TEST(the_last_answer_of_a_master_counts)
{
    says(0, lost);
    says(1, lost);
    says(0, waits);
    assert_int_equal(look->known, 1);
    assert_int_equal(look->unknown, 2);
    says(0, votes);
    assert_int_equal(look->ready, 1);
    says(0, lost);
    assert_true(look->known == 0 && look->ready == 0 && look->unknown == 3);
}

TESTS(setup, teardown)
