/*
 * What the scripts of src/redis/scripts take and reply. The order of their arguments and the codes of their replies are
 * written here and in the scripts, and nowhere else; and so are the names of the keys.
 *
 * To write: the words have the keys of the lock already. To read: false if the reply is none that the script gives; it
 * may be an error.
 */
#ifndef DIBS_STORE_REDIS_CODEC_H
#define DIBS_STORE_REDIS_CODEC_H

#include <hiredis/hiredis.h>

#include "redis/buffer.h"
#include "store/store.h"

/* ------------------------------------------------------------------ the keys */

#define DIBS__KEYS 3 /* number of keys that the scripts about a lock take, in this order */

enum dibs__key_kind {
    DIBS__KEY_LOCK,
    DIBS__KEY_FENCE,
    DIBS__KEY_QUEUE,
    DIBS__KEY_PROBE, /* of no script: written to see whether the server reports it */
    DIBS__KEY_KINDS
};

#define DIBS__KEY_MEMBER "dibs:vote" /* of a member of a quorum; the same for all locks: see vote.lua */

#define DIBS__KEY_EXTRA 32 /* bytes that a key may have besides prefix and name, with the NUL */

struct dibs__key {
    size_t size; /* without the NUL */
    char bytes[DIBS__PREFIX_MAX + DIBS_NAME_MAX + DIBS__KEY_EXTRA];
};

/*
 * prefix and name must be within their limits. All keys of a lock are in one hash slot of a cluster, unless
 * dibs__key_splits says that its sidecars are elsewhere.
 */
void dibs__key_of(struct dibs__key *out, enum dibs__key_kind kind, const char *prefix, const char *name);

/* The name, within the key, of the lock with that key, which a NUL follows. NULL: no lock has that key. */
const char *dibs__key_name(const char *prefix, const char *key, size_t size);

/*
 * Whether the key of a lock has a } but no usable hash tag (something between its first { and the first } after that).
 * The slot of such a key is that of all its bytes, and no sidecar can be made to have the same one: it puts the key
 * into braces, and would be cut short at the }.
 */
bool dibs__key_splits(const char *lock);

/* ------------------------------ acquire.lua, acquire_member.lua, requeue.lua */

struct dibs__ask_words {
    const char *token;
    uint64_t number;
    uint32_t lease_ms;
    const char *channel; /* the channel on which a grant is told; NULL: the token must not queue */
    int64_t not_after;   /* us of the server's clock; 0: any time */
    bool leave;          /* a free lock is left to its former owner, unless F is larger than left_fence */
    uint64_t left_fence; /* the last fence of the name when that owner was seen */
    const char *run; /* at a member of a quorum: the run id of the server's process, as of dibs__codec_run; else NULL */
    uint64_t quorum; /* with run: the number of the quorum; 0: not known */
};

/* The run id as the scripts of a member take it; "-" if none is known. */
static inline const char *dibs__codec_run(const char *run_id)
{
    return run_id[0] ? run_id : "-";
}

void dibs__codec_acquire(struct dibs__words *words, const struct dibs__ask_words *ask);

/* Releases a token, and then asks for the lock. */
void dibs__codec_requeue(struct dibs__words *words, const char *token, const struct dibs__ask_words *ask);

enum dibs__ask_code {
    DIBS__ASK_NO_VOTE = -3,   /* the master of a quorum may not vote; nothing was done */
    DIBS__ASK_OVERTAKEN = -2, /* by a later ask; nothing was done */
    DIBS__ASK_LATE = -1,      /* nothing was done */
    DIBS__ASK_TAKEN = 0,
    DIBS__ASK_GRANTED
};

struct dibs__ask_reply {
    enum dibs__ask_code code;
    uint64_t fence;       /* granted: the fence; 0: it is none that a script can give */
    int64_t remaining_ms; /* taken: the rest of the owner's lease, of sharers the shortest; -1: the owner's key has no
                             expiry; 0: ask again at once */
    int64_t lives_ms;     /* taken: the same for the longest lease of those who share the lock, else remaining_ms */
    bool by_dibs;         /* taken: the owner uses dibs, so the end of the hold is told */
    bool recalled;        /* taken: the owner's process may only keep the lease, and was told of this ask */
    bool listeners_known; /* taken, if the ask wanted to queue: the account has the right to count the listeners; else
                             their number is 0 */
    int64_t listeners;    /* taken: number of subscribers of the channel */
    uint64_t last_fence;  /* taken: the last fence of the name; 0: none is known */
    int64_t server_us;    /* late, and granted by a member of a quorum: the server's clock; else 0 */
};

bool dibs__codec_read_ask(struct dibs__ask_reply *out, const redisReply *reply);

/* ------------------------------------- release.lua, requeue.lua, retract.lua */

/*
 * ended_fence: the fence of the token, so that waiters stop leaving the lock to the token (surpass.lua); 0: they leave
 * it nothing. Must be 0 with quiet.
 */
void dibs__codec_release(struct dibs__words *words, const char *token, bool quiet, uint64_t ended_fence);

struct dibs__release_reply {
    bool released;         /* false: nobody held the lock, or another token holds it */
    bool shared_on;        /* released, and others share the lock */
    bool unfinished;       /* the queue was not served to its end: see dibs__redis_go_on */
    const redisReply *ask; /* of requeue.lua: the reply to the ask, for dibs__codec_read_ask; NULL: there is none */
};

bool dibs__codec_read_release(struct dibs__release_reply *out, const redisReply *reply);

/*
 * All keys are added before the first token. surpasses: waiters stop leaving the lock to the token, whose fence that
 * is; 0: not known.
 */
void dibs__codec_retract(struct dibs__words *words, const char *token, bool surpasses, uint64_t fence);

enum dibs__retract_code {
    DIBS__RETRACT_REFUSED,   /* the server replied with an error */
    DIBS__RETRACT_GONE,      /* the token does not have the lock */
    DIBS__RETRACT_UNFINISHED /* the token does not have the lock, but the queue was not served to its end: the same
                                retraction continues with that */
};

/* Reads the reply for that many tokens, and then what it says of one of them. */
bool dibs__codec_read_retract(const redisReply *reply, size_t count, int64_t *server_us);
enum dibs__retract_code dibs__codec_read_retracted(const redisReply *reply, size_t i);

/* ---------------------------------------------------- renew.lua, renew_short.lua */

/* Whether the lock may be restored if the server forgot it. */
enum dibs__restoring {
    DIBS__RESTORING_NO,
    DIBS__RESTORING_BY_FENCE, /* unless the server's fence says that another token had the lock since */
    DIBS__RESTORING_ANY_FENCE /* whatever the server's fence says */
};

/*
 * For renew.lua: all locks come before the first key of a fence, and all of these before the first argument; then the
 * arguments of one lease after another. not_after: the time, in us of the server's clock, after which it is too late
 * for an extension or a restoring. A lease that may be kept also tells its use, and F is raised to its fence.
 */
void dibs__codec_renew(struct dibs__words *words, const struct dibs__renewal *lease, int64_t not_after,
                       enum dibs__restoring restoring);

/*
 * For renew_short.lua, whose keys are the locks alone: all leases of the call at once, none of which needs more than to
 * be renewed or looked at.
 */
void dibs__codec_renew_short(struct dibs__words *words, const struct dibs__renewal *leases, size_t count);

enum dibs__renew_code {
    DIBS__RENEW_REFUSED =
        -2,                /* the server replied with an error: the lock could not be looked at, or not be restored */
    DIBS__RENEW_LATE = -1, /* nothing was done */

    /* The numbers of renew.lua: */
    DIBS__RENEW_GONE = 0, /* the token no longer has the lock */
    DIBS__RENEW_DONE = 1,
    DIBS__RENEW_RESTORED = 2,
    DIBS__RENEW_ANOTHERS = 3,  /* as GONE, and the lock was granted to another token since, or taken away by force */
    DIBS__RENEW_LONGER = 4,    /* nothing was done: the lease lasts longer than asked */
    DIBS__RENEW_LOOKED = 5,    /* there was nothing to do: the token has the lock */
    DIBS__RENEW_WANTED = 6,    /* done, with a use; others wait for the lock */
    DIBS__RENEW_NOT_RAISED = 7 /* done, with a use; but F could not be raised */
};

struct dibs__renew_reply {
    enum dibs__renew_code code;
    int64_t server_us;       /* late: the server's clock */
    const redisReply *error; /* refused */
};

/* Reads the reply for that many leases, and then what it says of one of them. */
bool dibs__codec_read_renew(const redisReply *reply, size_t count, int64_t *server_us);
struct dibs__renew_reply dibs__codec_read_renewed(const redisReply *reply, size_t i);

/* ------------------------------------------------------- query.lua, force.lua */

struct dibs__query_reply {
    const char *owner; /* owner_size bytes of any value; NULL: nobody holds the lock */
    size_t owner_size;
    int64_t remaining_ms;
    uint64_t fence; /* 0: none that dibs can have written */
    uint32_t waiters;
    int64_t server_us; /* the server's clock */

    /* If the lock is shared, owner is DIBS__CODEC_SHARED, and the fields from here to newest_fence are set: */
    uint32_t sharers; /* number of sharers; 0: the lock is not shared, or it is not known by whom */
    const char *newest;
    size_t newest_size;
    uint64_t newest_fence;

    bool kept; /* a process keeps the lock, and nobody uses it */
};

#define DIBS__CODEC_SHARED "dibs:shared" /* the value of the key of a lock that several share (sharers.lua) */

enum dibs__forget_code { DIBS__FORGET_IN_USE, DIBS__FORGET_DONE };

/* The number of entries of the queue that the reply must list, and the number of sharers; 0: none. */
void dibs__codec_query(struct dibs__words *words, size_t waiters, size_t sharers);

bool dibs__codec_read_query(struct dibs__query_reply *out, const redisReply *reply);

/* Entry i of the reply, which dibs__codec_read_query has read. False: there are no more. */
bool dibs__codec_read_waiter(const redisReply *reply, size_t i, const redisReply **token, int64_t *asked_us);

/* Sharer i of the reply, which lists no sharer that is alone. False: there are no more. */
struct dibs__codec_sharer {
    const redisReply *token;
    uint64_t fence;
    int64_t remaining_ms;
};
bool dibs__codec_read_sharer(const redisReply *reply, size_t i, struct dibs__codec_sharer *out);

/*
 * Ends the hold that the query found, or of the token `owner`; owner NULL: nobody held the lock when it was looked at.
 * If the lock is shared, all sharers lose it, unless the newest is another by then.
 */
void dibs__codec_force(struct dibs__words *words, int64_t not_after, const struct dibs__query_reply *holder);

struct dibs__force_reply {
    int64_t late_us; /* not 0: nothing was done, because it was too late by the server's clock, which this is */
    bool done;       /* false: too late, or another token has the lock */
    bool unfinished; /* done, but the queue was not served to its end: see dibs__redis_go_on */
};

bool dibs__codec_read_force(struct dibs__force_reply *out, const redisReply *reply);

/* -------------------------------------------------------- vote.lua, raise.lua */

/* run: from dibs__codec_run. */
void dibs__codec_vote(struct dibs__words *words, const struct dibs__vote *vote, int64_t not_after, const char *run);

/* Sets what the server said. *late: nothing was done, and only the server's clock is set. */
bool dibs__codec_read_vote(struct dibs__vote *vote, bool *late, const redisReply *reply);

void dibs__codec_raise(struct dibs__words *words, const char *token, uint64_t fence, uint32_t lease_ms);

/* *raised: false: the token does not have the lock. */
bool dibs__codec_read_raise(bool *raised, const redisReply *reply);

/* ----------------------------------------------------------------- serve.lua */

/* A message that tells a runtime that a lock was granted to one of its waiters, or, with fence 0, may be free. */
struct dibs__pushed {
    struct dibs__grant grant; /* its name and token point into this struct */
    char name[DIBS_NAME_MAX + 1], token[DIBS__TOKEN_MAX];
};

/*
 * Reads the bytes of a message, which a NUL must follow. False: this is no such message, or its lock is not under that
 * prefix.
 */
bool dibs__push_read(struct dibs__pushed *out, const char *key_prefix, const char *bytes, size_t size);

#endif
