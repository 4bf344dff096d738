#include "store/memory.h"
#include "store/redis/redis.h"
#include "store/store.h"

#include <string.h>
#include <strings.h>

dibs_status dibs__store_open(struct dibs__store **out, const struct dibs__store_config *config,
                             struct dibs__error *error)
{
    *out = NULL;
    if (config->url_count > 1)
        return dibs__error_set(error, DIBS_INVALID, "a quorum of stores is not supported by this version of dibs");
    if (strncasecmp(config->url, "mem:", 4) == 0)
        return dibs__memory_open(out, config, error);
    return dibs__redis_open(out, config, error);
}

bool dibs__store_watch_forks(void)
{
    return dibs__memory_watch_forks();
}
