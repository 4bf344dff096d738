/*
 * What the ways over ZooKeeper need besides the recipe: one session a process, requests that wait for their answer, and
 * waiting until a node is gone. The lock is a node that exists as long as the race, each racer's node is below it.
 *
 * A request is sent again where the connection broke. Where the session has ended, all its nodes are gone, and the
 * request goes on in a new session. Where no server answers for 5 s, the race ends with a message.
 */
#ifndef DIBS_DEMO_ZOOKEEPER_H
#define DIBS_DEMO_ZOOKEEPER_H

#include "ways/way.h"

enum { ZK_NODE = 64 };

struct zk_nodes {
    int count;
    char **names;
};

/* For struct way. The session may be silent for as long as the race's lease; the server has a minimum for that. */
const char *zk_missing(void);
bool zk_set_up(struct race *race);
void zk_tear_down(struct race *race);
void zk_prepare(struct crew *crew);
void zk_finish(struct crew *crew);

/* Creates an ephemeral sequential node. Its name ends in "-" and its number: each is larger than all before. */
void zk_create(struct racer *me, char node[ZK_NODE]);

/* All nodes below the lock, in any order. zk_free frees them. */
struct zk_nodes zk_nodes(struct racer *me);
void zk_free(struct zk_nodes *nodes);

/* Waits until the node is gone. False: the racer has waited long enough. */
bool zk_wait(struct racer *me, const char *node);

/* False: the node was gone before. */
bool zk_delete(struct racer *me, const char *node);

/* For so long may the process be silent, as the server granted it. */
unsigned zk_session_ms(struct racer *me);

/* The number that ends the node's name. */
uint64_t zk_number(const char *node);

/* The lock itself (17_zookeeper.c): me->text is the racer's node. */
bool zookeeper_lock(struct racer *me);
void zookeeper_unlock(struct racer *me);

#endif
