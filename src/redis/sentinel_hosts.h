/* The known sentinels: those of the URL, and those that these told of. */
#ifndef DIBS_REDIS_SENTINEL_HOSTS_H
#define DIBS_REDIS_SENTINEL_HOSTS_H

#include "redis/connector.h"

#define DIBS__SENTINELS_LEARNED 16 /* at most this many sentinels are kept that the URL does not name */

/* Why a sentinel did not name the master in the last round. */
enum dibs__sentinel_fault {
    DIBS__FAULT_NONE,
    DIBS__FAULT_UNREACHED, /* there is no connection, or it broke */
    DIBS__FAULT_SILENT,
    DIBS__FAULT_DENIED,
    DIBS__FAULT_UNKNOWN,     /* the sentinel does not know the master */
    DIBS__FAULT_NO_SENTINEL, /* the answer is not that of a sentinel */
    DIBS__FAULT_NO_MEMORY,
};

/* Which reply comes next from a sentinel that is connected. */
enum dibs__sentinel_question {
    DIBS__ASKS_UNSUBSCRIBE, /* that to UNSUBSCRIBE; messages may come before it */
    DIBS__ASKS_EPOCH,       /* that to SENTINEL MASTER */
    DIBS__ASKS_MASTER,
    DIBS__ASKS_OTHERS,    /* that to SENTINEL SENTINELS */
    DIBS__ASKS_ID,        /* that to SENTINEL MYID */
    DIBS__ASKS_SUBSCRIBE, /* that to SUBSCRIBE */
    DIBS__ASKS_NOTHING,   /* everything was answered; only messages come */
};

enum dibs__sentinel_state {
    DIBS__SENTINEL_PAUSES,   /* not connected */
    DIBS__SENTINEL_CONNECTS, /* a try is going on */
    DIBS__SENTINEL_ASKS,     /* questions are being answered */
    DIBS__SENTINEL_LISTENS,  /* everything was answered */
};

/* Fields that name no other guard belong to the driving role (sentinel_parts.h). */
struct dibs__sentinel_host {
    struct dibs__endpoint endpoint; /* guards itself */
    bool given;                     /* read-only; the URL names this sentinel */
    uint64_t named;                 /* the last round in which another sentinel named this one, or it answered */
    enum dibs__sentinel_fault fault;
    enum dibs__sentinel_state state;
    struct dibs__connector connector;
    struct dibs__link *link; /* a link that is ready; NULL: none */
    int64_t until;           /* deadline for the connection, or for the answers */
    enum dibs__sentinel_question next;
    uint64_t tried;  /* the last round in which this sentinel was connected to, or asked */
    uint64_t asked;  /* the last round in which this sentinel was asked */
    bool subscribed; /* subscribed to switches */
    bool switched;   /* a switch was told since this sentinel was last asked */

    /* The answers. */
    bool answered;               /* all questions of the current round were answered */
    char master[DIBS__HOST_MAX]; /* "": this sentinel knows no master of that name */
    unsigned port;               /* of the master */
    int64_t epoch;               /* the config epoch of the master; -1: not known */
    size_t others;               /* number of other sentinels that this one knows */
    char id[DIBS__RUN_ID + 1];   /* id of this sentinel; "": not known */
};

/* Used by one thread at a time. All zero: there are none. */
struct dibs__sentinel_hosts {
    struct dibs__sentinel_host **hosts;
    size_t count;
    size_t given;
    size_t room;
};

/* Makes the sentinels of the URL, with the counters, the TLS and the rest of that endpoint. False: no memory. */
bool dibs__sentinel_hosts_init(struct dibs__sentinel_hosts *hosts, const struct dibs__endpoint *master,
                               const char *user, const char *password);

/* Copies all known sentinels. The copy must not outlive the endpoint. False: no memory. */
bool dibs__sentinel_hosts_copy(struct dibs__sentinel_hosts *out, const struct dibs__sentinel_hosts *hosts,
                               const struct dibs__endpoint *master);
void dibs__sentinel_hosts_free(struct dibs__sentinel_hosts *hosts);

/* Called when a round begins: no sentinel has a fault, has answered, or has told of a switch in it. */
void dibs__sentinel_hosts_begin(struct dibs__sentinel_hosts *hosts);

/* Adds a sentinel that another one names in that round. The places of the others stay the same. */
void dibs__sentinel_hosts_learn(struct dibs__sentinel_hosts *hosts, const char *name, unsigned port, uint64_t round);

/* Forgets those that the URL does not name, and that no sentinel has named since that round. */
void dibs__sentinel_hosts_forget(struct dibs__sentinel_hosts *hosts, uint64_t round);

/* Ends the connection, or the try to make one. */
void dibs__sentinel_host_drop(struct dibs__sentinel_host *host);

/*
 * Fills the error with a sentence that names each sentinel and its fault, and returns its status. master: the name of
 * the master.
 */
dibs_status dibs__sentinel_hosts_tell(const struct dibs__sentinel_hosts *hosts, const char *master,
                                      struct dibs__error *error);

#endif
