/* Counts what a program allocates, by an allocator of its own around that of glibc. */
#ifndef BENCH_ALLOCATIONS_H
#define BENCH_ALLOCATIONS_H

struct allocations {
    double hiredis; /* by the code of hiredis, where it is a shared library */
    double others;
    double here; /* by the calling thread, whosever code */
};

/* Since the program began, by all threads; NAN: another C library, or a sanitizer has the allocator. */
struct allocations allocations_now(void);

#endif
