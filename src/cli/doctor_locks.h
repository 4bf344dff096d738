/*
 * What doctor says of the locks themselves: semaphores whose users give different limits (each call goes by its own, so
 * there may be more holders than some of them expect), and how many locks are kept.
 */
#ifndef DIBS_CLI_DOCTOR_LOCKS_H
#define DIBS_CLI_DOCTOR_LOCKS_H

#include <dibs.h>

/* subject: "limits" or "kept". text, remedy: one or two sentences each, as in a dibs_finding; remedy "": no fault. */
typedef void doctor_locks_fn(void *context, const char *subject, const char *text, const char *remedy);

/*
 * Goes through the locks that are held now. Calls tell for the first ten that are shared with different limits, and
 * once for all others of that kind; or, if there is none, once for all that are shared. Calls tell once if locks are
 * kept. Leaves out what can't be queried.
 */
void doctor_locks(dibs_runtime *rt, doctor_locks_fn *tell, void *context);

#endif
