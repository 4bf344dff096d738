#include "support/cores.h"

#if defined(__linux__)

#include <sched.h>

static cpu_set_t all; /* what the program may use; empty: nothing was set apart */

/* Notes what the program may use. The last of the cores, in *last. False: they can't be told. */
static bool note_all(cpu_set_t *last)
{
    size_t number = CPU_SETSIZE - 1;

    if (sched_getaffinity(0, sizeof all, &all) != 0) {
        CPU_ZERO(&all);
        return false;
    }
    while (!CPU_ISSET(number, &all))
        number--;
    CPU_ZERO(last);
    CPU_SET(number, last);
    return true;
}

static bool place(pid_t server, const cpu_set_t *servers, const cpu_set_t *own)
{
    if (sched_setaffinity(server, sizeof *servers, servers) == 0 && sched_setaffinity(0, sizeof *own, own) == 0)
        return true;
    cores_put_back(server);
    return false;
}

unsigned cores_set_apart(pid_t server)
{
    cpu_set_t rest, last;

    if (!note_all(&last))
        return 0;
    CPU_XOR(&rest, &all, &last);
    if (CPU_COUNT(&rest) > 0 && place(server, &last, &rest))
        return (unsigned)CPU_COUNT(&rest);
    CPU_ZERO(&all);
    return 0;
}

bool cores_set_together(pid_t server)
{
    cpu_set_t last;

    return note_all(&last) && place(server, &last, &last);
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

bool cores_set_together(pid_t server)
{
    (void)server;
    return false;
}

void cores_put_back(pid_t server)
{
    (void)server;
}

#endif
