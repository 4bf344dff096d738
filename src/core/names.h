/* A set of names, in the order in which they were added. */
#ifndef DIBS_CORE_NAMES_H
#define DIBS_CORE_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Used by one thread. All zero: an empty set. */
struct dibs__names {
    char **all;
    size_t count, room; /* room: of `all` */
    uint32_t *table;    /* hash table of 2 * room entries: 1 more than the place in `all`; 0: none */
};

/* Adds a copy of the name, unless it is in the set. False: no memory. */
bool dibs__names_add(struct dibs__names *names, const char *name);
void dibs__names_free(struct dibs__names *names);

#endif
