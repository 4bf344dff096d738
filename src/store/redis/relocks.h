/* The names that this process gave up a moment ago, and the fences that it may use again for them (ask.c). */
#ifndef DIBS_STORE_REDIS_RELOCKS_H
#define DIBS_STORE_REDIS_RELOCKS_H

#include <stdbool.h>
#include <stdint.h>

/* A fence that the process may use again. */
struct dibs__relock {
    uint64_t fence; /* the store's; 0: there is none */
    uint32_t step;  /* the first step that no holder had; 0: a holder has the lock with the step before */
    bool shared;    /* the fence is a sharer's */
};

struct dibs__relocks; /* of a store; guarded by its mutex */

void dibs__relocks_free(struct dibs__relocks *relocks); /* NULL is fine */

/*
 * The name was given up on that server, whose grant at granted_at had that fence. If relock.step is above 1, the fence
 * was used again: then it is noted only if it still was, and with the time noted before. *relocks is made with the
 * first name. If memory is out, nothing is noted.
 */
void dibs__relocks_note(struct dibs__relocks **relocks, const char *name, uint64_t server, struct dibs__relock relock,
                        int64_t granted_at);

/*
 * Takes what was noted of the name, so that no step is used a second time. fence 0: nothing was noted, it was noted of
 * another server, its fence was granted too long ago, or it is not a fence of that kind: a lock that is held alone must
 * have another fence than any sharer (rule 61 of PROTOCOL.md). relocks NULL is fine.
 */
struct dibs__relock dibs__relocks_take(struct dibs__relocks *relocks, const char *name, uint64_t server, bool shared,
                                       int64_t now);

#endif
