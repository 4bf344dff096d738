/*
 * What the files that examine one server share; no other file includes it. doc/ARCHITECTURE.md says what each file is
 * for.
 *
 * An examination is the work of one thread, on a connection of its own.
 */
#ifndef DIBS_STORE_REDIS_EXAMINE_PARTS_H
#define DIBS_STORE_REDIS_EXAMINE_PARTS_H

#include "redis/inquiry.h"
#include "store/redis/redis_store.h"

#define DIBS__SERVER_NAME_MAX (DIBS__HOST_MAX + 8)

struct dibs__examining {
    struct dibs__redis_store *store;
    struct dibs__examination *examination;
    struct dibs__error *error;
    struct dibs__link *link;            /* a connection that is ready; NULL: none could be made */
    char server[DIBS__SERVER_NAME_MAX]; /* its name in findings */
    const redisReply *info;             /* during dibs__examine_info; NULL: the server did not tell */
    const char *no_info;                /* if info is NULL: why, as the end of a sentence */
    int64_t round_trip_ns;              /* the median */
    bool hears_changes;                 /* the account has all rights that are needed to be told of changes */
};

/* Reports a finding about the server: subject, verdict, remedy, and the text as for printf. */
#define DIBS__SAY(e, ...) dibs__found((e)->examination, (e)->server, __VA_ARGS__)

/*
 * Asks on the connection; each command is an array of words, which NULL ends. False: the examination of this server
 * ends; if that is because the connection broke, a finding says so.
 */
bool dibs__examining_ask(struct dibs__examining *e, const char *const *const *commands, size_t count,
                         redisReply **replies);

/* examine_info.c. False if dibs__examining_ask was. */
bool dibs__examine_info(struct dibs__examining *e);

/* examine_rights.c */
bool dibs__examine_rights(struct dibs__examining *e);

/* For a server that sentinels name. Findings that come later are about all sentinels. */
void dibs__examine_sentinels(struct dibs__examining *e);

#endif
