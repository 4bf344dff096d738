/*
 * The extension of one lease: from the call that asks for it to the store's answer. A state machine without a thread
 * or mutex of its own: the renewals' mutex (renewal.c) guards all of it.
 *
 *     from            event                                        to
 *     NONE, DONE      a call asks for an extension                 ASKED
 *     ASKED           the request is about to be sent              SENT
 *     ASKED           the call stops waiting                       NONE
 *     SENT            the call stops waiting                       LEFT
 *     SENT            answered                                     DONE
 *     SENT            not answered, or done but not sure to last   ASKED
 *     LEFT            answered                                     DONE
 *     LEFT            not answered                                 NONE
 *     ASKED, SENT,    the lease is not kept alive any more         DONE, with DIBS_LOST
 *     LEFT
 */
#ifndef DIBS_CORE_EXTENSION_H
#define DIBS_CORE_EXTENSION_H

#include <stdbool.h>
#include <stdint.h>

#include "store/store.h"

enum dibs__extension_state {
    DIBS__EXTENSION_NONE,
    DIBS__EXTENSION_ASKED, /* the next renewal of the lease will be the extension */
    DIBS__EXTENSION_SENT,  /* the request is on its way, and its call waits for the answer */
    DIBS__EXTENSION_LEFT,  /* the request is on its way, and its call no longer waits */
    DIBS__EXTENSION_DONE   /* `status` is ready for the call */
};

struct dibs__extension {
    enum dibs__extension_state state; /* all zero: NONE */
    uint32_t lease_ms;                /* the length that the call asked for */
    dibs_status status;               /* only in DONE */
};

/* What the store said of an extension. */
enum dibs__extension_answer {
    DIBS__EXTENSION_UNANSWERED, /* it is not known whether the extension was done */
    DIBS__EXTENSION_UNSURE,     /* done, but an older extension that may still arrive would undo it */
    DIBS__EXTENSION_ANSWERED    /* done or refused, as the status says */
};

/* Whether neither the store nor a loss has ended the extension yet. */
static inline bool dibs__extension_pends(const struct dibs__extension *extension)
{
    return extension->state != DIBS__EXTENSION_NONE && extension->state != DIBS__EXTENSION_DONE;
}

/* No extension may be pending. */
void dibs__extension_ask(struct dibs__extension *extension, uint32_t lease_ms);

/* The extension must have been asked for. */
void dibs__extension_send(struct dibs__extension *extension);

/*
 * True: the extension pends no longer, and the caller must wake the call that waits for its end: its own call, or the
 * next one. One that was not sent stays as it is.
 */
bool dibs__extension_answer(struct dibs__extension *extension, enum dibs__extension_answer answer, dibs_status status);

/* Its call stops waiting. True: the request was not sent and will not be. */
bool dibs__extension_leave(struct dibs__extension *extension);

/* The lease is not kept alive any more. True: an extension pended, and the caller must wake its waiting call. */
bool dibs__extension_lose(struct dibs__extension *extension);

#endif
