/* Assertions in the terms of dibs. */
#include "support/test.h"

#include <stdlib.h>

/*
 * fork_test starts threads in the children of a program with threads, which ThreadSanitizer refuses unless this is set.
 * The sanitizer gives the function its name.
 */
const char *__tsan_default_options(void);

const char *__tsan_default_options(void)
{
    return "die_after_fork=0";
}

/* DIBS_ONLY="a_newcomer*" in the environment: of each program only the tests whose names match. */
__attribute__((constructor)) static void choose_tests(void)
{
    const char *pattern = getenv("DIBS_ONLY");

    if (pattern)
        cmocka_set_test_filter(pattern);
}

/* The tests of the program, and which of them have a setup and teardown of their own. */
#define TESTS_MOST 128

static struct CMUnitTest all[TESTS_MOST];
static bool has_own[TESTS_MOST];
static size_t count;

void test_add(const char *name, CMUnitTestFunction run, const struct test_fixture *fixture)
{
    if (count == TESTS_MOST)
        abort();
    all[count] = (struct CMUnitTest){.name = name, .test_func = run};
    has_own[count] = fixture != NULL;
    if (fixture) {
        all[count].setup_func = fixture->setup;
        all[count].teardown_func = fixture->teardown;
    }
    count++;
}

int test_run_all(CMFixtureFunction setup, CMFixtureFunction teardown, CMFixtureFunction whole_setup,
                 CMFixtureFunction whole_teardown)
{
    struct CMUnitTest tests[count]; /* whose size cmocka wants to know */

    for (size_t i = 0; i < count; i++) {
        tests[i] = all[i];
        if (!has_own[i]) {
            tests[i].setup_func = setup;
            tests[i].teardown_func = teardown;
        }
    }
    return cmocka_run_group_tests(tests, whole_setup, whole_teardown);
}

void test_check_status(dibs_status expected, dibs_status actual, const char *call, const char *file, int line)
{
    if (actual == expected)
        return;
    print_error("%s: %s, should be %s; detail: %s\n", call, dibs_status_name(actual), dibs_status_name(expected),
                dibs_last_error());
    _fail(file, line);
}
