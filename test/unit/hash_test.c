/* The hash of names and tokens, which differs for similar ones, and the comparison of bytes without a call. */
#include "base/hash.h"
#include "support/test.h"

#define NAMES 10000
#define PLACES 32768 /* as a table of so many holds has */

static void write_name(char *name, size_t size, size_t at, unsigned number)
{
    char digits[8];

    memset(name, '0', size);
    memcpy(name, "user:", size < 5 ? size : 5);
    snprintf(digits, sizeof digits, "%06u", number);
    memcpy(name + at, digits, 6);
}

/* The most names that fall to one of PLACES, by the bits of their hashes from `shift` on. */
static unsigned most_at_one_place(size_t size, size_t at, unsigned shift)
{
    static unsigned char counts[PLACES];
    unsigned most = 0;
    char name[512];

    memset(counts, 0, sizeof counts);
    for (unsigned i = 0; i < NAMES; i++) {
        write_name(name, size, at, i);
        unsigned char *count = &counts[(dibs__hash(name, size) >> shift) % PLACES];
        if (*count < UINT8_MAX)
            (*count)++;
        most = *count > most ? *count : most;
    }
    return most;
}

/* Of 10,000 balls in 32,768 bins the fullest has five or six; ten would come once in ten million times. */
TEST(similar_names_have_different_hashes)
{
    static const size_t sizes[] = {6, 7, 8, 9, 11, 12, 15, 16, 17, 24, 31, 64, 100, 512};

    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (size_t at = 0; at + 6 <= sizes[s]; at += at < 32 ? 1 : 29)
            for (unsigned shift = 0; shift <= 16; shift += 16) { /* the places of a table, and of a shard's */
                unsigned most = most_at_one_place(sizes[s], at, shift);
                assert_that(most < 10, "of names of %zu bytes that differ from byte %zu on, %u fall to one place",
                            sizes[s], at, most);
            }
}

TEST(every_bit_of_a_name_counts)
{
    char name[80], other[80];

    for (size_t i = 0; i < sizeof name; i++)
        name[i] = (char)(i * 37 + 11);
    for (size_t size = 1; size <= sizeof name; size++)
        for (size_t bit = 0; bit < size * 8; bit++) {
            memcpy(other, name, sizeof other);
            other[bit / 8] = (char)(other[bit / 8] ^ (1 << bit % 8));
            assert_true(dibs__hash(name, size) != dibs__hash(other, size));
        }
}

TEST(the_size_of_a_name_counts)
{
    static const char zeros[64];

    for (size_t size = 0; size < sizeof zeros; size++)
        for (size_t other = 0; other < size; other++)
            assert_true(dibs__hash(zeros, size) != dibs__hash(zeros, other));
}

/* In memory that ends with the bytes, so that AddressSanitizer and valgrind notice what is read behind them. */
TEST(equal_bytes_compare_equal)
{
    for (size_t size = 0; size <= 80; size++) {
        char *one = malloc(size + !size), *other = malloc(size + !size);
        assert_true(one && other);
        memset(one, 'x', size);
        memset(other, 'x', size);
        assert_true(dibs__same_bytes(one, other, size));
        dibs__hash(one, size);
        for (size_t i = 0; i < size; i++) {
            other[i] = 'y';
            assert_false(dibs__same_bytes(one, other, size));
            other[i] = 'x';
        }
        free(one);
        free(other);
    }
}

TESTS(NULL, NULL)
