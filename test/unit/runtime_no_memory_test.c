/*
 * Memory that runs out at the worst moment: each allocation of a run through
 * the library fails once, the run says DIBS_NO_MEMORY (or goes on, where memory
 * is not what it needs), nothing is left behind but the handle of a runtime that
 * was opened, and the next run is a good one.
 *
 * The allocator of the C library is called by way of the functions below, which
 * stand in front of it. Where a sanitizer has put its own there, the runs go
 * without failures.
 */
#include <stdatomic.h>

#include "core/asker.h"
#include "core/renewal.h"
#include "support/failing_malloc.h"
#include "support/fixture.h"
#include "support/turn.h"

static void ignore(const dibs_event *event, void *arg)
{
}

/* Opens, locks many names (tables grow), nests, extends, asks, unlocks. The first status that is not DIBS_OK. */
static dibs_status run_through(bool *opened)
{
    static const char *const urls[] = {"mem:exhausted"};
    const dibs_config config = {.urls = urls, .url_count = 1, .on_event = ignore};
    char name[3] = "aa";
    dibs_runtime *rt;
    dibs_owner owner;
    dibs_status status = dibs_open(&rt, &config);

    *opened = status == DIBS_OK;
    for (int i = 0; i < 40 && status == DIBS_OK; i++) {
        name[0] = (char)('a' + i % 26);
        name[1] = (char)('a' + i / 26);
        status = dibs_timedlock(rt, name, i % 2 ? 1000 : 0);
    }
    if (status == DIBS_OK)
        status = dibs_lock(rt, name);
    if (status == DIBS_OK)
        status = dibs_extend(rt, name, 10000);
    if (status == DIBS_OK)
        status = dibs_query(rt, name, &owner);
    if (status == DIBS_OK)
        status = dibs_force_unlock(rt, "other", NULL);
    if (status == DIBS_OK)
        status = dibs_lock_with(rt, "fair", 1000, &(dibs_lock_options){.flags = DIBS_FAIR});
    if (rt) {
        dibs_status last = dibs_unlock_all(rt);
        status = status == DIBS_OK ? last : status;
    }
    dibs_close(rt);
    return status;
}

/* One run, on a thread that ends, so that the memory which the thread kept for itself is freed, too. */
struct run {
    long fail_at;
    dibs_status status;
    bool opened; /* dibs_open succeeded, so the handle stays */
    bool failed; /* one allocation failed */
};

static void run_once(void *arg)
{
    struct run *a = arg;

    fail_here(a->fail_at);
    a->status = run_through(&a->opened);
    a->failed = fail_no_more();
}

static struct run try_with(long nth)
{
    struct run a = {.fail_at = nth};

    call_in_a_thread(run_once, &a);
    return a;
}

TEST(each_allocation_of_a_cycle_fails_once)
{
    for (int i = 0; i < 3; i++) /* so that the C library has allocated what it allocates only once */
        assert_status(DIBS_OK, try_with(0).status);
    long before = atomic_load(&living);
    for (long nth = 1; nth < 10000 && CAN_FAIL; nth++) {
        struct run a = try_with(nth);
        if (!a.failed) {
            assert_true(nth > 100);
            break;
        }
        assert_that(a.status == DIBS_NO_MEMORY || a.status == DIBS_OK, "allocation %ld: %s", nth,
                    dibs_status_name(a.status));
        before += a.opened;
        assert_that(atomic_load(&living) <= before, "allocation %ld left %ld behind", nth,
                    atomic_load(&living) - before);
    }
    assert_status(DIBS_OK, try_with(0).status);
}

/* ------------------------------------------------------------ an unlock for another */

struct hand_over {
    dibs_runtime *rt;
    long fail_at;
    dibs_status lock, unlock;
    bool failed;
};

/* Memory runs out in the unlock, which asks the store on behalf of the waiter. */
static void unlock_for_another(void *arg)
{
    struct hand_over *h = arg;

    h->lock = dibs_lock(h->rt, "a");
    comes_to(h->rt, STAT(contended), 1);
    fail_here(h->fail_at);
    h->unlock = dibs_unlock(h->rt, "a");
    h->failed = fail_no_more() && h->fail_at > 0;
}

/* The unlock succeeds, and the waiter gets the lock: by its own ask, where the unlock could not ask. */
static bool hand_over_with(long nth)
{
    struct hand_over h = {.fail_at = nth};

    h.rt = open_url("mem:", &(dibs_config){.handoff_ms = DIBS_NO_HANDOFF});
    actor *holder = actor_running(unlock_for_another, &h);
    assert_true(comes_to(h.rt, STAT(acquired), 1));
    actor *next = actor_locking(h.rt, "a", DIBS_WAIT_FOREVER);
    assert_status(DIBS_OK, actor_result(next));
    actor_end(holder);
    assert_status(DIBS_OK, h.lock);
    assert_status(DIBS_OK, h.unlock);
    assert_status(DIBS_OK, actor_unlock(next, h.rt, "a"));
    actor_end(next);
    dibs_owner owner = owner_of(h.rt, "a");
    assert_false(owner.held || owner.waiters > 0);
    dibs_close(h.rt);
    return h.failed;
}

TEST(an_unlock_for_another_needs_no_memory)
{
    long nth = 1;

    while (CAN_FAIL && hand_over_with(nth))
        nth++;
    assert_true(nth > 2 || !CAN_FAIL); /* the attempt, and its place in the queue */
    assert_false(hand_over_with(0));
}

/* --------------------------------------------------------------- nothing stays */

/* A name that nobody holds any more takes no memory, in whatever way its hold ended. */
TEST(names_that_come_and_go_leave_nothing)
{
    enum { NAMES = 500 };
    dibs_runtime *one = open_url("mem:names", NULL), *two = open_url("mem:names", NULL);
    char name[16];
    long before = 0;

    for (int i = -2 * NAMES; i < NAMES; i++) { /* the rounds before 0: each shard keeps memory for one cell */
        if (i == 0)
            before = atomic_load(&living);
        snprintf(name, sizeof name, "name %d", i);
        assert_status(DIBS_OK, dibs_lock(one, name));
        assert_status(DIBS_BUSY, dibs_trylock(two, name));
        assert_status(DIBS_TIMEOUT, dibs_timedlock(two, name, 1));
        assert_status(DIBS_OK, dibs_unlock(one, name));
    }
    assert_that(atomic_load(&living) <= before, "%ld allocations are left", atomic_load(&living) - before);
    dibs_close(one);
    dibs_close(two);
}

TEST(a_nested_pair_asks_for_no_memory)
{
    dibs_runtime *rt = open_url("mem:", NULL);

    assert_status(DIBS_OK, dibs_lock(rt, "a"));
    assert_status(DIBS_OK, dibs_lock(rt, "b"));
    fail_here(1);
    for (int i = 0; i < 100; i++) {
        assert_status(DIBS_OK, dibs_lock(rt, "a"));
        assert_status(DIBS_OK, dibs_lock(rt, "b"));
        assert_status(DIBS_OK, dibs_unlock(rt, "a"));
        assert_status(DIBS_OK, dibs_unlock(rt, "b"));
    }
    assert_false(fail_no_more());
    assert_status(DIBS_OK, dibs_unlock_all(rt));
    dibs_close(rt);
}

/* A thread that can't reach the store has no memory for the sentence that says why: that it can't is told all the same.
 */
TEST(an_outage_without_memory_for_its_sentence_is_told)
{
    for (int lacks = 0; lacks < 2; lacks++) {
        struct dibs__outage *outage, *other = NULL;

        fail_here(1);
        outage = dibs__outage_new(&(struct dibs__error){DIBS_UNAVAILABLE, "away"}, lacks);
        fail_no_more();
        assert_status(DIBS_UNAVAILABLE, outage->error.status);
        assert_int_equal(lacks, outage->too_few_replicas);
        assert_that(strstr(outage->error.detail, CAN_FAIL ? "no memory" : "away"), "%s", outage->error.detail);
        dibs__outage_set(&other, outage);
        dibs__outage_set(&outage, NULL);
        assert_status(DIBS_UNAVAILABLE, other->error.status);
        dibs__outage_set(&other, NULL);
    }
}

TESTS(NULL, NULL)
