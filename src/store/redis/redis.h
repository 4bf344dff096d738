/* The store on one Redis server. Its scripts: src/redis/scripts. */
#ifndef DIBS_STORE_REDIS_REDIS_H
#define DIBS_STORE_REDIS_REDIS_H

#include "store/store.h"

dibs_status dibs__redis_open(struct dibs__store **out, const struct dibs__store_config *config,
                             struct dibs__error *error);

#endif
