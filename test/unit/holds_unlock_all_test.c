/*
 * Giving up all holds of one runtime among those of two takes a time that grows with their number and not with its
 * square.
 */
#include "support/fixture.h"
#include "support/linear.h"
#include "support/common/timing.h"

#ifdef TEST_UNDER_TSAN
enum { FEW = 1000 }; /* each takes some ten times as long */
#else
enum { FEW = 4000 };
#endif

static const char *const url = "mem:";

typedef void give_up(dibs_runtime *rt);

struct run {
    give_up *give_up;
    size_t count;
    int64_t ns;
    bool good;
};

/* Holds each name of both runtimes, by turns. On a thread of its own, whose table is new. */
static void hold_and_give_up(void *arg)
{
    struct run *run = arg;
    const dibs_config config = {.urls = &url, .url_count = 1, .lease_ms = LONG_LEASE_MS};
    dibs_runtime *first, *second;
    char name[24];

    run->good = dibs_open(&first, &config) == DIBS_OK && dibs_open(&second, &config) == DIBS_OK;
    for (size_t i = 0; i < run->count && run->good; i++) {
        snprintf(name, sizeof name, "%zu", i);
        run->good = dibs_trylock(first, name) == DIBS_OK && dibs_trylock(second, name) == DIBS_OK;
    }
    int64_t before = thread_ns();
    run->give_up(first);
    run->ns = thread_ns() - before;
    run->good = run->good && dibs_check(first, "0") == DIBS_NOT_HELD && dibs_check(second, "0") == DIBS_OK &&
                dibs_check(second, name) == DIBS_OK && dibs_unlock_all(second) == DIBS_OK;
    dibs_close(first);
    dibs_close(second);
}

static int64_t time_of(void *arg, size_t count)
{
    struct run *run = arg;

    run->count = count;
    call_in_a_thread(hold_and_give_up, run);
    assert_true(run->good);
    return run->ns;
}

static void expect_linear(give_up *function)
{
    struct sized_times times = time_sizes(time_of, &(struct run){.give_up = function}, FEW);

    assert_linear(&times);
}

static void unlock_all(dibs_runtime *rt)
{
    dibs_unlock_all(rt);
}

TEST(unlocking_all_is_linear)
{
    expect_linear(unlock_all);
}

/* What the closing thread held is forgotten. */
TEST(closing_is_linear)
{
    expect_linear(dibs_close);
}

TESTS(NULL, NULL)
