/* Patterns as Redis has them. */
#include "base/glob.h"
#include "support/test.h"

TEST(a_pattern_matches_as_in_redis)
{
    static const struct {
        const char *pattern, *text;
        bool matches;
    } rows[] = {
        {"", "", true},
        {"", "a", false},
        {"a", "", false},
        {"abc", "abc", true},
        {"abc", "abd", false},
        {"abc", "abcd", false},
        {"*", "", true},
        {"*", "any thing\n\xff", true},
        {"**", "a", true},
        {"a*", "abc", true},
        {"*c", "abc", true},
        {"a*c", "ac", true},
        {"a*b*c", "aXbYbZc", true},
        {"a*b*c", "aXcYb", false},
        {"*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
        {"?", "a", true},
        {"?", "", false},
        {"a?c", "abc", true},
        {"[abc]", "b", true},
        {"[abc]", "d", false},
        {"[^abc]", "d", true},
        {"[^abc]", "a", false},
        {"[a-c]x", "bx", true},
        {"[c-a]x", "bx", true},
        {"[a-c]", "d", false},
        {"[\xf0-\xff]", "\xfa", true},
        {"[]a]", "]", false},
        {"[\\]a]", "]", true},
        {"[\\\\-a]", "-", true},
        {"[a-]", "-", false},
        {"[a-]", "`", true},
        {"[abc", "b", true},
        {"\\*", "*", true},
        {"\\*", "a", false},
        {"\\", "\\", true},
        {"a\\?c", "a?c", true},
        {"a\\?c", "abc", false},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_that(dibs__glob_matches(rows[i].pattern, rows[i].text) == rows[i].matches, "row %zu: %s, %s", i,
                    rows[i].pattern, rows[i].text);
}

TEST(an_escaped_character_means_itself)
{
    static const char text[] = "a*b?c[d]e\\f^-g h\n\xff";
    char pattern[2 * sizeof text];

    size_t size = dibs__glob_escape(pattern, text, sizeof text - 1);
    pattern[size] = '\0';
    assert_string_equal(pattern, "a\\*b\\?c\\[d\\]e\\\\f^-g h\n\xff");
    assert_true(dibs__glob_matches(pattern, text));
    assert_false(dibs__glob_matches(pattern, "aXb?c[d]e\\f^-g h\n\xff"));
}

TESTS(NULL, NULL)
