/* What the tests of the votes of a quorum share: its clients, what its masters note, and what must not happen. */
#ifndef DIBS_TEST_VOTES_SETUP_H
#define DIBS_TEST_VOTES_SETUP_H

#include "support/agent.h"
#include "support/fixture.h"
#include "support/masters.h"

#define LEASE_MS 2000

/* What vote.lua keeps at a master. */
struct noted {
    long long from, longest, seen, high;
    char floor[32], run[64], quorum[32];
};

static inline bool read_noted(server *s, struct noted *noted)
{
    char text[256];

    return server_string(s, text, sizeof text, "GET dibs:vote") &&
           sscanf(text, "%lld %lld %lld %lld %31s %63s %31s", &noted->from, &noted->longest, &noted->seen, &noted->high,
                  noted->floor, noted->run, noted->quorum) == 7;
}

/* How many masters know of leases that are so long. */
static inline size_t count_that_know(masters *m, long long lease_ms)
{
    size_t count = 0;

    for (size_t i = 0; i < m->count; i++) {
        struct noted noted;
        count += read_noted(m->servers[i], &noted) && noted.longest >= lease_ms;
    }
    return count;
}

static inline process *start_agent(const masters *m, uint32_t lease_ms)
{
    char urls[2048] = "";

    for (size_t i = 0; i < m->count; i++)
        snprintf(urls + strlen(urls), sizeof urls - strlen(urls), "%s%s", i > 0 ? "," : "", m->urls[i]);
    return agent_start(urls, lease_ms);
}

static inline dibs_runtime *open_three(masters *m, size_t first, size_t second, size_t third)
{
    const char *urls[] = {m->urls[first], m->urls[second], m->urls[third]};
    dibs_runtime *rt;

    assert_status(DIBS_OK, open_in_time(&rt, &(dibs_config){.urls = urls, .url_count = 3, .lease_ms = LEASE_MS}));
    return rt;
}

/* Another process has had "a" since then, for LEASE_MS: until that is over, nobody gets it by m->rt. */
static inline void try_in_vain(masters *m, int64_t granted)
{
    dibs_status status = dibs_trylock(m->rt, "a");

    assert_that(status == DIBS_BUSY || status == DIBS_UNAVAILABLE || now_ms() >= granted + LEASE_MS,
                "%s after %lld ms: %s", dibs_status_name(status), (long long)(now_ms() - granted), dibs_last_error());
}

#endif
