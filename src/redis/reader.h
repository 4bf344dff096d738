/*
 * hiredis' reader of replies, with two changes: an array that claims more
 * elements than any that is asked for is refused, and the memory of integers
 * and short arrays, which make up nearly all replies, is used again.
 */
#ifndef DIBS_REDIS_READER_H
#define DIBS_REDIS_READER_H

#include <hiredis/hiredis.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/error.h"

struct dibs__reply_block;

/* Blocks of replies that are over, of all links to a server. All zero: empty. */
struct dibs__reply_pool {
    _Atomic(struct dibs__reply_block *) returned; /* atomic */
};

void dibs__reply_pool_empty(struct dibs__reply_pool *pool); /* frees the blocks; no reply is in use any more */

/* One link's, and used by one thread at a time: the one that receives. */
struct dibs__reader {
    redisReader *native;
    bool too_large; /* a reply claims more elements than any that is asked for */
    struct dibs__reply_pool *pool;
    struct dibs__reply_block *spare; /* taken out of the pool */
};

/*
 * Whether the hiredis that is there while the program runs is of the kind that
 * the library was compiled with. hiredis' symbols have no versions: where the
 * program has another hiredis, its functions may be called here, and the fields
 * of its readers are elsewhere. DIBS_OK, DIBS_INVALID or DIBS_NO_MEMORY.
 */
dibs_status dibs__reader_check(struct dibs__error *error);

/* Requires that dibs__reader_check was DIBS_OK. The pool outlives the reader and its replies. False: no memory. */
bool dibs__reader_init(struct dibs__reader *reader, struct dibs__reply_pool *pool);
void dibs__reader_end(struct dibs__reader *reader); /* all zero is fine */

/* Frees a reply that such a reader made; for any thread. Instead of freeReplyObject, which does not know of the pool.
 */
void dibs__reply_free(redisReply *reply);

#endif
