/*
 * Test builds end the process where a completion would run while its thread has borrowed something, or inside another
 * completion.
 */
#include "base/borrow.h"

#include "support/child.h"
#include "support/test.h"

TEST(borrowing_and_completing_may_alternate)
{
    for (int i = 0; i < 2; i++) {
        dibs__borrow_begin();
        dibs__borrow_begin();
        dibs__borrow_end();
        dibs__borrow_end();
        dibs__completion_begin();
        dibs__borrow_begin(); /* a completion sends something */
        dibs__borrow_end();
        dibs__completion_end();
    }
}

#ifdef DIBS_CHECKED
static void complete_while_something_is_borrowed(void)
{
    dibs__borrow_begin();
    dibs__borrow_begin();
    dibs__borrow_end();
    dibs__completion_begin();
}

static void complete_within_a_completion(void)
{
    dibs__completion_begin();
    dibs__completion_begin();
}

static void end_a_completion_that_keeps_something(void)
{
    dibs__completion_begin();
    dibs__borrow_begin();
    dibs__completion_end();
}

static void give_back_what_was_not_borrowed(void)
{
    dibs__borrow_end();
}

TEST(wrong_use_ends_the_process)
{
    child_aborts(complete_while_something_is_borrowed);
    child_aborts(complete_within_a_completion);
    child_aborts(end_a_completion_that_keeps_something);
    child_aborts(give_back_what_was_not_borrowed);
}
#endif

TESTS(NULL, NULL)
