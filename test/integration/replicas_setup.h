/* A master with a replica, for the tests of min_replicas. */
#ifndef DIBS_TEST_REPLICAS_SETUP_H
#define DIBS_TEST_REPLICAS_SETUP_H

#include "support/fixture.h"

static inline bool info_says(server *s, const char *section, const char *line)
{
    redisReply *reply = server_command(s, "INFO %s", section);
    bool found = strstr(reply->str, line) != NULL;

    freeReplyObject(reply);
    return found;
}

static inline void await_info(server *s, const char *section, const char *line)
{
    await_or_say(info_says(s, section, line), "never %s", line);
}

struct pair {
    server *master, *replica;
};

static inline int pair_setup(void **state)
{
    static struct pair pair;
    const server_options options = {.tcp = true, .config = "repl-diskless-sync-delay 0"};

    pair = (struct pair){server_start(&options), server_start(&options)};
    server_do(pair.replica, "REPLICAOF 127.0.0.1 %d", pair.master->port);
    await_info(pair.master, "replication", "state=online");
    *state = &pair;
    return 0;
}

static inline int pair_teardown(void **state)
{
    struct pair *p = *state;

    server_assert_no_locks(p->master);
    server_stop(p->replica);
    server_stop(p->master);
    return 0;
}

/* Waits until the replica has acknowledged all that was written. */
static inline void await_acknowledgement(server *master)
{
    server_do(master, "SET written before PX %d", LIMIT_MS);
    assert_int_equal(server_integer(master, "WAIT 1 %d", LIMIT_MS), 1);
}

static const dibs_config one_replica = {.lease_ms = LONG_LEASE_MS,
                                        .min_replicas = 1,
                                        .replica_timeout_ms = LIMIT_MS / 4,
                                        .command_timeout_ms = LIMIT_MS / 4};

#endif
