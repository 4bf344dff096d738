/*
 * A program that has a hiredis of another kind than the one that the library was
 * built with, in place of it: dibs_open refuses a store that needs hiredis. See
 * test/build/hiredis.sh for the shared library.
 */
#include "support/other_hiredis.h"
#include "support/test.h"

static dibs_status open_at(const char *const *urls, size_t count)
{
    dibs_config config = {.urls = urls, .url_count = count};
    dibs_runtime *rt;
    dibs_status status = dibs_open(&rt, &config);

    dibs_close(rt);
    return status;
}

static void expect_refused(const char *const *urls, size_t count)
{
    char start[100];

    snprintf(start, sizeof start, "the program has another hiredis than %d.%d.%d,", HIREDIS_MAJOR, HIREDIS_MINOR,
             HIREDIS_PATCH);
    assert_status(DIBS_INVALID, open_at(urls, count));
    if (!strstr(dibs_last_error(), start))
        fail_msg("not said: %s", dibs_last_error());
}

/* Nothing listens there: a server is not even asked. */
TEST(another_hiredis_is_refused)
{
    static const char *const urls[] = {"unix:///nowhere/1.sock", "unix:///nowhere/2.sock", "unix:///nowhere/3.sock"};
    static const char *const cluster[] = {"redis-cluster://127.0.0.1:1"};
    static const char *const sentinel[] = {"redis-sentinel://127.0.0.1:1/master"};

    expect_refused(urls, 1);
    expect_refused(urls, 3);
    expect_refused(cluster, 1);
    expect_refused(sentinel, 1);
}

TEST(a_store_in_memory_needs_no_hiredis)
{
    static const char *const urls[] = {"mem:"};

    assert_status(DIBS_OK, open_at(urls, 1));
}

TESTS(NULL, NULL)
