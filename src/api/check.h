/* Checks of arguments that more than one door needs. Each sets the thread's last error where it says no. */
#ifndef DIBS_API_CHECK_H
#define DIBS_API_CHECK_H

#include "dibs.h"
#include "store/store.h"

#define DIBS__LEASE_MIN_MS 20

/* The size of the name, 0 where it is none or the runtime is NULL. */
size_t dibs__check_name(const dibs_runtime *rt, const char *name);

/* field: what the sentence calls it. */
bool dibs__check_lease(const char *field, uint32_t lease_ms);

/* Says why a visit could not begin, and returns the status. */
dibs_status dibs__cannot_visit(dibs_status status);

#endif
