/* The status that a reply of the server means. */
#ifndef DIBS_REDIS_REPLY_H
#define DIBS_REDIS_REPLY_H

#include <hiredis/hiredis.h>

#include "base/error.h"

/*
 * The status that the text of an error reply means: DIBS_DENIED; DIBS_UNAVAILABLE, which may pass (LOADING, READONLY,
 * ...); or DIBS_STORE_ERROR.
 */
dibs_status dibs__reply_status(const char *text);

/* Whether the reply is an error, for a reason that does not pass by waiting. */
bool dibs__reply_is_final_error(const redisReply *reply);

/* Whether the reply is an error that ended a script, which may have written something before. Or it may seem so. */
bool dibs__reply_is_of_script(const redisReply *reply);

/* Whether the reply is an error with this code, which is the first word of its text. */
bool dibs__reply_is_error(const redisReply *reply, const char *code);

/* Whether the reply refuses that command, given in lower case, to this account or to all. */
bool dibs__reply_forbids(const redisReply *reply, const char *command);

/*
 * Whether the reply is an event of a subscribed channel: an array of the event's name, the channel's name, and an
 * element of that type.
 */
bool dibs__reply_is_event(const redisReply *reply, const char *event, const char *channel, int type);

/* Whether the command, or a part of it, was refused because the server is a replica. */
bool dibs__reply_tells_of_a_replica(const redisReply *reply);

/*
 * Fills the error from an error reply. shown: the server's name in sentences. doing: what was asked, such as "lock
 * \"a\"".
 */
dibs_status dibs__reply_error(struct dibs__error *error, const redisReply *reply, const char *shown, const char *doing);

/*
 * The same for the answer to a command that may carry a secret, or that was sent together with such a command. A server
 * may repeat what it was sent, so nothing of the answer is quoted except its code, and only if the code is known.
 * command: its name in a sentence, such as "AUTH".
 */
dibs_status dibs__reply_refusal(struct dibs__error *error, const redisReply *reply, const char *shown,
                                const char *command);

/*
 * The integer at index i of an array reply. False: there is none. Lua's numbers are exact up to 2^53. An integer beyond
 * that becomes 2^53, so that sums with times and leases can't overflow.
 */
#define DIBS__REPLY_MOST (INT64_C(1) << 53)
bool dibs__reply_integer(const redisReply *reply, size_t i, int64_t *out);

#endif
