/* What is a character of UTF-8: each one that there is, and nothing else. */
#include "base/utf8.h"
#include "support/test.h"

/* As RFC 3629 says it, from the character to its bytes. */
static size_t encode(uint32_t character, char out[5])
{
    memset(out, 0, 5);
    if (character < 0x80) {
        out[0] = (char)character;
        return 1;
    }
    size_t size = character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
    for (size_t i = size - 1; i > 0; i--, character >>= 6)
        out[i] = (char)(0x80 | (character & 0x3f));
    out[0] = (char)((0xf00 >> size) | character);
    return size;
}

TEST(each_valid_character_is_recognised)
{
    char bytes[5];

    for (uint32_t character = 1; character <= 0x10ffff; character++) {
        size_t size = encode(character, bytes);
        bool is_surrogate = character >= 0xd800 && character <= 0xdfff;
        assert_that(dibs__utf8_size(bytes) == (is_surrogate ? 0 : size), "U+%04X", character);
    }
}

/* Checks all texts of so many bytes whose last two bytes are at the limits of a range. */
static unsigned long count_characters(size_t size)
{
    static const unsigned char ends[] = {0x01, 0x7f, 0x80, 0xbf, 0xc0, 0xff};
    unsigned long count = 0;
    char bytes[5] = {0};

    for (unsigned first = 1; first < 256; first++)
        for (unsigned second = 1; second < 256; second++)
            for (size_t i = 0; i < sizeof ends * sizeof ends; i++) {
                bytes[0] = (char)first;
                bytes[1] = (char)second;
                bytes[2] = (char)ends[i / sizeof ends];
                bytes[3] = (char)ends[i % sizeof ends];
                count += dibs__utf8_size(bytes) == size;
            }
    return count;
}

TEST(invalid_bytes_are_no_character)
{
    assert_int_equal(count_characters(1), 127UL * 255 * 36);
    assert_int_equal(count_characters(2), 30UL * 64 * 36);                /* C2 to DF */
    assert_int_equal(count_characters(3), (16UL * 64 - 32 - 32) * 2 * 6); /* less overlong ones and surrogates */
    assert_int_equal(count_characters(4), (4UL * 64 + 16 - 16) * 2 * 2);  /* F0 90 to F4 8F */
    assert_int_equal(dibs__utf8_size(""), 0);
    assert_int_equal(dibs__utf8_size("\xe2\x82"), 0);
}

TEST(a_printed_line_has_no_control_characters)
{
    static const char *const rows[][2] = {
        {"plain", "plain"},
        {"a\nb\r\t\x1b[2J\x7f", "a?b???[2J?"},
        {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x94\x92", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x94\x92"},
        {"\xc2\x9b"
         "2J\x9b",
         "??2J?"},
        {"\xc2\xa0\xc2\x80", "\xc2\xa0??"},
        {"\xc0\x8a\xed\xa0\x80\xe2\x82", "???????"},
    };
    char text[32];

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        strcpy(text, rows[i][0]);
        dibs__utf8_make_line(text);
        assert_string_equal(text, rows[i][1]);
    }
}

TESTS(NULL, NULL)
