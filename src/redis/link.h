/*
 * One connection to an endpoint: Redis' protocol over a transport, from the first step of connecting until the link is
 * ready for use.
 *
 * A link is a state machine that never blocks, so that the scheduler's event loop can drive it as well as a thread that
 * waits for it. Until a link is ready, one thread at a time uses it. Afterwards one thread at a time may send and one
 * may receive, as for a transport (transport.h).
 */
#ifndef DIBS_REDIS_LINK_H
#define DIBS_REDIS_LINK_H

#include <hiredis/hiredis.h>

#include "redis/buffer.h"
#include "redis/endpoint.h"
#include "redis/transport.h"

#define DIBS__RUN_ID 40 /* number of digits in the id of a server's process, and in that of its data */
#define DIBS__IN 16384  /* most bytes received at a time */

/* What must be known of a link so that the server can end it later. */
struct dibs__link_id {
    int64_t client;                /* CLIENT ID; 0: not known */
    char run_id[DIBS__RUN_ID + 1]; /* id of the server's process; "": not known */
    bool may_kill;                 /* the server lets the account use CLIENT KILL */
    uint64_t told;                 /* endpoint->told when the link was begun; 0: no finder had told anything */
};

enum dibs__link_use {
    DIBS__LINK_COMMANDS,      /* runs scripts in the database of the URL */
    DIBS__LINK_SUBSCRIPTIONS, /* is subscribed to the endpoint's channel; selects no database and runs no scripts */
    DIBS__LINK_SENTINEL,      /* to a sentinel, which keeps no locks */
};

enum dibs__link_state {
    DIBS__LINK_CONNECTING,  /* the transport is not connected yet */
    DIBS__LINK_GREETING,    /* the greeting was sent, and answers are awaited */
    DIBS__LINK_FOLLOWING,   /* the commands that those answers called for were sent, and answers are awaited */
    DIBS__LINK_SUBSCRIBING, /* SUBSCRIBE was sent, and its answer is awaited */
    DIBS__LINK_READY,       /* the link can be used */
};

/* The command of the server that deletes a key if it has a certain value. */
enum dibs__delete_if {
    DIBS__DELETE_IF_NONE, /* there is none, or the server's version is not known */
    DIBS__DELETE_IF_EX,   /* DELEX key IFEQ value: Redis since 8.4 */
    DIBS__DELETE_IF_EQ,   /* DELIFEQ key value: Valkey since 9.0 */
};

/* The server's role in its replication, as far as known. */
enum dibs__role {
    DIBS__ROLE_UNKNOWN, /* the account may not ask */
    DIBS__ROLE_MASTER,
    DIBS__ROLE_REPLICA, /* or any other role that takes no writes */
};

/* Which answer to the greeting comes next; all zero: the first. Used by the connecting thread. */
struct dibs__greeting {
    size_t command;       /* index of the command in the table of greeting.c */
    int round;            /* for a command that is sent once for each script: the script */
    enum dibs__role role; /* known only for a server that sentinels named */
};

/* What must be known of a link to send scripts on it. The channel hands out copies. */
struct dibs__link_view {
    struct dibs__link_id id;
    bool no_eval;       /* the account may not use EVAL, so the server must be given the scripts */
    bool may_publish;   /* the account may publish to the endpoint's channel */
    bool cluster;       /* the server is part of a cluster */
    bool sharded;       /* in a cluster: the server has sharded channels, and the account may use them */
    bool tracks_keys;   /* CLIENT TRACKING works as is needed here */
    bool tells_of_disk; /* answers to WAITAOF can be trusted */
    bool tells_parted;  /* in a cluster: where only some of a command's keys have moved, it answers TRYAGAIN, not ASK */
    enum dibs__delete_if deletes_if; /* which command deletes a key by its value */
    uint64_t server; /* a number for the server's process and its data; if it differs, what was stored may have been
                        forgotten; 0: not known */
    atomic_uint *scripts; /* the endpoint's */
    uint64_t serial;      /* the channel's; number of this connection within the channel */
    uint64_t unended; /* the channel's; what was sent on connections up to this serial may still arrive; 0: on none */
    int64_t server_ahead_us; /* guarded by the channel's mutex once ready; the server's clock minus ours; at most one
                                round trip too large */
};

/*
 * Until the link is ready, the fields belong to the connecting thread. Then they are read-only, unless they say
 * otherwise.
 */
struct dibs__link {
    struct dibs__endpoint *endpoint;
    enum dibs__link_use use;
    struct dibs__transport *transport;
    struct dibs__reader reader; /* the receiving thread's */
    enum dibs__link_state state;
    struct dibs__buffer out; /* the sending thread's; bytes of the greeting, later commands of a subscriber */

    struct dibs__link_id before; /* the link that this one replaces */
    struct dibs__greeting greeting;
    int64_t greeted_at; /* our clock in ns when the greeting was sent */

    struct dibs__link_view view; /* filled from the answers to the greeting, except what is the channel's */
    bool ended_before; /* filled from these answers; the server has ended the previous link, or that was a link to
                          another server */
    char replication_id[DIBS__RUN_ID + 1]; /* filled from these answers; id of the server's data; "": not known */
    char in[DIBS__IN];                     /* the receiving thread's; not on the stack, which may be small */
};

/* Begins to connect. before: the link that this one replaces, or NULL. NULL: failed, and the error is filled. */
struct dibs__link *dibs__link_start(struct dibs__endpoint *endpoint, enum dibs__link_use use,
                                    const struct dibs__link_id *before, struct dibs__error *error);
void dibs__link_free(struct dibs__link *link); /* NULL is fine */

/*
 * Goes on as far as possible without blocking. until: when the whole try is given up; each address has its share of
 * that time. DIBS_OK: look at the state; while it is not DIBS__LINK_READY, call this again as dibs__link_interest says.
 * Any other status: the try failed, and the caller must free the link.
 */
dibs_status dibs__link_step(struct dibs__link *link, int64_t now, int64_t until, struct dibs__error *error);

/*
 * What to poll for in order to go on; for a link that is ready, in order to receive, and to send `out`. *deadline is
 * lowered to the time when to go on at the latest.
 */
struct pollfd dibs__link_interest(struct dibs__link *link, int64_t *deadline);

/*
 * Blocks until the link is ready, but not beyond the deadline. DIBS_OK. DIBS_TIMEOUT: the deadline passed, and the try
 * may go on. Any other status: the try failed.
 */
dibs_status dibs__link_finish(struct dibs__link *link, int64_t deadline, int64_t until, struct dibs__error *error);

/* Called when the whole try took too long: fills the error, and returns its status. */
dibs_status dibs__link_give_up(struct dibs__link *link, struct dibs__error *error);

/*
 * Whether a later link can have the server end this one, which proves that nothing that was sent on it can still
 * arrive. If not, each ask must carry the time after which the server must ignore it.
 */
bool dibs__link_can_be_ended(const struct dibs__link_id *id);

/*
 * Whether a finder has told since that another server has replaced that of the link. If so, the link must be given up,
 * even if the server still answers. May be called by any thread, as long as the link is not freed.
 */
static inline bool dibs__link_is_outdated(const struct dibs__link *link)
{
    return dibs__endpoint_has_moved(link->endpoint, link->view.id.told);
}

/* Whether a server's version, such as "7.0.15", is at least the given one. False if version is NULL. */
bool dibs__version_is_since(const char *version, long major, long minor, long patch);

/* Fills the error for an outdated link, and returns its status. */
dibs_status dibs__link_outdated(const struct dibs__link *link, struct dibs__error *error);

/* The functions of the transport: see transport.h. */
long dibs__link_send(struct dibs__link *link, const char *bytes, size_t size, struct dibs__error *error);
long dibs__link_receive(struct dibs__link *link, struct dibs__error *error); /* feeds the reader */
bool dibs__link_sleep(struct dibs__link *link);                              /* false: the transport can't sleep */
struct pollfd dibs__link_poll(struct dibs__link *link, short want, int64_t *deadline);
enum dibs__sight dibs__link_look(struct dibs__link *link);
void dibs__link_shut(struct dibs__link *link);

/* Adds a command to `out`. NULL ends the words. False: no memory. */
bool dibs__link_say(struct dibs__link *link, const char *const *words);

/* Sends as much of `out` as the transport takes. */
dibs_status dibs__link_send_out(struct dibs__link *link, struct dibs__error *error);

/* Whether to try to receive, after poll(2) has answered with these events. */
bool dibs__link_may_receive(struct dibs__link *link, short revents);

/*
 * Sets *reply to the next complete reply, which must be freed with freeReplyObject, or to NULL if there is none yet.
 * DIBS_STORE_ERROR: the bytes are no reply. DIBS_NO_MEMORY.
 */
dibs_status dibs__link_next_reply(struct dibs__link *link, redisReply **reply, struct dibs__error *error);

/* ---------------------------------------------------------------- greeting.c */

/* Writes the greeting to the link's `out`. Requires a link that has just connected. */
dibs_status dibs__greeting_begin(struct dibs__link *link, int64_t now, struct dibs__error *error);

/*
 * Takes the answers that are complete. When all that was sent is answered, the link is ready, or gets the next state,
 * and the commands that follow are in `out`. Any status but DIBS_OK: the link can't be used.
 */
dibs_status dibs__greeting_take(struct dibs__link *link, struct dibs__error *error);

#endif
