/* The store on a Redis Cluster: it uses a store of store/redis for each of its masters, by the slots of the keys. */
#ifndef DIBS_STORE_CLUSTER_CLUSTER_H
#define DIBS_STORE_CLUSTER_CLUSTER_H

#include "store/store.h"

bool dibs__cluster_is_url(const char *url);

dibs_status dibs__cluster_open(struct dibs__store **out, const struct dibs__store_config *config,
                               struct dibs__error *error);

#endif
