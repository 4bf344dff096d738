/*
 * What the files of the sentinels' object share, and nobody else includes:
 *
 *     sentinel.c         what other files call: waiting for the master, the scheduler's part
 *     sentinel_round.c   which sentinel is asked when, and what its answers lead to
 *     sentinel_talk.c    the questions to one sentinel, and its answers
 *     sentinel_hosts.c   the sentinels that are known
 *     sentinel_survey.c  what each of them says
 *
 * Lock discipline
 *
 * The driving role is taken by one thread at a time, under `mutex`; whoever has
 * it goes on with the round, without the mutex. The scheduler's thread takes
 * the role in attend. A thread that waits for the master takes it where nobody
 * has it, since the scheduler's thread may not have started; that thread gives
 * the role back at the end of its wait, and wakes the scheduler's.
 *
 * A thread that waits while another has the role sleeps on `changed` until
 *     the master is known, a round has failed, the role is free, or its deadline.
 *
 * `mutex` is a leaf but for the endpoint's.
 */
#ifndef DIBS_REDIS_SENTINEL_PARTS_H
#define DIBS_REDIS_SENTINEL_PARTS_H

#include "redis/connector.h"
#include "redis/sentinel.h"
#include "redis/sentinel_hosts.h"

#define DIBS__SENTINEL_PAUSE_MS 100 /* the first pause between two rounds; at least half of it */

DIBS__MUTEX_CLASS(sentinel_mutex);

/* What comes next from the sentinel that is connected. */
enum dibs__sentinel_question {
    DIBS__ASKS_UNSUBSCRIBE, /* the answer to UNSUBSCRIBE; messages may come before */
    DIBS__ASKS_MASTER,
    DIBS__ASKS_OTHERS,    /* of SENTINEL SENTINELS */
    DIBS__ASKS_SUBSCRIBE, /* of SUBSCRIBE */
    DIBS__ASKS_NOTHING,   /* all was answered; messages come */
};

enum dibs__sentinel_state {
    DIBS__SENTINEL_PAUSES,   /* no sentinel is connected; a round is due at next_at */
    DIBS__SENTINEL_CONNECTS, /* a try is going on */
    DIBS__SENTINEL_ASKS,     /* questions are being answered */
    DIBS__SENTINEL_LISTENS,  /* all was answered */
};

struct dibs__sentinel {
    struct dibs__endpoint *master;       /* read-only after new */
    const struct dibs__clock *clock;     /* read-only after new */
    struct dibs__sentinel_config config; /* read-only after new, without its strings */

    struct dibs__sentinel_hosts hosts; /* the driving role's */
    size_t at;                         /* the driving role's; the host that is connected, or is to be next */
    enum dibs__sentinel_state state;   /* the driving role's */
    struct dibs__connector connector;  /* the driving role's; of the host `at` */
    struct dibs__link *link;           /* the driving role's; ready; NULL: none */
    int64_t until;                     /* the driving role's; when the answers must have come */
    int64_t heard_at;                  /* the driving role's; when something came last */
    enum dibs__sentinel_question next; /* the driving role's */
    bool subscribed;                   /* the driving role's; the sentinel tells of switches */
    bool switched;                     /* the driving role's; it told of one since it was asked last */
    char host[DIBS__HOST_MAX];         /* the driving role's; as the sentinel answered last; "": not at all */
    unsigned port;                     /* the driving role's */

    bool in_round;               /* the driving role's; no sentinel's answer was taken yet */
    bool doubting;               /* the driving role's; of the round: another server than before is looked for */
    size_t tried;                /* the driving role's; how many sentinels the round has asked */
    int64_t ended_at;            /* the driving role's; when the last round ended */
    int64_t next_at;             /* the driving role's; when the next may begin */
    struct dibs__backoff pauses; /* the driving role's; between rounds */

    atomic_uint failures; /* atomic; changed under mutex; how many rounds have failed */
    struct dibs__mutex mutex;
    pthread_cond_t changed;
    bool driven DIBS__GUARDED_BY(sentinel_mutex);                /* a thread has the driving role */
    struct dibs__error failure DIBS__GUARDED_BY(sentinel_mutex); /* of the last round that failed */
};

/* ----------------------------------------------------------------- sentinel.c */

/* Takes the driving role once nobody has it. False: somebody has it up to the deadline. */
bool dibs__sentinel_take(struct dibs__sentinel *sentinel, int64_t deadline) DIBS__EXCLUDES(sentinel_mutex);

/* Gives the role back, and wakes the scheduler's thread. */
void dibs__sentinel_leave(struct dibs__sentinel *sentinel) DIBS__EXCLUDES(sentinel_mutex);

/* ----------------------------------------------------------- sentinel_round.c */

/* The driving role's. Goes on as far as possible without blocking. */
void dibs__sentinel_step(struct dibs__sentinel *sentinel, int64_t now);

/* The driving role's: what to poll for before the next step, and until when at the latest. */
void dibs__sentinel_poll(struct dibs__sentinel *sentinel, struct pollfd *fd, int64_t *deadline);

/* ------------------------------------------------------------ sentinel_talk.c */

/* Sends all questions on the link. Any status but DIBS_OK: the link is of no use any more. */
dibs_status dibs__sentinel_ask(struct dibs__sentinel *sentinel, struct dibs__error *error);

/*
 * Takes what has come. Any status but DIBS_OK: the link is of no use any more;
 * DIBS_DENIED: the sentinel refused a question; DIBS_STORE_ERROR: what it said
 * is no sentinel's answer.
 */
dibs_status dibs__sentinel_listen(struct dibs__sentinel *sentinel, int64_t now, struct dibs__error *error);

/* An answer to SENTINEL GET-MASTER-ADDR-BY-NAME. False: it names no server. */
bool dibs__sentinel_read_master(const redisReply *reply, char host[DIBS__HOST_MAX], unsigned *port);

#endif
