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

void await_locks(server *s, long long count)
{
    await_or_say(locks_in(s) == count, "%lld locks, not %lld", locks_in(s), count);
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
