/*
 * A store inside the process, for unit tests of programs that use dibs (mem:) and of the core. It ends with the
 * process; a forked child has a store of its own.
 */
#ifndef DIBS_STORE_MEMORY_H
#define DIBS_STORE_MEMORY_H

#include "store/store.h"

/* mem: is private to the runtime that opens it; mem:NAME is shared by all runtimes that open the same NAME. */
dibs_status dibs__memory_open(struct dibs__store **out, const struct dibs__store_config *config,
                              struct dibs__error *error);

#endif
