#include <stdio.h>
#include <stdlib.h>

#include "cli/run.h"
#include "cli/run_inside.h"

void run_environment(uint64_t fence, const char *token)
{
    static const char *const secret[] = {"DIBS_URL", "DIBS_SENTINEL_USER", "DIBS_SENTINEL_PASSWORD"};
    char text[24];

    snprintf(text, sizeof text, "%llu", (unsigned long long)fence);
    setenv("DIBS_NAME", run_plan.names[0], 1);
    setenv("DIBS_FENCE", text, 1);
    run_inside_set(token);
    for (size_t i = 0; run_plan.no_inherit && i < sizeof secret / sizeof secret[0]; i++)
        unsetenv(secret[i]);
}
