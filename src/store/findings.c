#include "store/findings.h"

#include <stdarg.h>
#include <stdio.h>

void dibs__found(struct dibs__examination *examination, const char *server, const char *subject, dibs_verdict verdict,
                 const char *remedy, const char *format, ...)
{
    char text[DIBS__FINDING_MAX];
    const dibs_finding finding = {
        .server = server, .subject = subject, .verdict = verdict, .text = text, .remedy = remedy};
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!examination->found(examination->context, &finding))
        examination->no_memory = true;
}
