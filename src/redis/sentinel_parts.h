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
 * The sentinels use the mutex of the master's endpoint. One thread at a time takes the driving role, under that mutex,
 * and then goes on with the round without the mutex, by one step. The scheduler's thread takes the role in attend. A
 * thread that waits for the master takes the role if nobody has it, because the scheduler's thread may not have started;
 * at the end of its wait it wakes the scheduler's thread.
 *
 * A thread that waits while another has the role sleeps on `changed`, which is signalled after each step, until the
 * master is known, a round has failed, the role is free, or its deadline.
 */
#ifndef DIBS_REDIS_SENTINEL_PARTS_H
#define DIBS_REDIS_SENTINEL_PARTS_H

#include "redis/sentinel.h"
#include "redis/sentinel_hosts.h"

#define DIBS__SENTINEL_PAUSE_MS                                                                                        \
    100 /* the first pause between two rounds lasts this long at most, and half of it at least */

struct dibs__sentinel {
    struct dibs__endpoint *master;       /* read-only after new */
    const struct dibs__clock *clock;     /* read-only after new */
    struct dibs__sentinel_config config; /* read-only after new; its strings are cleared */

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

/* ----------------------------------------------------------------- sentinel.c */

/* Takes the driving role once nobody has it. False: another thread had it until the deadline. */
bool dibs__sentinel_take(struct dibs__sentinel *sentinel, int64_t deadline) DIBS__EXCLUDES(dibs__endpoint_mutex);

/* Gives the role back, and wakes the scheduler's thread. */
void dibs__sentinel_leave(struct dibs__sentinel *sentinel) DIBS__EXCLUDES(dibs__endpoint_mutex);

/* ----------------------------------------------------------- sentinel_round.c */

/* Requires the driving role. Goes on as far as possible without blocking. */
void dibs__sentinel_step(struct dibs__sentinel *sentinel, int64_t now);

/*
 * Requires the driving role. Fills in what to poll for before the next step, and until when at the latest. Returns the
 * number of descriptors.
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

#endif
