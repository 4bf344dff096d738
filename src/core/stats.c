#include "core/stats.h"

#include <string.h>

#include "core/runtime.h"

static uint64_t read_counter(const atomic_uint_fast64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static void read_all(struct dibs__core *core, dibs_stats *out)
{
#define READ(name) out->name = read_counter(&core->stats.name);
    DIBS__STATS_MAP(READ)
#undef READ
    out->store_commands = read_counter(&core->counters.commands);
    out->store_errors = read_counter(&core->counters.errors);
    out->reconnects = read_counter(&core->counters.reconnects);
    out->tracking = read_counter(&core->counters.tracking);
    out->invalidations = read_counter(&core->counters.invalidations);
    dibs__renewals_count(core->renewals, &out->leases, &out->reentered);
}

void dibs__stats_get(dibs_runtime *runtime, dibs_stats *out)
{
    struct dibs__visit visit;
    struct dibs__error error;

    memset(out, 0, sizeof *out);
    if (dibs__visit_begin(&visit, runtime, &error) != DIBS_OK)
        return;
    read_all(visit.core, out);
    dibs__visit_end(&visit);
}
