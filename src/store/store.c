/* What all stores share, and what their callers do with any of them. */
#include "store/store.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t dibs__token_limit(const char *token)
{
    const char *mark = strrchr(token, DIBS__TOKEN_SHARED);
    size_t digits = mark ? strspn(mark + 1, "0123456789") : 0;

    return digits > 0 && mark[1 + digits] == '\0' ? strtoll(mark + 1, NULL, 10) : -1;
}

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

/* ------------------------------------------------------------------- waiting */

static bool goes_on(const struct dibs__waiting *waiting)
{
    return dibs__now(waiting->clock) < waiting->until &&
           !(waiting->wait_event && waiting->cancelled && atomic_load(waiting->cancelled));
}

static enum dibs__progress wait_for(struct dibs__store *store, const struct dibs__op *op,
                                    const struct dibs__waiting *waiting, struct dibs__wait_event *wait_event)
{
    enum dibs__progress progress;
    struct dibs__wait wait;

    dibs__wait_init(&wait, wait_event);
    for (;;) {
        dibs__wait_event_reset(wait_event);
        progress = store->ops->progress(store, op, &wait);
        if (progress != DIBS__OP_AWAITED || !goes_on(waiting))
            break;
        dibs__waits_sleep(&wait, 1, wait_event, waiting->clock, waiting->until);
    }
    dibs__wait_end(&wait);
    return progress;
}

enum dibs__awaited dibs__op_await(struct dibs__store *store, const struct dibs__op *op,
                                  const struct dibs__waiting *waiting)
{
    struct dibs__wait_event own;
    enum dibs__progress progress;

    DIBS__REQUIRE(!waiting->watch || waiting->watch->wait_event->tell);
    dibs__wait_event_init(&own);
    if (!waiting->watch && goes_on(waiting))
        progress = wait_for(store, op, waiting, waiting->wait_event ? waiting->wait_event : &own);
    else
        progress = store->ops->progress(store, op, waiting->watch);
    if (progress == DIBS__OP_AWAITED)
        return DIBS__STILL_AWAITED;
    if (waiting->watch)
        dibs__wait_end(waiting->watch);
    return progress == DIBS__OP_OVER || progress == DIBS__OP_IMMEDIATE ? DIBS__HAS_COME : DIBS__NOT_AWAITED;
}
