/*
 * A cluster of three nodes whose answers the test gives, and that are never connected to. On a clock that jumps: a
 * thread that would sleep is at the end of its sleep at once.
 */
#ifndef DIBS_TEST_CLUSTER_NODES_H
#define DIBS_TEST_CLUSTER_NODES_H

#include "store/cluster/cluster_parts.h"
#include "store/redis/redis_store.h"
#include "support/failing_malloc.h"
#include "support/moved_clock.h"

#define NODES 3
#define SAYS_MOST 16
#define COMMAND_MS 1000

/* What a node answers. */
struct says {
    dibs_status status;
    enum dibs__redirect_kind kind; /* with UNAVAILABLE */
    unsigned to;                   /* with MOVED and ASK: the place of another node */
};

/* One node, what it answers one time after the other, and what it was asked. The last answer stays. */
struct noted {
    const struct dibs__store_ops *true_ops;
    struct says says[SAYS_MOST];
    size_t says_count;
    unsigned begun, finished, asking, retracted, kept, dropped, listened;
    enum dibs__why why; /* of its asks */
    uint64_t server;    /* that its asks tell */
    struct dibs__op last;
    struct dibs__batch *batch; /* under way */
    uint64_t since, on;
    bool can_keep;
    dibs_status connects, walks, examines;
    unsigned walked, examined;
    bool away;       /* when it is examined */
    size_t fd_count; /* of its interest */
    int64_t deadline;
    const struct pollfd *attended;
};

static struct {
    struct dibs__store *base;
    struct dibs__cluster *cluster;
    struct noted nodes[NODES + 1]; /* one more, for a test */
    struct dibs__counters counters;
    unsigned wakes, wakes_by, ups, downs, moved, on, off, ask_agains;
    char text[DIBS__DETAIL_MAX];
    bool wants_grants;
    void (*sleeps)(void); /* called where the thread sleeps; NULL: nothing happens meanwhile */
    unsigned sleep_count;
    long living; /* allocations before */
} scene;

static struct dibs__error error;
static int64_t the_time;

/* --------------------------------------------------------------------- the clock */

static inline int64_t jumping_now(const struct dibs__clock *clock)
{
    return the_time;
}

static inline int jumping_poll(const struct dibs__clock *clock, struct pollfd *fds, nfds_t count, int64_t deadline)
{
    assert_int_equal(count, 0);
    assert_true(deadline != DIBS__NEVER);
    the_time = deadline > the_time ? deadline : the_time;
    scene.sleep_count++;
    if (scene.sleeps)
        scene.sleeps();
    return 0;
}

static const struct dibs__clock jumping = {.now = jumping_now, .poll = jumping_poll};

/* --------------------------------------------------------------------- the nodes */

static inline struct noted *noted_of(const struct dibs__store *store)
{
    size_t i = 0;

    while (scene.cluster->nodes[i].member != store)
        i++;
    return &scene.nodes[i];
}

static inline void note_begin(struct dibs__store *store, struct dibs__op *op)
{
    struct noted *noted = noted_of(store);

    noted->begun++;
    op->state = noted;
}

static inline enum dibs__progress note_progress(struct dibs__store *store, const struct dibs__op *op,
                                                struct dibs__wait *wait)
{
    assert_ptr_equal(op->state, noted_of(store));
    return DIBS__OP_OVER;
}

static inline void note_ask(const struct noted *noted, const struct dibs__ask *ask)
{
    ask->answer->why = noted->why;
    dibs__redis_lease_of(&ask->attempt->lease)->server = noted->server;
}

static inline dibs_status note_finish(struct dibs__store *store, struct dibs__op *op, struct dibs__error *why)
{
    struct noted *noted = noted_of(store);
    const struct says *says = &noted->says[noted->says_count > 1 ? SAYS_MOST - noted->says_count : SAYS_MOST - 1];

    noted->says_count -= noted->says_count > 1;
    noted->finished++;
    noted->asking += op->redirect->asking;
    noted->last = *op;
    if (op->kind == DIBS__OP_ASK)
        note_ask(noted, &op->ask);
    op->state = NULL;
    op->redirect->kind = says->kind;
    op->redirect->to = says->kind ? &scene.cluster->nodes[says->to] : NULL;
    return dibs__error_set(why, says->status, "%s", "a node said so");
}

static inline void note_conclude(struct dibs__store *store, struct dibs__attempt *attempt, bool held)
{
    *(held ? &noted_of(store)->kept : &noted_of(store)->dropped) += 1;
    dibs__redis_attempt_of(attempt)->doubt = NULL;
}

static inline void note_retract(struct dibs__store *store, const char *name, const char *token, uint32_t lease_ms,
                                uint64_t fence)
{
    noted_of(store)->retracted++;
}

static inline void note_renew(struct dibs__store *store, struct dibs__batch *batch)
{
    assert_null(noted_of(store)->batch);
    noted_of(store)->batch = batch;
}

static inline void note_listen(struct dibs__store *store, const char *name, struct dibs__wait_event *wait_event,
                               int64_t until)
{
    noted_of(store)->listened++;
}

static inline uint64_t note_tell_when_free(struct dibs__store *store, const char *name, uint64_t since)
{
    noted_of(store)->since = since;
    return noted_of(store)->on;
}

static inline bool note_can_keep(struct dibs__store *store, const char *name)
{
    return noted_of(store)->can_keep;
}

static inline dibs_status note_connect(struct dibs__store *store, bool wait, struct dibs__error *why)
{
    assert_false(wait);
    return dibs__error_set(why, noted_of(store)->connects, "%s", "a node said so");
}

static inline dibs_status note_walk(struct dibs__store *store, const struct dibs__walk *walk, struct dibs__error *why)
{
    noted_of(store)->walked++;
    return dibs__error_set(why, noted_of(store)->walks, "%s", "a node said so");
}

static inline dibs_status note_examine(struct dibs__store *store, struct dibs__examination *examination,
                                       struct dibs__error *why)
{
    noted_of(store)->examined++;
    examination->reached = !noted_of(store)->away;
    return dibs__error_set(why, noted_of(store)->examines, "%s", "a node said so");
}

static inline size_t note_interest(struct dibs__store *store, struct pollfd *fds, int64_t *deadline)
{
    const struct noted *noted = noted_of(store);

    for (size_t i = 0; i < noted->fd_count; i++)
        fds[i].fd = (int)(noted - scene.nodes);
    *deadline = noted->deadline;
    return noted->fd_count;
}

static inline void note_attend(struct dibs__store *store, const struct pollfd *fds, size_t count)
{
    assert_int_equal(count, noted_of(store)->fd_count);
    noted_of(store)->attended = fds;
}

static inline void note_close(struct dibs__store *store)
{
    noted_of(store)->true_ops->close(store);
}

static const struct dibs__store_ops noting = {.close = note_close,
                                              .connect = note_connect,
                                              .walk = note_walk,
                                              .examine = note_examine,
                                              .interest = note_interest,
                                              .attend = note_attend,
                                              .begin = note_begin,
                                              .progress = note_progress,
                                              .finish = note_finish,
                                              .conclude = note_conclude,
                                              .retract = note_retract,
                                              .renew = note_renew,
                                              .listen = note_listen,
                                              .tell_when_free = note_tell_when_free,
                                              .can_keep = note_can_keep};

/* One more answer of the node, behind those that it has. */
static inline void node_says(size_t place, dibs_status status, enum dibs__redirect_kind kind, unsigned to)
{
    struct noted *noted = &scene.nodes[place];

    memmove(&noted->says[SAYS_MOST - noted->says_count - 1], &noted->says[SAYS_MOST - noted->says_count],
            noted->says_count * sizeof noted->says[0]);
    noted->says[SAYS_MOST - 1] = (struct says){status, kind, to};
    noted->says_count++;
}

/* ------------------------------------------------------------------ the listener */

static inline void on_wake(void *context)
{
    scene.wakes++;
}

static inline void on_wake_by(void *context, int64_t when)
{
    scene.wakes_by++;
}

static inline void on_ask_again(void *context)
{
    scene.ask_agains++;
}

static inline bool on_granted(void *source, const struct dibs__grant *grant)
{
    return scene.wants_grants;
}

static inline void on_moved(void *source)
{
    scene.moved++;
}

static inline void on_reachable(void *source, bool up, const char *detail)
{
    *(up ? &scene.ups : &scene.downs) += 1;
    snprintf(scene.text, sizeof scene.text, "%s", detail);
}

static inline void on_watching(void *source, bool on)
{
    *(on ? &scene.on : &scene.off) += 1;
}

/* ----------------------------------------------------------------------- the test */

static inline void open_cluster(const char *url, const struct dibs__clock *clock, uint32_t connect_ms,
                                uint32_t command_ms)
{
    const struct dibs__store_config config = {.url = url,
                                              .key_prefix = "lock:",
                                              .client_name = "test",
                                              .runtime_id = "test",
                                              .connect_timeout_ms = connect_ms,
                                              .command_timeout_ms = command_ms,
                                              .clock = clock,
                                              .listener = {.wake = on_wake,
                                                           .wake_by = on_wake_by,
                                                           .ask_again = on_ask_again,
                                                           .granted = on_granted,
                                                           .server_changed = on_moved,
                                                           .reachable = on_reachable,
                                                           .watching = on_watching},
                                              .counters = &scene.counters};

    memset(&scene, 0, sizeof scene);
    scene.living = atomic_load(&living);
    assert_status(DIBS_OK, dibs__store_open(&scene.base, &config, &error));
    scene.cluster = dibs__cluster_of(scene.base);
}

static inline void give_slot(const char *name, unsigned place)
{
    atomic_store(&scene.cluster->owners[dibs__cluster_slot(scene.cluster, name)], (unsigned char)place);
}

/* Opens a node; from then on it is noted what it is asked. */
static inline void note_node(struct dibs__node *node)
{
    assert_true(dibs__node_use(node));
    scene.nodes[node->place].true_ops = node->member->ops;
    scene.nodes[node->place].deadline = DIBS__NEVER;
    node->member->ops = &noting;
    dibs__node_unuse(node);
}

/* The names x, y and z are locks of the first, the second and the third node. */
static inline int setup_cluster(void **state)
{
    the_time = MS(1000000);
    open_cluster("redis-cluster://a:1,b:2,c:3", &jumping, COMMAND_MS, COMMAND_MS);
    for (unsigned i = 0; i < NODES; i++) {
        struct dibs__node *node = &scene.cluster->nodes[i];
        note_node(node);
        atomic_store(&node->in_map, true);
        give_slot((const char *[]){"x", "y", "z"}[i], i);
    }
    atomic_store(&scene.cluster->mapped, true);
    atomic_store(&scene.cluster->map_wanted, false);
    return 0;
}

/* Nobody uses a node any more. */
static inline int teardown_cluster(void **state)
{
    for (unsigned i = 0; i < NODES; i++)
        assert_true(atomic_load(&scene.cluster->nodes[i].users) <= 0);
    scene.base->ops->close(scene.base);
    assert_int_equal(atomic_load(&living), scene.living); /* nothing is left of it */
    return 0;
}

#endif
