#include "redis/reader.h"
#include "redis/tls.h"
#include "store/cluster/cluster.h"
#include "store/memory.h"
#include "store/quorum/quorum.h"
#include "store/redis/redis.h"
#include "store/store.h"

#include <stdlib.h>
#include <strings.h>

dibs_status dibs__store_open(struct dibs__store **out, const struct dibs__store_config *config,
                             struct dibs__error *error)
{
    *out = NULL;
    if (config->url_count > 1)
        return dibs__quorum_open(out, config, error);
    if (strncasecmp(config->url, "mem:", 4) == 0)
        return dibs__memory_open(out, config, error);
    if (dibs__reader_check(error) != DIBS_OK)
        return error->status;
    if (dibs__cluster_is_url(config->url) && config->is_member)
        return dibs__error_set(error, DIBS_INVALID, "URL: a cluster can't be one of several stores");
    if (dibs__cluster_is_url(config->url))
        return dibs__cluster_open(out, config, error);
    return dibs__redis_open(out, config, error);
}

void dibs__access_free(struct dibs__access *access)
{
    if (!access)
        return;
    free(access->tls_ca_file);
    free(access->tls_cert_file);
    free(access->tls_key_file);
    free(access->tls_server_name);
    free(access->sentinel_user);
    free(access->sentinel_password);
    dibs__tls_free(access->tls);
    free(access);
}
