/*
 * Finds out which commands the account may not use, or the server does not know. Each is tried by words that change
 * nothing, with keys that nobody has; a server checks the right before it finds fault with the words.
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/glob.h"
#include "base/random.h"
#include "redis/reply.h"
#include "store/redis/examine_parts.h"

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
    SUBSCRIBED, /* after all others, because a connection with a subscription accepts few other commands */
    SUBSCRIBED_ON_CLUSTER
};

struct trial {
    const char *words[WORDS_MAX];
    const char *lost; /* what of dibs does not work without it */
    dibs_verdict verdict;
    enum when when;
    bool hears; /* being told of changes requires it */
};

#define BAD DIBS_VERDICT_BAD
#define WARN DIBS_VERDICT_WARN

/* Texts for what is lost without several of the rights. */
#define NO_LOCK "no lock can be taken"
#define NOT_SHARED "a lock can't be shared"
#define NOT_RENEWED "leases are not renewed, and end while their locks are held"
#define POLLED "waiters ask every 50 to 100 ms, and DIBS_FAIR is refused"
#define UNTOLD "the server does not tell of locks that change"
#define TOLD_TO_ALL "grants are told to all nodes of the cluster"

static const struct trial trials[] = {
    /* The first two are looked at together as well. */
    {{"EVALSHA", NO_SCRIPT, "0"}, "the text of a script is sent with each call", WARN, ALWAYS, 0},
    {{"EVAL", "return 1", "0"},
     "each connection sends all scripts; locks whose slot moves are refused",
     WARN,
     ALWAYS,
     0},
    {{"SCRIPT", "EXISTS", NO_SCRIPT}, "each process sends all scripts", WARN, ALWAYS, 0},
    {{"GET", LOCK}, NO_LOCK, BAD, ALWAYS, 0},
    {{"MGET", LOCK}, NOT_RENEWED, BAD, ALWAYS, 0},
    {{"SET", LOCK, "x", "XX"}, NO_LOCK, BAD, ALWAYS, 0},
    {{"INCRBY", FENCE, "x"}, "a grant takes the server a little longer", WARN, ALWAYS, 0},
    {{"DEL", LOCK}, "no lock can be released", BAD, ALWAYS, 0},
    {{"EXISTS", LOCK}, NO_LOCK, BAD, ALWAYS, 0},
    {{"PTTL", LOCK}, "who finds a lock taken is refused", BAD, ALWAYS, 0},
    {{"PEXPIRE", LOCK, "1"}, NOT_RENEWED, BAD, ALWAYS, 0},
    {{"TIME"}, NO_LOCK, BAD, ALWAYS, 0},
    {{"PING"}, "a waiter is told a little later, and a dead connection is noticed later", WARN, ALWAYS, 0},
    {{"HSET", QUEUE, "a", "b", "c"}, "who waits for a lock is refused", BAD, ALWAYS, 0},
    {{"HGET", QUEUE, "a"}, NO_LOCK, BAD, ALWAYS, 0},
    {{"HMGET", QUEUE, "a"},
     "shared locks are refused, and one whose queue somebody has left can't be released",
     BAD,
     ALWAYS,
     0},
    {{"HDEL", QUEUE, "a"}, "a lock that several wait for can't be released", BAD, ALWAYS, 0},
    {{"HKEYS", QUEUE}, "a queue that many have left can't be served", WARN, ALWAYS, 0},
    {{"HLEN", QUEUE}, "dibs_query, dibs_list and dibs_force_unlock are refused", WARN, ALWAYS, 0},
    {{"ZADD", QUEUE, "XX", "0", "a"}, NOT_SHARED, WARN, ALWAYS, 0},
    {{"ZREM", QUEUE, "a"}, NOT_SHARED, WARN, ALWAYS, 0},
    {{"ZRANGE", QUEUE, "0", "0"}, NOT_SHARED, WARN, ALWAYS, 0},
    {{"ZRANGEBYSCORE", QUEUE, "0", "0"}, NOT_SHARED, WARN, ALWAYS, 0},
    {{"ZCARD", QUEUE}, NOT_SHARED, WARN, ALWAYS, 0},
    {{"INFO", "server"},
     "nothing is restored after a restart or a failover, because one server is not told from another",
     WARN,
     ALWAYS,
     1},
    {{"CLIENT", "ID"}, "what is left of a connection that broke can't be ended", WARN, ALWAYS, 1},
    {{"CLIENT", "SETNAME", CLIENT_NAME}, "CLIENT LIST does not show the label", WARN, ALWAYS, 0},
    {{"CLIENT", "KILL", "ID", NOBODYS_ID},
     "what is left of a connection that broke can't be ended: an ask that was never answered loses its place",
     WARN,
     ALWAYS,
     0},
    {{"CLIENT", "TRACKING", "OFF"}, UNTOLD, WARN, ALWAYS, 1},
    {{"CLIENT", "CACHING", "NO"},
     "what is deleted in the background is tracked, which costs the server time",
     WARN,
     ALWAYS,
     0},
    {{"PUBLISH", CHANNEL, ""}, POLLED, WARN, ALWAYS, 0},
    {{"PUBSUB", "NUMSUB", CHANNEL}, POLLED, WARN, ALWAYS, 0},
    {{"SCAN", "0", "COUNT", "1"}, "dibs_list is refused", WARN, ALWAYS, 0},
    {{"WAIT", "0", "1"}, "with min_replicas no lock is granted", BAD, WITH_REPLICAS, 0},
    {{"WAITAOF", "0", "0", "1"}, "with durable no lock is granted", BAD, DURABLE, 0},
    {{"CLUSTER", "SLOTS"}, "the node does not tell who has which slots", WARN, ON_CLUSTER, 0},
    {{"SPUBLISH", CHANNEL, ""}, TOLD_TO_ALL, WARN, ON_CLUSTER, 0},
    {{"PUBSUB", "SHARDNUMSUB"}, TOLD_TO_ALL, WARN, ON_CLUSTER, 0},
    {{"SUBSCRIBE", CHANNEL}, POLLED, WARN, SUBSCRIBED, 1},
    {{"SUBSCRIBE", CHANGES}, UNTOLD, WARN, SUBSCRIBED, 1},
    {{"SSUBSCRIBE", CHANNEL}, TOLD_TO_ALL, WARN, SUBSCRIBED_ON_CLUSTER, 0},
};
#define TRIALS (sizeof trials / sizeof trials[0])

/* Rights to keys and channels, as ACL SETUSER writes them. Each that is missing is reported once. */
enum pattern { LOCK_KEYS, OTHER_KEYS, OUR_CHANNELS, CHANGES_PATTERN, PATTERNS };

static const struct {
    const char *rule; /* NULL: that of the prefix of all locks */
    const char *name, *lost;
    dibs_verdict verdict;
} patterns[PATTERNS] = {
    [LOCK_KEYS] = {NULL, "the keys of locks", NO_LOCK, BAD},
    [OTHER_KEYS] = {"~dibs:*", "the keys that begin with dibs:", NO_LOCK, BAD},
    [OUR_CHANNELS] = {"&dibs:*", "the channels that begin with dibs:", POLLED, WARN},
    [CHANGES_PATTERN] = {"&" CHANGES_CHANNEL, "the channel " CHANGES_CHANNEL, UNTOLD, WARN},
};

/* What the words of the trials stand for, and what was reported already. Some KiB, so it is on the heap. */
struct meaning {
    struct dibs__key keys[DIBS__KEYS];
    char channel[DIBS__CHANNEL_MAX];
    bool told[PATTERNS];
    bool lacks;   /* a right is missing */
    bool unknown; /* a command is unknown */
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

#define COMMAND_MAX 32

/* The name of the command of a trial, such as CLIENT ID: the subcommand of a container is part of the name. */
static const char *name_of(const struct trial *trial, char out[COMMAND_MAX])
{
    static const char *const containers[] = {"SCRIPT", "CLIENT", "PUBSUB", "CLUSTER"};
    const char *subcommand = NULL;

    for (size_t i = 0; i < sizeof containers / sizeof *containers; i++)
        if (strcmp(trial->words[0], containers[i]) == 0)
            subcommand = trial->words[1];
    snprintf(out, COMMAND_MAX, subcommand ? "%s %s" : "%s", trial->words[0], subcommand);
    return out;
}

static void tell_missing(struct dibs__examining *e, const char *name, const char *lost, dibs_verdict verdict,
                         const char *rule)
{
    const char *user = e->store->endpoint.url.user ? e->store->endpoint.url.user : "default";
    char remedy[DIBS__FINDING_MAX];

    snprintf(remedy, sizeof remedy, "ACL SETUSER %.64s %.430s", user, rule);
    DIBS__SAY(e, "rights", verdict, remedy, "The account may not use %s, so %s.", name, lost);
}

/* The right to a command is missing, which ACL SETUSER writes as "+client|id". */
static void tell_command(struct dibs__examining *e, const struct trial *trial)
{
    char name[COMMAND_MAX], rule[COMMAND_MAX + 1];

    snprintf(rule, sizeof rule, "+%s", name_of(trial, name));
    for (char *c = rule; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    char *blank = strchr(rule, ' ');
    if (blank)
        *blank = '|';
    tell_missing(e, name, trial->lost, trial->verdict, rule);
}

/* The right to a key or a channel is missing. */
static void tell_pattern(struct dibs__examining *e, struct meaning *meaning, const struct trial *trial)
{
    bool of_channel = trial->when >= ON_CLUSTER || !strcmp(trial->words[0], "PUBLISH");
    enum pattern at = of_channel ? (trial->words[1] == CHANNEL ? OUR_CHANNELS : CHANGES_PATTERN)
                                 : (trial->words[1] == LOCK ? LOCK_KEYS : OTHER_KEYS);
    const char *prefix = e->store->config.key_prefix;
    char keys[2 * DIBS__PREFIX_MAX + 3] = "~"; /* a glob, as the pattern of ACL SETUSER is one */

    if (meaning->told[at])
        return;
    meaning->told[at] = true;
    strcpy(keys + 1 + dibs__glob_escape(keys + 1, prefix, strlen(prefix)), "*");
    tell_missing(e, patterns[at].name, patterns[at].lost, patterns[at].verdict,
                 patterns[at].rule ? patterns[at].rule : keys);
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
    if (unknown) /* reported after all that concerns rights */
        meaning->unknown = true;
    else if (!strstr(reply->str, "run the"))
        tell_pattern(e, meaning, trial);
    else if (trial->words[1] != CHANGES)
        tell_command(e, trial);
}

/* -------------------------------------------------------------------- the trials */

static bool is_tried(const struct dibs__examining *e, const struct trial *trial, bool subscribing)
{
    const struct dibs__store_config *config = &e->store->config;

    if (subscribing || trial->when >= SUBSCRIBED)
        return subscribing && (trial->when == SUBSCRIBED || (trial->when > SUBSCRIBED && e->link->view.cluster));
    return trial->when == ALWAYS || (trial->when == WITH_REPLICAS && config->min_replicas > 0) ||
           (trial->when == DURABLE && config->durable) || (trial->when == ON_CLUSTER && e->link->view.cluster);
}

/* Makes those trials in one round trip. replies: one for each trial; NULL: it was not made. */
static bool try_some(struct dibs__examining *e, struct meaning *meaning, bool subscribing, redisReply **replies)
{
    const char *words[TRIALS][WORDS_MAX + 1], *const *commands[TRIALS];
    redisReply *said[TRIALS];
    size_t count = 0, at = 0;

    for (size_t i = 0; i < TRIALS; i++) {
        if (!is_tried(e, &trials[i], subscribing))
            continue;
        for (size_t word = 0; word < WORDS_MAX; word++)
            words[count][word] = meaning_of(e, meaning, trials[i].words[word]);
        words[count][WORDS_MAX] = NULL;
        commands[count] = words[count];
        count++;
    }
    bool good = dibs__examining_ask(e, commands, count, said);
    for (size_t i = 0; i < TRIALS && good; i++)
        if (is_tried(e, &trials[i], subscribing))
            replies[i] = said[at++];
    return good;
}

/* Each of the two can take the place of the other. */
static void tell_scripts(struct dibs__examining *e, redisReply *const *replies)
{
    for (size_t i = 0; i < 2; i++)
        if (!replies[i] || !(dibs__reply_is_error(replies[i], "NOPERM") || is_unknown(replies[i])))
            return;
    DIBS__SAY(e, "commands", DIBS_VERDICT_BAD, "See what is said of EVALSHA and of EVAL.",
              "Neither EVALSHA nor EVAL can be used, so no script runs, and no lock can be taken.");
}

static void tell_all(struct dibs__examining *e, struct meaning *meaning, redisReply *const *replies)
{
    char name[COMMAND_MAX];

    for (size_t i = 0; i < TRIALS; i++)
        if (replies[i])
            judge(e, meaning, &trials[i], replies[i]);
    if (!meaning->lacks)
        DIBS__SAY(e, "rights", DIBS_VERDICT_OK, "", "The account may use all that dibs makes use of.");
    for (size_t i = 0; i < TRIALS; i++)
        if (replies[i] && is_unknown(replies[i]) && trials[i].words[1] != CHANGES)
            DIBS__SAY(e, "commands", trials[i].verdict,
                      "Let the server have the command (rename-command), or use another service.",
                      "The server does not know %s, so %s.", name_of(&trials[i], name), trials[i].lost);
    tell_scripts(e, replies);
    if (!meaning->unknown)
        DIBS__SAY(e, "commands", DIBS_VERDICT_OK, "", "The server knows all that dibs makes use of.");
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
            freeReplyObject(replies[i]);
    free(meaning);
    return good;
}
