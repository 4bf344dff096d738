#include "cli/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/text.h"

static bool begun; /* the open object or array is not empty */
static int depth;  /* how many objects and arrays are open */

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD in UTF-8 */

/*
 * The size of the UTF-8 character at the start of text, and its Unicode number; 0: there is none. Overlong forms,
 * surrogates and numbers above U+10FFFF are no characters.
 */
static size_t decode(const char *text, uint32_t *number)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000}; /* by the size */
    unsigned char first = (unsigned char)*text;
    size_t size = first < 0x80 ? 1 : first >> 5 == 0x06 ? 2 : first >> 4 == 0x0e ? 3 : first >> 3 == 0x1e ? 4 : 0;

    *number = size > 1 ? first & (0x7fu >> size) : first;
    for (size_t i = 1; i < size; i++) {
        if (((unsigned char)text[i] & 0xc0) != 0x80)
            return 0;
        *number = *number << 6 | ((unsigned char)text[i] & 0x3f);
    }
    bool is_surrogate = *number >= 0xd800 && *number <= 0xdfff;
    return *number < least[size] || *number > 0x10ffff || is_surrogate ? 0 : size;
}

static bool is_utf8(const char *text)
{
    uint32_t number;
    size_t size = 1;

    for (; *text && size; text += size)
        size = decode(text, &number);
    return size != 0;
}

/*
 * Writes the character at c, and returns how many bytes it has. Escapes what drives a terminal, such as the controls C0
 * and C1, because the document may be printed at one.
 */
static size_t put_character(const char *c)
{
    uint32_t number;
    size_t size = decode(c, &number);

    if (size == 0)
        fputs(REPLACEMENT, stdout);
    else if (*c == '"' || *c == '\\')
        printf("\\%c", *c);
    else if (number >= 0x20 && (number < 0x7f || number >= 0xa0) && !cli_misleads(number))
        fwrite(c, 1, size, stdout);
    else if (number < 0x10000)
        printf("\\u%04" PRIx32, number);
    else
        printf("\\u%04" PRIx32 "\\u%04" PRIx32, 0xd7c0 + (number >> 10), 0xdc00 + (number & 0x3ff));
    return size ? size : 1;
}

static void put_text(const char *text)
{
    putchar('"');
    while (*text)
        text += put_character(text);
    putchar('"');
}

static void begin_value(const char *key)
{
    if (begun)
        putchar(',');
    begun = true;
    if (!key)
        return;
    put_text(key);
    putchar(':');
}

/* Begins a value; writes null, and returns false, if the value is not known. */
static bool begin_known(const char *key, bool known)
{
    begin_value(key);
    if (!known)
        fputs("null", stdout);
    return known;
}

void cli_json_open(const char *key, char bracket)
{
    begin_value(key);
    putchar(bracket);
    begun = false;
    depth++;
}

void cli_json_close(char bracket)
{
    putchar(bracket);
    begun = true;
    if (--depth == 0)
        putchar('\n');
}

void cli_json_string(const char *key, const char *text)
{
    if (begin_known(key, text))
        put_text(text);
}

void cli_json_int(const char *key, int64_t number)
{
    if (begin_known(key, number >= 0))
        printf("%" PRId64, number);
}

/* Not with printf's %f, whose decimal point depends on the locale. */
void cli_json_us(const char *key, int64_t ns)
{
    if (begin_known(key, ns >= 0))
        printf("%" PRId64 ".%03d", ns / 1000, (int)(ns % 1000));
}

void cli_json_bool(const char *key, bool truth)
{
    begin_value(key);
    fputs(truth ? "true" : "false", stdout);
}

void cli_json_fence(const char *key, uint64_t fence)
{
    if (begin_known(key, fence > 0))
        printf("\"%" PRIu64 "\"", fence);
}

void cli_json_name(const char *name)
{
    cli_json_string("name", name);
    if (is_utf8(name))
        return;
    begin_value("name_hex");
    putchar('"');
    for (const char *c = name; *c; c++)
        printf("%02x", (unsigned char)*c);
    putchar('"');
}
