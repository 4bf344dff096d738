#include "api/check.h"

#include <string.h>

#include "core/runtime.h"

size_t dibs__check_name(const dibs_runtime *rt, const char *name)
{
    if (!rt || !name) {
        dibs__fail(DIBS_INVALID, "%s is NULL", rt ? "name" : "the runtime");
        return 0;
    }
    size_t size = strnlen(name, DIBS_NAME_MAX + 1);
    if (size == 0)
        dibs__fail(DIBS_INVALID, "name is empty");
    else if (size > DIBS_NAME_MAX)
        dibs__fail(DIBS_INVALID, "name is longer than %d bytes", DIBS_NAME_MAX);
    else if (rt->settings.reserved && strncmp(name, rt->settings.reserved, strlen(rt->settings.reserved)) == 0)
        dibs__fail(DIBS_INVALID,
                   "name makes a key that begins with \"dibs:\", which is kept for what dibs itself stores");
    else
        return size;
    return 0;
}

bool dibs__check_lease(const char *field, uint32_t lease_ms)
{
    if (lease_ms >= DIBS__LEASE_MIN_MS && lease_ms <= DIBS__LEASE_MAX_MS)
        return true;
    dibs__fail(DIBS_INVALID, "%s is %u, not from %d to %d", field, lease_ms, DIBS__LEASE_MIN_MS, DIBS__LEASE_MAX_MS);
    return false;
}
