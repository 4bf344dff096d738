/*
 * hiredis' reader of replies, with one change: an array that claims more elements
 * than any that is asked for is refused. hiredis would allocate them all at once.
 */
#ifndef DIBS_REDIS_READER_H
#define DIBS_REDIS_READER_H

#include <hiredis/hiredis.h>
#include <stdbool.h>

#include "base/error.h"

/* One link's, and used by one thread at a time: the one that receives. */
struct dibs__reader {
    redisReader *native;
    bool too_large; /* a reply claims more elements than any that is asked for */
};

/*
 * Whether the hiredis that is there while the program runs is of the kind that
 * the library was compiled with. hiredis' symbols have no versions: where the
 * program has another hiredis, its functions may be called here, and the fields
 * of its readers are elsewhere. DIBS_OK, DIBS_INVALID or DIBS_NO_MEMORY.
 */
dibs_status dibs__reader_check(struct dibs__error *error);

/* Requires that dibs__reader_check was DIBS_OK. False: no memory. */
bool dibs__reader_init(struct dibs__reader *reader);
void dibs__reader_end(struct dibs__reader *reader); /* all zero is fine */

#endif
