#include "core/extension.h"

#include "base/require.h"

void dibs__extension_ask(struct dibs__extension *extension, uint32_t lease_ms)
{
    DIBS__REQUIRE(!dibs__extension_pends(extension));
    DIBS__REQUIRE(lease_ms > 0);
    *extension = (struct dibs__extension){.state = DIBS__EXTENSION_ASKED, .lease_ms = lease_ms};
}

void dibs__extension_send(struct dibs__extension *extension)
{
    DIBS__REQUIRE(extension->state == DIBS__EXTENSION_ASKED);
    extension->state = DIBS__EXTENSION_SENT;
}

bool dibs__extension_answer(struct dibs__extension *extension, enum dibs__extension_answer answer, dibs_status status)
{
    bool left = extension->state == DIBS__EXTENSION_LEFT;

    if (extension->state != DIBS__EXTENSION_SENT && !left)
        return false;
    if (answer == DIBS__EXTENSION_UNANSWERED) {
        extension->state = left ? DIBS__EXTENSION_NONE : DIBS__EXTENSION_ASKED;
        return left;
    }
    if (answer == DIBS__EXTENSION_UNSURE && !left) {
        extension->state = DIBS__EXTENSION_ASKED;
        return false;
    }
    extension->state = DIBS__EXTENSION_DONE;
    extension->status = status;
    return true;
}

bool dibs__extension_leave(struct dibs__extension *extension)
{
    bool unsent = extension->state == DIBS__EXTENSION_ASKED;

    if (unsent)
        extension->state = DIBS__EXTENSION_NONE;
    else if (extension->state == DIBS__EXTENSION_SENT)
        extension->state = DIBS__EXTENSION_LEFT;
    return unsent;
}

bool dibs__extension_lose(struct dibs__extension *extension)
{
    if (!dibs__extension_pends(extension))
        return false;
    extension->state = DIBS__EXTENSION_DONE;
    extension->status = DIBS_LOST;
    return true;
}
