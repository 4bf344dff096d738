/*
 * What the files of the sentinels' object share, and nobody else includes. doc/ARCHITECTURE.md says what each
 * file is for.
 *
 * Lock discipline
 *
 * The sentinels use the mutex of the master's endpoint. One thread at a time takes the driving role, under that mutex,
 * and then goes on with the round without the mutex, by one step. The scheduler's thread takes the role in attend. A
 * thread that waits for the master takes the role if nobody has it, because the scheduler's thread may not have
 * started; at the end of its wait it wakes the scheduler's thread.
 *
 * A thread that waits while another has the role sleeps on `changed`, which is signalled after each step, until the
 * master is known, a round has failed, the role is free, or its deadline.
 */
#ifndef DIBS_REDIS_SENTINEL_PARTS_H
#define DIBS_REDIS_SENTINEL_PARTS_H

#include "redis/connector.h"
#include "redis/sentinel.h"

#define DIBS__SENTINEL_PAUSE_MS                                                                                        \
    100 /* the first pause between two rounds lasts this long at most, and half of it at least */

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

/* Fields that name no other guard belong to the driving role. */
struct dibs__sentinel_host {
    struct dibs__endpoint endpoint; /* guards itself */
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
    bool no_failover;            /* of a survey: too few sentinels are up for one, this sentinel says */
};

/* Used by one thread at a time. All zero: there are none. */
struct dibs__sentinel_hosts {
    struct dibs__sentinel_host **hosts;
    size_t count;
    size_t given; /* those that the URL names, which come first */
    size_t room;
};

struct dibs__sentinel {
    struct dibs__endpoint *master; /* read-only after new */
    void (*wake)(void *context);   /* read-only after new */
    void *context;                 /* read-only after new; for wake */

    struct dibs__sentinel_hosts hosts; /* the driving role's */
    struct pollfd *fds;                /* the driving role's; has room for each host; for a thread that waits */
    int64_t epoch;                     /* the driving role's; config epoch of the master that was told; -1: not known */

    uint64_t round;   /* the driving role's; number of the last round; 0: there was none */
    bool in_round;    /* the driving role's; a round is going on, and has led to nothing yet */
    bool doubting;    /* the driving role's; the round looks for another server than before */
    bool news;        /* the driving role's; a sentinel has answered or failed since the votes were last counted */
    bool sure;        /* the driving role's; a majority named the master when the votes were last counted */
    bool lost;        /* the driving role's; a sentinel that listened was lost since the round began */
    int64_t began_at; /* the driving role's; when the round began */
    int64_t ended_at; /* the driving role's; when the last round ended */
    int64_t next_at;  /* the driving role's; when the next round may begin */
    struct dibs__backoff pauses; /* the driving role's; pauses between rounds */

    atomic_uint failures;                               /* atomic; number of rounds that have failed */
    pthread_cond_t changed;                             /* waited on with the mutex of the master's endpoint */
    bool driven DIBS__GUARDED_BY(dibs__endpoint_mutex); /* a thread has the driving role */
};

/* ----------------------------------------------------------- sentinel_hosts.c */

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

/* ----------------------------------------------------------- sentinel_round.c */

/* Requires the driving role. Goes on as far as possible without blocking. */
void dibs__sentinel_step(struct dibs__sentinel *sentinel, int64_t now);

/*
 * Requires the driving role. Fills in what to poll for before the next step, and lowers *deadline to the time of that
 * step at the latest. Returns the number of descriptors.
 */
size_t dibs__sentinel_poll(struct dibs__sentinel *sentinel, struct pollfd *fds, int64_t *deadline);

/* ------------------------------------------------------------ sentinel_vote.c */

struct dibs__sentinel_vote {
    const struct dibs__sentinel_host *best; /* a sentinel that names the winning master; NULL: none names a master */
    int64_t epoch;                          /* largest epoch told for that master; -1: not known */
    bool sure;                              /* a majority of the known sentinels supports that master */
};

/* Requires the driving role. Counts the answers of this round. */
struct dibs__sentinel_vote dibs__sentinel_count(const struct dibs__sentinel *sentinel);

/* ------------------------------------------------------------ sentinel_talk.c */

/* Sends all questions on the link. Any status but DIBS_OK: the link can't be used any more. */
dibs_status dibs__sentinel_ask(struct dibs__sentinel *sentinel, struct dibs__sentinel_host *host,
                               struct dibs__error *error);

/*
 * Takes what has come. Any status but DIBS_OK: the link can't be used any more. DIBS_DENIED: the sentinel refused a
 * question. DIBS_STORE_ERROR: what it said is not the answer of a sentinel.
 */
dibs_status dibs__sentinel_listen(struct dibs__sentinel *sentinel, struct dibs__sentinel_host *host,
                                  struct dibs__error *error);

/*
 * Reads the answer of the sentinel `shown` to SENTINEL GET-MASTER-ADDR-BY-NAME. If the sentinel does not know the name,
 * host and port stay as they are.
 */
dibs_status dibs__sentinel_read_master(const redisReply *reply, const char *shown, char host[DIBS__HOST_MAX],
                                       unsigned *port, struct dibs__error *error);

/* Takes the answer to SENTINEL MYID. If a sentinel is known by two names, both have the same id. */
void dibs__sentinel_take_id(struct dibs__sentinel_host *host, const redisReply *reply);

#endif
