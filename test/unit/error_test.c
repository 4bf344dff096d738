/* The detail of a failure: one line, cut, and each thread's own. */
#include "base/error.h"
#include "support/actor.h"
#include "support/test.h"

TEST(a_sentence_stays_one_line)
{
    struct dibs__error error;

    assert_status(DIBS_DENIED, dibs__error_set(&error, DIBS_DENIED, "a%cb%c%s%d", '\n', '\x7f', "\t\x01", 7));
    assert_int_equal(error.status, DIBS_DENIED);
    assert_string_equal(error.detail, "a?b???7");
    assert_status(DIBS_LOST, dibs__fail(DIBS_LOST, "x\ry \xc3\xa9"));
    assert_string_equal(dibs_last_error(), "x?y \xc3\xa9");
}

TEST(a_long_sentence_is_cut)
{
    char text[1000];
    struct dibs__error error;

    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    dibs__error_set(&error, DIBS_BUSY, "%s", text);
    assert_int_equal(strlen(error.detail), DIBS__DETAIL_MAX - 1);
    dibs__fail(DIBS_BUSY, "%s", text);
    assert_int_equal(strlen(dibs_last_error()), DIBS__DETAIL_MAX - 1);
}

TEST(an_error_can_be_made_the_last_one)
{
    struct dibs__error error = {DIBS_BUSY, "busy there"};

    assert_status(DIBS_BUSY, dibs__fail_with(&error));
    assert_string_equal(dibs_last_error(), "busy there");
    error = (struct dibs__error){DIBS_OK, "means nothing"};
    assert_status(DIBS_OK, dibs__fail_with(&error));
    assert_string_equal(dibs_last_error(), "busy there");
}

static char seen[2][DIBS__DETAIL_MAX];

static void fail_elsewhere(void *arg)
{
    strcpy(seen[0], dibs_last_error());
    dibs__fail(DIBS_INVALID, "elsewhere");
    strcpy(seen[1], dibs_last_error());
}

TEST(each_thread_has_its_own_last_error)
{
    dibs__fail(DIBS_INVALID, "here");
    call_in_a_thread(fail_elsewhere, NULL);
    assert_string_equal(seen[0], "");
    assert_string_equal(seen[1], "elsewhere");
    assert_string_equal(dibs_last_error(), "here");
}

TEST(names_in_errors_are_quoted)
{
    static const struct {
        const char *name, *quoted;
    } rows[] = {
        {"a", "\"a\""},      {"", "\"\""},
        {"a b", "\"a b\""},  {"\n\x7f", "\"\\x0a\\x7f\""},
        {"\\", "\"\\x5c\""}, {"\xc3\xa9", "\"\\xc3\\xa9\""},
    };
    char out[DIBS__QUOTED_MAX], name[DIBS_NAME_MAX + 1];

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_string_equal(dibs__quote(out, rows[i].name), rows[i].quoted);
    for (int c = 1; c < 256; c++) { /* for every byte and length the text fits, and its quotes are closed */
        for (size_t size = 1; size <= DIBS_NAME_MAX; size = size * 3 - 1) {
            memset(name, c, size);
            name[size] = '\0';
            size_t length = strlen(dibs__quote(out, name));
            assert_true(length < DIBS__QUOTED_MAX && out[length - 1] == '"');
        }
    }
    memset(name, 'n', DIBS_NAME_MAX);
    name[DIBS_NAME_MAX] = '\0';
    assert_non_null(strstr(dibs__quote(out, name), "...\""));
    name[40] = '\0';
    assert_null(strstr(dibs__quote(out, name), "..."));
    memset(name, '\xc3', 40); /* shown as four times as many */
    assert_non_null(strstr(dibs__quote(out, name), "\\xc3...\""));
}

TEST(escaping_never_cuts_within_an_escape)
{
    static const struct {
        size_t size;
        const char *out;
    } rows[] = {{1, ""}, {2, "a"}, {5, "a"}, {6, "a\\x00"}, {7, "a\\x00b"}, {100, "a\\x00b"}};
    char out[100];

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dibs__escape(out, rows[i].size, "a\0b", 3);
        assert_string_equal(out, rows[i].out);
    }
}

TESTS(NULL, NULL)
