/* The servers that a race needs: the one that was given where one is enough, else private ones, started when needed. */
#ifndef DIBS_DEMO_SERVERS_H
#define DIBS_DEMO_SERVERS_H

#include <hiredis/hiredis.h>

#include "race/race.h"

/* The server of that URL is used where one is enough. NULL: all are private. The text must stay valid. */
void servers_given(const char *url);

/*
 * Makes so many masters run and names them in the race; where replicas are wanted, behind them the address of one more
 * master, and its replicas, which have caught up. False after a line on stderr.
 */
bool servers_ready(struct race *race, unsigned masters, unsigned replicas);

/* The program's own connection to the first of them. NULL after a line on stderr. */
redisContext *servers_first(struct race *race);

/* Stops those that were started; in the one that was not, deletes the keys of this program. */
void servers_stop(struct race *race);

#endif
