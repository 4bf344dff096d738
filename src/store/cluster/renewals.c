/*
 * Batches, divided among the nodes, so that no node waits for another. Items that a node redirects go on to the next
 * node, as a part of their own.
 */
#include <stdlib.h>

#include "store/cluster/cluster_parts.h"

#define HOPS_MAX 5

/* A batch that is under way in parts. Scheduler thread only. */
struct division {
    struct dibs__cluster *cluster;
    struct dibs__batch *batch;
    size_t out; /* number of parts that have not ended, plus 1 while further parts may begin */
};

/* The part of one node. */
struct part {
    struct dibs__batch batch; /* copies of the items */
    struct division *division;
    struct dibs__node *node; /* in use */
    unsigned hops;
    struct dibs__redirect redirects[DIBS__BATCH_MAX];
    unsigned char at[DIBS__BATCH_MAX]; /* the indexes of the items in the whole batch */
    bool unsure[DIBS__BATCH_MAX];      /* whether the slot moved there, or a replica took over, only a map will tell */
    struct dibs__lease_store_state before[DIBS__BATCH_MAX]; /* of an item that is unsure: what was known before */
};

_Static_assert(DIBS__BATCH_MAX <= 255, "a place in a batch fits into a byte");

static const struct dibs__error no_error = {DIBS_OK, ""};

static void end_one(struct division *division)
{
    struct dibs__batch *batch = division->batch;

    if (--division->out > 0)
        return;
    if (!batch->watch)
        batch->count = 0; /* all items have landed */
    free(division);
    batch->done(batch, &no_error);
}

/* ------------------------------------------------------------------- what is known */

bool dibs__cluster_has_server(const struct dibs__cluster *cluster, uint64_t server)
{
    unsigned count = atomic_load(&cluster->node_count);
    bool has = false;

    for (unsigned i = 0; i < count && !has && server != 0; i++)
        has = atomic_load_explicit(&cluster->nodes[i].server, memory_order_relaxed) == server &&
              atomic_load_explicit(&cluster->nodes[i].in_map, memory_order_relaxed);
    return has;
}

static bool knows_any_server(const struct dibs__cluster *cluster)
{
    unsigned count = atomic_load(&cluster->node_count);
    bool knows = false;

    for (unsigned i = 0; i < count && !knows; i++)
        knows = atomic_load(&cluster->nodes[i].in_map) && atomic_load(&cluster->nodes[i].server) != 0;
    return knows;
}

/* A slot that moved took its leases along. A master that is gone, or was restarted, may have lost them. */
bool dibs__cluster_is_unconfirmed(struct dibs__store *base, const struct dibs__lease_store_state *lease)
{
    const struct dibs__cluster *cluster = dibs__cluster_of(base);

    return !dibs__cluster_has_server(cluster, dibs__redis_lease_server(lease)) && knows_any_server(cluster);
}

/* ----------------------------------------------------------------- parts of a batch */

static void part_done(struct dibs__batch *batch, const struct dibs__error *error);

/* Makes a part without items, for the node. NULL: no memory, or the node can't be used. */
static struct part *new_part(struct division *division, struct dibs__node *node, unsigned hops)
{
    struct part *part = malloc(sizeof *part);

    if (!part || !dibs__node_use(node)) {
        free(part);
        return NULL;
    }
    part->batch.watch = division->batch->watch;
    part->batch.count = 0;
    part->batch.done = part_done;
    part->batch.landed = NULL;
    part->batch.context = part;
    part->division = division;
    part->node = node;
    part->hops = hops;
    return part;
}

/* The part of that node among those that are being made; it is made if there is none. NULL: as of new_part. */
static struct part *part_at(struct division *division, struct part *parts[DIBS__NODES_MAX], struct dibs__node *node,
                            unsigned hops)
{
    if (!parts[node->place])
        parts[node->place] = new_part(division, node, hops);
    return parts[node->place];
}

static void add(struct part *part, const struct dibs__renewal *item, unsigned char at, bool asking)
{
    size_t i = part->batch.count++;

    part->batch.items[i] = *item;
    part->redirects[i] = (struct dibs__redirect){.asking = asking};
    part->batch.items[i].redirect = &part->redirects[i];
    part->at[i] = at;
}

/*
 * The node need not restore a lease that came to it with its slot: if the lease is gone there, somebody deleted it. So
 * the lease counts as confirmed by this server, unless the server that confirmed it is gone. Until a map tells whether
 * it is, the lease may have to be restored, but not by this request: whoever releases the lock meanwhile does not wait
 * for it. A node that named this one by ASK still has the slot.
 */
static void see_what_came(struct part *part, size_t i)
{
    struct dibs__renewal *item = &part->batch.items[i];
    const struct dibs__cluster *cluster = part->node->cluster;
    uint64_t server = dibs__redis_lease_server(&item->store_state), here = dibs__redis_server(part->node->member);

    part->unsure[i] = false;
    if (here == 0 || server == here || !dibs__cluster_has_server(cluster, server))
        return;
    part->unsure[i] = !item->redirect->asking && !dibs__map_is_certain(cluster);
    part->before[i] = item->store_state;
    dibs__redis_lease_came(part->node->member, &item->store_state);
}

/* The part may end before this returns. */
static void begin(struct part *part)
{
    struct dibs__store *member = part->node->member;

    part->division->out++;
    for (size_t i = 0; !part->batch.watch && i < part->batch.count; i++)
        see_what_came(part, i);
    member->ops->renew(member, &part->batch);
}

static void begin_all(struct part *parts[DIBS__NODES_MAX])
{
    for (unsigned i = 0; i < DIBS__NODES_MAX; i++)
        if (parts[i])
            begin(parts[i]);
}

/* ------------------------------------------------------------------ redirected */

static bool goes_on(const struct part *part, size_t i)
{
    const struct dibs__redirect *redirect = &part->redirects[i];

    return redirect->to && part->hops < HOPS_MAX &&
           (redirect->kind == DIBS__REDIRECT_MOVED || redirect->kind == DIBS__REDIRECT_ASK);
}

/* Takes the items that were redirected out of the part, and sends them on. */
static void send_on(struct part *part)
{
    struct part *parts[DIBS__NODES_MAX] = {NULL};
    size_t kept = 0;

    for (size_t i = 0; i < part->batch.count; i++) {
        const struct dibs__redirect *redirect = &part->redirects[i];
        struct part *next = goes_on(part, i) ? part_at(part->division, parts, redirect->to, part->hops + 1) : NULL;
        if (next) {
            add(next, &part->batch.items[i], part->at[i], redirect->kind == DIBS__REDIRECT_ASK);
            continue;
        }
        part->batch.items[kept] = part->batch.items[i];
        part->at[kept++] = part->at[i];
    }
    part->batch.count = kept;
    begin_all(parts);
}

/*
 * A node that may lack the lease has confirmed it only by renewing it. What is gone there counts as unanswered: once a
 * map has come, it is restored, or lost.
 */
static void await_map(struct part *part)
{
    for (size_t i = 0; i < part->batch.count; i++) {
        struct dibs__renewal *item = &part->batch.items[i];
        if (!part->unsure[i] || item->result == DIBS__RENEWED)
            continue;
        item->store_state = part->before[i];
        if (item->result == DIBS__GONE) {
            item->result = DIBS__UNANSWERED;
            item->status = DIBS_UNAVAILABLE;
        }
    }
}

static bool is_any_unanswered(const struct dibs__batch *batch)
{
    bool unanswered = false;

    for (size_t i = 0; i < batch->count && !unanswered; i++)
        unanswered = batch->items[i].result == DIBS__UNANSWERED;
    return unanswered;
}

static void part_done(struct dibs__batch *batch, const struct dibs__error *error)
{
    struct part *part = batch->context;
    struct division *division = part->division;
    struct dibs__batch *whole = division->batch;

    if (!division->batch->watch) {
        await_map(part);
        send_on(part);
    }
    if (!division->batch->watch && is_any_unanswered(batch))
        dibs__map_want(division->cluster);
    for (size_t i = 0; division->batch->watch && i < batch->count; i++)
        whole->items[part->at[i]].result = batch->items[i].result;
    if (!division->batch->watch && batch->count > 0)
        whole->landed(whole, batch, error);
    dibs__node_unuse(part->node);
    free(part);
    end_one(division);
}

/* ----------------------------------------------------------------------- division */

/* The node that has the lock, as far as is known; NULL: none has. */
static struct dibs__node *owner_of(struct dibs__cluster *cluster, const char *name)
{
    unsigned char place = atomic_load(&cluster->owners[dibs__cluster_slot(cluster, name)]);

    return place != DIBS__NO_NODE ? &cluster->nodes[place] : NULL;
}

/*
 * Gives each item to the part of its node. Moves the items that no node gets to the beginning of the batch, and returns
 * their number.
 */
static size_t sort(struct division *division, struct part *parts[DIBS__NODES_MAX])
{
    struct dibs__batch *batch = division->batch;
    size_t left = 0;

    for (size_t i = 0; i < batch->count; i++) {
        struct dibs__renewal *item = &batch->items[i];
        struct dibs__node *node = owner_of(division->cluster, item->name);
        struct part *part = node ? part_at(division, parts, node, 0) : NULL;
        item->result = DIBS__UNANSWERED;
        item->status = DIBS_UNAVAILABLE;
        if (part)
            add(part, item, (unsigned char)i, false);
        else if (!division->batch->watch)
            batch->items[left++] = *item;
    }
    return left;
}

/* The first `count` items of the batch land unanswered. */
static void land(struct division *division, size_t count)
{
    struct dibs__batch *batch = division->batch;
    struct dibs__error error;

    if (count == 0)
        return;
    dibs__map_want(division->cluster);
    dibs__error_set(&error, DIBS_UNAVAILABLE, "%s: no node has the slot", division->cluster->url.shown);
    batch->count = count;
    batch->landed(batch, batch, &error);
}

void dibs__cluster_renew(struct dibs__store *base, struct dibs__batch *batch)
{
    struct dibs__cluster *cluster = dibs__cluster_of(base);
    struct division *division = malloc(sizeof *division);
    struct part *parts[DIBS__NODES_MAX] = {NULL};
    struct dibs__error error;

    batch->proof = dibs__now(cluster->config.clock);
    if (!division) {
        for (size_t i = 0; i < batch->count; i++)
            batch->items[i].result = DIBS__UNANSWERED;
        dibs__error_set(&error, DIBS_NO_MEMORY, "no memory for leases");
        batch->done(batch, &error);
        return;
    }
    *division = (struct division){cluster, batch, 1};
    land(division, sort(division, parts));
    begin_all(parts);
    end_one(division);
}
