/* What goes to all masters: the walk over the names of locks, and the examination. */
#include "store/cluster/cluster_parts.h"

#define MASTERS_ENOUGH 3

/* The masters that were asked already, by their places; and until when the next one is waited for. */
struct tour {
    bool asked[DIBS__NODES_MAX];
    int64_t until;
    struct dibs__backoff backoff;
};

/* The first slot whose owner was not asked yet, or that has no owner; DIBS__SLOTS: there is none. */
static unsigned next_slot(const struct dibs__cluster *cluster, const struct tour *tour)
{
    unsigned slot = 0;

    for (; slot < DIBS__SLOTS; slot++) {
        unsigned char place = atomic_load_explicit(&cluster->owners[slot], memory_order_relaxed);
        if (place == DIBS__NO_NODE || !tour->asked[place])
            break;
    }
    return slot;
}

/*
 * The owner of the slot did not answer, but another node may be its owner soon. False: that was waited for long enough.
 */
static bool wait_for_another(struct dibs__cluster *cluster, struct tour *tour)
{
    dibs__map_want(cluster);
    if (dibs__now(cluster->config.clock) >= tour->until)
        return false;
    dibs__cluster_pause(cluster, &tour->backoff, tour->until);
    return true;
}

static dibs_status walk_one(struct dibs__cluster *cluster, struct tour *tour, unsigned slot,
                            const struct dibs__walk *walk, struct dibs__error *error)
{
    struct dibs__node *node = dibs__map_use_owner(cluster, slot, error);

    if (!node)
        return error->status;
    dibs_status status = node->member->ops->walk(node->member, walk, error);
    tour->asked[node->place] = status == DIBS_OK;
    dibs__node_unuse(node);
    return status;
}

static void set_time(const struct dibs__cluster *cluster, struct tour *tour)
{
    tour->until = dibs__after_ms(dibs__now(cluster->config.clock), cluster->config.command_timeout_ms);
    dibs__backoff_reset(&tour->backoff);
}

dibs_status dibs__cluster_walk(struct dibs__store *base, const struct dibs__walk *walk, struct dibs__error *error)
{
    struct dibs__cluster *cluster = dibs__cluster_of(base);
    struct tour tour = {.backoff = {.first_ms = DIBS__PAUSE_FIRST_MS}};
    unsigned slot;

    set_time(cluster, &tour);
    if (!atomic_load(&cluster->mapped) && dibs__map_fetch(cluster, tour.until, error) != DIBS_OK)
        return error->status;
    while ((slot = next_slot(cluster, &tour)) < DIBS__SLOTS) {
        dibs_status status = walk_one(cluster, &tour, slot, walk, error);
        if (status == DIBS_OK)
            set_time(cluster, &tour);
        else if (status != DIBS_UNAVAILABLE || !wait_for_another(cluster, &tour))
            return status;
    }
    return DIBS_OK;
}

static dibs_status examine_one(struct dibs__cluster *cluster, unsigned char place,
                               struct dibs__examination *examination, struct dibs__error *error)
{
    struct dibs__node *node = &cluster->nodes[place];

    if (!dibs__node_use(node))
        return dibs__error_set(error, DIBS_NO_MEMORY, "no memory or descriptor for a node of a cluster");
    dibs_status status = node->member->ops->examine(node->member, examination, error);
    dibs__node_unuse(node);
    return status;
}

/*
 * Reports on the cluster as a whole: how many masters have slots, how many of these can be reached, and how many slots
 * have no owner.
 */
static void tell_of_slots(const struct dibs__cluster *cluster, struct dibs__examination *examination, unsigned masters,
                          unsigned reached, unsigned unowned)
{
    const char *shown = cluster->url.shown;

    if (unowned > 0)
        dibs__found(examination, shown, "cluster", DIBS_VERDICT_BAD,
                    "Bring the masters of these slots back, or give the slots to others (redis-cli --cluster fix).",
                    "%u of %u slots have no master: the locks in them can't be taken.", unowned, DIBS__SLOTS);
    else if (reached < masters)
        dibs__found(examination, shown, "cluster", DIBS_VERDICT_BAD, "See the lines of these masters.",
                    "%u of %u masters can't be reached: the locks in their slots can't be taken.", masters - reached,
                    masters);
    else if (masters < MASTERS_ENOUGH)
        dibs__found(examination, shown, "cluster", DIBS_VERDICT_WARN, "Use at least three masters.",
                    "There %s %u master%s: when one fails, the rest is no majority, and there is no failover.",
                    masters == 1 ? "is" : "are", masters, masters == 1 ? "" : "s");
    else
        dibs__found(examination, shown, "cluster", DIBS_VERDICT_OK, "", "Each slot has a master; there are %u masters.",
                    masters);
}

dibs_status dibs__cluster_examine(struct dibs__store *base, struct dibs__examination *examination,
                                  struct dibs__error *error)
{
    struct dibs__cluster *cluster = dibs__cluster_of(base);
    unsigned masters = 0, reached = 0, unowned = 0;
    struct tour tour = {.until = 0};

    set_time(cluster, &tour);
    if (!atomic_load(&cluster->mapped) && dibs__map_fetch(cluster, tour.until, error) != DIBS_OK) {
        dibs__found(examination, cluster->url.shown, "connection", DIBS_VERDICT_BAD,
                    "Start the nodes, or correct the URL.", "No node tells who has which slots: %s.", error->detail);
        return DIBS_OK;
    }
    for (unsigned slot = 0; slot < DIBS__SLOTS; slot++) {
        unsigned char place = atomic_load(&cluster->owners[slot]);
        unowned += place == DIBS__NO_NODE;
        if (place == DIBS__NO_NODE || tour.asked[place])
            continue;
        tour.asked[place] = true;
        masters++;
        if (examine_one(cluster, place, examination, error) != DIBS_OK)
            return error->status;
        reached += examination->reached;
    }
    tell_of_slots(cluster, examination, masters, reached, unowned);
    return DIBS_OK;
}
