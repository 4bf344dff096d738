/*
 * An allocator that fails on demand, and counts the blocks that are not freed. Must be included by only one file of a
 * program, because it defines malloc for the whole program. Under a sanitizer, or with a C library other than glibc,
 * CAN_FAIL is 0: nothing fails, and nothing is counted.
 */
#ifndef DIBS_TEST_FAILING_MALLOC_H
#define DIBS_TEST_FAILING_MALLOC_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "support/test.h"

#define ALLOCATION_STATE __attribute__((unused)) static

ALLOCATION_STATE atomic_long fail_at;           /* the allocation that is to fail, counted from now; 0: none */
ALLOCATION_STATE atomic_long living;            /* allocations that were not freed */
ALLOCATION_STATE _Thread_local bool fails_here; /* this thread's allocations fail */
ALLOCATION_STATE atomic_bool fails_elsewhere;   /* all allocations fail, but for those of threads that are spared */
ALLOCATION_STATE _Thread_local bool is_spared;

#if defined(__GLIBC__) && !defined(TEST_UNDER_ASAN) && !defined(TEST_UNDER_TSAN)
#define CAN_FAIL 1

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void __libc_free(void *memory);

static bool is_to_fail(void)
{
    if (!fails_here && (is_spared || !atomic_load(&fails_elsewhere)))
        return false;
    if (atomic_load(&fail_at) <= 0 || atomic_fetch_sub(&fail_at, 1) != 1)
        return false;
    errno = ENOMEM;
    return true;
}

static void *counted(void *memory)
{
    if (memory)
        atomic_fetch_add(&living, 1);
    return memory;
}

void *malloc(size_t size)
{
    return is_to_fail() ? NULL : counted(__libc_malloc(size));
}

void *calloc(size_t count, size_t size)
{
    return is_to_fail() ? NULL : counted(__libc_calloc(count, size));
}

void *realloc(void *memory, size_t size)
{
    if (is_to_fail())
        return NULL;
    void *grown = __libc_realloc(memory, size);
    return memory ? grown : counted(grown);
}

void free(void *memory)
{
    if (memory)
        atomic_fetch_sub(&living, 1);
    __libc_free(memory);
}
#else
#define CAN_FAIL 0
#endif

/* This thread's nth allocation from now on fails, and no other. */
static inline void fail_here(long nth)
{
    fails_here = true;
    atomic_store(&fail_at, nth);
}

/* True: the allocation that was to fail has failed. */
static inline bool fail_no_more(void)
{
    bool failed = atomic_load(&fail_at) <= 0;

    atomic_store(&fail_at, 0);
    fails_here = false;
    return failed;
}

#endif
