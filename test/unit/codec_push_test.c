/* Messages about grants: which are parsed, and which are thrown away. */
#include "store/redis/codec.h"
#include "support/test.h"

#define TOKEN "dibs:a b:host:1:2:id:3"
#define TEN "aaaaaaaaaa"
#define FIFTY TEN TEN TEN TEN TEN

static bool read_push(struct dibs__pushed *out, const char *prefix, const char *text)
{
    return dibs__push_read(out, prefix, text, strlen(text));
}

TEST(a_pushed_grant_is_parsed)
{
    struct dibs__pushed pushed;

    assert_true(read_push(&pushed, "lock:", "7 1784716418123456 22 " TOKEN "lock:sku:25 \x01\xff"));
    assert_int_equal(pushed.grant.number, 7);
    assert_int_equal(pushed.grant.fence, 1784716418123456);
    assert_string_equal(pushed.grant.token, TOKEN);
    assert_string_equal(pushed.grant.name, "sku:25 \x01\xff");
    assert_false(pushed.grant.confirm);
    assert_true(read_push(&pushed, "", "1 9007199254740991 1 xy"));
    assert_string_equal(pushed.grant.token, "x");
    assert_string_equal(pushed.grant.name, "y");
    assert_true(read_push(&pushed, "lock:", "1 0 1 tlock:a")); /* a hint */
    assert_int_equal(pushed.grant.fence, 0);
}

TEST(a_message_that_is_no_push_is_refused)
{
    static const char *const texts[] = {
        "",
        " ",
        "1",
        "1 2",
        "1 2 3",
        "1 2 3 ",
        "1 2 1 t",
        "1 2 1 tlock:",
        "1 2 1 tlocx:a",
        "1 2 6 tlock:a",
        "1 2 0 lock:a",
        "1 00 1 tlock:a",
        "00 2 1 tlock:a",
        "01 2 1 tlock:a",
        "1 02 1 tlock:a",
        "18446744073709551616 2 1 tlock:a",
        "1 9007199254740992 1 tlock:a",
        "1 99999999999999999999999 1 tlock:a",
        "-1 2 1 tlock:a",
        "1 -2 1 tlock:a",
        "+1 2 1 tlock:a",
        "1 2 -1 tlock:a",
        "1  2 1 tlock:a",
        "x 2 1 tlock:a",
        "1 2 18446744073709551615 tlock:a",
        "1 2 192 " FIFTY FIFTY FIFTY TEN TEN TEN TEN "aalock:a",
    };
    struct dibs__pushed pushed;

    assert_true(read_push(&pushed, "lock:", "1 2 1 tlock:a"));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_that(!read_push(&pushed, "lock:", texts[i]), "%s", texts[i]);
}

TEST(a_push_with_a_nul_is_refused)
{
    static const char text[] = "1 2 1 tlock:a\0b";
    struct dibs__pushed pushed;

    assert_true(dibs__push_read(&pushed, "lock:", text, strlen(text)));
    assert_false(dibs__push_read(&pushed, "lock:", text, sizeof text - 1));
}

/* The longest name and token fit, one byte more does not. */
TEST(pushes_at_the_limits_are_parsed)
{
    char text[1024];
    struct dibs__pushed pushed;

    for (int more = 0; more < 2; more++) {
        int at = sprintf(text, "1 2 %d ", DIBS__TOKEN_MAX - 1);
        memset(text + at, 't', DIBS__TOKEN_MAX - 1);
        at += DIBS__TOKEN_MAX - 1;
        memset(text + at, 'n', DIBS_NAME_MAX + 1);
        text[at + DIBS_NAME_MAX + more] = '\0';
        assert_int_equal(read_push(&pushed, "", text), !more);
    }
}

TESTS(NULL, NULL)
