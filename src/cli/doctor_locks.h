/*
 * What doctor says of the locks themselves: semaphores whose users give different limits (each call goes by its own, so
 * more may be inside than some of them think), and how many locks are kept.
 */
#ifndef DIBS_CLI_DOCTOR_LOCKS_H
#define DIBS_CLI_DOCTOR_LOCKS_H

#include <dibs.h>

/* One sentence or two each, as of a dibs_finding, on "limits" or "kept"; remedy "": nothing is wrong. */
typedef void doctor_locks_fn(void *context, const char *subject, const char *text, const char *remedy);

/*
 * Goes through the locks that are taken now. Calls tell for those that are shared with different limits; where there
 * are none, once for all that are shared; and once where some are kept. What can't be asked is left out.
 */
void doctor_locks(dibs_runtime *rt, doctor_locks_fn *tell, void *context);

#endif
