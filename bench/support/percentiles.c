#include "support/percentiles.h"

#include "support/options.h"

static void print(FILE *file, const char *const names[4], const double *sorted, size_t count, double percent)
{
    fprintf(file, "%s,%s,%s,%g,%.4g\n", names[1], names[2], names[3], percent,
            sorted[(size_t)((double)count * percent / 100)]);
}

void percentiles_csv(const char *table, const char *transport, const char *cell, const char *side, double *times,
                     size_t count)
{
    const char *const names[4] = {table, transport, cell, side};
    char name[64];

    snprintf(name, sizeof name, "%s-percentiles", table);
    FILE *file = bench_csv(name, "transport,cell,side,percent,us");
    if (!file || count == 0)
        return;
    median(times, count); /* sorts */
    for (unsigned percent = 1; percent < 100; percent++)
        print(file, names, times, count, percent);
    print(file, names, times, count, 99.5);
    print(file, names, times, count, 99.9);
    fclose(file);
}
