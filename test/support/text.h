/* Texts that tests put together: names of locks, keys, URLs. */
#ifndef DIBS_TEST_TEXT_H
#define DIBS_TEST_TEXT_H

/* As sprintf; the text lives as long as the process. From any thread. */
char *formatted(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
