/*
 * Which commands the account may not use, or the server does not know: each is
 * tried by words that change nothing. Keys are named that nobody has; a server
 * checks the right before it finds fault with the words.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "redis/reply.h"
#include "redis/scripts.h"
#include "store/redis/examine_parts.h"
#include "store/redis/keys.h"

#define WORDS_MAX 6
#define NOBODYS_ID "9223372036854775807"
#define NO_SCRIPT "0000000000000000000000000000000000000000"
#define CHANGES_CHANNEL "__redis__:invalidate"

/* Words that stand for something else. They are compared by address. */
static const char LOCK[] = "the key of a lock", FENCE[] = "its fence", QUEUE[] = "its queue";
static const char CHANNEL[] = "a channel", CHANGES[] = CHANGES_CHANNEL, CLIENT_NAME[] = "the name of this client";

enum when {
    ALWAYS,
    WITH_REPLICAS, /* min_replicas */
    DURABLE,
    ON_CLUSTER,
    SUBSCRIBED, /* behind all others: after SUBSCRIBE a connection can't be asked for anything else */
    SUBSCRIBED_ON_CLUSTER
};

struct trial {
    const char *name, *rule; /* of the command, and as ACL SETUSER has it */
    const char *words[WORDS_MAX];
    const char *lost; /* what of dibs does not work without it */
    dibs_verdict verdict;
    enum when when;
    bool hears; /* being told of changes needs it */
};

#define BAD DIBS_VERDICT_BAD
#define WARN DIBS_VERDICT_WARN
#define NOT_SHARED "a lock can't be shared"

static const struct trial trials[] = {
    {"EVALSHA",
     "+evalsha",
     {"EVALSHA", NO_SCRIPT, "0"},
     "the text of a script is sent with each call",
     WARN,
     ALWAYS,
     0},
    {"EVAL", "+eval", {"EVAL", "return 1", "0"}, "after SCRIPT FLUSH locks are refused for a while", WARN, ALWAYS, 0},
    {"SCRIPT EXISTS",
     "+script|exists",
     {"SCRIPT", "EXISTS", NO_SCRIPT},
     "each process sends all scripts",
     WARN,
     ALWAYS,
     0},
    {"GET", "+get", {"GET", LOCK}, "no lock can be taken", BAD, ALWAYS, 0},
    {"MGET", "+mget", {"MGET", LOCK}, "leases are not renewed, and end while their locks are held", BAD, ALWAYS, 0},
    {"SET", "+set", {"SET", LOCK, "x", "XX"}, "no lock can be taken", BAD, ALWAYS, 0},
    {"INCRBY", "+incrby", {"INCRBY", FENCE, "x"}, "a grant takes the server a little longer", WARN, ALWAYS, 0},
    {"DEL", "+del", {"DEL", LOCK}, "no lock can be released", BAD, ALWAYS, 0},
    {"EXISTS", "+exists", {"EXISTS", LOCK}, "no lock can be taken", BAD, ALWAYS, 0},
    {"PTTL", "+pttl", {"PTTL", LOCK}, "who finds a lock taken is refused", BAD, ALWAYS, 0},
    {"PEXPIRE",
     "+pexpire",
     {"PEXPIRE", LOCK, "1"},
     "leases are not renewed, and end while their locks are held",
     BAD,
     ALWAYS,
     0},
    {"TIME", "+time", {"TIME"}, "no lock can be taken", BAD, ALWAYS, 0},
    {"PING",
     "+ping",
     {"PING"},
     "a waiter is told a little later, and a dead connection is noticed later",
     WARN,
     ALWAYS,
     0},
    {"HSET", "+hset", {"HSET", QUEUE, "a", "b", "c"}, "who waits for a lock is refused", BAD, ALWAYS, 0},
    {"HGET", "+hget", {"HGET", QUEUE, "a"}, "no lock can be taken", BAD, ALWAYS, 0},
    {"HMGET",
     "+hmget",
     {"HMGET", QUEUE, "a"},
     "shared locks are refused, and one whose queue somebody has left can't be released",
     BAD,
     ALWAYS,
     0},
    {"HDEL", "+hdel", {"HDEL", QUEUE, "a"}, "a lock that several wait for can't be released", BAD, ALWAYS, 0},
    {"HKEYS", "+hkeys", {"HKEYS", QUEUE}, "a queue that many have left can't be served", WARN, ALWAYS, 0},
    {"HLEN", "+hlen", {"HLEN", QUEUE}, "dibs_query, dibs_list and dibs_force_unlock are refused", WARN, ALWAYS, 0},
    {"ZADD", "+zadd", {"ZADD", QUEUE, "XX", "0", "a"}, NOT_SHARED, WARN, ALWAYS, 0},
    {"ZREM", "+zrem", {"ZREM", QUEUE, "a"}, NOT_SHARED, WARN, ALWAYS, 0},
    {"ZRANGE", "+zrange", {"ZRANGE", QUEUE, "0", "0"}, NOT_SHARED, WARN, ALWAYS, 0},
    {"ZRANGEBYSCORE", "+zrangebyscore", {"ZRANGEBYSCORE", QUEUE, "0", "0"}, NOT_SHARED, WARN, ALWAYS, 0},
    {"ZCARD", "+zcard", {"ZCARD", QUEUE}, NOT_SHARED, WARN, ALWAYS, 0},
    {"INFO",
     "+info",
     {"INFO", "server"},
     "nothing is restored after a restart or a failover, because one server is not told from another",
     WARN,
     ALWAYS,
     1},
    {"CLIENT ID",
     "+client|id",
     {"CLIENT", "ID"},
     "what is left of a connection that broke can't be ended",
     WARN,
     ALWAYS,
     1},
    {"CLIENT SETNAME",
     "+client|setname",
     {"CLIENT", "SETNAME", CLIENT_NAME},
     "CLIENT LIST does not show the label",
     WARN,
     ALWAYS,
     0},
    {"CLIENT KILL",
     "+client|kill",
     {"CLIENT", "KILL", "ID", NOBODYS_ID},
     "what is left of a connection that broke can't be ended: an ask that was never answered loses its place",
     WARN,
     ALWAYS,
     0},
    {"CLIENT TRACKING",
     "+client|tracking",
     {"CLIENT", "TRACKING", "OFF"},
     "the server does not tell of locks that change",
     WARN,
     ALWAYS,
     1},
    {"CLIENT CACHING",
     "+client|caching",
     {"CLIENT", "CACHING", "NO"},
     "what is deleted in the background is tracked, which costs the server time",
     WARN,
     ALWAYS,
     0},
    {"PUBLISH",
     "+publish",
     {"PUBLISH", CHANNEL, ""},
     "waiters ask every 50 to 100 ms, and DIBS_FAIR is refused",
     WARN,
     ALWAYS,
     0},
    {"PUBSUB NUMSUB",
     "+pubsub|numsub",
     {"PUBSUB", "NUMSUB", CHANNEL},
     "waiters ask every 50 to 100 ms, and DIBS_FAIR is refused",
     WARN,
     ALWAYS,
     0},
    {"SCAN", "+scan", {"SCAN", "0", "COUNT", "1"}, "dibs_list is refused", WARN, ALWAYS, 0},
    {"WAIT", "+wait", {"WAIT", "0", "1"}, "with min_replicas no lock is granted", BAD, WITH_REPLICAS, 0},
    {"WAITAOF", "+waitaof", {"WAITAOF", "0", "0", "1"}, "with durable no lock is granted", BAD, DURABLE, 0},
    {"CLUSTER SLOTS",
     "+cluster|slots",
     {"CLUSTER", "SLOTS"},
     "the node does not tell who has which slots",
     WARN,
     ON_CLUSTER,
     0},
    {"SPUBLISH",
     "+spublish",
     {"SPUBLISH", CHANNEL, ""},
     "grants are told to all nodes of the cluster",
     WARN,
     ON_CLUSTER,
     0},
    {"PUBSUB SHARDNUMSUB",
     "+pubsub|shardnumsub",
     {"PUBSUB", "SHARDNUMSUB"},
     "grants are told to all nodes of the cluster",
     WARN,
     ON_CLUSTER,
     0},
    {"SUBSCRIBE",
     "+subscribe",
     {"SUBSCRIBE", CHANNEL},
     "waiters ask every 50 to 100 ms, and DIBS_FAIR is refused",
     WARN,
     SUBSCRIBED,
     1},
    {"SUBSCRIBE",
     "+subscribe",
     {"SUBSCRIBE", CHANGES},
     "the server does not tell of locks that change",
     WARN,
     SUBSCRIBED,
     1},
    {"SSUBSCRIBE",
     "+ssubscribe",
     {"SSUBSCRIBE", CHANNEL},
     "grants are told to all nodes of the cluster",
     WARN,
     SUBSCRIBED_ON_CLUSTER,
     0},
};
#define TRIALS (sizeof trials / sizeof trials[0])

/* Rights to keys and channels; each that is missing is told once. */
static const struct trial patterns[] = {
    {"the keys of locks", "~%s*", {NULL}, "no lock can be taken", BAD, ALWAYS, 0},
    {"the keys that begin with dibs:", "~dibs:*", {NULL}, "no lock can be taken", BAD, ALWAYS, 0},
    {"the channels that begin with dibs:",
     "&dibs:*",
     {NULL},
     "waiters ask every 50 to 100 ms, and DIBS_FAIR is refused",
     WARN,
     ALWAYS,
     0},
    {"the channel " CHANGES_CHANNEL,
     "&" CHANGES_CHANNEL,
     {NULL},
     "the server does not tell of locks that change",
     WARN,
     ALWAYS,
     0},
};
#define PATTERNS (sizeof patterns / sizeof patterns[0])

/* What the words of the trials stand for; and what was told already. Some KiB: on the heap. */
struct meaning {
    struct dibs__key keys[DIBS__KEYS];
    char channel[DIBS__CHANNEL_MAX];
    bool told[PATTERNS];
    bool lacks;   /* a right */
    bool unknown; /* a command */
};

static void make_meaning(const struct dibs__examining *e, struct meaning *meaning)
{
    uint64_t random = 0;
    char name[64];

    dibs__random_bytes(&random, sizeof random);
    snprintf(name, sizeof name, "dibs-examine-%016" PRIx64, random);
    for (int i = 0; i < DIBS__KEYS; i++)
        dibs__key_of(&meaning->keys[i], (enum dibs__key_kind)i, e->store->config.key_prefix, name);
    snprintf(meaning->channel, sizeof meaning->channel, "dibs:examine:%016" PRIx64, random);
}

static const char *meaning_of(const struct dibs__examining *e, const struct meaning *meaning, const char *word)
{
    if (word == LOCK)
        return meaning->keys[DIBS__KEY_LOCK].bytes;
    if (word == FENCE)
        return meaning->keys[DIBS__KEY_FENCE].bytes;
    if (word == QUEUE)
        return meaning->keys[DIBS__KEY_QUEUE].bytes;
    if (word == CHANNEL)
        return meaning->channel;
    return word == CLIENT_NAME ? e->store->endpoint.client_name : word;
}

/* ----------------------------------------------------------------- what is told */

static void tell_missing(struct dibs__examining *e, const struct trial *trial, const char *rule)
{
    const char *user = e->store->endpoint.url.user ? e->store->endpoint.url.user : "default";
    char remedy[DIBS__FINDING_MAX];

    snprintf(remedy, sizeof remedy, "ACL SETUSER %.64s %s", user, rule);
    dibs__examining_say(e, "rights", trial->verdict, remedy, "The account may not use %s, so %s.", trial->name,
                        trial->lost);
}

/* The right to a key or a channel is missing. */
static void tell_pattern(struct dibs__examining *e, struct meaning *meaning, const struct trial *trial)
{
    bool of_channel = trial->when >= ON_CLUSTER || !strcmp(trial->name, "PUBLISH");
    size_t at = of_channel ? (trial->words[1] == CHANNEL ? 2 : 3) : (trial->words[1] == LOCK ? 0 : 1);
    char rule[DIBS__PREFIX_MAX + 4];

    if (meaning->told[at])
        return;
    meaning->told[at] = true;
    if (at == 0)
        snprintf(rule, sizeof rule, "~%s*", e->store->config.key_prefix);
    else
        snprintf(rule, sizeof rule, "%s", patterns[at].rule);
    tell_missing(e, &patterns[at], rule);
}

static bool is_unknown(const redisReply *reply)
{
    return dibs__reply_is_error(reply, "ERR unknown command") ||
           dibs__reply_is_error(reply, "ERR unknown subcommand") ||
           dibs__reply_is_error(reply, "ERR Unknown subcommand") ||
           dibs__reply_is_error(reply, "ERR Unknown PUBSUB subcommand");
}

static void judge(struct dibs__examining *e, struct meaning *meaning, const struct trial *trial,
                  const redisReply *reply)
{
    bool forbidden = dibs__reply_is_error(reply, "NOPERM"), unknown = is_unknown(reply);

    if (!forbidden && !unknown)
        return;
    if (trial->hears)
        e->hears_changes = false;
    if (forbidden)
        meaning->lacks = true;
    if (unknown) /* told behind all that concerns rights */
        meaning->unknown = true;
    else if (!strstr(reply->str, "run the"))
        tell_pattern(e, meaning, trial);
    else if (trial->words[1] != CHANGES)
        tell_missing(e, trial, trial->rule);
}

/* -------------------------------------------------------------------- the trials */

static bool is_tried(const struct dibs__examining *e, const struct trial *trial, bool subscribing)
{
    const struct dibs__store_config *config = &e->store->config;

    if (subscribing || trial->when >= SUBSCRIBED)
        return subscribing &&
               (trial->when == SUBSCRIBED || (trial->when > SUBSCRIBED && e->inquiry.link->view.cluster));
    return trial->when == ALWAYS || (trial->when == WITH_REPLICAS && config->min_replicas > 0) ||
           (trial->when == DURABLE && config->durable) || (trial->when == ON_CLUSTER && e->inquiry.link->view.cluster);
}

struct words {
    const char *words[WORDS_MAX];
    size_t sizes[WORDS_MAX];
};

static struct dibs__command command_of(const struct dibs__examining *e, const struct meaning *meaning,
                                       const struct trial *trial, struct words *words)
{
    int count = 0;

    for (; count < WORDS_MAX && trial->words[count]; count++) {
        words->words[count] = meaning_of(e, meaning, trial->words[count]);
        words->sizes[count] = strlen(words->words[count]);
    }
    return (struct dibs__command){.count = count, .words = words->words, .sizes = words->sizes};
}

/* Those trials, in one round trip. replies: one for each trial; NULL: it was not tried. */
static bool try_some(struct dibs__examining *e, struct meaning *meaning, bool subscribing, redisReply **replies)
{
    struct words *words = calloc(TRIALS, sizeof *words);
    struct dibs__command commands[TRIALS];
    redisReply *said[TRIALS];
    size_t count = 0, at = 0;

    if (!words) {
        e->examination->no_memory = true;
        return false;
    }
    for (size_t i = 0; i < TRIALS; i++)
        if (is_tried(e, &trials[i], subscribing)) {
            commands[count] = command_of(e, meaning, &trials[i], &words[count]);
            count++;
        }
    bool good = dibs__examining_ask(e, commands, count, said);
    for (size_t i = 0; i < TRIALS && good; i++)
        if (is_tried(e, &trials[i], subscribing))
            replies[i] = said[at++];
    free(words);
    return good;
}

static void tell_all(struct dibs__examining *e, struct meaning *meaning, redisReply *const *replies)
{
    for (size_t i = 0; i < TRIALS; i++)
        if (replies[i])
            judge(e, meaning, &trials[i], replies[i]);
    if (!meaning->lacks)
        dibs__examining_say(e, "rights", DIBS_VERDICT_OK, "", "The account may use all that dibs makes use of.");
    for (size_t i = 0; i < TRIALS; i++)
        if (replies[i] && is_unknown(replies[i]) && trials[i].words[1] != CHANGES)
            dibs__examining_say(e, "commands", trials[i].verdict,
                                "Let the server have the command (rename-command), or use another service.",
                                "The server does not know %s, so %s.", trials[i].name, trials[i].lost);
    if (!meaning->unknown)
        dibs__examining_say(e, "commands", DIBS_VERDICT_OK, "", "The server knows all that dibs makes use of.");
}

bool dibs__examine_rights(struct dibs__examining *e)
{
    redisReply *replies[TRIALS] = {NULL};
    struct meaning *meaning = calloc(1, sizeof *meaning);

    if (!meaning) {
        e->examination->no_memory = true;
        return false;
    }
    make_meaning(e, meaning);
    e->hears_changes = true;
    bool good = try_some(e, meaning, false, replies) && try_some(e, meaning, true, replies);
    if (good)
        tell_all(e, meaning, replies);
    for (size_t i = 0; i < TRIALS; i++)
        if (replies[i])
            dibs__reply_free(replies[i]);
    free(meaning);
    return good;
}
