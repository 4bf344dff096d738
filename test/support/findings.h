/* The findings of dibs_examine, among which a test looks for some. Used by the test's own thread only. */
#ifndef DIBS_TEST_FINDINGS_H
#define DIBS_TEST_FINDINGS_H

#include <dibs.h>

#define FINDINGS_MAX 200

typedef struct findings {
    struct finding {
        char server[160], subject[40], text[600], remedy[600];
        dibs_verdict verdict;
    } all[FINDINGS_MAX];
    size_t count;
} findings;

/* Examines the store. Each finding is complete: a remedy unless the verdict is ok, and one line for each text. */
const findings *findings_of(dibs_runtime *rt);

/* The first finding of that subject and verdict whose text contains the words; NULL: there is none. */
const struct finding *findings_find(const findings *f, const char *subject, dibs_verdict verdict, const char *words);

/* Fails the test where there is none; shows all findings then. */
const struct finding *findings_expect(const findings *f, const char *subject, dibs_verdict verdict, const char *words);

/* How many there are of that subject (NULL: any) that are not ok. */
size_t findings_bad(const findings *f, const char *subject);

#endif
