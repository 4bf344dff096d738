/*
 * What the files of the sentinels' object share, and nobody else includes:
 *
 *     sentinel.c         what other files call: waiting for the master, the scheduler's part
 *     sentinel_round.c   which sentinel is asked when, and what its answers lead to
 *     sentinel_vote.c    which master the answers name together
 *     sentinel_talk.c    the questions to one sentinel, and its answers
 *     sentinel_hosts.c   the sentinels that are known
 *     sentinel_survey.c  what each of them says
 *
 * Lock discipline
 *
 * The mutex of the master's endpoint is that of the sentinels, too. The driving
 * role is taken by one thread at a time, under that mutex; whoever has the role
 * goes on with the round, without the mutex. The scheduler's thread takes
 * the role in attend. A thread that waits for the master takes it where nobody
 * has it, since the scheduler's thread may not have started; that thread gives
 * the role back at the end of its wait, and wakes the scheduler's.
 *
 * A thread that waits while another has the role sleeps on `changed` until
 *     the master is known, a round has failed, the role is free, or its deadline.
 */
#ifndef DIBS_REDIS_SENTINEL_PARTS_H
#define DIBS_REDIS_SENTINEL_PARTS_H

#include "redis/sentinel.h"
#include "redis/sentinel_hosts.h"

#define DIBS__SENTINEL_PAUSE_MS 100 /* the first pause between two rounds; at least half of it */

struct dibs__sentinel {
    struct dibs__endpoint *master;       /* read-only after new */
    const struct dibs__clock *clock;     /* read-only after new */
    struct dibs__sentinel_config config; /* read-only after new, without its strings */

    struct dibs__sentinel_hosts hosts; /* the driving role's */
    struct pollfd *fds;                /* the driving role's; room for each host, for a thread that waits */
    int64_t epoch;                     /* the driving role's; the config epoch of the master that was told; -1: not
                                          known */

    uint64_t round;              /* the driving role's; the number of the last one; 0: there was none */
    bool in_round;               /* the driving role's; it has led to nothing yet */
    bool doubting;               /* the driving role's; of the round: another server than before is looked for */
    bool news;                   /* the driving role's; a sentinel has answered, or failed, since they were counted */
    bool sure;                   /* the driving role's; a majority named the master when they were counted last */
    bool lost;                   /* the driving role's; one that listened is lost since the round began */
    int64_t began_at;            /* the driving role's; when the round began */
    int64_t ended_at;            /* the driving role's; when the last round ended */
    int64_t next_at;             /* the driving role's; when the next may begin */
    struct dibs__backoff pauses; /* the driving role's; between rounds */

    atomic_uint failures;                               /* atomic; how many rounds have failed */
    pthread_cond_t changed;                             /* waited for with the mutex of the master's endpoint */
    bool driven DIBS__GUARDED_BY(dibs__endpoint_mutex); /* a thread has the driving role */
};

/* ----------------------------------------------------------------- sentinel.c */

/* Takes the driving role once nobody has it. False: somebody has it up to the deadline. */
bool dibs__sentinel_take(struct dibs__sentinel *sentinel, int64_t deadline) DIBS__EXCLUDES(dibs__endpoint_mutex);

/* Gives the role back, and wakes the scheduler's thread. */
void dibs__sentinel_leave(struct dibs__sentinel *sentinel) DIBS__EXCLUDES(dibs__endpoint_mutex);

/* ----------------------------------------------------------- sentinel_round.c */

/* The driving role's. Goes on as far as possible without blocking. */
void dibs__sentinel_step(struct dibs__sentinel *sentinel, int64_t now);

/* The driving role's: what to poll for before the next step, and until when at the latest. Returns how many. */
size_t dibs__sentinel_poll(struct dibs__sentinel *sentinel, struct pollfd *fds, int64_t *deadline);

/* ------------------------------------------------------------ sentinel_vote.c */

struct dibs__sentinel_vote {
    const struct dibs__sentinel_host *best; /* whose answer counts first; NULL: none names a master */
    int64_t epoch;                          /* the largest of those that name that master; -1: not known */
    bool sure;                              /* a majority of the sentinels that are known stands behind it */
};

/* The driving role's. What those say together that have answered in this round. */
struct dibs__sentinel_vote dibs__sentinel_count(const struct dibs__sentinel *sentinel);

/* ------------------------------------------------------------ sentinel_talk.c */

/* Sends all questions on the link. Any status but DIBS_OK: the link is of no use any more. */
dibs_status dibs__sentinel_ask(struct dibs__sentinel *sentinel, struct dibs__sentinel_host *host,
                               struct dibs__error *error);

/*
 * Takes what has come. Any status but DIBS_OK: the link is of no use any more;
 * DIBS_DENIED: the sentinel refused a question; DIBS_STORE_ERROR: what it said
 * is no sentinel's answer.
 */
dibs_status dibs__sentinel_listen(struct dibs__sentinel *sentinel, struct dibs__sentinel_host *host,
                                  struct dibs__error *error);

/* An answer to SENTINEL GET-MASTER-ADDR-BY-NAME. False: it names no server. */
bool dibs__sentinel_read_master(const redisReply *reply, char host[DIBS__HOST_MAX], unsigned *port);

#endif
