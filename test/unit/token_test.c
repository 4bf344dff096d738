/* The text of a token. */
#include <limits.h>

#include "core/token.h"
#include "support/test.h"

#define RUNTIME "0123456789abcdef0123456789abcdef"

TEST(a_token_names_host_process_label_and_thread)
{
    static const struct {
        struct dibs__token token;
        const char *text;
    } rows[] = {
        {{0, 0, 0, false, false}, "dibs:label:host:77:0:" RUNTIME ":0"},
        {{1234567890, 0xbeef, 0, false, false}, "dibs:label:host:77:1234567890:" RUNTIME ":beef"},
        {{UINT64_MAX, UINT64_MAX, 0, false, false},
         "dibs:label:host:77:18446744073709551615:" RUNTIME ":ffffffffffffffff"},
        {{1, 0xbeef, 3, false, false}, "dibs:label:host:77:1:" RUNTIME ":beef"},
        {{1, 0xbeef, 0, true, false}, "dibs:label:host:77:1:" RUNTIME ":beef~0"},
        {{1, 0xbeef, 0, false, true}, "dibs:label:host:77:1:" RUNTIME ":beef!"},
        {{UINT64_MAX, UINT64_MAX, UINT32_MAX, true, false},
         "dibs:label:host:77:18446744073709551615:" RUNTIME ":ffffffffffffffff~4294967295"},
    };
    struct dibs__token_form form;
    char text[DIBS__TOKEN_MAX];
    uint64_t sequence = 1;

    dibs__token_form_init(&form, "label", "host", 77, RUNTIME);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *end = dibs__token_write(&form, &rows[i].token, text);
        assert_string_equal(text, rows[i].text);
        assert_ptr_equal(end, text + strlen(text));
        assert_true(dibs__token_sequence(text, &sequence));
        assert_true(sequence == rows[i].token.sequence);
    }
    assert_int_equal(strlen(text) + 1, form.most);
}

/* A label of 48 bytes, a host of 45 and the longest numbers. */
TEST(the_longest_token_fits)
{
    const struct dibs__token longest = {UINT64_MAX, UINT64_MAX, UINT32_MAX, true, false};
    struct dibs__token_form form;
    char label[49] = {0}, host[46] = {0}, text[DIBS__TOKEN_MAX];

    memset(label, 'l', sizeof label - 1);
    memset(host, 'h', sizeof host - 1);
    dibs__token_form_init(&form, label, host, 4194304, RUNTIME);
    assert_true(form.most <= DIBS__TOKEN_MAX);
    dibs__token_write(&form, &longest, text);
    assert_int_equal(strlen(text) + 1, form.most);
}

TEST(a_token_without_a_sequence_is_foreign)
{
    static const char *const texts[] = {"", "abc", ":", "dibs:", "a:g", "a:1 ", "a:-1", "a:0x1", "a:12345678901234567"};
    uint64_t sequence = 5;

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_false(dibs__token_sequence(texts[i], &sequence));
    assert_int_equal(sequence, 5);
}

TESTS(NULL, NULL)
