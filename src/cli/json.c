#include "cli/json.h"

#include <inttypes.h>
#include <string.h>

#include "cli/text.h"

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
static size_t put_character(FILE *out, const char *c)
{
    uint32_t number;
    size_t size = decode(c, &number);

    if (size == 0)
        fputs(REPLACEMENT, out);
    else if (*c == '"' || *c == '\\')
        fprintf(out, "\\%c", *c);
    else if (number >= 0x20 && (number < 0x7f || number >= 0xa0) && !cli_misleads(number))
        fwrite(c, 1, size, out);
    else if (number < 0x10000)
        fprintf(out, "\\u%04" PRIx32, number);
    else
        fprintf(out, "\\u%04" PRIx32 "\\u%04" PRIx32, 0xd7c0 + (number >> 10), 0xdc00 + (number & 0x3ff));
    return size ? size : 1;
}

static void put_text(FILE *out, const char *text)
{
    fputc('"', out);
    while (*text)
        text += put_character(out, text);
    fputc('"', out);
}

static void begin_value(struct cli_json *json, const char *key)
{
    if (json->begun)
        fputc(',', json->out);
    json->begun = true;
    if (!key)
        return;
    put_text(json->out, key);
    fputc(':', json->out);
}

void cli_json_open(struct cli_json *json, const char *key, char bracket)
{
    begin_value(json, key);
    fputc(bracket, json->out);
    json->begun = false;
}

void cli_json_close(struct cli_json *json, char bracket)
{
    fputc(bracket, json->out);
    json->begun = true;
}

void cli_json_string(struct cli_json *json, const char *key, const char *text)
{
    begin_value(json, key);
    if (text)
        put_text(json->out, text);
    else
        fputs("null", json->out);
}

void cli_json_int(struct cli_json *json, const char *key, int64_t number)
{
    begin_value(json, key);
    fprintf(json->out, "%" PRId64, number);
}

void cli_json_double(struct cli_json *json, const char *key, double number)
{
    begin_value(json, key);
    /* Not with printf's %f, whose decimal point depends on the locale. */
    int64_t thousandths = (int64_t)(number * 1000 + 0.5);
    fprintf(json->out, "%" PRId64 ".%03d", thousandths / 1000, (int)(thousandths % 1000));
}

void cli_json_bool(struct cli_json *json, const char *key, bool truth)
{
    begin_value(json, key);
    fputs(truth ? "true" : "false", json->out);
}

void cli_json_fence(struct cli_json *json, const char *key, uint64_t fence)
{
    begin_value(json, key);
    fprintf(json->out, "\"%" PRIu64 "\"", fence);
}

void cli_json_name(struct cli_json *json, const char *name)
{
    cli_json_string(json, "name", name);
    if (is_utf8(name))
        return;
    begin_value(json, "name_hex");
    fputc('"', json->out);
    for (const char *c = name; *c; c++)
        fprintf(json->out, "%02x", (unsigned char)*c);
    fputc('"', json->out);
}
