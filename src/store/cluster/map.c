/*
 * Which node has which slot. The map comes as a whole, by CLUSTER SLOTS, from any node that answers. What a node says
 * when it redirects an operation corrects the map. When the map may be wrong, it is asked for again: at once, then
 * after pauses that grow as long as it stays so.
 */
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "store/cluster/cluster_parts.h"

/* The longest pause; a waiter for a lock of a node that failed waits that much longer for its heir. */
#define AGAIN_LAST_MS 250
#define SETTLED_MS 3000   /* after the map was right for this long, the next wrong one is asked for at once */
#define OPEN_AT_ONCE 3    /* number of further nodes to connect to at a time, if none can be asked */
#define FETCH_FIRST_MS 50 /* how long the first node may take before the next is connected to as well */

/* ------------------------------------------------------------------ the slots */

unsigned dibs__cluster_slot(const struct dibs__cluster *cluster, const char *name)
{
    char key[DIBS__PREFIX_MAX + DIBS_NAME_MAX + 1];
    size_t prefix_size = strlen(cluster->config.key_prefix), name_size = strlen(name);

    DIBS__REQUIRE(prefix_size + name_size < sizeof key);
    memcpy(key, cluster->config.key_prefix, prefix_size);
    memcpy(key + prefix_size, name, name_size);
    return dibs__slot_of(key, prefix_size + name_size);
}

void dibs__map_want(struct dibs__cluster *cluster)
{
    const struct dibs__listener *listener = &cluster->config.listener;

    if (!atomic_exchange(&cluster->map_wanted, true))
        listener->wake(listener->context);
}

static void see_no_owner(struct dibs__cluster *cluster, unsigned slot, struct dibs__error *error)
{
    dibs__map_want(cluster);
    dibs__error_set(error, DIBS_UNAVAILABLE, "%s: no node has the slot %u", cluster->url.shown, slot);
    atomic_store(&cluster->unserved, (int)slot);
    dibs__cluster_see_reach(cluster, error->detail);
}

struct dibs__node *dibs__map_use_owner(struct dibs__cluster *cluster, unsigned slot, struct dibs__error *error)
{
    unsigned char place = atomic_load_explicit(&cluster->owners[slot], memory_order_acquire);

    if (place != DIBS__NO_NODE && dibs__node_use(&cluster->nodes[place]))
        return &cluster->nodes[place];
    if (error && place != DIBS__NO_NODE)
        dibs__error_set(error, DIBS_NO_MEMORY, "no memory or descriptor for a node of a cluster");
    else if (error)
        see_no_owner(cluster, slot, error);
    return NULL;
}

void dibs__map_correct(struct dibs__cluster *cluster, unsigned slot, const struct dibs__node *node)
{
    if (atomic_load(&cluster->owners[slot]) != node->place)
        atomic_fetch_add(&cluster->corrections, 1); /* before others see the new owner */
    if (atomic_exchange(&cluster->owners[slot], (unsigned char)node->place) != node->place)
        atomic_store(&cluster->map_changed, true);
    dibs__map_want(cluster);
}

/* -------------------------------------------------------------- a map that came */

/* A node that is asked which slots are where, and the outcome. */
struct telling {
    struct dibs__node *node;
    struct dibs__error error;
};

static void set_owners(struct dibs__cluster *cluster, const unsigned char *owners)
{
    bool named[DIBS__NO_NODE + 1] = {false};

    for (unsigned i = 0; i < DIBS__SLOTS / 32; i++)
        atomic_store_explicit(&cluster->asked[i], 0, memory_order_relaxed);
    for (unsigned slot = 0; slot < DIBS__SLOTS; slot++)
        named[owners[slot]] = true;
    for (unsigned i = 0; i < DIBS__NODES_MAX; i++) /* before others see whom the slots have instead */
        atomic_store(&cluster->nodes[i].in_map, named[i]);
    for (unsigned slot = 0; slot < DIBS__SLOTS; slot++)
        if (atomic_exchange_explicit(&cluster->owners[slot], owners[slot], memory_order_release) != owners[slot])
            atomic_store(&cluster->map_changed, true);
    atomic_store(&cluster->mapped, true);
}

static dibs_status take_map(struct telling *telling, const struct dibs__slot_range *ranges, size_t count)
{
    struct dibs__cluster *cluster = telling->node->cluster;

    if (count == 0) /* a node that has left the cluster says so */
        return dibs__error_set(&telling->error, DIBS_UNAVAILABLE, "a node of %s knows nobody who has slots",
                               cluster->url.shown);
    unsigned char *owners = malloc(DIBS__SLOTS);
    if (!owners)
        return dibs__error_set(&telling->error, DIBS_NO_MEMORY, "no memory for the slots of a cluster");
    memset(owners, DIBS__NO_NODE, DIBS__SLOTS);
    for (size_t i = 0; i < count; i++) {
        const struct dibs__node *node = dibs__node_named_by(telling->node, ranges[i].host, ranges[i].port);
        if (!node) {
            free(owners);
            return dibs__error_set(&telling->error, DIBS_NO_MEMORY,
                                   "no memory for the nodes of a cluster, or it has more than %d", DIBS__NODES_MAX);
        }
        atomic_store(&cluster->nodes[node->place].in_map, true); /* so that its place is not given to the next node */
        memset(owners + ranges[i].first, (int)node->place, ranges[i].last - ranges[i].first + 1);
    }
    set_owners(cluster, owners);
    free(owners);
    return DIBS_OK;
}

static void on_slots(void *context, const struct dibs__slot_range *ranges, size_t count,
                     const struct dibs__error *error)
{
    struct telling *telling = context;

    telling->error = *error;
    if (error->status == DIBS_OK)
        take_map(telling, ranges, count);
}

/* ------------------------------------------------------------ a thread that asks */

static dibs_status fetch_from(struct dibs__node *node, int64_t until, struct dibs__error *error)
{
    struct telling telling = {.node = node};

    if (!dibs__node_use(node))
        return dibs__error_set(error, DIBS_NO_MEMORY, "no memory or descriptor for a node of a cluster");
    dibs_status status = dibs__redis_await_slots(node->member, until, on_slots, &telling, error);
    dibs__node_unuse(node);
    if (status != DIBS_OK || telling.error.status == DIBS_OK)
        return status;
    *error = telling.error;
    return error->status;
}

/*
 * A host that does not answer at once goes on being connected to while the next is asked. As the error, what a server
 * says that refuses is worth more than that another is silent.
 */
dibs_status dibs__map_fetch(struct dibs__cluster *cluster, int64_t deadline, struct dibs__error *error)
{
    const struct dibs__clock *clock = cluster->config.clock;
    struct dibs__error refusal = {DIBS_OK, ""}, failure = {DIBS_UNAVAILABLE, ""};
    bool slow;

    for (int64_t share_ms = FETCH_FIRST_MS;; share_ms *= 2) {
        slow = false;
        for (unsigned i = 0; i < cluster->seeds; i++) {
            int64_t until = dibs__after_ms(dibs__now(clock), share_ms);
            if (atomic_load(&cluster->mapped) ||
                fetch_from(&cluster->nodes[i], until < deadline ? until : deadline, &failure) == DIBS_OK)
                return DIBS_OK;
            if (failure.status != DIBS_UNAVAILABLE)
                refusal = failure;
            slow = slow || dibs__now(clock) >= until;
        }
        if (refusal.status != DIBS_OK || !slow || dibs__now(clock) >= deadline)
            break;
    }
    *error = refusal.status != DIBS_OK ? refusal : failure;
    return error->status;
}

/* -------------------------------------------------------------- the scheduler asks */

/* Whether a node of the map can't be reached: it may have been replaced by another. */
static bool is_a_node_away(const struct dibs__cluster *cluster)
{
    unsigned count = atomic_load(&cluster->node_count);
    bool away = false;

    for (unsigned i = 0; i < count && !away; i++)
        away = atomic_load(&cluster->nodes[i].in_map) && atomic_load(&cluster->nodes[i].down);
    return away;
}

/* Connects to some more nodes, which are asked once they are connected. */
static void open_more(struct dibs__cluster *cluster)
{
    unsigned count = atomic_load(&cluster->node_count), opened = 0;

    for (unsigned i = 0; i < count && opened < OPEN_AT_ONCE; i++) {
        struct dibs__node *node = &cluster->nodes[(cluster->map_turn + i) % count];
        bool needed = atomic_load(&node->in_map) || node->place < cluster->seeds;
        if (dibs__node_is_open(node) || !needed || !dibs__node_use(node))
            continue;
        dibs__node_unuse(node);
        opened++;
    }
}

static void on_slots_asked(void *context, const struct dibs__slot_range *ranges, size_t count,
                           const struct dibs__error *error)
{
    struct dibs__node *node = context;
    struct dibs__cluster *cluster = node->cluster;
    struct telling telling = {.node = node};
    int64_t now = dibs__now(cluster->config.clock);

    cluster->map_asked = false;
    on_slots(&telling, ranges, count, error);
    dibs__node_unuse(node);
    if (telling.error.status != DIBS_OK) {
        atomic_store(&cluster->map_wanted, true);
        open_more(cluster);
        return;
    }
    atomic_store(&cluster->known_corrections, cluster->map_asked_after);
    cluster->map_due = dibs__after_ms(now, dibs__jitter(DIBS__MAP_MS * 2 / 3, DIBS__MAP_MS * 4 / 3));
    cluster->tidy_at = now;
    dibs__cluster_see_reach(cluster, NULL);
}

/* False: the node can't be asked now. */
static bool ask(struct dibs__node *node)
{
    if (!dibs__node_is_open(node) || !dibs__node_use(node))
        return false;
    node->cluster->map_asked_after = atomic_load(&node->cluster->corrections);
    if (dibs__redis_ask_slots(node->member, on_slots_asked, node))
        return true;
    dibs__node_unuse(node);
    return false;
}

/* Asks the next node, in turn, that is connected. False: none is. */
static bool ask_in_turn(struct dibs__cluster *cluster)
{
    unsigned count = atomic_load(&cluster->node_count);
    bool asked = false;

    for (unsigned i = 0; i < count && !asked; i++) {
        unsigned place = (cluster->map_turn + i) % count;
        asked = cluster->map_asked = ask(&cluster->nodes[place]);
        if (asked)
            cluster->map_turn = place + 1;
    }
    return asked;
}

int64_t dibs__map_deadline(const struct dibs__cluster *cluster)
{
    if (cluster->map_asked)
        return DIBS__NEVER;
    bool soon = atomic_load(&cluster->map_wanted) || !atomic_load(&cluster->mapped) || is_a_node_away(cluster);
    return soon ? cluster->map_at : cluster->map_due;
}

void dibs__map_attend(struct dibs__cluster *cluster, int64_t now)
{
    if (now < dibs__map_deadline(cluster))
        return;
    if (now > dibs__after_ms(cluster->map_at, SETTLED_MS))
        dibs__backoff_reset(&cluster->map_backoff);
    cluster->map_at = dibs__after_ms(now, dibs__backoff_next(&cluster->map_backoff, AGAIN_LAST_MS));
    atomic_store(&cluster->map_wanted, false);
    if (ask_in_turn(cluster))
        return;
    atomic_store(&cluster->map_wanted, true);
    open_more(cluster);
}
