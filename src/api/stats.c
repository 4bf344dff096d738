#include "core/stats.h"

#include <string.h>

void dibs_stats_get(dibs_runtime *rt, dibs_stats *out)
{
    if (rt && out)
        dibs__stats_get(rt, out);
    else if (out)
        memset(out, 0, sizeof *out);
}
