/* Histograms by group: which bucket a time falls into, and which group a name belongs to. */
#include "core/metrics.h"
#include "support/actor.h"
#include "support/test.h"

#define COUNTERS 8
#define EACH 20000

static struct dibs__metrics_view view_of(const struct dibs__metrics *m, const char *name)
{
    struct dibs__metrics_view view;

    for (unsigned cursor = 0; dibs__metrics_next(m, &cursor, &view);)
        if (!view.is_rest && strcmp(view.name, name) == 0)
            return view;
    fail_msg("there is no group \"%s\"", name);
    return view;
}

/* In all groups. */
static uint64_t total_of(const struct dibs__metrics *m, enum dibs__metrics_kind kind)
{
    struct dibs__metrics_view sum = {0}, view;

    for (unsigned cursor = 0; dibs__metrics_next(m, &cursor, &view);)
        dibs__metrics_add(&sum, &view);
    return sum.histograms[kind].count;
}

static struct dibs__metrics_group *group(struct dibs__metrics *m, const char *name)
{
    return dibs__metrics_group(m, name, strlen(name));
}

TEST(bucket_bounds_rise_by_half_and_by_a_third)
{
    assert_int_equal(dibs__metrics_bound(0), 1000);
    assert_int_equal(dibs__metrics_bound(1), 1500);
    assert_int_equal(dibs__metrics_bound(2), 2000);
    assert_int_equal(dibs__metrics_bound(3), 3000);
    for (unsigned i = 2; i < DIBS__METRICS_BOUNDS; i++)
        assert_int_equal(dibs__metrics_bound(i), 2 * dibs__metrics_bound(i - 2));
    assert_true(dibs__metrics_bound(DIBS__METRICS_BOUNDS - 1) > INT64_C(2000000000000)); /* half an hour */
}

/* A time that is a bound is in the bound's bucket; one nanosecond more is in the next. */
TEST(a_time_is_in_the_bucket_of_the_next_bound)
{
    struct dibs__metrics *m = dibs__metrics_new();
    struct dibs__metrics_group *a = group(m, "a:1");

    for (unsigned i = 0; i < DIBS__METRICS_BOUNDS; i++) {
        dibs__metrics_count(a, DIBS__METRICS_WAIT, dibs__metrics_bound(i));
        dibs__metrics_count(a, DIBS__METRICS_HOLD, dibs__metrics_bound(i) + 1);
    }
    dibs__metrics_count(a, DIBS__METRICS_WAIT, INT64_MAX);
    dibs__metrics_count(a, DIBS__METRICS_HOLD, 0);
    dibs__metrics_count(a, DIBS__METRICS_HOLD, -1);
    struct dibs__metrics_view view = view_of(m, "a");
    for (unsigned i = 0; i <= DIBS__METRICS_BOUNDS; i++) {
        assert_int_equal(view.histograms[DIBS__METRICS_WAIT].counts[i], 1);
        assert_int_equal(view.histograms[DIBS__METRICS_HOLD].counts[i], i == 0 ? 2 : 1);
    }
    assert_int_equal(view.histograms[DIBS__METRICS_WAIT].count, DIBS__METRICS_BOUNDS + 1);
    assert_int_equal(total_of(m, DIBS__METRICS_HOLD), DIBS__METRICS_BOUNDS + 2);
    dibs__metrics_free(m);
}

TEST(a_group_is_the_text_before_the_first_colon)
{
    struct dibs__metrics *m = dibs__metrics_new();
    char name[DIBS_NAME_MAX + 1], cut[DIBS__METRICS_GROUP_NAME_MAX];

    assert_int_equal(group(m, "sku:1"), group(m, "sku:2:3"));
    assert_int_not_equal(group(m, "sku:1"), group(m, "sk:1"));
    assert_int_equal(group(m, "sku"), group(m, ":1")); /* neither has a group */
    assert_int_not_equal(group(m, "sku"), group(m, "sku:1"));
    memset(name, 'x', DIBS_NAME_MAX);
    memcpy(name + DIBS_NAME_MAX - 2, ":1", 3);
    memset(cut, 'x', sizeof cut - 1);
    cut[sizeof cut - 1] = '\0';
    dibs__metrics_count(group(m, name), DIBS__METRICS_WAIT, 1);
    assert_int_equal(view_of(m, cut).histograms[DIBS__METRICS_WAIT].count, 1);
    dibs__metrics_free(m);
}

TEST(groups_without_room_are_counted_with_the_rest)
{
    struct dibs__metrics *m = dibs__metrics_new();
    struct dibs__metrics_view view;
    unsigned named = 0, cursor = 0;
    char name[32];

    for (unsigned i = 0; i < DIBS__METRICS_GROUPS + 10; i++) {
        snprintf(name, sizeof name, "group%u:x", i);
        dibs__metrics_count(group(m, name), DIBS__METRICS_WAIT, 1);
    }
    assert_int_not_equal(group(m, "group0:y"), group(m, name));
    assert_int_equal(group(m, "another:y"), group(m, name));
    while (dibs__metrics_next(m, &cursor, &view)) {
        assert_int_equal(view.histograms[DIBS__METRICS_WAIT].count, view.is_rest ? 10 : 1);
        named += !view.is_rest;
    }
    assert_int_equal(named, DIBS__METRICS_GROUPS);
    assert_int_equal(total_of(m, DIBS__METRICS_WAIT), DIBS__METRICS_GROUPS + 10);
    dibs__metrics_free(m);
}

static void count_in_new_groups(void *arg)
{
    char name[32];

    for (unsigned i = 0; i < EACH; i++) {
        snprintf(name, sizeof name, "%u:x", i % (DIBS__METRICS_GROUPS + 5));
        dibs__metrics_count(group(arg, name), DIBS__METRICS_HOLD, 1);
    }
}

/* Threads that make the same groups at the same time lose no count. */
TEST(threads_make_each_group_once)
{
    struct dibs__metrics *m = dibs__metrics_new();
    struct dibs__metrics_view view;
    actor *actors[COUNTERS];
    unsigned named = 0, cursor = 0;

    for (int i = 0; i < COUNTERS; i++)
        actors[i] = actor_running(count_in_new_groups, m);
    for (int i = 0; i < COUNTERS; i++)
        actor_end(actors[i]);
    while (dibs__metrics_next(m, &cursor, &view))
        named += !view.is_rest;
    assert_true(named <= DIBS__METRICS_GROUPS);
    assert_int_equal(total_of(m, DIBS__METRICS_HOLD), COUNTERS * EACH);
    dibs__metrics_free(m);
}

TESTS(NULL, NULL)
