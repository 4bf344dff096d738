/* Statuses: their numbers, which other programs are compiled against, and their names. */
#include "support/test.h"

static const struct {
    dibs_status status;
    int number;
    const char *name;
} rows[] = {
    {DIBS_OK, 0, "DIBS_OK"},
    {DIBS_BUSY, 1, "DIBS_BUSY"},
    {DIBS_TIMEOUT, 2, "DIBS_TIMEOUT"},
    {DIBS_NOT_HELD, 3, "DIBS_NOT_HELD"},
    {DIBS_LOST, 4, "DIBS_LOST"},
    {DIBS_UNAVAILABLE, 5, "DIBS_UNAVAILABLE"},
    {DIBS_DENIED, 6, "DIBS_DENIED"},
    {DIBS_STORE_ERROR, 7, "DIBS_STORE_ERROR"},
    {DIBS_INVALID, 8, "DIBS_INVALID"},
    {DIBS_NO_MEMORY, 9, "DIBS_NO_MEMORY"},
    {DIBS_CLOSED, 10, "DIBS_CLOSED"},
    {DIBS_OVERFLOW, 11, "DIBS_OVERFLOW"},
    {DIBS_CANCELLED, 12, "DIBS_CANCELLED"},
};

enum { COUNT = sizeof rows / sizeof rows[0] };

TEST(each_status_has_its_number_and_name)
{
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(rows[i].status, rows[i].number);
        assert_string_equal(dibs_status_name(rows[i].status), rows[i].name);
    }
}

TEST(each_status_text_is_one_sentence_of_its_own)
{
    for (size_t i = 0; i < COUNT; i++) {
        const char *text = dibs_status_text(rows[i].status);
        assert_true(strlen(text) > 3 && text[strlen(text) - 1] == '.' && !strchr(text, '\n'));
        for (size_t other = 0; other < i; other++)
            assert_string_not_equal(text, dibs_status_text(rows[other].status));
    }
}

TEST(an_unknown_status_has_a_name_too)
{
    static const int numbers[] = {COUNT, COUNT + 1, 1000, 0x7fffffff, -1};

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        assert_string_equal(dibs_status_name((dibs_status)numbers[i]), "DIBS_?");
        assert_non_null(dibs_status_text((dibs_status)numbers[i]));
    }
}

TESTS(NULL, NULL)
