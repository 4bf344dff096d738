/* What a scene does to a master with replicas. Runs in a process of the race, on connections of its own. */
#ifndef DIBS_DEMO_FAILOVER_H
#define DIBS_DEMO_FAILOVER_H

#include "race/race.h"

/* The replica of that number keeps its data, and gets no more from its master. */
void failover_cut(const struct race *race, unsigned replica);

/*
 * The replica that has got most from the master becomes the master, as Sentinel would choose: the other replicas follow
 * it, and the address leads to it.
 */
void failover_promote(const struct race *race);

/* Makes the address (a symbolic link in place of a socket) lead to that socket, in one step. */
bool failover_address(const char *address, const char *socket_path);

#endif
