/* A hash of bytes, for tables. */
#ifndef DIBS_BASE_HASH_H
#define DIBS_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* FNV-1a (Fowler, Noll, Vo), with its high bits folded into the low ones, which the tables use. */
static inline uint64_t dibs__hash(const char *bytes, size_t size)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < size; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
    return hash ^ (hash >> 32);
}

#endif
