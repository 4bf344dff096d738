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

void test_check_status(dibs_status expected, dibs_status actual, const char *call, const char *file, int line)
{
    if (actual == expected)
        return;
    print_error("%s: %s, should be %s; detail: %s\n", call, dibs_status_name(actual), dibs_status_name(expected),
                dibs_last_error());
    _fail(file, line);
}
