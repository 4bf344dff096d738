/* One call of a script, by a thread that waits for its answer or in the background; and WAIT and WAITAOF. */
#ifndef DIBS_REDIS_CALL_H
#define DIBS_REDIS_CALL_H

#include "redis/channel.h"
#include "redis/scripts.h"

/* All zero, except script and key_count, is a call without words. Its owner must free the words. */
struct dibs__call {
    enum dibs__script script;
    size_t key_count;
    struct dibs__words words; /* the keys, and then the arguments */
    bool tells_first; /* what the script publishes must leave the server before the reply does: the call goes behind
                         PING */
    bool asking;      /* the call goes behind ASKING, and names only its first key: the node is just getting the slot */
    bool untracked;   /* the call goes behind CLIENT CACHING NO, unless it goes behind ASKING; not with tells_first */
};

/*
 * Whether the reply says that the script must be sent as text: the server does not have the script, or does not let the
 * account use EVALSHA. That is noted in `scripts`, the endpoint's, so the call only has to be sent again.
 */
bool dibs__script_wants_text(enum dibs__script script, const redisReply *reply, atomic_uint *scripts);

/*
 * Sends the call in the background, as dibs__channel_submit does: by the id of its script, or by its text if the server
 * is not known to have it. Once the text is sent, the server is known to have it.
 */
bool dibs__call_submit(const struct dibs__call *call, struct dibs__channel *channel, const struct dibs__link_view *view,
                       dibs__reply_fn *done, void *arg);

/*
 * Sends the call on the connection that view shows, as dibs__channel_send does. NULL: nothing was sent, and the error
 * is filled.
 */
struct dibs__request *dibs__call_begin(const struct dibs__call *call, struct dibs__channel *channel,
                                       const struct dibs__link_view *view, int64_t deadline, struct dibs__error *error);

/*
 * Waits for the reply. If the server wants the text of the script, sends that and waits for its reply. DIBS_OK:
 * exchange->reply, which may be an error reply, belongs to the caller. Otherwise the connection broke or the deadline
 * passed (DIBS_UNAVAILABLE), the bytes were no reply (DIBS_STORE_ERROR), or memory ran out (DIBS_NO_MEMORY).
 * exchange->unknown: the server may have run the script.
 */
dibs_status dibs__call_finish(const struct dibs__call *call, struct dibs__channel *channel,
                              const struct dibs__link_view *view, struct dibs__request *request,
                              struct dibs__exchange *exchange);

/* Which other copies must have a write besides the server's memory, and how long to wait for them. */
struct dibs__copies {
    bool on_disk;       /* the copy is on the server's own disk (WAITAOF); else on replicas (WAIT) */
    uint32_t count;     /* number of copies; 0 only asks whether waiting is possible */
    int64_t timeout_ms; /* more than 0 */
    const char *shown;  /* name of the server in sentences */
};

/*
 * Waits until that many copies have what was written on the connection of that serial. DIBS_OK: *count copies have it,
 * perhaps fewer than wanted. DIBS_DENIED, DIBS_STORE_ERROR: the server refuses to wait. DIBS_UNAVAILABLE,
 * DIBS_NO_MEMORY: there was no answer. Nothing else may be in flight on the channel, because it would wait as well.
 */
dibs_status dibs__call_wait(struct dibs__channel *channel, uint64_t serial, const struct dibs__copies *copies,
                            int64_t deadline, int64_t *count, struct dibs__error *error);

#endif
