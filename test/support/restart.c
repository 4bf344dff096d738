#include "support/restart.h"

#include "support/fixture.h"

void restart(server *s)
{
    server_kill(s);
    server_restart(s);
}

long long locks_in(server *s)
{
    redisReply *keys = server_command(s, "KEYS lock:*");
    long long count = (long long)keys->elements;

    freeReplyObject(keys);
    return count;
}

struct locks_at {
    server *server;
    long long count;
};

static bool has_locks(void *arg)
{
    const struct locks_at *at = arg;

    return locks_in(at->server) == at->count;
}

void await_locks(server *s, long long count)
{
    assert_that(wait_until(has_locks, &(struct locks_at){s, count}, LIMIT_MS), "%lld locks, not %lld", locks_in(s),
                count);
}

void await_connected(dibs_runtime *rt)
{
    assert_status(DIBS_OK, dibs_timedlock(rt, "another", LIMIT_MS));
    uint64_t renewed = stats_of(rt).renewed;
    int64_t end = now_ms() + LIMIT_MS;
    while (stats_of(rt).renewed == renewed && now_ms() < end)
        pause_ms(5);
    assert_true(stats_of(rt).renewed > renewed);
    assert_status(DIBS_OK, dibs_unlock(rt, "another"));
}

void set_up_persistent(fixture *f)
{
    server_stop(f->server);
    f->server = server_start(&(server_options){.config = "appendonly yes\nappendfsync always"});
    f->urls[0] = f->server->url;
}
