/*
 * Semaphores whose users give different limits: each call goes by its own, so more may be inside than some of them
 * think.
 */
#ifndef DIBS_CLI_DOCTOR_LIMITS_H
#define DIBS_CLI_DOCTOR_LIMITS_H

#include <dibs.h>

/* One sentence or two each, as of a dibs_finding; remedy "": nothing is wrong. */
typedef void doctor_limits_fn(void *context, const char *text, const char *remedy);

/*
 * Goes through the locks that are shared now, and calls tell for those with different limits; where there are none,
 * once for all, and not at all where no lock is shared. What can't be asked is left out.
 */
void doctor_limits(dibs_runtime *rt, doctor_limits_fn *tell, void *context);

#endif
