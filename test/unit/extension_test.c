/* The states of an extension: exactly the transitions of the table in extension.h. */
#include "core/extension.h"
#include "support/test.h"

enum event { ASK, SEND, UNANSWERED, UNSURE, ANSWERED, LEAVE, LOSE };

static bool apply(struct dibs__extension *extension, enum event event)
{
    switch (event) {
    case ASK:
        dibs__extension_ask(extension, 700);
        return false;
    case SEND:
        dibs__extension_send(extension);
        return false;
    case UNANSWERED:
        return dibs__extension_answer(extension, DIBS__EXTENSION_UNANSWERED, DIBS_UNAVAILABLE);
    case UNSURE:
        return dibs__extension_answer(extension, DIBS__EXTENSION_UNSURE, DIBS_OK);
    case ANSWERED:
        return dibs__extension_answer(extension, DIBS__EXTENSION_ANSWERED, DIBS_DENIED);
    case LEAVE:
        return dibs__extension_leave(extension);
    default:
        return dibs__extension_lose(extension);
    }
}

static const struct row {
    enum dibs__extension_state from;
    enum event event;
    enum dibs__extension_state to;
    bool says; /* what the call returns */
    dibs_status status;
} rows[] = {
    {DIBS__EXTENSION_NONE, ASK, DIBS__EXTENSION_ASKED, false, DIBS_OK},
    {DIBS__EXTENSION_DONE, ASK, DIBS__EXTENSION_ASKED, false, DIBS_OK},
    {DIBS__EXTENSION_ASKED, SEND, DIBS__EXTENSION_SENT, false, DIBS_OK},
    {DIBS__EXTENSION_ASKED, LEAVE, DIBS__EXTENSION_NONE, true, DIBS_OK},
    {DIBS__EXTENSION_SENT, LEAVE, DIBS__EXTENSION_LEFT, false, DIBS_OK},
    {DIBS__EXTENSION_SENT, ANSWERED, DIBS__EXTENSION_DONE, true, DIBS_DENIED},
    {DIBS__EXTENSION_SENT, UNANSWERED, DIBS__EXTENSION_ASKED, false, DIBS_OK},
    {DIBS__EXTENSION_SENT, UNSURE, DIBS__EXTENSION_ASKED, false, DIBS_OK},
    {DIBS__EXTENSION_LEFT, ANSWERED, DIBS__EXTENSION_DONE, true, DIBS_DENIED},
    {DIBS__EXTENSION_LEFT, UNSURE, DIBS__EXTENSION_DONE, true, DIBS_OK},
    {DIBS__EXTENSION_LEFT, UNANSWERED, DIBS__EXTENSION_NONE, true, DIBS_OK},
    {DIBS__EXTENSION_ASKED, LOSE, DIBS__EXTENSION_DONE, true, DIBS_LOST},
    {DIBS__EXTENSION_SENT, LOSE, DIBS__EXTENSION_DONE, true, DIBS_LOST},
    {DIBS__EXTENSION_LEFT, LOSE, DIBS__EXTENSION_DONE, true, DIBS_LOST},
    /* A renewal that was in flight is answered: this does not affect the extension. */
    {DIBS__EXTENSION_NONE, ANSWERED, DIBS__EXTENSION_NONE, false, DIBS_OK},
    {DIBS__EXTENSION_ASKED, ANSWERED, DIBS__EXTENSION_ASKED, false, DIBS_OK},
    {DIBS__EXTENSION_ASKED, UNANSWERED, DIBS__EXTENSION_ASKED, false, DIBS_OK},
    {DIBS__EXTENSION_DONE, ANSWERED, DIBS__EXTENSION_DONE, false, DIBS_OK},
    {DIBS__EXTENSION_NONE, LOSE, DIBS__EXTENSION_NONE, false, DIBS_OK},
    {DIBS__EXTENSION_DONE, LOSE, DIBS__EXTENSION_DONE, false, DIBS_OK},
};

TEST(extension_events_follow_the_state_table)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *row = &rows[i];
        struct dibs__extension extension = {.state = row->from};
        bool says = apply(&extension, row->event);
        assert_that(extension.state == row->to && says == row->says && extension.status == row->status,
                    "row %zu: state %d, says %d, status %d", i, (int)extension.state, says, (int)extension.status);
        bool pends = row->to != DIBS__EXTENSION_NONE && row->to != DIBS__EXTENSION_DONE;
        assert_int_equal(dibs__extension_pends(&extension), pends);
        if (row->event == ASK)
            assert_int_equal(extension.lease_ms, 700);
    }
}

TESTS(NULL, NULL)
