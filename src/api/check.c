#include "api/check.h"

#include <stdio.h>
#include <string.h>

#include "base/require.h"
#include "core/runtime.h"

dibs_status dibs__return(dibs_status status, const struct dibs__error *error)
{
    if (status == DIBS_OK)
        return DIBS_OK;
    DIBS__REQUIRE(error->status == status);
    return dibs__fail_with(error);
}

/* shown: what sentences call the name. */
static size_t check_name(const dibs_runtime *rt, const char *name, const char *shown)
{
    if (!rt || !name) {
        dibs__fail(DIBS_INVALID, "%s is NULL", rt ? shown : "the runtime");
        return 0;
    }
    size_t size = strnlen(name, DIBS_NAME_MAX + 1);
    if (size == 0)
        dibs__fail(DIBS_INVALID, "%s is empty", shown);
    else if (size > DIBS_NAME_MAX)
        dibs__fail(DIBS_INVALID, "%s is longer than %d bytes", shown, DIBS_NAME_MAX);
    else if (rt->settings.reserved && strncmp(name, rt->settings.reserved, strlen(rt->settings.reserved)) == 0)
        dibs__fail(DIBS_INVALID, "%s makes a key that begins with \"dibs:\", which is kept for what dibs itself stores",
                   shown);
    else
        return size;
    return 0;
}

size_t dibs__check_name(const dibs_runtime *rt, const char *name)
{
    return check_name(rt, name, "name");
}

bool dibs__check_names(const dibs_runtime *rt, const char *const *names, size_t count)
{
    char shown[32];
    size_t i = 0;

    if (!rt)
        return DIBS__INVALID("the runtime is NULL");
    if (count > DIBS_NAMES_MAX)
        return DIBS__INVALID("there are %zu names, more than %d", count, DIBS_NAMES_MAX);
    if (count > 0 && !names)
        return DIBS__INVALID("names is NULL");
    while (i < count && dibs__check_name(rt, names[i]) > 0)
        i++;
    if (i == count)
        return true;
    snprintf(shown, sizeof shown, "names[%zu]", i);
    return check_name(rt, names[i], shown) > 0;
}

bool dibs__check_lease(const char *field, uint32_t lease_ms)
{
    return (lease_ms >= DIBS__LEASE_MIN_MS && lease_ms <= DIBS__LEASE_MAX_MS) ||
           DIBS__INVALID("%s is %u, not from %d to %d", field, lease_ms, DIBS__LEASE_MIN_MS, DIBS__LEASE_MAX_MS);
}

bool dibs__check_options(const dibs_runtime *rt, int64_t wait_ms, const dibs_lock_options *options,
                         struct dibs__wish *wish)
{
    *wish = (struct dibs__wish){.wait_ms = wait_ms, .lease_ms = rt->settings.lease_ms};
    if (wait_ms < DIBS_WAIT_FOREVER)
        return DIBS__INVALID("wait_ms is negative, and not DIBS_WAIT_FOREVER");
    if (!options)
        return true;
    wish->flags = options->flags;
    wish->limit = options->limit;
    if (options->flags & ~(uint32_t)(DIBS_FAIR | DIBS_FIXED_LEASE | DIBS_NO_REENTRY | DIBS_SHARED))
        return DIBS__INVALID("flags has an unknown bit: 0x%x", options->flags);
    if (options->limit > 0 && !(options->flags & DIBS_SHARED))
        return DIBS__INVALID("limit is for DIBS_SHARED alone");
    if (options->flags & DIBS_FAIR && rt->settings.url_count > 1)
        return DIBS__INVALID("DIBS_FAIR: a quorum has no common queue");
    if (options->limit > 1 && rt->settings.url_count > 1)
        return DIBS__INVALID("limit is %u: on a quorum it can be 1 at most, because majorities can't count",
                             options->limit);
    if (options->lease_ms)
        wish->lease_ms = options->lease_ms;
    return options->lease_ms == 0 || dibs__check_lease("lease_ms", options->lease_ms);
}
