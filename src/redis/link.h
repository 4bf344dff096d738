/*
 * One connection to an endpoint, from the socket until it is ready for its use:
 * connected, let in, for commands its database selected and its scripts loaded,
 * and, where it takes the place of one that broke, that one ended at the server.
 *
 * It is a state machine that never blocks, so the scheduler's event loop can
 * drive it as well as a thread that waits for it. One thread at a time.
 */
#ifndef DIBS_REDIS_LINK_H
#define DIBS_REDIS_LINK_H

#include <hiredis/hiredis.h>

#include "base/clock.h"
#include "redis/buffer.h"
#include "redis/endpoint.h"
#include "redis/scripts.h"

/* What of a connection must be known to have the server end it later. */
struct dibs__link_id {
    int64_t client;  /* CLIENT ID; 0: not known */
    char run_id[41]; /* of the server; "": not known */
    bool may_kill;   /* the server lets us use CLIENT KILL */
};

/* What it is for. Subscriptions know no databases and run no scripts. */
enum dibs__link_use { DIBS__LINK_COMMANDS, DIBS__LINK_SUBSCRIPTIONS };

enum dibs__link_state { DIBS__LINK_CONNECTING, DIBS__LINK_GREETING, DIBS__LINK_KILLING, DIBS__LINK_READY };

struct dibs__link {
    struct dibs__endpoint *endpoint;
    enum dibs__link_use use;
    int fd;
    redisReader *reader;
    bool too_large; /* an answer claimed to be larger than any can be */
    enum dibs__link_state state;
    struct dibs__link_id id;
    struct dibs__link_id before;       /* the connection that this one replaces */
    bool ended_before;                 /* the server said that it has ended that one, or is another server */
    bool may_publish;                  /* to the endpoint's channel */
    bool cluster;                      /* the server says that it is part of a cluster */
    char replication_id[41];           /* of the data; "": not known */
    char shas[DIBS__SCRIPT_COUNT][41]; /* "": SCRIPT LOAD was refused, the text must be sent */
    int64_t server_ahead_us;           /* the server's clock less ours, too large by one round trip at most */
    int64_t greeted_at;                /* ours, ns, when the greeting was sent */
    struct dibs__buffer out;
    struct dibs__address addresses[DIBS__ADDRESSES_MAX];
    size_t address_count, address;               /* the one being tried */
    int64_t address_until;                       /* then the next one's turn comes; 0: not settled yet */
    bool backlog_full;                           /* of the Unix socket: it is to be tried again */
    unsigned asked, answered;                    /* commands of the greeting */
    unsigned loaded;                             /* scripts, or refused to be */
    unsigned char asks[13 + DIBS__SCRIPT_COUNT]; /* what each of them was */
    char in[16384];                              /* of dibs__link_receive: the stack of a thread may be no larger */
};

/*
 * Begins to connect; `before` is the link that this one replaces, or NULL.
 * NULL on failure, with the error filled.
 */
struct dibs__link *dibs__link_start(struct dibs__endpoint *endpoint, enum dibs__link_use use,
                                    const struct dibs__link_id *before, struct dibs__error *error);
void dibs__link_free(struct dibs__link *link); /* NULL is fine */

/*
 * Goes on as far as it can without blocking. until: when the whole attempt is
 * to be given up; each address has its share of that time. DIBS_OK: look at
 * state; while it isn't DIBS__LINK_READY, call again when dibs__link_interest
 * says so. Anything else: it failed, free it.
 */
dibs_status dibs__link_step(struct dibs__link *link, int64_t now, int64_t until, struct dibs__error *error);

/* What to poll for, and until when at the latest. */
struct pollfd dibs__link_interest(const struct dibs__link *link, int64_t now, int64_t *deadline);

/*
 * Blocks until it is ready, at most until the deadline. DIBS_OK;
 * DIBS_TIMEOUT: the deadline passed, it may go on; anything else: it failed.
 */
dibs_status dibs__link_finish(struct dibs__link *link, const struct dibs__clock *clock, int64_t deadline, int64_t until,
                              struct dibs__error *error);

/* The whole attempt took too long: fills the error. */
dibs_status dibs__link_give_up(struct dibs__link *link, struct dibs__error *error);

/*
 * A number for the server's process and its data, as the connection found them:
 * another number means that what was stored may have been forgotten. 0: not known.
 */
uint64_t dibs__link_server(const struct dibs__link *link);

/*
 * Whether a later connection can prove that this one is at its end, so that
 * nothing sent on it is still on the way. Where not, each ask must carry the
 * time after which the server is to ignore it.
 */
bool dibs__link_can_be_ended(const struct dibs__link_id *id);

/* Writes what it can: how many bytes, 0 where the socket is full, -1 with the error filled where it broke. */
long dibs__link_send(struct dibs__link *link, const char *bytes, size_t size, struct dibs__error *error);

/* Feeds the reader with what is there: like dibs__link_send. */
long dibs__link_receive(struct dibs__link *link, struct dibs__error *error);

/* What a look at the socket tells that takes nothing from it and waits for nothing. */
enum dibs__link_sight { DIBS__LINK_NOTHING_THERE, DIBS__LINK_BYTES_THERE, DIBS__LINK_AT_ITS_END };
enum dibs__link_sight dibs__link_look(const struct dibs__link *link);

/*
 * The next reply that is complete at *reply, to be freed with
 * freeReplyObject; NULL where there is none yet. DIBS_STORE_ERROR: the bytes
 * are no reply; DIBS_NO_MEMORY.
 */
dibs_status dibs__link_next_reply(struct dibs__link *link, redisReply **reply, struct dibs__error *error);

#endif
