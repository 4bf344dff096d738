/* Questions to a server on a connection of their own, by a thread that waits for the answers. */
#ifndef DIBS_REDIS_INQUIRY_H
#define DIBS_REDIS_INQUIRY_H

#include "redis/link.h"

/* One thread's. */
struct dibs__inquiry {
    const struct dibs__clock *clock;
    struct dibs__link *link; /* ready; NULL: not open */
};

/* Connects, at most until the deadline. Any status but DIBS_OK: the inquiry is not open, and the error is filled. */
dibs_status dibs__inquiry_open(struct dibs__inquiry *inquiry, struct dibs__endpoint *endpoint, enum dibs__link_use use,
                               const struct dibs__clock *clock, int64_t deadline, struct dibs__error *error);

/*
 * Sends all commands at once, each as its words with NULL behind them, and waits for the answer to each, at most until
 * the deadline. DIBS_OK: replies[0..count]
 * are the caller's (dibs__inquiry_free). Any other status: there are none, and the inquiry is of no use any more.
 */
dibs_status dibs__inquiry_ask(struct dibs__inquiry *inquiry, const char *const *const *commands, size_t count,
                              redisReply **replies, int64_t deadline, struct dibs__error *error);
void dibs__inquiry_free(redisReply **replies, size_t count);

void dibs__inquiry_close(struct dibs__inquiry *inquiry); /* one that is not open is fine */

#endif
