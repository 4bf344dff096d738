#include "core/stats_read.h"

#include <string.h>

void dibs_stats_get(dibs_runtime *rt, dibs_stats *out)
{
    struct dibs__error error;

    if (rt && out)
        dibs__stats_get(rt, out, &error);
    else if (out)
        memset(out, 0, sizeof *out);
}
