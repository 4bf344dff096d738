/*
 * Two processes, as far as the store knows, lock 8 of 16 names in random order, many times: every call ends, and no two
 * holders are ever inside at once. With an argument: that many times each.
 */
#include <stdatomic.h>

#include "support/fixture.h"

enum { NAMES = 16, WANTED = 8, OWNERS = 4, TIMES = 250 };

static const char *texts[NAMES];
static atomic_int inside[NAMES];
static unsigned times = TIMES;

struct owner {
    dibs_runtime *rt;
    unsigned seed;
    dibs_status status;  /* the first that is not DIBS_OK */
    unsigned intrusions; /* how often another was inside as well */
    int64_t longest_ms;
};

static void choose(struct owner *owner, size_t chosen[WANTED])
{
    size_t all[NAMES];

    for (size_t i = 0; i < NAMES; i++)
        all[i] = i;
    for (size_t i = 0; i < WANTED; i++) {
        size_t other = i + (size_t)rand_r(&owner->seed) % (NAMES - i), kept = all[i];
        all[i] = all[other];
        all[other] = kept;
        chosen[i] = all[i];
    }
}

static void be_inside(struct owner *owner, const size_t chosen[WANTED])
{
    for (size_t i = 0; i < WANTED; i++)
        owner->intrusions += atomic_exchange(&inside[chosen[i]], 1) != 0;
    for (size_t i = 0; i < WANTED; i++)
        atomic_store(&inside[chosen[i]], 0);
}

static void run_owner(void *arg)
{
    struct owner *owner = arg;

    for (unsigned i = 0; i < times && owner->status == DIBS_OK; i++) {
        size_t chosen[WANTED];
        const char *names[WANTED];
        choose(owner, chosen);
        for (size_t n = 0; n < WANTED; n++)
            names[n] = texts[chosen[n]];
        int64_t began = now_ms();
        owner->status = dibs_lock_names(owner->rt, names, WANTED, LIMIT_MS, NULL);
        if (owner->status != DIBS_OK)
            break;
        int64_t took = now_ms() - began;
        owner->longest_ms = took > owner->longest_ms ? took : owner->longest_ms;
        be_inside(owner, chosen);
        owner->status = dibs_unlock_names(owner->rt, names, WANTED);
    }
}

/* Runs the owners. Each uses one of the runtimes, in turn. */
static void run_all(dibs_runtime *const *runtimes, size_t count, size_t owners)
{
    struct owner all[OWNERS];
    actor *actors[OWNERS];

    for (size_t i = 0; i < NAMES; i++)
        texts[i] = formatted("n%02zu", i);
    for (size_t i = 0; i < owners; i++) {
        all[i] = (struct owner){.rt = runtimes[i % count], .seed = (unsigned)i + 1};
        actors[i] = actor_start();
        actor_begin(actors[i], run_owner, &all[i]);
    }
    for (size_t i = 0; i < owners; i++) {
        actor_finish(actors[i]);
        actor_end(actors[i]);
        assert_that(all[i].status == DIBS_OK, "%s", dibs_status_name(all[i].status));
        assert_int_equal(all[i].intrusions, 0);
        print_message("%u calls, the longest %lld ms\n", times, (long long)all[i].longest_ms);
    }
}

/* No call fails because the machine stalls. */
static void open_both(fixture *f, dibs_runtime *runtimes[2])
{
    fixture_open_patient(f, LONG_LEASE_MS);
    runtimes[0] = f->rt;
    runtimes[1] = test_runtime(
        open_url(f->server->url, &(dibs_config){.lease_ms = LONG_LEASE_MS, .command_timeout_ms = LIMIT_MS}));
}

TEST_ON(two_processes_locking_several_names_never_deadlock, fixture *f)
{
    dibs_runtime *runtimes[2];

    open_both(f, runtimes);
    run_all(runtimes, 2, 2);
    assert_int_equal(stats_of(runtimes[0]).leases + stats_of(runtimes[1]).leases, 0);
}

TEST_ON(two_processes_of_two_threads_never_deadlock, fixture *f)
{
    dibs_runtime *runtimes[2];

    open_both(f, runtimes);
    run_all(runtimes, 2, OWNERS);
    assert_int_equal(stats_of(runtimes[0]).leases + stats_of(runtimes[1]).leases, 0);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        times = (unsigned)atoi(argv[1]);
    return test_run_all(fixture_setup, fixture_teardown, NULL, NULL);
}
