/*
 * Locking a name again that this process gave up a moment ago, by plain commands.
 *
 * acquire.lua makes a fence that is larger than all before, which costs the server twice what SET NX costs. Whoever was
 * granted the lock last needs no new fence: as long as F is what that grant left there, nobody has been granted the
 * lock since, and the next of the 1,024 steps that a fence has is larger than all before. So one write asks three
 * things: EXISTS Q        does nobody wait? SET K NX PX     is the lock free? Then it is taken. GET F           was
 * nobody granted it since? The lock is granted where all three are true. What one of them refuses leaves everything as
 * it was, but for K, which requeue.lua gives back to whoever waits, and asks for with a new fence (rule 70 of
 * PROTOCOL.md).
 */
#ifndef DIBS_STORE_REDIS_RELOCK_H
#define DIBS_STORE_REDIS_RELOCK_H

#include <stdint.h>

/* A fence that the process may use again. */
struct dibs__relock {
    uint64_t fence; /* the store's; 0: there is none */
    uint32_t step;  /* the first step that no holder had; 0: a holder has the lock with the one before */
};

struct dibs__relocks; /* of a store; its mutex guards them */

void dibs__relocks_free(struct dibs__relocks *relocks); /* NULL is fine */

/*
 * The name was given up on that server; the store granted that fence at granted_at, and the process used it with no
 * step before the first, or what it used was noted. *relocks is made with the first name. Where memory is out, nothing
 * is noted.
 */
void dibs__relocks_note(struct dibs__relocks **relocks, const char *name, uint64_t server, struct dibs__relock relock,
                        int64_t granted_at);

/*
 * What was noted of the name; nobody has that step a second time. Nothing where that was on another server, or its
 * fence was given too long ago. relocks NULL is fine.
 */
struct dibs__relock dibs__relocks_take(struct dibs__relocks *relocks, const char *name, uint64_t server, int64_t now);

#endif
