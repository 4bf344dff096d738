/*
 * One connection to an endpoint: Redis' protocol over a transport, from the
 * first step of connecting until the link is ready for use.
 *
 * A link is a state machine that never blocks, so the scheduler's event loop
 * can drive it as well as a thread that waits for it. Until it is ready, one
 * thread at a time uses a link. Afterwards one thread at a time may send and
 * one receive, as of a transport (transport.h).
 */
#ifndef DIBS_REDIS_LINK_H
#define DIBS_REDIS_LINK_H

#include <hiredis/hiredis.h>

#include "base/clock.h"
#include "redis/buffer.h"
#include "redis/endpoint.h"
#include "redis/transport.h"

#define DIBS__RUN_ID 40 /* digits of the id of a server's process, and of that of its data */
#define DIBS__IN 16384  /* bytes received at a time */

/* What has to be known of a link to have the server end it later. */
struct dibs__link_id {
    int64_t client;                /* CLIENT ID; 0: not known */
    char run_id[DIBS__RUN_ID + 1]; /* of the server's process; "": not known */
    bool may_kill;                 /* the server lets the account use CLIENT KILL */
    uint64_t told;                 /* the number of what a finder had told when the link was begun; 0: nothing */
};

enum dibs__link_use {
    DIBS__LINK_COMMANDS,      /* runs scripts, in the database of the URL */
    DIBS__LINK_SUBSCRIPTIONS, /* is subscribed to the endpoint's channel; selects no database and runs no scripts */
    DIBS__LINK_SENTINEL,      /* to a sentinel, which keeps no locks */
};

enum dibs__link_state {
    DIBS__LINK_CONNECTING,  /* the transport is not connected yet */
    DIBS__LINK_GREETING,    /* the greeting was sent, and is being answered */
    DIBS__LINK_FOLLOWING,   /* what the answers called for was sent, and is being answered */
    DIBS__LINK_SUBSCRIBING, /* the same of SUBSCRIBE */
    DIBS__LINK_READY,       /* the link can be used */
};

/* The command of the server that deletes a key if it has a certain value. */
enum dibs__delete_if {
    DIBS__DELETE_IF_NONE, /* or its version is not known */
    DIBS__DELETE_IF_EX,   /* DELEX key IFEQ value: Redis since 8.4 */
    DIBS__DELETE_IF_EQ,   /* DELIFEQ key value: Valkey since 9.0 */
};

/* What is known of the part that a server plays in its replication. */
enum dibs__role {
    DIBS__ROLE_UNKNOWN, /* the account may not ask */
    DIBS__ROLE_MASTER,
    DIBS__ROLE_REPLICA, /* or any other that takes no writes */
};

/* The connecting thread's. Which answer comes next; all zero: the first. */
struct dibs__greeting {
    size_t command;       /* its place in the table of greeting.c */
    int round;            /* of a command that is said once for each script: which script */
    bool no_eval;         /* the account may not use EVAL, so the server must be given the scripts */
    enum dibs__role role; /* only of a server that sentinels named */
};

/* What has to be known of a link to send scripts on it. The channel gives copies away. */
struct dibs__link_view {
    struct dibs__link_id id;
    bool may_publish;                /* to the endpoint's channel */
    bool cluster;                    /* the server is part of a cluster */
    bool sharded;                    /* where it is: there are sharded channels, and the right to use them */
    bool tracks_keys;                /* CLIENT TRACKING does what is needed here */
    bool tells_of_disk;              /* what WAITAOF answers is so */
    enum dibs__delete_if deletes_if; /* which command deletes a key by its value */
    uint64_t server;      /* a number for the server's process and its data: another one means that what was stored may
                             have been forgotten; 0: not known */
    atomic_uint *scripts; /* of the endpoint */
    uint64_t serial;      /* the channel's; of this connection, within the channel */
    uint64_t unended; /* the channel's; what was sent on connections up to this serial may still arrive; 0: on none */
    bool tracked;     /* the server tracks what is read here; guarded by the channel's mutex once ready */
    int64_t server_ahead_us; /* the server's clock minus ours, by one round trip too large at most; guarded by the
                                channel's mutex once ready */
};

/* Fields are the connecting thread's until the link is ready; then read-only, unless they say otherwise. */
struct dibs__link {
    struct dibs__endpoint *endpoint;
    enum dibs__link_use use;
    struct dibs__transport *transport;
    struct dibs__reader reader; /* the receiving thread's */
    enum dibs__link_state state;
    struct dibs__buffer out; /* the sending thread's; bytes of the greeting, later of a subscriber */

    struct dibs__link_id before; /* the link that this one replaces */
    struct dibs__greeting greeting;
    int64_t greeted_at; /* ours, ns, when the greeting was sent */

    struct dibs__link_view view; /* told by the answers to the greeting, but for what is the channel's */
    bool ended_before; /* told by them, too; the link before has ended at the server, or was another server's */
    char replication_id[DIBS__RUN_ID + 1]; /* and this; of the server's data; "": not known */
    char in[DIBS__IN];                     /* the receiving thread's; not on the stack, which may be small */
};

/*
 * Begins to connect. `before` is the link that this one replaces, or NULL.
 * NULL on failure, with the error filled.
 */
struct dibs__link *dibs__link_start(struct dibs__endpoint *endpoint, enum dibs__link_use use,
                                    const struct dibs__link_id *before, struct dibs__error *error);
void dibs__link_free(struct dibs__link *link); /* NULL is fine */

/*
 * Goes on as far as it can without blocking. until: when the whole try is given
 * up; each address has its share of that time. DIBS_OK: look at the state, and
 * while that is not DIBS__LINK_READY, call again as dibs__link_interest says.
 * Any other status: the try failed, and the caller must free the link.
 */
dibs_status dibs__link_step(struct dibs__link *link, int64_t now, int64_t until, struct dibs__error *error);

/* What to poll for in order to go on, and until when at the latest. Where the link is ready: to receive and send `out`.
 */
struct pollfd dibs__link_interest(struct dibs__link *link, int64_t *deadline);

/*
 * Blocks until the link is ready, at most until the deadline. DIBS_OK;
 * DIBS_TIMEOUT: the deadline passed, the try may go on; any other status: the
 * try failed.
 */
dibs_status dibs__link_finish(struct dibs__link *link, const struct dibs__clock *clock, int64_t deadline, int64_t until,
                              struct dibs__error *error);

/* The whole try took too long: fills the error, and returns its status. */
dibs_status dibs__link_give_up(struct dibs__link *link, struct dibs__error *error);

/*
 * Whether a later link can have the server end this one, which proves that
 * nothing that was sent on it can still arrive. Where that is not so, each ask
 * must carry the time after which the server must ignore it.
 */
bool dibs__link_can_be_ended(const struct dibs__link_id *id);

/*
 * Whether the server of the link has been replaced by another since: a finder
 * told so. The link must be given up, though the server may still answer. Any
 * thread, as long as the link is not freed.
 */
static inline bool dibs__link_is_outdated(const struct dibs__link *link)
{
    return dibs__endpoint_has_moved(link->endpoint, link->view.id.told);
}

/* Whether a server's version, such as "7.0.15", is that one or a later one. NULL is none. */
bool dibs__version_is_since(const char *version, long major, long minor, long patch);

/* The error of a link that is outdated; its status. */
dibs_status dibs__link_outdated(const struct dibs__link *link, struct dibs__error *error);

/* Of the transport: see transport.h. */
long dibs__link_send(struct dibs__link *link, const char *bytes, size_t size, struct dibs__error *error);
long dibs__link_receive(struct dibs__link *link, struct dibs__error *error); /* feeds the reader */
bool dibs__link_sleep(struct dibs__link *link);                              /* false: the transport can't */
struct pollfd dibs__link_poll(struct dibs__link *link, short want, int64_t *deadline);
enum dibs__sight dibs__link_look(struct dibs__link *link);
void dibs__link_shut(struct dibs__link *link);

/* Adds a command to `out`; NULL ends its words. False: no memory. */
bool dibs__link_say(struct dibs__link *link, const char *const *words);

/* Sends what `out` holds, as far as the transport takes it. */
dibs_status dibs__link_send_out(struct dibs__link *link, struct dibs__error *error);

/* Whether receiving is worth trying, now that poll(2) has answered with these events. */
bool dibs__link_may_receive(struct dibs__link *link, short revents);

/*
 * The next reply that is complete at *reply, to be freed with freeReplyObject;
 * NULL where there is none yet. DIBS_STORE_ERROR: the bytes are no reply;
 * DIBS_NO_MEMORY.
 */
dibs_status dibs__link_next_reply(struct dibs__link *link, redisReply **reply, struct dibs__error *error);

/* ---------------------------------------------------------------- greeting.c */

/* Writes the greeting to the link's `out`. Requires a link that has just connected. */
dibs_status dibs__greeting_begin(struct dibs__link *link, int64_t now, struct dibs__error *error);

/*
 * Takes the answers that are complete. When all that was sent is answered, the
 * link is ready, or has the next state, and what follows is in `out`. Any status
 * but DIBS_OK: the link is of no use.
 */
dibs_status dibs__greeting_take(struct dibs__link *link, struct dibs__error *error);

#endif
