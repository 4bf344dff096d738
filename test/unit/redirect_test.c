/* What a node of a cluster means by turning a command away. */
#include "store/redis/redis_store.h"
#include "support/test.h"

static struct {
    unsigned calls, slot, port;
    bool ask;
    char host[64];
} named;
static char there;

static void *note(void *context, bool ask, unsigned slot, const char *host, unsigned port)
{
    assert_ptr_equal(context, &named);
    named.calls++;
    named.ask = ask;
    named.slot = slot;
    named.port = port;
    snprintf(named.host, sizeof named.host, "%s", host);
    return &there;
}

static const struct dibs__node_hooks node = {.context = &named, .redirected = note};

static bool hears_of(struct dibs__redirect *redirect, int type, const char *text, bool all_moved)
{
    char copy[80];

    snprintf(copy, sizeof copy, "%s", text);
    memset(&named, 0, sizeof named);
    return dibs__redis_turned_away(&node, redirect, &(redisReply){.type = type, .str = copy, .len = strlen(copy)},
                                   all_moved);
}

static bool hears(struct dibs__redirect *redirect, int type, const char *text)
{
    return hears_of(redirect, type, text, true);
}

TEST(moved_and_ask_name_the_other_node)
{
    struct dibs__redirect redirect = {.asking = false};

    assert_true(hears(&redirect, REDIS_REPLY_ERROR, "MOVED 3999 127.0.0.1:6381"));
    assert_int_equal(redirect.kind, DIBS__REDIRECT_MOVED);
    assert_ptr_equal(redirect.to, &there);
    assert_int_equal(named.slot, 3999);
    assert_int_equal(named.port, 6381);
    assert_string_equal(named.host, "127.0.0.1");
    assert_false(named.ask);
    assert_true(hears(&redirect, REDIS_REPLY_ERROR, "ASK 17 ::1:7000"));
    assert_int_equal(redirect.kind, DIBS__REDIRECT_ASK);
    assert_string_equal(named.host, "::1");
    assert_true(named.ask);
}

TEST(a_host_that_the_node_does_not_know_is_empty)
{
    assert_true(hears(NULL, REDIS_REPLY_ERROR, "MOVED 1 :6381"));
    assert_string_equal(named.host, "");
    assert_true(hears(NULL, REDIS_REPLY_ERROR, "MOVED 1 ?:6381"));
    assert_string_equal(named.host, "");
}

TEST(an_address_that_is_none_leads_nowhere)
{
    static const char *const texts[] = {"MOVED 16384 h:1", "MOVED 1",       "MOVED 1 h",
                                        "ASK 1 h:0",       "ASK 1 h:65536", "ASK x h:1"};
    struct dibs__redirect redirect;

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        redirect = (struct dibs__redirect){.to = &there};
        assert_true(hears(&redirect, REDIS_REPLY_ERROR, texts[i]));
        assert_null(redirect.to);
        assert_int_equal(named.calls, 0);
    }
}

/* A node that is asked for one key alone has not looked for the others: the third node may have none of them. */
TEST(a_node_that_asking_led_to_names_no_third)
{
    struct dibs__redirect redirect = {.asking = true};

    assert_true(hears(&redirect, REDIS_REPLY_ERROR, "TRYAGAIN the sharers of the lock are at another node"));
    assert_int_equal(redirect.kind, DIBS__REDIRECT_AGAIN);
    assert_true(redirect.asking);
    assert_true(hears(&redirect, REDIS_REPLY_ERROR, "ASK 17 127.0.0.1:7000"));
    assert_int_equal(redirect.kind, DIBS__REDIRECT_AGAIN);
    assert_null(redirect.to);
    assert_false(redirect.asking);
    assert_int_equal(named.calls, 0);
}

/* Before Redis 7.0 a node answers ASK as soon as one key of the command is not there, also one that never was. */
TEST(an_ask_that_may_concern_some_keys_leads_nowhere)
{
    struct dibs__redirect redirect = {.to = &there};

    assert_true(hears_of(&redirect, REDIS_REPLY_ERROR, "ASK 17 127.0.0.1:7000", false));
    assert_int_equal(redirect.kind, DIBS__REDIRECT_AGAIN);
    assert_null(redirect.to);
    assert_int_equal(named.calls, 0);
    assert_true(hears_of(&redirect, REDIS_REPLY_ERROR, "MOVED 17 127.0.0.1:7000", false));
    assert_int_equal(redirect.kind, DIBS__REDIRECT_MOVED);
}

TEST(other_replies_turn_nothing_away)
{
    struct dibs__redirect redirect = {.asking = true};

    assert_false(hears(&redirect, REDIS_REPLY_ERROR, "CLUSTERDOWN The cluster is down"));
    assert_int_equal(redirect.kind, DIBS__REDIRECT_NONE);
    assert_false(hears(&redirect, REDIS_REPLY_STRING, "MOVED 3999 127.0.0.1:6381"));
    assert_false(
        dibs__redis_turned_away(NULL, NULL, &(redisReply){.type = REDIS_REPLY_ERROR, .str = "MOVED 1 h:1"}, true));
}

TESTS(NULL, NULL)
