#include "support/rounds.h"

#include <math.h>
#include <string.h>

#include "support/target.h"
#include "support/team.h"

enum { LIMIT_S = 60 };

/* What the program tells a child, and the child the program. */
struct page {
    void (*measure)(const void *condition, double figures[]);
    const void *condition;
    double figures[GRID_FIGURES];
};

static void work(unsigned number, void *memory)
{
    struct page *page = memory;

    (void)number;
    page->measure(page->condition, page->figures);
}

static bool run_side(struct grid *grid, unsigned side, unsigned round, struct page *page)
{
    for (unsigned i = 0; i < GRID_FIGURES; i++)
        page->figures[i] = NAN;
    if (!team_run(1, work, page, LIMIT_S + bench_options.round_ms / 1000)) {
        fprintf(stderr, "%s, %s: %s failed\n", grid->cell, grid->transport, grid->side[side]);
        return false;
    }
    for (unsigned i = 0; i < grid->figures; i++)
        grid->value[side][i][round] = page->figures[i];
    return true;
}

/* All but the values. */
static void prepare(struct grid *grid, const struct table *table, const char *cell)
{
    *grid = (struct grid){.table = table->name,
                          .transport = bench_transport_name(bench_transport),
                          .cell = cell,
                          .sides = table->sides,
                          .rounds = bench_options.rounds,
                          .figures = table->figures,
                          .figure = table->figure};
    for (unsigned i = 0; i < table->sides; i++)
        grid->side[i] = table->side[i].name;
}

bool rounds_run(struct grid *grid, const struct table *table, const char *cell, const void *condition)
{
    static struct page *page;

    page = page ? page : team_memory(sizeof *page);
    prepare(grid, table, cell);
    for (unsigned round = 0; round < grid->rounds; round++)
        for (unsigned i = 0; i < table->sides; i++) {
            unsigned side = round % 2 ? table->sides - 1 - i : i;
            page->measure = table->side[side].measure;
            page->condition = condition;
            if (!run_side(grid, side, round, page))
                return false;
        }
    grid_show(grid);
    target_of(grid->table, grid->transport, grid->cell);
    return true;
}
