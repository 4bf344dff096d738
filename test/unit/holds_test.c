/* The table of what a thread holds: against a model, to ten thousand holds and back, and at a thread's end. */
#include "core/holds.h"
#include "support/actor.h"
#include "support/test.h"

#if defined(__GLIBC__) && !defined(TEST_UNDER_ASAN) && !defined(TEST_UNDER_TSAN)
#if __GLIBC_PREREQ(2, 33)
#include <malloc.h>
#define CAN_MEASURE_MEMORY 1
#endif
#endif

#define MANY 10000

static atomic_uint orphaned_count, forgotten_count;

static void orphaned(struct dibs__lease *lease)
{
    atomic_fetch_add(&orphaned_count, 1);
    dibs__lease_unref(lease);
}

static void forgotten(struct dibs__lease *lease)
{
    atomic_fetch_add(&forgotten_count, 1);
    dibs__lease_unref(lease);
}

static int setup(void **state)
{
    dibs__holds_on_end(&(struct dibs__holds_hooks){orphaned, forgotten});
    return 0;
}

static struct dibs__hold *add(uint64_t runtime, const char *name)
{
    assert_true(dibs__holds_reserve(dibs__holds_here(runtime), 1));
    return dibs__holds_add(dibs__holds_here(runtime), dibs__lease_new(runtime, name, strlen(name), DIBS__TOKEN_MAX), 0);
}

static struct dibs__hold *find(uint64_t runtime, const char *name)
{
    return dibs__holds_find(runtime, name, strlen(name));
}

static void take_out(uint64_t runtime, const char *name)
{
    struct dibs__hold *hold = find(runtime, name);

    assert_non_null(hold);
    dibs__lease_unref(dibs__holds_remove(dibs__holds_here(hold->lease->runtime), hold));
}

TEST(a_hold_is_found_by_runtime_and_name)
{
    struct dibs__hold *hold = add(1, "a");

    assert_int_equal(hold->count, 1);
    assert_ptr_equal(find(1, "a"), hold);
    assert_null(find(2, "a"));
    assert_null(find(1, "b"));
    assert_null(find(1, "aa"));
    assert_null(dibs__holds_find(1, "a", 0));
    assert_ptr_equal(dibs__holds_next(dibs__holds_here(1), 1, &(uint32_t){DIBS__HOLDS_ALL}), hold);
    assert_null(dibs__holds_next(dibs__holds_here(2), 2, &(uint32_t){DIBS__HOLDS_ALL}));
    take_out(1, "a");
    assert_null(find(1, "a"));
    assert_null(dibs__holds_next(dibs__holds_here(1), 1, &(uint32_t){DIBS__HOLDS_ALL}));
}

/* ---------------------------------------------------------- the last one used */

/* Not inline: gcc would warn about bytes of a short constant that are never read. */
static __attribute__((noinline)) struct dibs__hold *find_last(uint64_t runtime, const char *name)
{
    return dibs__holds_find_last(runtime, name);
}

static void expect_last(uint64_t runtime, const char *name)
{
    struct dibs__hold *hold = find(runtime, name);

    assert_non_null(hold);
    assert_ptr_equal(find_last(runtime, name), hold);
}

TEST(the_last_hold_is_found_by_its_name_alone)
{
    char name[8] = "ab";

    assert_null(find_last(1, "a"));
    struct dibs__hold *hold = add(1, name);
    assert_ptr_equal(find_last(1, name), hold);
    assert_null(find_last(2, name));
    strcpy(name, "ac"); /* the same place, another name */
    assert_null(find_last(1, name));
    assert_null(find_last(1, "a"));
    assert_null(find_last(1, "abc"));
    assert_null(find_last(1, ""));
    assert_null(find(1, "ac"));
    assert_ptr_equal(find_last(1, "ab"), hold);
    add(1, "ac");
    assert_null(find_last(1, "ab"));
    expect_last(1, "ab");
    expect_last(1, "ac");
    take_out(1, "ab");
    assert_null(find_last(1, "ab"));
    expect_last(1, "ac");
    take_out(1, "ac");
    assert_null(find_last(1, "ac"));
}

TEST(the_last_hold_is_right_while_the_table_grows_and_shrinks)
{
    char name[16];

    add(1, "0");
    for (unsigned i = 1; i < 100; i++) {
        snprintf(name, sizeof name, "%u", i);
        expect_last(1, "0"); /* the table may move when the next one is added */
        assert_true(dibs__holds_reserve(dibs__holds_here(1), 1));
        struct dibs__hold *last = find_last(1, "0");
        assert_true(!last || last == find(1, "0"));
        expect_last(1, "0");
        add(1, name);
        expect_last(1, name);
    }
    for (unsigned i = 99; i > 0; i--) {
        snprintf(name, sizeof name, "%u", i);
        expect_last(1, "0");
        take_out(1, name);
        assert_null(find_last(1, name));
    }
    take_out(1, "0");
}

static void drop_all(uint64_t runtime)
{
    uint32_t cursor = DIBS__HOLDS_ALL;

    for (struct dibs__hold *hold; (hold = dibs__holds_next(dibs__holds_here(runtime), runtime, &cursor));) {
        assert_int_equal(hold->lease->runtime, runtime);
        dibs__lease_unref(dibs__holds_remove(dibs__holds_here(hold->lease->runtime), hold));
    }
}

TEST(a_walk_looks_at_each_hold_once)
{
    static const struct {
        uint64_t runtime;
        const char *name;
    } added[] = {{1, "a"}, {2, "a"}, {1, "b"}, {1, "c"}, {3, "a"}};
    struct dibs__hold *seen[8], *hold;
    uint32_t cursor = DIBS__HOLDS_ALL;
    size_t count = 0;

    for (size_t i = 0; i < sizeof added / sizeof added[0]; i++)
        add(added[i].runtime, added[i].name);
    while (count < 8 && (hold = dibs__holds_next(dibs__holds_here(1), 1, &cursor)))
        seen[count++] = hold;
    assert_int_equal(count, 3);
    assert_ptr_equal(seen[0], find(1, "c"));
    assert_ptr_equal(seen[1], find(1, "b"));
    assert_ptr_equal(seen[2], find(1, "a"));
    for (uint64_t runtime = 1; runtime <= 3; runtime++)
        drop_all(runtime);
}

/* ------------------------------------------------------------------ a model */

static unsigned next_random(unsigned *seed)
{
    *seed = *seed * 1664525 + 1013904223;
    return *seed >> 8;
}

/* Expects that each name of the model is found with its own count, and no other. */
static void compare_with_model(const bool *held, unsigned names)
{
    char name[16];

    for (unsigned i = 0; i < names; i++) {
        snprintf(name, sizeof name, "%u", i);
        struct dibs__hold *hold = find(1 + i % 3, name);
        assert_int_equal(hold != NULL, held[i]);
        if (hold) {
            assert_string_equal(hold->lease->name, name);
            assert_int_equal(hold->count, i + 1);
        }
    }
}

TEST(the_table_agrees_with_a_model_in_random_order)
{
    static const unsigned sizes[] = {3,  8,   9,   16,
                                     17, 100, 1000}; /* around the sizes at which the index is made and freed */
    bool held[1000];
    unsigned seed = 1;
    char name[16];

    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        memset(held, 0, sizeof held);
        for (unsigned step = 0; step < sizes[s] * 30; step++) {
            unsigned i = next_random(&seed) % sizes[s];
            snprintf(name, sizeof name, "%u", i);
            if (held[i])
                take_out(1 + i % 3, name);
            else
                add(1 + i % 3, name)->count = i + 1;
            held[i] = !held[i];
            if (step % (sizes[s] / 2) == 0)
                compare_with_model(held, sizes[s]);
        }
        for (unsigned runtime = 1; runtime <= 3; runtime++)
            drop_all(runtime);
        memset(held, 0, sizeof held);
        compare_with_model(held, sizes[s]);
    }
}

/* --------------------------------------------------------------------- many */

/* Forwards, backwards, from the middle: each order leaves different gaps in the index. */
static unsigned place_of(unsigned order, unsigned i)
{
    switch (order) {
    case 0:
        return i;
    case 1:
        return MANY - 1 - i;
    default:
        return (i * 7919) % MANY; /* a prime that MANY is no multiple of: each number once */
    }
}

TEST(ten_thousand_holds_come_and_go)
{
    char name[16];

    for (unsigned order = 0; order < 3; order++) {
        for (unsigned i = 0; i < MANY; i++) {
            snprintf(name, sizeof name, "%u", i);
            add(1, name);
        }
        for (unsigned i = 0; i < MANY; i++) {
            snprintf(name, sizeof name, "%u", place_of(order, i));
            take_out(1, name);
            assert_null(find(1, name));
            snprintf(name, sizeof name, "%u", place_of(order, MANY - 1)); /* the last to go */
            assert_int_equal(find(1, name) != NULL, i < MANY - 1);
        }
        assert_null(dibs__holds_next(dibs__holds_here(1), 1, &(uint32_t){DIBS__HOLDS_ALL}));
    }
}

#ifdef CAN_MEASURE_MEMORY
static size_t memory_in_use(void)
{
    struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

TEST(the_memory_of_holds_is_freed_with_them)
{
    size_t before = memory_in_use();
    char name[16];

    for (unsigned i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "%u", i);
        add(1, name);
    }
    size_t most = memory_in_use() - before;
    for (unsigned i = 0; i < MANY - 10; i++) {
        snprintf(name, sizeof name, "%u", i);
        take_out(1, name);
    }
    if (most > 0) /* valgrind counts no memory */
        assert_that(memory_in_use() - before < most / 100, "ten holds take %zu bytes", memory_in_use() - before);
    for (unsigned i = MANY - 10; i < MANY; i++) {
        snprintf(name, sizeof name, "%u", i);
        take_out(1, name);
    }
    /* Memory that malloc keeps for the next allocation of the same size counts as used. */
    assert_that(memory_in_use() <= before + 4096, "none takes %zu bytes", memory_in_use() - before);
}
#endif

/* ------------------------------------------------------------- a thread's end */

static void hold_three(void *arg)
{
    add(1, "a");
    add(1, "b");
    add(2, "a");
}

TEST(the_holds_of_a_thread_that_ends_are_orphaned)
{
    unsigned before = atomic_load(&orphaned_count);
    actor *thread = actor_running(hold_three, NULL);

    actor_finish(thread);
    assert_null(find(1, "a")); /* the hold belongs to the other thread */
    assert_int_equal(atomic_load(&orphaned_count), before);
    actor_end(thread);
    assert_int_equal(atomic_load(&orphaned_count), before + 3);
}

static void add_and_take_out(void *arg)
{
    add(1, "a");
    take_out(1, "a");
}

TEST(a_thread_that_holds_nothing_orphans_nothing)
{
    unsigned before = atomic_load(&orphaned_count);

    call_in_a_thread(add_and_take_out, NULL);
    assert_int_equal(atomic_load(&orphaned_count), before);
}

static void reserve_only(void *arg)
{
    assert_true(dibs__holds_reserve(dibs__holds_here(1), 1));
}

/*
 * A thread that tried a lock, did not get it and ended must leave nothing behind: a leak would grow with the number of
 * threads.
 */
TEST(a_thread_that_reserved_without_a_hold_leaves_no_memory)
{
#ifdef CAN_MEASURE_MEMORY
    enum { THREADS = 200 };
    size_t before = 0;
    for (int i = 0; i < 2 * THREADS; i++) {
        if (i == THREADS) /* the first ones warm up what the C library keeps for threads */
            before = memory_in_use();
        call_in_a_thread(reserve_only, NULL);
    }
    assert_that(memory_in_use() < before + THREADS * 16, "%d threads left %zu bytes", THREADS,
                memory_in_use() - before);
#else /* where memory cannot be counted, the leak checker is the judge */
    call_in_a_thread(reserve_only, NULL);
#endif
}

TESTS_OF(NULL, NULL, setup, NULL)
