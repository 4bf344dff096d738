#include "store/memory.h"
#include "store/quorum/quorum.h"
#include "store/redis/redis.h"
#include "store/store.h"

#include <string.h>
#include <strings.h>

dibs_status dibs__store_open(struct dibs__store **out, const struct dibs__store_config *config,
                             struct dibs__error *error)
{
    *out = NULL;
    if (config->url_count > 1)
        return dibs__quorum_open(out, config, error);
    if (strncasecmp(config->url, "mem:", 4) == 0)
        return dibs__memory_open(out, config, error);
    return dibs__redis_open(out, config, error);
}

bool dibs__store_watch_forks(void)
{
    return dibs__memory_watch_forks();
}
