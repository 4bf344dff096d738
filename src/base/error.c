#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

static _Thread_local char last_error[DIBS__DETAIL_MAX];

static void write_sentence(char out[DIBS__DETAIL_MAX], const char *format, va_list arguments)
{
    vsnprintf(out, DIBS__DETAIL_MAX, format, arguments);
    dibs__utf8_make_line(out);
}

dibs_status dibs__error_set(struct dibs__error *error, dibs_status status, const char *format, ...)
{
    va_list arguments;

    error->status = status;
    va_start(arguments, format);
    write_sentence(error->detail, format, arguments);
    va_end(arguments);
    return status;
}

dibs_status dibs__fail(dibs_status status, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    write_sentence(last_error, format, arguments);
    va_end(arguments);
    return status;
}

dibs_status dibs__fail_with(const struct dibs__error *error)
{
    if (error->status != DIBS_OK)
        memcpy(last_error, error->detail, sizeof last_error);
    return error->status;
}

const char *dibs_last_error(void)
{
    return last_error;
}

size_t dibs__escape(char *out, size_t size, const char *bytes, size_t length)
{
    size_t used = 0, i;

    for (i = 0; i < length; i++) {
        unsigned char c = (unsigned char)bytes[i];
        bool plain = c >= 0x20 && c < 0x7f && c != '\\';
        if (used + (plain ? 1 : 4) >= size)
            break;
        used += (size_t)snprintf(out + used, size - used, plain ? "%c" : "\\x%02x", c);
    }
    out[used] = '\0';
    return i;
}

const char *dibs__quote(char out[DIBS__QUOTED_MAX], const char *name)
{
    size_t length = strlen(name);

    out[0] = '"';
    size_t shown = dibs__escape(out + 1, DIBS__QUOTED_MAX - 5, name, length < 80 ? length : 80);
    strcat(out, length > shown ? "...\"" : "\"");
    return out;
}
