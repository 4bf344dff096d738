/* What the tests of a cluster share: one cluster for all cases of a program, and a runtime on it for each. */
#ifndef DIBS_TEST_CLUSTER_SETUP_H
#define DIBS_TEST_CLUSTER_SETUP_H

#include "support/certificates.h"
#include "support/cluster.h"
#include "support/events.h"
#include "support/fixture.h"

struct scene {
    cluster *c;
    events events;
    const char *urls[1];
    dibs_config config;
    dibs_runtime *rt;
    unsigned next; /* of the names that were used */
};

static struct scene scene;

static inline void open_on_cluster(struct scene *s, uint32_t lease_ms)
{
    s->config.lease_ms = lease_ms;
    assert_status(DIBS_OK, open_in_time(&s->rt, &s->config));
}

/* The same, but no call fails because the machine stalls, or because a node takes long until it serves again. */
static inline void open_patient_on_cluster(struct scene *s, uint32_t lease_ms)
{
    s->config.command_timeout_ms = LIMIT_MS;
    open_on_cluster(s, lease_ms);
}

static inline int setup_with(void **state, const cluster_options *options)
{
    if (!scene.c)
        scene.c = cluster_start(options);
    events_init(&scene.events);
    scene.urls[0] = scene.c->url;
    scene.config =
        (dibs_config){.urls = scene.urls, .url_count = 1, .on_event = events_record, .on_event_arg = &scene.events};
    if (options && options->tls)
        scene.config.tls_ca_file = certificate_path(options->tls, "ca.crt");
    *state = &scene;
    return 0;
}

static inline int teardown(void **state)
{
    struct scene *s = *state;

    close_runtime(&s->rt);
    events_destroy(&s->events);
    cluster_assert_no_locks(s->c);
    return 0;
}

static inline int stop_cluster(void **state)
{
    cluster_stop(scene.c);
    scene.c = NULL;
    return 0;
}

/* The scheme for URLs that name only some of the nodes. */
static inline const char *scheme_of(const struct scene *s)
{
    return s->c->nodes[0]->options.tls ? "rediss-cluster" : "redis-cluster";
}

/* A name that no case has used, whose lock is at that node. */
static inline const char *new_name(struct scene *s, const server *node)
{
    const char *name = cluster_name_at(s->c, node, s->next);

    s->next = (unsigned)atoi(name + 4) + 1;
    return name;
}

static inline unsigned slot_of(struct scene *s, const char *name)
{
    return cluster_slot(s->c, formatted("lock:%s", name));
}

/* Whether the node has the key, wherever its slot belongs. */
static inline bool has_key(server *node, const char *key)
{
    redisReply *reply = server_command(node, "KEYS %s", key);
    bool has = reply->elements == 1;

    freeReplyObject(reply);
    return has;
}

static inline bool has_lock(server *node, const char *name)
{
    return has_key(node, formatted("lock:%s", name));
}

static inline server *other_than(const struct scene *s, const server *node)
{
    return s->c->nodes[node == s->c->nodes[0] ? 1 : 0];
}

#endif
