#include "support/usage.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "support/bench.h"
#include "support/common/cleanup.h"
#include "support/common/naive_lock.h"
#include "support/common/timing.h"

static double read_ns(clockid_t clock)
{
    struct timespec time;

    if (clock_gettime(clock, &time) != 0)
        return NAN;
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static double server_ns(void)
{
#if defined(__linux__)
    clockid_t clock;

    if (clock_getcpuclockid(bench_server.pid, &clock) == 0)
        return read_ns(clock);
#endif
    return NAN;
}

struct usage usage_now(void)
{
    struct rusage own;

    getrusage(RUSAGE_SELF, &own);
    return (struct usage){.wall_ns = now_ns(),
                          .client_ns = read_ns(CLOCK_PROCESS_CPUTIME_ID),
                          .server_ns = server_ns(),
                          .switches = (double)(own.ru_nvcsw + own.ru_nivcsw)};
}

struct usage usage_between(struct usage before, struct usage after)
{
    return (struct usage){.wall_ns = after.wall_ns - before.wall_ns,
                          .client_ns = after.client_ns - before.client_ns,
                          .server_ns = after.server_ns - before.server_ns,
                          .switches = after.switches - before.switches};
}

double usage_connections(void)
{
    static const char label[] = "connected_clients:";
    redisContext *redis = bench_connect();
    redisReply *info = naive_command(redis, "INFO clients");
    const char *line = strstr(info->str, label);

    if (!line)
        cleanup_fail("INFO tells of no connected_clients");
    double count = strtod(line + strlen(label), NULL) - 1;
    freeReplyObject(info);
    redisFree(redis);
    return count;
}
