#include "store/findings.h"

#include <stdio.h>

bool dibs__found_as(const struct dibs__examination *examination, const char *server, const char *subject,
                    dibs_verdict verdict, const char *remedy, const char *format, va_list arguments)
{
    char text[DIBS__FINDING_MAX];
    const dibs_finding finding = {
        .server = server, .subject = subject, .verdict = verdict, .text = text, .remedy = remedy};

    vsnprintf(text, sizeof text, format, arguments);
    return examination->found(examination->context, &finding);
}

bool dibs__found(const struct dibs__examination *examination, const char *server, const char *subject,
                 dibs_verdict verdict, const char *remedy, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    bool good = dibs__found_as(examination, server, subject, verdict, remedy, format, arguments);
    va_end(arguments);
    return good;
}

dibs_status dibs__findings_no_memory(struct dibs__error *error)
{
    return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a finding");
}
