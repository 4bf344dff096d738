/* What every test program includes: cmocka with what it needs, and assertions in the terms of dibs. */
#ifndef DIBS_TEST_TEST_H
#define DIBS_TEST_TEST_H

/* cmocka.h wants these four before itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dibs.h>

/* Tests, and the functions that they give the library, have the parameters that others call them with. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TEST_UNDER_TSAN 1
#elif __has_feature(address_sanitizer)
#define TEST_UNDER_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define TEST_UNDER_TSAN 1
#elif defined(__SANITIZE_ADDRESS__)
#define TEST_UNDER_ASAN 1
#endif

/*
 * A lease that is renewed and must survive. A thread that cannot run for two thirds of its lease rightly loses the
 * lock; so the lease is long, and longer where sanitizers slow everything down.
 */
#if defined(TEST_UNDER_TSAN) || defined(TEST_UNDER_ASAN)
#define SAFE_LEASE_MS 3000
#else
#define SAFE_LEASE_MS 1200
#endif

/* A lease that no renewal touches, and that does not end, while a test runs. */
#define LONG_LEASE_MS 600000

/* The same, and so long that every ask is a script: with it no lock is locked again by plain commands (rule 70). */
#define SCRIPT_LEASE_MS 3600000

/* Like assert_int_equal, but says the statuses' names and the detail. From the test's own thread only. */
#define assert_status(expected, call) test_check_status((expected), (call), #call, __FILE__, __LINE__)

/* Like assert_true, with a sentence for the log. */
#define assert_that(condition, ...)                                                                                    \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            print_error("%s: ", #condition);                                                                           \
            print_error(__VA_ARGS__);                                                                                  \
            print_error("\n");                                                                                         \
            _fail(__FILE__, __LINE__);                                                                                 \
        }                                                                                                              \
    } while (0)

void test_check_status(dibs_status expected, dibs_status actual, const char *call, const char *file, int line);

#endif
