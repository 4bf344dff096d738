/* Questions to a server on a separate connection, by a thread that waits for the answers. */
#ifndef DIBS_REDIS_INQUIRY_H
#define DIBS_REDIS_INQUIRY_H

#include "redis/link.h"

/* Used by one thread. */
struct dibs__inquiry {
    const struct dibs__clock *clock;
    struct dibs__link *link; /* a link that is ready; NULL: the inquiry is not open */
};

/*
 * Connects, at the latest until the deadline. Any status but DIBS_OK: the inquiry is not open, and the error is filled.
 */
dibs_status dibs__inquiry_open(struct dibs__inquiry *inquiry, struct dibs__endpoint *endpoint, enum dibs__link_use use,
                               const struct dibs__clock *clock, int64_t deadline, struct dibs__error *error);

/*
 * Sends all commands at once, each as its words ended by NULL, and waits for all answers, until the deadline at most.
 * DIBS_OK: replies[0..count-1] belong to the caller (dibs__inquiry_free). Any other status: there are no replies, and
 * the inquiry can't be used any more.
 */
dibs_status dibs__inquiry_ask(struct dibs__inquiry *inquiry, const char *const *const *commands, size_t count,
                              redisReply **replies, int64_t deadline, struct dibs__error *error);
void dibs__inquiry_free(redisReply **replies, size_t count);

void dibs__inquiry_close(struct dibs__inquiry *inquiry); /* the inquiry need not be open */

#endif
