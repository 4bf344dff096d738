/* A set of names, in the order in which they came. */
#ifndef DIBS_CORE_NAMES_H
#define DIBS_CORE_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One thread's. All zero: empty. */
struct dibs__names {
    char **all;
    size_t count, room; /* room: of `all` */
    uint32_t *table;    /* 1 more than the place in `all`; 0: nothing. Of 2 * room entries */
};

bool dibs__names_add(struct dibs__names *names, const char *name); /* a copy, unless it is in; false: no memory */
void dibs__names_free(struct dibs__names *names);

#endif
