#include "support/target.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/options.h"

static struct {
    const char *table, *transport, *cell;
} context = {"", "", ""}; /* the main thread's */

void target_of(const char *table, const char *transport, const char *cell)
{
    context.table = table;
    context.transport = transport;
    context.cell = cell;
}

static bool judge(const char *what, double figure, const char *relation, double bound, const char *unit, bool met)
{
    const char *verdict = isnan(figure) ? "not measured" : met ? "met" : "MISSED";
    FILE *file = bench_csv("targets", "table,transport,cell,what,figure,unit,relation,bound,verdict");

    printf("  target: %-44s %9.3f%s, %s %g%s: %s\n", what, figure, unit, relation, bound, unit, verdict);
    if (file) {
        fprintf(file, "%s,%s,%s,%s,%.4g,%s,%s,%g,%s\n", context.table, context.transport, context.cell, what, figure,
                unit + strspn(unit, " "), relation, bound, verdict);
        fclose(file);
    }
    return met;
}

bool at_most(const char *what, double figure, double bound, const char *unit)
{
    return judge(what, figure, "at most", bound, unit, figure <= bound);
}

bool at_least(const char *what, double figure, double bound, const char *unit)
{
    return judge(what, figure, "at least", bound, unit, figure >= bound);
}
