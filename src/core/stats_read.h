/* The statistics of a runtime, as dibs_stats_get shows them. */
#ifndef DIBS_CORE_STATS_READ_H
#define DIBS_CORE_STATS_READ_H

#include "core/runtime.h"

/* Fills *out. DIBS_CLOSED, or DIBS_NO_MEMORY after a fork: *out is all zero, and the error is filled. */
dibs_status dibs__stats_get(dibs_runtime *runtime, dibs_stats *out, struct dibs__error *error);

/* Like dibs__metrics_next. False also if the runtime is closed. */
bool dibs__stats_next_group(dibs_runtime *runtime, unsigned *cursor, struct dibs__metrics_view *out);

#endif
