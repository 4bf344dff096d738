#include "cli/json.h"

#include <inttypes.h>
#include <string.h>

#include "cli/text.h"

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD in UTF-8 */

static bool continues(unsigned char c)
{
    return (c & 0xc0) == 0x80;
}

/*
 * The size of the UTF-8 character at the start of text; 0: there is none. Overlong forms, surrogates and numbers above
 * U+10FFFF are no characters.
 */
static size_t utf8_size(const unsigned char *text)
{
    if (text[0] < 0x80)
        return 1;
    if (text[0] < 0xc2 || text[0] > 0xf4 || !continues(text[1]))
        return 0;
    if (text[0] < 0xe0)
        return 2;
    if (text[0] < 0xf0) {
        bool misfit = (text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f);
        return !misfit && continues(text[2]) ? 3 : 0;
    }
    bool misfit = (text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] > 0x8f);
    return !misfit && continues(text[2]) && continues(text[3]) ? 4 : 0;
}

static bool is_utf8(const char *text)
{
    size_t size = 1;

    for (; *text && size; text += size)
        size = utf8_size((const unsigned char *)text);
    return size != 0;
}

/* The Unicode number of the character at c, which has size bytes. */
static uint32_t decode(const char *c, size_t size)
{
    uint32_t number = size == 1 ? (unsigned char)*c : (unsigned char)*c & (0x7fu >> size);

    for (size_t i = 1; i < size; i++)
        number = number << 6 | ((unsigned char)c[i] & 0x3f);
    return number;
}

/*
 * Escapes what drives a terminal, such as the controls C0 and C1, because the document may be printed at one. size 0: c
 * is not part of a character.
 */
static void put_character(FILE *out, const char *c, size_t size)
{
    uint32_t number = decode(c, size);

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
}

static void put_text(FILE *out, const char *text)
{
    fputc('"', out);
    while (*text) {
        size_t size = utf8_size((const unsigned char *)text);
        put_character(out, text, size);
        text += size ? size : 1;
    }
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

void cli_json_null(struct cli_json *json, const char *key)
{
    cli_json_string(json, key, NULL);
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
