#include <string.h>

#include "core/runtime.h"

static uint64_t read_counter(const atomic_uint_fast64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

void dibs_stats_get(dibs_runtime *rt, dibs_stats *out)
{
    struct dibs__visit visit;

    if (!out)
        return;
    memset(out, 0, sizeof *out);
    if (!rt || dibs__visit_begin(&visit, rt) != DIBS_OK)
        return;
    struct dibs__core *core = visit.core;
#define COPY(field) out->field = read_counter(&core->stats.field)
    COPY(acquired);
    COPY(released);
    COPY(busy);
    COPY(timed_out);
    COPY(contended);
    COPY(granted);
    COPY(handed_off);
    COPY(renewed);
    COPY(renew_failed);
    COPY(lost);
    COPY(orphaned);
    COPY(holds);
    COPY(events_dropped);
#undef COPY
    out->store_commands = read_counter(&core->counters.commands);
    out->store_errors = read_counter(&core->counters.errors);
    out->reconnects = read_counter(&core->counters.reconnects);
    dibs__renewals_count(core->renewals, &out->leases, &out->reentered);
    dibs__visit_end(&visit);
}
