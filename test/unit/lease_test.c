/* A lease: the arithmetic of its deadline, and the one atomic on which all threads agree. */
#include <pthread.h>

#include "core/lease.h"
#include "support/moved_clock.h"
#include "support/test.h"

#define START INT64_C(5000000000)

static struct dibs__lease *lease_until(int64_t deadline)
{
    struct dibs__lease *lease = dibs__lease_new(1, "a", 1, DIBS__TOKEN_MAX);

    assert_non_null(lease);
    atomic_store(&lease->deadline, deadline);
    return lease;
}

TEST(a_new_lease_is_not_granted)
{
    struct dibs__lease *lease = dibs__lease_new(9, "name", 4, DIBS__TOKEN_MAX);

    assert_int_equal(lease->runtime, 9);
    assert_string_equal(lease->name, "name");
    assert_int_equal(lease->name_size, 4);
    assert_true(dibs__lease_is_lost(lease, START));
    dibs__lease_ref(lease);
    dibs__lease_unref(lease);
    assert_string_equal(lease->name, "name");
    dibs__lease_unref(lease);
    dibs__lease_unref(NULL);
}

TEST(the_deadline_is_one_percent_and_two_ms_early)
{
    static const struct {
        uint32_t lease_ms;
        int64_t believed; /* ns */
    } rows[] = {
        {20, 17800000},
        {100, MS(97)},
        {1000, MS(988)},
        {30000, MS(29698)},
        {86400000, MS(85535998)},
        {UINT32_MAX, MS(UINT32_MAX) - MS(UINT32_MAX) / 100 - MS(2)}, /* no overflow of 32 bits */
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(dibs__lease_deadline(START, rows[i].lease_ms) - START, rows[i].believed);
}

TEST(a_lease_is_lost_at_its_deadline_for_ever)
{
    struct dibs__lease *lease = lease_until(START);

    assert_false(dibs__lease_is_lost(lease, START - 1));
    assert_true(dibs__lease_is_lost(lease, START));
    assert_true(dibs__lease_is_lost(lease, START - 1)); /* even for a thread that looks at an older time */
    assert_false(dibs__lease_move(lease, START + MS(1000), false, START - 1));
    assert_true(dibs__lease_is_lost(lease, START - 1));
    assert_int_equal(dibs__lease_remaining_ms(lease, START - 1), 0);
    dibs__lease_unref(lease);
}

TEST(a_lease_may_be_lost_before_its_deadline)
{
    struct dibs__lease *lease = lease_until(START);

    dibs__lease_lose(lease);
    assert_true(dibs__lease_is_lost(lease, 0));
    assert_false(dibs__lease_move(lease, START, false, 0));
    dibs__lease_unref(lease);
}

TEST(a_lease_can_be_moved_to_a_later_deadline)
{
    static const struct {
        int64_t to;
        bool earlier_only;
        int64_t now;
        bool moved;
        int64_t then; /* the deadline */
    } rows[] = {
        {START + 5, false, START - 1, true, START + 5},     {START - 5, false, START - 9, true, START - 5},
        {START + 5, true, START - 1, true, START}, /* never to a later time */
        {START - 5, true, START - 9, true, START - 5},      {START, true, START - 1, true, START},
        {START + 5, false, START, false, DIBS__LEASE_LOST}, /* over already */
        {START + 5, true, START, false, DIBS__LEASE_LOST},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct dibs__lease *lease = lease_until(START);
        assert_int_equal(dibs__lease_move(lease, rows[i].to, rows[i].earlier_only, rows[i].now), rows[i].moved);
        assert_int_equal(atomic_load(&lease->deadline), rows[i].then);
        dibs__lease_unref(lease);
    }
}

TEST(the_remaining_time_is_rounded_down)
{
    static const struct {
        int64_t before; /* ns before the deadline */
        int64_t ms;
    } rows[] = {{MS(5), 5}, {MS(5) - 1, 4}, {MS(1), 1}, {MS(1) - 1, 0}, {0, 0}, {-MS(5), 0}};
    struct dibs__lease *lease = lease_until(START);

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(dibs__lease_remaining_ms(lease, START - rows[i].before), rows[i].ms);
    dibs__lease_unref(lease);
}

/* -------------------------------------------------------------------- races */

#define ROUNDS 3000

struct race {
    struct dibs__lease *lease;
    pthread_barrier_t start, end;
    bool moved, looked, lost; /* of this round; read after its end */
};

/* One thread prolongs the lease; by its clock, just before the end. */
static void *prolong(void *arg)
{
    struct race *race = arg;

    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&race->start);
        race->moved = dibs__lease_move(race->lease, START + MS(1), false, START - 1);
        pthread_barrier_wait(&race->end);
    }
    return NULL;
}

/* The other thread looks at the lease; by its clock, at the end. */
static void *look(void *arg)
{
    struct race *race = arg;

    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&race->start);
        race->looked = dibs__lease_is_lost(race->lease, START);
        pthread_barrier_wait(&race->end);
    }
    return NULL;
}

/* A fence is below 2^63 as long as the store's is below 2^53, and rises with each hand-over and each grant. */
TEST(a_fence_combines_grant_and_hand_over)
{
    static const uint64_t grants[] = {1, 1700000000000000, (UINT64_C(1) << 53) - 1};
    struct dibs__lease *lease = lease_until(START);
    uint64_t last = 0;

    for (size_t i = 0; i < sizeof grants / sizeof grants[0]; i++) {
        lease->store_fence = grants[i];
        for (unsigned step = 0; step < DIBS__FENCE_STEPS; step++) {
            atomic_store(&lease->step, step);
            uint64_t fence = dibs__lease_fence(lease);
            assert_true(fence > last && fence == grants[i] * 1024 + step && fence < UINT64_C(1) << 63);
            last = fence;
        }
    }
    dibs__lease_unref(lease);
}

/* One thread wins, and from then on both agree: prolonged and good, or lost and not to be prolonged. */
TEST(a_renewal_races_with_the_deadline)
{
    struct race race = {.lease = lease_until(START)};
    pthread_t threads[2];

    pthread_barrier_init(&race.start, NULL, 3);
    pthread_barrier_init(&race.end, NULL, 3);
    pthread_create(&threads[0], NULL, prolong, &race);
    pthread_create(&threads[1], NULL, look, &race);
    for (int i = 0; i < ROUNDS; i++) {
        atomic_store(&race.lease->deadline, START);
        pthread_barrier_wait(&race.start);
        pthread_barrier_wait(&race.end);
        assert_int_equal(race.moved, !race.looked);
        assert_int_equal(dibs__lease_is_lost(race.lease, START), race.looked);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&race.start);
    pthread_barrier_destroy(&race.end);
    dibs__lease_unref(race.lease);
}

static void *use_and_drop(void *arg)
{
    struct dibs__lease *lease = arg;

    for (int i = 0; i < ROUNDS; i++) {
        dibs__lease_ref(lease);
        dibs__lease_move(lease, START + i, false, START - 1);
        dibs__lease_is_lost(lease, START - 1);
        dibs__lease_unref(lease);
    }
    dibs__lease_unref(lease);
    return NULL;
}

TEST(the_last_reference_frees_a_lease)
{
    struct dibs__lease *lease = lease_until(START);
    pthread_t threads[4];

    for (int i = 0; i < 4; i++)
        dibs__lease_ref(lease);
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, use_and_drop, lease);
    dibs__lease_unref(lease); /* the leak checker and the race detector look on */
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

TESTS(NULL, NULL)
