/* How servers that run become a cluster. Who starts the servers, and how, is another matter. */
#ifndef COMMON_CLUSTER_JOIN_H
#define COMMON_CLUSTER_JOIN_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stddef.h>

#define CLUSTER_SLOTS 16384

/* A server that was started with "cluster-enabled yes" on that port of 127.0.0.1. */
struct cluster_server {
    redisContext *redis; /* a connection that may ask anything */
    int port;
};

/* The first slot of a master, where so many share them evenly. */
unsigned cluster_first_slot(size_t master, size_t masters);

/*
 * Divides the slots among the first `masters` of the servers, and makes each server meet every other. False, after a
 * line on stderr: a server refused. Then ask cluster_is_joined until it says so.
 */
bool cluster_join(const struct cluster_server *servers, size_t count, size_t masters);

/* Whether each of the servers serves, knows all the others, and knows who has each slot. */
bool cluster_is_joined(const struct cluster_server *servers, size_t count);

#endif
