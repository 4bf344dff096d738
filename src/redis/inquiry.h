/* Questions to a server on a separate connection, by a thread that waits for the answers. */
#ifndef DIBS_REDIS_INQUIRY_H
#define DIBS_REDIS_INQUIRY_H

#include "redis/link.h"

/* Makes a link that is ready, at the latest at the deadline. NULL: it could not be made, and the error is filled. */
struct dibs__link *dibs__inquiry_open(struct dibs__endpoint *endpoint, enum dibs__link_use use, int64_t deadline,
                                      struct dibs__error *error);

/*
 * Sends all commands at once, each as its words ended by NULL, and waits for all answers, until the deadline at most.
 * DIBS_OK: replies[0..count-1] belong to the caller (dibs__inquiry_free). Any other status: there are no replies, and
 * the link can't be used any more.
 */
dibs_status dibs__inquiry_ask(struct dibs__link *link, const char *const *const *commands, size_t count,
                              redisReply **replies, int64_t deadline, struct dibs__error *error);
void dibs__inquiry_free(redisReply **replies, size_t count);

#endif
