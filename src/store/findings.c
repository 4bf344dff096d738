#include "store/findings.h"

#include <stdio.h>

void dibs__found_as(struct dibs__examination *examination, const char *server, const char *subject,
                    dibs_verdict verdict, const char *remedy, const char *format, va_list arguments)
{
    char text[DIBS__FINDING_MAX];
    const dibs_finding finding = {
        .server = server, .subject = subject, .verdict = verdict, .text = text, .remedy = remedy};

    vsnprintf(text, sizeof text, format, arguments);
    if (!examination->found(examination->context, &finding))
        examination->no_memory = true;
}

void dibs__found(struct dibs__examination *examination, const char *server, const char *subject, dibs_verdict verdict,
                 const char *remedy, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    dibs__found_as(examination, server, subject, verdict, remedy, format, arguments);
    va_end(arguments);
}
