/* Taking completions: the thread that waits for them drives the workers of the runtime that the queue served last. */
#ifndef DIBS_CORE_TAKE_H
#define DIBS_CORE_TAKE_H

#include "core/done.h"

/* As dibs_queue_take. */
size_t dibs__queue_take(dibs_queue *queue, dibs_completion *out, size_t max, int64_t wait_ms);

#endif
