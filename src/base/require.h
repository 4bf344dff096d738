/* Preconditions. Test builds (DIBS_CHECKED: those with a sanitizer) abort if one does not hold; others ignore them. */
#ifndef DIBS_BASE_REQUIRE_H
#define DIBS_BASE_REQUIRE_H

#ifdef DIBS_CHECKED
#include <stdio.h>
#include <stdlib.h>
#define DIBS__REQUIRE(condition)                                                                                       \
    ((condition) ? (void)0                                                                                             \
                 : (fprintf(stderr, "%s:%d: %s requires %s\n", __FILE__, __LINE__, __func__, #condition), abort()))
#else
#define DIBS__REQUIRE(condition) ((void)sizeof(!(condition)))
#endif

#endif
