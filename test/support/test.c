/* Assertions in the terms of dibs. */
#include "support/test.h"

#include <pthread.h>

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

/* ------------------------------------------------------ what ends with a test */

#define ENDINGS_MOST 1024

/* Guarded by endings_mutex. A test that fails leaves some. */
static struct ending {
    enum test_kind kind;
    void *what;
    void (*end)(void *what);
} endings[ENDINGS_MOST];
static size_t ending_count;
static bool is_running;

static pthread_mutex_t endings_mutex = PTHREAD_MUTEX_INITIALIZER;

void test_ends(enum test_kind kind, void *what, void (*end)(void *what))
{
    pthread_mutex_lock(&endings_mutex);
    if (ending_count == ENDINGS_MOST)
        abort();
    if (is_running)
        endings[ending_count++] = (struct ending){kind, what, end};
    pthread_mutex_unlock(&endings_mutex);
}

void test_ended(const void *what)
{
    pthread_mutex_lock(&endings_mutex);
    size_t kept = 0;
    for (size_t i = 0; i < ending_count; i++)
        if (endings[i].what != what)
            endings[kept++] = endings[i];
    ending_count = kept;
    pthread_mutex_unlock(&endings_mutex);
}

static void set_running(bool running)
{
    pthread_mutex_lock(&endings_mutex);
    is_running = running;
    ending_count = 0;
    pthread_mutex_unlock(&endings_mutex);
}

/* Of that kind, which is taken out. False: there is none. */
static bool take_last(enum test_kind kind, struct ending *out)
{
    pthread_mutex_lock(&endings_mutex);
    size_t i = ending_count;
    while (i > 0 && endings[i - 1].kind != kind)
        i--;
    if (i > 0)
        *out = endings[i - 1];
    pthread_mutex_unlock(&endings_mutex);
    if (i > 0)
        test_ended(out->what);
    return i > 0;
}

void test_run(CMUnitTestFunction run, void **state)
{
    struct ending last;

    set_running(true);
    run(state);
    for (enum test_kind kind = 0; kind < TEST_KINDS; kind++)
        while (take_last(kind, &last))
            last.end(last.what);
    set_running(false);
}

static void close_runtime(void *rt)
{
    dibs_close(rt);
}

dibs_runtime *test_runtime(dibs_runtime *rt)
{
    test_ends(TEST_RUNTIME, rt, close_runtime);
    return rt;
}

void test_check_status(dibs_status expected, dibs_status actual, const char *call, const char *file, int line)
{
    if (actual == expected)
        return;
    print_error("%s: %s, should be %s; detail: %s\n", call, dibs_status_name(actual), dibs_status_name(expected),
                dibs_last_error());
    _fail(file, line);
}
