/* What INFO and CONFIG GET tell: version, role, eviction, persistence, replicas. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "redis/reply.h"
#include "store/redis/examine_parts.h"

#define NUMBER_MAX 24
#define WORD_MAX 64
#define NEARLY_FULL 90 /* per cent of maxmemory */

static const char give_info[] = "Give the account the right to INFO (+info), so that this can be looked at.";

/* ------------------------------------------------------------------------- INFO */

/* Reads a field of INFO, up to the end of its line. False: it is not there. */
static bool read_text(const struct dibs__examining *e, const char *field, char *out, size_t size)
{
    size_t length = strlen(field);

    out[0] = '\0';
    for (const char *at = e->info ? e->info->str : NULL; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (strncmp(at, field, length) != 0 || at[length] != ':')
            continue;
        at += length + 1;
        size_t end = strcspn(at, "\r\n");
        snprintf(out, size, "%.*s", (int)end, at);
        return true;
    }
    return false;
}

static bool info_number(const struct dibs__examining *e, const char *field, int64_t *out)
{
    char text[NUMBER_MAX];

    *out = 0;
    if (!read_text(e, field, text, sizeof text))
        return false;
    *out = strtoll(text, NULL, 10);
    return true;
}

static bool info_is(const struct dibs__examining *e, const char *field, const char *value)
{
    char text[WORD_MAX];

    return read_text(e, field, text, sizeof text) && strcmp(text, value) == 0;
}

/* Reports that `what` is not known, because the server does not tell. */
static void say_unknown(struct dibs__examining *e, const char *subject, const char *what)
{
    DIBS__SAY(e, subject, DIBS_VERDICT_WARN, give_info, "%s is not known: %s.", what,
              e->info ? "INFO does not say so" : e->no_info);
}

/* ---------------------------------------------------------------------- version */

static void tell_version(struct dibs__examining *e)
{
    char redis[WORD_MAX], valkey[WORD_MAX];

    if (!read_text(e, "redis_version", redis, sizeof redis)) {
        say_unknown(e, "version", "The server's version");
        return;
    }
    if (read_text(e, "valkey_version", valkey, sizeof valkey))
        DIBS__SAY(e, "version", DIBS_VERDICT_OK, "", "Valkey %s.%s", valkey,
                  dibs__version_is_since(valkey, 8, 0, 0) ? " It tells too early that something is on its disk, so "
                                                            "durable can't be had with it."
                                                          : "");
    else if (!dibs__version_is_since(redis, 5, 0, 0))
        DIBS__SAY(e, "version", DIBS_VERDICT_BAD, "Use Redis 7.2 or later, or Valkey.",
                  "Redis %s is too old: it does not run scripts that ask for the time and then write.", redis);
    else if (!dibs__version_is_since(redis, 7, 0, 5))
        DIBS__SAY(e, "version", DIBS_VERDICT_WARN, "Use Redis 7.2 or later, or Valkey.",
                  "Redis %s can't tell of locks that change; that takes 7.0.5.", redis);
    else if (dibs__version_is_since(redis, 7, 4, 0) && !dibs__version_is_since(redis, 7, 4, 3))
        DIBS__SAY(e, "version", DIBS_VERDICT_WARN, "Use Redis 7.4.3 or later.",
                  "Redis %s tells too early that something is on its disk, so durable can't be had with it.", redis);
    else
        DIBS__SAY(e, "version", DIBS_VERDICT_OK, "", "Redis %s.%s", redis,
                  !dibs__version_is_since(redis, 7, 2, 0) ? " It has no durable; that takes 7.2." : "");
}

/* ------------------------------------------------------------------------- role */

static void tell_role(struct dibs__examining *e)
{
    char host[WORD_MAX], port[NUMBER_MAX], remedy[DIBS__FINDING_MAX];

    if (info_is(e, "role", "master")) {
        DIBS__SAY(e, "role", DIBS_VERDICT_OK, "", "The server is a master.");
        return;
    }
    if (!info_is(e, "role", "slave")) {
        say_unknown(e, "role", "Whether the server is a master");
        return;
    }
    read_text(e, "master_host", host, sizeof host);
    read_text(e, "master_port", port, sizeof port);
    snprintf(remedy, sizeof remedy, "Use the URL of its master, which is %s:%s.", host, port);
    DIBS__SAY(e, "role", DIBS_VERDICT_BAD, remedy, "The server is a replica: it grants no locks.");
}

/* --------------------------------------------------------------------- eviction */

static void tell_memory(struct dibs__examining *e, int64_t most)
{
    int64_t used, not_counted;

    info_number(e, "used_memory", &used);
    info_number(e, "mem_not_counted_for_evict", &not_counted); /* what replicas and the disk have not got yet */
    used -= not_counted;
    if (most > 0 && used / NEARLY_FULL * 100 > most)
        DIBS__SAY(e, "eviction", used > most ? DIBS_VERDICT_BAD : DIBS_VERDICT_WARN,
                  "Set a larger maxmemory, or store less there.",
                  "The server evicts nothing (noeviction), but %" PRId64 " of %" PRId64
                  " bytes are in use: a server without memory refuses locks.",
                  used, most);
    else
        DIBS__SAY(e, "eviction", DIBS_VERDICT_OK, "", "The server evicts nothing (noeviction).");
}

static void tell_eviction(struct dibs__examining *e)
{
    static const char remedy[] = "Set maxmemory-policy noeviction, or keep the locks in a server of their own.";
    char policy[WORD_MAX];
    int64_t most, evicted;

    if (!read_text(e, "maxmemory_policy", policy, sizeof policy)) {
        say_unknown(e, "eviction", "Whether the server may evict locks");
        return;
    }
    bool limited = info_number(e, "maxmemory", &most) && most > 0;
    info_number(e, "evicted_keys", &evicted);
    if (strcmp(policy, "noeviction") == 0)
        tell_memory(e, limited ? most : 0);
    else if (limited)
        DIBS__SAY(e, "eviction", DIBS_VERDICT_BAD, remedy,
                  "The server evicts keys once %" PRId64 " bytes are in use (%s), also locks that are held: "
                  "another thread is then granted them. It has evicted %" PRId64 " keys so far.",
                  most, policy, evicted);
    else
        DIBS__SAY(e, "eviction", DIBS_VERDICT_WARN, remedy,
                  "The server evicts nothing as long as maxmemory is 0. Once that is set, it evicts keys (%s), "
                  "also locks that are held.",
                  policy);
}

/* ------------------------------------------------------------------ persistence */

/* What CONFIG GET tells; "" if it does not. */
struct disk {
    char fsync[WORD_MAX], save[WORD_MAX], pauses[WORD_MAX]; /* pauses: no-appendfsync-on-rewrite */
    bool save_known;
};

/* {parameter, value} */
static bool read_config(const redisReply *reply, char *out, size_t size)
{
    out[0] = '\0';
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 || reply->element[1]->type != REDIS_REPLY_STRING)
        return false;
    snprintf(out, size, "%s", reply->element[1]->str);
    return true;
}

static void tell_log(struct dibs__examining *e, const struct disk *disk)
{
    bool durable = e->store->config.durable, member = e->store->config.is_member;
    static const char remedy[] = "Set appendfsync always; or, from Redis 7.2 on, appendfsync everysec, and open the "
                                 "runtime with durable: 1 (dibs run --durable).";
    static const char of_member[] = "Set appendfsync always; or appendonly no and save \"\", so that the master which "
                                    "forgets knows that it did.";

    if (strcmp(disk->fsync, "always") == 0 && strcmp(disk->pauses, "yes") == 0)
        DIBS__SAY(e, "persistence", DIBS_VERDICT_WARN, "Set no-appendfsync-on-rewrite no.",
                  "The append-only file is written to the disk before each answer (appendfsync always), but not while "
                  "the server rewrites it or makes a snapshot (no-appendfsync-on-rewrite yes): when the machine fails "
                  "then, the server forgets the last grants.");
    else if (strcmp(disk->fsync, "always") == 0)
        DIBS__SAY(e, "persistence", DIBS_VERDICT_OK, "",
                  "The append-only file is written to the disk before each answer (appendfsync always).");
    else if (durable && strcmp(disk->fsync, "no") == 0)
        DIBS__SAY(e, "persistence", DIBS_VERDICT_BAD, "Set appendfsync everysec, or always.",
                  "No lock is granted: the append-only file is written to the disk when the system likes "
                  "(appendfsync no), and a grant counts only once it is on the disk (durable).");
    else if (durable)
        DIBS__SAY(e, "persistence", DIBS_VERDICT_OK, "",
                  "There is an append-only file, and a grant counts only once it is on the disk (durable).");
    else if (!disk->fsync[0])
        DIBS__SAY(e, "persistence", DIBS_VERDICT_WARN, "Give the account the right to CONFIG GET (+config|get).",
                  "There is an append-only file, but how often it is written to the disk is not known, because "
                  "the server does not answer CONFIG GET.");
    else
        DIBS__SAY(e, "persistence", DIBS_VERDICT_WARN, member ? of_member : remedy,
                  "The append-only file is written to the disk %s: when the machine fails, the server forgets "
                  "the last grants%s.",
                  strcmp(disk->fsync, "no") == 0 ? "when the system likes (appendfsync no)"
                                                 : "once a second (appendfsync everysec)",
                  member ? ", but not that it may vote, and votes for others" : "");
}

static void tell_no_log(struct dibs__examining *e, const struct disk *disk)
{
    bool member = e->store->config.is_member, saves = disk->save_known && disk->save[0];
    static const char remedy[] = "Set appendonly yes and appendfsync always; or, from Redis 7.2 on, appendonly yes and "
                                 "durable: 1 (dibs run --durable).";
    static const char of_member[] = "Set appendonly yes and appendfsync always; or save \"\", so that the master which "
                                    "forgets knows that it did.";

    if (saves)
        DIBS__SAY(e, "persistence", DIBS_VERDICT_WARN, member ? of_member : remedy,
                  "There are only snapshots: when the server dies, it comes back with the locks of its last "
                  "snapshot%s.",
                  member ? " and the right to vote" : ", and grants those that were taken since once more");
    else if (member && disk->save_known)
        DIBS__SAY(e, "persistence", DIBS_VERDICT_OK, "",
                  "Nothing is kept over a restart. A master of a quorum may do so: it then does not vote until "
                  "the longest lease is over.");
    else
        DIBS__SAY(e, "persistence", DIBS_VERDICT_WARN, remedy,
                  "There is no append-only file%s: a server that restarts forgets the locks, and may grant them "
                  "to others before their holders have restored them.",
                  disk->save_known ? " and no snapshot"
                                   : ", and whether there are snapshots is not known (CONFIG GET)");
}

static void tell_persistence(struct dibs__examining *e, const struct disk *disk)
{
    int64_t log;

    if (!info_number(e, "aof_enabled", &log))
        say_unknown(e, "persistence", "What the server keeps over a restart");
    else if (log && info_is(e, "aof_last_write_status", "err"))
        DIBS__SAY(e, "persistence", DIBS_VERDICT_BAD, "See the server's log, and whether its disk is full.",
                  "The last write to the append-only file failed: the server refuses locks.");
    else if (info_is(e, "rdb_last_bgsave_status", "err") && !(disk->save_known && !disk->save[0]))
        DIBS__SAY(e, "persistence", DIBS_VERDICT_BAD, "See the server's log, and whether its disk is full.",
                  "The last snapshot failed: the server may refuse locks (stop-writes-on-bgsave-error).");
    else if (log)
        tell_log(e, disk);
    else
        tell_no_log(e, disk);
}

/* --------------------------------------------------------------------- replicas */

static void tell_without_replicas(struct dibs__examining *e)
{
    if (e->store->config.node || e->store->endpoint.url.kind == DIBS__URL_SENTINEL)
        DIBS__SAY(e, "replicas", DIBS_VERDICT_WARN, "Give this master a replica.",
                  "The master has no replica: nothing can take its place when it fails.");
    else
        DIBS__SAY(e, "replicas", DIBS_VERDICT_OK, "",
                  "There are no replicas, so there is no failover that could forget locks.");
}

/*
 * Whether the server itself refuses to write for lack of replicas. INFO tells how many are near it only where
 * min-replicas-to-write is set. least: what CONFIG GET tells of that; 0: nothing, so it is 1 at least.
 */
static bool tell_lack_of_replicas(struct dibs__examining *e, int64_t least)
{
    int64_t near_it;

    if (!info_is(e, "role", "master") || !info_number(e, "min_slaves_good_slaves", &near_it) ||
        near_it >= (least > 0 ? least : 1))
        return false;
    DIBS__SAY(e, "replicas", DIBS_VERDICT_BAD, "Start the replicas that are missing, or lower min-replicas-to-write.",
              "Replicas in step: %" PRId64 ". The server wants more (min-replicas-to-write), so it refuses locks.",
              near_it);
    return true;
}

static void tell_replicas(struct dibs__examining *e, int64_t least)
{
    uint32_t wanted = e->store->config.min_replicas;
    int64_t count;

    if (tell_lack_of_replicas(e, least))
        return;
    if (!info_number(e, "connected_slaves", &count))
        say_unknown(e, "replicas", "How many replicas the server has");
    else if (wanted > 0 && count < wanted)
        DIBS__SAY(e, "replicas", DIBS_VERDICT_BAD, "Start the replicas that are missing, or lower min_replicas.",
                  "Connected replicas: %" PRId64 ". min_replicas wants %" PRIu32 ", so no lock is granted.", count,
                  wanted);
    else if (count == 0)
        tell_without_replicas(e);
    else if (wanted > 0)
        DIBS__SAY(e, "replicas", DIBS_VERDICT_OK, "",
                  "Connected replicas: %" PRId64 ". A grant counts once min_replicas (%" PRIu32 ") of them have it.",
                  count, wanted);
    else if (e->store->config.is_member)
        DIBS__SAY(e, "replicas", DIBS_VERDICT_WARN, "Let no replica take the place of a master of a quorum.",
                  "Connected replicas: %" PRId64 ". One that becomes the master may lack the last grants, but "
                  "knows that it may vote.",
                  count);
    else
        DIBS__SAY(e, "replicas", DIBS_VERDICT_WARN,
                  "Set min_replicas to 1 or more (--min-replicas of dibs run, hold and doctor).",
                  "Connected replicas: %" PRId64 ". A grant does not wait for them (min_replicas is 0): a "
                  "failover forgets what the new master has not heard of.",
                  count);
}

/* ------------------------------------------------------------------------ asking */

bool dibs__examine_info(struct dibs__examining *e)
{
    enum { INFO, FSYNC, SAVE, PAUSES, REPLICAS, QUESTIONS };
    static const char *const words[QUESTIONS][4] = {{"INFO"},
                                                    {"CONFIG", "GET", "appendfsync"},
                                                    {"CONFIG", "GET", "save"},
                                                    {"CONFIG", "GET", "no-appendfsync-on-rewrite"},
                                                    {"CONFIG", "GET", "min-replicas-to-write"}};
    static const char *const *const commands[QUESTIONS] = {words[INFO], words[FSYNC], words[SAVE], words[PAUSES],
                                                           words[REPLICAS]};
    redisReply *replies[QUESTIONS];
    struct disk disk;
    char least[NUMBER_MAX];

    if (!dibs__examining_ask(e, commands, QUESTIONS, replies))
        return false;
    e->info = replies[INFO]->type == REDIS_REPLY_STRING ? replies[INFO] : NULL;
    e->no_info = dibs__reply_is_error(replies[INFO], "NOPERM") ? "the account may not use INFO"
                                                               : "the server does not answer INFO";
    read_config(replies[FSYNC], disk.fsync, sizeof disk.fsync);
    read_config(replies[PAUSES], disk.pauses, sizeof disk.pauses);
    read_config(replies[REPLICAS], least, sizeof least);
    disk.save_known = read_config(replies[SAVE], disk.save, sizeof disk.save);
    tell_version(e);
    tell_role(e);
    tell_eviction(e);
    tell_persistence(e, &disk);
    tell_replicas(e, strtoll(least, NULL, 10));
    e->info = NULL;
    dibs__inquiry_free(replies, QUESTIONS);
    return true;
}
