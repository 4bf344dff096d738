/* The locks that "shared" compares. It says what the kinds and the lines of input mean. */
#ifndef PEERS_DIBS_SHARED_H
#define PEERS_DIBS_SHARED_H

#include <dibs.h>
#include <stdbool.h>

bool shared_knows(const char *kind);

/* One line of input, and its answer. order: go or take. */
void shared_run(dibs_runtime *runtime, const char *kind, const char *order, const char *name, unsigned count,
                double seconds);

#endif
