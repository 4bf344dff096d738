/*
 * What the scripts of src/redis/scripts take and reply: the order of their
 * arguments and the codes of their replies are here and in the scripts, and
 * nowhere else. (What a script publishes: push.h. The keys: keys.h.)
 *
 * To write: the keys of the lock are in the call already. What is added must
 * live as long as the call. To read: false where the reply is none that the
 * script gives, which may be an error.
 */
#ifndef DIBS_STORE_REDIS_CODEC_H
#define DIBS_STORE_REDIS_CODEC_H

#include <hiredis/hiredis.h>

#include "redis/call.h"
#include "store/redis/keys.h"
#include "store/store.h"

/* ------------------------------ acquire.lua, acquire_member.lua, requeue.lua */

struct dibs__ask_words {
    const char *token;
    uint64_t number;
    uint32_t lease_ms;
    const char *channel; /* on which a grant is told; NULL: the token must not queue */
    int64_t not_after;   /* us of the server's clock; 0: any time */
    bool leave;          /* a lock that is free is left to who had it, unless F is larger than left_fence */
    uint64_t left_fence; /* the last fence of the name when that owner was seen */
    const char *run; /* at a member of a quorum: the run id of the server's process, as of dibs__codec_run; else NULL */
    uint64_t quorum; /* with run: the number of the quorum; 0: not known */
};

/* A run id as the scripts of a member take it, where none is known too. */
static inline const char *dibs__codec_run(const char *run_id)
{
    return run_id[0] ? run_id : "-";
}

void dibs__codec_acquire(struct dibs__call *call, const struct dibs__ask_words *ask);

/* Releases a token, and asks behind that. */
void dibs__codec_requeue(struct dibs__call *call, const char *token, const struct dibs__ask_words *ask);

enum dibs__ask_code {
    DIBS__ASK_NO_VOTE = -3,   /* the master of a quorum may not vote; nothing was done */
    DIBS__ASK_OVERTAKEN = -2, /* by a later ask; nothing was done */
    DIBS__ASK_LATE = -1,      /* nothing was done */
    DIBS__ASK_TAKEN = 0,
    DIBS__ASK_GRANTED
};

struct dibs__ask_reply {
    enum dibs__ask_code code;
    uint64_t fence;       /* granted; 0: none that a script can give */
    int64_t remaining_ms; /* taken: of the owner's lease; -1: the owner's key has no expiry; 0: ask again at once */
    bool by_dibs;         /* taken: the owner is dibs, so the end of the hold is told */
    bool recalled;        /* taken: by a process that may only keep the lease, and was told of this ask */
    bool listeners_known; /* taken, and the ask wanted to queue: there is the right to know. Else listeners is 0 */
    int64_t listeners;    /* taken: so many subscribe to the channel */
    uint64_t last_fence;  /* taken: the last fence of the name; 0: none is known */
    int64_t server_us;    /* late, and granted by a member of a quorum: the server's clock; else 0 */
};

bool dibs__codec_read_ask(struct dibs__ask_reply *out, const redisReply *reply);

/* ------------------------------------- release.lua, requeue.lua, retract.lua */

/* ended_fence: of the token; what waiters leave to it ends (surpass.lua). 0: nobody leaves it anything. Not with quiet.
 */
void dibs__codec_release(struct dibs__call *call, const char *token, bool quiet, uint64_t ended_fence);

struct dibs__release_reply {
    bool released;         /* else nobody held the lock, or another token does */
    bool unfinished;       /* the queue was not served to its end: see dibs__redis_go_on */
    const redisReply *ask; /* of requeue.lua: for dibs__codec_read_ask; NULL: there is none */
};

bool dibs__codec_read_release(struct dibs__release_reply *out, const redisReply *reply);

#define DIBS__RETRACT_WORDS(count) (DIBS__SCRIPT_WORDS + (count) * (DIBS__KEYS + 2))

/* All the keys come before the first token. fence: "", or, so that what waiters leave to the token ends, that of the
   token, "0" where none is known. */
void dibs__codec_retract(struct dibs__words *words, const char *token, const char *fence);

enum dibs__retract_code {
    DIBS__RETRACT_REFUSED,   /* an error */
    DIBS__RETRACT_GONE,      /* the lock is not the token's */
    DIBS__RETRACT_UNFINISHED /* nor is it then, but the queue was not served to its end: the same retraction goes on */
};

/* The reply for so many tokens, and for one of them. */
bool dibs__codec_read_retract(const redisReply *reply, size_t count, int64_t *server_us);
enum dibs__retract_code dibs__codec_read_retracted(const redisReply *reply, size_t i);

/* ---------------------------------------------------- renew.lua, renew_short.lua */

#define DIBS__RENEW_KEYS 2 /* of one lock: itself and, in full, its fence */
#define DIBS__RENEW_ARGUMENTS 5
#define DIBS__RENEW_WORDS(count) (DIBS__SCRIPT_WORDS + (count) * (DIBS__RENEW_KEYS + DIBS__RENEW_ARGUMENTS))

#define DIBS__RENEW_ANY_FENCE "!"

struct dibs__renew_words {
    const char *token;
    uint32_t lease_ms; /* 0: the lock is only looked at */
    uint64_t fence;
    const char *set_by;     /* an extension; when it is too late for it: us of the server's clock. NULL: a renewal */
    const char *restore_by; /* may be restored where the server forgot it, until this time. NULL: may not. Behind
                               DIBS__RENEW_ANY_FENCE: whatever the server's fence says */
    enum dibs__use use;     /* of a lease that may be kept: told, and F is raised to the fence */
};

struct dibs__renew_texts {
    char lease_ms[12], fence[24];
};

/* In full: all locks come before the first fence, and all fences before the first argument; then one lease after
 * another. */
void dibs__codec_renew(struct dibs__words *words, const struct dibs__renew_words *lease,
                       struct dibs__renew_texts *texts);

/* In short, with the locks alone as keys: all leases of the call at once, where each needs nothing but to be renewed or
 * looked at. texts: one for each. */
void dibs__codec_renew_short(struct dibs__words *words, const struct dibs__renewal *leases, size_t count,
                             struct dibs__renew_texts *texts);

enum dibs__renew_code {
    DIBS__RENEW_REFUSED,  /* an error: the lock could not be looked at, or not be restored */
    DIBS__RENEW_LATE,     /* nothing was done */
    DIBS__RENEW_GONE,     /* the lock is no longer the token's, */
    DIBS__RENEW_ANOTHERS, /* and was granted to another since, or taken away by force */
    DIBS__RENEW_DONE,
    DIBS__RENEW_LONGER,     /* nothing was done: the lease lasts longer than asked */
    DIBS__RENEW_WANTED,     /* done, with a use; others wait for the lock */
    DIBS__RENEW_NOT_RAISED, /* done, with a use; but F could not be raised */
    DIBS__RENEW_LOOKED      /* there was nothing to do: the lock is the token's */
};

struct dibs__renew_reply {
    enum dibs__renew_code code;
    int64_t server_us;       /* late: the server's clock */
    const redisReply *error; /* refused */
};

/* The reply for so many leases, and for one of them. */
bool dibs__codec_read_renew(const redisReply *reply, size_t count, int64_t *server_us);
struct dibs__renew_reply dibs__codec_read_renewed(const redisReply *reply, size_t i);

/* ------------------------------------------------------- query.lua, force.lua */

struct dibs__query_reply {
    const char *owner; /* NULL: nobody holds the lock; else of that size, and may hold any bytes */
    size_t owner_size;
    int64_t remaining_ms;
    uint64_t fence; /* 0: none that dibs can have written */
    uint32_t waiters;
    int64_t server_us; /* the server's clock */

    /* Where the lock is shared, owner is DIBS__CODEC_SHARED, and of the newest sharer: */
    uint32_t sharers; /* how many there are; 0: the lock is not shared, or it is not known by whom */
    const char *newest;
    size_t newest_size;
    uint64_t newest_fence;

    bool kept; /* a process keeps the lock, and nobody uses it */
};

#define DIBS__CODEC_SHARED "dibs:shared" /* what the key of a lock holds that is shared (sharers.lua) */

enum dibs__forget_code { DIBS__FORGET_IN_USE, DIBS__FORGET_DONE };

/* How many entries of the queue the reply must list, and how many sharers; 0: none. */
void dibs__codec_query(struct dibs__call *call, size_t waiters, size_t sharers);

bool dibs__codec_read_query(struct dibs__query_reply *out, const redisReply *reply);

/* The entry i of the reply, which dibs__codec_read_query has read. False: there are no more. */
bool dibs__codec_read_waiter(const redisReply *reply, size_t i, const redisReply **token, int64_t *asked_us);

/* The sharer i of the reply; where it shares the lock alone, none is told. False: there are no more. */
struct dibs__codec_sharer {
    const redisReply *token;
    uint64_t fence;
    int64_t remaining_ms;
};
bool dibs__codec_read_sharer(const redisReply *reply, size_t i, struct dibs__codec_sharer *out);

/* token NULL: nobody held the lock when it was looked at; DIBS__CODEC_SHARED: all sharers whose fence is not larger. */
void dibs__codec_force(struct dibs__call *call, int64_t not_after, const char *token, size_t token_size,
                       uint64_t fence);

enum dibs__force_code { DIBS__FORCE_LATE, DIBS__FORCE_HELD_BY_ANOTHER, DIBS__FORCE_DONE };

struct dibs__force_reply {
    enum dibs__force_code code;
    int64_t server_us; /* late: the server's clock; nothing was done */
    bool unfinished;   /* done, but the queue was not served to its end: see dibs__redis_go_on */
};

bool dibs__codec_read_force(struct dibs__force_reply *out, const redisReply *reply);

/* -------------------------------------------------------- vote.lua, raise.lua */

/* run: as of dibs__codec_run; stays until the call is sent. */
void dibs__codec_vote(struct dibs__call *call, const struct dibs__vote *vote, int64_t not_after, const char *run);

/* Sets what the server said, and no more than the server's clock where it was *late: then nothing was done. */
bool dibs__codec_read_vote(struct dibs__vote *vote, bool *late, const redisReply *reply);

void dibs__codec_raise(struct dibs__call *call, const char *token, uint64_t fence, uint32_t lease_ms);

/* *raised: else the lock is not the token's. */
bool dibs__codec_read_raise(bool *raised, const redisReply *reply);

#endif
