#include "base/order.h"

#include "base/hash.h"

/*
 * Two names that share a mark are one lock to ThreadSanitizer: it may then miss
 * a race, but sees none that is not there. In the builds of our own tests
 * nothing is told, since it would hide what the library itself fails to order.
 */
#if defined(__ELF__) && defined(__GNUC__) && !defined(DIBS_CHECKED)

enum { MARKS = 1024 };

/* They are there in a program that was compiled with -fsanitize=thread. */
extern void __tsan_acquire(void *mark) __attribute__((weak));
extern void __tsan_release(void *mark) __attribute__((weak));

/* Never written: only the addresses are used. */
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
