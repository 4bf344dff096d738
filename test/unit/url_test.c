/* URLs taken apart, and each way in which they can be wrong. */
#include "redis/url.h"
#include "support/test.h"

#define LONG_PATH_10 "/123456789"

static const struct good {
    const char *text, *user, *password, *host, *path;
    unsigned port, db;
    const char *shown;
} goods[] = {
    {"redis://h", NULL, NULL, "h", NULL, 6379, 0, "h:6379"},
    {"REDIS://Host.Example", NULL, NULL, "Host.Example", NULL, 6379, 0, "Host.Example:6379"},
    {"redis://h:1", NULL, NULL, "h", NULL, 1, 0, "h:1"},
    {"redis://h:65535/", NULL, NULL, "h", NULL, 65535, 0, "h:65535"},
    {"redis://h/15", NULL, NULL, "h", NULL, 6379, 15, "h:6379"},
    {"redis://h:7/0", NULL, NULL, "h", NULL, 7, 0, "h:7"},
    {"redis://u:p@h", "u", "p", "h", NULL, 6379, 0, "h:6379"},
    {"redis://:p@h", NULL, "p", "h", NULL, 6379, 0, "h:6379"},
    {"redis://u@h", "u", "", "h", NULL, 6379, 0, "h:6379"},
    {"redis://u:@h", "u", "", "h", NULL, 6379, 0, "h:6379"},
    {"redis://u:p:q@h", "u", "p:q", "h", NULL, 6379, 0, "h:6379"},
    {"redis://u:p@q@h", "u", "p@q", "h", NULL, 6379, 0, "h:6379"}, /* the last @ counts */
    {"redis://%75%20x:%70%2f%3F%40@h:2/3", "u x", "p/?@", "h", NULL, 2, 3, "h:2"},
    {"redis://:%c3%A9@h", NULL, "\xc3\xa9", "h", NULL, 6379, 0, "h:6379"},
    {"redis://[::1]", NULL, NULL, "::1", NULL, 6379, 0, "[::1]:6379"},
    {"redis://u:p@[2001:db8::7]:6380/2", "u", "p", "2001:db8::7", NULL, 6380, 2, "[2001:db8::7]:6380"},
    {"redis://127.0.0.1", NULL, NULL, "127.0.0.1", NULL, 6379, 0, "127.0.0.1:6379"},
    {"unix:///run/r.sock", NULL, NULL, NULL, "/run/r.sock", 0, 0, "/run/r.sock"},
    {"unix:///a%20b%3f", NULL, NULL, NULL, "/a b?", 0, 0, "/a b?"},
    {"unix://u:p@/s?db=4", "u", "p", NULL, "/s", 0, 4, "/s"},
    {"unix://:p@/s", NULL, "p", NULL, "/s", 0, 0, "/s"},
};

static void assert_same(const char *expected, const char *actual)
{
    if (expected)
        assert_string_equal(actual, expected);
    else
        assert_null(actual);
}

TEST(valid_urls_are_parsed)
{
    for (size_t i = 0; i < sizeof goods / sizeof goods[0]; i++) {
        const struct good *good = &goods[i];
        struct dibs__url url;
        struct dibs__error error = {DIBS_OK, ""};
        assert_that(dibs__url_parse(&url, good->text, &error) == DIBS_OK, "%s: %s", good->text, error.detail);
        assert_same(good->user, url.user);
        assert_same(good->password, url.password);
        assert_same(good->host, url.host_count ? url.hosts[0].name : NULL);
        assert_same(good->path, url.path);
        assert_int_equal(url.host_count ? url.hosts[0].port : 0, good->port);
        assert_int_equal(url.db, good->db);
        assert_string_equal(url.shown, good->shown);
        dibs__url_free(&url);
        assert_null(url.hosts);
        dibs__url_free(&url);
    }
}

static const struct {
    const char *text;
    enum dibs__url_kind kind;
    bool tls;
    const char *hosts, *master_name;
    unsigned db;
    const char *shown;
} kinds[] = {
    {"redis://h/2", DIBS__URL_SERVER, false, "h:6379 ", NULL, 2, "h:6379"},
    {"rediss://u:p@h:1/3", DIBS__URL_SERVER, true, "h:1 ", NULL, 3, "h:1"},
    {"redis-sentinel://h/m", DIBS__URL_SENTINEL, false, "h:26379 ", "m", 0, "m of the sentinel h:26379"},
    {"redis-sentinel://:p@a:1,[::1],c/my%2Fmaster/7", DIBS__URL_SENTINEL, false, "a:1 ::1:26379 c:26379 ", "my/master",
     7, "my/master of the sentinels a:1 and 2 more"},
    {"rediss-sentinel://h/m/", DIBS__URL_SENTINEL, true, "h:26379 ", "m", 0, "m of the sentinel h:26379"},
    {"redis-cluster://a,b:7001", DIBS__URL_CLUSTER, false, "a:6379 b:7001 ", NULL, 0,
     "the cluster of a:6379 and 1 more"},
    {"Rediss-Cluster://u:p@a/", DIBS__URL_CLUSTER, true, "a:6379 ", NULL, 0, "the cluster of a:6379"},
};

TEST(each_kind_has_its_hosts)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct dibs__url url;
        struct dibs__error error = {DIBS_OK, ""};
        char hosts[128] = "";
        assert_that(dibs__url_parse(&url, kinds[i].text, &error) == DIBS_OK, "%s: %s", kinds[i].text, error.detail);
        for (size_t at = 0; at < url.host_count; at++)
            snprintf(hosts + strlen(hosts), sizeof hosts - strlen(hosts), "%s:%u ", url.hosts[at].name,
                     url.hosts[at].port);
        assert_int_equal(url.kind, kinds[i].kind);
        assert_int_equal(url.tls, kinds[i].tls);
        assert_string_equal(hosts, kinds[i].hosts);
        assert_same(kinds[i].master_name, url.master_name);
        assert_int_equal(url.db, kinds[i].db);
        assert_string_equal(url.shown, kinds[i].shown);
        dibs__url_free(&url);
    }
}

/* Each with the word that the detail must contain: the part at fault. */
static const struct {
    const char *text, *word;
} bads[] = {
    {"", "scheme"},
    {"h:6379", "scheme"},
    {"http://h", "scheme"},
    {"redis:/h", "scheme"},
    {"redis:h", "scheme"},
    {" redis://h", "scheme"},
    {"redis://h ", "host"},
    {"redis://h\n", "host"},
    {"redis://u:se cret@h", "blank"},
    {"redis://", "host is missing"},
    {"redis://:secret@", "host is missing"},
    {"redis://:6379", "host is missing"},
    {"redis:///3", "host is missing"},
    {"redis://a/b:1", "database"},
    {"redis://a_b!c", "host"},
    {"redis://::1", "host"}, /* an IPv6 address without its brackets */
    {"redis://h%20x", "host"},
    {"redis://[::1", "["},
    {"redis://[h]", "IPv6"},
    {"redis://[fe80::1%a b]", "IPv6"},
    {"redis://[fe80::1%a\x7f]", "IPv6"},
    {"redis://[]", "host"},
    {"redis://[::1]x", "port"},
    {"redis://h:", "port"},
    {"redis://h:0", "port"},
    {"redis://h:65536", "port"},
    {"redis://h:-1", "port"},
    {"redis://h:+1", "port"},
    {"redis://h:0x10", "port"},
    {"redis://h:99999999999999999999", "port"},
    {"redis://h/x", "database"},
    {"redis://h/-1", "database"},
    {"redis://h/1/2", "database"},
    {"redis://h/99999999999", "database"},
    {"redis://h?db=1", "?"},
    {"redis://h#x", "#"},
    {"redis://:secret/1@h", "percent-encoded: %2F"},
    {"redis://u:1/secret@h:1/2", "percent-encoded: %2F"},
    {"rediss://:secret#1@h", "percent-encoded"},
    {"redis://:secret?@h", "percent-encoded"},
    {"redis-cluster://:secret/1@a,b", "percent-encoded"},
    {"redis://@h", "user"},
    {"redis://%zz:secret@h", "user"},
    {"redis://u:secret%4@h", "password"},
    {"redis://u:secret%@h", "password"},
    {"redis://u:secret%00@h", "password"},
    {"unix://", "path"},
    {"unix://relative", "path"},
    {"unix://host/path", "host"},
    {"unix:///s?x=1", "db=N"},
    {"unix:///s?db=", "database"},
    {"unix:///s?db=1x", "database"},
    {"unix:///s%", "path"},
    {"unix://" LONG_PATH_10 LONG_PATH_10 LONG_PATH_10 LONG_PATH_10 LONG_PATH_10 LONG_PATH_10 LONG_PATH_10 LONG_PATH_10
         LONG_PATH_10 LONG_PATH_10 LONG_PATH_10,
     "too long"},
    {"redis-sentinel://u:secret@h", "name of the master"},
    {"redis-sentinel://u:secret@h/", "name of the master"},
    {"redis-sentinel://u:secret@h//1", "name of the master"},
    {"redis-sentinel://u:secret@h/m/x", "database"},
    {"redis-sentinel://u:secret@h,/m", "host is missing"},
    {"redis-sentinel://u:secret@h,x:0/m", "port"},
    {"redis-cluster://u:secret@h/1", "one database"},
    {"redis-cluster://u:secret@,h", "host is missing"},
    {"redis://u:secret@h,i", "host"},
    {"rediss-cluster://", "host is missing"},
};

TEST(errors_of_bad_urls_name_the_part_and_no_password)
{
    for (size_t i = 0; i < sizeof bads / sizeof bads[0]; i++) {
        struct dibs__url url;
        struct dibs__error error = {DIBS_OK, ""};
        assert_that(dibs__url_parse(&url, bads[i].text, &error) == DIBS_INVALID, "\"%s\" passes", bads[i].text);
        assert_that(strstr(error.detail, bads[i].word), "\"%s\": %s", bads[i].text, error.detail);
        assert_null(strstr(error.detail, "secret"));
        assert_null(url.user);
        assert_null(url.password);
        assert_null(url.hosts);
        assert_null(url.path);
    }
}

/* A URL with any part cut off or inserted causes no crash, and a failure leaves nothing behind. */
TEST(mutilated_urls_do_no_harm)
{
    static const char odd[] = "%@:/?#[]\x01 0\xff";
    char text[128];

    for (size_t i = 0; i < sizeof goods / sizeof goods[0]; i++) {
        size_t size = strlen(goods[i].text);
        for (size_t at = 0; at < size; at++) {
            for (size_t c = 0; c < sizeof odd; c++) { /* a NUL byte ends the text */
                struct dibs__url url;
                struct dibs__error error = {DIBS_OK, ""};
                memcpy(text, goods[i].text, size + 1);
                text[at] = odd[c];
                dibs_status status = dibs__url_parse(&url, text, &error);
                assert_true(status == DIBS_OK || status == DIBS_INVALID);
                dibs__url_free(&url);
            }
        }
    }
}

TEST(a_long_host_is_cut_only_where_it_is_shown)
{
    char text[300] = "redis://";
    struct dibs__url url;
    struct dibs__error error;

    memset(text + 8, 'h', 250);
    assert_status(DIBS_OK, dibs__url_parse(&url, text, &error));
    assert_int_equal(strlen(url.hosts[0].name), 250);
    assert_true(strlen(url.shown) < sizeof url.shown);
    assert_non_null(strstr(url.shown, ":6379"));
    dibs__url_free(&url);
}

TESTS(NULL, NULL)
