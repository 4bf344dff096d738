/*
 * What every test program includes: cmocka with what it needs, assertions in the terms of dibs, and how to wait. What
 * this header includes, and fixture.h, stage.h and masters.h with it, the programs do not include once more.
 */
#ifndef DIBS_TEST_TEST_H
#define DIBS_TEST_TEST_H

/* cmocka.h wants some of these before itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dibs.h>

#include "support/wait.h"

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
 * lock; so the lease is long.
 */
#define SAFE_LEASE_MS 3000

/* A lease that no renewal touches, and that does not end, while a test runs. */
#define LONG_LEASE_MS 600000

/* The same, and so long that every ask is a script: with it no lock is locked again by plain commands (rule 70). */
#define SCRIPT_LEASE_MS 3600000

/* Like assert_int_equal, but says the statuses' names and the detail. From the test's own thread only. */
#define assert_status(expected, call) test_check_status((expected), (call), #call, __FILE__, __LINE__)

/* Like assert_true, with a sentence for the log. */
#define assert_that(condition, ...) TEST_THAT(condition, #condition, __VA_ARGS__)

/* Waits until the condition holds, at most LIMIT_MS. */
#define await_that(condition) TEST_THAT(within(LIMIT_MS, condition), #condition, "it never becomes so")

/* The same, with a sentence for the log. */
#define await_or_say(condition, ...) TEST_THAT(within(LIMIT_MS, condition), #condition, __VA_ARGS__)

/* Does the step until the condition holds, for at most LIMIT_MS. */
#define REPEAT_UNTIL(condition, step) TEST_REPEAT(condition, #condition, step)

/* text: the condition as it was written, before the macros in it are expanded. */
#define TEST_REPEAT(condition, text, step)                                                                             \
    for (int64_t limit = now_ms() + LIMIT_MS; !(condition); step)                                                      \
    TEST_THAT(now_ms() < limit, text, "it never becomes so")

#define TEST_THAT(condition, text, ...)                                                                                \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            print_error("%s: ", text);                                                                                 \
            print_error(__VA_ARGS__);                                                                                  \
            print_error("\n");                                                                                         \
            _fail(__FILE__, __LINE__);                                                                                 \
        }                                                                                                              \
    } while (0)

/*
 * A test program is a file of tests, which run in the order of the file, and one line behind the last:
 *
 *     TEST(a_name_has_a_length)
 *     {
 *         ...
 *     }
 *
 *     TEST_ON(a_lock_that_is_free_is_granted, fixture *f)
 *     {
 *         ...
 *     }
 *
 *     TESTS(fixture_setup, fixture_teardown)
 *
 * All tests have that setup and teardown, which may be NULL; TEST_WITH names others in their place. The parameter of
 * the test is what the setup left in *state; that of a TEST is `void **state` itself. TEST_AGAIN, behind a test that
 * is no TEST, runs it once more, with another setup.
 */
#define TEST(name)                                                                                                     \
    static void name(void **state);                                                                                    \
    TEST_ADD(name, name, NULL)                                                                                         \
    static void name(void **state)

#define TEST_ON(name, parameter)                                                                                       \
    TEST_CALLED(name, parameter)                                                                                       \
    TEST_ADD(name, name##_on, NULL)                                                                                    \
    static void name(parameter)

#define TEST_WITH(name, setup, teardown, parameter)                                                                    \
    TEST_CALLED(name, parameter)                                                                                       \
    TEST_ADD(name, name##_on, TEST_FIXTURE(setup, teardown))                                                           \
    static void name(parameter)

#define TEST_AGAIN(name, setup, teardown)                                                                              \
    TEST_ADD_AS(add_##name##_##setup, name, name##_on, TEST_FIXTURE(setup, teardown))

#define TESTS(setup, teardown) TESTS_OF(setup, teardown, NULL, NULL)

/* The same with a setup and a teardown of the whole program. A main that has more to do calls test_run_all itself. */
#define TESTS_OF(setup, teardown, whole_setup, whole_teardown)                                                         \
    int main(void)                                                                                                     \
    {                                                                                                                  \
        return test_run_all(setup, teardown, whole_setup, whole_teardown);                                             \
    }

int test_run_all(CMFixtureFunction setup, CMFixtureFunction teardown, CMFixtureFunction whole_setup,
                 CMFixtureFunction whole_teardown);

struct test_fixture {
    CMFixtureFunction setup, teardown;
};

/* For the macros. fixture: its own, or NULL. */
void test_add(const char *name, CMUnitTestFunction run, const struct test_fixture *fixture);

/* NAME_on, which calls the test with what the setup left. */
#define TEST_CALLED(name, parameter)                                                                                   \
    static void name(parameter);                                                                                       \
    static void name##_on(void **state)                                                                                \
    {                                                                                                                  \
        name(*state);                                                                                                  \
    }

#define TEST_FIXTURE(setup, teardown) (&(const struct test_fixture){setup, teardown})

#define TEST_ADD(name, run, fixture) TEST_ADD_AS(add_##name, name, run, fixture)

/* Before main. */
#define TEST_ADD_AS(adder, name, run, fixture)                                                                         \
    static void adder##_run(void **state)                                                                              \
    {                                                                                                                  \
        test_run(run, state);                                                                                          \
    }                                                                                                                  \
    __attribute__((constructor)) static void adder(void)                                                               \
    {                                                                                                                  \
        test_add(#name, adder##_run, fixture);                                                                         \
    }

/* Runs the test, and then ends what is to end with it. */
void test_run(CMUnitTestFunction run, void **state);

/*
 * What ends with a test that passes, before its teardown: actors and agents, unless they end before; and the runtimes,
 * tasks, queues and servers that the test gave to test_runtime and the like, which return them. Those end in the order
 * of this list, and of each kind the last that began is the first. What a setup begins is the teardown's to end.
 */
enum test_kind { TEST_ACTOR, TEST_TASK, TEST_QUEUE, TEST_RUNTIME, TEST_AGENT, TEST_SERVER, TEST_KINDS };

/* For the functions that begin such things: it will end by `end`; and it has ended already. Any thread may call them.
 */
void test_ends(enum test_kind kind, void *what, void (*end)(void *what));
void test_ended(const void *what);

dibs_runtime *test_runtime(dibs_runtime *rt);

void test_check_status(dibs_status expected, dibs_status actual, const char *call, const char *file, int line);

#endif
