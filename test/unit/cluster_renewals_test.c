/* Batches that are divided among the nodes of a cluster, and what becomes of their leases. */
#include "cluster_nodes.h"

#define HOPS_MAX 5

static struct dibs__batch batch;
static unsigned landings, dones;
static enum dibs__renewed landed[DIBS__BATCH_MAX]; /* by the context of an item */
static dibs_status landed_why[DIBS__BATCH_MAX];
static uint64_t landed_server;

static void on_landed(struct dibs__batch *whole, struct dibs__batch *part, const struct dibs__error *why)
{
    assert_ptr_equal(whole, &batch);
    landings++;
    for (size_t i = 0; i < part->count; i++) {
        size_t place = (size_t)part->items[i].context;
        assert_int_equal(landed[place], 99); /* once */
        landed[place] = part->items[i].result;
        landed_why[place] = why->status;
        landed_server = dibs__redis_lease_server(&part->items[i].store_state);
    }
}

static void on_done(struct dibs__batch *whole, const struct dibs__error *why)
{
    assert_ptr_equal(whole, &batch);
    error = *why;
    dones++;
}

/* A batch of the leases of these names. */
static void renew(const char *const *names, size_t count, bool watch)
{
    batch = (struct dibs__batch){.watch = watch, .count = count, .done = on_done, .landed = on_landed};
    landings = dones = 0;
    for (size_t i = 0; i < count; i++) {
        batch.items[i] =
            (struct dibs__renewal){.name = names[i], .token = "dibs:token", .result = DIBS__GONE, .context = (void *)i};
        landed[i] = 99;
    }
    scene.base->ops->renew(scene.base, &batch);
}

/* The node answers all items of its part so. */
static void answers(unsigned place, enum dibs__renewed result, dibs_status why)
{
    struct dibs__batch *part = scene.nodes[place].batch;
    const struct dibs__error its = {why, ""};

    scene.nodes[place].batch = NULL;
    for (size_t i = 0; i < part->count; i++)
        if (part->items[i].redirect->kind == DIBS__REDIRECT_NONE)
            part->items[i].result = result;
    part->done(part, &its);
}

static void redirects(unsigned from, size_t item, enum dibs__redirect_kind kind, unsigned to)
{
    struct dibs__redirect *redirect = scene.nodes[from].batch->items[item].redirect;

    redirect->kind = kind;
    redirect->to = &scene.cluster->nodes[to];
}

static const char *const names[] = {"x", "y", "z", "x", "y"};

TEST(each_node_renews_its_own_leases)
{
    renew(names, 5, false);
    assert_int_equal(scene.nodes[0].batch->count, 2);
    assert_int_equal(scene.nodes[1].batch->count, 2);
    assert_int_equal(scene.nodes[2].batch->count, 1);
    assert_false(scene.nodes[0].batch->watch || scene.nodes[1].batch->watch || scene.nodes[2].batch->watch);
    assert_string_equal(scene.nodes[1].batch->items[1].name, "y");
    assert_true(scene.nodes[0].batch->items[0].result == DIBS__UNANSWERED);
    assert_true(batch.proof == the_time);
    answers(1, DIBS__RENEWED, DIBS_OK);
    assert_true(landings == 1 && dones == 0);
    answers(2, DIBS__GONE, DIBS_OK);
    answers(0, DIBS__RENEWED, DIBS_OK);
    assert_true(landings == 3 && dones == 1);
    assert_true(batch.count == 0 && error.status == DIBS_OK);
    assert_true(landed[0] == DIBS__RENEWED && landed[1] == DIBS__RENEWED && landed[2] == DIBS__GONE &&
                landed[3] == DIBS__RENEWED && landed[4] == DIBS__RENEWED);
    assert_false(atomic_load(&scene.cluster->map_wanted));
}

/* Whoever does not answer delays nobody, and the map may be wrong. */
TEST(a_node_that_does_not_answer_makes_the_map_doubtful)
{
    renew(names, 2, false);
    answers(0, DIBS__UNANSWERED, DIBS_UNAVAILABLE);
    assert_true(landed[0] == DIBS__UNANSWERED && landed_why[0] == DIBS_UNAVAILABLE);
    assert_true(atomic_load(&scene.cluster->map_wanted));
    answers(1, DIBS__RENEWED, DIBS_OK);
    assert_true(dones == 1);
}

TEST(a_lease_without_a_node_lands_unanswered)
{
    give_slot("y", DIBS__NO_NODE);
    renew(names, 5, false);
    assert_true(landings == 1 && dones == 0);
    assert_true(landed[1] == DIBS__UNANSWERED && landed[4] == DIBS__UNANSWERED);
    assert_true(landed_why[1] == DIBS_UNAVAILABLE && landed[0] == 99);
    assert_true(atomic_load(&scene.cluster->map_wanted));
    answers(0, DIBS__RENEWED, DIBS_OK);
    answers(2, DIBS__RENEWED, DIBS_OK);
    assert_true(dones == 1 && landed[0] == DIBS__RENEWED && landed[3] == DIBS__RENEWED);
    renew(&names[1], 1, false);
    assert_true(landings == 1 && dones == 1); /* at once */
}

TEST(redirected_leases_go_on_by_themselves)
{
    static const char *const all_first[] = {"x", "x", "x", "x"};

    renew(all_first, 4, false);
    redirects(0, 0, DIBS__REDIRECT_MOVED, 1);
    redirects(0, 1, DIBS__REDIRECT_ASK, 2);
    redirects(0, 3, DIBS__REDIRECT_MOVED, 1);
    answers(0, DIBS__RENEWED, DIBS_OK);
    assert_true(landings == 1 && dones == 0 && landed[2] == DIBS__RENEWED && landed[0] == 99);
    assert_int_equal(scene.nodes[1].batch->count, 2);
    assert_int_equal(scene.nodes[2].batch->count, 1);
    assert_false(scene.nodes[1].batch->items[0].redirect->asking);
    assert_true(scene.nodes[2].batch->items[0].redirect->asking);
    assert_false(atomic_load(&scene.cluster->map_wanted));
    answers(2, DIBS__RENEWED, DIBS_OK);
    answers(1, DIBS__GONE, DIBS_OK);
    assert_true(dones == 1 && landed[0] == DIBS__GONE && landed[1] == DIBS__RENEWED && landed[3] == DIBS__GONE);
}

/* A slot in motion, or a circle: the lease is tried again with the next batch. */
TEST(a_lease_that_is_sent_about_lands_unanswered)
{
    renew(names, 1, false);
    redirects(0, 0, DIBS__REDIRECT_AGAIN, 1);
    answers(0, DIBS__RENEWED, DIBS_OK);
    assert_true(dones == 1 && landed[0] == DIBS__UNANSWERED && !scene.nodes[1].batch);
    renew(names, 1, false);
    for (unsigned hop = 0; hop < HOPS_MAX; hop++) {
        redirects(hop % 2, 0, DIBS__REDIRECT_MOVED, (hop + 1) % 2);
        answers(hop % 2, DIBS__RENEWED, DIBS_OK);
        assert_int_equal(dones, 0);
    }
    redirects(HOPS_MAX % 2, 0, DIBS__REDIRECT_MOVED, (HOPS_MAX + 1) % 2);
    answers(HOPS_MAX % 2, DIBS__RENEWED, DIBS_OK);
    assert_true(dones == 1 && landed[0] == DIBS__UNANSWERED);
}

TEST(a_look_tells_the_results_in_the_batch_itself)
{
    give_slot("z", DIBS__NO_NODE);
    renew(names, 5, true);
    assert_true(scene.nodes[0].batch->watch);
    answers(0, DIBS__WATCHED, DIBS_OK);
    redirects(1, 0, DIBS__REDIRECT_MOVED, 2); /* the next look finds it */
    answers(1, DIBS__GONE, DIBS_OK);
    assert_true(dones == 1 && landings == 0 && batch.count == 5);
    assert_true(batch.items[0].result == DIBS__WATCHED && batch.items[3].result == DIBS__WATCHED);
    assert_true(batch.items[1].result == DIBS__UNANSWERED && batch.items[2].result == DIBS__UNANSWERED &&
                batch.items[4].result == DIBS__GONE);
    assert_null(scene.nodes[2].batch);
    assert_false(atomic_load(&scene.cluster->map_wanted));
}

#if CAN_FAIL
TEST(without_memory_leases_land_unanswered)
{
    fail_here(1);
    renew(names, 3, false);
    assert_true(dones == 1 && error.status == DIBS_NO_MEMORY);
    batch.count = 2;
    batch.items[2].result = DIBS__GONE; /* which is none of the batch */
    atomic_store(&fail_at, 1);
    dones = 0;
    scene.base->ops->renew(scene.base, &batch);
    assert_true(dones == 1 && error.status == DIBS_NO_MEMORY && batch.items[2].result == DIBS__GONE);
    assert_true(batch.items[0].result == DIBS__UNANSWERED && batch.items[1].result == DIBS__UNANSWERED);
    atomic_store(&fail_at, 2); /* the part of the first node */
    renew(names, 2, false);
    assert_true(landings == 1 && landed[0] == DIBS__UNANSWERED && !scene.nodes[0].batch);
    redirects(1, 0, DIBS__REDIRECT_MOVED, 2);
    atomic_store(&fail_at, 1); /* the part that goes on */
    answers(1, DIBS__RENEWED, DIBS_OK);
    assert_true(dones == 1 && landed[1] == DIBS__UNANSWERED);
    fail_no_more();
}
#endif

/* -------------------------------------------------------- who confirmed a lease */

static struct dibs__lease_store_state lease_of(uint64_t server)
{
    struct dibs__lease_store_state lease = {.words = {0}};

    dibs__redis_lease_of(&lease)->server = server;
    return lease;
}

static bool is_unconfirmed(uint64_t server)
{
    const struct dibs__lease_store_state lease = lease_of(server);

    return scene.base->ops->is_unconfirmed(scene.base, &lease);
}

TEST(a_lease_is_confirmed_where_its_server_is_one_of_the_cluster)
{
    assert_false(is_unconfirmed(7)); /* no server is known */
    atomic_store(&scene.cluster->nodes[2].server, 7);
    assert_false(is_unconfirmed(7));
    assert_true(is_unconfirmed(8));
    assert_true(is_unconfirmed(0));
    atomic_store(&scene.cluster->nodes[1].server, 8);
    atomic_store(&scene.cluster->nodes[2].in_map, false);
    assert_true(is_unconfirmed(7));
    assert_false(is_unconfirmed(8));
    atomic_store(&scene.cluster->nodes[1].in_map, false);
    assert_false(is_unconfirmed(7));
}

/* The lease of "x", which that server confirmed, is sent to the first node. */
static uint64_t renew_lease_of(uint64_t server)
{
    batch = (struct dibs__batch){.count = 1, .done = on_done, .landed = on_landed};
    batch.items[0] = (struct dibs__renewal){.name = "x", .token = "dibs:token", .store_state = lease_of(server)};
    landed[0] = 99;
    scene.base->ops->renew(scene.base, &batch);
    return dibs__redis_lease_server(&scene.nodes[0].batch->items[0].store_state);
}

/* Its server knows what the other one knew, unless that one is gone. */
TEST(a_lease_that_came_with_its_slot_is_confirmed_there)
{
    struct dibs__redis_store *member = dibs__redis_of(scene.cluster->nodes[0].member);

    atomic_store(&scene.cluster->nodes[1].server, 8);
    for (int knows_here = 0; knows_here < 2; knows_here++)
        for (uint64_t of = 8; of <= 9; of++) {
            uint64_t sent = knows_here && of == 8 ? 7 : of;
            atomic_store(&member->renewal_server, knows_here ? 7 : 0);
            assert_true(renew_lease_of(of) == sent);
            answers(0, DIBS__RENEWED, DIBS_OK);
            assert_true(landed[0] == DIBS__RENEWED && landed_server == sent);
            renew_lease_of(of);
            answers(0, DIBS__GONE, DIBS_OK);
            assert_true(landed[0] == DIBS__GONE);
        }
}

/*
 * A replica may have taken over without it. No request restores the lease before its holder knows of that, since
 * it might do so behind a release.
 */
TEST(a_lease_that_is_gone_behind_a_correction_is_not_lost_before_a_map_has_come)
{
    atomic_store(&scene.cluster->nodes[1].server, 8);
    atomic_store(&dibs__redis_of(scene.cluster->nodes[0].member)->renewal_server, 7);
    atomic_store(&scene.cluster->corrections, 1);
    assert_true(renew_lease_of(8) == 7);
    answers(0, DIBS__RENEWED, DIBS_OK);
    assert_true(landed[0] == DIBS__RENEWED && landed_server == 7);
    renew_lease_of(8);
    answers(0, DIBS__UNANSWERED, DIBS_UNAVAILABLE);
    assert_true(landed[0] == DIBS__UNANSWERED && landed_server == 8);
    renew_lease_of(8);
    answers(0, DIBS__GONE, DIBS_OK);
    assert_true(landed[0] == DIBS__UNANSWERED && landed_server == 8);
    assert_true(atomic_load(&scene.cluster->map_wanted));
    renew_lease_of(7);
    answers(0, DIBS__GONE, DIBS_OK);
    assert_true(landed[0] == DIBS__GONE);
    atomic_store(&scene.cluster->known_corrections, 1);
    renew_lease_of(8);
    answers(0, DIBS__GONE, DIBS_OK);
    assert_true(landed[0] == DIBS__GONE);
}

/* The node by which it was named still has the slot, so it was not replaced. */
TEST(a_lease_that_is_gone_behind_an_ask_is_lost)
{
    static const enum dibs__redirect_kind kinds[] = {DIBS__REDIRECT_MOVED, DIBS__REDIRECT_ASK};

    atomic_store(&scene.cluster->nodes[0].server, 8);
    atomic_store(&dibs__redis_of(scene.cluster->nodes[1].member)->renewal_server, 7);
    atomic_store(&scene.cluster->corrections, 1);
    for (size_t i = 0; i < 2; i++) {
        renew_lease_of(8);
        redirects(0, 0, kinds[i], 1);
        answers(0, DIBS__UNANSWERED, DIBS_OK);
        assert_true(dibs__redis_lease_server(&scene.nodes[1].batch->items[0].store_state) == 7);
        answers(1, DIBS__GONE, DIBS_OK);
        assert_true(landed[0] == (kinds[i] == DIBS__REDIRECT_ASK ? DIBS__GONE : DIBS__UNANSWERED));
    }
}

TESTS(setup_cluster, teardown_cluster)
