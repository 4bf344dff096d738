/*
 * A unit test on mem: a store inside the process, so that a program which uses dibs is tested without a server.
 *
 *     cc unit_test.c -o unit_test $(pkg-config --cflags --libs dibs)
 *     ./unit_test
 */
#include <dibs.h>
#include <stdio.h>
#include <stdlib.h>

/* ---------------------------------------------------------------- what to test */

static int stock = 1;

enum sale { SOLD, SOLD_OUT, ASK_LATER };

static enum sale sell(dibs_runtime *rt)
{
    if (dibs_timedlock(rt, "stock", 20) != DIBS_OK)
        return ASK_LATER;
    enum sale sale = stock > 0 && dibs_check(rt, "stock") == DIBS_OK ? SOLD : SOLD_OUT;
    stock -= sale == SOLD;
    dibs_unlock(rt, "stock");
    return sale;
}

/* ------------------------------------------------------------------- its tests */

static void expect(int right, int line)
{
    if (!right) {
        fprintf(stderr, "line %d: not as expected; %s\n", line, dibs_last_error());
        exit(1);
    }
}

#define EXPECT(condition) expect(condition, __LINE__)

/* Each runtime is like a process of its own; all that open the same name behind mem: share their locks. */
static dibs_runtime *open_process(void)
{
    const char *url = "mem:shop";
    const dibs_config config = {.urls = &url, .url_count = 1};
    dibs_runtime *rt;

    EXPECT(dibs_open(&rt, &config) == DIBS_OK);
    return rt;
}

static void test_sells_until_sold_out(dibs_runtime *rt)
{
    EXPECT(sell(rt) == SOLD);
    EXPECT(sell(rt) == SOLD_OUT);
    EXPECT(stock == 0);
    EXPECT(dibs_check(rt, "stock") == DIBS_NOT_HELD); /* nothing was left locked */
}

static void test_asks_to_come_later(dibs_runtime *rt, dibs_runtime *other)
{
    EXPECT(dibs_lock(other, "stock") == DIBS_OK);
    EXPECT(sell(rt) == ASK_LATER);
    EXPECT(dibs_unlock(other, "stock") == DIBS_OK);
    EXPECT(sell(rt) == SOLD_OUT);
}

int main(void)
{
    dibs_runtime *rt = open_process(), *other = open_process();

    test_sells_until_sold_out(rt);
    test_asks_to_come_later(rt, other);
    dibs_close(other);
    dibs_close(rt);
    puts("all tests passed");
    return 0;
}
