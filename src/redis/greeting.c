/*
 * What is sent on a new link before it can be used: the account and the database, and questions about the server. All
 * of that is sent at once. If the answers call for it, more follows: ending the link that this one replaces, and the
 * scripts. A link for messages subscribes last, when the previous link has ended: otherwise the server might count both
 * as listeners. HELLO is never sent: the server keeps speaking RESP2, which hiredis reads (reader.c).
 */
#include "redis/link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "redis/reply.h"
#include "redis/scripts.h"

#define WORDS_MAX 4
#define NUMBER_SIZE 24

/* No client has this id, 2^63 - 1. For a server before Redis 7, the id 0 would mean all clients. */
#define NOBODYS_ID "9223372036854775807"

/* Words that stand for something that the link knows. They are compared by their addresses. */
static const char USER[] = "the user", PASSWORD[] = "the password", DATABASE[] = "the database";
static const char CLIENT_NAME[] = "the name of this client", CHANNEL[] = "the channel of this runtime";
static const char SCRIPT[] = "the text of a script", SHAS[] = "the ids of all scripts";
static const char CLIENT_BEFORE[] = "the id of the link before";

/* When a command is sent, as the state in which its answer is awaited. */
#define FIRST DIBS__LINK_GREETING   /* before anything was answered */
#define LATER DIBS__LINK_FOLLOWING  /* once all commands of FIRST, which precede these, have been answered */
#define LAST DIBS__LINK_SUBSCRIBING /* once those of LATER have been answered as well */

/* Whether a refusal makes the link useless. */
enum refusal {
    FATAL,
    OPTIONAL, /* the link can do without, if the account may not use the command or the server does not know it */
    HARMLESS, /* the link can do without; `take` gets the refusal */
};

struct command {
    enum dibs__link_state moment;
    const char *name;                               /* name in a sentence about its refusal */
    const char *words[WORDS_MAX];                   /* words that the link does not have are left out */
    int rounds;                                     /* how often the command is sent; 0: once */
    bool (*applies)(const struct dibs__link *link); /* NULL: always */
    enum refusal refusal;
    bool (*take)(struct dibs__link *link,
                 const redisReply *reply); /* NULL: the answer does not matter; false: the reply is no answer */
};

/* ------------------------------------------------------ what applies to a link */

static bool has_credentials(const struct dibs__link *link)
{
    return link->endpoint->url.user || link->endpoint->url.password;
}

static bool runs_scripts(const struct dibs__link *link)
{
    return link->use == DIBS__LINK_COMMANDS;
}

static bool keeps_locks(const struct dibs__link *link)
{
    return link->use != DIBS__LINK_SENTINEL;
}

/* The sentinels may be wrong or late, so the server that they named must prove that it is a master. */
static bool must_be_master(const struct dibs__link *link)
{
    return keeps_locks(link) && link->endpoint->url.kind == DIBS__URL_SENTINEL;
}

static bool tells_of_replication(const struct dibs__link *link)
{
    return runs_scripts(link) || must_be_master(link);
}

static bool subscribes(const struct dibs__link *link)
{
    return link->use == DIBS__LINK_SUBSCRIPTIONS;
}

static bool needs_select(const struct dibs__link *link)
{
    return runs_scripts(link) && link->endpoint->url.db != 0;
}

static bool needs_scripts(const struct dibs__link *link)
{
    return runs_scripts(link) && link->view.no_eval;
}

static bool is_in_cluster(const struct dibs__link *link)
{
    return runs_scripts(link) && link->view.cluster;
}

static bool knows_servers(const struct dibs__link *link)
{
    return link->before.run_id[0] && link->view.id.run_id[0];
}

/*
 * If the same server process still runs, it may still have the previous link, so that link is ended. Another process
 * never had that link. Nothing else proves that what was sent on it can no longer arrive.
 */
static bool needs_end_before(const struct dibs__link *link)
{
    return knows_servers(link) && strcmp(link->before.run_id, link->view.id.run_id) == 0 &&
           dibs__link_can_be_ended(&link->before);
}

/* -------------------------------------------------------- what answers tell */

static bool lacks_right(const redisReply *no)
{
    return dibs__reply_is_error(no, "NOPERM");
}

/* The text after `field` in an answer to INFO. NULL: the field is missing. */
static const char *info_of(const redisReply *reply, const char *field)
{
    const char *at = reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_STATUS ? reply->str : "";

    at = strstr(at, field);
    return at ? at + strlen(field) : NULL;
}

static void take_id(char out[DIBS__RUN_ID + 1], const redisReply *reply, const char *field)
{
    const char *at = info_of(reply, field);

    if (at && strcspn(at, "\r\n") == DIBS__RUN_ID)
        memcpy(out, at, DIBS__RUN_ID);
}

static bool take_client(struct dibs__link *link, const redisReply *reply)
{
    link->view.id.client = reply->type == REDIS_REPLY_INTEGER ? reply->integer : 0;
    return true;
}

bool dibs__version_is_since(const char *version, long major, long minor, long patch)
{
    const long since[] = {major, minor, patch};

    for (size_t i = 0; version && i < sizeof since / sizeof *since; i++) {
        char *end;
        long number = strtol(version, &end, 10);
        if (end == version || number != since[i])
            return end != version && number > since[i];
        version = *end == '.' ? end + 1 : end;
    }
    return version != NULL;
}

/*
 * WAITAOF came with Redis 7.2. With appendfsync everysec, Redis 7.4.0 to 7.4.2 and Valkey since 8.0 may answer before
 * the write is on disk. (Valkey calls itself redis_version 7.2.4.)
 */
static bool tells_of_disk(const char *redis, const char *valkey)
{
    bool early = valkey ? dibs__version_is_since(valkey, 8, 0, 0)
                        : dibs__version_is_since(redis, 7, 4, 0) && !dibs__version_is_since(redis, 7, 4, 3);

    return dibs__version_is_since(redis, 7, 2, 0) && !early;
}

static enum dibs__delete_if deletes_if(const char *redis, const char *valkey)
{
    if (dibs__version_is_since(valkey, 9, 0, 0))
        return DIBS__DELETE_IF_EQ;
    return dibs__version_is_since(redis, 8, 4, 0) && !valkey ? DIBS__DELETE_IF_EX : DIBS__DELETE_IF_NONE;
}

static bool take_server(struct dibs__link *link, const redisReply *reply)
{
    const char *redis = info_of(reply, "redis_version:"), *valkey = info_of(reply, "valkey_version:");

    take_id(link->view.id.run_id, reply, "run_id:");
    link->view.tracks_keys =
        dibs__version_is_since(redis, 7, 0, 5); /* older servers also tell a client what its own scripts change */
    link->view.tells_of_disk = tells_of_disk(redis, valkey);
    link->view.tells_parted = dibs__version_is_since(redis, 7, 0, 0);
    link->view.deletes_if = deletes_if(redis, valkey);
    link->ended_before = knows_servers(link) && strcmp(link->before.run_id, link->view.id.run_id) != 0;
    return true;
}

static bool take_may_kill(struct dibs__link *link, const redisReply *reply)
{
    link->view.id.may_kill = reply->type == REDIS_REPLY_INTEGER;
    return true;
}

static bool take_time(struct dibs__link *link, const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 || !reply->element[0]->str || !reply->element[1]->str)
        return true;
    long long s = strtoll(reply->element[0]->str, NULL, 10), us = strtoll(reply->element[1]->str, NULL, 10);
    if (s >= 0 && s < DIBS__REPLY_MOST / 1000000 && us >= 0 && us < 1000000)
        link->view.server_ahead_us = s * 1000000 + us - link->greeted_at / 1000;
    return true;
}

static enum dibs__role role_of(const char *name)
{
    return strncmp(name, "master", strlen("master")) == 0 ? DIBS__ROLE_MASTER : DIBS__ROLE_REPLICA;
}

static bool take_role(struct dibs__link *link, const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements > 0 && reply->element[0]->type == REDIS_REPLY_STRING)
        link->greeting.role = role_of(reply->element[0]->str);
    return true;
}

/* The role that INFO tells counts only if ROLE did not tell it. */
static bool take_replication(struct dibs__link *link, const redisReply *reply)
{
    const char *role = info_of(reply, "role:");

    take_id(link->replication_id, reply, "master_replid:");
    if (role && must_be_master(link) && link->greeting.role == DIBS__ROLE_UNKNOWN)
        link->greeting.role = role_of(role);
    return true;
}

/* If the account may not ask, the text of each script is sent once. */
static bool take_scripts(struct dibs__link *link, const redisReply *reply)
{
    unsigned scripts = 0;

    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != DIBS__SCRIPT_COUNT)
        return reply->type == REDIS_REPLY_ERROR;
    for (int i = 0; i < DIBS__SCRIPT_COUNT; i++)
        scripts |= (unsigned)(reply->element[i]->type == REDIS_REPLY_INTEGER && reply->element[i]->integer == 1) << i;
    atomic_store_explicit(&link->endpoint->scripts, scripts,
                          memory_order_relaxed); /* this also clears DIBS__SCRIPTS_AS_TEXT, so EVALSHA is tried again */
    return true;
}

static bool take_no_eval(struct dibs__link *link, const redisReply *reply)
{
    link->view.no_eval = reply->type == REDIS_REPLY_ERROR;
    return true;
}

static bool take_sha(struct dibs__link *link, const redisReply *reply)
{
    int script = link->greeting.round;

    DIBS__REQUIRE(script < DIBS__SCRIPT_COUNT);
    atomic_fetch_or_explicit(&link->endpoint->scripts, 1u << script, memory_order_relaxed);
    return reply->type == REDIS_REPLY_STRING && strcmp(reply->str, dibs__scripts[script].sha) == 0;
}

static bool take_may_publish(struct dibs__link *link, const redisReply *reply)
{
    link->view.may_publish = reply->type != REDIS_REPLY_ERROR;
    return true;
}

static bool take_cluster(struct dibs__link *link, const redisReply *reply)
{
    const char *at = info_of(reply, "cluster_enabled:");

    link->view.cluster = at && *at == '1';
    return true;
}

/* If the channel's slot is elsewhere, or not served now, the server says so; but then the account has the right. */
static bool take_may_spublish(struct dibs__link *link, const redisReply *reply)
{
    link->view.sharded = !lacks_right(reply) && !dibs__reply_is_error(reply, "ERR");
    return true;
}

static bool take_may_count(struct dibs__link *link, const redisReply *reply)
{
    link->view.sharded = link->view.sharded && reply->type != REDIS_REPLY_ERROR;
    return true;
}

static bool take_ended(struct dibs__link *link, const redisReply *reply)
{
    link->ended_before = reply->type == REDIS_REPLY_INTEGER;
    return true;
}

static bool take_subscribed(struct dibs__link *link, const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_ERROR)
        atomic_fetch_add_explicit(link->endpoint->errors, 1, memory_order_relaxed);
    return dibs__reply_is_event(reply, "subscribe", link->endpoint->channel, REDIS_REPLY_INTEGER);
}

/* ---------------------------------------------------------------- the table */

/* The commands of the greeting, in the order in which they are sent. */
static const struct command greeting[] = {
    {FIRST, "AUTH", {"AUTH", USER, PASSWORD}, 0, has_credentials, FATAL, NULL},
    {FIRST, "SELECT", {"SELECT", DATABASE}, 0, needs_select, FATAL, NULL},
    {FIRST, "CLIENT SETNAME", {"CLIENT", "SETNAME", CLIENT_NAME}, 0, NULL, OPTIONAL, NULL},
    {FIRST, "CLIENT ID", {"CLIENT", "ID"}, 0, keeps_locks, OPTIONAL, take_client},
    {FIRST, "INFO", {"INFO", "server"}, 0, keeps_locks, OPTIONAL, take_server},
    {FIRST, "CLIENT KILL", {"CLIENT", "KILL", "ID", NOBODYS_ID}, 0, keeps_locks, OPTIONAL, take_may_kill},
    {FIRST, "ROLE", {"ROLE"}, 0, must_be_master, OPTIONAL, take_role},
    {FIRST, "TIME", {"TIME"}, 0, runs_scripts, OPTIONAL, take_time},
    {FIRST, "INFO", {"INFO", "replication"}, 0, tells_of_replication, OPTIONAL, take_replication},
    {FIRST, "SCRIPT EXISTS", {"SCRIPT", "EXISTS", SHAS}, 0, runs_scripts, OPTIONAL, take_scripts},
    {FIRST, "EVAL", {"EVAL", "return 1", "0"}, 0, runs_scripts, OPTIONAL, take_no_eval},
    {FIRST, "PUBLISH", {"PUBLISH", CHANNEL, ""}, 0, runs_scripts, OPTIONAL, take_may_publish}, /* wakes nobody */
    {FIRST, "INFO", {"INFO", "cluster"}, 0, runs_scripts, OPTIONAL, take_cluster},
    {LATER, "SPUBLISH", {"SPUBLISH", CHANNEL, ""}, 0, is_in_cluster, HARMLESS, take_may_spublish},
    {LATER, "PUBSUB", {"PUBSUB", "SHARDNUMSUB"}, 0, is_in_cluster, HARMLESS, take_may_count},
    {LATER, "CLIENT KILL", {"CLIENT", "KILL", "ID", CLIENT_BEFORE}, 0, needs_end_before, OPTIONAL, take_ended},
    {LATER, "EVAL, SCRIPT LOAD", {"SCRIPT", "LOAD", SCRIPT}, DIBS__SCRIPT_COUNT, needs_scripts, FATAL, take_sha},
    {LAST, "SUBSCRIBE to our channel", {"SUBSCRIBE", CHANNEL}, 0, subscribes, HARMLESS, take_subscribed},
};
#define COMMANDS (sizeof greeting / sizeof greeting[0])

static bool applies(const struct dibs__link *link, const struct command *command)
{
    return !command->applies || command->applies(link);
}

/* ----------------------------------------------------------------- speaking */

/* NOLINTBEGIN(clang-analyzer-core.NullDereference): a link has an endpoint as long as it lives */

/* The text of a word of the table for this link. NULL: the link does not have it. */
static const char *meaning(const struct dibs__link *link, const char *word, int round, char number[NUMBER_SIZE])
{
    const struct dibs__endpoint *endpoint = link->endpoint;

    if (word == USER)
        return endpoint->url.user;
    if (word == PASSWORD)
        return endpoint->url.password;
    if (word == CLIENT_NAME)
        return endpoint->client_name;
    if (word == CHANNEL)
        return endpoint->channel;
    if (word == SCRIPT)
        return dibs__scripts[round].text;
    if (word != DATABASE && word != CLIENT_BEFORE)
        return word;
    snprintf(number, NUMBER_SIZE, "%lld",
             word == DATABASE ? (long long)endpoint->url.db : (long long)link->before.client);
    return number;
}

/* NOLINTEND(clang-analyzer-core.NullDereference) */

static bool say(struct dibs__link *link, const struct command *command, int round)
{
    const char *words[WORDS_MAX + DIBS__SCRIPT_COUNT + 1]; /* SCRIPT EXISTS names all scripts */
    char number[NUMBER_SIZE];
    int count = 0;

    for (int i = 0; i < WORDS_MAX && command->words[i]; i++) {
        const char *word = command->words[i] == SHAS ? NULL : meaning(link, command->words[i], round, number);
        if (word)
            words[count++] = word;
        for (int script = 0; script < DIBS__SCRIPT_COUNT && command->words[i] == SHAS; script++)
            words[count++] = dibs__scripts[script].sha;
    }
    words[count] = NULL;
    return dibs__link_say(link, words);
}

static dibs_status say_all(struct dibs__link *link, enum dibs__link_state moment, struct dibs__error *error)
{
    bool said = true;

    link->state = moment;
    for (size_t i = 0; i < COMMANDS && said; i++) {
        const struct command *command = &greeting[i];
        bool is_said = command->moment == moment && applies(link, command);
        for (int round = 0; is_said && said && (round == 0 || round < command->rounds); round++)
            said = say(link, command, round);
    }
    return said ? DIBS_OK : dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a connection");
}

dibs_status dibs__greeting_begin(struct dibs__link *link, int64_t now, struct dibs__error *error)
{
    DIBS__REQUIRE(link->state == DIBS__LINK_CONNECTING && link->transport->connected);
    link->greeted_at = now;
    return say_all(link, FIRST, error);
}

/* ---------------------------------------------------------------- listening */

/* The command whose answer comes next. NULL: the whole greeting has been answered. */
static const struct command *awaited(struct dibs__link *link)
{
    struct dibs__greeting *at = &link->greeting;

    while (at->command < COMMANDS && !applies(link, &greeting[at->command]))
        at->command++;
    return at->command < COMMANDS ? &greeting[at->command] : NULL;
}

static void advance(struct dibs__link *link)
{
    struct dibs__greeting *at = &link->greeting;

    if (++at->round < greeting[at->command].rounds)
        return;
    at->round = 0;
    at->command++;
}

static bool is_fatal(const struct command *command, const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ERROR || command->refusal == HARMLESS)
        return false;
    return command->refusal == FATAL || (!lacks_right(reply) && dibs__reply_status(reply->str) != DIBS_STORE_ERROR);
}

/* Sets *complete to false if the answer has not completely arrived. */
static dibs_status take_answer(struct dibs__link *link, const struct command *command, bool *complete,
                               struct dibs__error *error)
{
    redisReply *reply;

    *complete = false;
    if (dibs__link_next_reply(link, &reply, error) != DIBS_OK)
        return error->status;
    if (!reply)
        return DIBS_OK;
    *complete = true;
    bool good = !is_fatal(command, reply) && (!command->take || command->take(link, reply));
    if (!good)
        dibs__reply_refusal(error, reply, link->endpoint->url.shown, command->name);
    freeReplyObject(reply);
    return good ? DIBS_OK : error->status;
}

/* Called when all commands of FIRST have been answered. */
static dibs_status check_role(const struct dibs__link *link, struct dibs__error *error)
{
    char host[DIBS__HOST_MAX];

    if (!must_be_master(link) || link->greeting.role == DIBS__ROLE_MASTER)
        return DIBS_OK;
    if (link->greeting.role == DIBS__ROLE_UNKNOWN)
        return dibs__error_set(error, DIBS_DENIED,
                               "whether the server is the master %s is not known: it refused both ROLE and INFO",
                               link->endpoint->url.shown);
    dibs__endpoint_host(link->endpoint, host);
    return dibs__error_set(error, DIBS_UNAVAILABLE, "%s: the server that was named, at %s, is not a master",
                           link->endpoint->url.shown, host);
}

static uint64_t number_of_server(const struct dibs__link *link)
{
    if (!link->view.id.run_id[0])
        return 0;
    uint64_t process = dibs__hash(link->view.id.run_id, DIBS__RUN_ID);
    uint64_t server = process ^ dibs__hash(link->replication_id, DIBS__RUN_ID) * 3;
    return server ? server : 1;
}

dibs_status dibs__greeting_take(struct dibs__link *link, struct dibs__error *error)
{
    const struct command *command;
    dibs_status status = DIBS_OK;
    bool complete = true;

    DIBS__REQUIRE(link->state > DIBS__LINK_CONNECTING && link->state < DIBS__LINK_READY);
    while (status == DIBS_OK && complete && (command = awaited(link))) {
        if (command->moment != link->state)
            return check_role(link, error) == DIBS_OK ? say_all(link, command->moment, error) : error->status;
        status = take_answer(link, command, &complete, error);
        if (status == DIBS_OK && complete)
            advance(link);
    }
    if (status == DIBS_OK && complete)
        status = check_role(link, error);
    if (status == DIBS_OK && complete) {
        link->view.server = number_of_server(link);
        link->state = DIBS__LINK_READY;
    }
    return status;
}
