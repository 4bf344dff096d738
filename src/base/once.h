/* What a process does once, when it first needs it, and may fail to do: pthread_once(3) with a second chance. */
#ifndef DIBS_BASE_ONCE_H
#define DIBS_BASE_ONCE_H

#include <stdatomic.h>
#include <stdbool.h>

/* A static one, all zero, for each thing to be done. */
struct dibs__once {
    atomic_long by; /* the process one of whose threads is at it; 0: none is; -1: it is done */
};

/*
 * Runs `init` unless it has succeeded before, one thread at a time; others wait
 * meanwhile. Returns whether it has succeeded by then: after a failure the next
 * caller runs it again. A child that was forked while a thread of its parent was
 * at it runs it anew.
 */
bool dibs__once(struct dibs__once *once, bool (*init)(void));

/*
 * In a child: what is to be done once was done before the fork, whatever the
 * parent's thread had still to note. A handler that runs at forks proves that
 * it is registered.
 */
void dibs__once_was_done(struct dibs__once *once);

#endif
