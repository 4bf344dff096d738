/* What an examination says of the sentinels: how many there are, whether they agree, or why they can't be asked. */
#include "redis/sentinel_parts.h"
#include "store/redis/examine_parts.h"
#include "support/fake_sentinel.h"
#include "support/test.h"

#define FAKES 3

struct rig {
    fake_sentinel fakes[FAKES];
    struct dibs__redis_store store; /* the parts that an examination of the sentinels needs */
    atomic_uint_fast64_t commands, errors;
    struct dibs__examination examination;
    unsigned count; /* of the findings */
    dibs_verdict verdict;
    char text[512]; /* of the last one */
};

static void wake_nobody(void *context)
{
}

static bool keep(void *context, const dibs_finding *finding)
{
    struct rig *r = context;

    r->count++;
    r->verdict = finding->verdict;
    snprintf(r->text, sizeof r->text, "%s", finding->text);
    return true;
}

static int setup(void **state)
{
    static struct rig rig;
    struct rig *r = &rig;
    char url[200];
    int used = snprintf(url, sizeof url, "redis-sentinel://");

    memset(r, 0, sizeof *r);
    for (int i = 0; i < FAKES; i++) {
        fake_sentinel_start(&r->fakes[i]);
        used += snprintf(url + used, sizeof url - (size_t)used, "%s127.0.0.1:%d", i ? "," : "",
                         fake_redis_port(r->fakes[i].redis));
    }
    snprintf(url + used, sizeof url - (size_t)used, "/mymaster");
    r->examination = (struct dibs__examination){.context = r, .found = keep};
    r->store.config.clock = &dibs__system_clock;
    r->store.config.connect_timeout_ms = LIMIT_MS;
    fake_redis_endpoint(&r->store.endpoint, url, &r->commands, &r->errors);
    r->store.sentinel = dibs__sentinel_new(&r->store.endpoint, NULL, NULL, wake_nobody, NULL);
    assert_non_null(r->store.sentinel);
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;

    dibs__sentinel_free(r->store.sentinel);
    dibs__endpoint_free(&r->store.endpoint);
    for (int i = 0; i < FAKES; i++)
        fake_sentinel_stop(&r->fakes[i]);
    return 0;
}

/* The last finding is that, and there are so many. */
static void expect(struct rig *r, unsigned count, dibs_verdict verdict, const char *text)
{
    struct dibs__error error = {DIBS_OK, ""};
    struct dibs__examining e = {.store = &r->store, .examination = &r->examination, .error = &error};

    r->count = 0;
    dibs__examine_sentinels(&e);
    assert_false(e.examination->no_memory);
    assert_that(strstr(r->text, text), "%s", r->text);
    assert_int_equal(r->verdict, verdict);
    assert_int_equal(r->count, count);
}

/* As a thread does that asks the sentinels. */
static void set_driven(struct rig *r, bool driven)
{
    dibs__endpoint_mutex_lock(&r->store.endpoint.mutex);
    r->store.sentinel->driven = driven;
    dibs__endpoint_mutex_unlock(&r->store.endpoint.mutex);
}

TEST_ON(busy_sentinels_are_reported_as_unasked, struct rig *r)
{
    set_driven(r, true);
    r->store.config.connect_timeout_ms = 1;
    expect(r, 1, DIBS_VERDICT_WARN,
           "The sentinels could not be asked: the sentinels are being asked by another thread.");
    set_driven(r, false);
}

TEST_ON(sentinels_without_a_master_are_reported_one_by_one, struct rig *r)
{
    expect(r, FAKES, DIBS_VERDICT_WARN, "A sentinel names no master: ");
    assert_non_null(strstr(r->text, "does not know that name"));
    dibs__endpoint_mutex_lock(&r->store.endpoint.mutex);
    bool driven = r->store.sentinel->driven;
    dibs__endpoint_mutex_unlock(&r->store.endpoint.mutex);
    assert_false(driven); /* nobody asks them any more */
}

/* Each has its share of the time that is left. */
TEST_ON(a_silent_sentinel_leaves_time_to_the_others, struct rig *r)
{
    fake_redis_hold(r->fakes[0].redis, true);
    r->store.config.connect_timeout_ms = 1500;
    int64_t began = now_ms();
    expect(r, FAKES, DIBS_VERDICT_WARN, "A sentinel names no master: ");
    assert_non_null(strstr(r->text, "does not know that name"));
    assert_true(now_ms() - began < 2 * 1500);
}

TEST_ON(a_sentinel_that_names_another_master_is_reported, struct rig *r)
{
    for (int i = 0; i < FAKES; i++)
        fake_sentinel_name(&r->fakes[i], 1);
    expect(r, FAKES, DIBS_VERDICT_WARN, "names another master, 127.0.0.1:1, than the one that is used.");
}

/* It comes last, and is said once for all. */
TEST_ON(sentinels_that_see_no_way_to_a_failover_are_reported, struct rig *r)
{
    for (int i = 1; i < FAKES; i++)
        fake_redis_answer(r->fakes[i].redis, "SENTINEL CKQUORUM", "-NOQUORUM 1 usable Sentinels. Not enough\r\n");
    expect(r, FAKES + 1, DIBS_VERDICT_WARN, "There can be no failover, as 2 of 3 sentinels see it: ");
}

TESTS(setup, teardown)
