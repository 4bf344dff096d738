/* The keys of a lock, and the slots of a cluster in which they lie. The slot is computed without the library. */
#include "store/redis/codec.h"
#include "support/test.h"

/* CRC16 (XMODEM), as the specification of Redis Cluster says. */
static unsigned crc16(const char *bytes, size_t size)
{
    unsigned crc = 0;

    for (size_t i = 0; i < size; i++) {
        crc ^= (unsigned)(unsigned char)bytes[i] << 8;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
        crc &= 0xffff;
    }
    return crc;
}

/* Of the bytes between the first { and the first } behind it, where there are any; otherwise of all bytes. */
static unsigned slot_of(const char *key, size_t size)
{
    size_t open = 0, close;

    while (open < size && key[open] != '{')
        open++;
    for (close = open + 1; close < size && key[close] != '}';)
        close++;
    if (close < size && close > open + 1)
        return crc16(key + open + 1, close - open - 1) % 16384;
    return crc16(key, size) % 16384;
}

static bool share_a_slot(const char *prefix, const char *name)
{
    struct dibs__key key;

    dibs__key_of(&key, DIBS__KEY_LOCK, prefix, name);
    unsigned slot = slot_of(key.bytes, key.size);
    for (int kind = DIBS__KEY_LOCK + 1; kind < DIBS__KEY_KINDS; kind++) {
        dibs__key_of(&key, (enum dibs__key_kind)kind, prefix, name);
        if (slot_of(key.bytes, key.size) != slot)
            return false;
    }
    return true;
}

static bool splits(const char *prefix, const char *name)
{
    struct dibs__key key;

    dibs__key_of(&key, DIBS__KEY_LOCK, prefix, name);
    return dibs__key_splits(key.bytes);
}

TEST(the_slot_function_is_that_of_redis)
{
    assert_int_equal(crc16("123456789", 9), 0x31c3);
    assert_int_equal(slot_of("foo", 3), 12182);
    assert_int_equal(slot_of("{foo}bar", 8), 12182);
    assert_true(slot_of("{}foo", 5) != 12182);
}

TEST(documented_names_have_documented_keys)
{
    static const struct {
        const char *name;
        bool splits;
    } cases[] = {
        {"a", false},   {"a{b", false},   {"{a}b", false}, {"x{a}y", false}, {"a}b{c}", false}, {"{a}}", false},
        {"a}b", true},  {"{}x", true},    {"}", true},     {"{}", true},     {"{}{a}", true},   {"a}b{c", true},
        {"{{}", false}, {"{{a}}", false}, {"}{", true},    {"x}", true},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_that(splits("lock:", cases[i].name) == cases[i].splits, "%s", cases[i].name);
        assert_that(share_a_slot("lock:", cases[i].name) == !cases[i].splits, "%s", cases[i].name);
    }
}

/* A prefix may contain the tag, or make that of the name ineffective. */
TEST(the_prefix_is_part_of_the_key)
{
    assert_false(splits("{app}:", "a}b"));
    assert_true(share_a_slot("{app}:", "a}b"));
    assert_true(splits("x}:", "a"));
    assert_true(splits("{}:", "{a}b"));
    assert_false(splits("", "{a}b"));
    assert_true(splits("", "{}x"));
}

/* The probe lies with the lock that gave it its name, and is no key that a script touches. */
TEST(the_probe_has_a_key_of_its_own)
{
    static const struct {
        const char *prefix, *name, *key;
    } cases[] = {
        {"lock:", "a", "dibs:probe:{lock:a}"}, {"lock:", "{a}b", "dibs:probet:lock:{a}b"}, {"", "x", "dibs:probe:{x}"}};
    struct dibs__key key, other;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dibs__key_of(&key, DIBS__KEY_PROBE, cases[i].prefix, cases[i].name);
        assert_string_equal(key.bytes, cases[i].key);
        assert_int_equal(key.size, strlen(cases[i].key));
        for (int kind = 0; kind < DIBS__KEYS; kind++) {
            dibs__key_of(&other, (enum dibs__key_kind)kind, cases[i].prefix, cases[i].name);
            assert_string_not_equal(key.bytes, other.bytes);
        }
    }
}

static const char *some_text(char out[16])
{
    static const char letters[] = "{}{}ab:";
    int size = rand() % 9;

    for (int i = 0; i < size; i++)
        out[i] = letters[rand() % 7];
    out[size] = '\0';
    return out;
}

/* Two keys may have the same slot by chance: one pair in 16,384. */
TEST(names_whose_keys_are_in_two_slots_are_recognised)
{
    enum { NAMES = 100000 };
    unsigned apart = 0, by_chance = 0;

    srand(8);
    for (int i = 0; i < NAMES; i++) {
        char prefix[16], name[16];

        some_text(prefix);
        if (!*some_text(name))
            continue;
        bool together = share_a_slot(prefix, name);
        assert_that(together || splits(prefix, name), "\"%s\" \"%s\"", prefix, name);
        apart += !together;
        by_chance += together && splits(prefix, name);
    }
    assert_that(by_chance < NAMES / 1000, "%u of %u", by_chance, NAMES);
    assert_true(apart > NAMES / 10 && apart < NAMES / 10 * 9);
}

TESTS(NULL, NULL)
