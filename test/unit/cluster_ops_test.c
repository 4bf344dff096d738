/* Where an operation goes in a cluster, as the nodes redirect it, and when it is given up. */
#include "cluster_nodes.h"

#define HEIR_MS 100
#define HOPS_MAX 5

static struct dibs__attempt attempt;
static struct dibs__answer answer;

static struct dibs__op query(const char *name)
{
    return (struct dibs__op){.kind = DIBS__OP_QUERY, .name = name, .deadline = the_time + MS(COMMAND_MS)};
}

static struct dibs__op op_of(enum dibs__op_kind kind, const char *name)
{
    struct dibs__op op = query(name);

    op.kind = kind;
    return op;
}

static struct dibs__op ask(const char *name, bool wait)
{
    attempt = (struct dibs__attempt){.name = name, .token = "dibs:token", .wait = wait};
    answer = (struct dibs__answer){.fence = 0};
    return dibs__op_ask(&attempt, &answer, the_time + MS(COMMAND_MS));
}

static struct dibs__op release(const char *name)
{
    struct dibs__op op = op_of(DIBS__OP_RELEASE, name);

    op.release = (struct dibs__release){.token = "dibs:token", .lease_ms = 30000, .fence = 7};
    return op;
}

static dibs_status finish(struct dibs__op *op)
{
    dibs_status status = scene.base->ops->finish(scene.base, op, &error);

    assert_null(op->redirect);
    return status;
}

static dibs_status carry_out(struct dibs__op op)
{
    return finish(&op);
}

static void expect_after(int64_t ms, dibs_status status, struct dibs__op op)
{
    int64_t began = the_time;

    assert_status(status, finish(&op));
    assert_true(the_time == began + MS(ms));
}

/* An ask of the attempt may still be under way. */
static void put_in_doubt(void)
{
    static const char somebody[] = "";

    memcpy(&dibs__redis_attempt_of(&attempt)->doubt, &(const void *){somebody}, sizeof(void *));
}

static int end(void **state)
{
    scene.base->ops->conclude(scene.base, &attempt, false);
    attempt = (struct dibs__attempt){.name = NULL};
    teardown_cluster(state);
    return 0;
}

/* --------------------------------------------------------------------- the way */

TEST(an_operation_goes_to_the_node_that_has_the_slot)
{
    static const char *const names[] = {"x", "y", "z"};

    for (size_t i = 0; i < NODES; i++) {
        struct dibs__op op = query(names[i]);
        assert_int_equal(scene.base->ops->progress(scene.base, &op, NULL), DIBS__OP_CONNECTED);
        scene.base->ops->begin(scene.base, &op);
        assert_int_equal(scene.base->ops->progress(scene.base, &op, NULL), DIBS__OP_OVER);
        assert_int_equal(scene.nodes[i].begun, 1);
        assert_status(DIBS_OK, finish(&op));
        assert_int_equal(scene.nodes[i].finished, 1);
        assert_status(DIBS_OK, carry_out(query(names[i])));
        assert_int_equal(scene.nodes[i].finished, 2);
    }
    assert_false(atomic_load(&scene.cluster->map_wanted));
}

TEST(an_operation_follows_where_nodes_send_it)
{
    node_says(0, DIBS_UNAVAILABLE, DIBS__REDIRECT_MOVED, 1);
    node_says(1, DIBS_UNAVAILABLE, DIBS__REDIRECT_ASK, 2);
    expect_after(0, DIBS_OK, query("x"));
    assert_int_equal(scene.nodes[2].finished, 1);
    assert_true(scene.nodes[2].asking == 1 && scene.nodes[1].asking == 0);
}

/* Two nodes may each name the other while a slot changes hands; from the third step on there are pauses. */
TEST(an_operation_in_a_circle_is_given_up)
{
    for (int waits = 0; waits < 2; waits++) {
        end(state);
        setup_cluster(state);
        node_says(0, DIBS_UNAVAILABLE, DIBS__REDIRECT_MOVED, 1);
        node_says(1, DIBS_UNAVAILABLE, DIBS__REDIRECT_MOVED, 0);
        assert_status(DIBS_UNAVAILABLE, carry_out(waits ? ask("x", true) : query("x")));
        assert_int_equal(scene.nodes[0].finished + scene.nodes[1].finished, 1 + HOPS_MAX);
        assert_int_equal(scene.sleep_count, waits ? 0 : HOPS_MAX - 2); /* a waiter asks again anyway */
        assert_true(atomic_load(&scene.cluster->map_wanted));
    }
}

TEST(a_slot_in_motion_is_asked_again_until_it_has_moved)
{
    for (int i = 0; i < 8; i++) /* that is no circle, however often */
        node_says(0, DIBS_UNAVAILABLE, DIBS__REDIRECT_AGAIN, 0);
    node_says(0, DIBS_UNAVAILABLE, DIBS__REDIRECT_MOVED, 1);
    assert_status(DIBS_OK, carry_out(query("x")));
    assert_int_equal(scene.nodes[0].finished, 9);
    assert_int_equal(scene.nodes[1].finished, 1);
    assert_int_equal(scene.sleep_count, 8);
}

TEST(a_slot_that_moves_for_ever_is_waited_for_until_the_deadline)
{
    node_says(0, DIBS_UNAVAILABLE, DIBS__REDIRECT_AGAIN, 0);
    expect_after(COMMAND_MS, DIBS_UNAVAILABLE, query("x"));
    assert_in_range(scene.sleep_count, 20, 60);        /* of 50 ms at most */
    expect_after(0, DIBS_UNAVAILABLE, ask("x", true)); /* who waits asks again later */
    assert_int_equal(scene.nodes[0].last.ask.attempt->wait, true);
}

/* While a slot moves, the node to which it goes may be named by the map before the other one says so. */
TEST(an_operation_asks_again_where_the_map_says)
{
    node_says(0, DIBS_UNAVAILABLE, DIBS__REDIRECT_ASK, 1);
    node_says(1, DIBS_UNAVAILABLE, DIBS__REDIRECT_AGAIN, 0);
    node_says(1, DIBS_OK, DIBS__REDIRECT_NONE, 0);
    give_slot("x", 0);
    node_says(0, DIBS_OK, DIBS__REDIRECT_NONE, 0);
    assert_status(DIBS_OK, carry_out(query("x")));
    assert_int_equal(scene.nodes[0].finished, 2);
    assert_int_equal(scene.nodes[1].finished, 1);
    assert_int_equal(scene.nodes[0].asking, 0);
}

/* --------------------------------------------------------------------- an heir */

static void third_gets_it(void)
{
    give_slot("x", 2);
}

/* Where the node that has failed has an heir by now, that one is asked. Who can be asked again later does not wait. */
TEST(a_failed_node_may_have_an_heir)
{
    static const struct {
        enum dibs__op_kind kind;
        bool waits, finds;
    } rows[] = {{DIBS__OP_QUERY, false, true}, {DIBS__OP_RELEASE, false, true}, {DIBS__OP_ASK, false, true},
                {DIBS__OP_ASK, true, false},   {DIBS__OP_FORCE, false, false},  {DIBS__OP_FORGET, false, false}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        end(state);
        setup_cluster(state);
        scene.sleeps = third_gets_it;
        node_says(0, DIBS_UNAVAILABLE, DIBS__REDIRECT_NONE, 0);
        struct dibs__op op = rows[i].kind == DIBS__OP_ASK       ? ask("x", rows[i].waits)
                             : rows[i].kind == DIBS__OP_RELEASE ? release("x")
                                                                : op_of(rows[i].kind, "x");
        assert_status(rows[i].finds ? DIBS_OK : DIBS_UNAVAILABLE, finish(&op));
        assert_int_equal(scene.nodes[2].finished, rows[i].finds);
        assert_int_equal(scene.sleep_count, rows[i].finds);
    }
}

/* A release waits for one until its deadline, the others only so long as it takes to ask for the map. */
TEST(an_heir_is_waited_for)
{
    node_says(0, DIBS_UNAVAILABLE, DIBS__REDIRECT_NONE, 0);
    expect_after(HEIR_MS, DIBS_UNAVAILABLE, query("x"));
    assert_true(atomic_load(&scene.cluster->map_wanted));
    expect_after(COMMAND_MS, DIBS_UNAVAILABLE, release("x"));
    assert_int_equal(scene.nodes[0].retracted, 1);
    atomic_store(&scene.cluster->nodes[0].down, true); /* then the map is asked for all the time */
    expect_after(0, DIBS_UNAVAILABLE, query("x"));
    atomic_store(&scene.cluster->nodes[0].down, false);
    struct dibs__op op = query("x");
    op.deadline = the_time + MS(30);
    expect_after(30, DIBS_UNAVAILABLE, op);
}

/* The node can be reached: it is its replicas that are too few. */
TEST(what_was_not_confirmed_by_replicas_has_no_heir)
{
    scene.nodes[0].why = DIBS__WHY_TOO_FEW_REPLICAS;
    node_says(0, DIBS_UNAVAILABLE, DIBS__REDIRECT_NONE, 0);
    assert_status(DIBS_UNAVAILABLE, carry_out(ask("x", false)));
    assert_int_equal(scene.sleep_count, 0);
}

/* ------------------------------------------------------------------ no such node */

TEST(a_slot_without_a_node_is_told_of)
{
    char wanted[64];

    give_slot("x", DIBS__NO_NODE);
    snprintf(wanted, sizeof wanted, "no node has the slot %u", dibs__cluster_slot(scene.cluster, "x"));
    assert_status(DIBS_UNAVAILABLE, carry_out(query("x")));
    assert_that(strstr(error.detail, wanted), "%s", error.detail);
    assert_true(atomic_load(&scene.cluster->map_wanted));
    assert_int_equal(scene.downs, 1);
    assert_string_equal(scene.text, error.detail);
    struct dibs__op op = ask("x", false);
    answer.fence = 9;
    assert_status(DIBS_UNAVAILABLE, finish(&op));
    assert_true(answer.fence == 0);
    assert_status(DIBS_UNAVAILABLE, carry_out(release("x")));
    assert_int_equal(scene.nodes[0].retracted, 1); /* any node can begin with that */
    scene.base->ops->retract(scene.base, "x", "dibs:token", 30000, 7);
    assert_int_equal(scene.nodes[0].retracted, 2);
    assert_true(scene.base->ops->tell_when_free(scene.base, "x", 5) == 0);
    assert_false(scene.base->ops->can_keep(scene.base, "x"));
    assert_int_equal(scene.downs, 1);
    give_slot("x", 1);
    dibs__cluster_see_reach(scene.cluster, NULL);
    assert_int_equal(scene.ups, 1);
    assert_status(DIBS_OK, carry_out(query("x")));
    scene.base->ops->retract(scene.base, "x", "dibs:token", 30000, 7);
    assert_int_equal(scene.nodes[1].retracted, 1);
}

#if CAN_FAIL
TEST(an_operation_without_memory_uses_no_node)
{
    fail_here(1);
    assert_status(DIBS_NO_MEMORY, carry_out(query("x")));
    atomic_store(&fail_at, 1);
    struct dibs__op op = query("x");
    scene.base->ops->begin(scene.base, &op);
    fail_no_more();
    assert_null(op.redirect);
    assert_status(DIBS_OK, finish(&op));
}
#endif

/* ------------------------------------------------------------------- attempts */

static uint64_t used_by_attempt(void)
{
    return attempt.store_state.outer;
}

/* Its place in the queue goes with the slot; the node that knows of it stays in use. */
TEST(an_attempt_comes_along_with_its_slot)
{
    struct dibs__op op = ask("x", true);
    node_says(0, DIBS_BUSY, DIBS__REDIRECT_NONE, 0);
    node_says(0, DIBS_UNAVAILABLE, DIBS__REDIRECT_MOVED, 1);
    scene.base->ops->begin(scene.base, &op);
    assert_int_equal(scene.nodes[0].begun, 1);
    assert_status(DIBS_BUSY, finish(&op));
    assert_true(used_by_attempt() == 1 && atomic_load(&scene.cluster->nodes[0].users) == 1);
    op = dibs__op_ask(&attempt, &answer, the_time + MS(COMMAND_MS));
    assert_status(DIBS_OK, finish(&op));
    assert_true(used_by_attempt() == 2);
    assert_int_equal(atomic_load(&scene.cluster->nodes[0].users), 0);
    assert_int_equal(scene.nodes[0].dropped, 0);
    scene.base->ops->conclude(scene.base, &attempt, true);
    assert_int_equal(scene.nodes[1].kept, 1);
    scene.base->ops->conclude(scene.base, &attempt, true);
    assert_int_equal(scene.nodes[1].kept, 1);
}

/* Where an ask of the attempt comes to say who owns the lock, as far as the attempt knows then. */
static uint64_t owner_named_by(void)
{
    struct dibs__op op = dibs__op_ask(&attempt, &answer, the_time + MS(COMMAND_MS));

    assert_status(DIBS_BUSY, finish(&op));
    return dibs__redis_attempt_server(&attempt);
}

/* The node that says where the slot is now may have been replaced. A slot that moved takes along what was known. */
TEST(who_owned_a_lock_is_remembered_until_a_map_tells_that_its_slot_moved)
{
    struct dibs__node *nodes = scene.cluster->nodes;

    for (size_t i = 0; i < 2; i++)
        node_says(i, DIBS_BUSY, DIBS__REDIRECT_NONE, 0);
    atomic_store(&nodes[0].server, 100);
    atomic_store(&dibs__redis_of(nodes[1].member)->renewal_server, 101);
    ask("x", true);
    dibs__redis_attempt_of(&attempt)->seen_server = 100;
    assert_true(owner_named_by() == 100);
    dibs__map_correct(scene.cluster, dibs__cluster_slot(scene.cluster, "x"), &nodes[1]);
    assert_true(owner_named_by() == 100);
    assert_int_equal(scene.nodes[1].finished, 1);
    atomic_store(&scene.cluster->known_corrections, atomic_load(&scene.cluster->corrections)); /* a map has come */
    atomic_store(&nodes[0].in_map, false);
    assert_true(owner_named_by() == 100); /* it was replaced */
    atomic_store(&nodes[0].in_map, true);
    assert_true(owner_named_by() == 101);
    scene.base->ops->conclude(scene.base, &attempt, false);
}

/* The slot has moved before the ask is begun: whether the token can go along is found out when it is finished. */
TEST(an_attempt_of_another_node_is_not_begun)
{
    assert_status(DIBS_OK, carry_out(ask("x", true)));
    give_slot("x", 2);
    struct dibs__op op = dibs__op_ask(&attempt, &answer, the_time + MS(COMMAND_MS));
    scene.base->ops->begin(scene.base, &op);
    assert_int_equal(scene.nodes[2].begun, 0);
    assert_null(op.redirect);
    assert_status(DIBS_OK, finish(&op));
    assert_true(used_by_attempt() == 3);
}

/* It can be asked there again, since nothing has moved. */
TEST(an_attempt_in_doubt_stays_at_its_node)
{
    assert_status(DIBS_OK, carry_out(ask("x", true)));
    put_in_doubt();
    struct dibs__op op = dibs__op_ask(&attempt, &answer, the_time + MS(COMMAND_MS));
    scene.base->ops->begin(scene.base, &op);
    assert_status(DIBS_OK, finish(&op));
    assert_int_equal(answer.retired, DIBS__NOT_RETIRED);
    assert_int_equal(scene.nodes[0].dropped, 0);
    assert_int_equal(scene.nodes[0].finished, 2);
}

/* An ask that may still arrive at the first node: the token is retired, beginning there. */
TEST(an_attempt_in_doubt_does_not_come_along)
{
    assert_status(DIBS_OK, carry_out(ask("x", true)));
    put_in_doubt();
    give_slot("x", 1);
    struct dibs__op op = dibs__op_ask(&attempt, &answer, the_time + MS(COMMAND_MS));
    assert_status(DIBS_UNAVAILABLE, finish(&op));
    assert_int_equal(answer.retired, DIBS__RETIRED);
    assert_int_equal(scene.nodes[0].dropped, 1);
    assert_int_equal(scene.nodes[1].finished, 0);
    assert_true(used_by_attempt() == 0);
    op = dibs__op_ask(&attempt, &answer, the_time + MS(COMMAND_MS));
    assert_status(DIBS_OK, finish(&op));
    assert_int_equal(answer.retired, DIBS__NOT_RETIRED);
}

/* The release goes on, and says of the next attempt that its token is retired. */
TEST(a_release_asks_for_no_attempt_in_doubt)
{
    assert_status(DIBS_OK, carry_out(ask("x", true)));
    struct dibs__op op = release("x");
    op.release.next = (struct dibs__ask){&attempt, &answer};
    assert_status(DIBS_OK, finish(&op));
    assert_ptr_equal(scene.nodes[0].last.release.next.attempt, &attempt);
    assert_ptr_equal(op.release.next.attempt, &attempt);
    put_in_doubt();
    give_slot("x", 1);
    op = release("x");
    op.release.next = (struct dibs__ask){&attempt, &answer};
    assert_status(DIBS_OK, finish(&op));
    assert_int_equal(scene.nodes[1].finished, 1);
    assert_null(scene.nodes[1].last.release.next.attempt);
    assert_status(DIBS_UNAVAILABLE, op.release.next_status);
    assert_int_equal(answer.retired, DIBS__RETIRED);
    assert_ptr_equal(op.release.next.attempt, &attempt);
}

/* Only its answer may have told of it so far. */
TEST(the_server_of_a_node_is_known_from_its_first_grant)
{
    scene.nodes[0].server = 7;
    node_says(0, DIBS_BUSY, DIBS__REDIRECT_NONE, 0);
    node_says(0, DIBS_OK, DIBS__REDIRECT_NONE, 0);
    assert_status(DIBS_BUSY, carry_out(ask("x", false)));
    assert_true(atomic_load(&scene.cluster->nodes[0].server) == 0);
    scene.base->ops->conclude(scene.base, &attempt, false);
    assert_status(DIBS_OK, carry_out(query("x")));
    assert_true(atomic_load(&scene.cluster->nodes[0].server) == 0);
    assert_status(DIBS_OK, carry_out(ask("x", false)));
    assert_true(atomic_load(&scene.cluster->nodes[0].server) == 7);
    scene.base->ops->conclude(scene.base, &attempt, false);
    scene.nodes[0].server = 8; /* of which it has not told yet */
    assert_status(DIBS_OK, carry_out(ask("x", false)));
    assert_true(atomic_load(&scene.cluster->nodes[0].server) == 7);
}

/* ------------------------------------------------------------------ one name */

TEST(who_tells_when_a_lock_is_free_is_noted)
{
    scene.nodes[1].on = 3;
    uint64_t since = scene.base->ops->tell_when_free(scene.base, "y", 0);
    assert_true(since != 0 && scene.nodes[1].since == 0);
    assert_true(scene.base->ops->tell_when_free(scene.base, "y", since) == since);
    assert_true(scene.nodes[1].since == 3);
    give_slot("y", 2); /* which was asked nothing so far */
    scene.nodes[2].on = 3;
    uint64_t other = scene.base->ops->tell_when_free(scene.base, "y", since);
    assert_true(scene.nodes[2].since == 0 && other != since && other != 0);
    scene.nodes[2].on = 0;
    assert_true(scene.base->ops->tell_when_free(scene.base, "y", other) == 0);
}

/* While a slot moves, changes at the other node are not told. */
TEST(a_lease_is_not_kept_while_its_slot_moves)
{
    unsigned slot = dibs__cluster_slot(scene.cluster, "y");
    assert_false(scene.base->ops->can_keep(scene.base, "y"));
    scene.nodes[1].can_keep = true;
    assert_true(scene.base->ops->can_keep(scene.base, "y"));
    dibs__map_note_asked(scene.cluster, slot ^ 1); /* another slot */
    assert_true(scene.base->ops->can_keep(scene.base, "y"));
    dibs__map_note_asked(scene.cluster, slot);
    assert_false(scene.base->ops->can_keep(scene.base, "y"));
}

TEST(a_thread_listens_at_the_node_of_the_name)
{
    struct dibs__wait_event wait_event;

    dibs__wait_event_init(&wait_event);
    scene.base->ops->listen(scene.base, "z", &wait_event, the_time);
    assert_int_equal(scene.nodes[2].listened, 1);
    scene.base->ops->listen(scene.base, "z", NULL, the_time);
    assert_int_equal(scene.nodes[2].listened, 2);
    give_slot("z", DIBS__NO_NODE);
    scene.base->ops->listen(scene.base, "z", &wait_event, the_time);
    scene.base->ops->listen(scene.base, "z", NULL, the_time);
    assert_int_equal(scene.nodes[0].listened + scene.nodes[1].listened, 0);
}

/* ------------------------------------------------------------- what nodes report */

static struct dibs__listener listener_at(unsigned place)
{
    return dibs__redis_of(scene.cluster->nodes[place].member)->config.listener;
}

static void reports_reach(unsigned place, bool up)
{
    const struct dibs__listener to = listener_at(place);

    to.reachable(to.source, up, "it was cut");
}

TEST(a_cluster_is_out_of_reach_where_all_its_nodes_are)
{
    reports_reach(0, true);
    assert_false(atomic_load(&scene.cluster->map_wanted));
    reports_reach(0, false);
    assert_true(atomic_load(&scene.cluster->map_wanted)); /* another may have taken its place */
    reports_reach(1, false);
    assert_int_equal(scene.downs, 0);
    reports_reach(2, false);
    assert_int_equal(scene.downs, 1);
    assert_string_equal(scene.text, "it was cut");
    reports_reach(2, false);
    assert_int_equal(scene.downs, 1);
    reports_reach(1, true);
    assert_int_equal(scene.ups, 1);
    assert_string_equal(scene.text, scene.cluster->url.shown);
    reports_reach(2, true);
    assert_int_equal(scene.ups, 1);
    atomic_store(&scene.cluster->nodes[2].in_map, false); /* it does not matter any more */
    reports_reach(0, false);
    reports_reach(1, false);
    assert_int_equal(scene.downs, 2);
}

static void reports_watching(unsigned place, bool on)
{
    const struct dibs__listener to = listener_at(place);

    to.watching(to.source, on);
}

TEST(changes_are_told_while_any_node_tells_them)
{
    reports_watching(1, true);
    assert_true(scene.on == 1 && scene.off == 0);
    assert_int_equal(atomic_load(&scene.counters.tracking), 1);
    reports_watching(2, true);
    assert_true(scene.on == 2 && scene.off == 0);
    reports_watching(1, false); /* all are looked at again */
    assert_true(scene.on == 3 && scene.off == 1);
    assert_int_equal(atomic_load(&scene.counters.tracking), 1);
    reports_watching(2, false);
    assert_true(scene.on == 3 && scene.off == 2);
    assert_int_equal(atomic_load(&scene.counters.tracking), 0);
    assert_true(scene.cluster->watched);
}

/* The node that has the slot gives it back. */
TEST(a_grant_that_nobody_wants_is_retracted)
{
    const struct dibs__grant grant = {.name = "y", .token = "dibs:token", .number = 1, .fence = 7};

    const struct dibs__listener to = listener_at(2);
    scene.wants_grants = true;
    assert_true(to.granted(to.source, &grant));
    assert_int_equal(scene.nodes[1].retracted, 0);
    scene.wants_grants = false;
    assert_true(to.granted(to.source, &grant));
    assert_int_equal(scene.nodes[1].retracted, 1);
    assert_int_equal(scene.nodes[2].retracted, 0);
}

TEST(a_redirection_corrects_the_map)
{
    const struct dibs__node_hooks *hooks = &scene.cluster->nodes[0].hooks;
    unsigned slot = dibs__cluster_slot(scene.cluster, "x");
    assert_ptr_equal(hooks->redirected(hooks->context, true, slot, "b", 2), &scene.cluster->nodes[1]);
    assert_true(dibs__map_is_asked(scene.cluster, slot));
    assert_int_equal(atomic_load(&scene.cluster->owners[slot]), 0);
    assert_false(atomic_load(&scene.cluster->map_changed) || hooks->is_away(hooks->context, "x"));
    assert_ptr_equal(hooks->redirected(hooks->context, false, slot, "a", 1), &scene.cluster->nodes[0]);
    assert_false(atomic_load(&scene.cluster->map_changed));
    assert_true(atomic_load(&scene.cluster->map_wanted));
    assert_ptr_equal(hooks->redirected(hooks->context, false, slot, "c", 3), &scene.cluster->nodes[2]);
    assert_int_equal(atomic_load(&scene.cluster->owners[slot]), 2);
    assert_true(atomic_load(&scene.cluster->map_changed) && hooks->is_away(hooks->context, "x"));
    struct dibs__node *fourth = hooks->redirected(hooks->context, false, slot, "", 4); /* of the same host */
    assert_true(fourth && fourth->place == 3 && fourth->port == 4);
    assert_string_equal(fourth->host, "a");
    give_slot("x", DIBS__NO_NODE);
    assert_false(hooks->is_away(hooks->context, "x"));
}

TESTS(setup_cluster, end)
