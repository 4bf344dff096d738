/* Calls that a program begins for a task; a completion reports the end of each. */
#ifndef DIBS_CORE_BEGIN_H
#define DIBS_CORE_BEGIN_H

#include "core/core.h"
#include "core/holds.h"

/* As the functions of dibs.h. The arguments were checked. */
dibs_status dibs__lock_begin(dibs_task *task, const char *name, size_t name_size, const struct dibs__wish *wish,
                             dibs_queue *queue, void *arg, struct dibs__error *error);
dibs_status dibs__unlock_begin(dibs_task *task, const char *name, size_t name_size, dibs_queue *queue, void *arg,
                               struct dibs__error *error);
dibs_status dibs__lock_names_begin(dibs_task *task, const char *const *names, size_t count,
                                   const struct dibs__wish *wish, dibs_queue *queue, void *arg,
                                   struct dibs__error *error);

#endif
