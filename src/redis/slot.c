#include "redis/slot.h"

#include <stdint.h>
#include <string.h>

#include "base/require.h"

/* CRC16 (XMODEM), half a byte at a time. */
static unsigned crc16(const char *bytes, size_t size)
{
    static const uint16_t halves[16] = {0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5, 0x60c6, 0x70e7,
                                        0x8108, 0x9129, 0xa14a, 0xb16b, 0xc18c, 0xd1ad, 0xe1ce, 0xf1ef};
    unsigned crc = 0;

    for (size_t i = 0; i < size; i++) {
        unsigned byte = (unsigned char)bytes[i];
        crc = (crc << 4 ^ halves[(crc >> 12 ^ byte >> 4) & 15]) & 0xffff;
        crc = (crc << 4 ^ halves[(crc >> 12 ^ byte) & 15]) & 0xffff;
    }
    return crc;
}

/* If there is anything between the first { and the first } behind it, only that counts. */
unsigned dibs__slot_of(const char *key, size_t size)
{
    const char *open = memchr(key, '{', size);
    const char *close = open ? memchr(open + 1, '}', size - (size_t)(open + 1 - key)) : NULL;

    if (close && close > open + 1)
        return crc16(open + 1, (size_t)(close - open - 1)) % DIBS__SLOTS;
    return crc16(key, size) % DIBS__SLOTS;
}

/*
 * A tag is 16 bits, four in each of its bytes, which are @ to O. A CRC is linear: each bit of the slot is flipped by
 * flipping the same bits of the tag, whatever the others are.
 */
void dibs__slot_tag(char out[DIBS__SLOT_TAG], unsigned slot)
{
    enum { OF_ZEROS = 0x3639 }; /* the slot of @@@@ */
    static const uint16_t changes[] = {0x88d4, 0x808a, 0x9007, 0x9efb, 0x19a2, 0x0c93, 0x1184,
                                       0x8eed, 0x1efb, 0x8022, 0x89c4, 0x82aa, 0x9447, 0x967b};
    unsigned tag = 0;

    DIBS__REQUIRE(slot < DIBS__SLOTS);
    for (unsigned bit = 0; bit < sizeof changes / sizeof *changes; bit++)
        if ((slot ^ OF_ZEROS) >> bit & 1)
            tag ^= changes[bit];
    for (unsigned i = 0; i < DIBS__SLOT_TAG; i++)
        out[i] = (char)('@' + (tag >> 4 * i & 15));
}
