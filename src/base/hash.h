/* The hash of names in tables, and whether two names are the same. */
#ifndef DIBS_BASE_HASH_H
#define DIBS_BASE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The eight bytes at `bytes`, as a number. */
static inline uint64_t dibs__word(const char *bytes)
{
    uint64_t word;

    memcpy(&word, bytes, sizeof word);
    return word;
}

/* As memcmp() == 0, but for most names faster than a call of memcmp. */
static inline bool dibs__same_bytes(const char *one, const char *other, size_t size)
{
    if (size < 8 || size > 64)
        return memcmp(one, other, size) == 0;
    uint64_t difference = dibs__word(one + size - 8) ^ dibs__word(other + size - 8);
    for (size_t i = 0; i + 8 < size; i += 8)
        difference |= dibs__word(one + i) ^ dibs__word(other + i);
    return difference == 0;
}

/*
 * The last eight bytes as a number. If there are fewer, all of them; different contents of one size give different
 * numbers.
 */
static inline uint64_t dibs__hash_word(const char *bytes, size_t size)
{
    uint64_t word = 0;
    uint32_t low, high;

    if (size >= 8)
        return dibs__word(bytes + size - 8);
    if (size < 4) {
        for (size_t i = 0; i < size; i++)
            word = word << 8 | (unsigned char)bytes[i];
        return word;
    }
    memcpy(&low, bytes, 4);
    memcpy(&high, bytes + size - 4, 4);
    return (uint64_t)high << 32 | low;
}

static inline uint64_t dibs__hash_step(uint64_t hash, uint64_t word)
{
    hash =
        (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15); /* 2^64 / golden ratio; it is odd, so the product loses nothing */
    return hash ^ (hash >> 32);
}

/*
 * Like FNV-1a, but takes eight bytes at a time. All bytes count, because names may differ in any of them. The tables
 * use the low bits, into which each step folds the high ones.
 */
static inline uint64_t dibs__hash(const char *bytes, size_t size)
{
    uint64_t hash = size;

    for (size_t at = 0; at + 8 < size; at += 8)
        hash = dibs__hash_step(hash, dibs__word(bytes + at));
    return dibs__hash_step(dibs__hash_step(hash, dibs__hash_word(bytes, size)), 0);
}

#endif
