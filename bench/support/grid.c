#include "support/grid.h"

#include <math.h>
#include <string.h>

enum { COLUMNS_MOST = 4 };

static const char header[] = "transport,cell,side,figure,unit,rounds,median,low_quartile,high_quartile,"
                             "ratio,ratio_low_quartile,ratio_high_quartile";

/* ------------------------------------------------------------------ spreads */

struct spread spread_of(const double *values, size_t count)
{
    double sorted[OPTIONS_ROUNDS_MOST];
    size_t known = 0;

    for (size_t i = 0; i < count && known < OPTIONS_ROUNDS_MOST; i++)
        if (!isnan(values[i]))
            sorted[known++] = values[i];
    if (known == 0)
        return (struct spread){NAN, NAN, NAN};
    double middle = median(sorted, known); /* sorts */
    return (struct spread){sorted[known / 4], middle, sorted[known - 1 - known / 4]};
}

struct spread grid_value(const struct grid *grid, unsigned side, unsigned figure)
{
    return spread_of(grid->value[side][figure], grid->rounds);
}

static double ratio_of_round(const struct grid *grid, unsigned side, unsigned figure, unsigned to, unsigned round)
{
    double base = grid->value[to][figure][round];

    return base > 0 ? grid->value[side][figure][round] / base : NAN;
}

struct spread grid_ratio(const struct grid *grid, unsigned side, unsigned figure, unsigned to)
{
    double ratios[OPTIONS_ROUNDS_MOST];

    for (unsigned round = 0; round < grid->rounds; round++)
        ratios[round] = ratio_of_round(grid, side, figure, to, round);
    return spread_of(ratios, grid->rounds);
}

double grid_worst(const struct grid *grid, unsigned side, unsigned figure, unsigned to)
{
    double worst = NAN;

    for (unsigned round = 0; round < grid->rounds; round++) {
        double ratio = ratio_of_round(grid, side, figure, to, round);
        worst = isnan(worst) || ratio > worst ? ratio : worst;
    }
    return worst;
}

/* ----------------------------------------------------------------- printing */

static bool is_measured(const struct grid *grid, unsigned figure)
{
    bool measured = false;

    for (unsigned side = 0; side < grid->sides; side++)
        measured = measured || !isnan(grid_value(grid, side, figure).median);
    return measured;
}

/* About four digits of a number that may be large or small; in a buffer of 16 bytes. */
static const char *brief(char *out, double number)
{
    double size = fabs(number);

    if (isnan(number))
        return strcpy(out, "-");
    snprintf(out, 16, "%.*f", size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3, number);
    return out;
}

static void print_value(const struct grid *grid, unsigned side, unsigned figure)
{
    struct spread value = grid_value(grid, side, figure), ratio = grid_ratio(grid, side, figure, 0);
    char text[3][16];

    printf(" %9s", brief(text[0], value.median));
    if (side == 0 && !isnan(value.median))
        printf(" (%7s..%-7s)", brief(text[1], value.low), brief(text[2], value.high));
    else if (side > 0 && !isnan(ratio.median))
        printf(" %5.2fx (%4.2f..%4.2f)", ratio.median, ratio.low, ratio.high);
    else
        printf(" %-*s", side == 0 ? 18 : 20, "");
}

static const char *title_of(char title[64], const struct figure *figure)
{
    snprintf(title, 64, "%s%s%s", figure->name, *figure->unit ? ", " : "", figure->unit);
    return title;
}

/* A line for each figure, a column for each side. */
static void print_columns(const struct grid *grid)
{
    char title[64];

    printf("  %-32s", "");
    for (unsigned side = 0; side < grid->sides; side++)
        printf(" %9s %-*s", "", side == 0 ? 18 : 20, grid->side[side]);
    for (unsigned figure = 0; figure < grid->figures; figure++) {
        if (!is_measured(grid, figure))
            continue;
        printf("\n  %-32s", title_of(title, &grid->figure[figure]));
        for (unsigned side = 0; side < grid->sides; side++)
            print_value(grid, side, figure);
    }
    putchar('\n');
}

/* For many sides: a line for each side of each figure. */
static void print_lines(const struct grid *grid)
{
    char title[64];

    for (unsigned figure = 0; figure < grid->figures; figure++) {
        if (!is_measured(grid, figure))
            continue;
        printf("  %s\n", title_of(title, &grid->figure[figure]));
        for (unsigned side = 0; side < grid->sides; side++) {
            printf("    %-30s", grid->side[side]);
            print_value(grid, side, figure);
            putchar('\n');
        }
    }
}

static void write_csv(const struct grid *grid)
{
    FILE *file = bench_csv(grid->table, header);

    for (unsigned side = 0; file && side < grid->sides; side++)
        for (unsigned figure = 0; figure < grid->figures; figure++) {
            struct spread value = grid_value(grid, side, figure), ratio = grid_ratio(grid, side, figure, 0);
            if (isnan(value.median))
                continue;
            fprintf(file, "%s,%s,%s,%s,%s,%u,%.6g,%.6g,%.6g,", grid->transport, grid->cell, grid->side[side],
                    grid->figure[figure].name, grid->figure[figure].unit, grid->rounds, value.median, value.low,
                    value.high);
            if (isnan(ratio.median))
                fprintf(file, ",,\n");
            else
                fprintf(file, "%.4g,%.4g,%.4g\n", ratio.median, ratio.low, ratio.high);
        }
    if (file)
        fclose(file);
}

void grid_show(const struct grid *grid)
{
    printf("%s, %s\n", grid->cell, grid->transport);
    if (grid->sides <= COLUMNS_MOST)
        print_columns(grid);
    else
        print_lines(grid);
    write_csv(grid);
    fflush(stdout);
}
