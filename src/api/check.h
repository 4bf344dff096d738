/* Checks of arguments that several functions of the interface make. A check that fails sets the last error. */
#ifndef DIBS_API_CHECK_H
#define DIBS_API_CHECK_H

#include "base/error.h"
#include "base/require.h"
#include "store/store.h"

#define DIBS__LEASE_MIN_MS 20

/* The size of the name; 0: the name is not valid, or the runtime is NULL. */
size_t dibs__check_name(const dibs_runtime *rt, const char *name);

/* The same for all names of a call. False: one of them is not valid, or there are too many. */
bool dibs__check_names(const dibs_runtime *rt, const char *const *names, size_t count);

/* field: what the error's sentence calls the value. */
bool dibs__check_lease(const char *field, uint32_t lease_ms);

/* DIBS_OK or DIBS_INVALID, for the arguments of an acquire. options may be NULL. */
dibs_status dibs__check_options(const dibs_runtime *rt, int64_t wait_ms, const dibs_lock_options *options);

/* Returns the status of a call into the core. If the call failed, its error becomes the thread's last one. */
static inline dibs_status dibs__return(dibs_status status, const struct dibs__error *error)
{
    if (status == DIBS_OK)
        return DIBS_OK;
    DIBS__REQUIRE(error->status == status);
    return dibs__fail_with(error);
}

#endif
