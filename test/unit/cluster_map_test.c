/*
 * Which node has which slot: who is asked for that, when, and what is made of the answers. Against fake nodes, on a
 * clock that the test moves; the test plays the scheduler.
 */
#include <poll.h>

#include "cluster_nodes.h"
#include "support/fake_redis.h"

#define FAKES 3
#define MAPS_MOST 8
#define CONNECT_MS 4000
#define ROUTINE_MS 15000 /* about how often the map is asked for in any case */
#define PAUSE_MS 250     /* the longest pause while it may be wrong */
#define HALF (DIBS__SLOTS / 2)

static fake_redis *fakes[FAKES];
static struct moved_clock time_here;
static char maps[MAPS_MOST][256]; /* that fakes answer */
static size_t map_count;

static int setup(void **state)
{
    map_count = 0;
    moved_clock_init(&time_here);
    for (size_t i = 0; i < FAKES; i++)
        fakes[i] = fake_redis_start(true);
    return 0;
}

static int teardown(void **state)
{
    scene.base->ops->close(scene.base);
    for (size_t i = 0; i < FAKES; i++)
        fake_redis_stop(fakes[i]);
    moved_clock_destroy(&time_here);
    return 0;
}

/* The URL names the first of the fakes. */
static void open_at(size_t count)
{
    char url[128] = "redis-cluster://";

    for (size_t i = 0; i < count; i++)
        snprintf(url + strlen(url), sizeof url - strlen(url), "%s127.0.0.1:%d", i ? "," : "",
                 fake_redis_port(fakes[i]));
    open_cluster(url, &time_here.clock, CONNECT_MS, LIMIT_MS);
}

/* -------------------------------------------------------------- what nodes say */

static void answer_slots(size_t fake, const char *answer)
{
    fake_redis_answer(fakes[fake], "CLUSTER SLOTS", answer);
}

/* That fake says: the slots below HALF are at the port of `low`, the others at that of `high`. host: "?" of its own. */
static void name_halves(size_t fake, const char *host, size_t low, size_t high)
{
    char *map = maps[map_count++];

    assert_true(map_count <= MAPS_MOST);
    snprintf(map, sizeof maps[0],
             "*2\r\n*3\r\n:0\r\n:%d\r\n*2\r\n$%zu\r\n%s\r\n:%d\r\n*3\r\n:%d\r\n:%d\r\n*2\r\n$%zu\r\n%s\r\n:%d\r\n",
             HALF - 1, strlen(host), host, fake_redis_port(fakes[low]), HALF, DIBS__SLOTS - 1, strlen(host), host,
             fake_redis_port(fakes[high]));
    answer_slots(fake, map);
}

static unsigned asked(size_t fake)
{
    return fake_redis_count(fakes[fake], "CLUSTER SLOTS");
}

/* The place of the node that has the slot, as the map says. */
static unsigned owner(unsigned slot)
{
    return atomic_load(&scene.cluster->owners[slot]);
}

/* ------------------------------------------------------------- the scheduler */

static void turn(void)
{
    struct pollfd fds[64];
    int64_t until;
    size_t count = scene.base->ops->interest(scene.base, fds, &until);

    assert_true(count <= 64);
    poll(fds, (nfds_t)count, until > moved_clock_now(&time_here) ? 2 : 0);
    scene.base->ops->attend(scene.base, fds, count);
}

/* Goes on until it is so; the time stands still. */
#define TURN_UNTIL(condition) TEST_REPEAT(condition, #condition, turn())

/* To see that something does not happen. */
static void turn_a_while(void)
{
    for (int64_t end = now_ms() + 30; now_ms() < end;)
        turn();
}

static bool has_map(void)
{
    return atomic_load(&scene.cluster->mapped) && !scene.cluster->map_asked && !atomic_load(&scene.cluster->map_wanted);
}

/* How long it takes from now until the map is asked for, in ms. */
static int64_t asks_in_ms(void)
{
    return (dibs__map_deadline(scene.cluster) - moved_clock_now(&time_here)) / DIBS__NS_PER_MS;
}

/* The scheduler is connected to that node, so it can be asked for the map. */
static bool is_connected(const struct dibs__node *node)
{
    return dibs__channel_is_connected(dibs__redis_of(node->member)->background);
}

/* The first fake is connected, and has told the map: it has the lower half, the second the rest. */
static void open_mapped(void)
{
    for (size_t i = 0; i < FAKES; i++)
        name_halves(i, "127.0.0.1", 0, 1);
    open_at(1);
    assert_status(DIBS_OK, scene.base->ops->connect(scene.base, false, &error));
    assert_status(DIBS_OK, scene.base->ops->connect(scene.base, true, &error));
    assert_int_equal(asked(0), 1);
    TURN_UNTIL(is_connected(&scene.cluster->nodes[0]));
    moved_clock_advance(&time_here, MS(CONNECT_MS));
    TURN_UNTIL(has_map());
}

/* ---------------------------------------------------------------- what it says */

TEST(a_map_names_the_node_of_each_slot)
{
    open_mapped();
    assert_true(owner(0) == 0 && owner(HALF - 1) == 0);
    assert_true(owner(HALF) == 1 && owner(DIBS__SLOTS - 1) == 1);
    assert_true(atomic_load(&scene.cluster->nodes[0].in_map) && atomic_load(&scene.cluster->nodes[1].in_map));
    assert_false(atomic_load(&scene.cluster->nodes[2].in_map));
    assert_int_equal(atomic_load(&scene.cluster->node_count), 2);
}

/* Who is not named any more is in no map; what was noted of slots in motion is forgotten. */
TEST(the_next_map_replaces_it)
{
    open_mapped();
    name_halves(0, "?", 2, 0); /* its own host */
    dibs__map_note_asked(scene.cluster, 0);
    dibs__map_note_asked(scene.cluster, DIBS__SLOTS - 1);
    atomic_store(&scene.cluster->map_changed, false);
    assert_true(dibs__node_use(&scene.cluster->nodes[1]));
    assert_true(scene.cluster->tidy_at == DIBS__NEVER);
    dibs__map_want(scene.cluster);
    moved_clock_advance(&time_here, MS(PAUSE_MS));
    TURN_UNTIL(owner(0) == 2);
    assert_true(scene.cluster->tidy_at != DIBS__NEVER); /* a node may not be needed any more */
    dibs__node_unuse(&scene.cluster->nodes[1]);
    assert_true(owner(HALF) == 0 && !atomic_load(&scene.cluster->nodes[1].in_map));
    assert_true(atomic_load(&scene.cluster->nodes[2].in_map));
    assert_false(dibs__map_is_asked(scene.cluster, 0) || dibs__map_is_asked(scene.cluster, DIBS__SLOTS - 1));
}

TEST(slots_that_nobody_has_have_no_node)
{
    char map[128];

    snprintf(map, sizeof map, "*1\r\n*3\r\n:5\r\n:7\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n", fake_redis_port(fakes[0]));
    answer_slots(0, map);
    open_at(1);
    assert_status(DIBS_OK, scene.base->ops->connect(scene.base, true, &error));
    assert_true(owner(4) == DIBS__NO_NODE && owner(8) == DIBS__NO_NODE);
    assert_true(owner(5) == 0 && owner(6) == 0 && owner(7) == 0);
}

/* -------------------------------------------------------------- a thread asks */

TEST(hosts_that_do_not_tell_are_passed_over)
{
    fake_redis_refuse(fakes[0], true);
    answer_slots(1, "*0\r\n"); /* it has left the cluster */
    name_halves(2, "127.0.0.1", 1, 2);
    open_at(3);
    assert_status(DIBS_OK, scene.base->ops->connect(scene.base, true, &error));
    assert_true(owner(0) == 1 && owner(HALF) == 2);
    assert_true(asked(1) == 1 && asked(2) == 1);
}

/* What is told at last: a refusal, rather than that another is away. */
TEST(a_refusal_is_told_rather_than_silence)
{
    answer_slots(0, "-NOPERM no right\r\n");
    fake_redis_refuse(fakes[1], true);
    open_at(2);
    assert_status(DIBS_DENIED, scene.base->ops->connect(scene.base, true, &error));
    assert_int_equal(error.status, DIBS_DENIED);
    assert_int_equal(asked(0), 1); /* asking again would not help */
}

TEST(a_node_that_knows_nobody_is_told_of)
{
    answer_slots(0, "*0\r\n");
    open_at(1);
    assert_status(DIBS_UNAVAILABLE, scene.base->ops->connect(scene.base, true, &error));
    assert_that(strstr(error.detail, "knows nobody who has slots"), "%s", error.detail);
    assert_int_equal(asked(0), 1);
}

TEST(what_is_no_map_is_refused)
{
    answer_slots(0, "*1\r\n*3\r\n:5\r\n:16384\r\n*2\r\n$1\r\nh\r\n:1\r\n");
    open_at(1);
    assert_status(DIBS_STORE_ERROR, scene.base->ops->connect(scene.base, true, &error));
    assert_false(atomic_load(&scene.cluster->mapped));
    assert_int_equal(owner(5), DIBS__NO_NODE);
}

/* ---------------------------------------------------------- the scheduler asks */

TEST(the_map_is_asked_for_now_and_then)
{
    open_mapped();
    unsigned before = asked(0) + asked(1);
    turn_a_while();
    assert_int_equal(asked(0) + asked(1), before);
    moved_clock_advance(&time_here, MS(2 * ROUTINE_MS));
    TURN_UNTIL(has_map() && asked(0) + asked(1) == before + 1);
    assert_in_range(asks_in_ms(), ROUTINE_MS * 2 / 3 - 1, ROUTINE_MS * 4 / 3);
}

/* At once, then after pauses that grow as long as it stays so. */
TEST(a_map_that_may_be_wrong_is_asked_for_soon)
{
    int64_t longest_ms = 0;

    open_mapped();
    moved_clock_advance(&time_here, MS(3001));
    unsigned before = asked(0) + asked(1), wakes = scene.wakes + scene.wakes_by;
    for (unsigned i = 1; i <= 12; i++) {
        dibs__map_want(scene.cluster);
        assert_true(scene.wakes + scene.wakes_by > wakes);
        int64_t pause_ms = asks_in_ms();
        if (i == 1)
            assert_true(pause_ms <= 0);
        else if (i == 2)
            assert_in_range(pause_ms, 9, 20);
        else
            assert_in_range(pause_ms, 9, PAUSE_MS);
        longest_ms = pause_ms > longest_ms ? pause_ms : longest_ms;
        moved_clock_advance(&time_here, pause_ms >= 0 ? MS(pause_ms + 1) : 0);
        TURN_UNTIL(has_map() && asked(0) + asked(1) == before + i);
    }
    assert_true(longest_ms >= PAUSE_MS / 2);
    moved_clock_advance(&time_here, MS(PAUSE_MS + 3001)); /* it was right for long: then at once again */
    dibs__map_want(scene.cluster);
    TURN_UNTIL(has_map() && asked(0) + asked(1) == before + 13);
    dibs__map_want(scene.cluster);
    assert_in_range(asks_in_ms(), 9, 20);
}

/* A node of the map that is away may have been replaced; one that is in no map does not matter. */
TEST(while_a_node_is_away_the_map_is_asked_for)
{
    open_mapped();
    moved_clock_advance(&time_here, MS(1000));
    assert_true(asks_in_ms() > 3000);
    atomic_store(&scene.cluster->nodes[1].down, true);
    assert_true(asks_in_ms() <= 0);
    atomic_store(&scene.cluster->nodes[1].in_map, false);
    assert_true(asks_in_ms() > 3000);
    atomic_store(&scene.cluster->mapped, false);
    assert_true(asks_in_ms() <= 0);
    scene.cluster->map_asked = true;
    assert_true(dibs__map_deadline(scene.cluster) == DIBS__NEVER);
    scene.cluster->map_asked = false;
    atomic_store(&scene.cluster->mapped, true);
}

/* Of those that are connected, one after the other. */
TEST(the_nodes_are_asked_in_turn)
{
    open_mapped();
    struct dibs__node *third = dibs__node_at(scene.cluster, "127.0.0.1", fake_redis_port(fakes[2]));
    assert_true(dibs__node_use(&scene.cluster->nodes[1]) && dibs__node_use(third));
    TURN_UNTIL(is_connected(&scene.cluster->nodes[1]) && is_connected(third));
    unsigned first = asked(0), second = asked(1), before = first + second + asked(2);
    for (unsigned i = 1; i <= 6; i++) {
        dibs__map_want(scene.cluster);
        moved_clock_advance(&time_here, MS(PAUSE_MS + 1));
        TURN_UNTIL(has_map() && asked(0) + asked(1) + asked(2) == before + i);
    }
    assert_true(asked(0) == first + 2 && asked(1) == second + 2);
    dibs__node_unuse(&scene.cluster->nodes[1]);
    dibs__node_unuse(third);
}

/* It may not know: the others are connected to, and asked. */
TEST(a_node_that_does_not_tell_is_passed_over)
{
    open_mapped();
    assert_false(dibs__node_is_open(&scene.cluster->nodes[1]));
    answer_slots(0, "*0\r\n");
    name_halves(1, "127.0.0.1", 1, 0);
    dibs__map_want(scene.cluster);
    moved_clock_advance(&time_here, MS(PAUSE_MS + 1));
    TURN_UNTIL(dibs__node_is_open(&scene.cluster->nodes[1]));
    assert_true(atomic_load(&scene.cluster->map_wanted));
    for (int64_t limit = now_ms() + LIMIT_MS; owner(0) != 1; turn()) {
        assert_true(now_ms() < limit);
        moved_clock_advance(&time_here, MS(1));
    }
    assert_int_equal(owner(HALF), 0);
}

#if CAN_FAIL
TEST(without_memory_the_map_stays_as_it_was)
{
    for (size_t i = 0; i < FAKES; i++)
        name_halves(i, "127.0.0.1", 0, 1);
    open_at(1);
    dibs_status status = DIBS_NO_MEMORY;
    for (long fails = 1; status != DIBS_OK; fails++) {
        assert_true(fails < 100);
        assert_false(atomic_load(&scene.cluster->mapped));
        assert_int_equal(owner(0), DIBS__NO_NODE);
        fail_here(fails);
        status = scene.base->ops->connect(scene.base, true, &error);
        fail_no_more();
        assert_true(status == DIBS_OK || error.status == status);
    }
    assert_true(owner(0) == 0 && owner(HALF) == 1);
}
#endif

TESTS(setup, teardown)
