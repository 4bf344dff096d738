/* Several names at once, on every kind of store: a server, a cluster with names on several nodes, a quorum, sentinels.
 */
#include "support/cluster.h"
#include "support/fixture.h"
#include "support/masters.h"
#include "support/sentinels.h"

enum { NAMES = 40 };

static const char *names[NAMES]; /* not in their order */

/* What only some of the tests need. */
struct waiting {
    dibs_runtime *rt;
    dibs_status status;
};

static void lock_all(void *arg)
{
    struct waiting *waiting = arg;

    waiting->status = dibs_lock_names(waiting->rt, names, NAMES, LIMIT_MS, NULL);
}

static void unlock_all(void *arg)
{
    struct waiting *waiting = arg;

    waiting->status = dibs_unlock_names(waiting->rt, names, NAMES);
}

static void make_names(void)
{
    for (int i = 0; i < NAMES; i++)
        names[i] = formatted("name:%02d", i * 7 % NAMES);
}

/* first and second are two processes, as far as the store knows. */
static void expect_all_or_none(dibs_runtime *first, dibs_runtime *second)
{
    struct waiting waiting = {.rt = second};
    actor *a = actor_start();

    make_names();
    assert_status(DIBS_OK, dibs_lock_names(first, names, NAMES, LIMIT_MS, NULL));
    for (int i = 0; i < NAMES; i++)
        assert_int_equal(hold_of(first, names[i]).count, 1);
    assert_status(DIBS_BUSY, dibs_lock_names(second, names, NAMES, 0, NULL));
    assert_that(strstr(dibs_last_error(), "\"name:"), "%s", dibs_last_error());
    assert_status(DIBS_OK, dibs_unlock_names(first, names, NAMES));
    assert_status(DIBS_OK, dibs_timedlock(first, "name:20", LIMIT_MS));
    actor_begin(a, lock_all, &waiting);
    assert_true(comes_to(second, STAT(contended), 1));
    assert_status(DIBS_BUSY, dibs_trylock(first, "name:00"));
    lock_and_release(first, "name:39", LIMIT_MS);
    assert_status(DIBS_OK, dibs_unlock(first, "name:20"));
    actor_finish(a);
    assert_int_equal(waiting.status, DIBS_OK);
    assert_status(DIBS_BUSY, dibs_trylock(first, "name:39"));
    actor_begin(a, unlock_all, &waiting);
    actor_finish(a);
    assert_int_equal(waiting.status, DIBS_OK);
    actor_end(a);
}

/* ------------------------------------------------------------------ the stores */

TEST_ON(several_names_lock_on_one_server, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *other = test_runtime(open_runtime(f->server, LONG_LEASE_MS));
    expect_all_or_none(f->rt, other);
}

/* With replicas that must acknowledge each name by itself; all else is the same. */
TEST_ON(several_names_lock_with_min_replicas, fixture *f)
{
    f->config.min_replicas = 1;
    fixture_open(f, LONG_LEASE_MS);
    make_names();
    assert_status(DIBS_UNAVAILABLE, dibs_lock_names(f->rt, names, NAMES, 0, NULL));
    assert_status(DIBS_NOT_HELD, dibs_check(f->rt, names[0]));
}

TEST_WITH(several_names_lock_on_a_cluster, NULL, NULL, void *none)
{
    cluster *c = cluster_start(NULL);
    const char *urls[] = {c->url};
    const dibs_config config = {.urls = urls, .url_count = 1, .lease_ms = LONG_LEASE_MS};
    dibs_runtime *rt, *other;

    assert_status(DIBS_OK, dibs_open(&rt, &config));
    assert_status(DIBS_OK, dibs_open(&other, &config));
    expect_all_or_none(rt, other);
    dibs_close(rt);
    dibs_close(other);
    cluster_assert_no_locks(c);
    cluster_stop(c);
}

TEST_WITH(several_names_lock_on_a_quorum, masters_setup_3, masters_teardown, masters *m)
{
    masters_open_connected(m, LONG_LEASE_MS);
    dibs_runtime *other = test_runtime(masters_open_another(m, LONG_LEASE_MS));
    expect_all_or_none(m->rt, other);
}

/* All asks begin before the masters know of a lease that is so long, and so they begin anew once they do. */
TEST_WITH(several_names_lock_on_a_quorum_with_a_lease_that_is_longer_than_ever, masters_setup_3, masters_teardown,
          masters *m)
{
    masters_open_connected(m, 1000);
    make_names();
    for (uint32_t lease_ms = 2000; lease_ms <= 6000; lease_ms += 1000) {
        const dibs_lock_options options = {.lease_ms = lease_ms};
        assert_status(DIBS_OK, dibs_lock_names(m->rt, names, NAMES, 0, &options));
        assert_status(DIBS_OK, dibs_unlock_names(m->rt, names, NAMES));
    }
}

TEST_WITH(several_names_lock_with_sentinels, NULL, NULL, void *none)
{
    sentinels *s = sentinels_start(NULL);
    dibs_runtime *rt = open_url(s->url, &(dibs_config){.lease_ms = LONG_LEASE_MS});
    dibs_runtime *other = open_url(s->url, &(dibs_config){.lease_ms = LONG_LEASE_MS});

    expect_all_or_none(rt, other);
    dibs_close(rt);
    dibs_close(other);
    sentinels_stop(s);
}

/* ------------------------------------------------------------ fair begun calls */

/* A call for both names tries them first, and gives the free one back. */
TEST_ON(fair_calls_on_a_server_are_granted_in_the_order_of_their_begins, fixture *f)
{
    static const char *const both[] = {"b", "c"};
    const dibs_lock_options fair = {.flags = DIBS_FAIR};
    dibs_task *tasks[NAMES];
    dibs_queue *q;
    dibs_completion done;

    fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *other = test_runtime(open_runtime(f->server, LONG_LEASE_MS));
    assert_status(DIBS_OK, dibs_queue_new(&q));
    assert_status(DIBS_OK, dibs_lock(other, "b"));
    for (int i = 0; i < NAMES; i++) {
        assert_status(DIBS_OK, dibs_task_new(f->rt, &tasks[i]));
        assert_status(DIBS_OK,
                      dibs_lock_names_begin(tasks[i], both, i % 3 == 1 ? 2 : 1, DIBS_WAIT_FOREVER, &fair, q, NULL));
    }
    await_waiters(other, "b", NAMES);
    assert_status(DIBS_OK, dibs_unlock(other, "b"));
    for (int i = 0; i < NAMES; i++) {
        assert_int_equal(dibs_queue_take(q, &done, 1, LIMIT_MS), 1);
        assert_status(DIBS_OK, done.status);
        assert_ptr_equal(done.task, tasks[i]);
        dibs_task_free(tasks[i]);
    }
    dibs_queue_free(q);
}

TESTS(fixture_setup, fixture_teardown)
