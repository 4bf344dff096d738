#include "base/order.h"

#include "base/hash.h"

/*
 * ThreadSanitizer takes two names that share a mark for one lock: it may then miss a race, but reports none that does
 * not exist. In our own test builds it is told nothing, because that would hide missing order within the library
 * itself.
 */
#if defined(__ELF__) && defined(__GNUC__) && !defined(DIBS_CHECKED)

enum { MARKS = 1024 };

/* Defined in a program that was compiled with -fsanitize=thread. */
extern void __tsan_acquire(void *mark) __attribute__((weak));
extern void __tsan_release(void *mark) __attribute__((weak));

/* The marks are never written; only their addresses are used. */
static char *mark_of(const char *name, size_t size)
{
    static char marks[MARKS];

    return &marks[dibs__hash(name, size) % MARKS];
}

void dibs__order_acquired(const char *name, size_t size)
{
    if (__tsan_acquire)
        __tsan_acquire(mark_of(name, size));
}

void dibs__order_releases(const char *name, size_t size)
{
    if (__tsan_release)
        __tsan_release(mark_of(name, size));
}

#else

void dibs__order_acquired(const char *name, size_t size)
{
    (void)name;
    (void)size;
}

void dibs__order_releases(const char *name, size_t size)
{
    (void)name;
    (void)size;
}

#endif
