/* The names that this process gave up a moment ago, and the fences that it may use again for them (relock.c). */
#ifndef DIBS_STORE_REDIS_RELOCKS_H
#define DIBS_STORE_REDIS_RELOCKS_H

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
