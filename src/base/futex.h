/*
 * A thread sleeps until a word in memory is changed: futex(2) where there is
 * one. Unlike a condition variable it needs no mutex, nothing is made or
 * destroyed, and the thread that wakes another touches nothing of it.
 */
#ifndef DIBS_BASE_FUTEX_H
#define DIBS_BASE_FUTEX_H

#include <stdatomic.h>
#include <stdint.h>

#define DIBS__FUTEX_FOR_EVER INT64_MAX

/* Sleeps while *word is `value`, for that many ns, until a wake. It may also return early, for no reason. */
void dibs__futex_wait(atomic_uint *word, unsigned value, int64_t ns);

/*
 * Wakes the thread that sleeps on the word, which was changed before. No more
 * than the address is used: the word may be gone, because the thread saw the
 * change and went on. Another thread that sleeps on a word which now stands at
 * that address wakes for no reason.
 */
void dibs__futex_wake(const atomic_uint *word);

#endif
