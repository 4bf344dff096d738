/*
 * A thread sleeps until a word in memory is changed: by futex(2) where there is one. Unlike a condition variable, this
 * needs no mutex, nothing is initialised or destroyed, and the waking thread does not touch the sleeping one's memory.
 */
#ifndef DIBS_BASE_FUTEX_H
#define DIBS_BASE_FUTEX_H

#include <stdatomic.h>
#include <stdint.h>

/*
 * Sleeps while *word equals `value`, for at most `ns` nanoseconds (INT64_MAX: for ever), until a wake. May also return
 * early without a reason.
 */
void dibs__futex_wait(atomic_uint *word, unsigned value, int64_t ns);

/*
 * Wakes the thread that sleeps on the word, after the word was changed. Only the address is used: the word may be gone,
 * because its thread saw the change and went on. If another word is now at that address, a thread that sleeps on that
 * word wakes without a reason.
 */
void dibs__futex_wake(const atomic_uint *word);

#endif
