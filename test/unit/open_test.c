/* dibs_open: what it accepts and refuses; the owner and the statistics that a runtime shows. */
#include "core/runtime.h"
#include "support/fixture.h"

static const char *const tls[] = {"rediss://127.0.0.1"};
static const char *const mem[] = {"mem:", "mem:", "mem:"};
static const char fifty[] = "12345678901234567890123456789012345678901234567890";

#define BAD(word_, ...)                                                                                                \
    {                                                                                                                  \
        {.urls = mem, .url_count = 1, __VA_ARGS__}, word_                                                              \
    }

/* Each with a word that the detail must contain: the field at fault. */
static const struct {
    dibs_config config;
    const char *word;
} bads[] = {
    {{.urls = mem}, "urls"},
    {{.url_count = 1}, "urls"},
    {{.urls = mem, .url_count = 2}, "2 URLs"},
    {{.urls = mem, .url_count = 17}, "17 URLs"},
    {{.urls = (const char *const[]){NULL}, .url_count = 1}, "urls[0]"},
    {{.urls = (const char *const[]){"memory:"}, .url_count = 1}, "scheme"},
    BAD("lease_ms", .lease_ms = 19),
    BAD("lease_ms", .lease_ms = 86400001),
    BAD("renew_ms", .renew_ms = 15001),
    BAD("renew_ms", .lease_ms = 1000, .renew_ms = 501),
    BAD("label", .label = ""),
    BAD("label", .label = fifty),
    BAD("label", .label = "tab\t"),
    BAD("label", .label = "\xc3\xa9"),
    BAD("key_prefix", .key_prefix = "dibs:x"),
    BAD("min_replicas", .min_replicas = 1),
    BAD("tls_", .tls_ca_file = "x"),
    BAD("tls_", .tls_cert_file = "x"),
    BAD("tls_", .tls_key_file = "x"),
    BAD("tls_", .tls_server_name = "x"),
    {{.urls = tls, .url_count = 1, .tls_cert_file = "x"}, "tls_key_file"},
    {{.urls = tls, .url_count = 1, .tls_key_file = "x"}, "tls_cert_file"},
    {{.urls = tls, .url_count = 1, .tls_server_name = ""}, "tls_server_name"},
    BAD("sentinel_", .sentinel_user = "x"),
    BAD("sentinel_", .sentinel_password = "x"),
    BAD("reserved", .reserved = {[5] = 1}),
    BAD("durable", .durable = 1), /* in memory */
    BAD("durable", .durable = 2),
    BAD("spin_us", .spin_us = 10001),
    BAD("keep_ms", .keep_ms = 60001),
};

TEST(open_names_the_wrong_field)
{
    for (size_t i = 0; i < sizeof bads / sizeof bads[0]; i++) {
        dibs_runtime *rt = (dibs_runtime *)&rt;
        dibs_status status = dibs_open(&rt, &bads[i].config);
        assert_that(status == DIBS_INVALID, "row %zu: %s", i, dibs_status_name(status));
        assert_that(strstr(dibs_last_error(), bads[i].word), "%s: %s", bads[i].word, dibs_last_error());
        assert_null(rt);
    }
    assert_status(DIBS_INVALID, dibs_open(NULL, NULL));
}

TEST(open_allows_the_limits_themselves)
{
    static const dibs_config goods[] = {
        {.urls = mem, .url_count = 1, .lease_ms = 20, .renew_ms = 10},
        {.urls = mem, .url_count = 1, .lease_ms = 86400000, .renew_ms = 43200000},
        {.urls = mem, .url_count = 1, .keep_ms = 60000},
        {.urls = mem, .url_count = 1, .key_prefix = ""},
        {.urls = mem, .url_count = 1, .key_prefix = "dibs"},
        {.urls = mem, .url_count = 1, .label = "x"},
        {.urls = mem, .url_count = 1, .label = fifty + 2},
        {.urls = mem, .url_count = 1, .handoff_ms = DIBS_NO_HANDOFF},
    };

    for (size_t i = 0; i < sizeof goods / sizeof goods[0]; i++) {
        dibs_runtime *rt;
        dibs_owner owner;
        assert_status(DIBS_OK, dibs_open(&rt, &goods[i]));
        assert_status(DIBS_OK, dibs_lock(rt, "a"));
        assert_status(DIBS_OK, dibs_query(rt, "a", &owner));
        assert_true(strlen(owner.token) < sizeof owner.token && owner.held);
        if (goods[i].label)
            assert_non_null(strstr(owner.token, goods[i].label));
        dibs_close(rt);
    }
    dibs_close(NULL);
    dibs_shutdown(NULL);
}

TEST(zero_selects_the_default)
{
    dibs_runtime *rt;

    assert_status(DIBS_OK, dibs_open(&rt, &(dibs_config){.urls = mem, .url_count = 1}));
    assert_int_equal(rt->settings.lease_ms, 30000);
    assert_int_equal(rt->settings.connect_timeout_ms, 1000);
    assert_int_equal(rt->settings.command_timeout_ms, 1000);
    assert_int_equal(rt->settings.outage_ms, 5000);
    assert_int_equal(rt->settings.handoff_ms, 10);
    assert_int_equal(rt->settings.replica_timeout_ms, 500);
    assert_string_equal(rt->settings.key_prefix, "lock:");
    dibs_close(rt);
    assert_status(DIBS_OK, dibs_open(&rt, &(dibs_config){.urls = mem, .url_count = 1, .handoff_ms = DIBS_NO_HANDOFF}));
    assert_int_equal(rt->settings.handoff_ms, DIBS_NO_HANDOFF);
    dibs_close(rt);
}

TEST(open_reads_the_url_from_the_environment)
{
    static const struct {
        const char *value;
        dibs_status status;
    } rows[] = {
        {"mem:", DIBS_OK},
        {"  mem:x\t\n", DIBS_OK},
        {"mem: mem:", DIBS_INVALID},
        {"nonsense", DIBS_INVALID},
    };
    dibs_runtime *rt;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        setenv("DIBS_URL", rows[i].value, 1);
        assert_status(rows[i].status, dibs_open(&rt, NULL));
        dibs_close(rt);
    }
    setenv("DIBS_URL", "nonsense", 1);
    assert_status(DIBS_OK,
                  dibs_open(&rt, &(dibs_config){.urls = mem, .url_count = 1})); /* the environment is not asked */
    dibs_close(rt);
    unsetenv("DIBS_URL");
}

TEST(open_copies_its_strings)
{
    char url[] = "mem:copied", prefix[] = "p:", label[] = "label";
    const char *urls[] = {url};
    dibs_config config = {.urls = urls, .url_count = 1, .key_prefix = prefix, .label = label};
    dibs_runtime *rt;

    assert_status(DIBS_OK, dibs_open(&rt, &config));
    memset(url, 'x', sizeof url - 1);
    memset(prefix, 'x', sizeof prefix - 1);
    memset(label, 'x', sizeof label - 1);
    memset(&config, 0xff, sizeof config);
    assert_status(DIBS_OK, dibs_lock(rt, "a"));
    dibs_owner owner = owner_of(rt, "a");
    assert_non_null(strstr(owner.token, ":label:"));
    dibs_close(rt);
}

TEST(the_version_is_that_of_the_header)
{
    char version[32];

    snprintf(version, sizeof version, "%d.%d.%d", DIBS_VERSION_MAJOR, DIBS_VERSION_MINOR, DIBS_VERSION_PATCH);
    assert_string_equal(dibs_version(), version);
}

/* --------------------------------------------------------- owner and stats */

TEST(query_and_force_unlock_use_the_token)
{
    dibs_runtime *rt = test_runtime(open_url("mem:", NULL));
    dibs_owner owner;

    memset(&owner, 0xff, sizeof owner);
    assert_status(DIBS_INVALID, dibs_query(rt, "", &owner));
    assert_false(owner.held);
    assert_int_equal(owner.fence, 0);
    assert_status(DIBS_INVALID, dibs_query(NULL, "a", &owner));
    assert_status(DIBS_INVALID, dibs_query(rt, "a", NULL));
    assert_status(DIBS_INVALID, dibs_force_unlock(rt, NULL, NULL));
    assert_status(DIBS_INVALID, dibs_force_unlock(NULL, "a", NULL));
    assert_status(DIBS_OK, dibs_force_unlock(rt, "a", NULL));
    assert_status(DIBS_OK, dibs_lock(rt, "a"));
    assert_status(DIBS_OK, dibs_query(rt, "a", &owner));
    assert_int_equal(owner.fence, fence_of(rt, "a"));
    assert_true(owner.remaining_ms > 0 && owner.remaining_ms <= 30000);
    assert_status(DIBS_NOT_HELD, dibs_force_unlock(rt, "a", "another"));
    assert_status(DIBS_OK, dibs_force_unlock(rt, "a", owner.token));
    assert_status(DIBS_LOST, dibs_unlock(rt, "a")); /* found out by the release */
    assert_int_equal(stats_of(rt).lost, 1);
}

TEST(each_attempt_has_a_token_of_its_own)
{
    dibs_runtime *rt = test_runtime(open_url("mem:", NULL));
    dibs_owner one, two;

    assert_status(DIBS_OK, dibs_lock(rt, "a"));
    assert_status(DIBS_OK, dibs_query(rt, "a", &one));
    assert_status(DIBS_OK, dibs_unlock(rt, "a"));
    assert_status(DIBS_OK, dibs_lock(rt, "a"));
    assert_status(DIBS_OK, dibs_query(rt, "a", &two));
    assert_string_not_equal(one.token, two.token);
    for (const char *c = two.token; *c; c++)
        assert_true(*c >= ' ' && *c <= '~');
}

TEST(statistics_of_the_core_are_right)
{
    dibs_runtime *rt = test_runtime(open_url("mem:", NULL));
    dibs_stats stats;

    dibs_stats_get(NULL, &stats);
    dibs_stats_get(rt, NULL);
    for (int i = 0; i < 3; i++)
        assert_status(DIBS_OK, dibs_lock(rt, "a"));
    assert_status(DIBS_OK, dibs_lock(rt, "b"));
    dibs_stats_get(rt, &stats);
    assert_int_equal(stats.acquired, 2);
    assert_int_equal(stats.reentered, 2);
    assert_int_equal(stats.holds, 2);
    assert_int_equal(stats.leases, 2);
    assert_int_equal(stats.released, 0);
    assert_int_equal(stats.store_commands, 2);
    assert_status(DIBS_OK, dibs_unlock_all(rt));
    dibs_stats_get(rt, &stats);
    assert_int_equal(stats.released, 2);
    assert_int_equal(stats.reentered, 2); /* also those of leases that are gone */
    assert_int_equal(stats.holds, 0);
    assert_int_equal(stats.leases, 0);
    assert_int_equal(stats.store_commands, 4);
}

TESTS(NULL, NULL)
