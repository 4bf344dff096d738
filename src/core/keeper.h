/*
 * What the process does with leases that it keeps (kept.h): how they are given back to the store, and why. A lease that
 * is given back is retracted in the background: nobody here waits for that, and the retraction grants the lock to
 * whoever asks for it elsewhere. All functions may be called even if no lease is ever kept.
 */
#ifndef DIBS_CORE_KEEPER_H
#define DIBS_CORE_KEEPER_H

#include "core/core.h"

/*
 * Called once the store is open: leases will be kept if the settings say so and the store can do it. False: no memory.
 */
bool dibs__keeper_begin(struct dibs__core *core);

/*
 * Returns cells->recallable if the lease may be kept and the store tells of its lock, else 0. A store that does not
 * tell of the lock yet begins to.
 */
unsigned dibs__keeper_may_keep(struct dibs__core *core, const struct dibs__lease *lease);

/*
 * on: the store tells of changes and recalls from now on. Not on: it no longer does, and all kept leases are given
 * back.
 */
void dibs__keeper_allow(struct dibs__core *core, bool on);

/* Give back the kept lease of that name, if there is one, and all kept leases. */
void dibs__keeper_give_back_name(struct dibs__core *core, const char *name, size_t name_size);
void dibs__keeper_give_back_all(struct dibs__core *core);

/* Another process asks for the lock that this token has. False: nobody here asks for that token or holds its lease. */
bool dibs__keeper_recall(struct dibs__core *core, const char *name, const char *token);

/*
 * Callbacks of the renewals; the context is the core. dibs__keeper_look: the time has come to look whether the lease is
 * used. dibs__keeper_wanted: the store says that others wait for the lock.
 */
void dibs__keeper_look(void *context, struct dibs__lease *lease);
void dibs__keeper_wanted(void *context, struct dibs__lease *lease);

#endif
