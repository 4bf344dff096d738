/* Which master the answers of the sentinels name together. */
#include <string.h>

#include "redis/sentinel_parts.h"

static bool names_a_master(const struct dibs__sentinel_host *host)
{
    return host->answered && host->master[0] != '\0';
}

static bool agree(const struct dibs__sentinel_host *a, const struct dibs__sentinel_host *b)
{
    return a->port == b->port && strcmp(a->master, b->master) == 0;
}

/* Whether the sentinel names a master, and is not also known by another name before it on the list. */
static bool counts(const struct dibs__sentinel_hosts *hosts, size_t at)
{
    const struct dibs__sentinel_host *host = hosts->hosts[at];

    for (size_t i = 0; i < at && host->id[0]; i++)
        if (names_a_master(hosts->hosts[i]) && strcmp(hosts->hosts[i]->id, host->id) == 0)
            return false;
    return names_a_master(host);
}

/* The number of sentinels: those of the URL, or, if this is more, as many as a sentinel knows including itself. */
static size_t number_of_sentinels(const struct dibs__sentinel_hosts *hosts, size_t counted)
{
    size_t most = hosts->given > counted ? hosts->given : counted;

    for (size_t i = 0; i < hosts->count; i++)
        if (hosts->hosts[i]->answered && hosts->hosts[i]->others + 1 > most)
            most = hosts->hosts[i]->others + 1;
    return most;
}

struct support {
    size_t votes;         /* number of sentinels that name that master */
    int64_t epoch, rival; /* largest epoch of those that name that master, and of those that name another; -1: none */
};

static struct support support_of(const struct dibs__sentinel_hosts *hosts, const struct dibs__sentinel_host *candidate)
{
    struct support support = {.epoch = -1, .rival = -1};

    for (size_t i = 0; i < hosts->count; i++) {
        const struct dibs__sentinel_host *host = hosts->hosts[i];
        if (!counts(hosts, i))
            continue;
        int64_t *epoch = agree(host, candidate) ? &support.epoch : &support.rival;
        support.votes += agree(host, candidate);
        *epoch = host->epoch > *epoch ? host->epoch : *epoch;
    }
    return support;
}

/* If all tell their epoch, the larger one wins; if one does not, or epochs are equal, the votes decide. */
static bool is_better(const struct support *a, const struct support *b, bool by_epoch)
{
    if (by_epoch && a->epoch != b->epoch)
        return a->epoch > b->epoch;
    return a->votes > b->votes;
}

struct dibs__sentinel_vote dibs__sentinel_count(const struct dibs__sentinel *sentinel)
{
    const struct dibs__sentinel_hosts *hosts = &sentinel->hosts;
    struct dibs__sentinel_vote vote = {.epoch = -1};
    struct support most = {0};
    size_t counted = 0;
    bool by_epoch = true;

    for (size_t i = 0; i < hosts->count; i++)
        if (counts(hosts, i)) {
            counted++;
            by_epoch = by_epoch && hosts->hosts[i]->epoch >= 0;
        }
    for (size_t i = 0; i < hosts->count; i++) {
        if (!counts(hosts, i))
            continue;
        struct support its = support_of(hosts, hosts->hosts[i]);
        if (!vote.best || is_better(&its, &most, by_epoch)) {
            vote.best = hosts->hosts[i];
            vote.epoch = its.epoch;
            most = its;
        }
    }
    size_t all = number_of_sentinels(hosts, counted);
    bool newest = by_epoch && most.epoch > most.rival;
    vote.sure = (newest ? counted : most.votes) * 2 > all;
    return vote;
}
