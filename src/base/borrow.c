#include "base/borrow.h"

#ifdef DIBS_CHECKED
#include <stdbool.h>

#include "base/require.h"

static _Thread_local unsigned borrowed;
static _Thread_local bool completing;

void dibs__borrow_begin(void)
{
    borrowed++;
}

void dibs__borrow_end(void)
{
    DIBS__REQUIRE(borrowed > 0);
    borrowed--;
}

void dibs__completion_begin(void)
{
    DIBS__REQUIRE(borrowed == 0 && !completing);
    completing = true;
}

void dibs__completion_end(void)
{
    DIBS__REQUIRE(borrowed == 0 && completing);
    completing = false;
}
#endif
