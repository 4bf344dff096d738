#include "race/bars.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "race/page.h"
#include "race/picture.h"
#include "race/results.h"

/* What a file of results would say of the round. */
static struct page *round_of(const struct race *race)
{
    struct page *page = NULL;
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);

    if (!file)
        return NULL;
    fprintf(file, "dibs-race 1\n");
    results_way(file, race->way);
    results_begin(file, race);
    fprintf(file, "end\n");
    if (fclose(file) == 0 && (file = fmemopen(text, size, "r")) != NULL) {
        page = page_read(file);
        fclose(file);
    }
    free(text);
    return page;
}

bool bars_add(struct bars *bars, const struct race *race)
{
    struct page *round = bars->count < BARS_MOST ? round_of(race) : NULL;
    char *title = bars->titles[bars->count % BARS_MOST];

    if (!round || !round->way_count || !round->ways[0].run_count) {
        fprintf(stderr, "out of memory\n");
        page_free(round);
        return false;
    }
    if (way_counts(race->way))
        snprintf(title, sizeof bars->titles[0], "%s: the counter ends at %lld", race->way->title, race->final);
    else
        snprintf(title, sizeof bars->titles[0], "%s", race->way->title);
    bars->rounds[bars->count++] = round;
    return true;
}

bool bars_write(const char *path, struct bars *bars)
{
    struct picture_strip strips[BARS_MOST];
    FILE *out = fopen(path, "w");
    bool good;

    for (size_t i = 0; i < bars->count; i++) {
        strips[i].run = &bars->rounds[i]->ways[0].runs[0];
        snprintf(strips[i].title, sizeof strips[i].title, "%s", bars->titles[i]);
    }
    good = out && picture_write(out, strips, bars->count);
    if (out && fclose(out) != 0)
        good = false;
    if (!good)
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
    for (size_t i = 0; i < bars->count; i++)
        page_free(bars->rounds[i]);
    bars->count = 0;
    return good;
}
