/* What a reply of the server means as a status. */
#ifndef DIBS_REDIS_REPLY_H
#define DIBS_REDIS_REPLY_H

#include <hiredis/hiredis.h>

#include "base/error.h"

/*
 * The status of an error reply's text: DIBS_DENIED, DIBS_UNAVAILABLE (waiting
 * may mend it: LOADING, READONLY, ...) or DIBS_STORE_ERROR.
 */
dibs_status dibs__reply_status(const char *text);

/* Whether reply is the error whose code (its first word) is this one. */
bool dibs__reply_is_error(const redisReply *reply, const char *code);

/* Whether it was refused, or a part of it, because the server is a replica. */
bool dibs__reply_tells_of_a_replica(const redisReply *reply);

/* Fills error from an error reply of the server that `shown` names; doing: what was asked of it, "lock \"a\"". */
dibs_status dibs__reply_error(struct dibs__error *error, const redisReply *reply, const char *shown, const char *doing);

/*
 * The same for what the server answered to a command that may carry a secret,
 * or to one sent together with such: a server may repeat what it was sent. So
 * nothing of the answer is quoted but its code, where that is a known one.
 * command: ours, "AUTH".
 */
dibs_status dibs__reply_refusal(struct dibs__error *error, const redisReply *reply, const char *shown,
                                const char *command);

/*
 * The integer at place i of an array reply; false where there is none. What a
 * script answers is exact up to 2^53, as Lua's numbers are; what is beyond
 * becomes that, so that sums with times and leases can't overflow.
 */
#define DIBS__REPLY_MOST (INT64_C(1) << 53)
bool dibs__reply_integer(const redisReply *reply, size_t i, int64_t *out);

#endif
