/* What counts as the answer of a sentinel that names a master. */
#include "redis/sentinel_parts.h"
#include "support/test.h"

#define KEPT_PORT 99

static struct dibs__error error;
static char host[DIBS__HOST_MAX];
static unsigned port;

static redisReply text_of(const char *text, size_t size)
{
    redisReply reply = {.type = REDIS_REPLY_STRING};

    reply.str = (char *)(uintptr_t)text; /* nobody writes there */
    reply.len = size;
    return reply;
}

static dibs_status read_reply(const redisReply *reply)
{
    strcpy(host, "kept");
    port = KEPT_PORT;
    return dibs__sentinel_read_master(reply, "the sentinel", host, &port, &error);
}

static dibs_status read_pair(redisReply first, redisReply second)
{
    redisReply *both[] = {&first, &second}, reply = {.type = REDIS_REPLY_ARRAY, .elements = 2, .element = both};

    return read_reply(&reply);
}

static dibs_status read_texts(const char *name, const char *number)
{
    return read_pair(text_of(name, strlen(name)), text_of(number, strlen(number)));
}

static void expect_kept(void)
{
    assert_string_equal(host, "kept");
    assert_int_equal(port, KEPT_PORT);
}

TEST(an_address_is_a_host_and_a_port)
{
    static const char *const hosts[] = {"h", "127.0.0.1", "::1", "fe80::1%eth0", "a-b_c.D9"};
    char longest[DIBS__HOST_MAX + 1];

    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        assert_status(DIBS_OK, read_texts(hosts[i], "6379"));
        assert_string_equal(host, hosts[i]);
        assert_int_equal(port, 6379);
    }
    assert_status(DIBS_OK, read_texts("h", "1"));
    assert_int_equal(port, 1);
    assert_status(DIBS_OK, read_texts("h", "65535"));
    assert_int_equal(port, 65535);
    memset(longest, 'h', sizeof longest);
    longest[DIBS__HOST_MAX - 1] = '\0';
    assert_status(DIBS_OK, read_texts(longest, "1"));
    assert_string_equal(host, longest);
}

TEST(what_is_no_address_is_refused)
{
    static const char *const hosts[] = {"", "a b", "a/b", "a\nb", "a\x80", "@", "a,b"}, *const ports[] = {
                                                                                            "0",  "65536", "",  "x",
                                                                                            "-1", "1x",    " 1"};
    char longest[DIBS__HOST_MAX + 1];

    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        assert_status(DIBS_STORE_ERROR, read_texts(hosts[i], "6379"));
        expect_kept();
    }
    for (size_t i = 0; i < sizeof ports / sizeof ports[0]; i++) {
        assert_status(DIBS_STORE_ERROR, read_texts("h", ports[i]));
        expect_kept();
    }
    memset(longest, 'h', sizeof longest);
    longest[DIBS__HOST_MAX] = '\0';
    assert_status(DIBS_STORE_ERROR, read_texts(longest, "1"));
    assert_status(DIBS_STORE_ERROR, read_pair(text_of("a\0b", 3), text_of("1", 1)));
    assert_string_equal(error.detail, "the sentinel does not answer as a sentinel does");
}

TEST(what_is_no_pair_of_texts_is_refused)
{
    redisReply name = text_of("h", 1), number = text_of("1", 1);
    redisReply integer = {.type = REDIS_REPLY_INTEGER, .integer = 1};
    redisReply *three[] = {&name, &number, &number};
    redisReply reply = {.type = REDIS_REPLY_ARRAY, .elements = 3, .element = three};

    assert_status(DIBS_STORE_ERROR, read_reply(&reply));
    reply.elements = 1;
    assert_status(DIBS_STORE_ERROR, read_reply(&reply));
    reply.elements = 2;
    assert_status(DIBS_OK, read_reply(&reply));
    assert_status(DIBS_STORE_ERROR, read_pair(name, integer));
    assert_status(DIBS_STORE_ERROR, read_pair(integer, number));
    assert_status(DIBS_STORE_ERROR, read_reply(&name));
    assert_status(DIBS_STORE_ERROR, read_reply(&integer));
    expect_kept();
}

TEST(a_name_that_is_not_known_is_no_error)
{
    const redisReply nil = {.type = REDIS_REPLY_NIL};

    redisReply refusal = text_of("NOPERM no right", 15);

    assert_status(DIBS_OK, read_reply(&nil));
    expect_kept();
    refusal.type = REDIS_REPLY_ERROR;
    assert_status(DIBS_DENIED, read_reply(&refusal));
    assert_that(strstr(error.detail, "the sentinel refused SENTINEL GET-MASTER-ADDR-BY-NAME"), "%s", error.detail);
    expect_kept();
}

TESTS(NULL, NULL)
