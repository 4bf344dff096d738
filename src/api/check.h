/* Checks of arguments that several functions of the interface make. A check that fails sets the last error. */
#ifndef DIBS_API_CHECK_H
#define DIBS_API_CHECK_H

#include "base/error.h"
#include "core/core.h"

#define DIBS__LEASE_MIN_MS 20

/* Sets the thread's last error. False. */
#define DIBS__INVALID(...) (dibs__fail(DIBS_INVALID, __VA_ARGS__), false)

/* The size of the name; 0: the name is not valid, or the runtime is NULL. */
size_t dibs__check_name(const dibs_runtime *rt, const char *name);

/* The same for all names of a call. False: one of them is not valid, or there are too many. */
bool dibs__check_names(const dibs_runtime *rt, const char *const *names, size_t count);

/* field: what the error's sentence calls the value. */
bool dibs__check_lease(const char *field, uint32_t lease_ms);

/* The same for the other arguments of an acquire, which become a wish. options may be NULL. */
bool dibs__check_options(const dibs_runtime *rt, int64_t wait_ms, const dibs_lock_options *options,
                         struct dibs__wish *wish);

/* Returns the status of a call into the core. If the call failed, its error becomes the thread's last one. */
dibs_status dibs__return(dibs_status status, const struct dibs__error *error);

#endif
