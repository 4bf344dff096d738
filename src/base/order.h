/*
 * What ThreadSanitizer must be told. A thread that acquires a lock sees what the
 * thread did that released it before; but between them may lie the store, which
 * ThreadSanitizer does not see, and a library that it did not compile. Without
 * this it would call the data that a lock guards a race.
 *
 * Costs a comparison where the program is not compiled with -fsanitize=thread.
 */
#ifndef DIBS_BASE_ORDER_H
#define DIBS_BASE_ORDER_H

#include <stddef.h>

/* The calling thread has acquired the lock of that name: it sees what was done before the calls below. */
void dibs__order_acquired(const char *name, size_t size);

/* The calling thread is about to release the lock of that name, and nobody else can have it yet. */
void dibs__order_releases(const char *name, size_t size);

#endif
