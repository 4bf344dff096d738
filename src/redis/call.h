/* One call of a script by a thread that waits for its answer. */
#ifndef DIBS_REDIS_CALL_H
#define DIBS_REDIS_CALL_H

#include "redis/channel.h"

#define DIBS__CALL_WORDS 16
#define DIBS__CALL_NUMBERS 5
#define DIBS__CALL_FIRST_KEY 3 /* its place among the words */

struct dibs__call {
    enum dibs__script script;
    int count, number_count;
    const char *words[DIBS__CALL_WORDS]; /* the first two are filled when it is sent */
    size_t sizes[DIBS__CALL_WORDS];
    char numbers[DIBS__CALL_NUMBERS][24];
};

/* The call keeps pointers to what is added, not copies. First the keys, of that number, then the arguments. */
void dibs__call_init(struct dibs__call *call, enum dibs__script script, int key_count);
void dibs__call_add(struct dibs__call *call, const char *bytes, size_t size);
void dibs__call_add_number(struct dibs__call *call, int64_t number);

/* Changes the number that was added as the nth (from 0; the number of keys is the first). */
void dibs__call_set_number(struct dibs__call *call, int nth, int64_t number);

/* Fills the first two words: EVALSHA with the sha that the link knows, else EVAL with the text. */
void dibs__script_words(enum dibs__script script, const struct dibs__link_view *view, bool with_text,
                        const char *words[2], size_t sizes[2]);

/*
 * Runs it on the connection that view shows, with the text of the script where
 * the server has lost it. DIBS_OK: *reply is the caller's, an error reply too.
 * Else the connection broke or the deadline passed (DIBS_UNAVAILABLE), its
 * bytes were no reply (DIBS_STORE_ERROR) or memory is out (DIBS_NO_MEMORY);
 * *unknown: the server may have run it.
 */
dibs_status dibs__call_run(struct dibs__call *call, struct dibs__channel *channel, const struct dibs__link_view *view,
                           int64_t deadline, redisReply **reply, bool *unknown, struct dibs__error *error);

/*
 * How many replicas acknowledge what was written on that connection, waiting
 * for `wanted` at most timeout_ms; -1: the server gave no answer. Nothing else
 * may be in flight on the channel: it would wait as well.
 */
int64_t dibs__call_wait(struct dibs__channel *channel, uint64_t serial, uint32_t wanted, int64_t timeout_ms,
                        int64_t deadline);

#endif
