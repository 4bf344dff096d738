#include "calls/allocations.h"

#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include <link.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);

static atomic_ulong by_hiredis, by_others;
static _Thread_local unsigned long by_this_thread;
static atomic_uintptr_t hiredis_begin, hiredis_end; /* where its code is; 0: not known yet, or not a shared library */

static void count(const void *caller)
{
    uintptr_t at = (uintptr_t)caller;
    bool inside = at >= atomic_load_explicit(&hiredis_begin, memory_order_relaxed) &&
                  at < atomic_load_explicit(&hiredis_end, memory_order_relaxed);

    by_this_thread++;
    atomic_fetch_add_explicit(inside ? &by_hiredis : &by_others, 1, memory_order_relaxed);
}

void *malloc(size_t size)
{
    count(__builtin_return_address(0));
    return __libc_malloc(size);
}

void *calloc(size_t number, size_t size)
{
    count(__builtin_return_address(0));
    return __libc_calloc(number, size);
}

void *realloc(void *memory, size_t size)
{
    count(__builtin_return_address(0));
    return __libc_realloc(memory, size);
}

static int find_hiredis(struct dl_phdr_info *object, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    for (int i = 0; strstr(object->dlpi_name, "libhiredis") && i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD && segment->p_flags & PF_X) {
            atomic_store(&hiredis_begin, object->dlpi_addr + segment->p_vaddr);
            atomic_store(&hiredis_end, object->dlpi_addr + segment->p_vaddr + segment->p_memsz);
        }
    }
    return 0;
}

struct allocations allocations_now(void)
{
    if (atomic_load(&hiredis_end) == 0)
        dl_iterate_phdr(find_hiredis, NULL);
    return (struct allocations){.hiredis = (double)atomic_load(&by_hiredis),
                                .others = (double)atomic_load(&by_others),
                                .here = (double)by_this_thread};
}

#else

struct allocations allocations_now(void)
{
    return (struct allocations){NAN, NAN, NAN};
}

#endif
