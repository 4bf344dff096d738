#include "support/text.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

struct text {
    struct text *next;
    char text[];
};

/* So that sanitizers find no leak. Without a mutex, which a thread might hold when another forks. */
static struct text *_Atomic all;

char *formatted(const char *format, ...)
{
    va_list arguments, again;

    va_start(arguments, format);
    va_copy(again, arguments);
    size_t size = (size_t)vsnprintf(NULL, 0, format, arguments) + 1;
    struct text *new_one = malloc(sizeof *new_one + size);
    if (!new_one)
        abort();
    vsnprintf(new_one->text, size, format, again);
    va_end(again);
    va_end(arguments);
    new_one->next = atomic_load(&all);
    while (!atomic_compare_exchange_weak(&all, &new_one->next, new_one))
        ;
    return new_one->text;
}
