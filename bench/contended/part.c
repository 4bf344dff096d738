#include "contended/part.h"

#include <stdio.h>

static bool verdict(bool holds)
{
    puts(holds ? "holds" : "does not hold");
    return holds;
}

bool at_most(const char *what, double figure, double bound, const char *unit)
{
    printf("  %-44s %9.2f%s, at most %g: ", what, figure, unit, bound);
    return verdict(figure <= bound);
}

bool at_least(const char *what, double figure, double bound, const char *unit)
{
    printf("  %-44s %9.2f%s, at least %g: ", what, figure, unit, bound);
    return verdict(figure >= bound);
}
