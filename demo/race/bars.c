#include "race/bars.h"

#include <stdlib.h>

#include "race/count.h"

bool bars_add(struct picture_strip *strip, const struct race *race)
{
    struct picture_bar *bars = calloc(race->options.threads, sizeof *bars);

    if (!bars) {
        fprintf(stderr, "out of memory\n");
        return false;
    }
    for (unsigned i = 0; i < race->options.threads; i++) {
        const struct record *record = &race->records[i];
        uint64_t begin, end;
        if (hold_of(race, record, &begin, &end))
            bars[i] = (struct picture_bar){(double)begin, (double)end, record_time(record, HAPPENED_WORK) != 0,
                                           deleted_anothers(race, record)};
    }
    snprintf(strip->title, sizeof strip->title, "%s: the counter ends at %lld", race->way->title, race->final);
    strip->lease_ns = race->options.lease_ms * 1e6;
    strip->bars = bars;
    strip->count = race->options.threads;
    return true;
}

void bars_free(struct picture_strip *strip)
{
    free((void *)(uintptr_t)strip->bars);
    strip->bars = NULL;
}
