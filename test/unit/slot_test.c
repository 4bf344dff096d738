/* The slots of a cluster: those of keys, and a tag for each. */
#include <ctype.h>

#include "redis/slot.h"
#include "support/test.h"

static unsigned slot_of(const char *key)
{
    return dibs__slot_of(key, strlen(key));
}

/* The slots are what redis-server answers to CLUSTER KEYSLOT. */
TEST(keys_have_the_slots_that_redis_gives_them)
{
    static const struct {
        const char *key;
        unsigned slot;
    } cases[] = {
        {"123456789", 0x31c3},
        {"foo", 12182},
        {"{foo}bar", 12182},
        {"lock:{foo}", 12182},
        {"a{foo}{bar}", 12182},
        {"{}foo", 9500},
        {"", 0},
        {"lock:x", 5259},
        {"dibs:queue:{lock:x}", 5259},
        {"\xff\x80\x01", 1242},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        print_message("# %s\n", cases[i].key);
        assert_int_equal(slot_of(cases[i].key), cases[i].slot);
    }
    assert_int_equal(slot_of("{foo"), slot_of("a{{foo}"));
    assert_int_equal(dibs__slot_of("{foo}bar", 4), slot_of("{foo"));
}

TEST(each_slot_has_a_tag)
{
    for (unsigned slot = 0; slot < DIBS__SLOTS; slot++) {
        char channel[32] = "dibs:x:{0123}";
        dibs__slot_tag(channel + 8, slot);
        for (int i = 0; i < DIBS__SLOT_TAG; i++)
            assert_true(isgraph((unsigned char)channel[8 + i]) && !strchr("{}", channel[8 + i]));
        assert_int_equal(slot_of(channel), slot);
    }
}

TESTS(NULL, NULL)
