#include "race/bars.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

bool bars_write(const char *path, struct picture_strip *strips, size_t count)
{
    FILE *out = fopen(path, "w");
    bool good = out && picture_write(out, strips, count);

    if (out && fclose(out) != 0)
        good = false;
    if (!good)
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
    for (size_t i = 0; i < count; i++)
        free((void *)(uintptr_t)strips[i].bars);
    return good;
}
