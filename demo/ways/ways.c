#include "ways/ways.h"

#include <stdio.h>
#include <string.h>

extern const struct way way_setnx_expire, way_getset, way_set_del, way_watchdog, way_owner_value, way_compare_del,
    way_script, way_thread_name, way_sleep_retry, way_late_renewal, way_dibs, way_redlock, way_dibs_quorum, way_replica,
    way_dibs_failover, way_dibs_min_replicas, way_fair_list, way_fair_zset, way_semaphore, way_semaphore_dibs,
    way_watch, way_stream, way_zookeeper, way_zookeeper_fence, way_cache_alone, way_cache_dibs, way_sale_alone,
    way_sale_dibs, way_packets_alone, way_packets_dibs;

const struct way *const ways[] = {
    &way_setnx_expire,  &way_getset,       &way_set_del,       &way_watchdog,
    &way_owner_value,   &way_compare_del,  &way_script,        &way_thread_name,
    &way_sleep_retry,   &way_late_renewal, &way_dibs,          &way_redlock,
    &way_dibs_quorum,   &way_replica,      &way_dibs_failover, &way_dibs_min_replicas,
    &way_fair_list,     &way_fair_zset,    &way_semaphore,     &way_semaphore_dibs,
    &way_watch,         &way_stream,       &way_zookeeper,     &way_zookeeper_fence,
    &way_cache_alone,   &way_cache_dibs,   &way_sale_alone,    &way_sale_dibs,
    &way_packets_alone, &way_packets_dibs,
};
const size_t way_count = sizeof ways / sizeof *ways;

bool way_is(const struct way *way, const char *text)
{
    char number[16];

    snprintf(number, sizeof number, "%d", way->number);
    return strcmp(text, way->name) == 0 || strcmp(text, number) == 0;
}

const struct way *way_named(const char *text)
{
    for (size_t i = 0; i < way_count; i++)
        if (way_is(ways[i], text))
            return ways[i];
    return NULL;
}
