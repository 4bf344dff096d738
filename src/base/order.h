/*
 * What ThreadSanitizer must be told. A thread that acquires a lock sees what the thread that released it did before.
 * But between the two may lie the store, which ThreadSanitizer does not see, and a library that it did not compile.
 * Without these calls it would report a race on the data that a lock guards.
 *
 * In a program without -fsanitize=thread, a call costs one comparison.
 */
#ifndef DIBS_BASE_ORDER_H
#define DIBS_BASE_ORDER_H

#include <stddef.h>

/*
 * The calling thread has acquired the lock of that name: it sees what was done before dibs__order_releases was called.
 */
void dibs__order_acquired(const char *name, size_t size);

/* The calling thread is about to release the lock of that name, and nobody else can have it yet. */
void dibs__order_releases(const char *name, size_t size);

#endif
