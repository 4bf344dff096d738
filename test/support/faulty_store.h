/*
 * A store in memory that fails when the faults say so, counts its operations, and can keep its answers back. To use it
 * in a runtime, call faults_init and set settings.open_store to faulty_store_open.
 */
#ifndef DIBS_TEST_FAULTY_STORE_H
#define DIBS_TEST_FAULTY_STORE_H

#include "support/faults.h"

dibs_status faulty_store_open(struct dibs__store **out, const struct dibs__store_config *config,
                              struct dibs__error *error);

/*
 * Messages, where the store watches. The first tells the runtime of that store at once that the lock of that name, or
 * with NULL any, may have changed; from any thread. The second tells its scheduler that locks are watched from now on,
 * or no longer, when the scheduler wakes next, and wakes it.
 */
void faulty_store_change(struct dibs__store *store, const char *name);
void faulty_store_watching(struct dibs__store *store, bool on);

#endif
