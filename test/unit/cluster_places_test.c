/* The nodes of a cluster: their places, when they are opened and closed, and what goes to all of them. */
#include "cluster_nodes.h"

#define IDLE_MS 5000
#define TIDY_MS 1000

static struct pollfd fds[16];
static int64_t deadline;

/* One turn of the scheduler. */
static void attend(void)
{
    size_t count = scene.base->ops->interest(scene.base, fds, &deadline);

    scene.base->ops->attend(scene.base, fds, count);
}

static struct dibs__node *node_at(unsigned place)
{
    return &scene.cluster->nodes[place];
}

/* All places are taken; the nodes have ports from 1001 on. */
static void take_all_places(void)
{
    for (unsigned i = NODES; i < DIBS__NODES_MAX; i++)
        assert_ptr_equal(dibs__node_at(scene.cluster, "h", 1000 + i), node_at(i));
}

TEST(a_node_has_one_place)
{
    assert_ptr_equal(dibs__node_at(scene.cluster, "b", 2), node_at(1));
    assert_ptr_equal(dibs__node_at(scene.cluster, "b", 3), node_at(3)); /* another port, or another host */
    assert_ptr_equal(dibs__node_at(scene.cluster, "c", 2), node_at(4));
    assert_ptr_equal(dibs__node_at(scene.cluster, "b", 3), node_at(3));
    assert_int_equal(atomic_load(&scene.cluster->node_count), 5);
    assert_ptr_equal(dibs__node_named_by(node_at(2), "", 3), node_at(2));
    assert_ptr_equal(dibs__node_named_by(node_at(2), "a", 1), node_at(0));
}

/* That of a node that is closed, and that the map does not name; a host of the URL keeps its own. */
TEST(a_place_is_given_again)
{
    take_all_places();
    assert_ptr_equal(dibs__node_at(scene.cluster, "i", 1), node_at(3));
    assert_string_equal(node_at(3)->host, "i");
    assert_int_equal(node_at(3)->port, 1);
    atomic_store(&node_at(3)->in_map, true);
    assert_true(dibs__node_use(node_at(4)));
    assert_ptr_equal(dibs__node_at(scene.cluster, "i", 2), node_at(5));
    for (unsigned i = NODES; i < DIBS__NODES_MAX; i++)
        atomic_store(&node_at(i)->in_map, true);
    assert_null(dibs__node_at(scene.cluster, "i", 3));
    assert_int_equal(atomic_load(&scene.cluster->node_count), DIBS__NODES_MAX);
    dibs__node_unuse(node_at(4));
}

TEST(a_node_is_opened_by_its_first_user_and_closed_without_any)
{
    struct dibs__node *node = dibs__node_at(scene.cluster, "h", 4);
    unsigned wakes = scene.wakes;
    assert_false(dibs__node_is_open(node));
    assert_true(dibs__node_use(node));
    assert_int_equal(scene.wakes, wakes + 1); /* there is more to poll for */
    assert_true(dibs__node_use(node));
    assert_int_equal(scene.wakes, wakes + 1);
    assert_int_equal(atomic_load(&node->users), 2);
    dibs__node_unuse(node);
    assert_false(dibs__node_close(node));
    dibs__node_unuse(node);
    assert_true(dibs__node_is_open(node));
    atomic_store(&node->server, 7);
    atomic_store(&node->down, true);
    node->watching = true;
    assert_true(dibs__node_close(node));
    assert_true(!dibs__node_is_open(node) && atomic_load(&node->server) == 0);
    assert_true(!atomic_load(&node->down) && !node->watching);
    assert_false(dibs__node_close(node));
    assert_true(dibs__node_use(node)); /* anew */
    dibs__node_unuse(node);
}

TEST(who_has_no_place_or_is_being_closed_is_not_used)
{
    assert_false(dibs__node_use(node_at(NODES)));
    struct dibs__node *node = dibs__node_at(scene.cluster, "h", 4);
    dibs__cluster_mutex_lock(&scene.cluster->mutex);
    scene.cluster->is_closing = true;
    dibs__cluster_mutex_unlock(&scene.cluster->mutex);
    assert_false(dibs__node_use(node));
    assert_true(dibs__node_use(node_at(0)));
    dibs__node_unuse(node_at(0));
}

/* ------------------------------------------------------------- the scheduler */

/* In how many ms a node that the map does not name is closed; -1: not in twice the time. */
static int64_t closes_in(struct dibs__node *node)
{
    int64_t began = the_time;

    scene.cluster->map_due = DIBS__NEVER;
    scene.cluster->tidy_at = the_time;
    attend();
    while (dibs__node_is_open(node) && the_time < began + MS(2 * IDLE_MS)) {
        scene.base->ops->interest(scene.base, fds, &deadline);
        if (deadline == DIBS__NEVER)
            return -1;
        assert_true(deadline > the_time);
        the_time = deadline;
        attend();
    }
    return dibs__node_is_open(node) ? -1 : (the_time - began) / MS(1);
}

/* A fourth node, which the URL does not name. */
static struct dibs__node *open_fourth(void)
{
    struct dibs__node *node = dibs__node_at(scene.cluster, "h", 4);

    note_node(node);
    return node;
}

TEST(a_node_that_is_not_needed_is_closed_after_a_while)
{
    assert_int_equal(closes_in(open_fourth()), IDLE_MS);
    attend();
    assert_true(scene.cluster->tidy_at == DIBS__NEVER); /* there is no other */
}

TEST(a_node_that_is_needed_stays_open)
{
    struct dibs__node *node = open_fourth();
    atomic_store(&node->in_map, true);
    assert_int_equal(closes_in(node), -1);
    atomic_store(&node->in_map, false);
    assert_true(dibs__node_use(node));
    assert_int_equal(closes_in(node), -1);
    assert_true(scene.cluster->tidy_at == the_time + MS(TIDY_MS));
    dibs__node_unuse(node);
    atomic_store(&scene.cluster->mapped, false);
    assert_int_equal(closes_in(node), -1);
    atomic_store(&scene.cluster->mapped, true);
    scene.nodes[NODES].true_ops->retract(node->member, "x", "dibs:token", 3600000, 7); /* which is not confirmed */
    give_slot("x", node->place);
    assert_int_equal(closes_in(node), -1);
}

/* The time without a user counts from its last use. */
TEST(a_use_begins_the_time_anew)
{
    struct dibs__node *node = open_fourth();
    scene.cluster->map_due = DIBS__NEVER;
    scene.cluster->tidy_at = the_time;
    attend();
    the_time += MS(IDLE_MS - TIDY_MS);
    assert_true(dibs__node_use(node));
    attend();
    dibs__node_unuse(node);
    assert_int_equal(closes_in(node), IDLE_MS);
}

TEST(changes_of_the_map_are_told_once)
{
    attend();
    assert_int_equal(scene.ask_agains + scene.moved, 0);
    atomic_store(&scene.cluster->map_changed, true);
    scene.cluster->map_asked = true; /* more may change */
    attend();
    assert_int_equal(scene.ask_agains, 0);
    scene.cluster->map_asked = false;
    atomic_store(&scene.cluster->map_wanted, true);
    scene.cluster->map_at = DIBS__NEVER;
    attend();
    assert_int_equal(scene.ask_agains, 0);
    atomic_store(&scene.cluster->map_wanted, false);
    attend();
    assert_true(scene.ask_agains == 1 && scene.moved == 1 && scene.on == 0);
    attend();
    assert_int_equal(scene.ask_agains, 1);
    scene.cluster->watched = true;
    atomic_store(&scene.cluster->map_changed, true);
    attend();
    assert_true(scene.ask_agains == 2 && scene.moved == 2 && scene.on == 1);
}

TEST(each_node_attends_to_its_own_descriptors)
{
    for (size_t i = 0; i < NODES; i++)
        scene.nodes[i].fd_count = i == 1 ? 0 : i + 1;
    scene.cluster->map_due = DIBS__NEVER;
    size_t count = scene.base->ops->interest(scene.base, fds, &deadline);
    assert_int_equal(count, 4);
    assert_true(deadline == DIBS__NEVER);
    assert_true(fds[0].fd == 0 && fds[1].fd == 2 && fds[3].fd == 2);
    scene.base->ops->attend(scene.base, fds, count);
    assert_true(scene.nodes[0].attended == fds && scene.nodes[2].attended == fds + 1);
    assert_null(scene.nodes[1].attended);
    for (size_t i = 0; i < NODES; i++) {
        scene.nodes[i].deadline = the_time + 5 - (int64_t)i;
        scene.base->ops->interest(scene.base, fds, &deadline);
        assert_true(deadline == scene.nodes[i].deadline);
    }
    scene.cluster->tidy_at = the_time + 2;
    scene.base->ops->interest(scene.base, fds, &deadline);
    assert_true(deadline == the_time + 2);
    scene.cluster->map_due = the_time + 1;
    scene.base->ops->interest(scene.base, fds, &deadline);
    assert_true(deadline == the_time + 1);
}

TEST(where_several_hosts_are_named_one_may_fail)
{
    scene.nodes[0].connects = DIBS_UNAVAILABLE;
    assert_status(DIBS_OK, scene.base->ops->connect(scene.base, false, &error));
    scene.cluster->seeds = 1;
    assert_status(DIBS_UNAVAILABLE, scene.base->ops->connect(scene.base, false, &error));
    scene.nodes[0].connects = DIBS_OK;
    assert_status(DIBS_OK, scene.base->ops->connect(scene.base, false, &error));
}

/* ---------------------------------------------------------- what goes to all */

/* The slots are divided among the first nodes. */
static void divide_slots(unsigned nodes)
{
    for (unsigned slot = 0; slot < DIBS__SLOTS; slot++)
        atomic_store(&scene.cluster->owners[slot], (unsigned char)(slot % nodes));
}

static dibs_status walk(void)
{
    const struct dibs__walk how = {.pattern = NULL};

    for (size_t i = 0; i < NODES; i++)
        scene.nodes[i].walked = 0;
    return scene.base->ops->walk(scene.base, &how, &error);
}

TEST(each_master_is_walked_over_once)
{
    divide_slots(NODES);
    int64_t began = the_time;
    assert_status(DIBS_OK, walk());
    for (size_t i = 0; i < NODES; i++)
        assert_int_equal(scene.nodes[i].walked, 1);
    scene.nodes[1].walks = DIBS_DENIED;
    assert_status(DIBS_DENIED, walk());
    assert_int_equal(scene.nodes[2].walked, 0);
    assert_true(the_time == began);
}

static void third_has_all(void)
{
    if (scene.sleep_count == 3)
        for (unsigned slot = 0; slot < DIBS__SLOTS; slot++)
            atomic_store(&scene.cluster->owners[slot], 2);
}

/* It may have an heir soon. */
TEST(a_master_that_does_not_answer_is_waited_for)
{
    divide_slots(NODES);
    scene.nodes[1].walks = DIBS_UNAVAILABLE;
    int64_t began = the_time;
    assert_status(DIBS_UNAVAILABLE, walk());
    assert_true(the_time == began + MS(COMMAND_MS));
    assert_true(atomic_load(&scene.cluster->map_wanted));
    assert_int_equal(scene.nodes[0].walked, 1);
    scene.sleep_count = 0;
    scene.sleeps = third_has_all;
    assert_status(DIBS_OK, walk());
    assert_int_equal(scene.nodes[1].walked, 3);
    assert_int_equal(scene.nodes[2].walked, 1);
}

/* Each has a command timeout of its own, from the last that answered. */
TEST(a_slot_without_a_master_is_waited_for)
{
    divide_slots(NODES);
    atomic_store(&scene.cluster->owners[100], DIBS__NO_NODE);
    int64_t began = the_time;
    assert_status(DIBS_UNAVAILABLE, walk());
    assert_true(strstr(error.detail, "no node has the slot 100"));
    assert_true(the_time == began + MS(COMMAND_MS));
}

static struct {
    unsigned count;
    dibs_verdict verdict;
    char text[256];
} told;

static bool found(void *context, const dibs_finding *finding)
{
    told.count++;
    told.verdict = finding->verdict;
    snprintf(told.text, sizeof told.text, "%s", finding->text);
    assert_string_equal(finding->server, scene.cluster->url.shown);
    return true;
}

static dibs_status examine(void)
{
    struct dibs__examination examination = {.found = found};

    told.count = 0;
    for (size_t i = 0; i < NODES; i++)
        scene.nodes[i].examined = 0;
    return scene.base->ops->examine(scene.base, &examination, &error);
}

static void expect_told(dibs_verdict verdict, const char *text)
{
    assert_status(DIBS_OK, examine());
    assert_int_equal(told.count, 1);
    assert_int_equal(told.verdict, verdict);
    assert_that(strncmp(told.text, text, strlen(text)) == 0, "%s", told.text);
}

TEST(each_master_is_examined_once_and_the_slots_are_counted)
{
    divide_slots(3);
    expect_told(DIBS_VERDICT_OK, "Each slot has a master; there are 3 masters.");
    for (size_t i = 0; i < NODES; i++)
        assert_int_equal(scene.nodes[i].examined, 1);
    scene.nodes[1].away = true;
    expect_told(DIBS_VERDICT_BAD, "1 of 3 masters can't be reached: the locks in their slots");
    scene.nodes[1].away = false;
    divide_slots(2);
    expect_told(DIBS_VERDICT_WARN, "There are 2 masters: when one fails");
    divide_slots(1);
    expect_told(DIBS_VERDICT_WARN, "There is 1 master: when one fails");
    atomic_store(&scene.cluster->owners[0], DIBS__NO_NODE);
    atomic_store(&scene.cluster->owners[DIBS__SLOTS - 1], DIBS__NO_NODE);
    expect_told(DIBS_VERDICT_BAD, "2 of 16384 slots have no master");
    scene.nodes[0].examines = DIBS_CLOSED;
    assert_status(DIBS_CLOSED, examine());
    assert_int_equal(told.count, 0);
}

TESTS(setup_cluster, teardown_cluster)
