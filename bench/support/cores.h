/* Which cores the server and its clients run on, where the system lets a program choose (Linux). */
#ifndef BENCH_CORES_H
#define BENCH_CORES_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Gives the server a core of its own, the last that this program may use, and
 * the calling thread, with the children it starts, the others. Returns how
 * many those are; 0: there is no second core, or no way to choose, and all is
 * left as it was.
 */
unsigned cores_set_apart(pid_t server);

/* Gives both one core, the last that this program may use. False: there is no way to choose. */
bool cores_set_together(pid_t server);

/* Lets both run anywhere again. */
void cores_put_back(pid_t server);

#endif
