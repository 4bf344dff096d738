#include "cli/text.h"

#include <string.h>
#include <time.h>
#include <wchar.h>
#include <wctype.h>

/* -------------------------------------------------------------------- shown */

static bool is_between(uint32_t c, uint32_t first, uint32_t last)
{
    return c >= first && c <= last;
}

bool cli_misleads(uint32_t c)
{
    return is_between(c, 0x200b, 0x200f) || is_between(c, 0x2028, 0x202e) || is_between(c, 0x2060, 0x206f) ||
           is_between(c, 0xfff9, 0xfffb) || is_between(c, 0xe0000, 0xe007f) || c == 0x061c || c == 0x180e ||
           c == 0xfeff;
}

/* The size of the character at the start of text, if it may be shown as it is; 0: it may not. */
static size_t printing(const char *text, size_t left, bool first)
{
    mbstate_t state = {0};
    wchar_t c;
    size_t size = mbrtowc(&c, text, left, &state);

    if (size == 0 || size > left || !iswprint((wint_t)c) || cli_misleads((uint32_t)c))
        return 0;
    return wcwidth(c) > 0 || (wcwidth(c) == 0 && !first) ? size : 0;
}

static const char *show(char *out, size_t size, const char *text, bool in_message)
{
    size_t used = 0;

    for (size_t left = strlen(text), step; left > 0; text += step, left -= step) {
        char hex[5];
        size_t plain = *text == '\\' && !in_message ? 0 : printing(text, left, used == 0);
        const char *piece = plain ? text : hex;
        step = plain ? plain : 1;
        if (!plain)
            snprintf(hex, sizeof hex, *text == '\\' ? "\\\\" : "\\x%02x", (unsigned char)*text);
        size_t more = plain ? plain : strlen(hex);
        if (used + more >= size)
            break;
        memcpy(out + used, piece, more);
        used += more;
    }
    out[used] = '\0';
    return out;
}

const char *cli_show(char *out, size_t size, const char *text)
{
    return show(out, size, text, false);
}

const char *cli_show_message(char *out, size_t size, const char *text)
{
    return show(out, size, text, true);
}

/* The size of the first character of a shown text, and its columns. */
static size_t step_over(const char *shown, size_t *columns)
{
    mbstate_t state = {0};
    wchar_t c = 0;
    size_t size = mbrtowc(&c, shown, strlen(shown), &state);
    int width = size > strlen(shown) ? 1 : wcwidth(c);

    *columns = width < 0 ? 1 : (size_t)width;
    return size == 0 || size > strlen(shown) ? 1 : size;
}

size_t cli_width(const char *shown)
{
    size_t width = 0, columns;

    for (; *shown; width += columns)
        shown += step_over(shown, &columns);
    return width;
}

/* If anything was cut off, the last column is a +. */
static void cut(char *shown, size_t columns)
{
    size_t width = 0, more;

    if (cli_width(shown) <= columns)
        return;
    while (*shown) {
        size_t size = step_over(shown, &more);
        if (width + more + 1 > columns)
            break;
        width += more;
        shown += size;
    }
    if (columns > 0)
        *shown++ = '+';
    *shown = '\0';
}

void cli_print_cell(FILE *out, char *shown, size_t columns, bool right)
{
    cut(shown, columns);
    size_t width = cli_width(shown);
    int blanks = width < columns ? (int)(columns - width) : 0;

    fprintf(out, "%*s%s%*s", right ? blanks : 0, "", shown, right ? 0 : blanks, "");
}

/* -------------------------------------------------------------------- times */

const char *cli_duration(char out[CLI_TIME_MAX], int64_t ms)
{
    long long s = ms / 1000;

    if (ms < 0)
        snprintf(out, CLI_TIME_MAX, "-");
    else if (s < 60)
        snprintf(out, CLI_TIME_MAX, "%lld.%llds", s, (long long)(ms % 1000 / 100));
    else if (s < 3600)
        snprintf(out, CLI_TIME_MAX, "%lldm%02llds", s / 60, s % 60);
    else if (s < 86400)
        snprintf(out, CLI_TIME_MAX, "%lldh%02lldm", s / 3600, s / 60 % 60);
    else
        snprintf(out, CLI_TIME_MAX, "%lldd%02lldh", s / 86400, s / 3600 % 24);
    return out;
}

/* The time of day that was ms_ago milliseconds ago: returns the seconds, and sets *rest to the milliseconds. */
static time_t moment(int64_t ms_ago, int *rest)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    int64_t ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 - ms_ago;
    *rest = (int)(ms % 1000);
    return (time_t)(ms / 1000);
}

const char *cli_time_ago(char out[CLI_TIME_MAX], int64_t ms)
{
    int rest;
    time_t when = moment(ms, &rest);
    struct tm parts;

    if (!localtime_r(&when, &parts) || !strftime(out, CLI_TIME_MAX, "%Y-%m-%d %H:%M:%S", &parts))
        snprintf(out, CLI_TIME_MAX, "-");
    return out;
}

const char *cli_utc_ago(char out[CLI_TIME_MAX], int64_t ms)
{
    int rest;
    time_t when = moment(ms, &rest);
    struct tm parts;
    char seconds[CLI_TIME_MAX - 8] = "1970-01-01T00:00:00";

    if (gmtime_r(&when, &parts))
        strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(out, CLI_TIME_MAX, "%s.%03dZ", seconds, rest);
    return out;
}
