/*
 * What the fuzz targets share. A target is one function that takes bytes, the
 * same for libFuzzer ("make fuzz") and for replay.c ("sh test/run"), and ends
 * the process where a promise is broken.
 */
#ifndef DIBS_TEST_FUZZ_H
#define DIBS_TEST_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Like assert(3), which NDEBUG does not switch off. */
#define promise(condition)                                                                                             \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #condition);                                    \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

#endif
