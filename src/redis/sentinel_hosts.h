/* The sentinels that are known: those of the URL, and those that they told of. */
#ifndef DIBS_REDIS_SENTINEL_HOSTS_H
#define DIBS_REDIS_SENTINEL_HOSTS_H

#include "redis/connector.h"

#define DIBS__SENTINELS_LEARNED 16 /* of those that the URL does not name, so many are kept */

/* Why a sentinel did not name the master in the last round. */
enum dibs__sentinel_fault {
    DIBS__FAULT_NONE,
    DIBS__FAULT_UNREACHED, /* no connection, or it broke */
    DIBS__FAULT_SILENT,
    DIBS__FAULT_DENIED,
    DIBS__FAULT_UNKNOWN,     /* it does not know the master */
    DIBS__FAULT_NO_SENTINEL, /* what it answered no sentinel answers */
    DIBS__FAULT_NO_MEMORY,
};

/* What comes next from a sentinel that is connected. */
enum dibs__sentinel_question {
    DIBS__ASKS_UNSUBSCRIBE, /* the answer to UNSUBSCRIBE; messages may come before */
    DIBS__ASKS_EPOCH,       /* of SENTINEL MASTER */
    DIBS__ASKS_MASTER,
    DIBS__ASKS_OTHERS,    /* of SENTINEL SENTINELS */
    DIBS__ASKS_ID,        /* of SENTINEL MYID */
    DIBS__ASKS_SUBSCRIBE, /* of SUBSCRIBE */
    DIBS__ASKS_NOTHING,   /* all was answered; messages come */
};

enum dibs__sentinel_state {
    DIBS__SENTINEL_PAUSES,   /* not connected */
    DIBS__SENTINEL_CONNECTS, /* a try is going on */
    DIBS__SENTINEL_ASKS,     /* questions are being answered */
    DIBS__SENTINEL_LISTENS,  /* all was answered */
};

/* Each field that says no other guard is the driving role's (sentinel_parts.h). */
struct dibs__sentinel_host {
    struct dibs__endpoint endpoint; /* guards itself */
    bool given;                     /* read-only; the URL names it */
    uint64_t named;                 /* the last round in which a sentinel named it, or it answered */
    enum dibs__sentinel_fault fault;
    enum dibs__sentinel_state state;
    struct dibs__connector connector;
    struct dibs__link *link; /* ready; NULL: none */
    int64_t until;           /* when the connection, or the answers, must have come */
    enum dibs__sentinel_question next;
    uint64_t tried;  /* the last round in which it was connected to, or asked */
    uint64_t asked;  /* the last round in which it was asked */
    bool subscribed; /* it tells of switches */
    bool switched;   /* it told of one since it was asked last */

    /* The answers. */
    bool answered;               /* all questions of that round */
    char master[DIBS__HOST_MAX]; /* "": it knows none of that name */
    unsigned port;               /* of the master */
    int64_t epoch;               /* the config epoch of the master; -1: not known */
    size_t others;               /* how many other sentinels it knows */
    char id[DIBS__RUN_ID + 1];   /* its own; "": not known */
};

/* Used by one thread at a time. All zero: none. */
struct dibs__sentinel_hosts {
    struct dibs__sentinel_host **hosts;
    size_t count;
    size_t given;
    size_t room;
};

/* Those of the URL, with the counters, the TLS and the rest of that endpoint. False: no memory. */
bool dibs__sentinel_hosts_init(struct dibs__sentinel_hosts *hosts, const struct dibs__endpoint *master,
                               const char *user, const char *password);

/* A copy of all that are known, which lives as long as the endpoint. False: no memory. */
bool dibs__sentinel_hosts_copy(struct dibs__sentinel_hosts *out, const struct dibs__sentinel_hosts *hosts,
                               const struct dibs__endpoint *master);
void dibs__sentinel_hosts_free(struct dibs__sentinel_hosts *hosts);

/* In the round that begins no sentinel has a fault, has answered, or has told of a switch. */
void dibs__sentinel_hosts_begin(struct dibs__sentinel_hosts *hosts);

/* A sentinel that another one names in that round. Places of the others stay. */
void dibs__sentinel_hosts_learn(struct dibs__sentinel_hosts *hosts, const char *name, unsigned port, uint64_t round);

/* Forgets those that the URL does not name, and that no sentinel has named since that round. */
void dibs__sentinel_hosts_forget(struct dibs__sentinel_hosts *hosts, uint64_t round);

/* Ends what connection there is, or is being made. */
void dibs__sentinel_host_drop(struct dibs__sentinel_host *host);

/* Fills the error: a sentence that names each sentinel and its fault; its status. master: the name. */
dibs_status dibs__sentinel_hosts_tell(const struct dibs__sentinel_hosts *hosts, const char *master,
                                      struct dibs__error *error);

#endif
