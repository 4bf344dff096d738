#include "core/stats_read.h"

#include <string.h>

#include "core/kept.h"

static uint64_t read_counter(const atomic_uint_fast64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/*
 * The ends are read before the acquires, so a hold that ends in between still counts as held. The reads are relaxed, so
 * more ends than acquires may be seen.
 */
static void read_holds(const struct dibs__core *core, dibs_stats *out)
{
    uint64_t ended = read_counter(&core->stats.ended_with_owner);
    struct dibs__metrics_view sum = {0}, group;

    for (unsigned cursor = 0; dibs__metrics_next(core->metrics, &cursor, &group);)
        dibs__metrics_add(&sum, &group);
    out->released = sum.histograms[DIBS__METRICS_HOLD].count;
    out->acquired = sum.histograms[DIBS__METRICS_WAIT].count;
    ended += out->released;
    out->holds = out->acquired > ended ? out->acquired - ended : 0;
}

static void read_all(struct dibs__core *core, dibs_stats *out)
{
#define READ(name) out->name = read_counter(&core->stats.name);
    DIBS__STATS_MAP(READ)
#undef READ
    read_holds(core, out);
    out->store_commands = read_counter(&core->counters.commands);
    out->store_errors = read_counter(&core->counters.errors);
    out->reconnects = read_counter(&core->counters.reconnects);
    out->tracking = read_counter(&core->counters.tracking);
    out->invalidations = read_counter(&core->counters.invalidations);
    out->kept = dibs__kept_count(core->cells);
    dibs__renewals_count(core->renewals, out);
}

dibs_status dibs__stats_get(dibs_runtime *runtime, dibs_stats *out, struct dibs__error *error)
{
    struct dibs__visit visit;

    memset(out, 0, sizeof *out);
    if (dibs__runtime_is_unused(runtime)) /* nothing has happened */
        return DIBS_OK;
    dibs_status status = dibs__visit_begin(&visit, runtime, error);
    if (status != DIBS_OK)
        return status;
    read_all(visit.core, out);
    out->untaken = atomic_load_explicit(&runtime->untaken, memory_order_relaxed);
    dibs__visit_end(&visit);
    return DIBS_OK;
}

bool dibs__stats_next_group(dibs_runtime *runtime, unsigned *cursor, struct dibs__metrics_view *out)
{
    struct dibs__visit visit;
    struct dibs__error error;

    if (dibs__runtime_is_unused(runtime) || dibs__visit_begin(&visit, runtime, &error) != DIBS_OK)
        return false;
    bool found = dibs__metrics_next(visit.core->metrics, cursor, out);
    dibs__visit_end(&visit);
    return found;
}
