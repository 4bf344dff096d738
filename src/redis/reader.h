/*
 * hiredis' reader of replies, with one change: it refuses an array that claims more elements than any that is asked
 * for, because hiredis would allocate them all at once.
 */
#ifndef DIBS_REDIS_READER_H
#define DIBS_REDIS_READER_H

#include <hiredis/hiredis.h>
#include <stdbool.h>

#include "base/error.h"

/* Belongs to one link, and is used by one thread at a time: the one that receives. */
struct dibs__reader {
    redisReader *native;
    bool too_large; /* a reply claims more elements than any that is asked for */
};

/*
 * Whether the hiredis in the running program is of the kind that the library was compiled with. hiredis' symbols have
 * no versions: if the program has another hiredis, the functions of that one may be called here, and the fields of its
 * readers are at other places. DIBS_OK, DIBS_INVALID or DIBS_NO_MEMORY.
 */
dibs_status dibs__reader_check(struct dibs__error *error);

/* Requires that dibs__reader_check returned DIBS_OK. False: no memory. */
bool dibs__reader_init(struct dibs__reader *reader);
void dibs__reader_end(struct dibs__reader *reader); /* all zero is fine */

#endif
