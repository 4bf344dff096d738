/* What a quorum makes of the reports of its members, and what it passes on to them. */
#include "store/quorum/quorum_parts.h"
#include "store/redis/redis_store.h"
#include "support/failing_malloc.h"

#define MEMBERS 3
#define MAJORITY 2
#define LEASE_MS 30000

/* A quorum of masters that are not connected, and what it reported. */
struct scene {
    struct dibs__store *base;
    struct dibs__quorum *q;
    struct dibs__listener to[MEMBERS]; /* to whom the members report */
    struct dibs__counters counters;
    unsigned ups, downs, on, off, moved, wakes, changes;
    char text[DIBS__DETAIL_MAX];
    struct dibs__grant grant;
    bool knows_token;
};

static struct scene scene;
static struct dibs__error error;

static void on_wake(void *context)
{
    ((struct scene *)context)->wakes++;
}

static bool on_granted(void *source, const struct dibs__grant *grant)
{
    struct scene *s = source;

    s->grant = *grant;
    return s->knows_token;
}

static void on_changed(void *context, const char *name)
{
    assert_null(name); /* any lock may have changed */
    ((struct scene *)context)->changes++;
}

static void on_moved(void *source)
{
    ((struct scene *)source)->moved++;
}

static void on_reachable(void *source, bool up, const char *detail)
{
    struct scene *s = source;

    *(up ? &s->ups : &s->downs) += 1;
    snprintf(s->text, sizeof s->text, "%s", detail);
}

static void on_watching(void *source, bool on)
{
    struct scene *s = source;

    *(on ? &s->on : &s->off) += 1;
}

static dibs_status open_at(const char *const *urls, size_t count, struct dibs__access *access)
{
    const struct dibs__listener listener = {.context = &scene,
                                            .wake = on_wake,
                                            .changed = on_changed,
                                            .source = &scene,
                                            .granted = on_granted,
                                            .server_changed = on_moved,
                                            .reachable = on_reachable,
                                            .watching = on_watching};
    const struct dibs__store_config config = {.url = urls[0],
                                              .urls = urls,
                                              .url_count = count,
                                              .access = access,
                                              .key_prefix = "lock:",
                                              .client_name = "test",
                                              .runtime_id = "test",
                                              .connect_timeout_ms = LIMIT_MS,
                                              .command_timeout_ms = LIMIT_MS,
                                              .lease_ms = LEASE_MS,
                                              .clock = &dibs__system_clock,
                                              .listener = listener,
                                              .counters = &scene.counters};

    scene.base = NULL;
    return dibs__store_open(&scene.base, &config, &error);
}

static int setup(void **state)
{
    static const char *const urls[] = {"redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"};

    memset(&scene, 0, sizeof scene);
    assert_status(DIBS_OK, open_at(urls, MEMBERS, NULL));
    scene.q = dibs__quorum_of(scene.base);
    for (size_t i = 0; i < MEMBERS; i++)
        scene.to[i] = dibs__redis_of(scene.q->members[i].store)->config.listener;
    return 0;
}

static int teardown(void **state)
{
    scene.base->ops->close(scene.base);
    return 0;
}

/* ------------------------------------------------------------------- reports */

static void reports_reach(size_t i, bool up)
{
    scene.to[i].reachable(scene.to[i].source, up, "it was cut");
}

TEST_WITH(a_quorum_is_out_of_reach_where_a_majority_is, setup, teardown, void *none)
{
    reports_reach(0, true); /* nothing has changed */
    reports_reach(2, false);
    reports_reach(2, false);
    assert_int_equal(scene.downs + scene.ups, 0);
    reports_reach(0, false);
    assert_int_equal(scene.downs, 1);
    assert_string_equal(scene.text, "2 of 3 masters can't be reached: it was cut");
    reports_reach(1, false);
    assert_int_equal(scene.downs, 1);
    reports_reach(2, true);
    assert_int_equal(scene.ups, 0);
    reports_reach(2, true);
    reports_reach(0, true);
    assert_int_equal(scene.ups, 1);
    assert_string_equal(scene.text, "a majority of 3 masters");
    reports_reach(1, true);
    assert_true(scene.ups == 1 && scene.downs == 1);
}

TEST_WITH(a_master_that_is_in_reach_again_does_not_rest, setup, teardown, void *none)
{
    for (size_t i = 0; i < MEMBERS; i++)
        atomic_store(&scene.q->members[i].rests_until, DIBS__NEVER);
    reports_reach(0, false);
    reports_reach(1, true);
    assert_true(atomic_load(&scene.q->members[0].rests_until) == DIBS__NEVER);
    assert_true(atomic_load(&scene.q->members[1].rests_until) == 0);
}

static void reports_watching(size_t i, bool on)
{
    scene.to[i].watching(scene.to[i].source, on);
}

/* Who begins to report may tell of changes that were missed before. */
TEST_WITH(changes_are_told_while_a_majority_tells_them, setup, teardown, void *none)
{
    reports_watching(0, true);
    assert_int_equal(scene.on, 1);
    assert_int_equal(atomic_load(&scene.counters.tracking), 0);
    reports_watching(2, true);
    assert_int_equal(scene.on, 2);
    assert_int_equal(atomic_load(&scene.counters.tracking), 1);
    reports_watching(0, false);
    assert_int_equal(scene.off, 0);
    assert_int_equal(atomic_load(&scene.counters.tracking), 0);
    reports_watching(2, false);
    assert_int_equal(scene.off, 1);
}

/* The first report names the server that granted what is held. */
TEST_WITH(a_master_that_went_over_to_another_server_is_told_of, setup, teardown, void *none)
{
    struct dibs__lease_store_state lease = {.words = {0}};

    for (size_t i = 0; i < MEMBERS; i++)
        scene.to[i].server_changed(scene.to[i].source);
    assert_int_equal(scene.moved, 0);
    assert_false(scene.base->ops->is_unconfirmed(scene.base, &lease));
    assert_false(atomic_load(&scene.q->voting.due));
    scene.to[1].server_changed(scene.to[1].source);
    assert_int_equal(scene.moved, 1);
    assert_true(scene.base->ops->is_unconfirmed(scene.base, &lease));
    assert_true(atomic_load(&scene.q->voting.due)); /* a look finds out whether it may vote */
    lease.words[0] = atomic_load(&scene.q->generation);
    assert_false(scene.base->ops->is_unconfirmed(scene.base, &lease));
}

/* A grant of one master is no more than a hint, which the waiter must confirm; the holder needs none. */
TEST_WITH(a_grant_of_a_member_is_a_hint, setup, teardown, void *none)
{
    const struct dibs__attempt attempt = {.name = "x", .token = "dibs:token", .lease_ms = LEASE_MS};
    const struct dibs__grant grant = {.name = "x", .token = "dibs:token", .number = 3, .fence = 9};

    for (int knows = 0; knows < 2; knows++) {
        scene.knows_token = knows;
        assert_int_equal(scene.to[0].granted(scene.to[0].source, &grant), knows);
        assert_true(scene.grant.fence == 0 && scene.grant.number == 0 && scene.grant.confirm);
        assert_string_equal(scene.grant.name, "x");
        assert_string_equal(scene.grant.token, "dibs:token");
    }
    struct dibs__claim *claim = dibs__claim_new(scene.q, &attempt);
    scene.grant.name = NULL;
    scene.knows_token = false;
    assert_false(scene.to[0].granted(scene.to[0].source, &grant)); /* it is still asked for */
    assert_non_null(scene.grant.name);
    dibs__quorum_mutex_lock(&scene.q->mutex);
    claim->state = DIBS__CLAIM_HELD;
    dibs__quorum_mutex_unlock(&scene.q->mutex);
    scene.grant.name = NULL;
    assert_true(scene.to[0].granted(scene.to[0].source, &grant));
    assert_null(scene.grant.name);
}

/* --------------------------------------------------------- what is passed on */

static struct told {
    const struct dibs__store_ops *true_ops;
    size_t fd_count;
    int64_t deadline;
    dibs_status connects;
    const struct pollfd *attended;
    unsigned listened, gathered;
    bool hears; /* with a wait event */
} told[MEMBERS];

static struct told *told_of(const struct dibs__store *store)
{
    size_t i = 0;

    while (scene.q->members[i].store != store)
        i++;
    return &told[i];
}

static size_t interest(struct dibs__store *store, struct pollfd *fds, int64_t *deadline)
{
    const struct told *its = told_of(store);

    for (size_t i = 0; i < its->fd_count; i++)
        fds[i].fd = (int)(its - told);
    *deadline = its->deadline;
    return its->fd_count;
}

static void attend(struct dibs__store *store, const struct pollfd *fds, size_t count)
{
    struct told *its = told_of(store);

    its->attended = fds;
    assert_int_equal(count, its->fd_count);
}

static dibs_status connect_one(struct dibs__store *store, bool wait, struct dibs__error *why)
{
    assert_false(wait);
    return told_of(store)->connects == DIBS_OK ? DIBS_OK : dibs__error_set(why, told_of(store)->connects, "it is away");
}

static void listen_at(struct dibs__store *store, const char *name, struct dibs__wait_event *wait_event, int64_t until)
{
    told_of(store)->listened++;
    told_of(store)->hears = wait_event != NULL;
}

static void gather(struct dibs__store *store, bool on)
{
    told_of(store)->gathered += on ? 1 : 10;
}

static struct dibs__store_ops noting;

/* The masters only note what they are told. */
static int setup_noting(void **state)
{
    setup(state);
    memset(told, 0, sizeof told);
    noting = *scene.q->members[0].store->ops;
    noting.interest = interest;
    noting.attend = attend;
    noting.connect = connect_one;
    noting.listen = listen_at;
    noting.gather = gather;
    for (size_t i = 0; i < MEMBERS; i++) {
        told[i].true_ops = scene.q->members[i].store->ops;
        told[i].deadline = DIBS__NEVER;
        scene.q->members[i].store->ops = &noting;
    }
    return 0;
}

static int teardown_noting(void **state)
{
    for (size_t i = 0; i < MEMBERS; i++)
        scene.q->members[i].store->ops = told[i].true_ops;
    teardown(state);
    return 0;
}

TEST(each_master_attends_to_its_own_descriptors)
{
    struct pollfd fds[MEMBERS * MEMBERS];
    int64_t deadline;

    assert_int_equal(scene.base->fd_max, MEMBERS * scene.q->members[0].store->fd_max);
    for (size_t i = 0; i < MEMBERS; i++)
        told[i].fd_count = i + 1;
    size_t count = scene.base->ops->interest(scene.base, fds, &deadline);
    assert_int_equal(count, 6);
    assert_true(fds[0].fd == 0 && fds[1].fd == 1 && fds[2].fd == 1 && fds[3].fd == 2 && fds[5].fd == 2);
    scene.base->ops->attend(scene.base, fds, count);
    assert_true(told[0].attended == fds && told[1].attended == fds + 1 && told[2].attended == fds + 3);
}

TEST(a_lock_whose_time_has_come_is_set_again)
{
    assert_true(scene.base->watches);
    scene.q->top_up_at = 1;
    scene.q->last_top_up_at = DIBS__NEVER; /* another member lost a lock later */
    scene.base->ops->attend(scene.base, NULL, 0);
    assert_int_equal(scene.changes, 1);
    assert_true(scene.q->top_up_at == DIBS__NEVER);
    scene.q->top_up_at = scene.q->last_top_up_at = 1;
    scene.base->ops->attend(scene.base, NULL, 0);
    assert_int_equal(scene.changes, 2);
    scene.base->ops->attend(scene.base, NULL, 0);
    assert_int_equal(scene.changes, 2);
}

/* Of a member, of the next look, of a detached operation, of a lock that is to be set again. */
TEST(the_first_deadline_counts)
{
    int64_t deadline, now = dibs__now(&dibs__system_clock);
    struct pollfd fds[MEMBERS];
    const struct dibs__attempt attempt = {.name = "x", .token = "dibs:token", .lease_ms = LEASE_MS};

    scene.base->ops->interest(scene.base, fds, &deadline);
    assert_true(deadline == scene.q->voting.next && deadline > now);
    for (size_t i = 0; i < MEMBERS; i++) {
        told[i].deadline = now + 2 * DIBS__NS_PER_MS;
        scene.base->ops->interest(scene.base, fds, &deadline);
        assert_true(deadline == now + 2 * DIBS__NS_PER_MS);
        told[i].deadline = DIBS__NEVER;
    }
    scene.q->top_up_at = now + DIBS__NS_PER_MS;
    scene.base->ops->interest(scene.base, fds, &deadline);
    assert_true(deadline == now + DIBS__NS_PER_MS);
    struct dibs__claim *claim = dibs__claim_new(scene.q, &attempt);
    dibs__quorum_mutex_lock(&scene.q->mutex);
    claim->ops[0].look_at = now + 3;
    DIBS__LIST_APPEND(scene.q->detached, &claim->ops[0], links);
    dibs__quorum_mutex_unlock(&scene.q->mutex);
    scene.base->ops->interest(scene.base, fds, &deadline);
    assert_true(deadline == now + 3);
    dibs__quorum_mutex_lock(&scene.q->mutex);
    DIBS__LIST_REMOVE(scene.q->detached, &claim->ops[0], links);
    dibs__quorum_mutex_unlock(&scene.q->mutex);
}

/* It blocks only so long as a resolver does; a minority may fail. */
TEST(a_quorum_connects_where_a_majority_does)
{
    told[1].connects = DIBS_UNAVAILABLE;
    assert_status(DIBS_OK, scene.base->ops->connect(scene.base, false, &error));
    told[0].connects = DIBS_UNAVAILABLE;
    assert_status(DIBS_UNAVAILABLE, scene.base->ops->connect(scene.base, false, &error));
    assert_string_equal(error.detail, "1 of 3 masters answered, which is no majority: it is away");
    told[1].connects = DIBS_DENIED; /* which waiting does not change */
    assert_status(DIBS_DENIED, scene.base->ops->connect(scene.base, false, &error));
}

/* A thread hears one master, the fastest that does not rest; without a thread, all must read by themselves. */
TEST(a_thread_listens_to_the_fastest_master)
{
    struct dibs__wait_event wait_event;

    dibs__wait_event_init(&wait_event);
    atomic_store(&scene.q->members[0].usual, 5);
    atomic_store(&scene.q->members[1].usual, 3);
    atomic_store(&scene.q->members[2].usual, 4);
    scene.base->ops->listen(scene.base, "x", &wait_event, 0);
    assert_true(told[1].hears && told[1].listened == 1 && told[0].listened + told[2].listened == 0);
    atomic_store(&scene.q->members[1].rests_until, 1);
    scene.base->ops->listen(scene.base, "x", &wait_event, 0);
    assert_true(told[2].hears && told[2].listened == 1 && told[0].listened == 0);
    scene.base->ops->listen(scene.base, "x", NULL, 0);
    for (size_t i = 0; i < MEMBERS; i++)
        assert_true(!told[i].hears && told[i].listened == (i > 0 ? 2 : 1));
    for (size_t i = 0; i < MEMBERS; i++)
        atomic_store(&scene.q->members[i].rests_until, 1);
    scene.base->ops->listen(scene.base, "x", &wait_event, 0);
    assert_true(told[0].hears);
}

TEST(what_is_begun_is_gathered_at_the_first_master_for_all)
{
    scene.base->ops->gather(scene.base, true);
    assert_int_equal(told[0].gathered, 1);
    scene.base->ops->gather(scene.base, false);
    assert_int_equal(told[0].gathered, 11);
    assert_int_equal(told[1].gathered + told[2].gathered, 0);
    noting.gather = NULL;
    scene.base->ops->gather(scene.base, true);
}

/* ---------------------------------------------------------------------- URLs */

static void expect_refused(const char *first, const char *second, const char *third, const char *why)
{
    const char *const urls[] = {first, second, third};

    assert_status(DIBS_INVALID, open_at(urls, MEMBERS, NULL));
    assert_that(strstr(error.detail, why), "%s", error.detail);
    assert_null(scene.base);
}

static void expect_accepted(const char *first, const char *second, const char *third)
{
    const char *const urls[] = {first, second, third};

    assert_status(DIBS_OK, open_at(urls, MEMBERS, NULL));
    teardown(NULL);
}

TEST_WITH(no_two_urls_name_the_same_server, NULL, NULL, void *none)
{
    expect_refused("redis://h:1", "redis://i:1", "redis://H:1", "urls[0] and urls[2] are the same master");
    expect_refused("redis://h:2", "redis://h:1/0", "redis://h:1/5", "urls[1] and urls[2] are the same master");
    expect_refused("unix:///a", "redis://h:1", "unix:///a", "urls[0] and urls[2] are the same master");
    expect_refused("mem:a", "redis://h:1", "mem:a", "urls[0] and urls[2] are the same master");
    expect_accepted("redis://h:1", "redis://h:2", "redis://i:1");
    expect_accepted("unix:///a", "unix:///b", "redis://h:1");
    expect_accepted("mem:", "mem:", "mem:a");
    expect_accepted("mem:b", "mem:a", "redis://h:1");
}

TEST_WITH(a_member_is_one_master, NULL, NULL, void *none)
{
    expect_refused("redis://h:1", "redis-sentinel://h:2/m", "redis://h:3",
                   "urls[1]: a member of a quorum is one master, and no Sentinel");
    expect_refused("redis-cluster://h:2", "redis://h:1", "redis://h:3",
                   "urls[0]: a member of a quorum is one master, and no cluster");
    expect_refused("redis://h:1", "redis://h:3", "http://h", "urls[2]: ");
}

/* What only the opening of its store finds. */
TEST_WITH(a_member_that_can_not_be_opened_is_named, NULL, NULL, void *none)
{
    static const char *const urls[] = {"redis://h:1", "redis://h:2", "rediss://h:3"};
    static char missing[] = "/dibs/no/such/file";
    struct dibs__access access = {.tls_ca_file = missing};

    assert_status(DIBS_INVALID, open_at(urls, MEMBERS, &access));
    assert_that(strncmp(error.detail, "urls[2]: ", 9) == 0, "%s", error.detail);
}

#if CAN_FAIL
/* Whichever allocation fails; also one of those that take the URLs apart, to compare them. */
TEST_WITH(an_opening_without_memory_leaves_nothing, NULL, NULL, void *none)
{
    static const char *const urls[] = {"redis://h:1", "redis://h:2", "mem:"};
    long before = atomic_load(&living), fails = 0;
    bool failed = true;

    while (failed) {
        fail_here(++fails);
        dibs_status status = open_at(urls, MEMBERS, NULL);
        failed = fail_no_more();
        assert_status(failed ? DIBS_NO_MEMORY : DIBS_OK, status);
        if (failed)
            assert_status(DIBS_NO_MEMORY, error.status);
        else
            teardown(NULL);
        assert_int_equal(atomic_load(&living), before);
    }
    assert_true(fails > 4 * MEMBERS);
}
#endif

TEST_WITH(a_quorum_has_an_odd_number_of_masters_up_to_a_limit, NULL, NULL, void *none)
{
    static char texts[DIBS__MEMBERS_MAX + 2][32];
    const char *urls[DIBS__MEMBERS_MAX + 2];

    for (size_t i = 0; i < DIBS__MEMBERS_MAX + 2; i++) {
        snprintf(texts[i], sizeof texts[i], "redis://h:%zu", i + 1);
        urls[i] = texts[i];
    }
    for (size_t count = 2; count <= DIBS__MEMBERS_MAX + 2; count++) {
        bool fits = count % 2 == 1 && count <= DIBS__MEMBERS_MAX;
        assert_status(fits ? DIBS_OK : DIBS_INVALID, open_at(urls, count, NULL));
        if (fits)
            teardown(NULL);
        else
            assert_string_equal(error.detail, "a quorum has an odd number of masters, at most 15");
    }
}

TESTS(setup_noting, teardown_noting)
