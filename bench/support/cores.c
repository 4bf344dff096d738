#include "support/cores.h"

#if defined(__linux__)

#include <sched.h>

static cpu_set_t all; /* what the program may use; empty: nothing was set apart */

unsigned cores_set_apart(pid_t server)
{
    cpu_set_t rest, own;
    size_t last = CPU_SETSIZE - 1;

    if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) < 2) {
        CPU_ZERO(&all);
        return 0;
    }
    while (!CPU_ISSET(last, &all))
        last--;
    rest = all;
    CPU_CLR(last, &rest);
    CPU_ZERO(&own);
    CPU_SET(last, &own);
    if (sched_setaffinity(server, sizeof own, &own) != 0 || sched_setaffinity(0, sizeof rest, &rest) != 0) {
        cores_put_back(server);
        return 0;
    }
    return (unsigned)CPU_COUNT(&rest);
}

void cores_put_back(pid_t server)
{
    if (CPU_COUNT(&all) == 0)
        return;
    sched_setaffinity(server, sizeof all, &all);
    sched_setaffinity(0, sizeof all, &all);
    CPU_ZERO(&all);
}

#else

unsigned cores_set_apart(pid_t server)
{
    (void)server;
    return 0;
}

void cores_put_back(pid_t server)
{
    (void)server;
}

#endif
